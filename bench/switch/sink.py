"""Frames at the far end of the switch, with the kernel's time of arrival of each."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

_ETH_P_ALL = 3
_SO_TIMESTAMPNS = 35
_RCVBUFFORCE = 33
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_BUFFER_BYTES = 128 << 20
_IDLE_S = 0.05
_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("@HBBI")
_PROGRAM = struct.Struct("@HP")
_TIMESPEC = struct.Struct("@qq")
_STATISTICS = struct.Struct("@II")


@dataclass(frozen=True, slots=True)
class Arrival:
    time_ns: int
    """by the kernel, when it took the frame from the line"""
    length_bytes: int
    head: bytes
    """the first bytes of the frame, at most as many as the capture keeps"""


class CaptureError(Exception):
    """The sink missed frames, so that what it saw proves nothing."""


class Instruction(NamedTuple):
    """An instruction of classic BPF (struct sock_filter)."""

    code: int
    if_true: int
    if_false: int
    number: int


def attach(receiver: socket.socket, program: Sequence[Instruction]) -> None:
    """Let a socket receive only what a filter takes."""
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    memory = ctypes.create_string_buffer(code, len(code))
    receiver.setsockopt(
        socket.SOL_SOCKET, _ATTACH_FILTER, _PROGRAM.pack(len(program), ctypes.addressof(memory))
    )


class Capture:
    """A capture of the frames that arrive at `interface`.

    A context manager: listens inside; `arrivals` is complete after. With a `program`, it is of
    those that this filter takes, and they are read at the end only, so they have to fit into the
    socket's buffer.

    Leaving it raises `CaptureError` if the sink itself lost a frame.
    """

    def __init__(
        self,
        interface: str,
        keep_bytes: int,
        program: Sequence[Instruction] = (),
    ) -> None:
        self._keep_bytes = keep_bytes
        self._reads_at_end = bool(program)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        with contextlib.suppress(OSError):  # Linux before 4.20; nothing leaves here anyway
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        if program:
            attach(self._socket, program)
        self._socket.bind((interface, _ETH_P_ALL))
        self._socket.settimeout(_IDLE_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._listen,
            daemon=True,
        )
        self.arrivals: list[Arrival] = []

    def __enter__(self) -> Self:
        if not self._reads_at_end:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._reads_at_end:
            self._thread.start()
        self._thread.join()
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        self._socket.close()
        missed = _STATISTICS.unpack(statistics)[1]
        if missed and error is None:
            raise CaptureError(
                f"the sink missed {missed} frames: this machine is too busy to measure"
            )

    def _listen(self) -> None:
        buffer = bytearray(self._keep_bytes)
        receive = self._socket.recvmsg_into
        buffers = [buffer]
        ancillary = socket.CMSG_SPACE(_TIMESPEC.size)
        append = self.arrivals.append
        seconds = _TIMESPEC.unpack_from
        keep = self._keep_bytes
        while True:
            try:
                length, control, _, _ = receive(buffers, ancillary, socket.MSG_TRUNC)
            except TimeoutError:
                if self._stop.is_set():
                    return
                continue
            whole_s, fraction = seconds(control[0][2])
            append(
                Arrival(
                    whole_s * 1_000_000_000 + fraction, length, bytes(buffer[: min(length, keep)])
                )
            )
