//! Placeholders in entries, filled in exactly as each client fills them.
//!
//! One rule is ours: what has no value is named in `needs` and leaves nothing behind. A client may pass
//! `${TOKEN}` on as if it were a token; we do not start such a server. Values are put in once: a value
//! that looks like a placeholder stays as it is.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::parse::read_text;
use crate::paths::{Environment, Os};

/// Whose placeholders are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// None, and what looks like one stays: a piece that was pasted and is to be kept.
    AsWritten,
    /// None: Claude Desktop, LM Studio, Zed, Jan, Junie, Warp, Codex.
    None,
    /// Our own folders and settings, where people paste what was written for any client:
    /// `${X}`, `${X:-default}`, `${env:X}`, `${userHome}`.
    Pasted,
    /// Claude Code and Kiro: `${X}`, `${X:-default}`; a default that holds a placeholder works in headers alone.
    Shell,
    /// Windsurf and Cline: `${env:X}`.
    Env,
    /// Amazon Q: `${env:X}`, in `env` alone.
    EnvInEnv,
    /// Roo and Kilo: `${env:X}` and the project folder, with forward slashes.
    Roo,
    /// Cursor: `${env:X}` and path names.
    Cursor,
    /// VS Code: `${env:X}`, path names, `${input:id}`, and names that only a running editor knows.
    VsCode,
    /// Gemini and Qwen: `$X`, `${X}`, `${X:-default}`, on Windows `%X%`.
    Gemini,
    /// opencode: `{env:X}`, `{file:path}`.
    OpenCode,
    /// Continue: `${{ secrets.X }}`, out of `.env` files.
    Continue,
    /// Goose: `$X` and `${X}`, in headers alone.
    Goose,
}

/// Which part of an entry a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The program.
    Command,
    /// An argument.
    Argument,
    /// The value of a variable.
    Env,
    /// The working directory, or a file that the entry names.
    Path,
    /// An address.
    Url,
    /// The value of a header.
    Header,
}

/// What placeholders can refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) syntax: Syntax,
    pub(super) environment: &'a Environment,
    /// Values that go before those of the environment.
    pub(super) given: &'a [(String, String)],
    /// What the user told us for names that have no value elsewhere.
    pub(super) answers: &'a BTreeMap<String, String>,
    pub(super) home: &'a Path,
    /// The project that the file belongs to.
    pub(super) project: Option<&'a Path>,
    /// The file, for paths relative to it.
    pub(super) file: &'a Path,
    /// Takes note of each other file that has a say.
    pub(super) consulted: &'a RefCell<Vec<PathBuf>>,
}

/// A file that a placeholder puts in is a secret or a short text.
const INSERTED_BYTES_MAX: u64 = 64 << 10;

/// A longer placeholder is none; the search for its end must not take the square of a long text's length.
const PLACEHOLDER_BYTES_MAX: usize = 4 << 10;

/// Defaults within defaults; deeper ones are nobody's.
const NESTING_MAX: usize = 8;

enum Outcome<'t> {
    Value(Cow<'t, str>),
    /// It is a placeholder and has no value; the name of what is missing.
    Missing(String),
    /// It means nothing to this client.
    Literal,
}

impl Scope<'_> {
    /// `text` with its placeholders filled in; what has no value goes into `needs` and is left out.
    pub(super) fn expand(&self, text: &str, field: Field, needs: &mut Vec<String>) -> String {
        self.expand_nested(text, field, needs, NESTING_MAX)
    }

    fn expand_nested(
        &self,
        text: &str,
        field: Field,
        needs: &mut Vec<String>,
        nesting_left: usize,
    ) -> String {
        if self.syntax == Syntax::AsWritten {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['$', '{', '%']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let (length, outcome) = self.placeholder(rest, field, needs, nesting_left);
            let (placeholder, after) = rest.split_at(length);
            match outcome {
                Outcome::Value(value) => out.push_str(&value),
                Outcome::Missing(name) => match self.answers.get(&name) {
                    Some(answer) => out.push_str(answer),
                    None if needs.contains(&name) => {}
                    None => needs.push(name),
                },
                Outcome::Literal => out.push_str(placeholder),
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// What stands at the beginning of `text`, and how long it is.
    fn placeholder<'t>(
        &self,
        text: &'t str,
        field: Field,
        needs: &mut Vec<String>,
        nesting_left: usize,
    ) -> (usize, Outcome<'t>) {
        if self.syntax == Syntax::Continue
            && let Some(inner) = text
                .strip_prefix("${{")
                .and_then(|rest| rest.split_once("}}"))
                .map(|(inner, _)| inner)
        {
            return (
                "${{".len() + inner.len() + "}}".len(),
                self.continue_secret(inner.trim()),
            );
        }
        if let Some(body) = text.strip_prefix("${") {
            let Some(length) = closing(body) else {
                return (1, Outcome::Literal);
            };
            let outcome = self.braced(&body[..length], field, needs, nesting_left);
            return ("${".len() + length + "}".len(), outcome);
        }
        if self.syntax == Syntax::OpenCode
            && let Some(inner) = text
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('}'))
                .map(|(inner, _)| inner)
        {
            let length = inner.len() + "{}".len();
            if let Some(name) = inner.strip_prefix("env:") {
                return (length, self.variable(name));
            }
            if let Some(path) = inner.strip_prefix("file:") {
                return (length, self.inserted_file(path));
            }
        }
        let bare = self.syntax == Syntax::Gemini
            || (self.syntax == Syntax::Goose && field == Field::Header);
        if bare && let Some(body) = text.strip_prefix('$') {
            let name = identifier(body);
            if !name.is_empty() {
                return (1 + name.len(), self.variable(name));
            }
        }
        if self.syntax == Syntax::Gemini
            && self.environment.os() == Os::Windows
            && let Some(body) = text.strip_prefix('%')
        {
            let name = identifier(body);
            if !name.is_empty() && body[name.len()..].starts_with('%') {
                return (name.len() + "%%".len(), self.variable(name));
            }
        }
        (1, Outcome::Literal)
    }

    /// `${inner}`.
    fn braced<'t>(
        &self,
        inner: &'t str,
        field: Field,
        needs: &mut Vec<String>,
        nesting_left: usize,
    ) -> Outcome<'t> {
        if self.syntax == Syntax::Pasted && inner == "userHome" {
            return path_value(self.home);
        }
        let shell = match self.syntax {
            Syntax::Shell | Syntax::Gemini | Syntax::Pasted => true,
            Syntax::Goose => field == Field::Header,
            _ => false,
        };
        if shell {
            let name = identifier(inner);
            let after = &inner[name.len()..];
            if !name.is_empty() && after.is_empty() {
                return self.variable(name);
            }
            if !name.is_empty()
                && self.syntax != Syntax::Goose
                && let Some(default) = after.strip_prefix(":-")
            {
                return match self.variable(name) {
                    Outcome::Missing(_) => self.default(default, field, needs, nesting_left),
                    given => given,
                };
            }
        }
        let env = match self.syntax {
            Syntax::Env | Syntax::Roo | Syntax::Cursor | Syntax::VsCode | Syntax::Pasted => true,
            Syntax::EnvInEnv => field == Field::Env,
            _ => false,
        };
        if env && let Some(name) = inner.strip_prefix("env:") {
            return self.variable(name);
        }
        match self.syntax {
            Syntax::Cursor | Syntax::VsCode => self.editor_name(inner, field),
            Syntax::Roo if inner == "workspaceFolder" => {
                let folder = self
                    .project
                    .map(|project| project.to_string_lossy().replace('\\', "/"));
                Outcome::Value(folder.unwrap_or_default().into())
            }
            _ => foreign(inner, field),
        }
    }

    fn default<'t>(
        &self,
        default: &'t str,
        field: Field,
        needs: &mut Vec<String>,
        nesting_left: usize,
    ) -> Outcome<'t> {
        if !default.contains('$') {
            return Outcome::Value(default.into());
        }
        if nesting_left == 0 || (self.syntax == Syntax::Shell && field != Field::Header) {
            return Outcome::Missing(default.to_owned());
        }
        Outcome::Value(
            self.expand_nested(default, field, needs, nesting_left - 1)
                .into(),
        )
    }

    /// Names that an editor gives to places. Of the others only a running editor knows the value.
    fn editor_name<'t>(&self, inner: &'t str, field: Field) -> Outcome<'t> {
        let (name, _) = inner.split_once(':').unwrap_or((inner, ""));
        match name {
            "userHome" => path_value(self.home),
            "pathSeparator" | "/" => Outcome::Value(
                if self.environment.os() == Os::Windows {
                    "\\"
                } else {
                    "/"
                }
                .into(),
            ),
            "workspaceFolder" | "workspaceRoot" | "cwd" => self
                .project
                .map_or_else(|| Outcome::Missing(inner.to_owned()), path_value),
            "workspaceFolderBasename" => self.project.and_then(Path::file_name).map_or_else(
                || Outcome::Missing(inner.to_owned()),
                |name| Outcome::Value(name.to_string_lossy().into_owned().into()),
            ),
            // What the user told one project's file is not for another's.
            "input" => Outcome::Missing(match self.project {
                Some(project) => format!("{inner} in {}", project.display()),
                None => inner.to_owned(),
            }),
            "config" | "command" | "execPath" | "lineNumber" | "selectedText"
            | "defaultBuildTask" => Outcome::Missing(inner.to_owned()),
            _ if name.starts_with("file") || name.starts_with("relativeFile") => {
                Outcome::Missing(inner.to_owned())
            }
            // Left as it is, for a shell perhaps.
            _ => foreign(inner, field),
        }
    }

    fn variable<'t>(&self, name: &str) -> Outcome<'t> {
        if let Some((_, value)) = self.given.iter().find(|(given, _)| given == name) {
            return Outcome::Value(value.clone().into());
        }
        match self.environment.get(name) {
            Some(value) => Outcome::Value(value.to_owned().into()),
            None => Outcome::Missing(name.to_owned()),
        }
    }

    /// The content of a file, relative to the file that names it, without white space around it.
    fn inserted_file<'t>(&self, path: &str) -> Outcome<'t> {
        let full = crate::paths::under_home(path, self.home)
            .unwrap_or_else(|| self.file.parent().unwrap_or(self.home).join(path));
        self.consulted.borrow_mut().push(full.clone());
        // A pipe would never end.
        let fits = std::fs::metadata(&full)
            .is_ok_and(|file| file.is_file() && file.len() <= INSERTED_BYTES_MAX);
        let text = fits.then(|| std::fs::read_to_string(&full));
        match text {
            Some(Ok(text)) => Outcome::Value(text.trim().to_owned().into()),
            Some(Err(_)) | None => Outcome::Missing(format!("file:{path}")),
        }
    }

    /// The variables of a `.env` file.
    pub(super) fn env_file(&self, path: &Path) -> Result<BTreeMap<String, String>, String> {
        self.consulted.borrow_mut().push(path.to_owned());
        let text = match read_text(path) {
            Some(Ok(text)) => text,
            Some(Err(unreadable)) => return Err(unreadable.message),
            None => return Err("there is no such file".to_owned()),
        };
        Ok(env_lines(&text))
    }

    /// The project's `.env` first, then Continue's own.
    fn continue_secret<'t>(&self, inner: &str) -> Outcome<'t> {
        let Some(name) = inner.strip_prefix("secrets.") else {
            return Outcome::Missing(inner.to_owned());
        };
        let folders = [
            self.project.map(Path::to_owned),
            self.project.map(|project| project.join(".continue")),
            Some(self.home.join(".continue")),
        ];
        folders
            .into_iter()
            .flatten()
            .find_map(|folder| self.env_file(&folder.join(".env")).ok()?.remove(name))
            .map_or_else(
                || Outcome::Missing(name.to_owned()),
                |value| Outcome::Value(value.into()),
            )
    }
}

fn path_value<'t>(path: &Path) -> Outcome<'t> {
    Outcome::Value(path.to_string_lossy().into_owned().into())
}

/// A placeholder that this client does not know. In a variable or header it can only be a mistake;
/// in an argument it may be meant for a shell, unless no shell knows the form.
fn foreign<'t>(inner: &str, field: Field) -> Outcome<'t> {
    let other_client = ["env:", "input:"]
        .iter()
        .any(|form| inner.starts_with(form));
    let name = identifier(inner);
    let shell =
        !name.is_empty() && (name.len() == inner.len() || inner[name.len()..].starts_with(":-"));
    match field {
        Field::Env | Field::Header if shell => Outcome::Missing(name.to_owned()),
        _ if other_client => {
            Outcome::Missing(inner.strip_prefix("env:").unwrap_or(inner).to_owned())
        }
        _ => Outcome::Literal,
    }
}

/// Length of a text up to the brace that closes it.
fn closing(body: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (at, c) in body
        .char_indices()
        .take_while(|(at, _)| *at < PLACEHOLDER_BYTES_MAX)
    {
        match c {
            '{' => open += 1,
            '}' if open == 1 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// The name of a variable at the beginning of a text.
fn identifier(text: &str) -> &str {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        ""
    } else {
        &text[..end]
    }
}

/// `NAME=value` lines, `export` before them, `#` comments, quotes.
fn env_lines(text: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || identifier(name) != name {
            continue;
        }
        let value = if let Some(body) = value.strip_prefix('\'') {
            body.split('\'').next().unwrap_or_default().to_owned()
        } else if let Some(body) = value.strip_prefix('"') {
            double_quoted(body)
        } else {
            value
                .split(" #")
                .next()
                .unwrap_or_default()
                .trim_end()
                .to_owned()
        };
        variables.insert(name.to_owned(), value);
    }
    variables
}

fn double_quoted(body: &str) -> String {
    let mut out = String::new();
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c @ ('"' | '\\' | '$')) => out.push(c),
                Some(c) => out.extend(['\\', c]),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    fn expand(syntax: Syntax, field: Field, text: &str) -> (String, Vec<String>) {
        expand_on(Os::Linux, syntax, field, text)
    }

    fn expand_on(os: Os, syntax: Syntax, field: Field, text: &str) -> (String, Vec<String>) {
        let environment = Environment::new(os, [("A", "a"), ("EMPTY", ""), ("TRICK", "${A}")]);
        let scope = Scope {
            syntax,
            environment: &environment,
            given: &[],
            answers: &BTreeMap::new(),
            home: Path::new("/home/u"),
            project: Some(Path::new("/code/app")),
            file: Path::new("/home/u/f.json"),
            consulted: &RefCell::default(),
        };
        let mut needs = Vec::new();
        (scope.expand(text, field, &mut needs), needs)
    }

    #[test]
    fn each_client_has_its_own_forms() {
        use Field::{Argument, Env, Header};
        for (syntax, field, text, value, needs) in [
            (Syntax::Shell, Argument, "${A}/x", "a/x", ""),
            (Syntax::Shell, Argument, "${U:-d}", "d", ""),
            (Syntax::Shell, Argument, "${EMPTY:-d}", "", ""),
            (Syntax::Shell, Argument, "$A", "$A", ""),
            (Syntax::Shell, Argument, "${U}", "", "U"),
            (Syntax::Shell, Header, "${U:-${A}}", "a", ""),
            (Syntax::Shell, Argument, "${U:-${A}}", "", "${A}"),
            (Syntax::Shell, Env, "${env:A}", "", "A"),
            (Syntax::Env, Argument, "${env:A}", "a", ""),
            (Syntax::Env, Argument, "${A}", "${A}", ""),
            (Syntax::Env, Env, "${A}", "", "A"),
            (Syntax::EnvInEnv, Env, "${env:A}", "a", ""),
            (Syntax::EnvInEnv, Argument, "${env:A}", "", "A"),
            (
                Syntax::Cursor,
                Argument,
                "${userHome}${/}${workspaceFolderBasename}",
                "/home/u/app",
                "",
            ),
            (
                Syntax::VsCode,
                Argument,
                "${workspaceFolder:x}${pathSeparator}y",
                "/code/app/y",
                "",
            ),
            (
                Syntax::VsCode,
                Argument,
                "${input:key}",
                "",
                "input:key in /code/app",
            ),
            (Syntax::VsCode, Argument, "echo ${HOME}", "echo ${HOME}", ""),
            (Syntax::VsCode, Argument, "${config:a.b}", "", "config:a.b"),
            (
                Syntax::Roo,
                Argument,
                "${workspaceFolder}/x",
                "/code/app/x",
                "",
            ),
            (
                Syntax::Gemini,
                Argument,
                "$A-${A}-${U:-$A}-%A%-$-$5",
                "a-a-a-%A%-$-$5",
                "",
            ),
            (Syntax::Gemini, Argument, "$U", "", "U"),
            (
                Syntax::OpenCode,
                Env,
                "Bearer {env:A} {x} {\"y\":1}",
                "Bearer a {x} {\"y\":1}",
                "",
            ),
            (
                Syntax::OpenCode,
                Env,
                "{file:/nowhere/at/all}",
                "",
                "file:/nowhere/at/all",
            ),
            (Syntax::Continue, Env, "${{ secrets.U }}", "", "U"),
            (Syntax::Goose, Header, "$A ${A}", "a a", ""),
            (Syntax::Goose, Argument, "$A", "$A", ""),
            (
                Syntax::None,
                Argument,
                "${A} $A {env:A}",
                "${A} $A {env:A}",
                "",
            ),
            (Syntax::None, Env, "${A}", "", "A"),
            (Syntax::None, Argument, "${input:key}", "", "input:key"),
            (
                Syntax::Pasted,
                Argument,
                "${A}${env:A}${U:-d}${userHome}",
                "aad/home/u",
                "",
            ),
            (Syntax::Pasted, Argument, "100% ${ open", "100% ${ open", ""),
        ] {
            let (got, missing) = expand(syntax, field, text);
            assert_eq!(
                (got.as_str(), missing.join(",").as_str()),
                (value, needs),
                "{syntax:?} {field:?} {text}"
            );
        }
        assert_eq!(
            expand_on(Os::Windows, Syntax::Gemini, Argument, "%A%\\x 5% off").0,
            "a\\x 5% off"
        );
    }

    #[test]
    fn a_value_is_not_expanded_again() {
        assert_eq!(
            expand(Syntax::Pasted, Field::Env, "${TRICK}"),
            ("${A}".to_owned(), vec![])
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let text = format!("{{file:{}}}", pipe.display());
        let (value, needs) = expand(Syntax::OpenCode, Field::Env, &text);
        assert_eq!((value.as_str(), needs.len()), ("", 1));
    }

    #[test]
    fn deep_nesting_ends() {
        let text = "${U:-".repeat(10_000) + &"}".repeat(10_000);
        assert!(!expand(Syntax::Gemini, Field::Argument, &text).1.is_empty());
    }

    #[test]
    fn env_files_are_read_as_people_write_them() {
        let variables = env_lines(
            "# no\nexport A=1\nB = two words # note\nC='#1 $A'\nD=\"x\\ny\"\nE=\nnot a line\n1F=x\nURL=http://h/#frag\n",
        );
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "#1 $A"),
            ("D", "x\ny"),
            ("E", ""),
            ("URL", "http://h/#frag"),
        ];
        assert_eq!(
            variables,
            expected
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
    }
}
