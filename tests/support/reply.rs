//! What an MCP server answers: a result of `run_python` with its facts at hand, or an error.

use std::time::Duration;

use serde_json::Value;

/// A request that brought no result.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestError {
    /// The server answered with an error.
    Rpc {
        /// JSON-RPC code.
        code: i64,
        /// The message.
        message: String,
        /// What came with it.
        data: Value,
    },
    /// stdout closed before the answer.
    Closed,
    /// No answer within the deadline.
    TimedOut(Duration),
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rpc { code, message, .. } => write!(f, "error {code}: {message}"),
            Self::Closed => f.write_str("the server closed its output"),
            Self::TimedOut(after) => write!(f, "no answer within {} s", after.as_secs()),
        }
    }
}

impl std::error::Error for RequestError {}

/// The result of `run_python`.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The whole `CallToolResult`.
    pub result: Value,
    /// From the request's last byte to the reply's.
    pub took: Duration,
}

impl Reply {
    /// All text blocks, joined by line ends.
    pub fn text(&self) -> String {
        let blocks = self.result["content"].as_array().into_iter().flatten();
        blocks
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// One field of `structuredContent`; null where it is absent.
    pub fn field(&self, name: &str) -> &Value {
        &self.result["structuredContent"][name]
    }

    /// The field as text; empty where it is absent.
    pub fn str(&self, name: &str) -> &str {
        self.field(name).as_str().unwrap_or_default()
    }

    /// The run's status.
    pub fn status(&self) -> &str {
        self.str("status")
    }

    /// stdout as the run wrote it.
    pub fn stdout(&self) -> &str {
        self.str("stdout")
    }

    /// `isError`, which may be absent.
    pub fn is_error(&self) -> bool {
        self.result["isError"].as_bool().unwrap_or(false)
    }

    /// Blocks that are images.
    pub fn images(&self) -> Vec<&Value> {
        let blocks = self.result["content"].as_array().into_iter().flatten();
        blocks.filter(|block| block["type"] == "image").collect()
    }
}
