"""The way frames go in and out of an embedded guest, and nothing of what they mean.

Takes the place of the module of this name that a guest with descriptors has: the built-in module
`_door` hands whole frames to the host, which frames the bytes.
"""

from _door import heeded, on_turn, receive, send  # noqa: F401

# The host ends a guest that sends more.
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024

RUN, REPLY, INTERRUPT = 1, 2, 3
HELLO, STDOUT, STDERR, CALL, CANCEL_CALL, DISPLAY, DONE = range(16, 23)


class Closed(Exception):
    """The host has closed its side; here the guest is gone before it could notice."""
