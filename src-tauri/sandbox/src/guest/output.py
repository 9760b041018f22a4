"""What user code prints, on its way out: buffered, in order, under the run that printed it.

Text comes from two sides: `sys.stdout` and `sys.stderr`, which are objects of this module, and the
descriptors 1 and 2, which are pipes that child processes and raw writes fill. Both end in one list
under one lock, so the order is the order of the writes. A thread of its own sends frames, but for
small ones that the host takes at once and as a whole: an exception in the middle of a `print` cannot
tear a frame.

Knows nothing of what a run is besides its id.
"""

import collections
import concurrent.futures
import concurrent.futures.thread  # noqa: F401  (the attribute below is loaded lazily)
import contextvars
import io
import os
import select
import sys
import threading
import _thread
from os import read
from queue import Empty, SimpleQueue
from time import monotonic, sleep

from _runbridge.door import PAYLOAD_BYTES_MAX, STDERR, STDOUT, Closed

# Characters gathered before they are sent at once.
GATHER_MAX = 64 * 1024
# Bytes of one output frame.
PIECE_MAX = 1024 * 1024
# How long printed text may wait for more, so that long runs show their output as it comes.
LINGER_S = 0.03
# Bytes of a frame that the thread which made it may send itself.
SMALL_MAX = 4096 - 16
# Frames that may wait for a host that reads slowly; whoever would add one more waits too.
FRAMES_MAX = 8
# Bytes taken from a child's pipe at once.
PIPE_PIECE = 256 * 1024
# How long a flush waits for a host that does not read.
PUSH_S = 1.0

# The run that the current task or thread belongs to.
run_of_context = contextvars.ContextVar("runbridge_run")

_SOON = object()


def clean(text):
    """`text` without lone surrogates, which JSON and UTF-8 cannot carry."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


class Output:
    """Everything that leaves the guest. Frames leave in the order of `send` and `flush`."""

    def __init__(self, door, interrupts):
        self._door = door
        self._interrupts = interrupts
        # What the sending thread has before it, and a token for each to wake it.
        self._frames = collections.deque()
        self._tokens = SimpleQueue()
        # Held while something of it leaves.
        self._leaving = threading.Lock()
        self._space = threading.Event()
        self._lock = threading.Lock()
        # (kind, run, str or bytes) in the order of the writes.
        self._gathered = []
        self._size = 0
        self._timed = False
        # The run that a thread without a known run prints for, and child processes.
        self.run = 0
        self._pipes = {}
        # Own ends of these pipes, by the descriptor that they are for.
        self._writers = {}
        self._pipes_poll = select.poll()
        # In a forked child: what it has printed of its current lines, by descriptor. It prints to
        # the pipes of its parent like any other child.
        self._lines = None

    def start(self, memory_short):
        """Take over the descriptors 1 and 2 and start to send. `memory_short` is called when a
        frame could not be made for lack of memory."""
        self._memory_short = memory_short
        for fd, kind in ((1, STDOUT), (2, STDERR)):
            reader, writer = os.pipe()
            self._writers[fd] = move_up(writer)
            high = move_up(reader)
            os.set_blocking(high, False)
            self._pipes[high] = kind
            self._pipes_poll.register(high, select.POLLIN)
        self.restore_descriptors()
        _thread.start_new_thread(self._write_frames, ())
        _thread.start_new_thread(self._watch_pipes, ())
        os.register_at_fork(after_in_child=self._after_fork)

    def restore_descriptors(self):
        """The standard descriptors as they were, whatever user code did to them."""
        for fd, writer in self._writers.items():
            os.dup2(writer, fd, inheritable=True)
        try:
            os.fstat(0)
        except OSError:
            null = os.open(os.devnull, os.O_RDONLY)
            if null != 0:
                os.dup2(null, 0)
                os.close(null)
            os.set_inheritable(0, True)

    def send(self, kind, ident, payload):
        """Send one frame behind everything sent before."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(
                "%d bytes are more than can leave the sandbox at once (%d)"
                % (len(payload), PAYLOAD_BYTES_MAX)
            )
        self.wait_for_space()
        if not self._leave_at_once(kind, ident, payload):
            self._put((kind, ident, payload))

    def _leave_at_once(self, kind, ident, payload):
        """Send a small frame from this thread if nothing is before it and the host takes it now:
        to wake another thread takes longer than that."""
        if len(payload) > SMALL_MAX or self._frames or self._leaving.locked():
            return False
        # By `with`: an exception of a signal's handler cannot come between taking and holding it.
        with self._leaving:
            if self._frames or not self._door.takes_small():
                return False
            try:
                self._door.write(kind, ident, payload)
            except Closed:
                _exit_now(0)
            return True

    def _put(self, item):
        self._frames.append(item)
        self._tokens.put(None)

    def write(self, kind, piece):
        """Add printed text or bytes."""
        if self._lines is not None:
            self._write_lines(1 if kind == STDOUT else 2, encode(piece))
            return
        self.wait_for_space()
        run = self.current_run()
        with self._lock:
            if self._pipes_poll.poll(0):
                # A child wrote before this.
                self._drain()
            self._gather(kind, run, piece)
        if self._interrupts.owed:
            self._interrupts.settle()

    def flush(self):
        """Hand all that was printed so far to the sending thread, children's output included."""
        if self._lines is not None:
            self._write_lines(1, b"", True)
            self._write_lines(2, b"", True)
            return
        self.wait_for_space()
        with self._lock:
            self._drain()
            self._seal()

    def push(self):
        """Flush, and wait a bounded time until it has left: what was flushed is not lost in a
        crash, nor held back by code that lets no other thread work."""
        if self._lines is not None:
            self.flush()
            return
        sent = threading.Event()
        if self._lock.acquire(timeout=PUSH_S):
            try:
                self._drain()
                self._seal()
            finally:
                self._lock.release()
        self._put(sent)
        sent.wait(PUSH_S)

    def current_run(self):
        """The run that the calling task or thread belongs to."""
        run = run_of_context.get(None)
        if run is None:
            run = getattr(threading.current_thread(), "_runbridge_run", None)
            if run is None:
                return self.run
            run_of_context.set(run)
        return run

    def wait_for_space(self):
        """Block while the host is that far behind. May be interrupted: nothing is held here."""
        while len(self._frames) >= FRAMES_MAX:
            self._space.clear()
            if len(self._frames) >= FRAMES_MAX:
                self._space.wait(1.0)

    def _gather(self, kind, run, piece):
        self._gathered.append((kind, run, piece))
        self._size += len(piece)
        if self._size >= GATHER_MAX:
            self._seal()
        elif not self._timed:
            self._timed = True
            self._put(_SOON)

    def _seal(self):
        if self._gathered:
            gathered, self._gathered, self._size = self._gathered, [], 0
            self._put(gathered)

    def _drain(self):
        """Take what the pipes hold now, at most a little more than a pipe can hold."""
        for fd, kind in self._pipes.items():
            for _ in range(8):
                try:
                    piece = read(fd, PIPE_PIECE)
                except OSError:
                    break
                if not piece:
                    break
                self._gather(kind, self.run, piece)

    def _watch_pipes(self):
        poll = select.poll()
        for fd in self._pipes:
            poll.register(fd, select.POLLIN)
        while True:
            try:
                ready = poll.poll()
                self.wait_for_space()
                with self._lock:
                    self._drain()
                if any(flags & select.POLLHUP for _, flags in ready):
                    # User code closed descriptor 1 or 2; a new writer may still appear.
                    sleep(LINGER_S)
            except MemoryError:
                self._memory_short()
                sleep(LINGER_S)

    def _write_frames(self):
        flush_at = None
        while True:
            try:
                left = None if flush_at is None else max(0.0, flush_at - monotonic())
                self._tokens.get(timeout=left)
                # All there is: an item whose token was lost for lack of memory is not left behind.
                while self._frames:
                    with self._leaving:
                        item = self._frames.popleft()
                        if item is _SOON:
                            flush_at = monotonic() + LINGER_S
                        else:
                            self._write_item(item)
                    if not self._space.is_set():
                        self._space.set()
            except Empty:
                flush_at = None
                with self._lock:
                    self._timed = False
                    self._seal()
            except MemoryError:
                self._memory_short()
                sleep(LINGER_S)

    def _write_item(self, item):
        while True:
            try:
                if isinstance(item, list):
                    for frame in output_frames(item):
                        self._door.write(*frame)
                elif isinstance(item, tuple):
                    self._door.write(*item)
                else:
                    item.set()
                return
            except MemoryError:
                self._memory_short()
                sleep(LINGER_S)
                # Some of a list may have left already: say less rather than say it twice.
                if isinstance(item, list):
                    return
            except Closed:
                _exit_now(0)

    def _write_lines(self, fd, data, all_of_it=False):
        """Write whole lines at once, so that those of several children do not mix."""
        held = self._lines.pop(fd, b"") + data
        if b"\n" in data or all_of_it or len(held) >= GATHER_MAX:
            with memoryview(held) as view:
                done = 0
                while done < len(held):
                    done += os.write(fd, view[done:])
        else:
            self._lines[fd] = held

    @property
    def forked(self):
        """Whether this is a process that user code forked."""
        return self._lines is not None

    def _after_fork(self):
        self._lines = {}
        self._door.close()
        # The child has its own copies of what it prints to, as the descriptors 1 and 2.
        for fd in (*self._pipes, *self._writers.values()):
            try:
                os.close(fd)
            except OSError:
                pass


def output_frames(gathered):
    """Group neighbours of one stream and run; cut what is larger than a frame should be."""
    parts, size, label = [], 0, None
    for kind, run, piece in gathered:
        if parts and (label != (kind, run) or size + len(piece) > PIECE_MAX // 4):
            yield label[0], label[1], b"".join(parts)
            parts, size = [], 0
        label = (kind, run)
        if len(piece) <= PIECE_MAX // 4:
            parts.append(encode(piece))
            size += len(piece)
            continue
        # A character takes up to 10 bytes as `\Udeadbeef`, commonly 1 to 4.
        for start in range(0, len(piece), PIECE_MAX // 4):
            part = encode(piece[start : start + PIECE_MAX // 4])
            for cut in range(0, len(part), PIECE_MAX):
                yield kind, run, part[cut : cut + PIECE_MAX]
    if parts:
        yield label[0], label[1], b"".join(parts)


def encode(piece):
    if isinstance(piece, str):
        return piece.encode("utf-8", "backslashreplace")
    return piece


def move_up(fd):
    """The same open file under a high number that programs do not inherit: code which closes or
    reuses low descriptors does not meet it."""
    import fcntl
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    base = 1000 if limit == resource.RLIM_INFINITY else max(3, min(limit, 1024) - 16)
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)
    if fd > 2:
        os.close(fd)
    return high


class TextStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`: like the file that Python would have there, but never an
    encoding error, and nothing that user code does closes it."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = False
    write_through = False
    mode = "w"

    def __init__(self, output, kind, name, fd):
        super().__init__()
        self._output = output
        self._put = output.write
        self._kind = kind
        self._fd = fd
        self.name = name
        self.buffer = ByteStream(output, kind, name, fd)

    def write(self, text):
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError("write() argument must be str, not %s" % type(text).__name__)
            text = str.__str__(text)
        if text:
            self._put(self._kind, text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def isatty(self):
        return False

    def flush(self):
        self._output.push()

    def reconfigure(self, **_):
        """Accepted and without effect: the stream is UTF-8 and flushed in time."""

    def close(self):
        pass

    def detach(self):
        raise io.UnsupportedOperation("detach")


class ByteStream(io.BufferedIOBase):
    """The `.buffer` of a text stream."""

    mode = "wb"

    def __init__(self, output, kind, name, fd):
        super().__init__()
        self._output = output
        self._put = output.write
        self._kind = kind
        self._fd = fd
        self.name = name

    def write(self, data):
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        data = bytes(data)
        if data:
            self._put(self._kind, data)
        return len(data)

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def isatty(self):
        return False

    def flush(self):
        self._output.push()

    def close(self):
        pass


_exit_now = os._exit
_Thread = threading.Thread
_thread_start = _Thread.start
_Pool = concurrent.futures.ThreadPoolExecutor
_executor_submit = _Pool.submit


def carry_runs(output):
    """Let threads print under the run that started them, and a pool's threads under the run that
    gave them the work. Called again before each run, in case user code undid it."""
    threading.Thread = _Thread
    _Thread.start = _Carry.start
    _Pool.submit = _Carry.submit
    os._exit = _Carry.leave
    _Carry.output = output


class _Carry:
    output = None

    def start(self):
        self._runbridge_run = _Carry.output.current_run()
        return _thread_start(self)

    def submit(self, fn, /, *args, **kwargs):
        return _executor_submit(self, _in_run, _Carry.output.current_run(), fn, args, kwargs)

    def leave(status):
        # What was printed before `os._exit` has been printed, as far as anyone can tell.
        try:
            _Carry.output.push()
        finally:
            _exit_now(status)


def _in_run(run, fn, args, kwargs):
    run_of_context.set(run)
    return fn(*args, **kwargs)


def replace_streams(output):
    """Put fresh standard streams in place, whatever was there."""
    sys.stdout = sys.__stdout__ = TextStream(output, STDOUT, "<stdout>", 1)
    sys.stderr = sys.__stderr__ = TextStream(output, STDERR, "<stderr>", 2)
    sys.stdin = sys.__stdin__ = _standard_input()


# The standard input, and what could be seen of it when it was opened.
_input = _input_then = None


def _standard_input():
    """Descriptor 0 is /dev/null: every read meets the end, so `input()` raises EOFError. It is opened
    again only if user code did something to it."""
    global _input, _input_then
    try:
        if not _input.closed and _look_of(_input) == _input_then:
            return _input
    except (AttributeError, ValueError):
        # None yet, or taken apart.
        pass
    _input = open(0, encoding="utf-8", closefd=False)
    _input_then = _look_of(_input)
    return _input


def _look_of(stream):
    return dict(vars(stream)), stream.encoding, stream.errors
