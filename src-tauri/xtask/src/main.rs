//! The developer's commands: set up, show, test, measure, check. They know the repository and the
//! product from outside; no part of the product is in here.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these commands talk to the person who typed them"
)]

mod guest;
mod shell;

use clap::{Parser, Subcommand};

/// Commands for working on Runbridge.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the embedded sandbox's Python.
    Guest(guest::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Guest(arguments) => guest::run(&arguments).map(|_| ()),
    }
}
