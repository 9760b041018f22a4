//! `runbridge`: what MCP clients start, and the command line for people.
//!
//! Without a command it serves MCP on stdin and stdout; then stdout carries MCP and nothing else.
//! With [`WORKER`] it holds one guest of the built-in sandbox, for a bridge that started it.

mod cli;
mod relay;
mod serve;
mod style;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use runbridge_core::clients::connect::Action;
use runbridge_core::paths::{Environment, Paths};
use runbridge_core::sandboxes::{WORKER, worker_main};
use runbridge_core::settings::{LogLevel, Settings};

/// One MCP tool in place of hundreds: model-written Python runs in a sandbox and calls your MCP
/// servers through this bridge.
#[derive(Parser)]
#[command(name = "runbridge", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "\
Without a command, runbridge serves MCP on stdin and stdout; that is how clients start it.

Exit codes: 0 success; 1 the command or the Python failed (of `run`: the code given to sys.exit);
2 wrong arguments; 3 no sandbox could be had; 124 the run timed out; 130 it was interrupted;
137 it ran out of memory.

Settings come from the environment (MCP_BRIDGE_TIMEOUT, MCP_BRIDGE_MEMORY, MCP_BRIDGE_RUNTIME, …)
and from settings.json; `runbridge doctor` shows what is in force.";

#[derive(Subcommand)]
enum Command {
    /// Serve MCP: as without a command, or over HTTP for clients that want a URL
    Serve(serve::ServeArguments),
    /// Run Python in the sandbox and print what it prints
    Run(cli::run::RunArguments),
    /// List the MCP servers that were found, with their source and state
    Servers(cli::servers::ServersArguments),
    /// Search the tools of all servers
    Search(cli::search::SearchArguments),
    /// List the MCP clients on this machine, and whether they are connected
    Clients(cli::clients::ClientsArguments),
    /// Put Runbridge into a client's file
    Connect(cli::connect::ConnectArguments),
    /// Take it out again, and put back what was moved
    Disconnect(cli::connect::ChangeArguments),
    /// Take a client's own servers out of its file and reach them through Runbridge
    Move(cli::connect::ChangeArguments),
    /// Put a client's own servers back
    Restore(cli::connect::ChangeArguments),
    /// Look at and change what the model remembers
    Memory(cli::memory::MemoryArguments),
    /// Look at and change the Python packages that are installed for code
    Packages(cli::packages::PackagesArguments),
    /// Sign in to a remote server with a browser
    Login(cli::login::LoginArguments),
    /// Sign out of it
    Logout(cli::login::LogoutArguments),
    /// Keep values that servers need and no file should show
    Secret(cli::secret::SecretArguments),
    /// Check engine, image, limits and servers; says what to do about each problem
    Doctor(cli::doctor::DoctorArguments),
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(WORKER) {
        // A worker has nothing open that its guest could reach, so nothing may come before it.
        worker_main(words);
    }
    let arguments = Arguments::parse();
    start_log(matches!(arguments.command, None | Some(Command::Serve(_))));
    let outcome = match arguments.command {
        None => serve::stdio(),
        Some(Command::Serve(arguments)) if !arguments.http => serve::stdio(),
        Some(command) => run(command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            style::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => serve::http(arguments.port).await,
        Command::Run(arguments) => cli::run::run(arguments).await,
        Command::Servers(arguments) => cli::servers::run(arguments).await,
        Command::Search(arguments) => cli::search::run(arguments).await,
        Command::Clients(arguments) => cli::clients::run(&arguments),
        Command::Connect(arguments) => cli::connect::connect(&arguments),
        Command::Disconnect(arguments) => cli::connect::run(&arguments, Action::Disconnect, false),
        Command::Move(arguments) => cli::connect::run(&arguments, Action::Move, false),
        Command::Restore(arguments) => cli::connect::run(&arguments, Action::Restore, false),
        Command::Memory(arguments) => cli::memory::run(arguments),
        Command::Packages(arguments) => cli::packages::run(arguments).await,
        Command::Login(arguments) => cli::login::login(arguments).await,
        Command::Logout(arguments) => cli::login::logout(arguments).await,
        Command::Secret(arguments) => cli::secret::run(arguments).await,
        Command::Doctor(arguments) => cli::doctor::run(arguments).await,
    }
}

/// Log to stderr: a client keeps it for its user, a person sees it. A command only tells what failed,
/// unless it is asked for more.
fn start_log(serving: bool) {
    let environment = Environment::of_process();
    let asked = serving || environment.filled("MCP_BRIDGE_LOG_LEVEL").is_some();
    let paths = Paths::for_user(&environment).ok().filter(|_| asked);
    let level = match paths {
        Some(paths) => Settings::load(&paths, &environment).0.log_level,
        None if serving => LogLevel::default(),
        None => LogLevel::Error,
    };
    let filter = tracing_subscriber::EnvFilter::new(level.filter());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(style::is_coloured(&std::io::stderr()))
        .with_target(false)
        .init();
}
