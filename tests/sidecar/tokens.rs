//! What the model must read before it does anything, with nothing, little and very much behind it.

use runbridge_testkit::{Bridge, TempHome};
use serde_json::{Map, Value, json};

use crate::{engine, on};

const TOKENS_MAX: usize = 200;

/// The names of 35 servers that a heavy user may have; 913 tools among them.
const NAMES: &[&str] = &[
    "everything",
    "filesystem",
    "memory",
    "sequential-thinking",
    "time",
    "git",
    "fetch",
    "sqlite",
    "github",
    "slack",
    "google-maps",
    "gitlab",
    "playwright",
    "chrome-devtools",
    "context7",
    "notion",
    "desktop-commander",
    "mongodb",
    "kubernetes",
    "circleci",
    "chart",
    "tavily",
    "firecrawl",
    "exa",
    "figma",
    "sentry",
    "excel",
    "duckdb",
    "motherduck",
    "atlassian",
    "markitdown",
    "word",
    "powerpoint",
    "grafana",
    "google-workspace",
];

/// A bridge whose servers have `counts` tools, each with a name, a description and a schema of the
/// usual size.
fn with_tools(counts: &[(&str, usize)]) -> Bridge {
    let home = TempHome::new();
    let mut servers = Map::new();
    for (name, count) in counts {
        let tools: Vec<Value> = (0..*count)
            .map(|number| {
                json!({
                    "name": format!("{name}_operation_{number}"),
                    "description": format!("Does operation {number} of {name}. {}", "It explains at length what it does. ".repeat(15)),
                    "inputSchema": { "type": "object", "properties": {
                        "target": { "type": "string", "description": "What to work on, by its full name" },
                        "options": { "type": "object", "description": "How to do it" },
                    }, "required": ["target"] },
                })
            })
            .collect();
        let file = home.join(&format!("{name}.tools.json"));
        std::fs::write(&file, Value::from(tools).to_string()).unwrap();
        servers.insert(
            (*name).to_owned(),
            home.stub(&["--tools-file", &file.to_string_lossy()]),
        );
    }
    on(engine()).servers(servers).start(home)
}

/// Tokens of the definition, and its description.
fn cost(bridge: &Bridge) -> (usize, String) {
    let list = bridge.client().request("tools/list", json!({})).unwrap();
    let tool = &list["tools"][0];
    let shown = json!({
        "name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"],
    });
    (
        bpe_openai::o200k_base().count(&shown.to_string()),
        tool["description"].as_str().unwrap().to_owned(),
    )
}

#[track_caller]
fn assert_cheap(bridge: &Bridge) -> String {
    let (tokens, description) = cost(bridge);
    assert!(tokens <= TOKENS_MAX, "{tokens} tokens: {description}");
    assert!(
        description.contains("search_tool_docs"),
        "it must say how to search: {description}"
    );
    description
}

#[test]
fn two_hundred_tokens_with_no_tools() {
    let bridge = with_tools(&[]);
    assert_cheap(&bridge);
    bridge.close();
}

#[test]
fn two_hundred_tokens_with_ten_tools_and_the_server_is_named() {
    let bridge = with_tools(&[("github", 6), ("time", 4)]);
    let description = assert_cheap(&bridge);
    assert!(
        description.contains("github") && description.contains("time"),
        "{description}"
    );
    bridge.close();
}

#[test]
fn two_hundred_tokens_with_nine_hundred_and_thirteen_tools() {
    let counts: Vec<(&str, usize)> = NAMES
        .iter()
        .enumerate()
        .map(|(place, name)| (*name, if place < 3 { 27 } else { 26 }))
        .collect();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), 913);
    let bridge = with_tools(&counts);
    let before = assert_cheap(&bridge);
    let named = NAMES.iter().filter(|name| before.contains(**name)).count();
    assert!(named >= 10, "only {named} servers are named: {before}");
    // All 35 are started to be searched, which takes its time on two cores.
    let code = "print([d['name'] for d in await runtime.search_tool_docs('operation 17 of grafana', limit=1)])";
    let reply = bridge.run_with(json!({ "code": code, "timeout": 120 }));
    assert_eq!(
        reply.stdout(),
        "['grafana_operation_17']\n",
        "{}",
        reply.result
    );
    let after = assert_cheap(&bridge);
    assert_eq!(before, after, "the description must be stable");
    bridge.close();
}
