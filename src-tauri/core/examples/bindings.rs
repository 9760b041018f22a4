//! Prints the window's types; `cargo xtask bindings` runs it, so that xtask need not build the core.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(runbridge_core::api::bindings().as_bytes())
}
