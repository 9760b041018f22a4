//! The manual that the model reads: the capability resource, and `runtime.capability_summary()`.
//!
//! Knows the contract's names and the limits in force, and nothing of the servers: those change, the
//! manual says how to ask.

/// The address of the resource. Older prompts name it, so it stays.
pub const URI: &str = "resource://mcp-server-code-execution-mode/capabilities";

/// What kind of text it is.
pub const MIME_TYPE: &str = "text/markdown";

const TEMPLATE: &str = include_str!("manual.md");

/// The limits that the manual tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManualLimits {
    /// Wall clock of a run that names none.
    pub run_seconds: u64,
    /// The most a run may name.
    pub run_seconds_max: u64,
    /// Memory of the sandbox.
    pub memory_bytes_max: u64,
    /// Size of `/tmp`.
    pub tmp_bytes_max: u64,
    /// Size of `/workspace`.
    pub workspace_bytes_max: u64,
    /// Calls of one run.
    pub calls_max: u64,
    /// Calls of one run at once.
    pub calls_at_once_max: u64,
    /// One call.
    pub call_seconds_max: u64,
    /// Characters of one reply.
    pub reply_chars_max: usize,
    /// One remembered value.
    pub value_bytes_max: usize,
    /// Remembered keys.
    pub keys_max: usize,
}

impl Default for ManualLimits {
    fn default() -> Self {
        Self {
            run_seconds: 30,
            run_seconds_max: 120,
            memory_bytes_max: 512 << 20,
            tmp_bytes_max: 64 << 20,
            workspace_bytes_max: 128 << 20,
            calls_max: 1_000,
            calls_at_once_max: 16,
            call_seconds_max: 60,
            reply_chars_max: 20_000,
            value_bytes_max: 1 << 20,
            keys_max: 10_000,
        }
    }
}

/// The manual, with the limits in force.
pub fn text(limits: &ManualLimits) -> String {
    let values = [
        ("run_seconds", limits.run_seconds.to_string()),
        ("run_seconds_max", limits.run_seconds_max.to_string()),
        ("memory_mib", (limits.memory_bytes_max >> 20).to_string()),
        ("tmp_mib", (limits.tmp_bytes_max >> 20).to_string()),
        (
            "workspace_mib",
            (limits.workspace_bytes_max >> 20).to_string(),
        ),
        ("calls", limits.calls_max.to_string()),
        ("calls_at_once", limits.calls_at_once_max.to_string()),
        ("call_seconds", limits.call_seconds_max.to_string()),
        ("reply_chars", limits.reply_chars_max.to_string()),
        ("value_kib", (limits.value_bytes_max >> 10).to_string()),
        ("keys", limits.keys_max.to_string()),
    ];
    values
        .iter()
        .fold(TEMPLATE.to_owned(), |text, (name, value)| {
            text.replace(&format!("<<{name}>>"), value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name that the contract promises to Python code.
    const NAMES: [&str; 47] = [
        "mcp",
        "runtime",
        "mcp_servers",
        "mcp_<alias>",
        "from mcp import runtime",
        "from mcp.servers.<alias> import",
        "discovered_servers(detailed=False)",
        "list_servers()",
        "list_servers_sync()",
        "describe_server(name)",
        "list_loaded_server_metadata()",
        "list_tools(server)",
        "list_tools_sync",
        "query_tool_docs(server, tool=None, detail=\"summary\")",
        "query_tool_docs_sync",
        "\"name\"",
        "\"full\"",
        "search_tool_docs(query, *, limit=5, detail=\"summary\")",
        "search_tool_docs_sync",
        "call_tool(server, tool, arguments=None)",
        "call_tool_raw(",
        "gather(*awaitables)",
        "tool_function(server, tool)",
        "python_name(server, tool)",
        "capability_summary()",
        "sandbox()",
        "install(",
        "output(run_id, start, end)",
        "result(run_id)",
        "reset()",
        "display(obj)",
        "save_tool(func)",
        "list_saved_tools()",
        "delete_saved_tool(name)",
        "save_memory(",
        "metadata=",
        "load_memory(",
        "default=None",
        "update_memory(",
        "delete_memory(",
        "list_memories()",
        "memory_exists(",
        "get_memory_info(",
        "MCPError",
        "TypeError",
        "KeyboardInterrupt",
        "await",
    ];

    #[test]
    fn every_promised_name_is_explained() {
        let text = text(&ManualLimits::default());
        for name in NAMES {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn the_limits_in_force_are_told() {
        let text = text(&ManualLimits {
            run_seconds: 31,
            memory_bytes_max: 777 << 20,
            keys_max: 5,
            ..ManualLimits::default()
        });
        assert!(!text.contains("<<"), "a placeholder has no value");
        for told in [
            "take 31 s",
            "up to 120)",
            "777 MiB of memory",
            "at most 5 keys",
            "1024 KiB",
            "20000 characters",
            "1000 calls",
        ] {
            assert!(text.contains(told), "{told}");
        }
    }

    #[test]
    fn it_is_short_enough_to_be_read() {
        let tokens = bpe_openai::o200k_base().count(&text(&ManualLimits::default()));
        assert!(tokens <= 1_600, "{tokens} tokens");
    }
}
