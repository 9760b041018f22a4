//! Entries that start Runbridge itself, however they are wrapped.
//!
//! Such an entry would start a bridge that finds the entry again and starts a bridge. What is looked at is
//! the program that a command line ends up starting, never a name that merely occurs in it. The earlier
//! Python bridge counts as well: it reads the same files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::entry::EntryTransport;
use crate::paths::{Environment, Os};

/// The sidecar's name.
const NAME: &str = "runbridge";

/// The earlier bridge: its package, its command and its module.
const EARLIER: [&str; 2] = [
    "mcp-server-code-execution-mode",
    "mcp_server_code_execution_mode",
];

/// Wrappers within wrappers; deeper ones are nobody's.
const DEPTH_MAX: usize = 8;

/// A longer script is a program of its own.
const SCRIPT_BYTES_MAX: u64 = 16 << 10;

/// Recognises our own entries.
pub(super) struct SelfEntries<'a> {
    environment: &'a Environment,
    /// The programs that are us, by their true paths.
    programs: Vec<PathBuf>,
    /// What was found out about each program already.
    known: RefCell<HashMap<String, Program>>,
}

#[derive(Clone)]
enum Program {
    Ours,
    /// A shell script with this text.
    Script(String),
    Other,
}

impl<'a> SelfEntries<'a> {
    /// `programs` are the running program and the copies of it that we keep.
    pub(super) fn new(environment: &'a Environment, programs: &[PathBuf]) -> Self {
        let programs = programs
            .iter()
            .map(|path| dunce::canonicalize(path).unwrap_or_else(|_| path.clone()))
            .collect();
        Self {
            environment,
            programs,
            known: RefCell::default(),
        }
    }

    /// Why this entry would start us, if it would.
    pub(super) fn reason(&self, transport: &EntryTransport) -> Option<String> {
        let EntryTransport::Stdio { command, args, .. } = transport else {
            return None;
        };
        let words: Vec<&str> = std::iter::once(command.as_str())
            .chain(args.iter().map(String::as_str))
            .collect();
        self.words(&words, DEPTH_MAX)
    }

    /// Whether this program is us under whatever name.
    pub(super) fn is_us(&self, program: &str) -> bool {
        matches!(self.program(program), Program::Ours)
    }

    fn words(&self, words: &[&str], depth_left: usize) -> Option<String> {
        let depth_left = depth_left.checked_sub(1)?;
        let (&program, args) = words.split_first()?;
        if let Some((name, _)) = program.split_once('=')
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            return self.words(args, depth_left);
        }
        let name = base_name(program);
        if EARLIER.contains(&name.as_str()) {
            return Some(format!(
                "`{program}` is the earlier bridge, which would start these servers a second time"
            ));
        }
        match self.program(program) {
            Program::Ours => return Some(format!("`{program}` is Runbridge itself")),
            Program::Script(text) => return self.script(&text, depth_left),
            Program::Other => {}
        }
        match name.as_str() {
            "sh" | "bash" | "zsh" | "dash" | "ash" | "ksh" | "fish" | "nu" => {
                self.shell(args, depth_left)
            }
            "cmd" => {
                let start = args.iter().position(|arg| {
                    arg.eq_ignore_ascii_case("/c") || arg.eq_ignore_ascii_case("/k")
                })?;
                self.script(&args[start + 1..].join(" "), depth_left)
            }
            "powershell" | "pwsh" => {
                let is = |arg: &str, option: &str| {
                    arg.len() > 1 && option.starts_with(&arg.to_ascii_lowercase())
                };
                let start = args
                    .iter()
                    .position(|arg| is(arg, "-command") || is(arg, "-file"))?;
                self.script(&args[start + 1..].join(" "), depth_left)
            }
            "env" => match args
                .iter()
                .position(|arg| matches!(*arg, "-S" | "--split-string"))
            {
                Some(at) => self.script(&args[at + 1..].join(" "), depth_left),
                None => self.after_options(args, &["-u", "--unset", "-C", "--chdir"], depth_left),
            },
            "nohup" | "exec" | "setsid" | "command" | "time" | "caffeinate" | "arch" | "start"
            | "doas" | "winpty" => self.after_options(args, &[], depth_left),
            "sudo" => self.after_options(
                args,
                &["-u", "-g", "-h", "-p", "-C", "-D", "--user", "--group"],
                depth_left,
            ),
            "nice" | "ionice" | "chrt" => {
                self.after_options(args, &["-n", "-c", "-p", "--adjustment"], depth_left)
            }
            "stdbuf" => self.after_options(args, &["-i", "-o", "-e"], depth_left),
            "timeout" => {
                let (_, rest) = options_skipped(args, &["-k", "-s", "--kill-after", "--signal"])
                    .split_first()?;
                self.words(rest, depth_left)
            }
            "wsl" => {
                let rest = options_skipped(
                    args,
                    &[
                        "-d",
                        "--distribution",
                        "-u",
                        "--user",
                        "--cd",
                        "--shell-type",
                    ],
                );
                self.words(rest, depth_left)
            }
            "uvx" | "pipx" | "uv" => earlier_package(args),
            _ if name.starts_with("python") || name == "py" => earlier_module(args),
            _ => None,
        }
    }

    fn after_options(
        &self,
        args: &[&str],
        with_value: &[&str],
        depth_left: usize,
    ) -> Option<String> {
        self.words(options_skipped(args, with_value), depth_left)
    }

    /// `sh -c 'text'`, or `sh file`.
    fn shell(&self, args: &[&str], depth_left: usize) -> Option<String> {
        let is_c = |arg: &&str| {
            *arg == "--command"
                || (arg.starts_with('-') && !arg.starts_with("--") && arg.ends_with('c'))
        };
        if let Some(at) = args.iter().position(is_c) {
            return self.script(args.get(at + 1)?, depth_left);
        }
        let file = options_skipped(args, &["-o", "--rcfile", "--init-file"]).first()?;
        match self.program(file) {
            Program::Script(text) => self.script(&text, depth_left),
            Program::Ours | Program::Other => None,
        }
    }

    fn script(&self, text: &str, depth_left: usize) -> Option<String> {
        commands(text).iter().find_map(|words| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.words(&words, depth_left)
        })
    }

    fn program(&self, program: &str) -> Program {
        if let Some(known) = self.known.borrow().get(program) {
            return known.clone();
        }
        let found = self.look_at(program);
        self.known
            .borrow_mut()
            .insert(program.to_owned(), found.clone());
        found
    }

    fn look_at(&self, program: &str) -> Program {
        if base_name(program) == NAME {
            return Program::Ours;
        }
        let Some(path) = self.resolve(program) else {
            return Program::Other;
        };
        if base_name(&path.to_string_lossy()) == NAME
            || self.programs.iter().any(|ours| same_program(ours, &path))
        {
            return Program::Ours;
        }
        script_text(&path).map_or(Program::Other, Program::Script)
    }

    /// The file that a program's name stands for, links followed.
    fn resolve(&self, program: &str) -> Option<PathBuf> {
        if program.contains(['/', '\\']) {
            return dunce::canonicalize(program).ok();
        }
        let suffixes: &[&str] = if self.environment.os() == Os::Windows {
            &["", ".exe", ".cmd", ".bat"]
        } else {
            &[""]
        };
        std::env::split_paths(self.environment.get("PATH")?)
            .flat_map(|folder| {
                suffixes
                    .iter()
                    .map(move |suffix| folder.join(format!("{program}{suffix}")))
            })
            .find(|path| path.is_file())
            .and_then(|path| dunce::canonicalize(path).ok())
    }
}

/// The same file under whatever name, or a copy of it.
fn same_program(ours: &Path, path: &Path) -> bool {
    if ours == path {
        return true;
    }
    let length = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .filter(std::fs::Metadata::is_file)
            .map(|file| file.len())
    };
    match (length(ours), length(path)) {
        (Some(a), Some(b)) if a == b => same_bytes(ours, path).unwrap_or(false),
        _ => false,
    }
}

fn same_bytes(a: &Path, b: &Path) -> std::io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let count = a.read(&mut left)?;
        if count == 0 {
            return Ok(b.read(&mut right)? == 0);
        }
        if b.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

/// The text of a short shell or batch script.
fn script_text(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > SCRIPT_BYTES_MAX {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let first = text.lines().next()?;
    let shell = first.starts_with("#!")
        && ["sh", "fish", "ksh"]
            .iter()
            .any(|end| first.trim_end().ends_with(end));
    let batch = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("cmd") || end.eq_ignore_ascii_case("bat"));
    (shell || batch).then_some(text)
}

/// A program's name without folders and without what Windows adds.
fn base_name(program: &str) -> String {
    let name = program
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let bare = [".exe", ".cmd", ".bat"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    bare.unwrap_or(&name).to_owned()
}

/// `args` after their options; those in `with_value` take the next word too.
fn options_skipped<'a, 'b>(mut args: &'a [&'b str], with_value: &[&str]) -> &'a [&'b str] {
    while let Some((&first, rest)) = args.split_first() {
        if first == "--" {
            return rest;
        }
        if !first.starts_with('-') && !first.starts_with('/')
            || first.len() < 2
            || first[1..].contains('/')
        {
            return args;
        }
        args = if with_value.contains(&first) {
            rest.get(1..).unwrap_or_default()
        } else {
            rest
        };
    }
    args
}

/// Whether a Python launcher starts the earlier bridge: as its package, its `--from`, or its script.
fn earlier_package(args: &[&str]) -> Option<String> {
    const WITH_VALUE: [&str; 14] = [
        "--with",
        "--python",
        "-p",
        "--directory",
        "--project",
        "--index-url",
        "--extra-index-url",
        "--index",
        "-i",
        "--with-editable",
        "--env-file",
        "--spec",
        "--cache-dir",
        "--config-file",
    ];
    let mut rest = args;
    while let Some((&first, after)) = rest.split_first() {
        match first {
            "run" | "tool" | "x" => rest = after,
            "--from" | "--spec" => {
                if let Some(reason) = after.first().and_then(|from| earlier(from)) {
                    return Some(reason);
                }
                rest = after.get(1..).unwrap_or_default();
            }
            _ if first.starts_with("--from=") => {
                if let Some(reason) = earlier(&first["--from=".len()..]) {
                    return Some(reason);
                }
                rest = after;
            }
            _ if WITH_VALUE.contains(&first) => rest = after.get(1..).unwrap_or_default(),
            _ if first.starts_with('-') && first != "-m" => rest = after,
            _ if base_name(first).starts_with("python") => return earlier_module(after),
            "-m" => return after.first().and_then(|module| earlier(module)),
            _ => return earlier(first),
        }
    }
    None
}

fn earlier_module(args: &[&str]) -> Option<String> {
    match args.iter().position(|arg| *arg == "-m") {
        Some(at) => args.get(at + 1).and_then(|module| earlier(module)),
        None => args
            .iter()
            .find(|arg| !arg.starts_with('-'))
            .and_then(|script| earlier(script)),
    }
}

/// Whether a package, address, module or script is the earlier bridge.
fn earlier(what: &str) -> Option<String> {
    let name = if what.contains("://") || what.starts_with("git+") {
        let address = what
            .split(['#', '?'])
            .next()
            .unwrap_or_default()
            .trim_end_matches('/');
        let last = address.rsplit('/').next().unwrap_or_default();
        last.split('@')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".git")
            .to_owned()
    } else {
        let last = what.rsplit(['/', '\\']).next().unwrap_or_default();
        last.split(['@', '[', '=', '<', '>', '~', '!', ' '])
            .next()
            .unwrap_or_default()
            .trim_end_matches(".py")
            .to_owned()
    };
    EARLIER
        .contains(&name.to_ascii_lowercase().as_str())
        .then(|| {
            format!("`{what}` is the earlier bridge, which would start these servers a second time")
        })
}

/// The simple commands of a shell text, as words. Enough of a shell to see which programs are started;
/// what it does not understand it takes for an ordinary character.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            // Before a letter it is part of a Windows path.
            (None | Some('"'), '\\')
                if chars.peek().is_some_and(|next| !next.is_alphanumeric()) =>
            {
                if let Some(next) = chars.next()
                    && next != '\n'
                {
                    word.get_or_insert_default().push(next);
                }
            }
            (None, '#') if word.is_none() => while chars.next_if(|next| *next != '\n').is_some() {},
            (None, ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`') => {
                words.extend(word.take());
                if !words.is_empty() {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    for words in &mut commands {
        // `if runbridge; then`, `! runbridge`, `@runbridge` in a batch file, `$(runbridge)`.
        while words.first().is_some_and(|first| {
            matches!(
                first.as_str(),
                "if" | "then" | "else" | "do" | "while" | "!" | "$" | "call"
            )
        }) {
            words.remove(0);
        }
        if let Some(first) = words.first_mut()
            && let Some(bare) = first.strip_prefix('@')
        {
            *first = bare.to_owned();
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts_us(line: &[&str]) -> bool {
        let environment = Environment::new(Os::Linux, [("PATH", "/nowhere")]);
        let transport = EntryTransport::Stdio {
            command: line[0].to_owned(),
            args: line[1..].iter().map(|&arg| arg.to_owned()).collect(),
            env: std::collections::BTreeMap::new(),
            cwd: None,
        };
        SelfEntries::new(&environment, &[])
            .reason(&transport)
            .is_some()
    }

    #[test]
    fn our_own_name_is_seen_through_every_wrapper() {
        for line in [
            &["runbridge"] as &[&str],
            &["/opt/x/runbridge", "--quiet"],
            &["C:\\Program Files\\Runbridge\\runbridge.exe"],
            &["cmd", "/c", "runbridge"],
            &[
                "cmd.exe",
                "/d",
                "/s",
                "/c",
                "\"C:\\Program Files\\Runbridge\\runbridge.exe\" --x",
            ],
            &["sh", "-c", "exec runbridge"],
            &[
                "bash",
                "-lc",
                "source ~/.profile; cd /tmp && \"$HOME/.local/bin/runbridge\" \"$@\"",
            ],
            &["zsh", "-l", "-c", "A=1 B='x y' runbridge"],
            &["env", "-u", "X", "A=1", "runbridge"],
            &["env", "-S", "A=1 runbridge --x"],
            &["/usr/bin/env", "runbridge"],
            &["nohup", "nice", "-n", "5", "runbridge"],
            &["timeout", "-k", "5", "60", "runbridge"],
            &["sudo", "-u", "me", "--", "runbridge"],
            &["wsl", "-d", "Debian", "--", "runbridge"],
            &["wsl.exe", "-e", "bash", "-c", "runbridge"],
            &[
                "powershell",
                "-NoProfile",
                "-Command",
                "& 'C:\\x\\runbridge.exe'",
            ],
            &["sh", "-c", "sh -c 'runbridge'"],
            &["uvx", "mcp-server-code-execution-mode"],
            &["uvx", "mcp-server-code-execution-mode@latest", "run"],
            &[
                "uvx",
                "--from",
                "git+https://github.com/elusznik/mcp-server-code-execution-mode",
                "mcp-server-code-execution-mode",
                "run",
            ],
            &[
                "uvx",
                "--from",
                "git+https://github.com/elusznik/mcp-server-code-execution-mode.git@main",
                "other",
            ],
            &[
                "uv",
                "run",
                "--directory",
                "/src",
                "python",
                "mcp_server_code_execution_mode.py",
            ],
            &["uv", "tool", "run", "mcp-server-code-execution-mode"],
            &["python3", "-m", "mcp_server_code_execution_mode"],
            &["/v/bin/python", "/src/mcp_server_code_execution_mode.py"],
            &["mcp-server-code-execution-mode", "run"],
        ] {
            assert!(starts_us(line), "{line:?}");
        }
    }

    #[test]
    fn a_name_that_merely_occurs_is_no_reason() {
        for line in [
            &[
                "npx",
                "-y",
                "@modelcontextprotocol/server-filesystem",
                "/src/runbridge",
            ] as &[&str],
            &[
                "uvx",
                "mcp-server-git",
                "--repository",
                "/src/mcp-server-code-execution-mode",
            ],
            &["sh", "-c", "echo runbridge; exec other"],
            &["sh", "-c", "other # runbridge"],
            &["env", "NAME=runbridge", "other"],
            &["python", "server.py", "runbridge"],
            &["runbridge-helper"],
            &["docker", "run", "runbridge"],
            &["cmd", "/c", "npx", "runbridge-docs"],
            &["timeout", "60", "other", "runbridge"],
        ] {
            assert!(!starts_us(line), "{line:?}");
        }
    }

    #[test]
    fn endless_wrapping_ends() {
        let line: Vec<&str> = std::iter::repeat_n("nohup", 10_000).collect();
        assert!(!starts_us(&line));
    }
}
