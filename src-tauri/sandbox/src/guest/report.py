"""An exception of user code, as the host reports it: type, message, traceback.

The traceback is Python's own text with the user's frames alone: neither the guest's, nor those of
the standard library and of installed packages, which say little to who wrote the code and much of it.
"""

import os
import re
import sys
import traceback

# Characters of a traceback or a message.
TEXT_MAX = 20_000

_OWN = "<guest "
# Files that user code was compiled under: runs and saved tools.
_USER = ("<run", "<saved tool")
# Where the standard library and installed packages lie; user code's folder is added to the path later.
_INSTALLED = tuple(
    sorted(
        {
            os.path.join(place, "")
            for place in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path)
            if place
        }
    )
) + ("<frozen ",)


def describe(error):
    """`error` as `{type, message, traceback}`; works even if its own methods raise."""
    return {
        "type": type(error).__name__,
        "message": shorten(_message(error)),
        "traceback": shorten(text_of(error)),
    }


def text_of(error):
    """The traceback text of `error`."""
    try:
        shown = traceback.TracebackException.from_exception(error)
        _cut(shown, set())
        text = "".join(shown.format())
        # A syntax error of the run itself has no frame, and then no header either.
        return re.sub(r"(?m)^Traceback \(most recent call last\):\n(?=\S)", "", text)
    except Exception:
        pass
    return "%s: %s\n" % (type(error).__name__, _message(error))


def shorten(text, most=TEXT_MAX):
    """`text`, or its head and tail with the number of characters between them."""
    if len(text) <= most:
        return text
    half = (most - 60) // 2
    left_out = len(text) - 2 * half
    return "%s\n… %d characters left out …\n%s" % (text[:half], left_out, text[-half:])


def _message(error):
    try:
        # Python's own text of it repeats the place, which the traceback shows.
        if isinstance(error, SyntaxError) and isinstance(error.msg, str):
            return error.msg
        return str(error)
    except BaseException as bad:
        return "<the exception's own text raised %s>" % type(bad).__name__


def _cut(shown, seen):
    if shown is None or id(shown) in seen:
        return
    seen.add(id(shown))
    shown.stack = traceback.StackSummary.from_list(_user_frames(shown.stack))
    _cut(shown.__cause__, seen)
    _cut(shown.__context__, seen)
    for below in getattr(shown, "exceptions", None) or ():
        _cut(below, seen)


def _user_frames(stack):
    return [frame for frame in stack if _is_users(frame.filename)]


def _is_users(filename):
    if filename.startswith(_USER):
        return True
    return not filename.startswith(_OWN) and not filename.startswith(_INSTALLED)
