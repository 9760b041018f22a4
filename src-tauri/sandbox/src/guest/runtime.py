"""What user code sees of the bridge: the modules `mcp`, `mcp.runtime` and `mcp.servers`, a proxy
per server, and the bare names of every run.

All of it is thin: a name here becomes a call to the host, which decides what it means and whether
this run may do it. Nothing here knows a schema, a secret or a file of the host.
"""

import asyncio
import base64
import collections.abc
import importlib.machinery
import inspect
import itertools
import keyword
import random
import sys
import types
from operator import is_
from time import sleep

from _runbridge import packages
from _runbridge.calls import MCPError, check_json
from _runbridge.display import images_of
from _runbridge.door import DISPLAY
from _runbridge.interrupts import gate
from _runbridge.saving import missing_names, source_of
from _runbridge.values import Record, value_of

# Tries of one `update_memory` against other writers before it gives up.
UPDATES_MAX = 500
UPDATE_PAUSE_S_MAX = 0.05


class Runtime:
    """Keeps the bare names in place and knows what the current run may call."""

    def __init__(self, runner):
        self._runner = runner
        self._output = runner.output
        self._servers = {}
        # As the host lists them.
        self._listed = None
        self._saved = {}
        self._saved_wanted = None
        self._bound = {}
        # What `_bind` puts in place; made when servers come or go.
        self._wanted = None
        # Coroutines of this module that have not started: id -> (run, coroutine, label, line).
        self._made = {}
        self._made_ids = itertools.count()
        self._images_bytes_left = 0
        self.api = Api(self, runner)
        self.servers = Servers(self._servers)
        self._modules = make_modules(self)

    def begin(self, run, request):
        """Make ready for the code of `run`."""
        context = request.get("context") or {}
        self._images_bytes_left = int(request.get("images_bytes_max") or 0)
        self._made.clear()
        self._list_servers(context.get("servers") or [])
        self._saved_wanted = context.get("saved_tools")
        installed = context.get("packages")
        packages.allowed = installed is not None
        packages.use(installed or ())
        sys.modules.update(self._modules)
        if not any(finder is self._modules["mcp.servers"].finder for finder in sys.meta_path):
            sys.meta_path.append(self._modules["mcp.servers"].finder)
        self._bind()

    def _list_servers(self, listed):
        """Know these servers and no others; a proxy that user code holds stays the one it was."""
        if listed == self._listed:
            return
        known = {
            (proxy._Server__name, proxy._Server__alias): proxy for proxy in self._servers.values()
        }
        self._servers.clear()
        for server in listed:
            name, alias = server["name"], server["alias"]
            proxy = known.get((name, alias)) or Server(self, name, alias)
            proxy._Server__description = server.get("description") or ""
            self._servers[name] = proxy
        self._listed = listed
        self._wanted = None

    def end(self, run, done):
        """Note the coroutines that `run` made and never awaited; `done` says that its code came to
        its end, so that it had the chance."""
        if done and self._made:
            owned = set()
            for task in list(self._runner.tasks):
                owned.add(id(task.get_coro()))
            for owner, coroutine, label, line in list(self._made.values()):
                if owner == run and id(coroutine) not in owned:
                    place = "" if line is None else " made on line %d" % line
                    self._runner.note(
                        "`%s(...)`%s was never awaited; write `await`" % (label, place)
                    )
        self._made.clear()

    def coroutine(self, label, function, *arguments):
        """A coroutine of `function` that is reported under `label` if nobody awaits it."""
        key = next(self._made_ids)
        made = self._started(key, function, arguments)
        made.__name__ = made.__qualname__ = label
        self._made[key] = (self._output.current_run(), made, label, _user_line())
        return made

    def adopt(self, awaitables):
        """Another coroutine awaits these: it alone is reported if that is never awaited."""
        owned = {id(item) for item in awaitables}
        for key, made in list(self._made.items()):
            if id(made[1]) in owned:
                del self._made[key]

    async def _started(self, key, function, arguments):
        self._made.pop(key, None)
        return await function(*arguments)

    @gate
    def define_saved_tools(self):
        """Define the saved tools that are new or have changed. A broken one costs only itself."""
        wanted = self._saved_wanted
        if wanted is None:
            return
        names = self._runner.names
        sources = {tool["name"]: tool["source"] for tool in wanted}
        for name in [name for name in self._saved if name not in sources]:
            _, function = self._saved.pop(name)
            if function is not None and names.get(name) is function:
                del names[name]
        for name, source in sources.items():
            had = self._saved.get(name)
            if had is not None and had[0] == source and (had[1] is None or name in names):
                continue
            file_name = "<saved tool %s>" % name
            self._runner.keep_source(file_name, source)
            try:
                exec(compile(source, file_name, "exec", dont_inherit=True), names)
                self._saved[name] = (source, names.get(name))
            except Exception as error:
                self._saved[name] = (source, None)
                self._runner.note(
                    "the saved tool `%s` could not be defined: %s: %s"
                    % (name, type(error).__name__, error)
                )

    def remember_saved(self, name, source, function):
        """`function` was just saved, so the next run need not define it."""
        self._saved[name] = (source, function)

    def reset(self):
        """Forget all variables of user code."""
        self._runner.cancel_tasks()
        names = self._runner.names
        for name in list(names):
            if not (name.startswith("__") and name.endswith("__")):
                del names[name]
        names.pop("__annotations__", None)
        self._saved.clear()
        self._bind()
        self.define_saved_tools()

    def show(self, mime_type, data):
        """Send one image, within the bound of the run."""
        if len(data) > self._images_bytes_left:
            raise ValueError(
                "this image has %d bytes; the run can still show %d bytes of images"
                % (len(data), self._images_bytes_left)
            )
        self._images_bytes_left -= len(data)
        mime = mime_type.encode("ascii", "replace")[:255]
        self._output.send(
            DISPLAY, self._output.current_run(), len(mime).to_bytes(2, "big") + mime + data
        )

    def _bind(self):
        """Put the bare names in place. A name that user code gave another value keeps it."""
        names, wanted = self._runner.names, self._wanted
        if wanted is None:
            wanted = self._wanted = self._bare_names()
        elif all(map(is_, map(names.get, wanted), wanted.values())):
            return
        for name, value in self._bound.items():
            if name not in wanted and names.get(name) is value:
                del names[name]
        for name, value in wanted.items():
            if name not in names or names[name] is self._bound.get(name, self):
                names[name] = value
        self._bound = wanted

    def _bare_names(self):
        names = {
            "mcp": self._modules["mcp"],
            "runtime": self._modules["mcp.runtime"],
            "mcp_servers": self.servers,
            "asyncio": asyncio,
            "LOADED_MCP_SERVERS": tuple(self._servers),
        }
        for name in BARE_FUNCTIONS:
            names[name] = getattr(self.api, name)
        for proxy in self._servers.values():
            names["mcp_" + proxy._Server__alias] = proxy
        return names


def _user_line():
    """The line of the run's code that is being executed, if its code is on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<run"):
            return frame.f_lineno
        frame = frame.f_back
    return None


class Servers(collections.abc.Mapping):
    """The servers that this run may call, by name or alias: `mcp_servers["github"]`."""

    def __init__(self, servers):
        self.__servers = servers

    def __getitem__(self, name):
        proxy = self.__servers.get(name)
        if proxy is None:
            for proxy in self.__servers.values():
                if name in (proxy._Server__alias, "mcp_" + proxy._Server__alias):
                    return proxy
            raise KeyError(
                "no server %r in this run; there is %s"
                % (name, ", ".join(map(repr, self.__servers)) or "none")
            )
        return proxy

    def __iter__(self):
        return iter(tuple(self.__servers))

    def __len__(self):
        return len(self.__servers)

    def __repr__(self):
        return "<MCP servers: %s>" % (", ".join(self.__servers) or "none")


class Server:
    """A server: each attribute is one of its tools, `await mcp_github.create_issue(title=...)`.

    `["a-name"]` reaches a tool by its original name.
    """

    def __init__(self, runtime, name, alias):
        self.__runtime = runtime
        self.__name = name
        self.__alias = alias
        self.__description = ""

    def __getattr__(self, name):
        # What other code probes for is no tool: dunder names, and the hooks of notebooks.
        if name.startswith(("__", "_repr_", "_ipython_")):
            raise AttributeError("%r has no attribute %r" % (self, name))
        return Tool(self.__runtime, self.__name, name, "mcp_%s.%s" % (self.__alias, name))

    def __getitem__(self, tool):
        if not isinstance(tool, str):
            raise TypeError("a tool's name is a str, not %s" % type(tool).__name__)
        return Tool(self.__runtime, self.__name, tool, "mcp_%s[%r]" % (self.__alias, tool))

    # Without it, `for tool in mcp_github` would ask for the tools 0, 1, 2, ...
    __iter__ = None

    def __dir__(self):
        try:
            tools = self.__runtime.api.list_tools_sync(self.__name)
            return sorted(tool["alias"] for tool in tools)
        except Exception:
            return []

    def __repr__(self):
        text = "<MCP server %r as mcp_%s" % (self.__name, self.__alias)
        if self.__description:
            text += ": " + self.__description.split("\n")[0][:200]
        return text + ">"


# What a proxy does beside calling tools, unless the server has a tool of that name: the request, and
# the arguments that may be given without their names, of which the first is required.
OFFERS = {
    "list_tools": ("tools", ()),
    "resources": ("resources/list", ()),
    "resource_templates": ("resources/templates/list", ()),
    "read_resource": ("resources/read", ("uri",)),
    "prompts": ("prompts/list", ()),
    "get_prompt": ("prompts/get", ("name", "arguments")),
}


class Tool:
    """A tool. Called with keyword arguments, or with one mapping of them, it gives a coroutine."""

    __slots__ = ("_runtime", "_server", "_tool", "_label")

    def __init__(self, runtime, server, tool, label):
        self._runtime = runtime
        self._server = server
        self._tool = tool
        self._label = label

    def __call__(self, /, *args, **arguments):
        if args:
            positional = OFFERS.get(self._tool, (None, ()))[1]
            if isinstance(args[0], str) and len(args) <= len(positional):
                arguments = dict(zip(positional, args), **arguments)
            elif len(args) > 1 or not isinstance(args[0], collections.abc.Mapping):
                raise TypeError(self._wants_keywords())
            else:
                arguments = dict(args[0], **arguments)
        return self._runtime.coroutine(
            self._label, self._runtime.api._tool_value, self._server, self._tool, arguments
        )

    def _wants_keywords(self):
        text = "%s() takes keyword arguments" % self._label
        names = list(self._properties())
        if names:
            text += ": " + ", ".join(name + "=" for name in names[:20])
        return text

    def _docs(self):
        """Its documentation, or an empty mapping; asked of the host when someone looks."""
        try:
            docs = self._runtime.api.query_tool_docs_sync(self._server, self._tool, "full")
            return docs[0] if docs else {}
        except Exception:
            return {}

    def _properties(self):
        schema = self._docs().get("schema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict):
            return {}
        required = schema.get("required") or []
        names = sorted(properties, key=lambda name: name not in required)
        return {name: name in required for name in names}

    @property
    def __name__(self):
        return self._tool

    @property
    def __doc__(self):
        docs = self._docs()
        return "\n\n".join(str(docs[k]) for k in ("signature", "description") if docs.get(k))

    @property
    def __signature__(self):
        parameters = []
        for name, required in self._properties().items():
            if name.isidentifier() and not keyword.iskeyword(name):
                default = inspect.Parameter.empty if required else None
                parameters.append(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                )
        return inspect.Signature(parameters)

    def __repr__(self):
        return "<MCP tool %s>" % self._label


def _is_offer(name, arguments):
    """Whether a call of what is no tool means something else that servers offer."""
    if name not in OFFERS:
        return False
    known = OFFERS[name][1]
    return set(arguments) <= set(known) and (not known or known[0] in arguments)


def contents_of(answer):
    """What is in a resource: text or bytes if it is one thing, else the list as it came."""
    contents = answer.get("contents") if isinstance(answer, dict) else None
    if not isinstance(contents, list):
        return answer
    if len(contents) == 1 and isinstance(contents[0], dict):
        if isinstance(contents[0].get("text"), str):
            return contents[0]["text"]
        if isinstance(contents[0].get("blob"), str):
            return base64.b64decode(contents[0]["blob"])
    return contents


class Memories(list):
    """A list of memory infos in which `"key" in memories` asks for a key."""

    def __contains__(self, item):
        if isinstance(item, str):
            return any(info.get("key") == item for info in self)
        return list.__contains__(self, item)


class Installed(list):
    """What is installed; code that awaits it, alone or together with others, gets the same list."""

    __hash__ = object.__hash__

    def __await__(self):
        return self
        yield


class Api:
    """The functions of `mcp.runtime`."""

    def __init__(self, runtime, runner):
        self._runtime = runtime
        self._calls = runner.calls
        self._random = random.Random()

    # Discovery.

    def discovered_servers(self, detailed=False):
        """All enabled servers: their names, or with `detailed` also description, state, tools."""
        listed = self._ask("servers", {"detailed": bool(detailed)})
        if detailed:
            return tuple(listed)
        return tuple(server["name"] for server in listed)

    def list_servers(self):
        """Names of the servers that this run may call."""
        return self._runtime.coroutine("runtime.list_servers", self._list_servers)

    async def _list_servers(self):
        return _callable_names(await self._await("servers", {"detailed": False}))

    def list_servers_sync(self):
        """Names of the servers that this run may call."""
        return _callable_names(self._ask("servers", {"detailed": False}))

    def describe_server(self, name):
        """Name, alias, description, cwd and tools of a server."""
        return self._ask("server", {"name": _server_name(name)})

    def list_loaded_server_metadata(self):
        """`describe_server` of each server that this run may call."""
        return tuple(self.describe_server(name) for name in self.list_servers_sync())

    def list_tools(self, server):
        """The tools of a server with alias, description, signature and schema."""
        return self._coroutine("list_tools", "tools", {"server": _server_name(server)})

    def list_tools_sync(self, server):
        """The tools of a server with alias, description, signature and schema."""
        return self._ask("tools", {"server": _server_name(server)})

    def query_tool_docs(self, server, tool=None, detail="summary"):
        """Documentation of one tool or of all of a server, always a list. `detail` is `name`,
        `summary` or `full`."""
        return self._coroutine("query_tool_docs", "docs", _docs(server, tool, detail))

    def query_tool_docs_sync(self, server, tool=None, detail="summary"):
        """Documentation of one tool or of all of a server, always a list. `detail` is `name`,
        `summary` or `full`."""
        return self._ask("docs", _docs(server, tool, detail))

    def search_tool_docs(self, query, *, limit=5, detail="summary"):
        """The tools of all enabled servers that fit `query` best, best first."""
        return self._coroutine("search_tool_docs", "search", _search(query, limit, detail))

    def search_tool_docs_sync(self, query, *, limit=5, detail="summary"):
        """The tools of all enabled servers that fit `query` best, best first."""
        return self._ask("search", _search(query, limit, detail))

    # Tools.

    def call_tool(self, server, tool, arguments=None):
        """Call a tool by its original names; gives its value as a proxy would.

        That is `structuredContent` if the server gave it; else the text of the only block, decoded
        if it is a JSON object or array; else the list of blocks; None if there is nothing. A tool's
        error is raised as MCPError.
        """
        return self._runtime.coroutine(
            "runtime.call_tool", self._tool_value, _server_name(server), tool, _mapping(arguments)
        )

    def call_tool_raw(self, server, tool, arguments=None):
        """Call a tool by its original names; gives the unchanged MCP result, errors included."""
        return self._runtime.coroutine(
            "runtime.call_tool_raw", self._tool_raw, _server_name(server), tool, _mapping(arguments)
        )

    async def _tool_value(self, server, tool, arguments):
        params = {"server": server, "tool": tool, "arguments": arguments}
        try:
            reply = await self._calls.ask("tool.call", params, Record)
        except MCPError as error:
            if error.code != "tool_not_found" or not _is_offer(tool, arguments):
                raise
            reply = None
        if reply is None:
            return await self._offer(tool, server, arguments)
        return value_of(reply, server, tool)

    async def _offer(self, name, server, arguments):
        answer = await self._await(OFFERS[name][0], dict(arguments, server=server))
        return contents_of(answer) if name == "read_resource" else answer

    async def _tool_raw(self, server, tool, arguments):
        params = {"server": server, "tool": tool, "arguments": arguments}
        return (await self._calls.ask("tool.call", params))["result"]

    # Resources and prompts.

    def list_resources(self, server):
        """The resources of a server: uri, name, description, mimeType."""
        return self._coroutine("list_resources", "resources/list", {"server": _server_name(server)})

    def list_resource_templates(self, server):
        """The addresses of resources that have gaps to fill: uriTemplate, name, description."""
        return self._coroutine(
            "list_resource_templates", "resources/templates/list", {"server": _server_name(server)}
        )

    def read_resource(self, server, uri):
        """A resource: its text, its bytes, or the list of its contents if it has several."""
        return self._runtime.coroutine(
            "runtime.read_resource", self._offer, "read_resource", _server_name(server), {"uri": uri}
        )

    def list_prompts(self, server):
        """The prompts of a server: name, description, arguments."""
        return self._coroutine("list_prompts", "prompts/list", {"server": _server_name(server)})

    def get_prompt(self, server, name, arguments=None):
        """A prompt with its gaps filled: description and messages."""
        params = {"server": _server_name(server), "name": name, "arguments": _mapping(arguments)}
        return self._coroutine("get_prompt", "prompts/get", params)

    def tool_function(self, server, tool):
        """The proxy of a tool by its original names."""
        found = self._resolve(server, tool)
        label = "mcp_%s.%s" % (found["server_alias"], found["tool_alias"])
        return Tool(self._runtime, found["server"], found["tool"], label)

    def python_name(self, server, tool):
        """The dotted Python name of a tool, such as `mcp_github.create_issue`."""
        found = self._resolve(server, tool)
        return "mcp_%s.%s" % (found["server_alias"], found["tool_alias"])

    def _resolve(self, server, tool):
        return self._ask("tool.resolve", {"server": _server_name(server), "tool": tool})

    def gather(self, *awaitables):
        """Await all of them together. A failure becomes that item's exception object; the others
        finish."""
        if len(awaitables) == 1 and isinstance(awaitables[0], (list, tuple)):
            if not inspect.isawaitable(awaitables[0]):
                awaitables = awaitables[0]
        for item in awaitables:
            if not inspect.isawaitable(item):
                raise TypeError("gather() awaits coroutines, not %s" % type(item).__name__)
        self._runtime.adopt(awaitables)
        return self._runtime.coroutine("runtime.gather", self._gather, *awaitables)

    async def _gather(self, *awaitables):
        return await asyncio.gather(*awaitables, return_exceptions=True)

    # Packages.

    def install(self, *requirements):
        """Have pure Python packages installed by the host, for this session and later ones:
        `install("tabulate", "markdown>=3")`. Gives a list of what is there now: name, version."""
        wanted = []
        for requirement in requirements:
            wanted.extend(requirement if isinstance(requirement, (list, tuple)) else [requirement])
        if not wanted or not all(isinstance(requirement, str) for requirement in wanted):
            raise TypeError('install() takes names of packages, such as "tabulate" or "tabulate>=0.9"')
        answer = self._ask("packages.install", {"packages": wanted, "present": packages.present()})
        installed = answer["installed"]
        packages.use(answer["files"])
        unseen = packages.unseen(package["file"] for package in installed if package["file"])
        if unseen:
            raise RuntimeError(
                "%s cannot be seen in this container, whose engine runs on another machine; switch "
                "to Built-in in Sandbox settings" % ", ".join(unseen)
            )
        for name in packages.stale(package for package in installed if package["file"]):
            self._runtime._runner.note(
                "%s was imported before from elsewhere; a new session imports what is installed now"
                % name
            )
        return Installed(Record(name=p["name"], version=p["version"]) for p in installed)

    # The bridge itself.

    def capability_summary(self):
        """The manual."""
        return self._ask("capabilities", {})

    def sandbox(self):
        """Which sandbox this is, its limits and warnings."""
        return self._ask("sandbox", {})

    def output(self, run_id, start=0, end=None):
        """The uncut output of a run, by character positions."""
        return self._ask("output", {"run_id": run_id, "start": start, "end": end})

    def result(self, run_id):
        """What a run has given that was still running when its call was answered, by the fields of
        its reply; `status` is `running` until it has ended."""
        return self._ask("result", {"run_id": run_id})

    def reset(self):
        """Clear the variables and cancel the tasks of this session."""
        self._runtime.reset()

    def display(self, *things):
        """Show images in the reply: PNG, JPEG, GIF, WebP or SVG data, a matplotlib figure, a PIL
        image, an image block of a tool's answer. Anything else is printed."""
        for thing in things:
            self._display(thing)

    def _display(self, thing):
        if isinstance(thing, dict) and isinstance(thing.get("content"), list):
            thing = thing["content"]
        if (
            isinstance(thing, list)
            and thing
            and all(
                isinstance(block, dict) and isinstance(block.get("type"), str) for block in thing
            )
        ):
            for block in thing:
                self._display_one(block)
        else:
            self._display_one(thing)

    @gate
    def _display_one(self, thing):
        images = images_of(thing)
        if images is not None:
            for mime_type, data in images:
                self._runtime.show(mime_type, data)
        elif isinstance(thing, dict) and thing.get("type") == "text" and "text" in thing:
            print(thing["text"])
        else:
            print(thing if isinstance(thing, str) else repr(thing))

    # Saved tools.

    def save_tool(self, func):
        """Keep a function for later sessions, where it is there under its name. One of the same
        name is replaced. Modules that it uses must be imported inside it; `missing_names` of the
        answer lists what a later session will not have."""
        name, source, description = source_of(func)
        missing = missing_names(source, name, set(self._runtime._bound))
        saved = self._ask(
            "saved_tools.save", {"name": name, "source": source, "description": description}
        )
        self._runtime.remember_saved(name, source, func)
        if missing:
            self._runtime._runner.note(
                "the saved tool `%s` uses %s, which a later session does not have; "
                "define or import it inside the function" % (name, ", ".join(missing))
            )
        if not isinstance(saved, dict):
            saved = Record(name=name)
        saved["missing_names"] = missing
        return saved

    def list_saved_tools(self):
        """The saved tools."""
        return self._ask("saved_tools.list", {})

    def delete_saved_tool(self, name):
        """Forget a saved tool; tells whether there was one."""
        return self._ask("saved_tools.delete", {"name": getattr(name, "__name__", name)})

    # Memory.

    def save_memory(self, key, value, *, metadata=None):
        """Remember a JSON value under a key, across sessions and restarts."""
        check_json(value)
        params = {"key": _key(key), "value": value}
        if metadata is not None:
            check_json(metadata, "metadata")
            params["metadata"] = metadata
        return self._ask("memory.save", params)

    def load_memory(self, key, default=None):
        """The value under a key, or `default`."""
        found = self._calls.sync("memory.load", {"key": _key(key)})
        return found.get("value") if found.get("found") else default

    @gate
    def update_memory(self, key, fn):
        """Replace the value under a key by `fn(value)`, as one step even if others write too; `fn`
        gets None if there is no value, and may be called more than once. Gives the new value."""
        key = _key(key)
        for attempt in range(UPDATES_MAX):
            found = self._calls.sync("memory.load", {"key": key})
            there = bool(found.get("found"))
            value = fn(found.get("value") if there else None)
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise TypeError("update_memory() wants an ordinary function, not an async one")
            check_json(value, "the new value")
            version = found.get("version") if there else None
            done = self._ask("memory.update", {"key": key, "value": value, "version": version})
            if done.get("updated"):
                return value
            longest = min(UPDATE_PAUSE_S_MAX, 0.0005 * 2 ** min(attempt, 10))
            sleep(self._random.uniform(0, longest))
        raise RuntimeError(
            "the memory %r changed under each of %d tries to update it" % (key, UPDATES_MAX)
        )

    def delete_memory(self, key):
        """Forget a key; tells whether it was there."""
        return self._ask("memory.delete", {"key": _key(key)})

    def list_memories(self):
        """What is known of each key, without the values. `"key" in list_memories()` works."""
        return Memories(self._ask("memory.list", {}))

    def memory_exists(self, key):
        """Whether there is a value under a key."""
        return self.get_memory_info(key) is not None

    def get_memory_info(self, key):
        """Version, times and metadata of a key, or None."""
        return self._ask("memory.info", {"key": _key(key)})

    # How all of the above asks.

    def _ask(self, method, params):
        return self._calls.sync(method, params, Record)

    async def _await(self, method, params):
        return await self._calls.ask(method, params, Record)

    def _coroutine(self, name, method, params):
        return self._runtime.coroutine("runtime." + name, self._await, method, params)


BARE_FUNCTIONS = (
    "display",
    "save_tool",
    "list_saved_tools",
    "delete_saved_tool",
    "save_memory",
    "load_memory",
    "update_memory",
    "delete_memory",
    "list_memories",
    "memory_exists",
    "get_memory_info",
)


def _callable_names(listed):
    return [server["name"] for server in listed if server.get("callable", True)]


def _server_name(server):
    if isinstance(server, Server):
        return server._Server__name
    if not isinstance(server, str):
        raise TypeError("a server's name is a str, not %s" % type(server).__name__)
    return server


def _docs(server, tool, detail):
    return {"server": _server_name(server), "tool": tool, "detail": detail}


def _search(query, limit, detail):
    return {"query": query, "limit": limit, "detail": detail}


def _mapping(arguments):
    if arguments is None:
        return {}
    if not isinstance(arguments, collections.abc.Mapping):
        raise TypeError("arguments is a mapping, not %s" % type(arguments).__name__)
    return dict(arguments)


def _key(key):
    if not isinstance(key, str):
        raise TypeError("a memory's key is a str, not %s" % type(key).__name__)
    return key


def make_modules(runtime):
    """The modules that user code imports."""
    package = types.ModuleType("mcp", "The bridge to the user's MCP servers.")
    package.__path__ = []
    summary = "Discovery, tools, memory: see `capability_summary()`."
    module = types.ModuleType("mcp.runtime", summary)
    for name in dir(Api):
        if not name.startswith("_"):
            setattr(module, name, getattr(runtime.api, name))
    module.MCPError = MCPError
    module.Record = Record
    servers = ServersModule("mcp.servers", "One module per server.")
    servers.__path__ = []
    servers.runtime = runtime
    servers.finder = ServerFinder(runtime)
    package.runtime = module
    package.servers = servers
    package.MCPError = MCPError
    made = {"mcp": package, "mcp.runtime": module, "mcp.servers": servers}
    for name, each in made.items():
        each.__spec__ = importlib.machinery.ModuleSpec(
            name, None, origin="bridge", is_package=hasattr(each, "__path__")
        )
        each.__package__ = name if hasattr(each, "__path__") else "mcp"
    return made


class ServersModule(types.ModuleType):
    """`mcp.servers`, so that `from mcp.servers import github` works before any import of it."""

    def __getattr__(self, name):
        if not name.startswith("__"):
            try:
                return self.runtime.servers[name]
            except KeyError as error:
                raise AttributeError(error.args[0]) from None
        raise AttributeError(name)


class ServerModule(types.ModuleType):
    """`mcp.servers.<alias>`: each attribute is a tool."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__spec__.loader_state, name)

    def __dir__(self):
        return dir(self.__spec__.loader_state)


class ServerFinder:
    """Finds `mcp.servers.<alias>` when user code imports it."""

    def __init__(self, runtime):
        self._runtime = runtime

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("mcp.servers."):
            return None
        try:
            proxy = self._runtime.servers[name[len("mcp.servers.") :]]
        except KeyError as error:
            raise ModuleNotFoundError(error.args[0], name=name) from None
        return importlib.machinery.ModuleSpec(name, self, origin="bridge", loader_state=proxy)

    def create_module(self, spec):
        return ServerModule(spec.name)

    def exec_module(self, module):
        """Nothing to execute: attributes are looked up when they are used."""
