"""The loop of a guest: a run comes in, its code executes, how it ended goes out.

User code executes on the main thread. Between runs that thread keeps the event loop going, so tasks
made earlier live on. Another thread reads frames, so nothing that user code does delays a reply or
an interrupt. What the code may call is in `runtime`; this module knows only that there is one.
"""

import __future__
import ast
import asyncio
import builtins
import gc
import inspect
import linecache
import os
import signal
import sys
import threading
import types
import warnings
import _thread
from json import JSONEncoder, loads
from operator import is_
from os import getpid
from queue import Empty, SimpleQueue

from _runbridge import door as doors
from _runbridge import interrupts as interrupting
from _runbridge import output as outputs
from _runbridge import report
from _runbridge.calls import Calls, wait
from _runbridge.door import DONE, HELLO, INTERRUPT, REPLY, RUN
from _runbridge.runtime import Runtime

# Characters of a value's repr that are sent; the host cuts further.
RESULT_MAX = 2 * 1024 * 1024
# Sources kept for tracebacks and `inspect.getsource`: this many, and together this long.
SOURCES_MAX = 64
SOURCES_CHARS_MAX = 16 * 1024 * 1024
# Notes of one run.
NOTES_MAX = 50
# Memory given back when it runs out, so that the end of the run can still be told.
RESERVE_BYTES = 4 * 1024 * 1024
# How long a cancelled task may take to clean up before it is left to the idle loop.
SETTLE_S = 1.0
STACK_BYTES = 512 * 1024
# What is told when nothing can be put together any more.
NO_MEMORY = (
    b'{"status": "error", "result": null, "error": {"type": "MemoryError", "message": "", '
    b'"traceback": "MemoryError\\n"}, "exit_code": null, "notes": []}'
)

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag
_COMPILE = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

_encode = JSONEncoder(ensure_ascii=False).encode


def main(config):
    """Become the runner: never returns."""
    wanted = dict(config.get("rlimits") or {})
    # Counts what every container of the user runs: one that is at its limit must not keep the guest's
    # own threads from being started.
    late = {name: wanted.pop(name) for name in ("nproc",) if name in wanted}
    rlimits = set_rlimits(wanted)
    door = doors.Door(outputs.move_up(0), outputs.move_up(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0, inheritable=True)
    if null > 2:
        os.close(null)
    set_environment()
    fork_by_default()
    Runner(door, rlimits, late).serve()


def set_rlimits(wanted):
    """Set the asked resource limits as far as they go; tells what holds now."""
    import resource

    held = {}
    for name, value in wanted.items():
        which = getattr(resource, "RLIMIT_" + name.upper(), None)
        if which is None or value is None:
            continue
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        try:
            resource.setrlimit(which, (value, value))
        except (OSError, ValueError):
            pass
        soft = resource.getrlimit(which)[0]
        if soft != resource.RLIM_INFINITY:
            held[name] = soft
    if "as" in held:
        share_one_heap()
    return held


def share_one_heap():
    """Keep glibc from reserving 64 MiB of address space per thread, which counts as memory where
    address space is what is limited."""
    try:
        import ctypes

        arena_max = -8
        ctypes.CDLL(None).mallopt(arena_max, 1)
    except (ImportError, OSError, AttributeError):
        # No ctypes or another C library: less of the limit is usable then.
        pass


def fork_by_default():
    """Let `multiprocessing` fork. Other ways start a Python that cannot import a run's code, so a
    pool could not find the function that it is to execute."""
    if sys.version_info < (3, 14):
        return
    try:
        from multiprocessing import context

        context._default_context._default_context = context._concrete_contexts["fork"]
    except (ImportError, AttributeError, KeyError):
        # `multiprocessing` then says itself what it cannot find.
        pass


def set_environment():
    """A small, known environment, whatever the container was started with."""
    home = "/workspace" if os.path.isdir("/workspace") else "/tmp"
    kept = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    path = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    os.environ.clear()
    os.environ.update(
        kept,
        PATH=path,
        HOME=home,
        LANG="C.UTF-8",
        TMPDIR="/tmp",
        # Figures are drawn to memory; there is no display.
        MPLBACKEND="Agg",
    )
    try:
        os.chdir(home)
    except OSError:
        pass
    # Modules that user code writes into its folder can be imported; they hide none of Python's.
    sys.path.append("")


class Runner:
    """One interpreter with its variables."""

    def __init__(self, door, rlimits, late_rlimits=None):
        self._door = door
        self._rlimits = rlimits
        # To be set once the guest's threads run.
        self._late_rlimits = late_rlimits or {}
        self._interrupts = interrupting.Interrupts()
        self._output = outputs.Output(door, self._interrupts)
        self._calls = Calls(self._output)
        self._inbox = SimpleQueue()
        self._loop = None
        self._waiter = None
        self._pid = getpid()
        self._module = types.ModuleType("__main__")
        self._names = self._module.__dict__
        self._names["__builtins__"] = builtins
        self._sources = {}
        self._tasks = {}
        self._notes = []
        self._reserve = None
        self._untold = None
        self._asyncio_then = {
            "create_task": asyncio.create_task,
            "run": asyncio.run,
        }
        self._runtime = Runtime(self)
        # What user code may break and the guest needs: Python's own things, as they are now.
        self._modules = sys.modules
        self._modules_then = dict(sys.modules)
        self._builtins_then = dict(vars(builtins))
        self._recursion_then = sys.getrecursionlimit()
        self._display_then = sys.displayhook
        self._except_then = sys.excepthook
        self._filters = None

    # What the runtime builds on.

    @property
    def calls(self):
        return self._calls

    @property
    def output(self):
        return self._output

    @property
    def names(self):
        """The variables of user code."""
        return self._names

    @property
    def tasks(self):
        """Tasks of the guest's loop that have not ended."""
        return self._tasks

    def note(self, text):
        """Add a remark to the reply of the current run."""
        text = outputs.clean(text)
        if len(self._notes) < NOTES_MAX and text not in self._notes:
            self._notes.append(report.shorten(text, 2000))

    def keep_source(self, name, source):
        """Let tracebacks and `inspect` find `source` under the file name `name`."""
        lines = source.splitlines(True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        linecache.cache[name] = (len(source), None, lines, name)
        self._sources.pop(name, None)
        self._sources[name] = len(source)
        while len(self._sources) > SOURCES_MAX or (
            sum(self._sources.values()) > SOURCES_CHARS_MAX and len(self._sources) > 1
        ):
            oldest = next(iter(self._sources))
            del self._sources[oldest]
            linecache.cache.pop(oldest, None)

    def cancel_tasks(self, run=None):
        """Cancel the tasks that `run` made, or all, but for the one that executes now."""
        try:
            current = asyncio.current_task(self._loop)
        except RuntimeError:
            current = None
        for task, owner in list(self._tasks.items()):
            if (run is None or owner == run) and task is not current:
                task.cancel()

    # The loop of the guest.

    def serve(self):
        """Say hello and execute runs until the process ends."""
        interrupting.interruptible(wait)
        interrupting.interruptible(outputs.Output.wait_for_space)
        self._mend()
        self._interrupts.arm()
        _thread.stack_size(STACK_BYTES)
        self._output.start(self._memory_short)
        self._calls.start()
        _thread.start_new_thread(self._read_frames, ())
        _thread.stack_size(0)
        self._rlimits.update(set_rlimits(self._late_rlimits))
        version = "%d.%d.%d" % sys.version_info[:3]
        hello = {"python": version, "uid": os.geteuid(), "rlimits": self._rlimits}
        self._output.send(HELLO, 0, _encode(hello).encode())
        while True:
            try:
                self._serve()
            except BaseException:
                # See there. Two loops, because the inner one may be hit between two turns.
                continue

    def _serve(self):
        while True:
            try:
                self._turn()
            except BaseException:
                # Something that user code left behind raised here, such as the handler of a timer,
                # or there is no memory. The next turn starts clean.
                self._reserve = None

    def _turn(self):
        """Execute the next run, once the end of the one before is told for sure."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._leave_if_forked(1)
        if self._untold is not None:
            self._tell_little(self._untold)
        run, payload = self._next_run()
        self._untold = run
        self._run(run, payload)

    def _tell_little(self, run):
        """Tell the end of a run that left no way to tell more: no memory, as a rule."""
        for _ in range(10):
            try:
                self._interrupts.end()
                self._output.flush()
                self._untold = None
                self._output.send(DONE, run, NO_MEMORY)
                return
            except BaseException:
                gc.collect()
        _exit(137)

    def _read_frames(self):
        try:
            while True:
                kind, ident, payload = self._door.read()
                if kind == REPLY:
                    self._calls.answer(ident, payload)
                elif kind == RUN:
                    self._interrupts.queue(ident)
                    self._inbox.put((ident, payload))
                    self._wake()
                elif kind == INTERRUPT:
                    self._interrupts.ask(ident)
        except MemoryError:
            _exit(137)
        except (doors.Closed, OSError):
            _exit(0)
        except BaseException as error:
            # Without frames there is no way to tell the host; the supervisor's status is left.
            os.write(2, report.text_of(error).encode("utf-8", "backslashreplace"))
            _exit(1)

    def _wake(self):
        try:
            self._loop.call_soon_threadsafe(self._woken)
        except (AttributeError, RuntimeError):
            # The loop was closed; the main thread looks into the inbox before it waits in another.
            pass

    def _woken(self):
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @interrupting.gate
    def _next_run(self):
        """The next run from the host; earlier tasks go on until it comes, and have a turn if it is there
        already."""
        failures = 0
        turned = not self._tasks
        while True:
            if turned:
                try:
                    return self._inbox.get_nowait()
                except Empty:
                    pass
            turned = True
            try:
                self._leave_if_forked(0)
                self._mend()
                self._waiter = self._loop.create_future()
                if not self._inbox.empty():
                    self._waiter.set_result(None)
                self._loop.run_until_complete(self._waiter)
                failures = 0
            except BaseException:
                # A late task ended with SystemExit, stopped the loop, or the loop itself is broken.
                failures += 1
                if failures % 10 == 0:
                    # The loop does not work any more. Its tasks are lost.
                    self._loop = None
                if failures > 100:
                    return self._inbox.get()

    def _run(self, run, payload):
        """Execute one run and tell the host how it ended."""
        self._notes = []
        self._output.run = run
        outputs.run_of_context.set(run)
        end = {"status": "ok", "result": None, "error": None, "exit_code": None}
        error = None
        try:
            if payload is None:
                raise MemoryError("the code did not fit into the sandbox's memory")
            request = loads(payload)
            self._mend()
            self._restore()
            self._runtime.begin(run, request)
            if self._interrupts.begin(run):
                end["result"] = self._execute(request)
                hit = self._interrupts.end()
            else:
                end["status"] = "interrupted"
                hit = False
        except BaseException as raised:
            if isinstance(raised, MemoryError):
                self._reserve = None
            hit = self._interrupts.end()
            error = raised
        self._leave_if_forked(0, error)
        if error is not None:
            self._tell(end, error, hit)
        try:
            self._runtime.end(run, error is None)
        except BaseException:
            # Notes are lost then, nothing else.
            self._memory_short()
        if end["status"] == "interrupted":
            self._calls.cancel_run(run)
            self.cancel_tasks(run)
        self._undo()
        end["notes"] = self._notes
        told = _encode(end).encode("utf-8")
        self._output.flush()
        self._untold = None
        self._output.send(DONE, run, told)

    def _tell(self, end, error, hit):
        """Put how the code was ended by `error` into `end`."""
        if hit and isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
            end["status"] = "interrupted"
        elif isinstance(error, SystemExit):
            end["status"] = "exit"
            end["exit_code"] = self._exit_code(error)
            return
        else:
            end["status"] = "error"
        try:
            told = report.describe(error)
        except BaseException:
            told = {"type": type(error).__name__, "message": "", "traceback": ""}
        end["error"] = {name: outputs.clean(text) for name, text in told.items()}

    def _exit_code(self, error):
        code = error.code
        if code is None:
            return 0
        if isinstance(code, int):
            return max(-(1 << 63), min(int(code), (1 << 63) - 1))
        try:
            text = str(code)
        except BaseException:
            text = type(code).__name__
        self._output.write(doors.STDERR, text + "\n")
        return 1

    # User code.

    @interrupting.gate
    def _execute(self, request):
        """Execute the code; the repr of its value, unless that is None."""
        name = request["name"]
        self._runtime.define_saved_tools()
        source = request["code"].lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self.keep_source(name, source)
        body, last = compile_run(source, name)
        value = None
        if is_coroutine(body) or is_coroutine(last):
            value = self._drive(self._awaited(body, last))
        else:
            if body is not None:
                exec(body, self._names)
            if last is not None:
                value = eval(last, self._names)
                if inspect.isawaitable(value):
                    value = self._drive(_await(value))
        if value is None:
            return None
        return bounded_repr(value)

    @interrupting.gate
    async def _awaited(self, body, last):
        if is_coroutine(body):
            await eval(body, self._names)
        elif body is not None:
            exec(body, self._names)
        if last is None:
            return None
        value = eval(last, self._names)
        if is_coroutine(last):
            value = await value
        if inspect.isawaitable(value):
            value = await value
        return value

    @interrupting.gate
    def _drive(self, coroutine):
        """Run the loop until `coroutine` has ended."""
        task = self._loop.create_task(coroutine)

        def cancel():
            task.cancel()
            # The loop may be waiting; a signal alone does not wake it.
            self._loop.call_soon_threadsafe(_nothing)

        self._interrupts.cancel = cancel
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done() and not self._loop.is_closed():
                # Another task raised through the loop. This one gets the chance to clean up.
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}, timeout=SETTLE_S))
            if task.done() and not task.cancelled():
                task.exception()
            raise
        finally:
            self._interrupts.cancel = None

    # What a run must find in order, whatever the one before did.

    def _mend(self):
        """A loop that runs, current in this thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self._tasks = {}
            loop = Loop()
            loop.set_exception_handler(self._late_error)
            self._loop = loop
        loop.set_task_factory(self._make_task)
        if not _LOOP_METHODS.isdisjoint(vars(loop)):
            for name in vars(loop).keys() & _LOOP_METHODS:
                del vars(loop)[name]
        # `loop.stop()` outside of a turn would end the next one at once.
        loop._stopping = False
        asyncio._set_running_loop(None)
        try:
            asyncio.set_event_loop(loop)
        except BaseException:
            asyncio.set_event_loop_policy(None)
            asyncio.set_event_loop(loop)

    def _restore(self):
        """Python's own things as they were, before user code executes again."""
        self._undo()
        self._output.restore_descriptors()
        outputs.replace_streams(self._output)
        outputs.carry_runs(self._output)
        sys.displayhook = self._display_then
        sys.excepthook = self._except_then
        asyncio.create_task = asyncio.tasks.create_task = self._create_task
        asyncio.run = asyncio.runners.run = self._asyncio_run
        if self._filters is None or warnings.filters[:2] != self._filters:
            # The guest's threads are no reason to warn of a fork, nor is a tool's coroutine to be
            # reported twice.
            for message in (
                r".*multi-threaded, use of fork\(\)",
                r"coroutine '(mcp_|runtime\.).*was never awaited",
            ):
                warnings.filterwarnings("ignore", message=message)
            self._filters = warnings.filters[:2]
        self._modules["__main__"] = self._module
        self._names["__name__"] = "__main__"
        self._names["__builtins__"] = builtins
        if self._reserve is None:
            try:
                self._reserve = bytearray(RESERVE_BYTES)
            except MemoryError:
                pass

    def _undo(self):
        """The part of `_restore` that the guest itself depends on between runs."""
        sys.settrace(None)
        sys.setprofile(None)
        # Without a step of Python's for each: this is most of what a small run takes.
        then, now = self._builtins_then, builtins.__dict__
        if not all(map(is_, map(now.get, then), then.values())):
            now.update(then)
        if sys.modules is not self._modules:
            sys.modules = self._modules
        if not self._modules_then.keys() <= self._modules.keys():
            for name, module in self._modules_then.items():
                self._modules.setdefault(name, module)
        try:
            if sys.getrecursionlimit() != self._recursion_then:
                sys.setrecursionlimit(self._recursion_then)
        except RecursionError:
            pass
        if not gc.isenabled():
            gc.enable()
        self._interrupts.arm()

    def _memory_short(self):
        """Memory ran out: give back the reserve."""
        self._reserve = None

    def _leave_if_forked(self, code, error=None):
        """A process that user code forked ends where the code ends; it has no host."""
        if getpid() == self._pid:
            return
        if isinstance(error, SystemExit):
            code = self._exit_code(error)
        elif error is not None:
            code = 1
            self._output.write(doors.STDERR, report.text_of(error))
        self._output.push()
        _exit(code & 255)

    # Corners of asyncio.

    def _make_task(self, loop, coroutine, **options):
        task = asyncio.Task(coroutine, loop=loop, **options)
        self._tasks[task] = self._output.current_run()
        task.add_done_callback(self._tasks_pop)
        return task

    def _tasks_pop(self, task):
        self._tasks.pop(task, None)

    def _create_task(self, coro, **options):
        """Like asyncio's, and outside of a running loop on the one that runs between runs."""
        if asyncio._get_running_loop() is not None or threading.get_ident() != _MAIN:
            return self._asyncio_then["create_task"](coro, **options)
        name = options.pop("name", None)
        task = self._loop.create_task(coro, **options)
        if name is not None:
            task.set_name(name)
        return task

    @interrupting.passage
    def _asyncio_run(self, main, **options):
        """Like asyncio's, and with a way out where that cannot work."""
        if asyncio._get_running_loop() is None:
            try:
                return self._asyncio_then["run"](main, **options)
            finally:
                if threading.get_ident() == _MAIN and not self._loop.is_closed():
                    # It leaves no loop behind; code after it finds the one it had.
                    asyncio.set_event_loop(self._loop)
        if inspect.iscoroutine(main):
            main.close()
        raise RuntimeError(
            "asyncio.run() cannot be used here, because this code already runs in an event loop; "
            "write `await ...` in its place"
        )

    def _late_error(self, loop, context):
        """What the loop has no one to tell: an exception of a task that nobody awaited."""
        text = str(context.get("message") or "Error in the event loop") + "\n"
        error = context.get("exception")
        if error is not None:
            text += report.shorten(report.text_of(error))
        source = context.get("task") or context.get("future")
        name = getattr(source, "get_name", None)
        if name is not None:
            text = "%s: %s" % (name(), text)
        self._output.write(doors.STDERR, text)


class Loop(asyncio.SelectorEventLoop):
    """The loop that lives as long as the guest."""

    @interrupting.passage
    def run_until_complete(self, future):
        if self.is_running():
            if inspect.iscoroutine(future):
                future.close()
            raise RuntimeError(
                "this event loop is already running; write `await ...` in place of "
                "`loop.run_until_complete(...)`"
            )
        return super().run_until_complete(future)


def compile_run(source, name):
    """Code of the statements and code of the last expression, each None if there is none."""
    tree = compile(source, name, "exec", ast.PyCF_ONLY_AST | _COMPILE, dont_inherit=True)
    body = last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    flags = _COMPILE
    if tree.body:
        body = compile(tree, name, "exec", flags, dont_inherit=True)
        flags |= body.co_flags & _FUTURES
    if last is not None:
        last = compile(last, name, "eval", flags, dont_inherit=True)
    return body, last


def is_coroutine(code):
    return code is not None and bool(code.co_flags & inspect.CO_COROUTINE)


def _nothing():
    pass


@interrupting.gate
async def _await(value):
    return await value


@interrupting.gate
def bounded_repr(value):
    """The repr of `value`, cut at a bound that says how much there was."""
    text = outputs.clean(repr(value))
    if len(text) > RESULT_MAX:
        text = "%s… (%d characters in all)" % (text[:RESULT_MAX], len(text))
    return text


_LOOP_METHODS = frozenset(name for name in dir(Loop) if callable(getattr(Loop, name)))
_MAIN = threading.get_ident()
_exit = os._exit
