//! What a list of tools costs a model, counted with the o200k vocabulary.

use serde_json::Value;

/// Tokens of name, description and input schema of every tool, as JSON.
pub(crate) fn of_tools(tools: &[Value]) -> usize {
    tools.iter().map(of_tool).sum()
}

fn of_tool(tool: &Value) -> usize {
    let shown = serde_json::json!({
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": tool["inputSchema"],
    });
    bpe_openai::o200k_base().count(&shown.to_string())
}
