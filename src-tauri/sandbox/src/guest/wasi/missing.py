"""What the built-in sandbox lacks, and what code that reaches for it is told to use instead.

A function of Python's that cannot work here is replaced by one that says so. A module or a name that
is not here at all is missed as in any Python, by `ImportError` or `AttributeError`, so that code which
tries it first takes its other way; only the words are ours. Knows nothing of runs and frames.
"""

import _thread
import asyncio
import ftplib
import http.client
import imaplib
import importlib.abc
import multiprocessing.context
import multiprocessing.pool
import multiprocessing.process
import os
import platform
import poplib
import select
import signal
import smtplib
import socket
import subprocess
import sys
import threading
import time
from asyncio import base_events
from concurrent.futures import process as process_pools

from _runbridge import packages

CONTAINER = "switch to Container in Sandbox settings"
NO_THREADS = (
    "the built-in sandbox has no threads; use `await`, `asyncio.gather` or `asyncio.create_task`, or "
    + CONTAINER
)
NO_NETWORK = "the sandbox has no network; use the tools of a server"
NO_PROCESSES = "the built-in sandbox has no processes; " + CONTAINER
NO_SIGNALS = (
    "the built-in sandbox has no signals of the system; use `asyncio.timeout` to bound a wait, and "
    "the argument `timeout` of the tool to bound a run"
)

# Modules by what to say of them: the name that is looked for first takes the place of `%s`.
MODULES = {
    # Not pure Python, or a part of Python that needs another system: nothing of it can be loaded here.
    "%s is not in the built-in sandbox; " + CONTAINER: """
        _ctypes _dbm _gdbm bokeh cffi Crypto cryptography cv2 Cython dask docx duckdb fcntl fitz fpdf
        gensim grp h5py lxml matplotlib mmap nltk numba numpy pandas PIL polars pptx psutil psycopg2
        pwd pyarrow pydantic pydantic_core reportlab resource scipy seaborn shapely skimage sklearn
        spacy spwd sqlalchemy statsmodels syslog tensorflow torch transformers xgboost
    """,
    # No sandbox has one, so that the other kind would be no way out.
    "%s is not here, for the sandbox has no network; use the tools of a server": """
        _ssl aiohttp anthropic azure boto3 botocore google grpc httplib2 httpx openai paramiko pycurl
        pymongo pymysql redis requests selenium telethon urllib3 websocket websockets yfinance
    """,
    "%s is not here, for the sandbox has neither screen nor terminal; use `print`, or `display` for a "
    "picture": """
        _curses _tkinter curses idlelib pyautogui pygame pyreadline3 PyQt5 PyQt6 readline termios
        tkinter turtle turtledemo wx
    """,
    "%s is not here, for the sandbox has no network to install from; `runtime.install` has the host "
    "install packages": """
        ensurepip pip setuptools uv venv virtualenv wheel
    """,
    "%s is not in the built-in sandbox, which has no processes; " + CONTAINER: """
        _multiprocessing _posixshmem _posixsubprocess pexpect ptyprocess sh
    """,
    "%s is a part of Python on Windows, and the sandbox runs on none": """
        _winapi _winreg msvcrt nt pythoncom pywintypes win32api win32com winreg winsound
    """,
}

# Pure Python whose package has another name than its module.
PACKAGES = {
    "attr": "attrs",
    "odf": "odfpy",
    "slugify": "python-slugify",
}

# Names of a module that is here, in the same way.
NAMES = {
    os: {
        "os.%s is not in the built-in sandbox, which has no processes; " + CONTAINER: """
            execv execve fork forkpty getpgid getpgrp getppid getpriority getsid kill killpg login_tty
            nice openpty pidfd_open pipe pipe2 posix_spawn posix_spawnp register_at_fork
            sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam
            sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setparam
            sched_setscheduler setpgid setpgrp setpriority setsid spawnl spawnle spawnlp spawnlpe
            spawnv spawnve spawnvp spawnvpe tcgetpgrp tcsetpgrp wait wait3 wait4 waitid waitpid
            waitstatus_to_exitcode
        """,
        "os.%s is not in the built-in sandbox, which has one user and no rights to change; "
        + CONTAINER: """
            chown chroot fchmod fchown getegid geteuid getgid getgrouplist getgroups getlogin
            getresgid getresuid getuid initgroups lchown setegid seteuid setgid setgroups setregid setresgid
            setresuid setreuid setuid umask
        """,
        "os.%s is not in the built-in sandbox; " + CONTAINER: """
            copy_file_range ctermid dup2 eventfd eventfd_read eventfd_write fchdir fstatvfs fwalk
            getloadavg getrandom getxattr listxattr lockf memfd_create mkfifo mknod posix_fallocate
            preadv pwritev readv removexattr sendfile setxattr splice statvfs sync timerfd_create
            timerfd_gettime timerfd_gettime_ns timerfd_settime timerfd_settime_ns ttyname writev
        """,
        "os.%s is not here, for the sandbox has no terminal; use `shutil.get_terminal_size`": """
            get_terminal_size
        """,
    },
    signal: {
        NO_SIGNALS: """
            alarm getitimer pause pidfd_send_signal pthread_kill pthread_sigmask setitimer siginterrupt
            sigpending sigtimedwait sigwait sigwaitinfo
        """,
    },
    socket: {
        NO_NETWORK: """
            AF_UNIX gethostname if_indextoname if_nameindex if_nametoindex inet_ntoa recv_fds
            send_fds sethostname
        """,
    },
    time: {
        "time.%s is not in the built-in sandbox; use `zoneinfo` for the time of another place": "tzset",
        "time.%s is not in the built-in sandbox; use `time.process_time`": "thread_time thread_time_ns",
        "time.%s is not in the sandbox, which may not set the clock": "clock_settime clock_settime_ns",
    },
}

# Methods of event loops that asyncio itself leaves without an answer.
LOOP = {
    NO_NETWORK: """
        connect_accepted_socket create_connection create_datagram_endpoint create_server
        create_unix_connection create_unix_server getaddrinfo getnameinfo sendfile sock_accept
        sock_connect sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall
        sock_sendfile sock_sendto start_tls
    """,
    NO_PROCESSES: "connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell",
}
LOOP_AT_ONCE = {
    NO_NETWORK: "add_reader add_writer remove_reader remove_writer",
    NO_SIGNALS: "add_signal_handler remove_signal_handler",
}

# What `multiprocessing` and its contexts make.
SHARED = """
    Array Barrier BoundedSemaphore Condition Event JoinableQueue Lock Manager Pipe Pool Queue RLock
    RawArray RawValue Semaphore SimpleQueue Value
""".split()


def refuse(error, told):
    """A function that raises, whatever it is called with."""

    def refused(*_, **__):
        raise error(told)

    return refused


def refuse_awaited(error, told):
    """As above, for one that is awaited."""

    async def refused(*_, **__):
        raise error(told)

    return refused


class Finder(importlib.abc.MetaPathFinder):
    """The last to be asked for a module: it has none, and says what that means."""

    def __init__(self):
        self._told = {}
        for told, names in MODULES.items():
            for name in names.split():
                self._told[name] = told % name.lstrip("_")

    def find_spec(self, name, path=None, target=None):
        told = self._told.get(name) or _told_of_package(name)
        # Who only asks whether it is there hears that it is not.
        if told is not None and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
            raise ModuleNotFoundError(told, name=name)
        return None


def _told_of_package(name):
    """What to say of a module that nobody knows here: it may be one that can be had."""
    if "." in name or name.startswith("_"):
        return None
    if packages.allowed:
        return "No module named %r; if its package is pure Python, `runtime.install(%r)` gets it" % (
            name,
            PACKAGES.get(name, name),
        )
    return None


def name_what_lacks(module, told):
    """Let a name that `module` lacks be missed with words of ours."""
    words = {name: text.replace("%s", name) for text, names in told.items() for name in names.split()}

    def __getattr__(name):
        if name in words:
            raise AttributeError(words[name])
        raise AttributeError(
            "module %r has no attribute %r" % (module.__name__, name), name=name, obj=module
        )

    for name in words.keys() & vars(module).keys():
        # There, and refused by the system whatever it is asked.
        delattr(module, name)
        module.__all__.remove(name)
    module.__getattr__ = __getattr__


class HTTPSConnection(http.client.HTTPConnection):
    """Python has none without `ssl`, and then takes `https:` for a mistake in writing."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, *arguments, context=None, **options):
        super().__init__(*arguments, **options)


def put_in_place():
    """Replace what cannot work, and have the rest missed in our words."""
    no_thread = refuse(RuntimeError, NO_THREADS)
    no_process = refuse(OSError, NO_PROCESSES)
    no_network = refuse(OSError, NO_NETWORK)

    threading.Thread.start = no_thread
    _thread.start_new_thread = _thread.start_new = no_thread
    _thread.start_joinable_thread = no_thread
    multiprocessing.pool.ThreadPool.__init__ = no_thread

    subprocess.Popen.__init__ = no_process
    os.system = no_process
    for name in "execl execle execlp execlpe execvp execvpe".split():
        setattr(os, name, no_process)
    multiprocessing.process.BaseProcess.start = no_process
    multiprocessing.pool.Pool.__init__ = no_process
    # Asked for when one is forgotten that was never made.
    multiprocessing.pool.Pool._state = multiprocessing.pool.CLOSE
    process_pools.ProcessPoolExecutor.__init__ = no_process
    for name in SHARED:
        setattr(multiprocessing.context.BaseContext, name, no_process)
        setattr(multiprocessing, name, no_process)
    # It would look into Python's program, which is no file here.
    platform.libc_ver = lambda executable=None, lib="", version="", chunksize=16384: (lib, version)
    # One guest, one thread.
    os.cpu_count = os.process_cpu_count = lambda: 1

    socket.socket.__init__ = no_network
    for name in (
        "create_server fromfd getaddrinfo gethostbyaddr gethostbyname gethostbyname_ex getnameinfo "
        "getprotobyname getservbyname getservbyport socketpair"
    ).split():
        setattr(socket, name, no_network)
    select.epoll = no_network
    http.client.HTTPSConnection = HTTPSConnection
    http.client.__all__.append("HTTPSConnection")
    http.client._create_https_context = lambda version: None
    smtplib.SMTP_SSL = imaplib.IMAP4_SSL = poplib.POP3_SSL = ftplib.FTP_TLS = no_network

    for told, names in LOOP.items():
        for name in names.split():
            setattr(base_events.BaseEventLoop, name, refuse_awaited(OSError, told))
    for told, names in LOOP_AT_ONCE.items():
        for name in names.split():
            setattr(base_events.BaseEventLoop, name, refuse(OSError, told))
    base_events.BaseEventLoop.run_in_executor = refuse(RuntimeError, NO_THREADS)

    for module, told in NAMES.items():
        name_what_lacks(module, told)
    sys.meta_path.append(Finder())


put_in_place()
