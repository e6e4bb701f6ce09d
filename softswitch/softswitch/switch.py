"""A loaded program and the switch that runs it: bytes in, bytes out, without I/O and clock.

Times are integers in nanoseconds that never go back; the program sees them in microseconds. Cases
that simple_switch leaves undefined are defined here. An index out of range, a missing multicast
group or clone session, and a failed assertion are counted in :class:`Stats` and never raise.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from . import hashes, ir
from .budget import DEFAULT_BYTES, packet_bytes
from .load import load_ir
from .numerals import numeral
from .passing import CloneSession, Departure, Queued
from .stateful import Counter, Meter, Register
from .tables import ActionProfile, Table
from .v1model import RESUBMIT_LIMIT
from .valuesets import ValueSet

if TYPE_CHECKING:
    from .interpreter import Interpreter
    from .trace.events import Tracer

DROP_PORT = 511
_log = logging.getLogger("softswitch")

_PLACES = re.compile(r"\\([{}])|\{[^{}]*\}")
"""An escaped brace, or a place for a value."""

OnDigest = Callable[[int, str, int, tuple[int, ...]], None]
Ingress = Callable[[int, bytes, int], list[Queued]]
Egress = Callable[[Queued, int, int, int, int], list[Departure]]
Native = Callable[["Switch"], "NativeHalf"]
"""A function that takes over the packets of a new switch."""


@dataclass(frozen=True, eq=False)
class Program:
    """A validated program in its intermediate form."""

    name: str
    ir: ir.ProgramIR

    @cached_property
    def interpreter(self) -> Interpreter:
        """Return what runs the program in Python.

        Raises :class:`~softswitch.errors.ProgramError`.
        """
        # Switches whose packets run in C never need it.
        from .interpreter import Interpreter

        return Interpreter(self.ir)


def load_program(
    source: Mapping[str, Any] | bytes | str,
    name: str = "program.json",
    resolved: bool = True,
) -> Program:
    """Load what ``p4c-bm2-ss`` wrote; ``name`` is used in messages.

    Unless it is ``resolved``, the interpreter is made when it is needed, which another engine may
    never do.

    The switches of a process that load the same bytes share one `Program`. Raises
    :class:`~softswitch.errors.ProgramError` with the place and the reason if it is malformed or not
    supported.
    """
    if isinstance(source, bytes):
        program = _load_shared(source, name)
    else:
        program = Program(name, load_ir(source, name))
    if resolved:
        _ = program.interpreter
    return program


@lru_cache(maxsize=4)
def _load_shared(source: bytes, name: str) -> Program:
    return Program(name, load_ir(source, name))


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the switch was made.

    ``dropped`` is by reason, ``parser_errors`` by the error's name.
    """

    packets_in: int
    packets_out: int
    dropped: dict[str, int]
    parser_errors: dict[str, int]
    overruns: dict[str, int]
    """The uses of an index beyond the end of a counter, register or meter array."""


class NativeHalf(Protocol):
    """An engine that runs packets in place of the interpreter; :mod:`softswitch.native` has one."""

    @property
    def ingress(self) -> Ingress: ...
    @property
    def egress(self) -> Egress: ...
    def process(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[tuple[int, bytes]]: ...
    def batch(self) -> AbstractContextManager[None]: ...
    @property
    def dropped(self) -> dict[str, int]: ...
    @property
    def overruns(self) -> dict[str, int]: ...
    @property
    def errors(self) -> dict[int, int]: ...


class Engines(Protocol):
    """The engines that programs may run on."""

    def load(self, source: bytes, name: str) -> Program:
        """Load a program. Raises :class:`~softswitch.errors.ProgramError`."""

    def __call__(self, program: Program) -> Native | None:
        """Return what takes over a program's packets, None if Python runs them.

        Raises :class:`~softswitch.errors.ProgramError`.
        """


class Python:
    """The engine that is always there."""

    def load(self, source: bytes, name: str) -> Program:
        return load_program(source, name)

    def __call__(self, program: Program) -> None:
        return None


class Switch:
    """A switch that runs ``program``.

    ``ingress(port, data, now_ns)`` parses a packet, runs ingress and resolves clone, resubmission,
    multicast and drop. ``egress(queued, enqueued_ns, now_ns, enq_qdepth_pkts, deq_qdepth_pkts)``
    runs egress and deparses. ``on_digest(now_ns, name, list_id, values)`` is called at the end of
    an ingress that generated a digest.

    ``memory_bytes`` bounds its arrays, and with them the packets of the engine in C. Raises
    :class:`~softswitch.errors.TooLarge` for a program whose arrays do not fit.

    With a ``tracer``, the interpreter runs packets and passes it an event for every step
    (:mod:`softswitch.trace`). Otherwise ``native`` may make what runs them instead
    (:mod:`softswitch.native`).
    """

    ingress: Ingress
    egress: Egress

    def __init__(
        self,
        program: Program,
        *,
        cpu_port: int | None = None,
        drop_port: int = DROP_PORT,
        seed: int = 0,
        tracer: Tracer | None = None,
        native: Native | None = None,
        memory_bytes: int = DEFAULT_BYTES,
    ) -> None:
        spec = program.ir
        self.packet_bytes = packet_bytes(spec, memory_bytes)
        self.program = program
        self.cpu_port = cpu_port
        self.drop_port = drop_port
        self.random = random.Random(seed)
        self.on_digest: OnDigest | None = None
        self.max_port = (1 << _width(spec, "ingress_port")) - 1
        self.packet_counts: MutableSequence[int] | memoryview[int] = [0, 0]
        self._dropped: dict[str, int] = {}
        self._parser_errors: dict[str, int] = {}
        self._overruns: dict[str, int] = {}
        self._error_names = {code: name for name, code in spec.errors.items()}
        self.counters: dict[str, Counter] = {}
        self.registers: dict[str, Register] = {}
        self.meters: dict[str, Meter] = {}
        # The engine in C brings cells of its own.
        self._make_arrays(spec, native is None or tracer is not None)
        self.calculations: dict[str, hashes.Hash] = {}
        for calculation in spec.calculations.values():
            self.calculations[calculation.name] = hashes.make(calculation.algorithm)
        self.action_profiles: dict[str, ActionProfile] = {}
        self.selectors: dict[str, hashes.Hash] = {}
        for profile in spec.profiles.values():
            actions = ir.profile_actions(spec, profile.name)
            self.action_profiles[profile.name] = ActionProfile(profile, actions)
            if profile.selector is not None:
                self.selectors[profile.name] = hashes.make(profile.selector.algorithm)
        self.tables: dict[str, Table] = {}
        for node in ir.tables(spec):
            used = None if node.profile is None else self.action_profiles[node.profile]
            self.tables[node.name] = Table(node, spec, used)
        self.multicast_groups: MutableMapping[int, Sequence[tuple[int, int]]] = {}
        self.clone_sessions: MutableMapping[int, CloneSession] = {}
        self.value_sets: Mapping[str, ValueSet] = {name: ValueSet() for name in spec.value_sets}
        self.traced = tracer is not None
        self.native: NativeHalf | None = None
        if native is not None and tracer is None:
            self.native = native(self)
            self.ingress, self.egress = self.native.ingress, self.native.egress
        else:
            self.ingress = partial(program.interpreter.ingress, self, tracer)
            self.egress = partial(program.interpreter.egress, self, tracer)

    def _make_arrays(self, spec: ir.ProgramIR, has_cells: bool) -> None:
        """Make the arrays. Direct counters and meters are in the entries of their tables."""
        for counter in spec.counters.values():
            if counter.table is None:
                self.counters[counter.name] = Counter(counter.name, counter.size, has_cells)
        for register in spec.registers.values():
            cells = Register(register.name, register.size, register.width, has_cells)
            self.registers[register.name] = cells
        for meter in spec.meters.values():
            if meter.table is None:
                self.meters[meter.name] = Meter(meter.name, meter.size, meter.unit)

    def process(
        self,
        port: int,
        data: bytes,
        now_ns: int,
    ) -> list[tuple[int, bytes]]:
        """Return (port, packet) of everything that leaves in consequence of a packet.

        No queue ever fills.
        """
        if self.native is not None:
            return self.native.process(port, data, now_ns)
        waiting = self.ingress(port, data, now_ns)
        sent: list[tuple[int, bytes]] = []
        passes = 0
        while waiting:
            passes += 1
            if passes > RESUBMIT_LIMIT:
                self.discard("recirculated too often")
                break
            following: list[Queued] = []
            for queued in waiting:
                for departure in self.egress(queued, now_ns, now_ns, 0, 0):
                    if departure.packet is not None:
                        sent.append((departure.port, departure.packet))
                    following += departure.requeue
            waiting = following
        return sent

    def batch(self) -> AbstractContextManager[None]:
        """Return a context in which several writes become one.

        Packets see all of them together, at its end.
        """
        if self.native is None:
            return nullcontext()
        return self.native.batch()

    @property
    def stats(self) -> Stats:
        packets_in, packets_out = self.packet_counts
        native = self.native
        if native is not None:
            errors: dict[str, int] = {}
            for code, count in native.errors.items():
                errors[self._error_name(code)] = count
            return Stats(packets_in, packets_out, native.dropped, errors, native.overruns)
        return Stats(
            packets_in,
            packets_out,
            dict(self._dropped),
            dict(self._parser_errors),
            dict(self._overruns),
        )

    # -- called by the interpreter -----------------------------------------------------------------

    def discard(self, reason: str) -> None:
        """Count a dropped packet."""
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def overrun(self, name: str) -> None:
        """Count the use of an index out of range."""
        self._overruns[name] = self._overruns.get(name, 0) + 1

    def _error_name(self, code: int) -> str:
        return self._error_names.get(code) or numeral(code)

    def parser_error(self, code: int) -> None:
        name = self._error_name(code)
        self._parser_errors[name] = self._parser_errors.get(name, 0) + 1

    def learn(
        self,
        now_ns: int,
        name: str,
        number: int,
        values: tuple[int, ...],
    ) -> None:
        if self.on_digest is not None:
            self.on_digest(now_ns, name, number, values)

    @staticmethod
    def filled(text: str, values: Sequence[int]) -> str:
        """Return the text of a ``log_msg``.

        The next value replaces each pair of braces while there is one.
        ``\\{`` is a brace.
        """
        arguments = iter(values)

        def replacement(match: re.Match[str]) -> str:
            if match[1]:
                return match[1]
            value = next(arguments, None)
            return match[0] if value is None else numeral(value)

        return _PLACES.sub(replacement, text)

    @staticmethod
    def log(text: str, *values: int) -> None:
        """Log a ``log_msg``."""
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", Switch.filled(text, values))


def _width(spec: ir.ProgramIR, intrinsic: str) -> int:
    ref = spec.intrinsics[intrinsic]
    width_field = spec.headers[ref.header].type.field(ref.field)
    assert width_field is not None
    return width_field.width
