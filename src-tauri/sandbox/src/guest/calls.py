"""Calls from user code to the host: sent, awaited, cancelled, answered.

A call can be awaited in any event loop of any thread, or waited for by a thread that blocks. Knows
the shape of a call and of a reply; what methods there are and what they mean is not decided here.
"""

import asyncio
import itertools
import os
import _thread
from json import JSONDecoder, JSONEncoder

from _runbridge.door import CALL, CANCEL_CALL, PAYLOAD_BYTES_MAX


class MCPError(RuntimeError):
    """A tool, its server or the way to it failed.

    `server` and `tool` name what was called; `code` is a JSON-RPC code or a word such as
    `tool_not_found`; `data` is what the server sent along.
    """

    def __init__(self, message="", server=None, tool=None, code=None, data=None):
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.code = code
        self.data = data

    def __reduce__(self):
        return type(self), (str(self), self.server, self.tool, self.code, self.data)


# User code finds, prints and pickles it under the name by which it may import it.
MCPError.__module__ = "mcp.runtime"

_KINDS = {
    "type": TypeError,
    "value": ValueError,
    "key": KeyError,
    "memory_full": RuntimeError,
    "runtime": RuntimeError,
}


_encode = JSONEncoder(ensure_ascii=False, allow_nan=False).encode

# What reads a reply, by what it makes of mappings: `loads` with a hook would make one each time.
_decoders = {}


class Calls:
    """The calls that wait for a reply."""

    def __init__(self, output):
        self._output = output
        self._ids = itertools.count(1)
        # id -> (run, function that takes the reply)
        self._waiting = {}
        self._forked = False

    def start(self):
        os.register_at_fork(after_in_child=self._after_fork)

    def sync(self, method, params, hook=None):
        """Ask the host and block until it answers."""
        answered = _thread.allocate_lock()
        answered.acquire()
        box = []

        def deliver(payload):
            box.append(payload)
            answered.release()

        ident = self._send(method, params, deliver)
        try:
            wait(answered)
        finally:
            if not box:
                self._forget(ident)
        return _value(box[0], hook)

    async def ask(self, method, params, hook=None):
        """Ask the host and await the answer. A cancelled task no longer waits for it."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def deliver(payload):
            try:
                self._settle(loop, future, payload)
            except RuntimeError:
                # The loop has ended, and with it whoever waited.
                pass

        ident = self._send(method, params, deliver)
        try:
            payload = await future
        finally:
            if not future.done() or future.cancelled():
                self._forget(ident)
        return _value(payload, hook)

    def _settle(self, loop, future, payload):
        """Give `future` what came, from the thread that reads frames."""
        loop.call_soon_threadsafe(settle, future, payload)

    def answer(self, ident, payload):
        """A reply has come. Called by the thread that reads frames."""
        waiting = self._waiting.pop(ident, None)
        if waiting is not None:
            waiting[1](payload)

    def cancel_run(self, run):
        """Tell the host that nobody waits for the calls of `run` any more."""
        for ident, (owner, _) in list(self._waiting.items()):
            if owner == run:
                self._forget(ident)

    def _send(self, method, params, deliver):
        if self._forked:
            raise RuntimeError(
                "a forked process cannot call the bridge; make the call in the process that forked"
            )
        run = self._output.current_run()
        payload = encode({"run": run, "method": method, "params": params}, params)
        ident = next(self._ids)
        self._waiting[ident] = (run, deliver)
        try:
            self._output.send(CALL, ident, payload)
        except BaseException:
            self._waiting.pop(ident, None)
            raise
        return ident

    def _forget(self, ident):
        if self._waiting.pop(ident, None) is not None and not self._forked:
            self._output.send(CANCEL_CALL, ident, b"")

    def _after_fork(self):
        self._forked = True
        self._waiting.clear()


def settle(future, payload):
    """Give `future` what came, unless nobody waits for it any more."""
    if not future.done():
        future.set_result(payload)


def wait(lock):
    """Block until `lock` is free. Nothing is held here, so an interrupt may raise here."""
    lock.acquire()


def encode(message, params):
    """`message` as JSON. What JSON cannot hold is named by its place in `params`."""
    try:
        payload = _encode(message).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        for name, value in params.items():
            check_json(value, name, strict_keys=False)
        raise
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(
            "the arguments take %d bytes as JSON; at most %d can be sent"
            % (len(payload), PAYLOAD_BYTES_MAX)
        )
    return payload


# Deeper values are refused: other JSON readers stop at similar depths.
DEPTH_MAX = 200


def check_json(value, path="value", strict_keys=True):
    """Raise TypeError or ValueError naming the place inside `value` that JSON cannot hold.

    `strict_keys` also refuses keys that JSON would turn into other keys, such as 1 into "1".
    """
    inside = set()

    def check(item, path, depth):
        if item is None or isinstance(item, (bool, int)):
            return
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError("%s holds a lone surrogate, which is not text" % path) from None
            return
        if isinstance(item, float):
            if item != item or item in (float("inf"), float("-inf")):
                raise ValueError("%s is %r, which JSON cannot hold" % (path, item))
            return
        if not isinstance(item, (dict, list, tuple)):
            raise TypeError("%s is %s, which JSON cannot hold" % (path, _a(type(item).__name__)))
        if id(item) in inside:
            raise ValueError("%s contains itself, which JSON cannot hold" % path)
        if depth >= DEPTH_MAX:
            raise ValueError("the value is nested more than %d deep" % DEPTH_MAX)
        inside.add(id(item))
        if isinstance(item, dict):
            for key, below in item.items():
                if not isinstance(key, str) and (
                    strict_keys or not (key is None or isinstance(key, (bool, int, float)))
                ):
                    raise TypeError(
                        "%s has the key %r, %s; JSON keys are strings"
                        % (path, key, _a(type(key).__name__))
                    )
                if isinstance(key, str):
                    check(key, "a key of %s" % path, depth + 1)
                check(below, "%s[%r]" % (path, key), depth + 1)
        else:
            for index, below in enumerate(item):
                check(below, "%s[%d]" % (path, index), depth + 1)
        inside.discard(id(item))

    check(value, path, 0)


def _a(name):
    return ("an " if name[:1].lower() in "aeiou" else "a ") + name


def _value(payload, hook):
    """What the host answered, or the exception that it wants raised."""
    if payload is None:
        raise MemoryError("the reply did not fit into the sandbox's memory")
    decode = _decoders.get(hook)
    if decode is None:
        decode = _decoders[hook] = JSONDecoder(object_hook=hook).decode
    reply = decode(str(payload, "utf-8"))
    if "error" in reply:
        raise _exception(reply["error"])
    return reply.get("ok")


def _exception(error):
    message = str(error.get("message") or "the bridge gave no reason")
    kind = error.get("kind")
    if kind == "mcp":
        return MCPError(
            message, error.get("server"), error.get("tool"), error.get("code"), error.get("data")
        )
    exception = _KINDS.get(kind, RuntimeError)(message)
    exception.code = error.get("code")
    return exception
