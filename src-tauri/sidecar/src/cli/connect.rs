//! `runbridge connect`, `disconnect`, `move` and `restore`: change one client's file, or show how it would
//! change.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use runbridge_core::clients::connect::{Action, Plan};

use super::clients::{this_program, with_connector};
use crate::style::{self, Tone, paint};

#[derive(Args)]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Whenever the client loses our entry, put it back
    #[arg(long)]
    keep: bool,
}

#[derive(Args)]
pub(crate) struct ChangeArguments {
    /// The client, as `runbridge clients` names it
    client: String,
    /// Which of the client's files, if it has several
    #[arg(long)]
    file: Option<PathBuf>,
    /// Show the change and make none
    #[arg(long)]
    dry_run: bool,
    /// If the file begins with a byte order mark that the client cannot read, take it out
    #[arg(long)]
    drop_bom: bool,
}

pub(crate) fn connect(arguments: &ConnectArguments) -> anyhow::Result<ExitCode> {
    run(&arguments.change, Action::Connect, arguments.keep)
}

pub(crate) fn run(
    arguments: &ChangeArguments,
    action: Action,
    keep: bool,
) -> anyhow::Result<ExitCode> {
    let client = arguments.client.as_str();
    let file = arguments.file.as_deref();
    // What is undone needs no place to stay.
    let program = match action {
        Action::Connect | Action::Move => Some(this_program()?),
        Action::Disconnect | Action::Restore => None,
    };
    with_connector(program.as_deref(), arguments.drop_bom, |connector| {
        let plan = if arguments.dry_run {
            connector.plan(client, action, file, keep)?
        } else {
            connector.carry_out(client, action, file, keep)?
        };
        print(&plan, action, arguments.dry_run);
        for backup in plan.backups(connector) {
            if !arguments.dry_run {
                let backup = format!("what it held is kept in {}", backup.display());
                style::line(&paint(Tone::Dim, &backup));
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(plan: &Plan, action: Action, dry_run: bool) {
    for line in plan.diff().lines() {
        let painted = match line.as_bytes().first() {
            Some(b'+') => paint(Tone::Good, line),
            Some(b'-') => paint(Tone::Bad, line),
            _ => line.to_owned(),
        };
        style::line(&painted);
    }
    let file = plan.file.display();
    style::line(&match (plan.is_change(), dry_run) {
        (true, true) => format!("{file} would change so; nothing was changed"),
        (true, false) => format!("{file} was changed"),
        (false, _) => format!("{file} stays as it is"),
    });
    let [before, after] = plan.costs();
    if plan.is_change() && matches!(action, Action::Move | Action::Restore) {
        let unknown = match before.unknown.max(after.unknown) {
            0 => String::new(),
            1 => "; 1 server has never been started and is not counted".to_owned(),
            unknown => format!("; {unknown} servers have never been started and are not counted"),
        };
        style::line(&format!(
            "tool definitions in every conversation: about {} tokens before, {} after{unknown}",
            before.tokens, after.tokens
        ));
    }
    for note in &plan.notes {
        style::line(note);
    }
}
