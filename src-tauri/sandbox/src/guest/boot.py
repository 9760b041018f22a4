"""The first Python of a guest: take the modules, split off a supervisor, start the runner.

The host passes this text to `python3 -I -B -u -c`. It reads one message from descriptor 0: four
bytes of length, big-endian, then JSON `{"modules": {name: source}, "config": {...}}`. What follows
on descriptor 0 are frames, which only the runner reads. This file knows nothing of frames.
"""

import json
import os
import select
import signal
import sys
import time
import types

# A module set is a few hundred kilobytes; a larger length is not ours.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
# How long the host may take to send it. A host that was killed before it was connected to this
# process cannot hang up on it.
MESSAGE_WITHIN_S = 10.0
# How long the runner may take to leave by itself once the host is gone.
GONE_S = 1.0


def main():
    if not select.select([0], [], [], MESSAGE_WITHIN_S)[0]:
        sys.exit("no boot message came within %d s" % MESSAGE_WITHIN_S)
    size = int.from_bytes(read_exactly(4), "big")
    if size > MESSAGE_BYTES_MAX:
        sys.exit("the boot message claims %d bytes, more than %d" % (size, MESSAGE_BYTES_MAX))
    message = json.loads(read_exactly(size))
    try:
        child = os.fork()
    except (AttributeError, OSError):
        child = None
    if child:
        message = None
        supervise(child)
    if child == 0:
        os.setsid()
    # The copy of the builtins is ours alone: what user code does to the real ones cannot reach
    # the guest's own modules.
    own_builtins = dict(vars(__import__("builtins")))
    load(message["modules"], own_builtins)
    sys.modules["_runbridge.runner"].main(message.get("config") or {})


def read_exactly(size):
    pieces = []
    while size:
        piece = os.read(0, min(size, 1 << 20))
        if not piece:
            os._exit(0)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def load(sources, own_builtins):
    """Make the package `_runbridge` out of source texts; each module loads where it is imported."""
    from importlib.machinery import ModuleSpec

    class Loader:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("_runbridge.") and name[11:] in sources:
                return ModuleSpec(name, self)
            return None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            name = module.__name__[11:]
            module.__dict__["__builtins__"] = own_builtins
            exec(compile(sources[name], "<guest %s>" % name, "exec"), module.__dict__)

    package = types.ModuleType("_runbridge")
    package.__path__ = []
    sys.modules["_runbridge"] = package
    loader = Loader()
    sys.meta_path.insert(0, loader)
    try:
        __import__("_runbridge.runner")
    finally:
        sys.meta_path.remove(loader)


def supervise(child):
    """Reap every process, notice that the host is gone, leave with the runner's status.

    Often process 1 of a container, where orphans end up here and where leaving ends them all.
    Waits in `poll` only: signals come through a descriptor.
    """
    if os.getpid() != 1:
        adopt_orphans()
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    told = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: told.append(number))
    # The runner alone writes frames.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)

    poll = select.poll()
    # No POLLIN: the bytes are the runner's, only the hang-up is ours.
    poll.register(0, getattr(select, "POLLRDHUP", 0))
    poll.register(wake, select.POLLIN)
    deadline = None
    while True:
        code = reap(child)
        if code is None and told:
            code = 128 + told[0]
        if code is None and deadline is not None and time.monotonic() >= deadline:
            code = 128 + signal.SIGKILL
        if code is not None:
            if code == 128 + signal.SIGKILL:
                tell_oom_kills()
            end_all(child)
            os._exit(code)
        left_ms = None
        if deadline is not None:
            left_ms = max(1, int((deadline - time.monotonic()) * 1000) + 1)
        for fd, _ in poll.poll(left_ms):
            if fd == wake:
                try:
                    os.read(wake, 4096)
                except BlockingIOError:
                    pass
            elif deadline is None:
                poll.unregister(0)
                deadline = time.monotonic() + GONE_S


def tell_oom_kills():
    """Write to stderr, where the host looks, how many processes of this container the kernel has
    killed for memory: from outside, that looks like any other SIGKILL."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path, "rb") as file:
                lines = file.read().splitlines()
            for line in lines:
                if line.startswith(b"oom_kill "):
                    os.write(2, line + b"\n")
        except OSError:
            pass


def reap(child):
    """Collect all ended processes; the exit code of `child` if it was among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 1 if code is None else code
        if pid == 0:
            return code
        if pid == child:
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def adopt_orphans():
    """Become the parent of orphans below, as process 1 is by nature."""
    try:
        import ctypes

        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        # What leaves the runner's session is out of reach then. A container ends it anyway.
        pass


def end_all(child):
    """End what the runner left. As process 1 that is everything and happens by leaving; elsewhere
    it is the runner's session and all processes below this one, and nothing else."""
    if os.getpid() == 1:
        return
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline:
        targets = family(child)
        if not targets:
            return
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        reap(child)
        time.sleep(0.005)


def family(child):
    """Processes in the session of `child` or below this process, from /proc."""
    own = os.getpid()
    parents, found = {}, set()
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        parents[int(name)] = int(fields[1])
        if int(fields[3]) == child and fields[0] != b"Z":
            found.add(int(name))
    for pid in parents:
        above = parents[pid]
        while above in parents and above != own:
            above = parents[above]
        if above == own:
            found.add(pid)
    found.discard(own)
    return found


main()
