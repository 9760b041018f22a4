//! What servers offer beside tools: resources, templates of them, and prompts. They are asked for each
//! time and not kept: nothing of ours ranks or checks them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Catalog;
use crate::upstream::UpstreamError;

/// Of one list, all pages together.
const ITEMS_MAX: usize = 10_000;

/// Pages of one list.
const PAGES_MAX: usize = 1_000;

/// Text of one list: what may cross the sandbox's wall at once.
const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// What can be read.
    Resources,
    /// Addresses with gaps to fill.
    ResourceTemplates,
    /// Texts for a model.
    Prompts,
}

impl Offer {
    /// The request that lists them.
    pub fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

impl Catalog {
    /// All that a server offers of one kind; nothing from a server that knows no such list.
    pub async fn offers(
        &self,
        server: &str,
        offer: Offer,
    ) -> Result<Vec<Box<RawValue>>, UpstreamError> {
        let server = self.enabled(server)?;
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let mut cursor = Value::Null;
        let mut bytes = 0;
        for _ in 0..PAGES_MAX {
            let params = match &cursor {
                Value::Null => json!({}),
                cursor => json!({ "cursor": cursor }),
            };
            let asked = server.live.upstream.request(offer.method(), params).await;
            let text = match asked {
                Err(UpstreamError::Rpc {
                    rpc_code: -32601, ..
                }) if items.is_empty() => break,
                asked => asked?,
            };
            bytes += text.get().len();
            let unreadable = |error| UpstreamError::Protocol {
                server: server.entry.name.clone(),
                detail: format!("its answer to {} is no list: {error}", offer.method()),
            };
            let mut page: BTreeMap<String, Box<RawValue>> =
                serde_json::from_str(text.get()).map_err(unreadable)?;
            if let Some(listed) = page.remove(offer.field()) {
                let listed: Vec<Box<RawValue>> =
                    serde_json::from_str(listed.get()).map_err(unreadable)?;
                items.extend(listed);
            }
            let next = page.remove("nextCursor");
            let next: Value = next
                .and_then(|next| serde_json::from_str(next.get()).ok())
                .unwrap_or_default();
            if next.is_null() || next == "" || next == cursor {
                break;
            }
            if items.len() > ITEMS_MAX || bytes > LIST_BYTES_MAX {
                break;
            }
            cursor = next;
        }
        items.truncate(ITEMS_MAX);
        Ok(items)
    }

    /// The contents of a resource, as the server gives them.
    pub async fn read_resource(
        &self,
        server: &str,
        uri: &str,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let server = self.enabled(server)?;
        let params = json!({ "uri": uri });
        server.live.upstream.request("resources/read", params).await
    }

    /// A prompt with its gaps filled, as the server gives it.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let server = self.enabled(server)?;
        let params = json!({ "name": name, "arguments": arguments });
        server.live.upstream.request("prompts/get", params).await
    }
}
