"""Bring the host's interrupt to the code of exactly one run.

An interrupt is a SIGINT to the main thread. The handler looks at where that thread is: in user code
it raises KeyboardInterrupt; in the event loop with nothing of the user's on the stack it cancels
the run's task; in the guest's own code it only leaves word, which `print` heeds on its way back to
user code, and the thread that sends tries again a moment later. So the guest's own code is never
torn, no interrupt is lost, and none arrives late: the handler compares run ids in the very thread
that changes them.
"""

import asyncio
import os
import selectors
import signal
import threading
import _thread
from _signal import signal as set_handler
from time import sleep

AGAIN_S = 0.002

_SIGINT = int(signal.SIGINT)

_ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep
_SELECTORS = selectors.__file__
_LOOP_TURN = asyncio.base_events.BaseEventLoop._run_once.__code__
_OWN = "<guest "
_USER = ("<run", "<saved tool")

# Functions of ours that wait and hold nothing: an interrupt may raise in them.
_waits = set()
# Functions of ours that only stand between user code and asyncio.
_passages = set()
# Functions of ours that call user code, or the loop that does.
_gates = set()


def interruptible(function):
    """Mark `function` as one in which an interrupt may raise."""
    _waits.add(function.__code__)
    return function


def gate(function):
    """Mark `function` as one that calls user code, be it of a module that user code imported."""
    _gates.add(function.__code__)
    return function


def passage(function):
    """Mark `function` as one that is not looked at: who called it and what it called count."""
    _passages.add(function.__code__)
    return function


class Interrupts:
    """Which run executes, which is to be interrupted, and the signal between."""

    def __init__(self):
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._queued = set()
        self._stopped = set()
        self._running = None
        self._wanted = None
        self._hit = False
        # An interrupt met the guest's own code: see `settle`.
        self.owed = False
        # Cancels the task that the loop runs for the current run.
        self.cancel = None
        self._handler = self._on_signal

    def arm(self):
        """Install the handler; again before each run, in case user code has its own."""
        # Python's own way to it makes an enumeration of all that comes and goes.
        set_handler(_SIGINT, self._handler)

    def queue(self, run):
        """A run has arrived. From now on it can be interrupted."""
        with self._lock:
            self._queued.add(run)

    def begin(self, run):
        """User code of `run` starts, unless this says that it must not."""
        with self._lock:
            self._queued.discard(run)
            if run in self._stopped:
                self._stopped.discard(run)
                return False
            self._hit = False
            self._wanted = None
            self.owed = False
            self._running = run
            return True

    def end(self):
        """User code has ended; tells whether an interrupt reached it."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        with self._lock:
            self._running = None
            self._wanted = None
            return self._hit

    def ask(self, run):
        """The host wants `run` to stop. Called by the thread that reads frames."""
        with self._lock:
            if run in self._queued:
                self._stopped.add(run)
            elif run == self._running:
                self._wanted = run
            else:
                return
        try:
            _thread.start_new_thread(self._deliver, (run,))
        except RuntimeError:
            # The code that is to be stopped may have taken all the threads that there may be.
            self._deliver(run)

    def settle(self):
        """Raise what is owed; called where user code calls the guest often and nothing is held.
        A loop of prints would else meet each signal in the guest's code."""
        if threading.get_ident() != self._main:
            return
        self.owed = False
        if self._wanted is not None and self._wanted == self._running:
            self._wanted = None
            self._hit = True
            raise KeyboardInterrupt

    def _deliver(self, run):
        while True:
            # Under the lock, so that the signal is out before the run can end: the main thread
            # then meets it before it begins another.
            with self._lock:
                if self._wanted != run and run not in self._stopped:
                    return
                # A run that still waits has no business with the code of another.
                meant = self._running == run or self._running is None
                if meant:
                    signal.pthread_kill(self._main, signal.SIGINT)
            if meant and signal.getsignal(signal.SIGINT) is not self._handler:
                # User code handles SIGINT itself: it gets the signal once, like any program.
                with self._lock:
                    if self._wanted == run:
                        self._wanted = None
                        self._hit = True
                if run not in self._stopped:
                    return
            sleep(AGAIN_S)

    def _on_signal(self, _number, frame):
        running = self._running
        place = _place(frame)
        if running is None:
            # Between runs: a late task that blocks the thread, and with it the run to be stopped.
            if self._stopped and place == "user":
                raise KeyboardInterrupt
            return
        if self._wanted is None:
            # A signal that user code sent itself, or the second of two that the host's took.
            if place == "user" and not self._hit:
                raise KeyboardInterrupt
            return
        if self._wanted != running:
            return
        if place == "own":
            self.owed = True
            return
        if place == "loop":
            if self.cancel is None:
                return
            self._wanted = None
            self._hit = True
            self.cancel()
            return
        self._wanted = None
        self._hit = True
        raise KeyboardInterrupt


def _place(frame):
    """Whose code the main thread executes: `user`, `loop` or `own`."""
    if frame is not None and frame.f_code is _LOOP_TURN:
        # Between taking a callback off the loop's list and calling it: raising here would lose it.
        return "own"
    seen_other = False
    while frame is not None:
        code = frame.f_code
        if code in _waits:
            return "user"
        if code in _passages:
            frame = frame.f_back
            continue
        name = code.co_filename
        if code in _gates and seen_other:
            return "user"
        if name.startswith(_OWN):
            return "loop" if code in _gates else "own"
        if name.startswith(_USER):
            return "user"
        if not (name.startswith(_ASYNCIO) or name == _SELECTORS or name == "<frozen selectors>"):
            seen_other = True
        frame = frame.f_back
    return "own"
