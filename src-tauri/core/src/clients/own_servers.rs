//! The servers that a client starts itself, or did until they were moved behind the bridge, and what their
//! tools cost a model.
//!
//! Nothing is started to find that out: a server whose tools nobody has listed costs an unknown amount.

use std::path::Path;

use serde::Serialize;

use super::client::Client;
use super::connect::{Connector, NAME};
use super::edit;
use super::entry::Entry;
use super::parse::Document;
use super::receipts::Receipt;
use super::target::Target;
use crate::catalog::known_cost;

/// A server of a client's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnServer {
    /// Its name in the client's file.
    pub name: String,
    /// Why the client does not start it, if it does not.
    pub off: Option<String>,
    /// It was moved behind the bridge.
    pub moved: bool,
    /// Its tools; `None`: nobody has listed them yet.
    pub tools: Option<usize>,
    /// Tokens of their definitions, about.
    pub tokens: Option<u64>,
}

/// What a client's servers cost every conversation, in tokens of tool definitions, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// As far as it is known.
    pub tokens: u64,
    /// Servers whose tools nobody has listed.
    pub unknown: usize,
}

impl Connector<'_> {
    /// All of them: those in the file, then those that were moved.
    pub(super) fn own_servers(
        &self,
        client: &'static Client,
        target: &Target,
        file: &Path,
        receipt: Option<&Receipt>,
    ) -> Vec<OwnServer> {
        let text = match super::parse::read_text(file) {
            Some(Ok(text)) => text,
            Some(Err(_)) | None => String::new(),
        };
        let mut servers = self.in_text(client, target, file, text);
        if let Some(moved) = receipt.and_then(|receipt| receipt.moved.as_ref()) {
            let document = Document::of_value(moved.document());
            let entries = self.entries_of(client, file, &document);
            let moved = entries.iter().map(|entry| self.server(entry, true));
            servers.extend(moved);
        }
        servers
    }

    /// What the client would read at the start of every conversation if its file had this text.
    pub(super) fn cost(
        &self,
        client: &'static Client,
        target: &Target,
        file: &Path,
        text: &str,
    ) -> Cost {
        let servers = self.in_text(client, target, file, text.to_owned());
        let on = servers.iter().filter(|server| server.off.is_none());
        let mut cost = on.fold(Cost::default(), |cost, server| Cost {
            tokens: cost.tokens + server.tokens.unwrap_or_default(),
            unknown: cost.unknown + usize::from(server.tokens.is_none()),
        });
        if self.names_us(target, file, text) {
            cost.tokens += crate::tool::TOKENS_MAX as u64;
        }
        cost
    }

    fn in_text(
        &self,
        client: &'static Client,
        target: &Target,
        file: &Path,
        text: String,
    ) -> Vec<OwnServer> {
        let Ok(document) = Document::parse(text, super::client::format_of(file)) else {
            return Vec::new();
        };
        let section = (target.section)(&document.root);
        let read = self.entries_of(client, file, &document);
        let named = edit::entries(&document.root, section).into_iter();
        named
            .filter(|(name, value)| *name != NAME && !self.starts_us(value))
            .filter_map(|(name, _)| read.iter().find(|entry| entry.name == name))
            .map(|entry| self.server(entry, false))
            .collect()
    }

    fn names_us(&self, target: &Target, file: &Path, text: &str) -> bool {
        Document::parse(text.to_owned(), super::client::format_of(file)).is_ok_and(|document| {
            let section = (target.section)(&document.root);
            edit::entries(&document.root, section)
                .into_iter()
                .any(|(_, value)| self.starts_us(value))
        })
    }

    fn server(&self, entry: &Entry, moved: bool) -> OwnServer {
        let cost = known_cost(&self.search().paths.catalog_cache(), entry);
        OwnServer {
            name: entry.name.clone(),
            off: entry.off.clone(),
            moved,
            tools: cost.map(|(tools, _)| tools),
            tokens: cost.map(|(_, tokens)| tokens),
        }
    }
}
