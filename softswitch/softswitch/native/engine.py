"""A switch whose packets are processed in C.

Its tables, arrays and groups in Python are views of the native ones.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from struct import Struct
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from ctoolchain import (
    Compiler,
    CSource,
    Loaded,
    ToolchainError,
    Unwanted,
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
from .keys import joined
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

_Name = TypeVar("_Name", str, int)
_log = logging.getLogger("softswitch")
_OUT = Struct("=iI")
_EVENT_ROOM = 1 << 16
_LEARNT = 1
_UNUSED_S = 5.0
"""How long a compiler works for a program that no switch has run yet."""
_NOWHERE = (1 << 32) - 1
"""A port that no program accepts."""


class NativeError(Exception):
    """A program that the native engine cannot run here; the message says why in a few words."""


class NativeProgram:
    """A program's compiled unit.

    ``compiler_name`` is the compiler of the library in use, ``later`` that of its replacement.
    """

    def __init__(self, unit: CUnit, loaded: Loaded) -> None:
        self.unit = unit
        self.loaded = loaded
        self.compiler_name = loaded.compiler.name
        self.later: str | None = None
        self.library = loaded.library
        self.engines: WeakSet[Engine] = WeakSet()
        self._improving: Thread | None = None
        self._made_s = time.monotonic()
        self._given_up: tuple[CSource, Compiler] | None = None

    def __call__(self, switch: Switch) -> Engine:
        """Take over the packets of a switch that has just been made."""
        return Engine(switch, self)

    def improve(self, source: CSource, compiler: Compiler) -> None:
        """Build the library with another compiler in a thread, then switch to it between calls.

        Both libraries are made of the same text, so they agree about the memory of every switch.
        Once no switch runs the program, the compiler is ended, so that no series of programs keeps
        compilers busy.
        """
        self.later = compiler.name
        self._improving = Thread(
            target=self._improve,
            args=(source, compiler),
            name="softswitch-compiler",
            daemon=True,
        )
        self._improving.start()

    def _improve(self, source: CSource, compiler: Compiler) -> None:
        try:
            path = build(source, compiler, self._is_wanted)
            library = open_library(self.loaded.ffi, path)
        except Unwanted:
            self._given_up = source, compiler
        except (OSError, ToolchainError) as error:
            say_once(
                f"packets stay with {self.compiler_name}'s library, because that of"
                f" {compiler.name} cannot be made: {error}"
            )
        else:
            self.library, self.compiler_name = library, compiler.name
            for engine in list(self.engines):
                engine.use(library)
        self.later = None

    def _is_wanted(self) -> bool:
        return bool(self.engines) or time.monotonic() < self._made_s + _UNUSED_S

    def add(self, engine: Engine) -> None:
        """Note a switch that runs the program, which may be worth a better library again."""
        self.engines.add(engine)
        if self._given_up is not None:
            given_up = self._given_up
            self._given_up = None
            self.improve(*given_up)

    def wait(self) -> None:
        """Wait until the library is the best one that there will be."""
        if self._improving is not None:
            self._improving.join()


def compile_native(
    program: ir.ProgramIR,
    candidates: Sequence[Compiler] | None = None,
    *,
    at_once: bool = False,
    unit: CUnit | None = None,
) -> NativeProgram:
    """Generate, compile and load a program's C, unless its ``unit`` is given.

    Raises :class:`NativeError`.

    With ``at_once``, the fastest compiler makes what runs first, unless the cache has what the best
    compiler made.
    """
    usable = compilers() if candidates is None else candidates
    try:
        unit = unit or generate(program)
        source = CSource("switch", unit.text)
        waits = at_once and len(usable) > 1 and not is_kept(source, usable[0])
        # The last compiler is the one that is done first; the best one follows in a thread.
        first = usable[-1:] if waits else usable
        loaded = load(source, part("abi.h"), first)
    except (ProgramError, ToolchainError) as error:
        raise NativeError(str(error)) from None
    native = NativeProgram(unit, loaded)
    if waits:
        native.improve(source, usable[0])
    return native


class Engine:
    """The native half of a :class:`~softswitch.Switch`."""

    def __init__(self, switch: Switch, native: NativeProgram) -> None:
        spec = switch.program.ir
        self._switch = switch
        self._unit = native.unit
        self.native = native.loaded
        self.on_library: Callable[[], object] = lambda: None
        """Called when the library changes: threads in C hold functions of the former one."""
        # Nobody outside can make keys that collide; no result depends on it.
        hash_seed = int.from_bytes(os.urandom(8), "big")
        memory = Memory(native.loaded, switch.drop_port, hash_seed, switch.packet_bytes)
        self.memory = memory
        self._library = memory.library
        self._ffi = memory.ffi
        self._handle = memory.switch
        native.add(self)
        self.use(native.library)
        self._queued = _waiting_type(self)
        self._out = self._ffi.new("ss_departure *")
        self._result = self._ffi.new("uint8_t const **")
        unit = native.unit
        self._dropped = memory.part(DROPPED, 0, "Q", len(unit.reasons) + 1)
        self._overruns = memory.part(OVERRUNS, 0, "Q", len(unit.overruns) + 1)
        self._errors = memory.part(ERRORS, 0, "Q", len(unit.errors) + 1)
        self._events = memory.part(EVENTS, 0, "Q", 1)
        self._logging = memory.part(LOGGING, 0, "Q", 1)
        self._eventful = bool(unit.messages or unit.digests)
        self._event_room: Any = None
        switch.packet_counts = memory.part(PACKETS, 0, "Q", 2)
        self._share_arrays(spec)
        self._share_tables(spec)
        tables = len(ir.tables(spec))
        switch.multicast_groups = Replicas(memory, tables, _group_words)
        switch.clone_sessions = Replicas(memory, tables + 1, _session_words)
        switch.value_sets = _value_sets(memory, spec)
        _, state, _ = switch.random.getstate()
        memory.part(RANDOM, 0, "I", 625)[:] = _words(state)

    def _share_arrays(self, spec: ir.ProgramIR) -> None:
        switch = self._switch
        memory = self.memory
        for number, array in enumerate(spec.counters.values()):
            if array.table is None:
                size = array.size
                counter = switch.counters[array.name]
                counter.packet_counts = NativeCells(memory, COUNTERS, number, 0, size, 1)
                counter.byte_counts = NativeCells(memory, COUNTERS, number, size, size, 1)
        for number, held in enumerate(spec.registers.values()):
            cells = NativeCells(memory, REGISTERS, number, 0, held.size, words(held.width))
            switch.registers[held.name].cells = cells
        for number, meter in enumerate(spec.meters.values()):
            if meter.table is None:
                plain = switch.meters[meter.name]
                switch.meters[meter.name] = NativeMeter(memory, number, plain)

    def _share_tables(self, spec: ir.ProgramIR) -> None:
        switch = self._switch
        memory = self.memory
        choices = {}
        for number, name in enumerate(spec.profiles):
            profile = switch.action_profiles[name]
            choices[name] = Choices(memory, number, spec, profile)
        with memory.batch():
            for number, node in enumerate(ir.tables(spec)):
                table = switch.tables[node.name]
                index = attach(memory, number, node, spec, table)
                if node.profile is not None:
                    index.choices = choices[node.profile]
                table.adopt(index, NativeDefault(index, table))

    def use(self, library: Any) -> None:
        """Go over to another library of the same unit."""
        self.memory.library = self._library = library
        self.native = self.native._replace(library=library)
        self.on_library()

    def batch(self) -> AbstractContextManager[None]:
        return self.memory.batch()

    # -- packets -----------------------------------------------------------------------------------

    def ingress(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[Queued]:
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
        inlet = port if 0 <= port < _NOWHERE else _NOWHERE
        packet = self._library.ss_ingress(self._handle, inlet, data, len(data), now_ns)
        if self._eventful and self._events[0]:
            self._report()
        return self._listed(packet) if packet else []

    def _listed(self, packet: Any) -> list[Queued]:
        waiting = []
        while packet:
            following = packet.next
            length_bytes = packet.length_bytes
            waiting.append(self._queued(packet.port, packet.queue, length_bytes, packet))
            packet = following
        return waiting

    def egress(
        self,
        queued: Queued,
        enqueued_ns: int,
        now_ns: int,
        enq_qdepth: int,
        deq_qdepth: int,
    ) -> list[Departure]:
        packet = queued.context
        queued.context = None
        out = self._out
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
        # A unit makes at most one departure of a packet, so there is room for one.
        departures = self._library.ss_egress(
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
        if not departures:
            return []
        data = out.data
        sent = self._ffi.buffer(data, out.length)[:] if data else None
        requeue = self._listed(out.requeue) if out.requeue else ()
        return [Departure(out.port, sent, requeue)]

    def process(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[tuple[int, bytes]]:
        if self._eventful:
            self._logging[0] = _log.isEnabledFor(logging.INFO)
        inlet = port if 0 <= port < _NOWHERE else _NOWHERE
        size = self._library.ss_process(self._handle, inlet, data, len(data), now_ns, self._result)
        if self._eventful and self._events[0]:
            self._report()
        if not size:
            return []
        result = self._ffi.buffer(self._result[0], size)[:]
        sent = []
        offset = 0
        while offset < size:
            port, length = _OUT.unpack_from(result, offset)
            offset += _OUT.size
            sent.append((port, result[offset : offset + length]))
            offset += length
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
        """Pass on the digests and messages of packets that C threads have processed."""
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
        return _nonzero(self._unit.reasons, self._dropped)

    @property
    def overruns(self) -> dict[str, int]:
        return _nonzero(self._unit.overruns, self._overruns)

    @property
    def errors(self) -> dict[int, int]:
        return _nonzero(self._unit.errors, self._errors)

    def _report(self) -> None:
        """Pass digests and messages on."""
        if self._event_room is None:
            self._event_room = self._ffi.new(f"uint64_t[{_EVENT_ROOM}]")
        count = self._library.ss_events(self._handle, self._event_room, _EVENT_ROOM)
        words = memoryview(self._ffi.buffer(self._event_room, 8 * count)[:]).cast("Q")
        start = 0
        while start < count:
            kind, size, number, now_ns = words[start : start + 4]
            rest = list(words[start + 4 : start + 2 + size])
            if kind == _LEARNT:
                name = self._switch.program.ir.digests[number].name
                values = _values(rest, self._unit.digests[number])
                self._switch.learn(now_ns, name, number, tuple(values))
            else:
                text, shapes = self._unit.messages[number]
                self._switch.log(text, *_values(rest, shapes))
            start += 2 + size


def _nonzero(names: Sequence[_Name], counts: Iterable[int]) -> dict[_Name, int]:
    """Return the counts that are not zero, by name.

    `counts` has a spare element at the end, since an array in C cannot be empty.
    """
    return {name: count for name, count in zip(names, counts, strict=False) if count}


def _values(words: Sequence[int], shapes: Sequence[tuple[int, bool]]) -> list[int]:
    values = []
    start = 0
    for count, signed in shapes:
        number = joined(words[start : start + count])
        if signed and number >> (64 * count - 1):
            number -= 1 << 64 * count
        values.append(number)
        start += count
    return values


def _words(state: Sequence[int]) -> memoryview:
    return memoryview(Struct("=625I").pack(*state)).cast("I")


def _group_words(replicas: Sequence[tuple[int, int]]) -> list[int]:
    return [len(replicas), *chain.from_iterable(replicas)]


def _session_words(session: CloneSession) -> list[int]:
    limit = min(session.truncate_bytes or 0, 1 << 31)
    return [limit, session.queue, *_group_words(session.replicas)]


def _value_sets(memory: Memory, spec: ir.ProgramIR) -> dict[str, NativeValueSet]:
    # The number of values that the parser looks up in each value set.
    parts: dict[str, int] = {}
    for state in spec.parser.states.values():
        for transition in state.transitions:
            if transition.value_set is not None:
                parts[transition.value_set] = len(state.key)
    return {
        name: NativeValueSet(memory, number, parts.get(name, 1))
        for number, name in enumerate(spec.value_sets)
    }


def _waiting_type(engine: Engine) -> type[Queued]:
    """Return a class of queued packets that the engine frees if they never reach egress."""

    class Waiting(Queued):
        __slots__ = ()

        def __del__(self) -> None:
            if self.context is not None:
                engine.drop(self.context)

    return Waiting
