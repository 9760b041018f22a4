//! Asking a shell, or the Windows registry, what a terminal's environment is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::paths::{Environment, Os};

/// An environment is never so long; a start-up file that prints without end is.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Tells start-up files that no person is there, so that they can leave out what needs one.
const RESOLVING: &str = "RUNBRIDGE_RESOLVING_ENVIRONMENT";

/// The variables that the user's login shell sets up.
pub(super) async fn login(
    environment: &Environment,
    own: &BTreeMap<String, String>,
    within: Duration,
) -> Result<BTreeMap<String, String>, String> {
    let default = if environment.os() == Os::Macos {
        "/bin/zsh"
    } else {
        "/bin/sh"
    };
    let shell = environment.filled("SHELL").unwrap_or(default);
    let mark = format!("__runbridge_{}_{:x}__", std::process::id(), random());
    let mut command = Command::new(shell);
    command
        .args(arguments(shell, &mark))
        .env_clear()
        .envs(own)
        .env(RESOLVING, "1")
        .env("TERM", "dumb");
    let output = output_until(command, within, |output| {
        between(output, mark.as_bytes()).is_some()
    })
    .await;
    let output = output.map_err(|why| format!("`{shell}` {why}"))?;
    let printed = between(&output, mark.as_bytes())
        .ok_or_else(|| format!("`{shell}` did not print its environment"))?;
    Ok(variables(printed))
}

/// How each shell is made to print its environment between marks.
///
/// Login, because that is where PATH is set up; interactive, because many put it into the file for that.
/// The mark is given in two halves, so that a shell which echoes its input does not print it by that.
fn arguments(shell: &str, mark: &str) -> Vec<String> {
    let (a, b) = mark.split_at(mark.len() / 2);
    let name = Path::new(shell)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let posix = format!(
        "printf '%s%s' '{a}' '{b}'; command env -0 2>/dev/null || command env; printf '%s%s' '{a}' '{b}'; exit 0"
    );
    let line = |flags: &[&str], text: String| {
        flags
            .iter()
            .map(|&flag| flag.to_owned())
            .chain([text])
            .collect()
    };
    match name {
        "nu" => line(
            &["--login", "-c"],
            format!("print -n '{a}' '{b}'; ^env -0; print -n '{a}' '{b}'"),
        ),
        // It takes `-l` only by itself.
        "csh" | "tcsh" => line(
            &["-i", "-c"],
            format!("printf '%s%s' '{a}' '{b}'; env -0 || env; printf '%s%s' '{a}' '{b}'"),
        ),
        _ => line(&["-l", "-i", "-c"], posix),
    }
}

/// The user's and the machine's PATH as the registry has them now; ours is as old as the program that started us.
pub(super) async fn registry(
    own: &BTreeMap<String, String>,
    within: Duration,
) -> Result<BTreeMap<String, String>, String> {
    let keys = [
        "HKCU\\Environment",
        "HKLM\\SYSTEM\\CurrentControlSet\\Control\\Session Manager\\Environment",
    ];
    let mut path = String::new();
    for key in keys {
        let mut command = Command::new("reg.exe");
        command
            .args(["query", key, "/v", "Path"])
            .env_clear()
            .envs(own);
        let output = output_until(command, within, |_| false)
            .await
            .map_err(|why| format!("`reg.exe` {why}"))?;
        if let Some(value) = registry_value(&String::from_utf8_lossy(&output), own) {
            path = format!("{path};{value}");
        }
    }
    Ok([("PATH".to_owned(), path)].into())
}

/// The value in `    Path    REG_EXPAND_SZ    %USERPROFILE%\bin;...`, with its variables filled in.
fn registry_value(output: &str, variables: &BTreeMap<String, String>) -> Option<String> {
    let line = output
        .lines()
        .find(|line| line.contains("REG_EXPAND_SZ") || line.contains("REG_SZ"))?;
    let (_, value) = line.split_once("_SZ")?;
    let mut expanded = String::new();
    let mut rest = value.trim();
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        match after.split_once('%') {
            Some((name, after)) if variables.contains_key(&name.to_uppercase()) => {
                expanded.push_str(&variables[&name.to_uppercase()]);
                rest = after;
            }
            _ => {
                expanded.push('%');
                rest = after;
            }
        }
    }
    Some(expanded + rest)
}

/// What a program prints, until it is `enough` or the program closes its output.
///
/// It runs in a session of its own, without a terminal to stop at, and the whole session is ended with it:
/// start-up files start agents that would hold our pipe open.
async fn output_until(
    mut command: Command,
    within: Duration,
    enough: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    #[cfg(unix)]
    own_session(&mut command);
    #[cfg(windows)]
    command.creation_flags(windows_sys::Win32::System::Threading::CREATE_NO_WINDOW);
    let child = command
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let mut session = Session(child);
    let Some(mut stdout) = session.0.stdout.take() else {
        return Err("has no output".to_owned());
    };
    let mut output = Vec::new();
    let reading = async {
        loop {
            match stdout.read_buf(&mut output).await {
                Ok(0) => return Ok(()),
                Ok(_) if enough(&output) => return Ok(()),
                Ok(_) if output.len() > OUTPUT_BYTES_MAX => {
                    return Err("prints too much".to_owned());
                }
                Ok(_) => {}
                Err(error) => return Err(format!("cannot be read: {error}")),
            }
        }
    };
    match tokio::time::timeout(within, reading).await {
        Ok(ended) => ended.map(|()| output),
        Err(_) => Err(format!("took longer than {} s", within.as_secs_f32())),
    }
}

#[cfg(unix)]
fn own_session(command: &mut Command) {
    #[allow(
        unsafe_code,
        reason = "the standard library has no safe way to start a session"
    )]
    // SAFETY: setsid is async-signal-safe, and the closure neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into));
    }
}

/// A child with all that it started, which end when this is dropped.
struct Session(Child);

impl Drop for Session {
    fn drop(&mut self) {
        // Once the child is reaped its number may belong to another; `id` is `None` then.
        #[cfg(unix)]
        if let Some(group) = self
            .0
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// What stands between the first mark and the next.
fn between<'o>(output: &'o [u8], mark: &[u8]) -> Option<&'o [u8]> {
    let find = |text: &[u8]| text.windows(mark.len()).position(|window| window == mark);
    let rest = &output[find(output)? + mark.len()..];
    Some(&rest[..find(rest)?])
}

/// `NAME=value` pairs, separated by NUL, or by line ends where `env` knows no NUL.
fn variables(printed: &[u8]) -> BTreeMap<String, String> {
    let separator = if printed.contains(&0) { '\0' } else { '\n' };
    let text = String::from_utf8_lossy(printed);
    let mut variables = BTreeMap::new();
    let mut last: Option<String> = None;
    for pair in text.split(separator) {
        let name = pair.split_once('=').map(|(name, _)| name);
        let name = name.filter(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        match name {
            Some(name) => {
                variables.insert(name.to_owned(), pair[name.len() + 1..].to_owned());
                last = Some(name.to_owned());
            }
            // The value before had a line end in it.
            None => {
                if separator == '\n'
                    && let Some(value) = last.as_ref().and_then(|name| variables.get_mut(name))
                    && !pair.is_empty()
                {
                    value.push('\n');
                    value.push_str(pair);
                }
            }
        }
    }
    variables.remove(RESOLVING);
    variables
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the process number still sets the mark apart from ordinary output.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_is_asked_in_its_own_words() {
        let mark = "__mark__";
        for shell in [
            "/bin/bash",
            "/usr/bin/fish",
            "/opt/nu",
            "/bin/tcsh",
            "/usr/bin/unheard-of",
        ] {
            let arguments = arguments(shell, mark);
            let text = arguments.last().cloned().unwrap_or_default();
            assert!(
                !text.contains(mark) && text.contains("env -0"),
                "{shell}: {text}"
            );
        }
        assert_eq!(arguments("/opt/nu", mark)[0], "--login");
        assert_eq!(arguments("/bin/tcsh", mark)[0], "-i");
    }

    #[test]
    fn values_with_line_ends_and_signs_are_whole() {
        let expected = [("A", "1=2"), ("B", "x\ny"), ("C", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            variables(b"A=1=2\0B=x\ny\0C=\0BASH_FUNC_f%%=() { x; }\0"),
            expected.clone().into()
        );
        assert_eq!(variables(b"A=1=2\nB=x\ny\nC=\n"), expected.into());
    }

    #[test]
    fn the_registry_is_read_as_reg_prints_it() {
        let own = [("USERPROFILE".to_owned(), "C:\\Users\\u".to_owned())].into();
        let output = "\r\nHKEY_CURRENT_USER\\Environment\r\n    Path    REG_EXPAND_SZ    %UserProfile%\\bin;100%;%NO%\r\n\r\n";
        assert_eq!(
            registry_value(output, &own).as_deref(),
            Some("C:\\Users\\u\\bin;100%;%NO%")
        );
    }
}
