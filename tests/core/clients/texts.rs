//! What stands around our entry is not touched, however it is written.

use runbridge_core::clients::connect::Action;
use runbridge_core::paths::Os;

use crate::home::{Home, PROGRAM};

/// Connects and gives the lines that were taken out and put in.
fn changed(client: &str, path: &str, before: &str) -> (Vec<String>, Vec<String>, String) {
    let home = Home::new(Os::Linux);
    home.write(path, before);
    home.connect(client);
    let after = home.read(path);
    let diff = similar::TextDiff::from_lines(before, &after);
    let lines = |tag| -> Vec<String> {
        diff.iter_all_changes()
            .filter(|change| change.tag() == tag)
            .map(|change| change.value().to_owned())
            .collect()
    };
    let (out, put) = (
        lines(similar::ChangeTag::Delete),
        lines(similar::ChangeTag::Insert),
    );
    home.connect(client);
    assert_eq!(home.read(path), after, "the second time changes nothing");
    // As if somebody had written in between.
    home.write(path, &format!("{after}\n"));
    home.disconnect(client);
    assert_eq!(home.read(path).trim_end(), before.trim_end());
    (out, put, after)
}

#[test]
fn only_lines_are_added_to_a_list_that_has_entries() {
    let (out, put, _) = changed(
        "zed",
        ".config/zed/settings.json",
        "// My settings\n{\n  \"theme\": \"One Dark\", // keep\n  \"buffer_font_size\": 15.0,\n  \"context_servers\": {\n    // existing\n    \"other\": {\n      \"command\": \"node\",\n      \"args\": [\"x.js\"],\n    },\n  },\n  \"z_last\": 1e3,\n}\n",
    );
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(
        put.concat(),
        format!(
            "    \"runbridge\": {{\n      \"command\": \"{PROGRAM}\",\n      \"args\": [],\n      \"env\": {{}}\n    }},\n"
        )
    );
    let (out, put, _) = changed(
        "codex",
        ".codex/config.toml",
        "# top comment\nmodel = \"o9\"   # trailing\n\n[mcp_servers.other]\ncommand = \"x\"\n\n[profiles.fast]\nmodel = \"m\"\n",
    );
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(
        put.concat(),
        format!(
            "\n[mcp_servers.runbridge]\ncommand = \"{PROGRAM}\"\nargs = []\ntool_timeout_sec = 180\n"
        )
    );
    let (out, put, _) = changed(
        "continue",
        ".continue/config.yaml",
        "# head\nname: Main\nversion: 1.0.0\nschema: v1\nmodels: &m\n  - name: a   # inline\nmcpServers:\n  - name: other\n    command: x\nrules: []\n",
    );
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(
        put.concat(),
        format!("  - name: runbridge\n    command: \"{PROGRAM}\"\n    args: []\n")
    );
    let (out, put, after) = changed(
        "cursor",
        ".cursor/mcp.json",
        "{\n\t\"mcpServers\": {\n\t\t\"b\": {\"command\": \"x\"},\n\t\t\"a\": {\"command\": \"y\", \"note\": 1.50}\n\t}\n}",
    );
    assert!(out.is_empty(), "{out:?}");
    assert!(put.iter().all(|line| line.starts_with("\t\t")), "{put:?}");
    assert!(!after.ends_with('\n'), "there was no line break at the end");
    let (_, put, _) = changed(
        "vscode",
        ".config/Code/User/mcp.json",
        "{\r\n  // crlf file\r\n  \"servers\": {}\r\n}\r\n",
    );
    assert!(put.iter().all(|line| line.ends_with("\r\n")), "{put:?}");
    assert!(put.concat().contains("\"type\": \"stdio\""));
}

#[test]
fn every_way_to_write_a_list_of_servers_is_understood() {
    let cursor = ".cursor/mcp.json";
    for before in [
        "",
        "\n",
        "{}",
        "{}\n",
        "{ }",
        "{\n}\n",
        "{\n  // nothing yet\n}\n",
        "{\"mcpServers\":{}}",
        "{\"mcpServers\": {}}",
        "{\"mcpServers\":{\"a\":{\"command\":\"x\"}}}",
        "{ \"mcpServers\": { \"a\": { \"command\": \"x\" } } }\n",
        "{\n  \"mcpServers\": null\n}\n",
        "{\n  \"mcpServers\": { // servers\n    \"a\": {\"command\": \"x\"} // one\n    // end\n  }\n}\n",
        "{\n  \"mcpServers\": { /* a\n b */ \"a\": {\"command\": \"x\"}\n  }\n}\n",
        "{\n  \"mcpServers\": {\n    // none\n  }\n}\n",
        "{\n    \"a\": [\n        1\n    ]\n}\n",
        "// only a comment\n",
        "{\"a\": \"} // \\\" {\", \"mcpServers\": {\"b\": {\"command\": \"{\"}},}",
    ] {
        let home = Home::new(Os::Linux);
        let path = home.write(cursor, before);
        home.connect("cursor");
        let after = home.read(cursor);
        assert_eq!(
            home.discover().skipped.len(),
            1,
            "{before:?} became {after:?}"
        );
        home.disconnect("cursor");
        assert_eq!(home.read(cursor), before);
        // The same without the receipt to go by.
        home.connect("cursor");
        std::fs::remove_dir_all(home.paths().data).unwrap();
        home.disconnect("cursor");
        assert_eq!(home.discover().skipped.len(), 0, "{before:?}");
        assert!(path.exists());
    }
    for (client, path, texts) in [
        (
            "codex",
            ".codex/config.toml",
            &[
                "",
                "a = 1",
                "mcp_servers = {}\n",
                "mcp_servers = { a = { command = \"x\" } }\n",
                "mcp_servers.a.command = \"x\"\n",
                "[mcp_servers]\na = { command = \"x\" }\n# end\n",
                "[mcp_servers.\"a.b\"]\ncommand = \"\"\"\n[mcp_servers.runbridge]\n\"\"\"\n\n[mcp_servers.\"a.b\".env]\nX = '1'\r\n",
                "# only a comment\r\n",
            ][..],
        ),
        (
            "mistral-vibe",
            ".vibe/config.toml",
            &[
                "",
                "[[mcp_servers]]\nname = \"a\"\ncommand = \"x\"\n\n[mcp_servers.env]\nA = \"b\"\n",
                "mcp_servers = [ { name = \"a\", command = \"x\" } ]\n",
            ][..],
        ),
        (
            "continue",
            ".continue/config.yaml",
            &[
                "",
                "name: x",
                "mcpServers: []\n",
                "mcpServers:\nrules: []\n",
                "mcpServers: # none\n",
                "mcpServers:\n- name: a\n  command: x\n",
                "mcpServers:\n  # mine\n  - name: a\n    command: x\n    env:\n      A: b\n\n# end\nrules: []\n",
                "mcpServers: [{\"name\": \"a\", \"command\": \"x\"}]\r\n",
                "# only a comment\n",
            ][..],
        ),
        (
            "goose",
            ".config/goose/config.yaml",
            &[
                "extensions: {}\n",
                "extensions:\n  developer:\n    type: builtin\n    name: developer\nGOOSE_MODEL: x\n",
                "GOOSE_MODEL: x\n",
            ][..],
        ),
    ] {
        for before in texts {
            let home = Home::new(Os::Linux);
            home.write(path, before);
            home.act(client, Action::Connect)
                .unwrap_or_else(|error| panic!("{before:?}: {error}"));
            let after = home.read(path);
            assert_eq!(
                home.discover()
                    .skipped
                    .iter()
                    .filter(|skipped| skipped.name == "runbridge")
                    .count(),
                1,
                "{before:?} became {after:?}"
            );
            home.write(path, &format!("{after}\n"));
            home.disconnect(client);
            let end = home.read(path);
            assert_eq!(
                end.trim_end().replace(": []", ":").replace(": {}", ":"),
                before.trim_end().replace(": []", ":").replace(": {}", ":"),
                "{after:?}"
            );
        }
    }
}
