//! What is fuzzed: the host's side of a guest as others see it (`guest`), and inner parts of the
//! embedded backend, taken by path so that wasmtime need not be compiled with the fuzzer's flags.

#![allow(dead_code, reason = "only what hostile input reaches is called")]

#[path = "../../src/frame.rs"]
mod frame;
pub mod guest;
pub mod wasi;
