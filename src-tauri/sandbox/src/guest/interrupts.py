"""Bring the host's interrupt to the code of exactly one run.

An interrupt is a SIGINT to the main thread. The handler looks at where that thread is: in user code
it raises KeyboardInterrupt; in the event loop with nothing of the user's on the stack it cancels
the run's task; in the guest's own code it does nothing, and the thread that sends tries again a
moment later. So the guest's own code is never torn, none is lost, and none arrives late: the
handler compares run ids in the very thread that changes them.
"""

import asyncio
import os
import selectors
import signal
import threading
import time
import _thread

AGAIN_S = 0.002

_ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep
_SELECTORS = selectors.__file__
_LOOP_TURN = asyncio.base_events.BaseEventLoop._run_once.__code__
_OWN = "<guest "

# Functions of ours that wait and hold nothing: an interrupt may raise in them.
_waits = set()


def interruptible(function):
    """Mark `function` as one in which an interrupt may raise."""
    _waits.add(function.__code__)
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
        # Cancels the task that the loop runs for the current run.
        self.cancel = None
        self._handler = self._on_signal

    def arm(self):
        """Install the handler; again before each run, in case user code has its own."""
        signal.signal(signal.SIGINT, self._handler)

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
        _thread.start_new_thread(self._deliver, (run,))

    def _deliver(self, run):
        while self._wanted == run or run in self._stopped:
            signal.pthread_kill(self._main, signal.SIGINT)
            if signal.getsignal(signal.SIGINT) is not self._handler:
                # User code handles SIGINT itself: it gets the signal once, like any program.
                with self._lock:
                    if self._wanted == run:
                        self._wanted = None
                        self._hit = True
                if run not in self._stopped:
                    return
            time.sleep(AGAIN_S)

    def _on_signal(self, _number, frame):
        running = self._running
        place = _place(frame)
        if running is None:
            # Between runs: a late task that blocks the thread, and with it the run to be stopped.
            if self._stopped and place == "user":
                raise KeyboardInterrupt
            return
        if self._wanted is None:
            # A signal that user code sent itself.
            if place == "user":
                raise KeyboardInterrupt
            return
        if self._wanted != running or place == "own":
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
        name = code.co_filename
        if name.startswith(_OWN):
            return "user" if seen_other else "loop" if code.co_name == "_drive" else "own"
        if not (name.startswith(_ASYNCIO) or name == _SELECTORS or name == "<frozen selectors>"):
            seen_other = True
        frame = frame.f_back
    return "own"
