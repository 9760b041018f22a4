"""The way frames go in and out, and nothing of what they mean.

A frame is a 16-byte header (version, kind, two zero bytes, payload length, id; big-endian) and a
payload. This is the only module that knows which descriptors carry them; another door, such as one
of a WebAssembly build, needs the same methods.
"""

import select
import struct

# Functions by name, here as in all modules of the guest: what user code puts in their place in
# `os`, `json` or `time` does not reach the guest.
from os import close, read, readv, write

VERSION = 1
HEADER = struct.Struct(">BBHIQ")
# The host ends a guest that sends more.
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024

RUN, REPLY, INTERRUPT = 1, 2, 3
HELLO, STDOUT, STDERR, CALL, CANCEL_CALL, DISPLAY, DONE = range(16, 23)


class Closed(Exception):
    """The host has closed its side."""


class Door:
    """Frames over two descriptors. One thread reads, one writes."""

    def __init__(self, read_fd, write_fd):
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._ahead = b""
        self._writable = select.poll()
        self._writable.register(write_fd, select.POLLOUT)

    def takes_small(self):
        """Whether a frame of up to 4096 bytes would leave at once and whole: a pipe that can be written
        to has room for a page."""
        return bool(self._writable.poll(0))

    def read(self):
        """The next frame as (kind, id, payload). The payload is None if memory was too short for
        it; its bytes are skipped then, so that the frames behind it stay readable."""
        while len(self._ahead) < HEADER.size:
            self._ahead += self._some(65536)
        version, kind, _, length, ident = HEADER.unpack_from(self._ahead)
        if version != VERSION or length > PAYLOAD_BYTES_MAX:
            raise Closed("the host sent what is not a frame")
        ahead = self._ahead[HEADER.size :]
        if len(ahead) >= length:
            self._ahead = ahead[length:]
            return kind, ident, ahead[:length]
        self._ahead = b""
        try:
            payload = bytearray(length)
        except MemoryError:
            left = length - len(ahead)
            while left:
                left -= len(self._some(min(left, 65536)))
            return kind, ident, None
        payload[: len(ahead)] = ahead
        done = len(ahead)
        with memoryview(payload) as view:
            while done < length:
                with view[done:] as rest:
                    count = readv(self._read_fd, [rest])
                if not count:
                    raise Closed("the host closed the frame stream")
                done += count
        return kind, ident, payload

    def write(self, kind, ident, payload):
        """Write one frame, all of it."""
        header = HEADER.pack(VERSION, kind, 0, len(payload), ident)
        if len(payload) <= 4096:
            pieces = [header + payload]
        else:
            pieces = [header, payload]
        for piece in pieces:
            with memoryview(piece) as view:
                done = 0
                while done < len(piece):
                    try:
                        done += write(self._write_fd, view[done:])
                    except OSError as error:
                        raise Closed("the host reads no more frames") from error

    def close(self):
        """Let go of the descriptors; for a forked child, which must not speak for its parent."""
        for fd in (self._read_fd, self._write_fd):
            try:
                close(fd)
            except OSError:
                pass

    def _some(self, size):
        piece = read(self._read_fd, size)
        if not piece:
            raise Closed("the host closed the frame stream")
        return piece
