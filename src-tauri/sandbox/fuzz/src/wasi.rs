//! The parts of the embedded backend that know nothing of WebAssembly, where they are in the product.

#[path = "../../src/wasi/door.rs"]
mod door;
#[path = "../../src/wasi/files.rs"]
mod files;
#[path = "../../src/wasi/hostile.rs"]
pub mod hostile;
