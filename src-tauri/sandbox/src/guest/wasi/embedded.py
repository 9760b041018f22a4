"""The guest without processes, threads and descriptors: what takes their place.

One thread does everything: it takes frames in when it
waits, be it in the event loop or for one answer, and an interrupt comes as a SIGINT that the host
leaves where Python's signal handler would. All else is the guest that runs in a container.
"""

import asyncio
import linecache
import random
import sys
from asyncio import base_events
from json import dumps

# First: the others are made from what it puts in place.
from _runbridge import missing  # noqa: F401


class Selector:
    """What an event loop sleeps on: the frames that come in."""

    def select(self, timeout=None):
        runner.pump(timeout)
        if runner.idle is not None:
            if runner.waiting():
                runner.idle(0)
            elif timeout is None or timeout > 0:
                runner.idle(timeout)
        return []

    def close(self):
        pass

    def get_map(self):
        return {}


class Loop(base_events.BaseEventLoop):
    """An event loop for code that waits for calls and time, and for nothing else."""

    def __init__(self, selector=None):
        super().__init__()
        self._selector = Selector()

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        # Nobody else could have to be woken.
        pass


asyncio.SelectorEventLoop = asyncio.EventLoop = Loop
asyncio.DefaultEventLoopPolicy._loop_factory = Loop

from _runbridge import interrupts as interrupting  # noqa: E402
from _runbridge import output as outputs  # noqa: E402
from _runbridge import calls as calling  # noqa: E402
from _runbridge import door  # noqa: E402
from _runbridge.door import HELLO, PAYLOAD_BYTES_MAX, REPLY, RUN  # noqa: E402


class Interrupts(interrupting.Interrupts):
    """The host marks a SIGINT, again and again until it hears that the interrupt has arrived."""

    def end(self):
        self._running = None
        self._wanted = None
        return self._hit

    def _on_signal(self, number, frame):
        running = self._running
        if running is None:
            # A late task keeps the next run from being begun.
            if interrupting._place(frame) == "user":
                door.heeded()
                raise KeyboardInterrupt
            return
        if self._hit:
            door.heeded()
            return
        self._wanted = running
        super()._on_signal(number, frame)
        if self._hit:
            door.heeded()


class Output(outputs.Output):
    """The host gathers what is printed, so that every piece can go at once."""

    forked = False

    def __init__(self, _, interrupts):
        self._interrupts = interrupts
        self.run = 0

    def send(self, kind, ident, payload):
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(
                "%d bytes are more than can leave the sandbox at once (%d)"
                % (len(payload), PAYLOAD_BYTES_MAX)
            )
        door.send(kind, ident, payload)

    def write(self, kind, piece):
        run = self.current_run()
        for frame in outputs.output_frames([(kind, run, piece)]):
            door.send(*frame)
        if self._interrupts.owed:
            self._interrupts.settle()

    def restore_descriptors(self):
        # The host lets nobody close them.
        pass

    def flush(self):
        pass

    def push(self):
        pass

    def wait_for_space(self):
        pass


class Calls(calling.Calls):
    """Whoever waits for an answer takes in what comes until it is there."""

    def start(self):
        pass

    def sync(self, method, params, hook=None):
        box = []
        ident = self._send(method, params, box.append)
        try:
            _wait_for(box)
        finally:
            if not box:
                self._forget(ident)
        return calling._value(box[0], hook)

    def _settle(self, loop, future, payload):
        # The thread that reads is the loop's own.
        calling.settle(future, payload)


@interrupting.interruptible
def _wait_for(box):
    while not box:
        runner.pump(None)


interrupting.passage(Selector.select)

interrupting.Interrupts = Interrupts
outputs.Output = Output
calling.Calls = Calls

from _runbridge import runner as running  # noqa: E402

# The host lets a guest that is out of memory have a little more: a reserve of its own would be written
# when the first run begins, and looked through after each.
running.RESERVE_BYTES = 0


REHEARSED = "<rehearsal>"
REHEARSAL = dumps({"code": "print(end='')\nNone", "name": REHEARSED})


def _told_to_nobody(*_):
    pass


class Runner(running.Runner):
    """The runner by turns: each does what there is to do, and says when there will be more."""

    def __init__(self):
        self.idle = None
        self._greeted = False
        # No run, nor anything like one, has been here.
        self._fresh = True
        self._wake_in = None
        super().__init__(None, {})

    def turn(self):
        """One run, or what earlier ones left to do. The host keeps a copy of the guest after each,
        so that no run is done before the one ahead of it is kept."""
        if not self._greeted:
            self._greet()
            return 0
        self.pump(0)
        # Tasks have a turn even if the next run is there already.
        if self._tasks or not self.waiting():
            self._pass_time()
        if not self.waiting():
            if self._fresh:
                self._rehearse()
                return 0
            return self._wake_in
        self._fresh = False
        run, payload = self._inbox.get_nowait()
        try:
            self._run(run, payload)
        except BaseException:
            # Something that user code left behind raised here. The next turn starts clean.
            pass
        return 0

    @interrupting.passage
    def pump(self, timeout):
        """Take in the frames that are there, or wait for one that long."""
        frame = door.receive(timeout if self.idle is None else 0)
        while frame is not None:
            kind, ident, payload = frame
            if kind == REPLY:
                self._calls.answer(ident, payload)
            elif kind == RUN:
                self._inbox.put((ident, payload))
            frame = door.receive(0)

    def waiting(self):
        """Whether a run waits to be executed."""
        return not self._inbox.empty()

    def _greet(self):
        self._greeted = True
        # Frozen with all else, and the same in every guest.
        random.seed()
        self._mend()
        self._interrupts.arm()
        version = "%d.%d.%d" % sys.version_info[:3]
        hello = {"python": version, "uid": 65534, "rlimits": {}}
        self._output.send(HELLO, 0, dumps(hello).encode())

    def _rehearse(self):
        """Run nothing, while nobody waits. The first write to each page of memory costs more than what
        Python does there, and this makes most of those of a first run."""
        self._fresh = False
        names = dict(self._names)
        self._output.send = _told_to_nobody
        try:
            self._run(0, REHEARSAL)
        except BaseException:
            # The first run will meet what stands in the way, and tell of it.
            pass
        finally:
            del self._output.send
            self._names.clear()
            self._names.update(names)
            self._sources.clear()
            linecache.cache.pop(REHEARSED, None)

    @interrupting.gate
    def _pass_time(self):
        """Let the tasks of earlier runs do what they can without waiting."""
        self._wake_in = None
        try:
            self._mend()
            waiter = self._loop.create_future()

            def idle(timeout):
                # The loop would wait now: that is for the host to do.
                if not waiter.done():
                    self._wake_in = timeout
                    waiter.set_result(None)

            self.idle = idle
            self._loop.run_until_complete(waiter)
        except BaseException:
            # A late task ended with SystemExit, stopped the loop, or the loop itself is broken.
            self._failures += 1
            if self._failures % 10 == 0:
                self._loop = None
            self._wake_in = 0
        else:
            self._failures = 0
        finally:
            self.idle = None

    _failures = 0


def start():
    """Make the guest, and have the host call it for every turn."""
    global runner
    running.set_environment()
    runner = Runner()
    door.on_turn(runner.turn)


runner = None
