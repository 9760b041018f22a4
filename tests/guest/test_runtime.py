"""The Python API: proxies, values, errors, discovery, memory, saved tools, images."""

import base64
import json
import unittest

from harness import CallFailed, GuestCase, text

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def tool_call(params):
    """A server with one tool per thing to show."""
    tool, arguments = params["tool"], params["arguments"]
    results = {
        "plain": text("hello"),
        "number": text("007"),
        "object": text('{"a": [1, {"b": null}], "items": 3}'),
        "array": text(" [1, 2]"),
        "broken": text("{not json"),
        "two": {
            "result": {
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
            }
        },
        "none": {"result": {"content": []}},
        "structured": {"result": {"content": [], "structuredContent": {"n": 5}}, "unwrap": False},
        "wrapped": {
            "result": {"content": [], "structuredContent": {"result": [1]}},
            "unwrap": True,
        },
        "not_wrapped": {
            "result": {"content": [], "structuredContent": {"result": [1]}},
            "unwrap": False,
        },
        "image": {
            "result": {
                "content": [
                    {
                        "type": "image",
                        "data": base64.b64encode(PNG).decode(),
                        "mimeType": "image/png",
                    }
                ]
            }
        },
        "soft": {
            "result": {
                "isError": True,
                "content": [
                    {"type": "text", "text": "date must be"},
                    {"type": "text", "text": "in the future"},
                ],
            }
        },
        "silent_error": {"result": {"isError": True, "content": []}},
        "big": text("x" * 10_000_000),
    }
    if tool in results:
        return results[tool]
    if tool == "echo":
        return text(json.dumps({"server": params["server"], "arguments": arguments}))
    if tool == "get_prompt" and arguments == {"name": "mine"}:
        return text("the tool's")
    if tool == "type_error":
        raise CallFailed("type", "echo() is missing `text`")
    raise CallFailed(
        "mcp",
        "no tool %r; did you mean 'echo'?" % tool,
        server=params["server"],
        tool=tool,
        code="tool_not_found",
        data={"near": ["echo"]},
    )


SERVERS = [
    {
        "name": "my-server",
        "alias": "my_server",
        "description": "d",
        "state": "ready",
        "tools": 2,
        "callable": True,
    },
    {
        "name": "other",
        "alias": "other",
        "description": "",
        "state": "off",
        "tools": None,
        "callable": False,
    },
]
DOC = {
    "name": "get-it",
    "alias": "get_it",
    "python_name": "mcp_my_server.get_it",
    "signature": "get_it(id: int, from_: str = None)",
    "description": "Gets it.",
    "schema": {"properties": {"from": {}, "id": {"type": "integer"}}, "required": ["id"]},
}


CONTENTS = {
    "a:text": [{"uri": "a:text", "text": "words"}],
    "a:blob": [{"uri": "a:blob", "blob": "AAE="}],
    "a:two": [{"uri": "a:1", "text": "one"}, {"uri": "a:2", "text": "two"}],
}


class Api(GuestCase):
    servers = ["my-server"]
    handlers = {
        "tool.call": tool_call,
        "tool.resolve": lambda p: {
            "server": "my-server",
            "server_alias": "my_server",
            "tool": p["tool"],
            "tool_alias": p["tool"].replace("-", "_"),
        },
        "servers": lambda p: (
            SERVERS
            if p["detailed"]
            else [{"name": s["name"], "callable": s["callable"]} for s in SERVERS]
        ),
        "server": lambda p: {"name": p["name"], "alias": "my_server", "cwd": None, "tools": []},
        "tools": lambda p: [DOC],
        "resources/list": lambda p: [{"uri": "a:1", "of": p["server"]}],
        "resources/templates/list": lambda p: [{"uriTemplate": "a:{n}"}],
        "resources/read": lambda p: {"contents": CONTENTS[p["uri"]]},
        "prompts/list": lambda p: [{"name": "hello"}],
        "prompts/get": lambda p: {"messages": [], "asked": p},
        "docs": lambda p: [dict(DOC, asked=p)],
        "search": lambda p: [dict(DOC, asked=p)],
        "capabilities": lambda p: "# The manual",
        "sandbox": lambda p: {"backend": "container", "limits": {"memory": 1}},
        "output": lambda p: "%(run_id)s %(start)s %(end)s" % p,
        "result": lambda p: {"status": "running", "runId": p["run_id"]},
    }

    def value(self, expression):
        run = self.run_ok(expression)
        return eval(run.result, {"null": None}) if run.result else None

    def error(self, code):
        run = self.host.run(code)
        self.assertEqual(run.status, "error", code)
        self.assertNotIn("<guest", run.error["traceback"])
        return run.error


class Proxies(Api):
    def test_keyword_arguments_reach_the_tool(self):
        self.assertEqual(
            self.value("await mcp_my_server.echo(repo='r', from_=1)"),
            {"server": "my-server", "arguments": {"repo": "r", "from_": 1}},
        )

    def test_any_parameter_name_can_be_given(self):
        names = [
            "from",
            "class",
            "cik-A",
            "with space",
            "$top",
            "ünï",
            "1st",
            "self",
            "server",
            "tool",
            "arguments",
        ]
        expected = {name: name for name in names}
        self.assertEqual(
            self.value("(await mcp_my_server.echo(**{n: n for n in %r})).arguments" % names),
            expected,
        )
        self.assertEqual(
            self.value("(await mcp_my_server.echo({n: n for n in %r})).arguments" % names), expected
        )
        self.assertEqual(
            self.value("(await mcp_my_server.echo({'a': 1}, b=2)).arguments"), {"a": 1, "b": 2}
        )

    def test_positional_arguments_are_refused_with_the_names(self):
        error = self.error("await mcp_my_server.get_it('x')")
        self.assertEqual(error["type"], "TypeError")
        self.assertEqual(
            error["message"], "mcp_my_server.get_it() takes keyword arguments: id=, from="
        )

    def test_servers_are_found_by_name_and_alias(self):
        self.assertEqual(
            self.value(
                "mcp_servers['my-server'] is mcp_my_server, mcp_servers['my_server'] is mcp_my_server, "
                "len(mcp_servers), list(mcp_servers), 'nope' in mcp_servers, dict(mcp_servers) != {}"
            ),
            (True, True, 1, ["my-server"], False, True),
        )
        self.assertIn(
            "no server 'x' in this run; there is 'my-server'",
            self.error("mcp_servers['x']")["message"],
        )

    def test_original_names_reach_a_tool(self):
        self.assertIn("get-it", self.error("await mcp_my_server['get-it'](id=1)")["message"])
        self.run_ok("await runtime.call_tool('my-server', 'echo', {'a': 1})")
        self.assertEqual(self.host.calls[-1][1]["params"]["arguments"], {"a": 1})

    def test_imports(self):
        self.run_ok(
            "from mcp import runtime as a\nimport mcp.runtime as b\nimport mcp\nfrom mcp.runtime import save_memory\n"
            "assert a is b is mcp.runtime is runtime\n"
            "from mcp.servers.my_server import echo\nfrom mcp.servers import my_server\n"
            "import mcp.servers.my_server as module\n"
            "assert (await echo(x=1)).arguments == (await module.echo(x=1)).arguments == {'x': 1}\n"
            "assert (await my_server.echo(x=1)).arguments == {'x': 1}"
        )
        error = self.error("from mcp.servers.nope import x")
        self.assertEqual(error["type"], "ModuleNotFoundError")
        self.assertIn("there is 'my-server'", error["message"])

    def test_a_proxy_tells_what_it_is(self):
        self.assertEqual(
            self.run_ok("mcp_my_server").result,
            "<MCP server 'my-server' as mcp_my_server: about my-server>",
        )
        self.assertEqual(self.run_ok("mcp_my_server.echo").result, "<MCP tool mcp_my_server.echo>")
        self.assertEqual(self.value("dir(mcp_my_server)"), ["get_it"])
        self.assertEqual(
            self.value("mcp_my_server.get_it.__doc__"),
            "get_it(id: int, from_: str = None)\n\nGets it.",
        )
        self.assertEqual(
            self.value("import inspect\nstr(inspect.signature(mcp_my_server.get_it))"), "(*, id)"
        )
        self.assertEqual(
            self.value("hasattr(mcp_my_server, '__len__'), hasattr(mcp_my_server, '_repr_html_')"),
            (False, False),
        )
        self.assertIn("Gets it.", self.run_ok("help(mcp_my_server.get_it)").stdout)

    def test_list_tools_of_a_proxy_lists_its_tools(self):
        self.assertEqual(self.value("(await mcp_my_server.list_tools())[0].name"), "get-it")

    def test_resources_and_prompts_are_reached_by_proxies_and_by_name(self):
        for call in ("mcp_my_server.resources()", "runtime.list_resources('my-server')"):
            self.assertEqual(self.value("(await %s)[0].of" % call), "my-server")
        for call in (
            "mcp_my_server.resource_templates()",
            "runtime.list_resource_templates('my-server')",
        ):
            self.assertEqual(self.value("(await %s)[0].uriTemplate" % call), "a:{n}")
        for call in ("mcp_my_server.read_resource(%r)", "runtime.read_resource('my-server', %r)"):
            self.assertEqual(self.value("await " + call % "a:text"), "words")
            self.assertEqual(self.value("await " + call % "a:blob"), b"\0\1")
            self.assertEqual(self.value("(await %s)[1].text" % (call % "a:two")), "two")
        self.assertEqual(self.value("(await mcp_my_server.prompts())[0].name"), "hello")
        self.assertEqual(self.value("(await runtime.list_prompts('my-server'))[0].name"), "hello")
        for call in (
            "mcp_my_server.get_prompt('hello', {'a': '1'})",
            "mcp_my_server.get_prompt(name='hello', arguments={'a': '1'})",
            "runtime.get_prompt('my-server', 'hello', {'a': '1'})",
        ):
            asked = self.value("dict((await %s).asked)" % call)
            self.assertEqual(
                asked, {"server": "my-server", "name": "hello", "arguments": {"a": "1"}}
            )

    def test_a_tool_goes_before_what_has_its_name(self):
        error = self.error("await mcp_my_server.read_resource(path='x')")
        self.assertIn("no tool 'read_resource'", error["message"])
        self.assertEqual(self.value("await mcp_my_server.get_prompt('mine')"), "the tool's")

    def test_what_json_cannot_hold_is_named(self):
        error = self.error("await mcp_my_server.echo(a={'b': [1, {2}]})")
        self.assertEqual(
            (error["type"], error["message"]),
            ("TypeError", "arguments['a']['b'][1] is a set, which JSON cannot hold"),
        )
        self.assertIn(
            "arguments['a'] is nan",
            self.error("await mcp_my_server.echo(a=float('nan'))")["message"],
        )
        self.assertIn(
            "lone surrogate", self.error("await mcp_my_server.echo(a='\\ud800')")["message"]
        )
        self.assertIn(
            "67108864", self.error("await mcp_my_server.echo(a='x' * (64 << 20))")["message"]
        )

    def test_many_calls_together(self):
        self.assertEqual(
            self.value(
                "import asyncio\nr = await asyncio.gather(*[mcp_my_server.echo(i=i) for i in range(500)])\n[x.arguments.i for x in r] == list(range(500))"
            ),
            True,
        )


class Values(Api):
    def test_each_form(self):
        for tool, expected in (
            ("plain", "hello"),
            ("number", "007"),
            ("object", {"a": [1, {"b": None}], "items": 3}),
            ("array", [1, 2]),
            ("broken", "{not json"),
            ("two", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
            ("none", None),
            ("structured", {"n": 5}),
            ("wrapped", [1]),
            ("not_wrapped", {"result": [1]}),
        ):
            self.assertEqual(self.value("await mcp_my_server.%s()" % tool), expected, tool)

    def test_a_large_result_arrives(self):
        self.assertEqual(self.value("len(await mcp_my_server.big())"), 10_000_000)

    def test_raw_is_the_unchanged_result(self):
        self.assertEqual(
            self.value("await runtime.call_tool_raw('my-server', 'soft')"),
            tool_call({"tool": "soft", "arguments": {}})["result"],
        )
        self.assertEqual(
            self.value("type(await runtime.call_tool_raw('my-server', 'soft')).__name__"), "dict"
        )

    def test_mappings_have_attributes_and_stay_dicts(self):
        self.run_ok(
            "import json, pprint, pickle, copy\nd = await mcp_my_server.object()\n"
            "assert d.a[1].b is None and d['items'] == 3 and callable(d.items)\n"
            "assert isinstance(d, dict) and d == {'a': [1, {'b': None}], 'items': 3}\n"
            "assert json.loads(json.dumps(d)) == d == json.loads(str(d)) == pickle.loads(pickle.dumps(d))\n"
            "assert copy.deepcopy(d).a[1].b is None and d.copy().a is d.a\n"
            "assert pprint.pformat(d) == pprint.pformat(dict(d)) and repr(d) == repr(dict(d))\n"
            "d.new = 1\nassert d['new'] == 1\ndel d.new\nassert 'new' not in d and 'a' in dir(d)\n"
            "assert not hasattr(d, 'nope') and getattr(d, 'nope', 5) == 5"
        )
        self.assertEqual(self.error("d.nope")["message"], "no 'nope' here; there is a, items")


class ToolErrors(Api):
    def test_a_tools_error_is_raised_at_the_call(self):
        error = self.error("x = 1\nawait mcp_my_server.soft()")
        self.assertEqual(
            (error["type"], error["message"]), ("MCPError", "date must be\nin the future")
        )
        self.assertRegex(
            error["traceback"],
            r'^Traceback \(most recent call last\):\n  File "<run \d+>", line 2, in <module>\n'
            r"    await mcp_my_server.soft\(\)\n(.*\^.*\n)?mcp.runtime.MCPError: date must be\nin the future\n$",
        )
        self.assertIn("'silent_error'", self.error("await mcp_my_server.silent_error()")["message"])

    def test_it_can_be_caught_and_says_all(self):
        self.assertEqual(
            self.value(
                "import pickle\ntry:\n    await mcp_my_server.nope(a=1)\nexcept runtime.MCPError as e:\n    caught = e\n"
                "same = pickle.loads(pickle.dumps(caught))\n"
                "[(type(e) is runtime.MCPError, isinstance(e, RuntimeError), str(e), e.server, e.tool, e.code, e.data) for e in (caught, same)]"
            ),
            [
                (
                    True,
                    True,
                    "no tool 'nope'; did you mean 'echo'?",
                    "my-server",
                    "nope",
                    "tool_not_found",
                    {"near": ["echo"]},
                )
            ]
            * 2,
        )

    def test_kinds_of_errors_become_pythons(self):
        self.assertEqual(self.error("await mcp_my_server.type_error()")["type"], "TypeError")
        for kind, expected in (
            ("value", "ValueError"),
            ("key", "KeyError"),
            ("runtime", "RuntimeError"),
            ("memory_full", "RuntimeError"),
            ("of the future", "RuntimeError"),
        ):

            def fail(params, kind=kind):
                raise CallFailed(kind, "the message")

            self.host.handlers["memory.info"] = fail
            error = self.error("get_memory_info('k')")
            self.assertEqual(error["type"], expected)
            self.assertIn("the message", error["message"])

    def test_gather_gives_failures_as_values(self):
        self.assertEqual(
            self.value(
                "r = await runtime.gather(mcp_my_server.plain(), mcp_my_server.soft(), mcp_my_server.plain())\n"
                "[r[0], type(r[1]).__name__, r[2]]"
            ),
            ["hello", "MCPError", "hello"],
        )
        self.assertEqual(self.value("await runtime.gather([mcp_my_server.plain()])"), ["hello"])


class Discovery(Api):
    def test_servers(self):
        self.assertEqual(self.value("runtime.discovered_servers()"), ("my-server", "other"))
        self.assertEqual(self.value("runtime.discovered_servers(detailed=True)[1].state"), "off")
        self.assertEqual(
            self.value("await runtime.list_servers(), runtime.list_servers_sync()"),
            (["my-server"], ["my-server"]),
        )
        self.assertEqual(self.value("runtime.describe_server('my-server').alias"), "my_server")
        self.assertEqual(
            self.value("[s.name for s in runtime.list_loaded_server_metadata()]"), ["my-server"]
        )

    def test_tools_and_docs(self):
        self.assertEqual(
            self.value(
                "(await runtime.list_tools('my-server')), runtime.list_tools_sync(mcp_my_server)"
            ),
            ([DOC], [DOC]),
        )
        asked = {"server": "my-server", "tool": None, "detail": "summary"}
        self.assertEqual(self.value("(await runtime.query_tool_docs('my-server'))[0].asked"), asked)
        asked = {"server": "my-server", "tool": "t", "detail": "full"}
        self.assertEqual(
            self.value("runtime.query_tool_docs_sync('my-server', 't', 'full')[0].asked"), asked
        )
        self.assertEqual(
            self.value(
                "runtime.query_tool_docs_sync('my-server', tool='t', detail='full')[0].asked"
            ),
            asked,
        )
        asked = {"query": "q", "limit": 5, "detail": "summary"}
        self.assertEqual(self.value("(await runtime.search_tool_docs('q'))[0].asked"), asked)
        self.assertEqual(
            self.value("runtime.search_tool_docs_sync('q', limit=2, detail='name')[0].asked.limit"),
            2,
        )

    def test_tool_function_and_python_name(self):
        self.assertEqual(
            self.value("runtime.python_name('my-server', 'get-it')"), "mcp_my_server.get_it"
        )
        self.assertEqual(self.value("await runtime.tool_function('my-server', 'plain')()"), "hello")
        self.assertEqual(
            self.run_ok("runtime.tool_function('my-server', 'get-it')").result,
            "<MCP tool mcp_my_server.get_it>",
        )

    def test_the_bridge_itself(self):
        self.assertEqual(self.value("runtime.capability_summary()"), "# The manual")
        self.assertEqual(self.value("runtime.sandbox().limits.memory"), 1)
        self.assertEqual(self.value("runtime.output('r1', 5, 9)"), "r1 5 9")
        self.assertEqual(self.value("runtime.result('r1').runId"), "r1")

    def test_a_call_names_its_run(self):
        run = self.run_ok("runtime.capability_summary()")
        self.assertEqual(self.host.calls[-1][1]["run"], run.id)

    def test_reset_clears_variables_and_tasks(self):
        self.run_ok(
            "import asyncio, math\nx = 1\ndef f(): pass\nt = asyncio.create_task(asyncio.sleep(60))\nmcp = 5"
        )
        self.run_ok("task = t\nruntime.reset()")
        self.assertEqual(
            self.value(
                "[n in globals() for n in ('x', 'math', 'f', 't', 'mcp', 'runtime', 'mcp_my_server')]"
            ),
            [False] * 4 + [True] * 3,
        )
        self.assertEqual(self.run_ok("mcp.__name__").result, "'mcp'")
        self.assertEqual(
            self.value("len([t for t in asyncio.all_tasks(asyncio.get_event_loop())])"), 0
        )


class Memory(GuestCase):
    """A host that keeps values the way the real one does: by version."""

    @classmethod
    def setUpClass(cls):
        store = cls.store = {}

        def save(p):
            version = store.get(p["key"], {}).get("version", 0) + 1
            old = store.get(p["key"], {}).get("metadata")
            store[p["key"]] = {
                "value": p["value"],
                "version": version,
                "metadata": p.get("metadata", old),
            }
            return info(p)

        def info(p):
            item = store.get(p["key"])
            return item and {
                "key": p["key"],
                "version": item["version"],
                "metadata": item["metadata"],
            }

        def update(p):
            if cls.rivals:
                cls.rivals -= 1
                save({"key": p["key"], "value": store.get(p["key"], {}).get("value", 0) + 100})
            if store.get(p["key"], {}).get("version") != p["version"]:
                return {"updated": False}
            save(p)
            return dict(info(p), updated=True)

        cls.rivals = 0
        cls.handlers = {
            "memory.save": save,
            "memory.load": lambda p: (
                dict(store[p["key"]], found=True) if p["key"] in store else {"found": False}
            ),
            "memory.update": update,
            "memory.delete": lambda p: store.pop(p["key"], None) is not None,
            "memory.list": lambda p: [info({"key": key}) for key in store],
            "memory.info": info,
        }
        super().setUpClass()

    def setUp(self):
        self.store.clear()

    def test_save_and_load(self):
        run = self.run_ok(
            "for v in [None, False, 0, '', [], {}, 2**70, 0.1, '★ 🎉', {'深': [None]}, [[1, 2]]]:\n"
            "    save_memory('k', v)\n    assert load_memory('k') == v and type(load_memory('k')) is type(v), v\n"
            "save_memory('t', (1, 2))\nassert load_memory('t') == [1, 2]\n"
            "assert load_memory('no') is None and load_memory('no', 5) == load_memory('no', default=5) == 5\n"
            "print(save_memory('k', 1, metadata={'tags': ['t']}).version)"
        )
        self.assertEqual(run.stdout, "12\n")
        self.assertEqual(self.store["k"]["metadata"], {"tags": ["t"]})

    def test_what_json_cannot_hold_is_refused_by_its_place(self):
        self.store["k"] = {"value": "old", "version": 1, "metadata": None}
        for value, kind, message in (
            ("{'a': [1, 2, {3}]}", "TypeError", "value['a'][2] is a set, which JSON cannot hold"),
            ("b'x'", "TypeError", "value is a bytes, which JSON cannot hold"),
            ("object()", "TypeError", "value is an object, which JSON cannot hold"),
            (
                "{'a': {1: 2}}",
                "TypeError",
                "value['a'] has the key 1, an int; JSON keys are strings",
            ),
            ("[float('inf')]", "ValueError", "value[0] is inf, which JSON cannot hold"),
            ("float('nan')", "ValueError", "value is nan, which JSON cannot hold"),
            ("['\\ud800']", "ValueError", "value[0] holds a lone surrogate, which is not text"),
        ):
            run = self.host.run("save_memory('k', %s)" % value)
            self.assertEqual(
                (run.status, run.error["type"], run.error["message"]), ("error", kind, message)
            )
        for make in ("v = []\nv.append(v)", "v = 1\nfor _ in range(300):\n    v = [v]"):
            run = self.host.run(make + "\nsave_memory('k', v)")
            self.assertEqual(run.error["type"], "ValueError")
        self.assertEqual(self.store["k"]["value"], "old")
        self.assertEqual(self.host.run("save_memory(5, 1)").error["type"], "TypeError")

    def test_update(self):
        self.run_ok(
            "assert update_memory('n', lambda v: (v or 0) + 1) == 1\nassert update_memory('n', lambda v: v + 1) == 2"
        )
        self.assertEqual(self.store["n"]["value"], 2)

    def test_update_tries_again_when_others_write(self):
        type(self).rivals = 30
        self.run_ok("save_memory('n', 0)\nupdate_memory('n', lambda v: v + 1)")
        self.assertEqual(self.store["n"]["value"], 3001)

    def test_an_update_that_fails_leaves_the_value(self):
        self.store["n"] = {"value": 1, "version": 1, "metadata": None}
        for function in ("lambda v: 1 / 0", "lambda v: {1}", "lambda v: mcp_missing"):
            self.assertEqual(self.host.run("update_memory('n', %s)" % function).status, "error")
        run = self.host.run("async def f(v):\n    return v\nupdate_memory('n', f)")
        self.assertEqual((run.error["type"], run.stderr), ("TypeError", ""))
        self.assertEqual(self.store["n"], {"value": 1, "version": 1, "metadata": None})

    def test_list_exists_and_delete(self):
        self.run_ok(
            "save_memory('a', 1)\nassert 'a' in list_memories() and 'b' not in list_memories()\n"
            "assert list_memories()[0]['key'] == 'a' and isinstance(list_memories(), list)\n"
            "assert memory_exists('a') and not memory_exists('b') and get_memory_info('b') is None\n"
            "assert get_memory_info('a').version == 1\nassert delete_memory('a') and not delete_memory('a')\n"
            "assert runtime.load_memory('a') is None"
        )


class SavedTools(GuestCase):
    servers = ["a"]

    def setUp(self):
        self.saved = []
        self.host.handlers["saved_tools.save"] = lambda p: (
            self.saved.append(p) or {"name": p["name"]}
        )
        self.host.handlers["saved_tools.list"] = lambda p: [{"name": "t"}]
        self.host.handlers["saved_tools.delete"] = lambda p: p["name"] == "t"
        self.host.saved_tools = None

    def test_source_and_description_are_saved(self):
        self.run_ok(
            "if True:\n    def double(a):\n        '''Doubles.\n\n        More.'''\n        return a * 2"
        )
        run = self.run_ok("print(save_tool(double))")
        self.assertEqual(
            self.saved,
            [
                {
                    "name": "double",
                    "description": "Doubles.",
                    "source": "def double(a):\n    '''Doubles.\n\n    More.'''\n    return a * 2\n",
                }
            ],
        )
        self.assertEqual(run.notes, [])

    def test_async_and_decorated_functions(self):
        self.run_ok(
            "async def fetch(x):\n    import json\n    return await mcp_a.get(q=json.dumps(x))\nsave_tool(fetch)"
        )
        self.assertEqual(self.saved[-1]["source"].split("\n")[0], "async def fetch(x):")
        run = self.run_ok(
            "import functools\n@functools.lru_cache(None)\ndef cached(x):\n    return x\nsave_tool(cached)"
        )
        self.assertEqual(self.saved[-1]["source"].split("\n")[0], "@functools.lru_cache(None)")
        self.assertIn("functools", run.notes[0])

    def test_names_that_will_be_missing_are_told(self):
        run = self.run_ok(
            "import math\nk = 3\ndef area(r):\n    return math.pi * r * k + len(str(runtime))\nsave_tool(area)['missing_names']"
        )
        self.assertEqual(run.result, "['k', 'math']")
        self.assertEqual(len(run.notes), 1)

    def test_what_is_no_function_is_refused(self):
        for thing in ("lambda: 1", "3", "print", "type('C', (), {})"):
            run = self.host.run("save_tool(%s)" % thing)
            self.assertEqual(run.error["type"], "TypeError", thing)
        self.assertEqual(self.saved, [])

    def test_saved_tools_are_there_in_each_run(self):
        self.host.saved_tools = [
            {"name": "good", "source": "def good():\n    return 1 / zero\n"},
            {"name": "bad", "source": "def bad(:\n    pass\n"},
        ]
        run = self.host.run("zero = 0\ngood()")
        self.assertEqual(run.error["type"], "ZeroDivisionError")
        self.assertIn(
            'File "<saved tool good>", line 2, in good\n    return 1 / zero', run.error["traceback"]
        )
        self.assertEqual(len(run.notes), 1)
        self.assertIn("the saved tool `bad` could not be defined: SyntaxError", run.notes[0])
        self.assertEqual(self.run_ok("good.__name__").notes, [])
        self.run_ok("def good():\n    return 'own'")
        self.assertEqual(self.run_ok("good()").result, "'own'")
        self.host.saved_tools = [{"name": "good", "source": "def good():\n    return 'new'\n"}]
        self.assertEqual(self.run_ok("good()").result, "'new'")
        self.host.saved_tools = []
        self.assertEqual(self.run_ok("'good' in globals()").result, "False")

    def test_list_and_delete(self):
        self.assertEqual(
            self.run_ok(
                "list_saved_tools(), delete_saved_tool('t'), delete_saved_tool('x')"
            ).result,
            "([{'name': 't'}], True, False)",
        )


def installed(params):
    """What came with Python counts as there; everything else is a wheel."""
    there = []
    for name in params["packages"]:
        if name == "refused":
            raise CallFailed("runtime", "the user did not allow it", code="packages_not_allowed")
        file = None if name in params["present"] else name + "-1.0-py3-none-any.whl"
        there.append({"name": name, "version": "1.0", "file": file})
    return {"installed": there, "files": [one["file"] for one in there if one["file"]]}


class Packages(GuestCase):
    handlers = {"packages.install": installed}

    def test_awaited_or_not_it_gives_what_is_there(self):
        self.host.handlers["packages.install"] = lambda params: {
            "installed": [{"name": n, "version": "2", "file": None} for n in params["packages"]],
            "files": [],
        }
        self.addCleanup(self.host.handlers.update, {"packages.install": installed})
        run = self.run_ok(
            "one = runtime.install('a', 'b>1')\ntwo = await runtime.install(['a', 'b>1'])\n"
            "three = await runtime.gather(runtime.install('a'))\n"
            "print(one == two, one[1].name, one[0]['version'], three)"
        )
        self.assertEqual(run.stdout, "True b>1 2 [[{'name': 'a', 'version': '2'}]]\n")

    def test_what_came_with_the_image_is_told(self):
        self.run_ok("try:\n    runtime.install('some')\nexcept RuntimeError:\n    pass")
        present = self.host.calls[-1][1]["params"]["present"]
        self.assertTrue(all(isinstance(version, str) for version in present.values()), present)

    def test_files_that_this_machine_does_not_have_are_named(self):
        run = self.host.run("runtime.install('a')")
        self.assertIn(
            "a-1.0-py3-none-any.whl cannot be seen in this container", run.error["message"]
        )

    def test_a_refusal_is_raised_with_its_code(self):
        run = self.run_ok(
            "try:\n    runtime.install('refused')\nexcept RuntimeError as error:\n    print(error, error.code)"
        )
        self.assertEqual(run.stdout, "the user did not allow it packages_not_allowed\n")

    def test_what_is_no_name_is_not_sent(self):
        for code in ("runtime.install()", "runtime.install(1)", "runtime.install(['a', None])"):
            self.assertEqual(self.host.run(code).error["type"], "TypeError", code)

    def test_files_in_force_come_behind_pythons_own_library_and_go_again(self):
        code = "import sys\nprint([p for p in sys.path if p.startswith('/packages')], sys.path.index('/packages/a.whl') > 0 if '/packages/a.whl' in sys.path else '')"
        host = self.own_host()
        host.packages = ["a.whl", "b.whl"]
        self.assertEqual(
            host.run(code).stdout, "['/packages/a.whl', '/packages/b.whl'] True\n"
        )
        self.assertEqual(host.run("sys.path.insert(0, 5); import json; json.dumps(1)").error, None)
        host.packages = ["b.whl"]
        self.assertEqual(host.run("print([p for p in sys.path if str(p).startswith('/packages')])").stdout, "['/packages/b.whl']\n")
        host.packages = None
        self.assertEqual(host.run("print([p for p in sys.path if str(p).startswith('/packages')])").stdout, "[]\n")


class Display(GuestCase):
    def images(self, code, **options):
        run = self.run_ok("png = %r\n%s" % (PNG, code), **options)
        return run.images

    def test_image_data_of_each_kind(self):
        self.assertEqual(self.images("display(png)"), [("image/png", PNG)])
        self.assertEqual(self.images("display(bytearray(png))"), [("image/png", PNG)])
        for data, mime_type in (
            (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
            (b"GIF89a-rest", "image/gif"),
            (b"RIFF1234WEBPrest", "image/webp"),
            (b"<?xml version='1.0'?>\n<svg/>", "image/svg+xml"),
        ):
            self.assertEqual(self.images("display(%r)" % data), [(mime_type, data)])
        self.assertEqual(
            self.images("display('\\n<svg></svg>')"), [("image/svg+xml", b"\n<svg></svg>")]
        )

    def test_blocks_of_a_tools_answer(self):
        code = "import base64\nb = {'type': 'image', 'data': base64.b64encode(png).decode(), 'mimeType': 'image/png'}\n"
        self.assertEqual(self.images(code + "display(b)"), [("image/png", PNG)])
        run = self.run_ok(
            "display([b, {'type': 'text', 'text': 'words'}])\ndisplay({'content': [b, b]})"
        )
        self.assertEqual((len(run.images), run.stdout), (3, "words\n"))

    def test_objects_that_know_how(self):
        code = "class P:\n    def _repr_png_(self):\n        return png\ndisplay(P(), P())"
        self.assertEqual(self.images(code), [("image/png", PNG)] * 2)
        code = "class Figure:\n    def savefig(self, file, **options):\n        file.write(png)\ndisplay(Figure())"
        self.assertEqual(self.images(code), [("image/png", PNG)])
        run = self.run_ok(
            "class T:\n    _repr_html_ = lambda s: '<b>'\n    __repr__ = lambda s: 'table'\ndisplay(T(), 'text', {'a': 1}, None)"
        )
        self.assertEqual((run.images, run.stdout), ([], "table\ntext\n{'a': 1}\nNone\n"))

    def test_more_than_the_bound_is_refused(self):
        run = self.host.run("display(%r)\ndisplay(%r)" % (PNG, PNG), images_bytes_max=len(PNG) + 1)
        self.assertEqual(
            (run.status, run.error["type"], len(run.images)), ("error", "ValueError", 1)
        )
        self.assertIn("can still show 1 bytes", run.error["message"])


if __name__ == "__main__":
    unittest.main()
