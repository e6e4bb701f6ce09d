"""The traffic generator: an open loop of paced bursts from a process of its own, one system call a
burst.

Frames lie ready in one block of memory, a *cycle* of them, and are sent again and again; between
two rounds the number of the round is written into all of them at once. So every frame is numbered,
and a frame costs next to no Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import socket
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from .network import received_frames

BURST_FRAMES = 16
"""Frames handed over at once, as a host that coalesces does."""
INDEX_AT = slice(60, 62)
"""The place of the frame's index in the cycle: in a shim, these bytes are reserved."""
ROUND_AT = slice(62, 64)
"""The place of the round's number in a frame, modulo 65,536: behind a shim."""
MIN_FRAME_BYTES = ROUND_AT.stop
MOST_FRAMES = 1 << 16
"""The most frames of a cycle, so that their index has its place."""

_CACHE_LINE = 64
_PR_SET_TIMERSLACK = 29
_SNDBUFFORCE = 32
_SEND_BUFFER_BYTES = 16 << 20
_ANSWER_S = 30.0


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Message(ctypes.Structure):
    """struct mmsghdr of recvmmsg(2), sendmmsg(2)."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("_padding", ctypes.c_uint32),
        ("done_bytes", ctypes.c_uint32),
    ]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Frames to send over and over, a multiple of BURST_FRAMES of them.

    `epoch_at` is the place of a byte that holds the number of the round too, modulo 256: an
    iteration's epoch.
    """

    frames: tuple[bytes, ...]
    epoch_at: int | None = None

    def __post_init__(self) -> None:
        if not self.frames or len(self.frames) % BURST_FRAMES or len(self.frames) > MOST_FRAMES:
            wanted = f"a multiple of {BURST_FRAMES}, at most {MOST_FRAMES}"
            raise ValueError(f"a cycle of {len(self.frames)} frames: it must be {wanted}")
        shortest = min(map(len, self.frames))
        if shortest < MIN_FRAME_BYTES:
            raise ValueError(
                f"frames of {shortest} bytes: at least {MIN_FRAME_BYTES} are needed for their"
                " numbers"
            )

    def matched(self, seen: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield each frame as it was sent, with its numbers, and as it was seen."""
        for frame in seen:
            index = frame[INDEX_AT]
            turn = frame[ROUND_AT]
            number = int.from_bytes(index, "big")
            sent = bytearray(self.frames[number % len(self.frames)])
            sent[INDEX_AT] = index
            sent[ROUND_AT] = turn
            if self.epoch_at is not None:
                sent[self.epoch_at] = turn[-1]
            yield bytes(sent), frame


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of one run of the generator. Times are nanoseconds of time.perf_counter_ns."""

    frames: int
    refused: int
    """frames that the kernel did not take"""
    elapsed_ns: int
    lateness_ns: int
    """how late the latest burst was"""
    arrived: int
    """frames counted at the far end of the switch `grace_s` after the last one was sent"""
    first_turn: int
    """the number of the first round"""
    cycle_frames: int
    """the number of frames of a round"""
    handed_ns: Sequence[int] = ()
    """when each burst was handed to the kernel, in nanoseconds of time.time_ns, if that was asked
    for
    """

    @property
    def rate_pps(self) -> float:
        return self.frames / self.elapsed_ns * 1e9


class _Ring:
    """A cycle in memory as sendmmsg takes it."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self.count = count = len(cycle.frames)
        longest = max(map(len, cycle.frames))
        self._stride = stride = -(-longest // _CACHE_LINE) * _CACHE_LINE
        self._block = block = bytearray(count * stride)
        for index, frame in enumerate(cycle.frames):
            start = index * stride
            block[start : start + len(frame)] = frame
            block[start + INDEX_AT.start : start + INDEX_AT.stop] = index.to_bytes(2, "big")
        characters = (ctypes.c_char * len(block)).from_buffer(block)
        start = ctypes.addressof(characters)
        vectors = []
        for index, frame in enumerate(cycle.frames):
            vectors.append(_Iovec(start + index * stride, len(frame)))
        self._vectors = (_Iovec * count)(*vectors)
        self._messages = (_Message * count)()
        first_vector = ctypes.addressof(self._vectors)
        for index, message in enumerate(self._messages):
            message.vectors = first_vector + index * ctypes.sizeof(_Iovec)
            message.vector_count = 1
        first = ctypes.addressof(self._messages)
        message_bytes = ctypes.sizeof(_Message)
        self.bursts = [first + index * message_bytes for index in range(0, count, BURST_FRAMES)]

    def number(self, turn: int) -> None:
        """Write the number of the round into every frame."""
        block = self._block
        stride = self._stride
        count = self.count
        number = (turn & 0xFFFF).to_bytes(2, "big")
        for position, value in enumerate(number, ROUND_AT.start):
            block[position::stride] = bytes([value]) * count
        epoch_at = self._cycle.epoch_at
        if epoch_at is not None:
            block[epoch_at::stride] = bytes([turn & 0xFF]) * count


class _Sender:
    """The part of the generator inside its process."""

    def __init__(self, interface: str, far_end: str) -> None:
        self._far_end = far_end
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, _SEND_BUFFER_BYTES)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.sendmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
        self._rings: dict[str, _Ring] = {}
        self._turn = 0

    def load(self, name: str, cycle: Cycle) -> None:
        self._rings[name] = _Ring(cycle)

    def place(self, cpus: Sequence[int]) -> None:
        os.sched_setaffinity(0, cpus)

    def run(
        self,
        name: str,
        rate_pps: float,
        duration_s: float,
        grace_s: float,
        timed: bool,
    ) -> Sent:
        ring = self._rings[name]
        send = self._libc.sendmmsg
        handle = self._socket.fileno()
        clock = time.perf_counter_ns
        sleep = time.sleep
        instant = time.time_ns
        handed_ns = array("q")
        first_turn = self._turn + 1
        interval_ns = BURST_FRAMES / rate_pps * 1e9
        total = max(1, round(duration_s * 1e9 / interval_ns))
        refused = lateness_ns = burst = 0
        before = received_frames(self._far_end)
        start_ns = clock() + 1_000_000
        while burst < total:
            self._turn += 1
            ring.number(self._turn)
            for messages in ring.bursts:
                due_ns = start_ns + int(burst * interval_ns)
                behind_ns = clock() - due_ns
                if behind_ns < 0:
                    sleep(-behind_ns * 1e-9)
                elif behind_ns > lateness_ns:
                    lateness_ns = behind_ns
                if timed:
                    handed_ns.append(instant())
                taken = send(handle, messages, BURST_FRAMES, socket.MSG_DONTWAIT)
                if taken != BURST_FRAMES:
                    refused += BURST_FRAMES - max(taken, 0)
                burst += 1
                if burst == total:
                    break
        elapsed_ns = max(clock() - start_ns, int(total * interval_ns))
        sleep(grace_s)
        arrived = received_frames(self._far_end) - before
        frames = total * BURST_FRAMES - refused
        return Sent(
            frames, refused, elapsed_ns, lateness_ns, arrived, first_turn, ring.count, handed_ns
        )


def _serve(
    connection: Connection,
    interface: str,
    far_end: str,
) -> None:
    """Run the generator's process: receive (method, arguments), send the result or exception."""
    with contextlib.suppress(OSError):
        # Traffic does not wait until the switch under test yields the processor.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    sender = _Sender(interface, far_end)
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: object = getattr(sender, method)(*arguments)
        except Exception as error:  # handed to the caller
            answer = error
        connection.send(answer)


class Generator:
    """A generator that sends on `interface` and counts what comes out at `far_end`.

    A context manager: the process lives inside.
    """

    def __init__(self, interface: str, far_end: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, interface, far_end),
            daemon=True,
        )
        self._theirs = theirs

    def __enter__(self) -> Self:
        self._process.start()
        self._theirs.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()

    def load(self, name: str, cycle: Cycle) -> None:
        """Keep `cycle` under `name`."""
        self._call(_ANSWER_S, "load", name, cycle)

    def place(self, cpus: Sequence[int]) -> None:
        """Send from these processors only, from now on."""
        self._call(_ANSWER_S, "place", cpus)

    def run(
        self,
        name: str,
        rate_pps: float,
        duration_s: float,
        grace_s: float = 0.0,
        *,
        timed: bool = False,
    ) -> Sent:
        """Send the frames of `name` at `rate_pps` for `duration_s`; then wait `grace_s` and count
        what came out.
        """
        answer = self._call(
            2 * (duration_s + grace_s) + _ANSWER_S,
            "run",
            name,
            rate_pps,
            duration_s,
            grace_s,
            timed,
        )
        assert isinstance(answer, Sent)
        return answer

    def _call(
        self,
        timeout_s: float,
        method: str,
        *arguments: Any,
    ) -> object:
        self._connection.send((method, arguments))
        if not self._connection.poll(timeout_s):
            raise TimeoutError(
                f"the traffic generator did not finish {method!r} within {timeout_s:.0f} s"
            )
        answer = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer
