"""The programs that C calls, in C and in Python.

Those in Python cannot run in C, or are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any, Protocol

from ctoolchain import Loaded
from softswitch.realtime.lock import HandoverLock
from softswitch.virtual.switch import Pipelines, QueuedPacket

__all__ = ["CProgram", "PythonProgram", "functions_of"]

_NUMBER = 0xFFFF_FFFF


class CProgram(Protocol):
    """A switch in C: a unit that offers what abi.h says, and the state of one switch."""

    on_library: Callable[[], object]
    """Called when `native` has another library of the same unit."""

    @property
    def native(self) -> Loaded: ...

    @property
    def state(self) -> Any:
        """Return the pointer to its `ss_switch`."""

    @property
    def events(self) -> Any:
        """Return the pointer to the number of words that wait for `report`.

        None means that there never are any.
        """

    def report(self) -> None:
        """Pass digests and messages on."""


def functions_of(
    program: CProgram,
    structure: Any,
    ffi: Any,
    names: Sequence[str],
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Any:
    """Return `structure`, filled with the functions of a program.

    The program's library knows other types of the same form. `guard` is entered while the functions
    are replaced by those of another library.
    """

    def use_library() -> None:
        source, library, _ = program.native
        with guard():
            for name in names:
                address = int(source.cast("uintptr_t", source.addressof(library, f"ss_{name}")))
                setattr(structure, name, ffi.cast(ffi.typeof(getattr(structure, name)), address))

    program.on_library = use_library
    use_library()
    source = program.native.ffi
    structure.state = ffi.cast("ss_switch *", int(source.cast("uintptr_t", program.state)))
    if program.events is not None:
        structure.events = ffi.cast("uint64_t *", int(source.cast("uintptr_t", program.events)))
    return structure


class PythonProgram:
    """The two halves of a switch, called back by C.

    Threads hold `lock` for each batch of packets.
    """

    def __init__(self, pipelines: Pipelines, lock: HandoverLock | None = None) -> None:
        self._pipelines = pipelines
        self.lock = lock
        self._waiting: dict[int, tuple[Any, QueuedPacket]] = {}
        self._numbers = count()
        self._sent: list[Any] = []
        self._callbacks: list[Any] = []

    def functions(
        self,
        ffi: Any,
        kind: str,
        onerror: Callable[..., None] | None = None,
    ) -> Any:
        """Return a new structure with the functions; this object must live as long.

        Args:
            ffi: cffi's interface to the types.
            kind: what `ffi.new` makes.
            onerror: called with the kind, the error and the traceback of what a half raises; by
                default it is printed.
        """
        self._ffi = ffi
        structure = ffi.new(kind)
        for name in ("ingress", "egress", "drop"):
            callback = ffi.callback(
                ffi.typeof(getattr(structure, name)), getattr(self, f"_{name}"), onerror=onerror
            )
            setattr(structure, name, callback)
            self._callbacks.append(callback)
        return structure

    @property
    def waiting(self) -> int:
        """Return the number of packets of it in queues."""
        return len(self._waiting)

    def report(self) -> None:
        """Report nothing: Python has passed on digests already."""

    def _ingress(
        self,
        _state: Any,
        port: int,
        data: Any,
        length: int,
        now_ns: int,
    ) -> Any:
        frame = self._ffi.buffer(data, length)[:]
        return self._listed(self._pipelines.ingress(port, frame, now_ns))

    def _egress(
        self,
        _state: Any,
        packet: Any,
        enq_ns: int,
        now_ns: int,
        met: int,
        leaves: int,
        out: Any,
        room: int,
    ) -> int:
        _, queued = self._waiting.pop(packet.holder[3])
        count = 0
        self._sent.clear()
        for departure in self._pipelines.egress(queued, enq_ns, now_ns, met, leaves):
            assert count < room
            data = self._ffi.NULL
            if departure.packet is not None:
                data = self._ffi.from_buffer("uint8_t[]", departure.packet)
                self._sent.append(data)
                out[count].length = len(departure.packet)
            out[count].port = departure.port
            out[count].data = data
            out[count].requeue = self._listed(departure.requeue)
            count += 1
        return count

    def _drop(self, _state: Any, packet: Any) -> None:
        del self._waiting[packet.holder[3]]

    def _listed(self, packets: Iterable[QueuedPacket]) -> Any:
        first = last = self._ffi.NULL
        for queued in packets:
            number = next(self._numbers)
            packet = self._ffi.new("ss_packet *")
            packet.port = queued.port & _NUMBER
            packet.queue = queued.queue & _NUMBER
            packet.length_bytes = queued.length_bytes
            packet.holder[3] = number
            self._waiting[number] = packet, queued
            if last:
                last.next = packet
            else:
                first = packet
            last = packet
        return first
