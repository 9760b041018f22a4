//! Contract 3: the Python.

use serde_json::json;

use crate::{bridge_on, on, on_both_kinds, with_stub, with_stub_and};
use runbridge_testkit::{Engine, TempHome};

on_both_kinds!(
    every_name_of_the_contract_is_bare_and_imports_work,
    variables_imports_and_functions_stay_until_reset,
    top_level_await_and_the_ways_people_write_asyncio_work,
    servers_are_told_of_in_all_the_ways,
    docs_are_a_list_in_three_details_and_search_finds_before_anything_is_called,
    search_covers_servers_that_were_never_started,
    call_tool_gives_the_value_and_call_tool_raw_the_unchanged_result,
    values_are_what_the_contract_says,
    proxies_take_keywords_or_one_mapping_and_any_name,
    aliases_of_servers_are_identifiers_that_do_not_clash,
    arguments_are_checked_before_anything_is_sent,
    an_integer_that_would_be_rounded_on_its_way_is_refused,
    a_schema_of_any_shape_is_accepted_and_an_unreadable_one_checks_nothing,
    a_coroutine_that_was_never_awaited_is_reported_with_its_line,
    a_failed_call_raises_an_error_with_all_its_facts,
    one_failing_call_never_ends_the_others,
    calls_made_together_run_together_up_to_the_bound,
    display_shows_pictures_and_prints_the_rest,
    saved_tools_outlive_the_bridge_and_a_same_named_one_is_replaced,
    the_sandbox_tells_of_itself,
);

fn every_name_of_the_contract_is_bare_and_imports_work(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
missing = [name for name in '''mcp runtime mcp_servers mcp_stub display save_tool list_saved_tools
    delete_saved_tool save_memory load_memory update_memory delete_memory list_memories memory_exists
    get_memory_info'''.split() if name not in globals()]
missing += [name for name in '''discovered_servers list_servers list_servers_sync describe_server
    list_loaded_server_metadata list_tools list_tools_sync query_tool_docs query_tool_docs_sync
    search_tool_docs search_tool_docs_sync call_tool call_tool_raw gather tool_function python_name
    capability_summary sandbox output reset display save_tool list_saved_tools delete_saved_tool
    save_memory load_memory update_memory delete_memory list_memories memory_exists get_memory_info
    MCPError'''.split() if not hasattr(runtime, name)]
print(missing)
from mcp import runtime as first
import mcp.runtime as second
print(first is second is runtime)
from mcp.servers.stub import echo
print(await echo(text='imported'))
",
    );
    assert_eq!(printed, "[]\nTrue\nimported\n");
    bridge.close();
}

fn variables_imports_and_functions_stay_until_reset(engine: Engine) {
    let bridge = bridge_on(engine);
    bridge.prints("import math\nx = 40\ndef plus(n):\n    return x + n\nclass Kept: pass");
    assert_eq!(
        bridge.prints("print(plus(2), math.floor(2.5), Kept.__name__)"),
        "42 2 Kept\n"
    );
    bridge.prints("runtime.reset()");
    assert_eq!(
        bridge.prints("print('x' in globals(), 'plus' in globals(), 'runtime' in globals())"),
        "False False True\n"
    );
    bridge.close();
}

fn top_level_await_and_the_ways_people_write_asyncio_work(engine: Engine) {
    let bridge = bridge_on(engine);
    assert_eq!(
        bridge.prints("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')"),
        "awaited\n"
    );
    let main = "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('ran')\n\
                if __name__ == '__main__':\n    asyncio.run(main())";
    assert_eq!(bridge.prints(main), "ran\n");
    let reply = bridge.run("async def value():\n    return 'of a coroutine'\nvalue()");
    assert_eq!(reply.str("result"), "'of a coroutine'", "{}", reply.result);
    bridge.close();
}

fn servers_are_told_of_in_all_the_ways(engine: Engine) {
    let bridge = with_stub(engine);
    let told = bridge.json(
        "
import json
first = runtime.discovered_servers()
detailed = runtime.discovered_servers(detailed=True)
print(json.dumps({
    'names': list(first), 'is_tuple': isinstance(first, tuple),
    'detailed': sorted(detailed[0].keys()), 'detailed_is_tuple': isinstance(detailed, tuple),
    'async': list(await runtime.list_servers()), 'sync': list(runtime.list_servers_sync()),
    'one': sorted(runtime.describe_server('stub').keys()), 'alias': runtime.describe_server('stub')['alias'],
    'loaded': [item['name'] for item in runtime.list_loaded_server_metadata()],
}))",
    );
    assert_eq!(told["names"], json!(["stub"]));
    assert_eq!(
        (&told["is_tuple"], &told["detailed_is_tuple"]),
        (&json!(true), &json!(true))
    );
    for key in ["name", "description", "state", "tools"] {
        assert!(
            told["detailed"].as_array().unwrap().contains(&json!(key)),
            "{key}: {told}"
        );
    }
    assert_eq!(
        (&told["async"], &told["sync"]),
        (&json!(["stub"]), &json!(["stub"]))
    );
    for key in ["name", "alias", "description", "cwd", "tools"] {
        assert!(
            told["one"].as_array().unwrap().contains(&json!(key)),
            "{key}: {told}"
        );
    }
    assert_eq!(told["alias"], "stub");
    assert_eq!(told["loaded"], json!(["stub"]));
    bridge.close();
}

fn docs_are_a_list_in_three_details_and_search_finds_before_anything_is_called(engine: Engine) {
    let bridge = with_stub(engine);
    let told = bridge.json(
        "
import json
found = await runtime.search_tool_docs('sum of two integers', limit=3)
typo = runtime.search_tool_docs_sync('ehco')
tools = await runtime.list_tools('stub')
print(json.dumps({
    'found': [item['name'] for item in found], 'typo': [item['name'] for item in typo],
    'same': [t['name'] for t in tools] == [t['name'] for t in runtime.list_tools_sync('stub')],
    'count': len(tools), 'keys': sorted(tools[0].keys()),
    'name': await runtime.query_tool_docs('stub', 'add', 'name'),
    'summary': await runtime.query_tool_docs('stub', tool='add'),
    'full': runtime.query_tool_docs_sync('stub', 'add', detail='full'),
    'all': len(await runtime.query_tool_docs('stub')),
}))",
    );
    assert_eq!(told["found"][0], "add", "{told}");
    assert!(told["found"].as_array().unwrap().len() <= 3);
    assert_eq!(told["typo"][0], "echo", "{told}");
    assert_eq!(told["same"], true);
    assert_eq!((&told["count"], &told["all"]), (&json!(20), &json!(20)));
    for key in ["name", "alias", "description", "signature"] {
        assert!(
            told["keys"].as_array().unwrap().contains(&json!(key)),
            "{key}: {told}"
        );
    }
    for detail in ["name", "summary", "full"] {
        assert_eq!(
            told[detail].as_array().map(Vec::len),
            Some(1),
            "{detail}: {told}"
        );
    }
    let size = |detail: &str| told[detail].to_string().len();
    assert!(
        size("name") < size("summary") && size("summary") < size("full"),
        "{told}"
    );
    assert!(told["full"].to_string().contains("\"integer\""), "{told}");
    bridge.close();
}

fn search_covers_servers_that_were_never_started(engine: Engine) {
    let home = TempHome::new();
    let starts = home.join("starts");
    let tools = home.join("tools.json");
    let other = json!([{ "name": "weigh_zebra", "description": "Weigh a zebra", "inputSchema": { "type": "object" } }]);
    std::fs::write(&tools, other.to_string()).unwrap();
    let stub = home.stub(&["--starts", &starts.to_string_lossy()]);
    let zoo = home.stub(&["--tools-file", &tools.to_string_lossy()]);
    let bridge = on(engine)
        .server("stub", stub)
        .server("zoo", zoo)
        .start(home);
    let found = bridge.prints("print([(d['server'], d['name']) for d in await runtime.search_tool_docs('zebra weight')][0])");
    assert_eq!(found, "('zoo', 'weigh_zebra')\n");
    bridge.close();
}

fn call_tool_gives_the_value_and_call_tool_raw_the_unchanged_result(engine: Engine) {
    let bridge = with_stub(engine);
    let told = bridge.json(
        "
import json
print(json.dumps({
    'value': await runtime.call_tool('stub', 'structured', {'n': 5}),
    'raw': await runtime.call_tool_raw('stub', 'structured', {'n': 5}),
    'none': await runtime.call_tool('stub', 'json_text'),
}))",
    );
    assert_eq!(told["value"], json!({ "n": 5, "nested": { "title": "t" } }));
    assert_eq!(
        told["raw"],
        json!({
            "content": [{ "type": "text", "text": "as text" }],
            "structuredContent": { "n": 5, "nested": { "title": "t" } },
        })
    );
    assert_eq!(
        told["none"],
        json!({ "title": "from text", "items": [1, 2] })
    );
    bridge.close();
}

fn values_are_what_the_contract_says(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
print(repr(await mcp_stub.echo(text='plain')))
print(repr(await mcp_stub.echo(text='17')))
print(repr(await mcp_stub.echo(text='[1, {}]')))
data = await mcp_stub.json_text()
print(data.title, data['title'], data.items if isinstance(data.items, list) else data['items'])
print(await mcp_stub.wrapped())
nested = await mcp_stub.structured(n=1)
print(nested.nested.title, isinstance(nested, dict))
blocks = await mcp_stub.blocks()
print([block['text'] for block in blocks])
",
    );
    assert_eq!(
        printed,
        "'plain'\n'17'\n[1, {}]\nfrom text from text [1, 2]\n[1, 2]\nt True\n['one', 'two']\n"
    );
    bridge.close();
}

fn proxies_take_keywords_or_one_mapping_and_any_name(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
print(await mcp_stub.echo(text='keyword'))
print(await mcp_stub.echo({'text': 'mapping'}))
print(await mcp_servers['stub'].echo(text='by name'))
print(await mcp_stub.get_Item_v2(id=1))
print(await runtime.call_tool('stub', 'get-Item.v2', {'id': 1}))
print(await mcp_stub.class_())
print(await runtime.tool_function('stub', 'get-Item.v2')(id=1))
print(runtime.python_name('stub', 'class'))
",
    );
    assert_eq!(
        printed,
        "keyword\nmapping\nby name\ncalled get-Item.v2\ncalled get-Item.v2\ncalled class\ncalled get-Item.v2\n\
         mcp_stub.class_\n"
    );
    bridge.close();
}

fn aliases_of_servers_are_identifiers_that_do_not_clash(engine: Engine) {
    let home = TempHome::new();
    let entry = home.stub(&[]);
    let bridge = on(engine)
        .server("my-server.v2", entry.clone())
        .server("my_server_v2", home.stub(&["--tools", "1"]))
        .start(home);
    let printed = bridge.prints(
        "
print(sorted(name for name in globals() if name.startswith('mcp_my')))
for server in ('my-server.v2', 'my_server_v2'):
    print(await runtime.call_tool(server, 'echo', {'text': server}), len(await runtime.list_tools(server)))
",
    );
    assert_eq!(
        printed,
        "['mcp_my_server_v2', 'mcp_my_server_v2_2']\nmy-server.v2 20\nmy_server_v2 21\n"
    );
    bridge.close();
}

fn arguments_are_checked_before_anything_is_sent(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
import json
async def attempt(call):
    try:
        return await call
    except TypeError as error:
        return 'TypeError: ' + str(error)
before = (await mcp_stub.counts())['calls']
print(await attempt(mcp_stub.add(a=1)))
print(await attempt(mcp_stub.add(a=1, b='two')))
print(await attempt(mcp_stub.open_schema(repoName='x')))
print((await mcp_stub.counts())['calls'] - before)
print(await attempt(mcp_stub.open_schema(repo_name='x', whatever=1)))
",
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert!(
        lines[0].starts_with("TypeError: ") && lines[0].contains("`b`") || lines[0].contains("'b'"),
        "{printed}"
    );
    assert!(
        lines[1].starts_with("TypeError: ") && lines[1].contains("int"),
        "{printed}"
    );
    assert!(
        lines[2].starts_with("TypeError: ") && lines[2].contains("repo_name"),
        "{printed}"
    );
    assert_eq!(
        lines[3], "1",
        "nothing but the second count may have been sent: {printed}"
    );
    assert!(
        lines[4].contains("'whatever': 1") || lines[4].contains("\"whatever\": 1"),
        "{printed}"
    );
    bridge.close();
}

fn an_integer_that_would_be_rounded_on_its_way_is_refused(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
print(await mcp_stub.add(a=2**63 - 2, b=1))
before = (await mcp_stub.counts())['calls']
for wrong in ([2**64], {'deep': -2**63 - 1}, 10**500):
    try:
        print(await mcp_stub.open_schema(repo_name='x', whatever=wrong))
    except ValueError as error:
        print(str(error)[:90], len(str(error)) < 300)
print((await mcp_stub.counts())['calls'] - before)
",
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "9223372036854775807", "{printed}");
    for (line, integer) in lines[1..4].iter().zip([
        "18446744073709551616",
        "-9223372036854775809",
        "1000000000000000000000000000000000000000…",
    ]) {
        assert!(
            line.starts_with(&format!("the arguments hold the integer {integer}"))
                && line.ends_with("True"),
            "{printed}"
        );
    }
    assert_eq!(
        lines[4], "1",
        "only the second count may have been sent: {printed}"
    );
    bridge.close();
}

fn a_schema_of_any_shape_is_accepted_and_an_unreadable_one_checks_nothing(engine: Engine) {
    let home = TempHome::new();
    let tools = json!([
        { "name": "referring", "description": "d", "inputSchema": {
            "type": "object", "$defs": { "Id": { "anyOf": [{ "type": "integer" }, { "type": "null" }] } },
            "properties": { "id": { "$ref": "#/$defs/Id" } }, "required": ["id"] } },
        { "name": "closed", "description": "d", "inputSchema": {
            "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": false } },
        { "name": "bare", "description": "d", "inputSchema": { "type": "object" } },
        { "name": "broken", "description": "d", "inputSchema": {
            "type": "object", "properties": { "a": { "$ref": "#/nowhere" } }, "required": "all" } },
    ]);
    std::fs::write(home.join("tools.json"), tools.to_string()).unwrap();
    let entry = home.stub(&["--tools-file", &home.join("tools.json").to_string_lossy()]);
    let bridge = on(engine).server("shapes", entry).start(home);
    let printed = bridge.prints(
        "
for make in (lambda: mcp_shapes.referring(id=None), lambda: mcp_shapes.referring(id='x'), lambda: mcp_shapes.closed(b=1),
             lambda: mcp_shapes.bare(anything=[1]), lambda: mcp_shapes.broken(a=5)):
    try:
        print(await make())
    except TypeError as error:
        print('TypeError')
",
    );
    assert_eq!(
        printed,
        "called referring\nTypeError\nTypeError\ncalled bare\ncalled broken\n"
    );
    bridge.close();
}

fn a_coroutine_that_was_never_awaited_is_reported_with_its_line(engine: Engine) {
    let bridge = with_stub(engine);
    let reply = bridge.run("print('one')\nmcp_stub.echo(text='forgotten')\nprint('two')");
    assert!(reply.stdout().starts_with("one\ntwo\n"), "{}", reply.result);
    let text = reply.text();
    assert!(
        text.contains("never awaited") && text.contains("line 2") && text.contains("echo"),
        "{text}"
    );
    let last = bridge.run("mcp_stub.echo(text='awaited')");
    assert_eq!(last.str("result"), "'awaited'", "{}", last.result);
    bridge.close();
}

fn a_failed_call_raises_an_error_with_all_its_facts(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
import json
for make in (lambda: mcp_stub.fail(), lambda: mcp_stub.rpc_error(), lambda: mcp_stub.ehco(text='x')):
    try:
        await make()
    except runtime.MCPError as error:
        print(isinstance(error, RuntimeError), error.server, error.tool, error.code, json.dumps(error.data), '|', error)
",
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert!(
        lines[0].starts_with("True stub fail ") && lines[0].contains("deliberate failure"),
        "{printed}"
    );
    assert!(
        lines[1].starts_with("True stub rpc_error -32001 {\"why\": \"asked\"} |"),
        "{printed}"
    );
    assert!(lines[1].contains("deliberate rpc error"), "{printed}");
    assert!(
        lines[2].contains("tool_not_found") && lines[2].contains("echo"),
        "{printed}"
    );
    let uncaught = bridge.run("value = await mcp_stub.fail()\nprint('not reached')");
    assert_eq!(
        (uncaught.status(), uncaught.is_error()),
        ("error", true),
        "{}",
        uncaught.result
    );
    assert!(
        uncaught.text().contains("await mcp_stub.fail()"),
        "{}",
        uncaught.text()
    );
    bridge.close();
}

fn one_failing_call_never_ends_the_others(engine: Engine) {
    let bridge = with_stub(engine);
    let printed = bridge.prints(
        "
results = await runtime.gather(mcp_stub.echo(text='a'), mcp_stub.fail(), mcp_stub.sleep_ms(ms=50))
print(results[0], type(results[1]).__name__, results[2])
import asyncio
results = await asyncio.gather(mcp_stub.echo(text='b'), mcp_stub.fail(), return_exceptions=True)
print(results[0], type(results[1]).__name__)
",
    );
    assert_eq!(printed, "a MCPError slept\nb MCPError\n");
    bridge.close();
}

fn calls_made_together_run_together_up_to_the_bound(engine: Engine) {
    let bridge = with_stub_and(
        engine,
        &[],
        json!({ "version": 1, "limits": { "calls_at_once_max": 8 } }),
    );
    let printed = bridge.prints(
        "
import asyncio
await asyncio.gather(*[mcp_stub.sleep_ms(ms=100) for _ in range(24)])
print((await mcp_stub.counts())['peak'])
",
    );
    assert_eq!(printed, "8\n");
    bridge.close();
}

fn display_shows_pictures_and_prints_the_rest(engine: Engine) {
    let bridge = bridge_on(engine);
    let reply = bridge.run(
        "
import base64
png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')
display(png)
display('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')
display({'a': 1})
",
    );
    assert_eq!(reply.status(), "success", "{}", reply.result);
    let kinds: Vec<_> = reply
        .images()
        .iter()
        .map(|image| image["mimeType"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["image/png", "image/svg+xml"]);
    assert!(reply.stdout().contains("{'a': 1}"), "{}", reply.result);
    bridge.close();
}

fn saved_tools_outlive_the_bridge_and_a_same_named_one_is_replaced(engine: Engine) {
    let mut bridge = bridge_on(engine);
    bridge.prints("def double(n):\n    'Twice the number.'\n    return n * 2\nsave_tool(double)");
    bridge.prints("def double(n):\n    return n + n + 0.5\nsave_tool(double)");
    bridge.restart();
    assert_eq!(
        bridge.prints("print(double(4), [tool['name'] for tool in list_saved_tools()])"),
        "8.5 ['double']\n"
    );
    assert_eq!(
        bridge.prints("print(delete_saved_tool('double'), delete_saved_tool('double'))"),
        "True False\n"
    );
    bridge.restart();
    assert_eq!(bridge.prints("print('double' in globals())"), "False\n");
    bridge.close();
}

fn the_sandbox_tells_of_itself(engine: Engine) {
    let kind = if engine.is_builtin() {
        "wasi"
    } else {
        "container"
    };
    let bridge = on(engine)
        .variable("MCP_BRIDGE_MEMORY", "300m")
        .start(TempHome::new());
    let told = bridge.json("import json\nprint(json.dumps(runtime.sandbox()))");
    let text = told.to_string();
    assert!(text.contains(kind), "{text}");
    assert!(text.contains(&(300_u64 << 20).to_string()), "{text}");
    bridge.close();
}
