//! A change that can be looked at before it is made.

use std::path::PathBuf;

use super::{Connector, Cost, Receipt};
use crate::clients::client::Client;
use crate::clients::receipts;
use crate::redact::Redactor;

/// A change of a client's file that has not been made.
pub struct Plan {
    pub(super) client: &'static Client,
    /// The file.
    pub file: PathBuf,
    /// What is worth saying: what stays as it is and why, what to do next.
    pub notes: Vec<String>,
    pub(super) before: Option<Vec<u8>>,
    pub(super) after: Option<Vec<u8>>,
    pub(super) prior: Option<Receipt>,
    pub(super) receipt: Option<Receipt>,
    pub(super) backups: Vec<(String, Vec<u8>)>,
    pub(super) secrets: Vec<crate::secrets::Secret>,
    /// What a conversation starts with, before and after.
    pub(super) costs: [Cost; 2],
    /// The change is no more than our entry, which the client's own command can put in.
    pub(super) entry_alone: bool,
}

impl Plan {
    /// Whether the file would change.
    pub fn is_change(&self) -> bool {
        self.before != self.after
    }

    /// The client's name.
    pub fn client(&self) -> &'static str {
        self.client.name
    }

    /// Where what the file held is kept, if it is.
    pub fn backups(&self, connector: &Connector<'_>) -> Vec<PathBuf> {
        let folder = receipts::folder(connector.search.paths).join("backups");
        self.backups
            .iter()
            .map(|(name, _)| folder.join(name))
            .collect()
    }

    /// The names of servers that are behind the bridge afterwards.
    pub fn moved(&self) -> Vec<&str> {
        self.receipt.iter().flat_map(Receipt::moved).collect()
    }

    /// Whether the file is to be made.
    pub fn creates(&self) -> bool {
        self.before.is_none()
    }

    /// What a conversation starts with before the change and after it.
    pub fn costs(&self) -> [Cost; 2] {
        self.costs
    }

    /// A name of this very change, which another change of the same file does not have.
    pub fn name(&self) -> String {
        let content = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(receipts::hash);
        let all = format!(
            "{} {} {:?} {:?}",
            self.client.id,
            self.file.display(),
            content(&self.before),
            content(&self.after)
        );
        receipts::hash(all.as_bytes())
    }

    /// The change as a unified diff, secrets left out.
    pub fn diff(&self) -> String {
        let text = |bytes: &Option<Vec<u8>>| {
            String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
        };
        let (before, after) = (text(&self.before), text(&self.after));
        let name = self.file.display().to_string();
        let diff = similar::TextDiff::from_lines(&before, &after)
            .unified_diff()
            .context_radius(3)
            .header(&name, &name)
            .to_string();
        Redactor::new(&self.secrets).text(&diff).into_owned()
    }
}
