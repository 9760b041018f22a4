#!/usr/bin/env python3
"""A scripted MCP server over stdio for the acceptance tests and the benchmark.

It answers concurrently, so any waiting that a client sees comes from the bridge. Stdlib only, and
it knows nothing of the bridge. Options choose how it misbehaves.
"""
import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--tools", type=int, default=0, help="extra tools, named tool_0000 and so on")
parser.add_argument("--tools-file", help="a JSON file with the whole list of tools")
parser.add_argument("--page", type=int, default=0, help="tools a page; 0 means one page")
parser.add_argument("--noise", type=int, default=0, help="bytes of garbage on stdout first")
parser.add_argument("--stderr", type=int, default=0, help="bytes on stderr first")
parser.add_argument("--exit-at-once", action="store_true")
parser.add_argument("--hang", action="store_true", help="never answer anything")
parser.add_argument("--child", action="store_true", help="have a child that ignores SIGTERM")
parser.add_argument("--record", help="a folder where a file of this process gets each line that came")
parser.add_argument("--asks", action="store_true", help="offer a tool that asks the user")
parser.add_argument("--starts", help="a file that gets one line for each start")
options = parser.parse_args()

write_lock = threading.Lock()
count_lock = threading.Lock()
counts = {"calls": 0, "now": 0, "peak": 0, "cancelled": []}
added = []
answers = queue.Queue()


def tool(name, description, required=(), **properties):
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {"name": name, "description": description, "inputSchema": schema}


TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("echo", "Give the text back", ["text"], text=TEXT),
    tool("add", "Add two integers", ["a", "b"], a=INTEGER, b=INTEGER),
    tool("sleep_ms", "Wait for some milliseconds", ["ms"], ms=INTEGER),
    tool("big", "Text of a given size", ["size"], size=INTEGER),
    tool("fail", "Always answers with isError"),
    tool("rpc_error", "Always answers with a JSON-RPC error"),
    tool("crash", "End the server within the call"),
    tool("never", "Never answer"),
    tool("counts", "Calls so far, most at once, what was cancelled"),
    tool("whoami", "Process id, folder and environment of the server"),
    tool("structured", "A value as structured content", ["n"], n=INTEGER),
    tool("wrapped", "A list as FastMCP wraps it"),
    tool("json_text", "A JSON object as text"),
    tool("blocks", "Two text blocks"),
    tool("image", "A picture"),
    tool("get-Item.v2", "A name that is no identifier", ["id"], id=INTEGER),
    tool("class", "A name that is a keyword"),
    tool("open_schema", "Takes names it does not list", ["repo_name"], repo_name=TEXT),
    tool("grow", "Offer one more tool and say so"),
    tool("garbage", "Write lines that are not JSON-RPC, then answer"),
]
WRAPPED = next(item for item in TOOLS if item["name"] == "wrapped")
WRAPPED["outputSchema"] = {
    "type": "object",
    "properties": {"result": {"type": "array"}},
    "required": ["result"],
    "x-fastmcp-wrap-result": True,
}
TOOLS += [tool("tool_%04d" % n, "Extra tool number %d, which does nothing" % n, a=TEXT)
          for n in range(options.tools)]
if options.asks:
    TOOLS.append(tool("ask_name", "Asks the user for a name"))
    TOOLS.append(tool("ask_model", "Asks the client's model for a number"))
if options.tools_file:
    with open(options.tools_file, encoding="utf-8") as file:
        TOOLS = json.load(file)


def send(message):
    data = json.dumps(message, separators=(",", ":")) + "\n"
    with write_lock:
        sys.stdout.write(data)
        sys.stdout.flush()


def text(*parts, **more):
    return dict({"content": [{"type": "text", "text": part} for part in parts]}, **more)


def call(name, arguments):
    if name == "echo":
        return text(arguments["text"])
    if name == "add":
        return text(str(arguments["a"] + arguments["b"]))
    if name == "sleep_ms":
        time.sleep(arguments["ms"] / 1000)
        return text("slept")
    if name == "big":
        return text("x" * arguments["size"])
    if name == "fail":
        return text("deliberate failure", isError=True)
    if name == "crash":
        print("about to crash", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "never":
        time.sleep(3600)
    if name == "counts":
        return text(json.dumps(counts))
    if name == "whoami":
        return text(json.dumps({"pid": os.getpid(), "cwd": os.getcwd(), "env": dict(os.environ)}))
    if name == "structured":
        return text("as text", structuredContent={"n": arguments["n"], "nested": {"title": "t"}})
    if name == "wrapped":
        return text("[1, 2]", structuredContent={"result": [1, 2]})
    if name == "json_text":
        return text('{"title": "from text", "items": [1, 2]}')
    if name == "blocks":
        return text("one", "two")
    if name == "image":
        pixel = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
                 "DwADhgGAWjR9awAAAABJRU5ErkJggg==")
        return {"content": [{"type": "image", "mimeType": "image/png", "data": pixel}]}
    if name == "open_schema":
        return text(json.dumps(arguments))
    if name == "grow":
        added.append(tool("grown_%d" % len(added), "A tool that came later: zebra census"))
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "ask_name":
        schema = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
        send({"jsonrpc": "2.0", "id": "question", "method": "elicitation/create",
              "params": {"message": "What is your name?", "requestedSchema": schema}})
        heard = answers.get(timeout=60)
        return text(json.dumps(heard.get("result") or heard.get("error")))
    if name == "ask_model":
        asked = {"role": "user", "content": {"type": "text", "text": "2 + 2?"}}
        send({"jsonrpc": "2.0", "id": "model", "method": "sampling/createMessage",
              "params": {"messages": [asked], "maxTokens": 5}})
        heard = answers.get(timeout=60)
        return text(json.dumps(heard.get("result") or heard.get("error")))
    if name == "garbage":
        with write_lock:
            for number in range(1000):
                sys.stdout.write("garbage %d {not json\n" % number)
            sys.stdout.flush()
        return text("after garbage")
    return text("called " + name)


def answer_call(message):
    identity, params = message["id"], message.get("params") or {}
    with count_lock:
        counts["calls"] += 1
        counts["now"] += 1
        counts["peak"] = max(counts["peak"], counts["now"])
    reply = {"jsonrpc": "2.0", "id": identity}
    if params.get("name") == "rpc_error":
        reply["error"] = {"code": -32001, "message": "deliberate rpc error", "data": {"why": "asked"}}
    else:
        try:
            reply["result"] = call(params.get("name"), params.get("arguments") or {})
        except Exception as problem:
            reply["result"] = text("%s: %s" % (type(problem).__name__, problem), isError=True)
    # Before the reply: a client that has it may ask for the counts at once.
    with count_lock:
        counts["now"] -= 1
    send(reply)


def answer(message):
    identity, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "notifications/cancelled":
        counts["cancelled"].append(params.get("requestId"))
    if method is None and identity in ("question", "model"):
        answers.put(message)
    if identity is None or method is None:
        return
    if method == "initialize":
        result = {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "stub", "version": "1"},
        }
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        tools = TOOLS + added
        start = int(params.get("cursor") or 0)
        end = start + options.page if options.page else len(tools)
        result = {"tools": tools[start:end]}
        if end < len(tools):
            result["nextCursor"] = str(end)
    else:
        error = {"code": -32601, "message": "method not found"}
        send({"jsonrpc": "2.0", "id": identity, "error": error})
        return
    send({"jsonrpc": "2.0", "id": identity, "result": result})


if options.starts:
    with open(options.starts, "a", encoding="utf-8") as file:
        file.write("%d\n" % os.getpid())
if options.exit_at_once:
    print("cannot start: the licence file is missing", file=sys.stderr, flush=True)
    sys.exit(4)
if options.child:
    subprocess.Popen([sys.executable, "-c", "import signal, sys, time\n"
                      "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)", sys.argv[0]])
if options.stderr:
    sys.stderr.write("e" * options.stderr + "\n")
    sys.stderr.flush()
if options.noise:
    sys.stdout.write(("noise " * 20 + "\n") * (options.noise // 121 + 1))
    sys.stdout.flush()

record = None
if options.record:
    record = open("%s/%d" % (options.record, os.getpid()), "w", encoding="utf-8")

# Quick tools answer on the reading thread: a thread a call would be most of what a benchmark sees.
SLOW = {"sleep_ms", "never", "big", "crash", "ask_name", "ask_model"}
for line in sys.stdin:
    if record:
        record.write(line)
        record.flush()
    if options.hang or not line.strip():
        continue
    request = json.loads(line)
    if request.get("method") != "tools/call":
        answer(request)
    elif (request.get("params") or {}).get("name") in SLOW:
        threading.Thread(target=answer_call, args=(request,), daemon=True).start()
    else:
        answer_call(request)
