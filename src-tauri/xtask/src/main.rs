//! The developer's commands: set up, show, test, measure, check. They know the repository and the
//! product from outside; no part of the product is in here.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these commands talk to the person who typed them"
)]

mod app;
#[cfg(unix)]
mod bench;
mod bindings;
mod bundle;
mod check;
#[cfg(unix)]
mod conformance;
#[cfg(target_os = "linux")]
mod cross;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod engine;
#[cfg(unix)]
mod engines;
mod fuzz;
mod guest;
#[cfg(unix)]
mod http;
mod icons;
#[cfg(unix)]
mod image;
mod licences;
mod machine;
mod mcpb;
#[cfg(unix)]
mod servers;
#[cfg(unix)]
mod setup;
mod shell;
#[cfg(unix)]
mod test;
mod tidy;
#[cfg(unix)]
mod tokens;
mod ui;

use std::process::ExitCode;

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
    /// Install what the demo, the tests and the benchmark need.
    #[cfg(unix)]
    Setup,
    /// Show the product at work: real servers, a real container, one MCP client.
    #[cfg(unix)]
    Demo(demo::Arguments),
    /// Prepare engines, image and servers, then run every test.
    #[cfg(unix)]
    Test(test::Arguments),
    /// Build a Python image from Debian packages and load it into the engines.
    #[cfg(unix)]
    Image(image::Arguments),
    /// Keep the test engines running until Enter, for running single tests by hand.
    #[cfg(unix)]
    Engines,
    /// Build the embedded sandbox's Python (about 4 minutes, once).
    Guest(guest::Arguments),
    /// Let a fuzzer make up what a hostile guest could send.
    Fuzz(fuzz::Arguments),
    /// Measure the built product against its figures.
    #[cfg(unix)]
    Bench(bench::Arguments),
    /// Run the protocol's conformance suite against both of our sides.
    #[cfg(unix)]
    Conformance,
    /// Pack the sidecar for Claude Desktop to install by itself.
    Mcpb(mcpb::Arguments),
    /// Compile the product for Windows and macOS, without linking or running it.
    #[cfg(target_os = "linux")]
    Cross(cross::Arguments),
    /// Write the window's types from the core's.
    Bindings(bindings::Arguments),
    /// Write the list of licences that the window shows.
    Licences(licences::Arguments),
    /// Check and test the window.
    Ui,
    /// Build and start the desktop app.
    App(app::Arguments),
    /// Make packages of the desktop app for this system.
    Bundle(bundle::Arguments),
    /// Write the file that installed apps ask for the newest version.
    UpdateManifest(bundle::ManifestArguments),
    /// Draw the icons of the app from their sources.
    Icons,
    /// Formatting, clippy and tidy.
    Check,
    /// What the compiler cannot check: who may know what.
    Tidy,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        #[cfg(unix)]
        Command::Setup => setup::run_command(),
        #[cfg(unix)]
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(unix)]
        Command::Test(arguments) => test::run(&arguments),
        #[cfg(unix)]
        Command::Image(arguments) => image::run(&arguments),
        #[cfg(unix)]
        Command::Engines => test::keep_ready(),
        Command::Guest(arguments) => guest::run(&arguments).map(|_| ()),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        #[cfg(unix)]
        Command::Bench(arguments) => bench::run(&arguments),
        #[cfg(unix)]
        Command::Conformance => conformance::run_command(),
        #[cfg(target_os = "linux")]
        Command::Cross(arguments) => cross::run_command(&arguments),
        Command::Mcpb(arguments) => mcpb::run(&arguments),
        Command::Bindings(arguments) => bindings::run(&arguments),
        Command::Licences(arguments) => licences::run(&arguments),
        Command::Ui => ui::run_all(),
        Command::App(arguments) => app::run_command(&arguments),
        Command::Bundle(arguments) => bundle::run_command(&arguments),
        Command::UpdateManifest(arguments) => bundle::manifest(&arguments),
        Command::Icons => icons::draw_all(),
        Command::Check => check::run_all(),
        Command::Tidy => tidy::run_all(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain alone: where in here an error arose is nothing to whoever typed the command.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
