//! `runbridge login` and `logout`: sign in to a remote server, on machines without the app too.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::paths::{Environment, Os};
use runbridge_core::secrets::Place;
use runbridge_core::sign_in::{SignedOut, SigningIn};

use crate::style::{self, Tone, paint};

/// An address with a code has less.
const PASTED_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args)]
pub(crate) struct LoginArguments {
    /// The server, as `runbridge servers` lists it
    server: String,
    /// Print the address and open nothing
    #[arg(long)]
    no_browser: bool,
}

#[derive(Args)]
pub(crate) struct LogoutArguments {
    /// The server, as `runbridge servers` lists it
    server: String,
}

pub(crate) async fn login(arguments: LoginArguments) -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    let bridge = Bridge::open(environment.clone(), Role::Ask)?;
    bridge.discovered().await;
    let signed_in = sign_in(&bridge, &arguments, &environment).await;
    let place = bridge.secrets().place().await;
    bridge.shut_down().await;
    signed_in?;
    style::line(&format!(
        "signed in to {}",
        paint(Tone::Strong, &arguments.server)
    ));
    if let Place::File { reason } = place {
        style::warning(&format!(
            "the sign-in is kept in an encrypted file, since no keyring opens: {reason}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn sign_in(
    bridge: &Bridge,
    arguments: &LoginArguments,
    environment: &Environment,
) -> anyhow::Result<()> {
    let signing_in = bridge.sign_in(&arguments.server)?;
    let url = signing_in.url().await?;
    style::line(&format!(
        "Sign in to {} in a browser, at this address:",
        paint(Tone::Strong, &arguments.server)
    ));
    style::line(&url);
    let opened =
        !arguments.no_browser && has_screen(environment) && open::that_detached(&url).is_ok();
    style::line(if opened {
        "It should be open there now. If it ends on a page that cannot be shown, paste the address of that page here."
    } else {
        "If it ends on a page that cannot be shown, because the browser is on another machine, paste the address of that page here."
    });
    read_pasted(Arc::clone(&signing_in));
    let finished = tokio::select! {
        finished = signing_in.finished() => finished,
        pressed = tokio::signal::ctrl_c() => {
            pressed.context("the keyboard cannot be watched")?;
            anyhow::bail!("the sign-in was cancelled");
        }
    };
    Ok(finished?)
}

/// Without one, what opens addresses may be a browser in this very terminal.
fn has_screen(environment: &Environment) -> bool {
    environment.os() != Os::Linux
        || ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| environment.filled(name).is_some())
}

/// Take addresses from stdin. The thread ends with the process: a read cannot be given up.
fn read_pasted(signing_in: Arc<SigningIn>) {
    std::thread::spawn(move || {
        use std::io::{BufRead as _, Read as _};
        let input = std::io::BufReader::new(std::io::stdin().take(PASTED_BYTES_MAX));
        for line in input.lines() {
            let Ok(line) = line else { return };
            if !line.trim().is_empty() && !signing_in.paste(&line) {
                style::warning(
                    "that is not the address that this sign-in ends on; it begins with http://127.0.0.1 and has `code=` in it",
                );
            }
        }
    });
}

pub(crate) async fn logout(arguments: LogoutArguments) -> anyhow::Result<ExitCode> {
    let bridge = Bridge::open(Environment::of_process(), Role::Ask)?;
    bridge.discovered().await;
    let done = bridge.catalog().sign_out(&arguments.server).await;
    bridge.shut_down().await;
    let server = paint(Tone::Strong, &arguments.server);
    match done? {
        SignedOut::Revoked => style::line(&format!(
            "signed out of {server}; its tokens are worth nothing any more"
        )),
        SignedOut::Forgotten => style::line(&format!(
            "signed out of {server}; it offers no way to revoke tokens, so the one that was forgotten here ends by itself"
        )),
        SignedOut::NotTold(reason) => {
            style::line(&format!("signed out of {server} on this machine"));
            style::warning(&format!("it could not be told: {reason}"));
        }
        SignedOut::WasNot => style::line(&format!("nobody was signed in to {server}")),
    }
    Ok(ExitCode::SUCCESS)
}
