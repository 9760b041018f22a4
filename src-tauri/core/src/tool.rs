//! The one tool: its name, description and input schema, within 200 tokens whatever is behind it.
//!
//! A model that is not told what exists does not look, so the description names the enabled servers
//! as far as the budget goes. Counting tokens exactly takes tables of several megabytes; here an
//! upper estimate is enough, and a test holds it against the real tokenizer.

use serde_json::{Value, json};

/// The tool's name, which is also that of the earlier Python bridge.
pub const NAME: &str = "run_python";

/// The contract's bound on name, description and input schema together, in o200k tokens.
pub const TOKENS_MAX: usize = 200;

/// Tokens that server names may take; the rest of the definition stays below the difference.
const NAME_TOKENS_MAX: usize = 68;

/// Longer names are cut: a name is a hint, and `discovered_servers()` has it whole.
const NAME_CHARS_MAX: usize = 32;

const DESCRIPTION: &str = "Run Python in a sandbox (no network); variables persist. It can call \
MCP servers: `await mcp_<server>.<tool>(arg=…)`. Find tools: `await \
runtime.search_tool_docs(\"query\")`; manual: `runtime.capability_summary()`.";

/// What `tools/list` says.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// The definition for these servers, named in this order, with these bounds of the time limit.
pub fn definition<'a>(
    servers: impl IntoIterator<Item = &'a str>,
    timeout_seconds: u64,
    timeout_seconds_max: u64,
) -> ToolDefinition {
    let mut description = DESCRIPTION.to_owned();
    description.push_str(&server_list(servers));
    ToolDefinition {
        description,
        input_schema: json!({
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "servers": {"type": "array", "items": {"type": "string"}},
                "timeout": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": timeout_seconds_max,
                    "default": timeout_seconds,
                },
                "session": {"type": "string"},
            },
            "required": ["code"],
        }),
    }
}

fn server_list<'a>(servers: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = servers.into_iter().map(printable).collect();
    if names.is_empty() {
        return String::new();
    }
    let mut left = NAME_TOKENS_MAX;
    let mut shown = 0;
    for name in &names {
        let cost = tokens_at_most(name) + 1;
        if cost > left {
            break;
        }
        left -= cost;
        shown += 1;
    }
    let list = names[..shown].join(", ");
    match names.len() - shown {
        0 => format!(" Servers: {list}."),
        more if shown == 0 => format!(" {more} servers."),
        more => format!(" Servers: {list} and {more} more."),
    }
}

/// A name as one short line of text.
fn printable(name: &str) -> String {
    let mut shown: String = name
        .chars()
        .map(|c| {
            if c.is_control() || c == '"' || c == '\\' {
                '_'
            } else {
                c
            }
        })
        .take(NAME_CHARS_MAX)
        .collect();
    if name.chars().count() > NAME_CHARS_MAX {
        shown.push('…');
    }
    shown
}

/// An upper estimate of the tokens of a server's name: two letters a token within a run of one
/// case, one token for every other ASCII character, one for every byte of other scripts.
fn tokens_at_most(name: &str) -> usize {
    let mut tokens = 0;
    let mut run = 0;
    let mut last_upper = false;
    for c in name.chars() {
        if c.is_ascii_alphabetic() && (run == 0 || c.is_ascii_uppercase() == last_upper) {
            run += 1;
            last_upper = c.is_ascii_uppercase();
            continue;
        }
        tokens += usize::div_ceil(run, 2);
        run = 0;
        if c.is_ascii_alphabetic() {
            run = 1;
            last_upper = c.is_ascii_uppercase();
        } else {
            tokens += c.len_utf8();
        }
    }
    tokens + usize::div_ceil(run, 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use proptest::prelude::*;

    use super::*;

    /// What a client puts before the model.
    fn tokens(definition: &ToolDefinition) -> usize {
        let text = json!({
            "name": NAME,
            "description": definition.description,
            "inputSchema": definition.input_schema,
        });
        bpe_openai::o200k_base().count(&text.to_string())
    }

    #[test]
    fn without_servers_the_budget_for_names_is_left() {
        let tokens = tokens(&definition([], 30, 120));
        assert!(
            tokens + NAME_TOKENS_MAX + 10 <= TOKENS_MAX,
            "{tokens} tokens without names"
        );
    }

    #[test]
    fn an_ordinary_users_ten_servers_are_all_named() {
        let servers = [
            "fetch",
            "filesystem",
            "git",
            "github",
            "memory",
            "notion",
            "playwright",
            "slack",
            "sqlite",
            "time",
        ];
        let definition = definition(servers, 30, 120);
        assert!(
            definition
                .description
                .ends_with(&format!(" Servers: {}.", servers.join(", "))),
            "{}",
            definition.description
        );
        assert!(tokens(&definition) <= TOKENS_MAX);
    }

    #[test]
    fn a_long_name_and_control_characters_stay_within_one_line() {
        let name = format!("a\n\"b\"{}", "x".repeat(500));
        let list = server_list([name.as_str()]);
        assert_eq!(list, format!(" Servers: a__b_{}….", "x".repeat(27)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_set_of_servers_exceeds_the_budget(
            names in prop::collection::vec("[a-z]{1,12}|[A-Za-z0-9_.-]{1,40}|\\PC{1,40}", 0..60),
            timeout_max in 1_u64..86_400,
        ) {
            let definition = definition(names.iter().map(String::as_str), 30, timeout_max);
            let tokens = tokens(&definition);
            prop_assert!(tokens <= TOKENS_MAX, "{} tokens: {}", tokens, definition.description);
        }
    }
}
