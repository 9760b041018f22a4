//! What an organisation allows in Claude Code: `allowedMcpServers` and `deniedMcpServers`.
//!
//! The managed settings decide; the user's own settings may deny more. A rule names a server, its exact
//! command line, or an address with stars. What is denied is denied whatever else allows it. Settings that
//! a device management puts elsewhere than into files are not seen from here.

use std::path::{Path, PathBuf};

use super::super::Search;
use super::super::entry::EntryTransport;
use super::super::parse::{Document, Format, Value};
use super::{managed_folder, settings_folder};

/// More files than any organisation splits its settings into.
const FILES_MAX: usize = 100;

/// What may be started.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Who said what is allowed; `None`: everything is.
    allowed: Option<(PathBuf, Vec<Rule>)>,
    denied: Vec<(PathBuf, Rule)>,
}

/// One line of a list.
#[derive(Debug)]
enum Rule {
    Name(String),
    Command(Vec<String>),
    Url(String),
}

impl Policy {
    /// The policy in force, from the settings that there are.
    pub(super) fn of(search: &Search<'_>) -> Self {
        let folder = managed_folder(search);
        let mut managed = vec![folder.join("managed-settings.json")];
        let parts = search.files_in(&folder.join("managed-settings.d"), |name| {
            !name.starts_with('.') && Path::new(name).extension().is_some_and(|end| end == "json")
        });
        managed.extend(parts.into_iter().take(FILES_MAX));
        let mut policy = Self::default();
        for path in managed {
            let Some(root) = read(search, &path) else {
                continue;
            };
            if let Some(rules) = rules(&root, "allowedMcpServers") {
                let allowed = &mut policy.allowed;
                allowed
                    .get_or_insert_with(|| (path.clone(), Vec::new()))
                    .1
                    .extend(rules);
            }
            policy.deny(&path, &root);
        }
        let own = settings_folder(search).join("settings.json");
        if let Some(root) = read(search, &own) {
            policy.deny(&own, &root);
        }
        policy
    }

    fn deny(&mut self, path: &Path, root: &Value) {
        let rules = rules(root, "deniedMcpServers").unwrap_or_default();
        self.denied
            .extend(rules.into_iter().map(|rule| (path.to_owned(), rule)));
    }

    /// Why Claude Code does not start this server, if it does not.
    pub(super) fn refusal(&self, name: &str, transport: &EntryTransport) -> Option<String> {
        let denied = self.denied.iter();
        if let Some((path, _)) = denied
            .into_iter()
            .find(|(_, rule)| rule.fits(name, transport))
        {
            return Some(format!("Claude Code is not to use it: {}", path.display()));
        }
        let (path, rules) = self.allowed.as_ref()?;
        // As soon as one rule speaks of commands, a command's name alone allows nothing; so with addresses.
        let strict = rules.iter().any(|rule| {
            matches!(
                (rule, transport),
                (Rule::Command(_), EntryTransport::Stdio { .. })
                    | (Rule::Url(_), EntryTransport::Http { .. })
            )
        });
        let allows =
            |rule: &Rule| !(strict && matches!(rule, Rule::Name(_))) && rule.fits(name, transport);
        (!rules.iter().any(allows)).then(|| {
            format!(
                "it is not among what Claude Code may use: {}",
                path.display()
            )
        })
    }
}

impl Rule {
    fn of(value: &Value) -> Option<Self> {
        let text = |key| value.get(key).and_then(Value::text).map(str::to_owned);
        if let Some(name) = text("serverName") {
            return Some(Self::Name(name));
        }
        if let Some(url) = text("serverUrl") {
            return Some(Self::Url(url));
        }
        let words = value.get("serverCommand")?.items()?.iter();
        words
            .map(|word| word.text().map(str::to_owned))
            .collect::<Option<_>>()
            .map(Self::Command)
    }

    fn fits(&self, name: &str, transport: &EntryTransport) -> bool {
        match (self, transport) {
            (Self::Name(wanted), _) => wanted == name,
            (Self::Command(line), EntryTransport::Stdio { command, args, .. }) => {
                let given = std::iter::once(command).chain(args);
                line.iter().eq(given)
            }
            (Self::Url(pattern), EntryTransport::Http { url, .. }) => matches(pattern, url),
            (Self::Command(_), EntryTransport::Http { .. })
            | (Self::Url(_), EntryTransport::Stdio { .. }) => false,
        }
    }
}

fn read(search: &Search<'_>, path: &Path) -> Option<Value> {
    search.consult(path);
    let document = Document::read(path, Format::Json)?.ok()?;
    Some(document.root)
}

fn rules(root: &Value, key: &str) -> Option<Vec<Rule>> {
    let items = root.get(key)?.items()?;
    Some(items.iter().filter_map(Rule::of).collect())
}

/// Whether a text fits a pattern in which a star stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fits) in [
            ("https://a.example/mcp", "https://a.example/mcp", true),
            ("https://a.example/mcp", "https://a.example/mcp2", false),
            ("https://*.example/*", "https://a.b.example/mcp", true),
            ("https://*.example/*", "http://a.example/mcp", false),
            ("https://a.example/*", "https://a.example.evil/x", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
