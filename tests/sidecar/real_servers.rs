//! Real MCP servers through the bridge: what they do is checked, not only that they answer.

use std::process::Command;

use runbridge_testkit::{Bridge, Components, TempHome};
use serde_json::json;

use crate::{engine, on};

/// A bridge with these servers.
fn with(names: &[&str], home: TempHome) -> Bridge {
    let components =
        Components::from_env().expect("RUNBRIDGE_TEST_COMPONENTS: run `cargo xtask test`");
    let entries = components.entries(names, &home);
    on(engine()).servers(entries).start(home)
}

/// Run code with time for a slow start of a server.
#[track_caller]
fn prints(bridge: &Bridge, code: &str) -> String {
    let reply = bridge.run_with(json!({ "code": code, "timeout": 60 }));
    assert_eq!(reply.status(), "success", "{}", reply.result);
    reply.stdout().to_owned()
}

#[test]
fn filesystem_reads_writes_and_refuses() {
    let home = TempHome::new();
    home.write("files/in.txt", "line one\nline two\n");
    let bridge = with(&["filesystem"], home);
    let files = bridge.home().join("files").to_string_lossy().into_owned();
    let code = format!(
        "
text = await mcp_filesystem.read_text_file(path='{files}/in.txt')
print(text['content'].splitlines())
await mcp_filesystem.write_file(path='{files}/out.txt', content='written')
try:
    await mcp_filesystem.read_text_file(path='/etc/passwd')
except runtime.MCPError as error:
    print('refused', error.tool)
"
    );
    assert_eq!(
        prints(&bridge, &code),
        "['line one', 'line two']\nrefused read_text_file\n"
    );
    assert_eq!(
        std::fs::read_to_string(bridge.home().join("files/out.txt")).unwrap(),
        "written"
    );
    bridge.close();
}

#[test]
fn memory_keeps_a_graph() {
    let bridge = with(&["memory"], TempHome::new());
    let code = "
await mcp_memory.create_entities(entities=[{'name': 'Ada', 'entityType': 'person', 'observations': ['writes programs']}])
graph = await mcp_memory.read_graph()
print([entity['name'] for entity in graph['entities']])
";
    assert_eq!(prints(&bridge, code), "['Ada']\n");
    bridge.close();
}

#[test]
fn everything_echoes_adds_and_shows_a_picture() {
    let bridge = with(&["everything"], TempHome::new());
    let code = "
print(await mcp_everything.echo(message='hi'))
names = [tool['name'] for tool in await runtime.list_tools('everything')]
print(len(names) >= 10)
image = next(name for name in names if 'image' in name.lower())
blocks = await runtime.call_tool('everything', image)
for block in blocks:
    if block['type'] == 'image':
        display(block)
";
    let reply = bridge.run_with(json!({ "code": code, "timeout": 60 }));
    assert_eq!(reply.status(), "success", "{}", reply.result);
    assert_eq!(reply.stdout(), "Echo: hi\nTrue\n");
    assert_eq!(reply.images().len(), 1, "{}", reply.result);
    bridge.close();
}

#[test]
fn sequential_thinking_counts_thoughts() {
    let bridge = with(&["sequential-thinking"], TempHome::new());
    let code = "
for number in (1, 2):
    state = await mcp_sequential_thinking.sequentialthinking(
        thought='step', nextThoughtNeeded=number < 2, thoughtNumber=number, totalThoughts=2)
print(state['thoughtNumber'], state['nextThoughtNeeded'])
";
    assert_eq!(prints(&bridge, code), "2 False\n");
    bridge.close();
}

#[test]
fn time_converts() {
    let bridge = with(&["time"], TempHome::new());
    let code = "
result = await mcp_time.convert_time(source_timezone='UTC', time='12:00', target_timezone='Asia/Kolkata')
print(result['target']['datetime'][11:16])
";
    assert_eq!(prints(&bridge, code), "17:30\n");
    bridge.close();
}

#[test]
fn git_reads_a_repository() {
    let home = TempHome::new();
    let repo = home.join("repo");
    std::fs::create_dir(&repo).unwrap();
    std::fs::write(repo.join("file.txt"), "text\n").unwrap();
    for arguments in [
        &["init", "--quiet", "--initial-branch", "main"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.com",
            "commit",
            "--quiet",
            "--message",
            "first commit of all",
        ],
    ] {
        let status = Command::new("git")
            .current_dir(&repo)
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success());
    }
    let bridge = with(&["git"], home);
    let code = format!(
        "print('first commit of all' in str(await mcp_git.git_log(repo_path='{}')))",
        repo.display()
    );
    assert_eq!(prints(&bridge, &code), "True\n");
    bridge.close();
}

#[test]
fn sqlite_stores_and_asks() {
    let bridge = with(&["sqlite"], TempHome::new());
    let code = "
await mcp_sqlite.create_table(query='CREATE TABLE t (n INTEGER)')
await mcp_sqlite.write_query(query='INSERT INTO t VALUES (20), (22)')
print(await mcp_sqlite.read_query(query='SELECT sum(n) AS total FROM t'))
";
    assert!(prints(&bridge, code).contains("42"));
    bridge.close();
}

#[test]
fn excel_makes_a_workbook() {
    let bridge = with(&["excel"], TempHome::new());
    let path = bridge.home().join("files/book.xlsx");
    let code = format!(
        "
tools = await runtime.list_tools('excel')
await mcp_excel.create_workbook(path='{}')
print(len(tools) > 20)
",
        path.display()
    );
    assert_eq!(prints(&bridge, &code), "True\n");
    assert_eq!(
        &std::fs::read(path).unwrap()[..2],
        b"PK",
        "a workbook is a ZIP file"
    );
    bridge.close();
}

#[test]
fn three_servers_work_together() {
    let home = TempHome::new();
    home.write("files/numbers.txt", "1\n2\n3\n");
    let bridge = with(&["filesystem", "time", "sqlite"], home);
    let files = bridge.home().join("files").to_string_lossy().into_owned();
    let code = format!(
        "
import asyncio
text, now, tables = await asyncio.gather(
    mcp_filesystem.read_text_file(path='{files}/numbers.txt'),
    mcp_time.get_current_time(timezone='UTC'),
    mcp_sqlite.list_tables(),
)
print(sum(int(line) for line in text['content'].split()), now['timezone'])
"
    );
    assert_eq!(prints(&bridge, &code), "6 UTC\n");
    bridge.close();
}
