#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| runbridge_fuzz::wasi::hostile::files(data));
