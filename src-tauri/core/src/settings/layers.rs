//! The layers of settings, laid over one another: defaults, the file, the variables.

use std::path::{Path, PathBuf};

use super::limits::{self, Limit};
use super::units::Unit;
use super::{
    Appearance, Backend, Engine, KEEP_RUNS_RANGE, Layer, LogLevel, OutputMode, PackagesPolicy,
    Sampling, ServerSettings, Settings, SettingsFile, SettingsProblem,
};
use crate::clients::parse::{Document, Kind, Value};
use crate::paths::{Environment, Paths, under_home};
use crate::secrets::Secret;
use crate::sign_in::ClientSettings;

/// Folders of one list.
const FOLDERS_MAX: usize = 200;

/// Bounds that may differ for one server.
const SERVER_LIMITS: [&str; 4] = [
    "call_ms_max",
    "server_start_ms_max",
    "server_idle_ms_max",
    "calls_at_once_max",
];

impl Settings {
    /// All layers put together. A broken layer costs its broken values and nothing else.
    pub fn load(paths: &Paths, environment: &Environment) -> (Self, Vec<SettingsProblem>) {
        let mut loading = Loading {
            settings: Self::default(),
            problems: Vec::new(),
            run_ms_named: None,
        };
        let path = paths.settings();
        let (_, document, unreadable) = SettingsFile::read(&path);
        if let Some(unreadable) = unreadable {
            loading.problems.push(SettingsProblem {
                place: path.display().to_string(),
                position: unreadable.position,
                message: unreadable.message,
            });
        }
        if let Some(document) = document {
            FileLayer {
                loading: &mut loading,
                document: &document,
                path: &path,
                home: &paths.home,
            }
            .apply();
        }
        loading.apply_variables(environment);
        loading.agree();
        (loading.settings, loading.problems)
    }
}

/// The layers so far.
struct Loading {
    settings: Settings,
    problems: Vec<SettingsProblem>,
    /// Who set the wall clock of a run, for when it does not fit its ceiling.
    run_ms_named: Option<String>,
}

impl Loading {
    fn apply_variables(&mut self, environment: &Environment) {
        for limit in limits::TABLE {
            let Some(variable) = limit.variable else {
                continue;
            };
            let Some(text) = environment.filled(variable) else {
                continue;
            };
            match read_limit(limit, text, self.limit_now(limit)) {
                Ok(value) => self.set_limit(limit, value, Layer::Variable, variable),
                Err(message) => self.refuse(variable, &message),
            }
        }
        let sandbox = &mut self.settings.sandbox;
        if let Some(image) = environment.filled("MCP_BRIDGE_IMAGE") {
            image.trim().clone_into(&mut sandbox.image);
        }
        if let Some(user) = environment.filled("MCP_BRIDGE_CONTAINER_USER") {
            match container_user(user) {
                Some(user) => sandbox.container_user = user,
                None => self.refuse(
                    "MCP_BRIDGE_CONTAINER_USER",
                    &format!("`{user}` is not a user; give 65534:65534 or 1000"),
                ),
            }
        }
        if let Some(text) = environment.filled("MCP_BRIDGE_RUNTIME") {
            match runtime(text) {
                Some((backend, engine)) => {
                    self.settings.sandbox.backend = backend;
                    self.settings.sandbox.engine = engine;
                }
                None => self.refuse_choice(
                    "MCP_BRIDGE_RUNTIME",
                    text,
                    "auto, builtin, container, podman, docker",
                ),
            }
        }
        if let Some(text) = environment.filled("MCP_BRIDGE_OUTPUT_MODE") {
            match OutputMode::read(text) {
                Some(mode) => self.settings.output_mode = mode,
                None => self.refuse_choice("MCP_BRIDGE_OUTPUT_MODE", text, OutputMode::FORMS),
            }
        }
        if let Some(text) = environment.filled("MCP_BRIDGE_LOG_LEVEL") {
            match log_level(text) {
                Some(level) => self.settings.log_level = level,
                None => self.refuse_choice("MCP_BRIDGE_LOG_LEVEL", text, LogLevel::FORMS),
            }
        }
        if let Some(text) = environment.filled("MCP_BRIDGE_ALLOW_SELF_SERVER") {
            match truth(text) {
                Some(allow) => self.settings.allow_self_server = allow,
                None => self.refuse_choice(
                    "MCP_BRIDGE_ALLOW_SELF_SERVER",
                    text,
                    "1, true, yes, on, 0, false, no, off",
                ),
            }
        }
        self.settings.servers_config = environment.filled("MCP_SERVERS_CONFIG").map(str::to_owned);
    }

    fn limit_now(&self, limit: &Limit) -> u64 {
        self.settings
            .limits
            .get(limit.name)
            .unwrap_or(limit.default)
    }

    fn set_limit(&mut self, limit: &Limit, value: u64, layer: Layer, place: &str) {
        self.settings.limits.set(limit.name, value);
        self.settings.limits_set.insert(limit.name, layer);
        if limit.name == "run_ms_default" {
            self.run_ms_named = Some(place.to_owned());
        }
    }

    /// The wall clock of a run never exceeds its ceiling. Only who asked for more is told.
    fn agree(&mut self) {
        let limits = &mut self.settings.limits;
        if limits.run_ms_default > limits.run_ms_max {
            let (asked, max) = (limits.run_ms_default, limits.run_ms_max);
            limits.run_ms_default = max;
            if let Some(place) = self.run_ms_named.take() {
                let show = |value| Unit::Milliseconds.show(value);
                let (asked, max) = (show(asked), show(max));
                self.refuse(&place, &format!("{asked} is above the longest run, {max}, which is used; raise MCP_BRIDGE_MAX_TIMEOUT too"));
            }
        }
    }

    fn refuse_choice(&mut self, variable: &str, text: &str, forms: &str) {
        self.refuse(variable, &format!("`{text}` is none of {forms}"));
    }

    fn refuse(&mut self, place: &str, message: &str) {
        self.problems.push(SettingsProblem {
            place: place.to_owned(),
            position: None,
            message: message.to_owned(),
        });
    }
}

/// The settings file, being laid over the defaults.
struct FileLayer<'a> {
    loading: &'a mut Loading,
    document: &'a Document,
    path: &'a Path,
    home: &'a Path,
}

impl FileLayer<'_> {
    fn apply(&mut self) {
        let root = &self.document.root;
        if root.members().is_none() {
            return self.refuse(root, "the file does not hold an object");
        }
        self.bool(root, "", "launch_at_login", |settings| {
            &mut settings.launch_at_login
        });
        self.bool(root, "", "notifications", |settings| {
            &mut settings.notifications
        });
        self.bool(root, "", "check_for_updates", |settings| {
            &mut settings.check_for_updates
        });
        self.choice(
            root,
            "",
            "appearance",
            Appearance::FORMS,
            Appearance::read,
            |settings| &mut settings.appearance,
        );
        self.activity(root);
        self.bool(root, "", "allow_self_server", |settings| {
            &mut settings.allow_self_server
        });
        self.choice(
            root,
            "",
            "output_mode",
            OutputMode::FORMS,
            OutputMode::read,
            |settings| &mut settings.output_mode,
        );
        self.choice(
            root,
            "",
            "log_level",
            LogLevel::FORMS,
            log_level,
            |settings| &mut settings.log_level,
        );
        if let Some(sandbox) = self.object(root, "sandbox") {
            self.choice(
                sandbox,
                "sandbox.",
                "backend",
                Backend::FORMS,
                Backend::named,
                |settings| &mut settings.sandbox.backend,
            );
            self.choice(
                sandbox,
                "sandbox.",
                "engine",
                Engine::FORMS,
                engine,
                |settings| &mut settings.sandbox.engine,
            );
            let image = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
            self.choice(
                sandbox,
                "sandbox.",
                "image",
                "an image's name or digest",
                image,
                |settings| &mut settings.sandbox.image,
            );
            self.choice(
                sandbox,
                "sandbox.",
                "container_user",
                "65534:65534 or 1000",
                container_user,
                |settings| &mut settings.sandbox.container_user,
            );
            if let Some(value) = sandbox.get("spares") {
                match whole_number(value).filter(|spares| *spares <= 8) {
                    Some(spares) => self.loading.settings.sandbox.spares = spares as u32,
                    None => {
                        self.refuse(value, "`sandbox.spares` must be a whole number from 0 to 8");
                    }
                }
            }
        }
        if let Some(packages) = self.object(root, "packages") {
            self.choice(
                packages,
                "packages.",
                "policy",
                PackagesPolicy::FORMS,
                PackagesPolicy::read,
                |settings| &mut settings.packages.policy,
            );
            let address = |text: &str| {
                let text = text.trim();
                let known = ["https://", "http://"]
                    .iter()
                    .any(|scheme| text.starts_with(scheme));
                known.then(|| Some(text.to_owned()))
            };
            self.choice(
                packages,
                "packages.",
                "index",
                "an address: https://HOST/simple",
                address,
                |settings| &mut settings.packages.index,
            );
        }
        if let Some(limits) = self.object(root, "limits") {
            self.limits(limits);
        }
        if let Some(servers) = self.object(root, "servers") {
            for member in servers.members().unwrap_or_default() {
                let server = self.server(&member.name, &member.value);
                self.loading
                    .settings
                    .servers
                    .insert(member.name.clone(), server);
            }
        }
        if let Some(own) = self.object(root, "own_servers")
            && let serde_json::Value::Object(own) = own.to_json()
        {
            self.loading.settings.own_servers = own;
        }
        if let Some(order) = root.get("client_order") {
            self.loading.settings.client_order = self.texts(order, "client_order");
        }
        if let Some(answers) = self.object(root, "answers") {
            for member in answers.members().unwrap_or_default() {
                match member.value.text() {
                    Some(answer) => {
                        let answers = &mut self.loading.settings.answers;
                        answers.insert(member.name.clone(), answer.to_owned());
                    }
                    None => self.refuse(
                        &member.value,
                        &format!(
                            "`answers.{}` must be a text, not {}",
                            member.name,
                            member.value.kind_name()
                        ),
                    ),
                }
            }
        }
        if let Some(projects) = root.get("projects") {
            self.loading.settings.projects = self.folders(projects, "projects");
        }
        if let Some(roots) = root.get("roots") {
            self.loading.settings.roots = self.folders(roots, "roots");
        }
        self.choice(
            root,
            "",
            "sampling",
            Sampling::FORMS,
            Sampling::read,
            |settings| &mut settings.sampling,
        );
    }

    /// Folders by absolute path, or below `~`.
    fn folders(&mut self, value: &Value, key: &str) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for folder in self.texts(value, key) {
            let path = under_home(&folder, self.home).unwrap_or_else(|| PathBuf::from(&folder));
            if !path.is_absolute() {
                self.refuse(
                    value,
                    &format!("`{key}`: `{folder}` is not an absolute path"),
                );
            } else if folders.len() < FOLDERS_MAX {
                folders.push(path);
            } else {
                self.refuse(
                    value,
                    &format!("`{key}` names more than {FOLDERS_MAX} folders"),
                );
                break;
            }
        }
        folders
    }

    fn activity(&mut self, root: &Value) {
        let (runs_max, days_max) = KEEP_RUNS_RANGE;
        let Some(activity) = self.object(root, "activity") else {
            return;
        };
        for (key, max) in [("keep_runs_max", runs_max), ("keep_runs_days", days_max)] {
            let Some(value) = activity.get(key) else {
                continue;
            };
            match whole_number(value).filter(|number| (1..=u64::from(max)).contains(number)) {
                Some(number) if key == "keep_runs_max" => {
                    self.loading.settings.keep_runs_max = number as u32;
                }
                Some(number) => self.loading.settings.keep_runs_days = number as u32,
                None => self.refuse(
                    value,
                    &format!("`activity.{key}` must be a whole number from 1 to {max}"),
                ),
            }
        }
    }

    fn limits(&mut self, limits: &Value) {
        for member in limits.members().unwrap_or_default() {
            // An unknown one belongs to another version and is left alone.
            let Some(limit) = limits::row(&member.name) else {
                continue;
            };
            match file_limit(limit, &member.value, self.loading.limit_now(limit)) {
                Ok(value) => {
                    let place = self.path.display().to_string();
                    self.loading.set_limit(limit, value, Layer::File, &place);
                }
                Err(message) => self.refuse(
                    &member.value,
                    &format!("`limits.{}`: {message}", limit.name),
                ),
            }
        }
    }

    fn server(&mut self, name: &str, value: &Value) -> ServerSettings {
        let mut server = ServerSettings::default();
        if value.members().is_none() {
            self.refuse(
                value,
                &format!(
                    "`servers.{name}` must be an object, not {}",
                    value.kind_name()
                ),
            );
            return server;
        }
        if let Some(enabled) = value.get("enabled") {
            server.enabled = enabled.bool();
            if server.enabled.is_none() {
                self.refuse(
                    enabled,
                    &format!(
                        "`servers.{name}.enabled` must be true or false, not {}",
                        enabled.kind_name()
                    ),
                );
            }
        }
        if let Some(tools) = value.get("tools") {
            server.tools_allowed = tools
                .get("allow")
                .map(|list| self.texts(list, &format!("servers.{name}.tools.allow")));
            server.tools_denied = tools
                .get("deny")
                .map(|list| self.texts(list, &format!("servers.{name}.tools.deny")))
                .unwrap_or_default();
        }
        if let Some(sign_in) = value.get("sign_in") {
            server.sign_in = self.sign_in(&format!("servers.{name}.sign_in"), sign_in);
        }
        if let Some(roots) = value.get("roots") {
            server.roots = Some(self.folders(roots, &format!("servers.{name}.roots")));
        }
        if let Some(sampling) = value.get("sampling") {
            server.sampling = sampling.text().and_then(Sampling::read);
            if server.sampling.is_none() {
                let forms = Sampling::FORMS;
                let message = format!("`servers.{name}.sampling` must be one of {forms}");
                self.refuse(sampling, &message);
            }
        }
        for member in value
            .get("limits")
            .and_then(Value::members)
            .unwrap_or_default()
        {
            let Some(limit) = limits::row(&member.name) else {
                continue;
            };
            if !SERVER_LIMITS.contains(&limit.name) {
                let message = format!(
                    "`servers.{name}.limits.{}` does not differ by server; those that do: {}",
                    limit.name,
                    SERVER_LIMITS.join(", ")
                );
                self.refuse(&member.value, &message);
                continue;
            }
            match file_limit(limit, &member.value, self.loading.limit_now(limit)) {
                Ok(value) => {
                    server.limits.insert(limit.name, value);
                }
                Err(message) => self.refuse(
                    &member.value,
                    &format!("`servers.{name}.limits.{}`: {message}", limit.name),
                ),
            }
        }
        server
    }

    fn sign_in(&mut self, at: &str, value: &Value) -> ClientSettings {
        let mut client = ClientSettings::default();
        if value.members().is_none() {
            let kind = value.kind_name();
            self.refuse(value, &format!("`{at}` must be an object, not {kind}"));
            return client;
        }
        let mut text = |key: &str| {
            let found = value.get(key)?;
            let text = found.text().map(str::trim).filter(|text| !text.is_empty());
            if text.is_none() {
                let kind = found.kind_name();
                self.refuse(found, &format!("`{at}.{key}` must be a text, not {kind}"));
            }
            text.map(str::to_owned)
        };
        client.client_id = text("client_id");
        client.client_secret = text("client_secret").map(Secret::new);
        client.client_metadata_url = text("client_metadata_url");
        if let Some(port) = value.get("redirect_port") {
            let number = whole_number(port).and_then(|port| u16::try_from(port).ok());
            client.redirect_port = number.filter(|port| *port > 0);
            if client.redirect_port.is_none() {
                let message = format!("`{at}.redirect_port` must be a port from 1 to 65535");
                self.refuse(port, &message);
            }
        }
        if let Some(scopes) = value.get("scopes") {
            client.scopes = self.texts(scopes, &format!("{at}.scopes"));
        }
        client
    }

    fn object<'v>(&mut self, parent: &'v Value, key: &str) -> Option<&'v Value> {
        let value = parent.get(key)?;
        if value.members().is_some() {
            return Some(value);
        }
        self.refuse(
            value,
            &format!("`{key}` must be an object, not {}", value.kind_name()),
        );
        None
    }

    fn bool(
        &mut self,
        parent: &Value,
        prefix: &str,
        key: &str,
        field: fn(&mut Settings) -> &mut bool,
    ) {
        let Some(value) = parent.get(key) else { return };
        match value.bool() {
            Some(set) => *field(&mut self.loading.settings) = set,
            None => self.refuse(
                value,
                &format!(
                    "`{prefix}{key}` must be true or false, not {}",
                    value.kind_name()
                ),
            ),
        }
    }

    fn choice<T>(
        &mut self,
        parent: &Value,
        prefix: &str,
        key: &str,
        forms: &str,
        read: impl Fn(&str) -> Option<T>,
        field: fn(&mut Settings) -> &mut T,
    ) {
        let Some(value) = parent.get(key) else { return };
        match value.text().and_then(read) {
            Some(set) => *field(&mut self.loading.settings) = set,
            None => self.refuse(value, &format!("`{prefix}{key}` must be one of {forms}")),
        }
    }

    fn texts(&mut self, value: &Value, key: &str) -> Vec<String> {
        let texts = value.items().and_then(|items| {
            items
                .iter()
                .map(|item| item.text().map(str::to_owned))
                .collect()
        });
        texts.unwrap_or_else(|| {
            self.refuse(value, &format!("`{key}` must be a list of texts"));
            Vec::new()
        })
    }

    fn refuse(&mut self, value: &Value, message: &str) {
        self.loading.problems.push(SettingsProblem {
            place: self.path.display().to_string(),
            position: self.document.position(value.at),
            message: message.to_owned(),
        });
    }
}

/// What a person wrote in a variable; `now` is what stays in force if it cannot be used.
fn read_limit(limit: &Limit, text: &str, now: u64) -> Result<u64, String> {
    let value = limit.unit.read(text).map_err(|why| {
        let now = limit.unit.show(now);
        format!(
            "`{text}` cannot be read: {why}; give {}; {now} stays",
            limit.unit.forms()
        )
    })?;
    check_limit(limit, value, now)
}

/// A number is in the unit that the key names; a text is read as in a variable.
fn file_limit(limit: &Limit, value: &Value, now: u64) -> Result<u64, String> {
    match &value.kind {
        Kind::Text(text) => read_limit(limit, text, now),
        Kind::Number(number) => match number.parse() {
            Ok(value) => check_limit(limit, value, now),
            Err(_) => Err(format!("{number} is not a whole number")),
        },
        _ => Err(format!(
            "it must be a number or a text, not {}",
            value.kind_name()
        )),
    }
}

fn check_limit(limit: &Limit, value: u64, now: u64) -> Result<u64, String> {
    if limit.accepts(value) {
        return Ok(value);
    }
    let show = |value| limit.unit.show(value);
    Err(format!(
        "{} is outside {}; {} stays",
        show(value),
        limit.range(),
        show(now)
    ))
}

fn whole_number(value: &Value) -> Option<u64> {
    match &value.kind {
        Kind::Number(number) => number.parse().ok(),
        _ => None,
    }
}

/// The engine's name, or a path that ends in it, as the earlier bridge took.
fn engine(text: &str) -> Option<Engine> {
    let name = text.trim().rsplit(['/', '\\']).next().unwrap_or_default();
    Engine::read(name.strip_suffix(".exe").unwrap_or(name))
}

/// The one variable that the earlier bridge had for it: a backend, or an engine and so a container.
fn runtime(text: &str) -> Option<(Backend, Engine)> {
    match (Backend::named(text), engine(text)) {
        (Some(backend), _) => Some((backend, Engine::Auto)),
        (None, Some(engine)) => Some((Backend::Container, engine)),
        (None, None) => None,
    }
}

/// The earlier bridge took Python's names.
fn log_level(text: &str) -> Option<LogLevel> {
    match text.trim().to_ascii_lowercase().as_str() {
        "warning" => Some(LogLevel::Warn),
        "critical" | "fatal" => Some(LogLevel::Error),
        _ => LogLevel::read(text),
    }
}

/// `uid` or `uid:gid`, numbers only: a name would mean what the image says it means.
fn container_user(text: &str) -> Option<String> {
    let text = text.trim();
    let number =
        |part: &str| part.parse::<u32>().is_ok() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once(':') {
        Some((user, group)) => (number(user) && number(group)).then(|| text.to_owned()),
        None => number(text).then(|| format!("{text}:{text}")),
    }
}

/// A yes or no as variables say it.
fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}
