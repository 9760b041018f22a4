"""A host for one guest, in Python: starts the guest as the real host does, speaks frames, answers
calls from a script. Waits for events with a deadline, never for a time."""

import json
import os
import struct
import subprocess
import sys
import threading
import time
import unittest

GUEST = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "src-tauri", "sandbox", "src", "guest"
)
HEADER = struct.Struct(">BBHIQ")
RUN, REPLY, INTERRUPT = 1, 2, 3
HELLO, STDOUT, STDERR, CALL, CANCEL_CALL, DISPLAY, DONE = range(16, 23)
# A guest on a busy machine; no test waits this long when the guest is right.
PATIENCE_S = 60


def source(name):
    with open(os.path.join(GUEST, name + ".py"), encoding="utf-8") as file:
        return file.read()


BOOT = source("boot")
MODULES = {
    name[:-3]: source(name[:-3])
    for name in sorted(os.listdir(GUEST))
    if name.endswith(".py") and name != "boot.py"
}


class CallFailed(Exception):
    """A scripted handler answers with this error."""

    def __init__(self, kind, message, **more):
        super().__init__(message)
        self.error = dict(more, kind=kind, message=message)


# A scripted handler returns this to leave a call unanswered.
SILENT = object()


class Run:
    """What came back under one run id."""

    def __init__(self, ident):
        self.id = ident
        self.stdout_bytes = bytearray()
        self.stderr_bytes = bytearray()
        self.images = []
        self.done = None
        self.frame_sizes = []

    @property
    def stdout(self):
        return self.stdout_bytes.decode("utf-8")

    @property
    def stderr(self):
        return self.stderr_bytes.decode("utf-8")

    def __getattr__(self, name):
        if name in ("status", "result", "error", "exit_code", "notes"):
            return self.done[name]
        raise AttributeError(name)


class Host:
    def __init__(self, handlers=None, config=None, wrap=(), env=None):
        self.handlers = dict(handlers or {})
        self.runs = {}
        self.calls = []
        self.cancelled = []
        self.hello = None
        self.ended = False
        self.servers = []
        self.saved_tools = None
        self.packages = None
        self._count = 0
        self._changed = threading.Condition()
        self._send_lock = threading.Lock()
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-I", "-B", "-u", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        message = json.dumps({"modules": MODULES, "config": config or {}}).encode("ascii")
        self._write(struct.pack(">I", len(message)) + message)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(lambda: self.hello is not None, "HELLO")

    # Runs.

    def start(self, code, servers=None, images_bytes_max=10_000_000):
        """Send a run; its id is far above 32 bits, as real ones are."""
        self._count += 1
        ident = (1 << 63) + self._count
        run = self.runs[ident] = Run(ident)
        context = {
            "servers": [
                {"name": n, "alias": n.replace("-", "_"), "description": "about " + n}
                for n in (self.servers if servers is None else servers)
            ]
        }
        if self.saved_tools is not None:
            context["saved_tools"] = self.saved_tools
        if self.packages is not None:
            context["packages"] = self.packages
        self.send(
            RUN,
            ident,
            {
                "code": code,
                "name": "<run %d>" % self._count,
                "images_bytes_max": images_bytes_max,
                "context": context,
            },
        )
        return run

    def finish(self, run, within=PATIENCE_S):
        self.wait(lambda: run.done is not None, "DONE of run %d" % (run.id & 0xFFFF), within)
        return run

    def run(self, code, **options):
        return self.finish(self.start(code, **options))

    def interrupt(self, run):
        self.send(INTERRUPT, run.id, b"")

    def wait_for_output(self, run, text):
        self.wait(lambda: text in run.stdout, "the output %r" % text)

    # Frames.

    def send(self, kind, ident, payload):
        if not isinstance(payload, bytes):
            payload = json.dumps(payload).encode("utf-8")
        self._write(HEADER.pack(1, kind, 0, len(payload), ident) + payload)

    def reply(self, ident, value):
        self.send(REPLY, ident, {"ok": value})

    def wait(self, condition, what, within=PATIENCE_S):
        deadline = time.monotonic() + within
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or self.ended:
                    if condition():
                        return
                    raise AssertionError(
                        "%s did not come; ended: %s; stderr: %s"
                        % (what, self.ended, self._stderr() if self.ended else "")
                    )
                self._changed.wait(left)

    def close(self):
        """Hang up, and wait until nothing is left."""
        if self.process.stdout.closed:
            return
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()

    def exit_code(self):
        code = self.process.wait(PATIENCE_S)
        self.close()
        return code

    def _stderr(self):
        return self.process.stderr.read().decode("utf-8", "replace")

    def _write(self, data):
        with self._send_lock:
            try:
                self.process.stdin.write(data)
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                # Hung up meanwhile.
                pass

    def _read(self):
        stream = self.process.stdout
        while True:
            header = stream.read(HEADER.size)
            if len(header) < HEADER.size:
                break
            version, kind, zero, length, ident = HEADER.unpack(header)
            payload = stream.read(length)
            assert version == 1 and zero == 0 and len(payload) == length
            with self._changed:
                self._take(kind, ident, payload)
                self._changed.notify_all()
            if kind == CALL:
                self._answer(ident, json.loads(payload))
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _take(self, kind, ident, payload):
        if kind == HELLO:
            self.hello = json.loads(payload)
        elif kind == STDOUT:
            self.runs[ident].stdout_bytes += payload
            self.runs[ident].frame_sizes.append(len(payload))
        elif kind == STDERR:
            self.runs[ident].stderr_bytes += payload
        elif kind == DISPLAY:
            size = int.from_bytes(payload[:2], "big")
            self.runs[ident].images.append((payload[2 : 2 + size].decode(), payload[2 + size :]))
        elif kind == DONE:
            self.runs[ident].done = json.loads(payload)
        elif kind == CALL:
            self.calls.append((ident, json.loads(payload)))
        elif kind == CANCEL_CALL:
            self.cancelled.append(ident)
        else:
            raise AssertionError("frame kind %d" % kind)

    def _answer(self, ident, call):
        handler = self.handlers.get(call["method"])
        try:
            if handler is None:
                raise CallFailed("runtime", "no handler for " + call["method"])
            value = handler(call["params"])
        except CallFailed as failed:
            self.send(REPLY, ident, {"error": failed.error})
            return
        if value is not SILENT:
            self.reply(ident, value)


def text(value):
    """The reply to `tool.call` whose only block is this text."""
    return {"result": {"content": [{"type": "text", "text": value}]}, "unwrap": False}


class GuestCase(unittest.TestCase):
    """One guest per test class; a test that breaks it makes its own."""

    handlers = {}
    config = None
    servers = []

    @classmethod
    def setUpClass(cls):
        cls.host = Host(cls.handlers, cls.config)
        cls.host.servers = cls.servers

    @classmethod
    def tearDownClass(cls):
        cls.host.close()

    def own_host(self, **options):
        host = Host(**options)
        self.addCleanup(host.close)
        return host

    def run_ok(self, code, **options):
        run = self.host.run(code, **options)
        self.assertEqual((run.status, run.error), ("ok", None))
        return run
