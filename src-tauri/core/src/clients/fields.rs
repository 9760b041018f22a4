//! The fields of one entry, whatever a client calls them, as one shape.
//!
//! Every spelling is understood everywhere, because people copy entries from client to client. What
//! differs by client in meaning (placeholders, units of time, what a bare `url` is) comes with the [`Dialect`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::entry::EntryTransport;
use super::expand::{Field, Scope, Syntax};
use super::parse::{Kind, Member, Value};
use crate::paths::{Os, under_home};

/// How a client's entries are meant where the same words mean different things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    pub(super) syntax: Syntax,
    pub(super) timeout: Timeout,
    /// A `url` without a type is the older HTTP+SSE.
    pub(super) bare_url_is_sse: bool,
}

/// What a number under `timeout` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timeout {
    /// Not documented, so not used.
    Unknown,
    /// Seconds for a call.
    CallSeconds,
    /// Milliseconds for a call.
    CallMilliseconds,
    /// Milliseconds for the start.
    StartMilliseconds,
}

/// An entry, before it has a name among others.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) transport: EntryTransport,
    pub(super) description: Option<String>,
    pub(super) off: Option<String>,
    pub(super) needs: Vec<String>,
    pub(super) tools_allowed: Option<Vec<String>>,
    pub(super) tools_denied: Vec<String>,
    pub(super) start_ms_max: Option<u64>,
    pub(super) call_ms_max: Option<u64>,
    /// The entry names no working directory; the one it has is its project's.
    pub(super) cwd_assumed: bool,
    /// What is odd about it, with positions; it can be used all the same.
    pub(super) warnings: Vec<(usize, String)>,
}

/// Why a value is no entry.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is wrong, at this position.
    Wrong(usize, String),
    /// It is right, but only its client can run it.
    NotRunnable(String),
}

/// A longer text is neither an argument nor an address.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// More arguments or variables than an operating system takes are a mistake.
const ITEMS_MAX: usize = 1_000;

/// No server is waited for longer.
const TIMEOUT_MS_MAX: u64 = 24 * 3_600_000;

const COMMAND: &[&str] = &["command", "cmd"];
const URL: &[&str] = &["url", "serverUrl", "httpUrl", "baseUrl", "uri"];
const CWD: &[&str] = &["cwd", "working_directory", "workingDirectory"];
const ENV: &[&str] = &["env", "environment", "envs"];

/// Whether a value is meant as an entry: it says what to start or where to connect.
pub(super) fn looks_like_entry(value: &Value) -> bool {
    let starts = |key: &&str| {
        value.get(key).is_some_and(|value| {
            matches!(value.kind, Kind::Text(_)) || (*key == "command" && !value.is_null())
        })
    };
    COMMAND.iter().chain(URL).any(starts)
}

/// Reads an entry.
pub(super) fn read(value: &Value, dialect: Dialect, scope: &Scope<'_>) -> Result<Fields, Refusal> {
    if value.members().is_none() {
        return Err(Refusal::Wrong(
            value.at,
            format!("an entry must be an object, not {}", value.kind_name()),
        ));
    }
    // Cline's own tool puts the transport's fields one level down.
    let nested = value
        .get("transport")
        .filter(|transport| transport.members().is_some());
    let mut reader = Reader {
        outer: value,
        nested,
        scope,
        needs: Vec::new(),
        warnings: Vec::new(),
    };
    let kind = reader.kind(dialect)?;
    let mut cwd_assumed = false;
    let mut transport = match kind {
        Transport::Stdio => {
            let (command, args, mut env) = reader.program()?;
            env.extend(reader.env()?);
            let cwd = reader.cwd()?;
            cwd_assumed = cwd.is_none();
            let project = scope
                .project
                .filter(|project| project.is_dir())
                .map(Path::to_owned);
            EntryTransport::Stdio {
                command,
                args,
                env,
                cwd: cwd.or(project),
            }
        }
        Transport::Http { sse } => {
            let (_, url) = reader.text(URL)?.unwrap_or((value.at, ""));
            let url = scope.expand(url, Field::Url, &mut reader.needs);
            EntryTransport::Http {
                url,
                headers: reader.headers()?,
                sse,
            }
        }
    };
    reader.env_keys();
    if let EntryTransport::Stdio { env, .. } = &mut transport {
        reader.answer(env);
    }
    let (start_ms_max, call_ms_max) = reader.timeouts(dialect)?;
    let off = reader.off()?;
    let (tools_allowed, tools_denied) = reader.tools();
    let description = reader
        .text(&["description"])
        .ok()
        .flatten()
        .map(|(_, text)| text.trim().to_owned());
    Ok(Fields {
        transport,
        description: description.filter(|text| !text.is_empty()),
        off,
        needs: reader.needs,
        tools_allowed,
        tools_denied,
        start_ms_max,
        call_ms_max,
        cwd_assumed,
        warnings: reader.warnings,
    })
}

enum Transport {
    Stdio,
    Http { sse: bool },
}

struct Reader<'v, 's> {
    outer: &'v Value,
    nested: Option<&'v Value>,
    scope: &'s Scope<'s>,
    needs: Vec<String>,
    warnings: Vec<(usize, String)>,
}

impl<'v> Reader<'v, '_> {
    /// The first of `keys` that is there and not null, with its name.
    fn find(&self, keys: &[&'static str]) -> Option<(&'static str, &'v Value)> {
        [self.nested, Some(self.outer)]
            .into_iter()
            .flatten()
            .find_map(|object| {
                keys.iter().find_map(|key| {
                    object
                        .get(key)
                        .filter(|value| !value.is_null())
                        .map(|value| (*key, value))
                })
            })
    }

    /// Variables that are only named get the values that the user told us.
    fn answer(&mut self, env: &mut BTreeMap<String, Option<String>>) {
        let answers = self.scope.answers;
        self.needs.retain(|name| match answers.get(name) {
            Some(answer) => {
                env.insert(name.clone(), Some(answer.clone()));
                false
            }
            None => true,
        });
    }

    fn text(&self, keys: &[&'static str]) -> Result<Option<(usize, &'v str)>, Refusal> {
        let Some((key, value)) = self.find(keys) else {
            return Ok(None);
        };
        match value.text() {
            Some(text) if text.len() <= TEXT_BYTES_MAX => Ok(Some((value.at, text))),
            Some(_) => Err(Refusal::Wrong(
                value.at,
                format!("`{key}` is longer than {} KiB", TEXT_BYTES_MAX >> 10),
            )),
            None => Err(wrong(value, key, "a text")),
        }
    }

    fn kind(&mut self, dialect: Dialect) -> Result<Transport, Refusal> {
        let outer_type = |key: &'static str| {
            self.find(&[key])
                .filter(|(_, value)| value.members().is_none())
        };
        let named = match outer_type("type")
            .or_else(|| outer_type("transport"))
            .or_else(|| outer_type("transportType"))
        {
            Some((key, value)) => Some((
                value.at,
                value.text().ok_or_else(|| wrong(value, key, "a text"))?,
            )),
            None => None,
        };
        let command = match self.find(COMMAND) {
            Some((_, value)) => value.text().is_none_or(|text| !text.trim().is_empty()),
            None => false,
        };
        let url = match self.find(URL) {
            Some((key, value)) => {
                let text = value.text().ok_or_else(|| wrong(value, key, "a text"))?;
                (!text.trim().is_empty()).then_some((key, value.at))
            }
            None => None,
        };
        if let Some((key, at)) = url
            && command
        {
            let followed = if named.is_some() {
                "its type is followed"
            } else {
                "the command is used"
            };
            self.warnings
                .push((at, format!("it has both `command` and `{key}`; {followed}")));
        }
        let Some((at, named)) = named else {
            return match url {
                _ if command => Ok(Transport::Stdio),
                Some((key, _)) => Ok(Transport::Http {
                    sse: key == "url" && dialect.bare_url_is_sse,
                }),
                None => Err(self.nothing_to_run()),
            };
        };
        let remote = |sse| match url {
            Some(_) => Ok(Transport::Http { sse }),
            None => Err(Refusal::Wrong(
                at,
                format!("it is of type `{named}` but has no `url`"),
            )),
        };
        match named.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "stdio" | "local" | "" if command => Ok(Transport::Stdio),
            "stdio" | "local" => Err(Refusal::Wrong(
                at,
                format!("it is of type `{named}` but has no `command`"),
            )),
            "" => url.map_or_else(
                || Err(self.nothing_to_run()),
                |_| {
                    Ok(Transport::Http {
                        sse: dialect.bare_url_is_sse,
                    })
                },
            ),
            "http" | "streamablehttp" | "remote" | "https" => remote(false),
            "sse" => remote(true),
            "builtin" | "platform" | "frontend" | "extension" | "inlinepython" => {
                Err(Refusal::NotRunnable(format!(
                    "it is of type `{named}`, which only its client can run"
                )))
            }
            _ => Err(Refusal::Wrong(
                at,
                format!("type `{named}` is not known; known are stdio, http and sse"),
            )),
        }
    }

    fn nothing_to_run(&self) -> Refusal {
        let text = |key| self.outer.get(key).and_then(Value::text);
        if text("source") == Some("extension") || self.outer.get("settings").is_some() {
            return Refusal::NotRunnable(
                "an extension of its client provides it; there is no command to run".to_owned(),
            );
        }
        if self.outer.get("gallery").is_some() {
            return Refusal::NotRunnable(
                "its client's gallery provides it; there is no command to run".to_owned(),
            );
        }
        Refusal::Wrong(
            self.outer.at,
            "it has neither `command` nor `url`".to_owned(),
        )
    }

    /// Program, arguments, and the variables that an old Zed entry keeps inside `command`.
    fn program(&mut self) -> Result<(String, Vec<String>, Env), Refusal> {
        let (key, value) = self.find(COMMAND).ok_or_else(|| self.nothing_to_run())?;
        let mut line = Vec::new();
        let mut env = Env::new();
        match &value.kind {
            Kind::Text(text) => line.push(text.clone()),
            Kind::List(_) => line = words(value, key)?,
            Kind::Map(_) => {
                let path = value
                    .get("path")
                    .or_else(|| value.get("command"))
                    .and_then(Value::text);
                line.push(
                    path.ok_or_else(|| {
                        wrong(value, key, "a text, a list, or an object with `path`")
                    })?
                    .to_owned(),
                );
                if let Some(args) = value.get("args").filter(|args| !args.is_null()) {
                    line.extend(words(args, "command.args")?);
                }
                if let Some(inner) = value.get("env").filter(|env| !env.is_null()) {
                    env = self.env_of(inner, "command.env")?;
                }
            }
            _ => return Err(wrong(value, key, "a text or a list")),
        }
        if let Some((key, args)) = self.find(&["args"]) {
            line.extend(words(args, key)?);
        }
        if let Some(long) = line.iter().find(|word| word.len() > TEXT_BYTES_MAX) {
            let message = format!(
                "an argument of {} bytes is longer than {} KiB",
                long.len(),
                TEXT_BYTES_MAX >> 10
            );
            return Err(Refusal::Wrong(value.at, message));
        }
        let mut line = line.into_iter();
        let command = line.next().filter(|word| !word.trim().is_empty());
        let command =
            command.ok_or_else(|| Refusal::Wrong(value.at, "`command` is empty".to_owned()))?;
        let command = self.place(&command, Field::Command);
        let args = line
            .map(|word| self.scope.expand(&word, Field::Argument, &mut self.needs))
            .collect();
        Ok((command, args, env))
    }

    fn env(&mut self) -> Result<Env, Refusal> {
        let mut env = Env::new();
        if let Some((at, path)) = self.text(&["envFile"])? {
            let path = self.place(path, Field::Path);
            let full = self
                .scope
                .project
                .or(self.scope.file.parent())
                .unwrap_or(self.scope.home)
                .join(&path);
            match self.scope.env_file(&full) {
                Ok(variables) => env.extend(
                    variables
                        .into_iter()
                        .map(|(name, value)| (name, Some(value))),
                ),
                Err(why) => {
                    self.warnings.push((
                        at,
                        format!("`envFile` {} cannot be read: {why}", full.display()),
                    ));
                    self.needs.push(format!("file:{path}"));
                }
            }
        }
        // Codex passes no variable on unless it is named; those that have a value here are given.
        if let Some((key, names)) = self.find(&["env_vars"]) {
            for item in names
                .items()
                .ok_or_else(|| wrong(names, key, "a list of names"))?
            {
                let name = item
                    .text()
                    .or_else(|| item.get("name").and_then(Value::text));
                let name = name.ok_or_else(|| wrong(item, key, "a list of names"))?;
                if let Some(value) = self.scope.environment.get(name) {
                    env.insert(name.to_owned(), Some(value.to_owned()));
                }
            }
        }
        if let Some((key, value)) = self.find(ENV) {
            env.extend(self.env_of(value, key)?);
        }
        Ok(env)
    }

    fn env_of(&mut self, value: &Value, key: &str) -> Result<Env, Refusal> {
        let mut env = Env::new();
        for Member { name, at, value } in members(value, key)? {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Refusal::Wrong(
                    *at,
                    format!(
                        "`{key}`: `{}` cannot be a variable's name",
                        name.escape_debug()
                    ),
                ));
            }
            let text = if value.is_null() {
                None
            } else {
                let text = plain_text(value)
                    .ok_or_else(|| wrong(value, &format!("{key}.{name}"), "a text"))?;
                Some(self.scope.expand(&text, Field::Env, &mut self.needs))
            };
            env.insert(name.clone(), text);
        }
        Ok(env)
    }

    fn cwd(&mut self) -> Result<Option<PathBuf>, Refusal> {
        let Some((_, text)) = self.text(CWD)? else {
            return Ok(None);
        };
        let text = self.place(text, Field::Path);
        if text.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.scope.project.map_or_else(
            || PathBuf::from(&text),
            |project| project.join(&text),
        )))
    }

    fn headers(&mut self) -> Result<BTreeMap<String, String>, Refusal> {
        let mut headers = BTreeMap::new();
        let request_options = self
            .find(&["requestOptions"])
            .and_then(|(_, options)| options.get("headers"));
        let given = self
            .find(&["headers", "http_headers"])
            .or(request_options.map(|value| ("requestOptions.headers", value)));
        if let Some((key, value)) = given {
            for Member { name, value, .. } in members(value, key)? {
                let text = plain_text(value)
                    .ok_or_else(|| wrong(value, &format!("{key}.{name}"), "a text"))?;
                headers.insert(
                    name.clone(),
                    self.scope.expand(&text, Field::Header, &mut self.needs),
                );
            }
        }
        if let Some((key, value)) = self.find(&["env_http_headers"]) {
            for Member { name, value, .. } in members(value, key)? {
                let variable = value
                    .text()
                    .ok_or_else(|| wrong(value, &format!("{key}.{name}"), "a variable's name"))?;
                if let Some(value) = self.variable(variable) {
                    headers.insert(name.clone(), value);
                }
            }
        }
        let bearer = match (
            self.text(&["bearer_token_env_var"])?,
            self.text(&["apiKey"])?,
        ) {
            (Some((_, variable)), _) => self.variable(variable),
            (None, Some((_, key))) => Some(self.scope.expand(key, Field::Header, &mut self.needs)),
            (None, None) => None,
        };
        if let Some(bearer) = bearer {
            headers.insert("Authorization".to_owned(), format!("Bearer {bearer}"));
        }
        Ok(headers)
    }

    /// Names whose values Goose keeps in the keyring, where only Goose may look.
    fn env_keys(&mut self) {
        let names = self
            .find(&["env_keys"])
            .and_then(|(_, names)| names.items())
            .unwrap_or_default();
        for name in names.iter().filter_map(Value::text) {
            if self.scope.environment.get(name).is_none()
                && !self.needs.iter().any(|need| need == name)
            {
                self.needs.push(name.to_owned());
            }
        }
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        let value = self.scope.environment.get(name).map(str::to_owned);
        if value.is_none() && !self.needs.iter().any(|need| need == name) {
            self.needs.push(name.to_owned());
        }
        value
    }

    fn off(&self) -> Result<Option<String>, Refusal> {
        for (key, off_when) in [
            ("disabled", true),
            ("enabled", false),
            ("active", false),
            ("isActive", false),
        ] {
            let Some(value) = self.outer.get(key).filter(|value| !value.is_null()) else {
                continue;
            };
            match value.bool() {
                Some(switch) if switch == off_when => {
                    return Ok(Some(format!("`{key}` is {switch} in its file")));
                }
                Some(_) => {}
                // A switch that cannot be read must not turn something on.
                None => return Err(wrong(value, key, "true or false")),
            }
        }
        Ok(None)
    }

    fn tools(&self) -> (Option<Vec<String>>, Vec<String>) {
        let list = |keys| {
            let (_, value) = self.find(keys)?;
            value
                .items()?
                .iter()
                .map(|item| item.text().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        };
        let allowed = list(&["enabled_tools", "includeTools", "available_tools", "tools"]);
        // Goose writes an empty list for "all", Copilot a star.
        let allowed = allowed.filter(|names: &Vec<String>| {
            !names.is_empty() && !names.iter().any(|name| name == "*")
        });
        (
            allowed,
            list(&["disabledTools", "disabled_tools", "excludeTools"]).unwrap_or_default(),
        )
    }

    fn timeouts(&self, dialect: Dialect) -> Result<(Option<u64>, Option<u64>), Refusal> {
        let milliseconds = |key: &'static str, unit_ms: f64| -> Result<Option<u64>, Refusal> {
            let Some((key, value)) = self.find(&[key]) else {
                return Ok(None);
            };
            let Kind::Number(number) = &value.kind else {
                return Err(wrong(value, key, "a number"));
            };
            let number: f64 = number.parse().map_err(|_| wrong(value, key, "a number"))?;
            let ms = (number * unit_ms).min(TIMEOUT_MS_MAX as f64) as u64;
            Ok((ms > 0).then_some(ms))
        };
        let start = match milliseconds("startup_timeout_sec", 1000.0)? {
            None => milliseconds("startup_timeout_ms", 1.0)?,
            seconds => seconds,
        };
        let start = start.or(milliseconds("connectionTimeout", 1.0)?);
        let call = milliseconds("tool_timeout_sec", 1000.0)?;
        Ok(match dialect.timeout {
            Timeout::Unknown => (start, call),
            Timeout::CallSeconds => (start, call.or(milliseconds("timeout", 1000.0)?)),
            Timeout::CallMilliseconds => (start, call.or(milliseconds("timeout", 1.0)?)),
            Timeout::StartMilliseconds => (start.or(milliseconds("timeout", 1.0)?), call),
        })
    }

    /// A placeholder-free path or program, with the home folder in the place of `~`.
    fn place(&mut self, text: &str, field: Field) -> String {
        let text = self.scope.expand(text, field, &mut self.needs);
        self.home_expanded(&text)
    }

    /// `~` at the beginning is the home folder. No client does this, and nobody means anything else by it.
    fn home_expanded(&self, text: &str) -> String {
        match under_home(text, self.scope.home) {
            Some(path) if self.scope.environment.os() == Os::Windows => {
                path.to_string_lossy().replace('/', "\\")
            }
            Some(path) => path.to_string_lossy().into_owned(),
            None => text.to_owned(),
        }
    }
}

type Env = BTreeMap<String, Option<String>>;

fn members<'v>(value: &'v Value, key: &str) -> Result<&'v [Member], Refusal> {
    let members = value
        .members()
        .ok_or_else(|| wrong(value, key, "an object"))?;
    if members.len() > ITEMS_MAX {
        return Err(Refusal::Wrong(
            value.at,
            format!("`{key}` has more than {ITEMS_MAX} members"),
        ));
    }
    Ok(members)
}

/// Texts, with numbers and booleans taken as they would be typed.
fn words(value: &Value, key: &str) -> Result<Vec<String>, Refusal> {
    let items = value
        .items()
        .ok_or_else(|| wrong(value, key, "a list of texts"))?;
    if items.len() > ITEMS_MAX {
        return Err(Refusal::Wrong(
            value.at,
            format!("`{key}` has more than {ITEMS_MAX} items"),
        ));
    }
    items
        .iter()
        .map(|item| plain_text(item).ok_or_else(|| wrong(item, key, "a list of texts")))
        .collect()
}

fn plain_text(value: &Value) -> Option<String> {
    match &value.kind {
        Kind::Text(text) | Kind::Number(text) if text.len() <= TEXT_BYTES_MAX => Some(text.clone()),
        Kind::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn wrong(value: &Value, key: &str, expected: &str) -> Refusal {
    Refusal::Wrong(
        value.at,
        format!("`{key}` must be {expected}, not {}", value.kind_name()),
    )
}
