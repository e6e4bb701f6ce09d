"""System calls that Python has no binding for: many packets a call, and sleeping with a fine clock.

Calls that return at once keep the interpreter's lock (`PyDLL`). Releasing it for a few microseconds
would hand it to one of gRPC's threads for a whole switch interval, for every batch of packets.
Sleeping releases it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from array import array
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["BATCH", "BatchSender", "Poller", "set_timer_slack_ns"]

BATCH = 128
"""The largest number of packets passed to the kernel by one call."""

_PR_SET_TIMERSLACK = 29
_MSG_DONTWAIT = 0x40

_prompt = ctypes.PyDLL(None, use_errno=True)
_sleeping = ctypes.CDLL(None, use_errno=True)


class _MessageHeader(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_long),  # an int, and the rest of struct msghdr
        ("length", ctypes.c_long),
    )


class _PollRequest(ctypes.Structure):
    """struct pollfd of ppoll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    """struct timespec."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_sendmmsg = _prompt.sendmmsg
_sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)
_sendmmsg.restype = ctypes.c_int


class BatchSender:
    """A sender of packets on a socket, up to `BATCH` per system call."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # The arguments of sendmmsg are made once. Message i is one piece, of which only address and
        # length change.
        pieces = array("Q", bytes(16 * BATCH))  # struct iovec as its two machine words
        self._words = memoryview(pieces)
        first, _ = pieces.buffer_info()
        self._headers = (_MessageHeader * BATCH)()
        for index, header in enumerate(self._headers):
            header.vectors = first + 16 * index
            header.vector_count = 1
        self._arguments = ctypes.addressof(self._headers)
        self._lengths: list[int] = []
        self._address = 0

    def send(self, packets: Sequence[bytes]) -> int:
        """Send packets from the front, each as one message, without waiting.

        Returns:
            The number of packets that the kernel took. It is 0 only if none were given.

        Raises:
            OSError: the kernel did not take the first one.
        """
        packets = packets[:BATCH]
        count = len(packets)
        if not count:
            return 0
        joined = b"".join(packets)
        lengths = list(map(len, packets))
        address = ctypes.c_void_p.from_buffer(ctypes.c_char_p(joined)).value or 0
        # Packets of the same lengths as the previous ones are mostly assembled in the same place.
        if address != self._address or lengths != self._lengths:
            words = self._words
            words[0 : 2 * count : 2] = memoryview(
                array("Q", accumulate(lengths[:-1], initial=address))
            )
            words[1 : 2 * count : 2] = memoryview(array("Q", lengths))
            self._address = address
            self._lengths = lengths
        taken: int = _sendmmsg(self._fd, self._arguments, count, _MSG_DONTWAIT)
        if taken < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return taken


class Poller:
    """A sleeper until a file descriptor is ready or an instant has come.

    It is as exact as the kernel's timers.
    """

    def __init__(self) -> None:
        self._requests = (_PollRequest * 0)()
        self._timeout = _TimeSpec()
        self._ppoll = _sleeping.ppoll
        self._ppoll.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p)
        self._ppoll.restype = ctypes.c_int

    def watch(self, descriptors: Sequence[int]) -> None:
        """Watch these, and no other descriptors, for something to read or an error from now on."""
        self._requests = (_PollRequest * len(descriptors))()
        for request, fd in zip(self._requests, descriptors, strict=True):
            request.fd = fd
            request.events = select.POLLIN

    def wait(self, timeout_ns: int | None) -> list[tuple[int, int]]:
        """Sleep for at most `timeout_ns` (None: without limit).

        Return (descriptor, poll events) of everything that is ready.
        """
        timeout = None
        if timeout_ns is not None:
            self._timeout.seconds, self._timeout.nanoseconds = divmod(max(0, timeout_ns), 10**9)
            timeout = ctypes.byref(self._timeout)
        ready = self._ppoll(self._requests, len(self._requests), timeout, None)
        if ready < 0:
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code))
            return []
        if not ready:
            return []
        return [(request.fd, request.revents) for request in self._requests if request.revents]


def set_timer_slack_ns(slack_ns: int) -> None:
    """Set how late the kernel may wake this thread to save power, 50 us by default.

    A lack of permission is not an error.
    """
    _prompt.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(slack_ns), 0, 0, 0)
