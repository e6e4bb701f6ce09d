"""The data plane on one switch: the v1model program, the TNA program's sources, or the compiled TNA
program.

Each has the same methods for its tables, which take times in microseconds, and shows what became of
a packet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from reference.frames import MACS

from echelon.model.p4program import constants, program
from echelon_tofino_model.emulator import TofinoSwitch, load_assembly
from softswitch import Program, Switch, load_program
from softswitch.lookup import KeyElement
from tests.engines import fast_switch

HOSTS = [0x0A000001, 0x0A000002, 0x0A000003]
MAC = int.from_bytes(MACS[2], "big")
SIZES = constants("tna")
STEP_US = 100_000
"""Everything happens at multiples of this, and every threshold is in the middle between two of
them.
"""
DEADLINES, BYTES = 0, 1
"""The profiles of `configured`."""


def ticks(us: int) -> int:
    return round(us / 1.024)


@dataclass
class Seen:
    """The fate of a packet."""

    port: int
    queue: int
    frame: bytes


@dataclass(frozen=True)
class Event:
    """A digest: the first or the last packet of a flow, or both."""

    first: int
    last: int
    flow: int
    epoch: int


class DataPlane(ABC):
    """A switch with one of the programs.

    `is_tna` says in which form its tables take what they are given.
    """

    is_tna: bool
    prefixes: tuple[str, str]
    """The prefixes of the names of objects of ingress and of egress."""
    switch: Switch | TofinoSwitch

    def __init__(self, hold_us: int = 1) -> None:
        self.hold_us = hold_us
        self.events: list[Event] = []
        self._units: dict[int, tuple[int, bool]] = {}
        """The shift of a profile of the TNA program, and whether it is relative."""
        self.ingress, self.egress = self.prefixes

    @abstractmethod
    def insert(
        self,
        table: str,
        key: tuple[KeyElement, ...],
        action: str,
        args: list[int],
        priority: int = 0,
    ) -> None:
        """Add an entry to a table."""

    @abstractmethod
    def actions(self, table: str) -> Sequence[str]:
        """Return the names of a table's actions."""

    @abstractmethod
    def dropped(self) -> list[int]:
        """Return the number of dropped packets by reason."""

    def shim_flow(self, job: int, number: int, flow: int) -> None:
        at = self.ingress + "classifier."
        self.insert(at + "shim_flow", (job, number), at + "set_flow", [flow])

    def connection(
        self, ends: tuple[int, int, int, int], number: int, head_bytes: int, gap_us: int
    ) -> None:
        at = self.ingress + "classifier."
        # A Tofino counts what is sent again, too: sequence numbers do not count here.
        timing = [ticks(gap_us), head_bytes] if self.is_tna else [gap_us, head_bytes, 0, 0]
        self.insert(
            at + "tcp_connection", ends, at + "set_connection", [number, number, 1, *timing]
        )

    def queue_pair(
        self,
        end: tuple[int, int],
        number: int,
        mtu: int,
        head_bytes: int,
        gap_us: int,
        numbers_of: int | None = None,
    ) -> None:
        """Add a queue pair, given its host and number, of a connection with packet numbers of its
        own.
        """
        at = self.ingress + "classifier."
        timing = [ticks(gap_us), head_bytes] if self.is_tna else [gap_us, head_bytes, 0]
        own = number if numbers_of is None else numbers_of
        self.insert(
            at + "roce_connection",
            end,
            f"{at}set_queue_pair_{mtu}",
            [number, number, 1, *timing, own],
        )

    def segment(self, connection: int, start: int, end: int, flow: int) -> None:
        """Add a segment from `start` to before `end`, both multiples of 4096."""
        at = self.ingress + ("position." if self.is_tna else "classifier.")
        if not self.is_tna:
            self.insert(
                at + "segment", (connection, (start, end - 1)), at + "set_segment", [flow, end], 1
            )
            return
        for low in range(start, end, 4096):
            key = (connection, (low, 0xFFFFF000))
            self.insert(at + "segment", key, at + "set_segment", [flow, end], 1)

    def flow(self, flow: int, action: str, *args: int, port: int = 2) -> None:
        table = self.ingress + "flow.flow"
        name = f"{self.ingress}flow.{action}"
        self.insert(
            table, (flow,), name if name in self.actions(table) else action, [port, MAC, *args]
        )

    def deadline(
        self,
        flow: int,
        echelonflow: int,
        profile: int,
        offset_us: int = 0,
        due_us: int | None = None,
        left_shift: int | None = None,
    ) -> None:
        """Rank a flow by deadline. For a Tofino, its profile has to be there."""
        due_us = offset_us if due_us is None else due_us
        if not self.is_tna:
            code = 63 if left_shift is None else left_shift + 16
            self.flow(flow, "deadline", echelonflow, profile, offset_us, due_us, code)
            return
        right, relative = self._units[profile]
        later = ticks(due_us) - ticks(offset_us) >> right
        code = 31 if left_shift is None else left_shift + right + 4
        handicap = (-later if relative else later) % (1 << 32)
        self.flow(flow, "deadline", echelonflow, profile, ticks(offset_us), handicap, code)

    def levels(self, profile: int, lows: list[int], queues: list[int]) -> None:
        """Give each key from one of `lows` to before the next its queue."""
        bits = SIZES["LEVEL_KEY_BITS"] if self.is_tna else 32
        at = self.ingress + "level."
        for low, high, queue in zip(
            lows, [*(x - 1 for x in lows[1:]), (1 << bits) - 1], queues, strict=True
        ):
            args = [queue] if self.is_tna else [queue, low]
            self.insert(at + "level", (profile, (low, high)), at + "set_queue", args, 1)

    def classes(self) -> None:
        for traffic_class, queue in enumerate((1, 7, 0)):
            self.insert(
                self.ingress + "traffic_class",
                (traffic_class,),
                self.ingress + "set_class_queue",
                [queue],
            )
        at = self.egress + "marking." if self.is_tna else self.ingress + "marking."
        for queue in range(8):
            self.insert(at + "queue_to_dscp", (queue,), at + "set_dscp", [queue << 3])

    def routes(self) -> None:
        at = self.ingress + "forwarding."
        for host, port in ((HOSTS[0], 1), (HOSTS[1], 2)):
            self.insert(at + "ipv4_lpm", ((host, 32),), at + "route", [port, MAC])
        self.insert(at + "station", (MAC,), at + "forward", [2])
        if self.is_tna:
            for port in (1, 2, 3):
                hold = self.ingress + "pause."
                self.insert(
                    hold + "promotion_hold",
                    (port,),
                    hold + "wait_after_last",
                    [ticks(self.hold_us)],
                )

    def period(
        self, profile: int, right: int, *, relative: bool, head_start: int = 0, alone: int = 0
    ) -> None:
        at = self.ingress + "profile."
        self._units[profile] = right, relative
        args = [right, int(relative), head_start % (1 << 32), alone, 0]
        self.insert(at + "period", (profile,), at + "set_period", args)

    def send(self, frame: bytes, now_us: int) -> Seen | None:
        """Send a frame through an empty switch."""
        queued = self.switch.ingress(1, frame, now_us * 1000)
        if not queued:
            return None
        (gone,) = self.switch.egress(queued[0], now_us * 1000, now_us * 1000, 0, 0)
        assert gone.packet is not None
        return Seen(queued[0].port, queued[0].queue, gone.packet)


class OnV1model(DataPlane):
    """A program in BMv2's JSON: the v1model program, or the TNA program rewritten for v1model."""

    switch: Switch

    def __init__(self, loaded: Program, counter: str, hold_us: int = 1) -> None:
        super().__init__(hold_us)
        self.switch = fast_switch(loaded)
        self._dropped = self.switch.counters[counter]

    def insert(
        self,
        table: str,
        key: tuple[KeyElement, ...],
        action: str,
        args: list[int],
        priority: int = 0,
    ) -> None:
        self.switch.tables[table].insert(key, priority, action, args)

    def actions(self, table: str) -> Sequence[str]:
        return list(self.switch.tables[table].actions)

    def dropped(self) -> list[int]:
        return [self._dropped.read(reason)[0] for reason in range(SIZES["DROP_REASONS"])]


class V1model(OnV1model):
    """The v1model program."""

    is_tna = False
    prefixes = "EchelonIngress.", "EchelonEgress."

    def __init__(self, loaded: Program, hold_us: int = 1) -> None:
        super().__init__(loaded, "EchelonIngress.dropped", hold_us)
        # Bit 0 of an event's kind is the flow's start, bit 1 its end.
        self.switch.on_digest = lambda _now, _name, _list, values: self.events.append(
            Event(values[0] & 1, values[0] >> 1, values[1], values[2] & 0xFF)
        )


class TnaSources(OnV1model):
    """The TNA program, rewritten for v1model."""

    is_tna = True
    prefixes = "I.tna.", "E.tna."

    def __init__(self, loaded: Program, hold_us: int = 1) -> None:
        super().__init__(loaded, "I.dropped", hold_us)
        self.switch.on_digest = lambda _now, _name, _list, values: self.events.append(
            Event(values[1], values[0], values[2], values[3] & 0xFF)
        )


class TnaCompiled(DataPlane):
    """The TNA program as p4c's Tofino back end compiled it."""

    is_tna = True
    prefixes = "EchelonIngress.", "EchelonEgress."
    switch: TofinoSwitch

    def __init__(self, assembly: str, hold_us: int = 1) -> None:
        super().__init__(hold_us)
        self._program = load_assembly(assembly, "echelon.bfa")
        self.switch = TofinoSwitch(self._program)
        self.switch.on_digest = lambda _now, _name, fields: self.events.append(
            Event(
                *(fields[f"meta.{name}"] for name in ("first", "last", "flow")),
                fields["meta.epoch"] & 0xFF,
            )
        )

    def insert(
        self,
        table: str,
        key: tuple[KeyElement, ...],
        action: str,
        args: list[int],
        priority: int = 0,
    ) -> None:
        target = self._program.tables[table]
        named = dict(zip(target.actions[action].params, args, strict=True))
        target.insert(key, action, named, priority)

    def actions(self, table: str) -> Sequence[str]:
        return list(self._program.tables[table].actions)

    def dropped(self) -> list[int]:
        counter = self._program.counters["EchelonIngress.dropped"].array
        assert counter is not None
        return [counter.read(reason)[0] for reason in range(SIZES["DROP_REASONS"])]

    def sizes(self) -> dict[str, int]:
        """Return how many entries each table holds."""
        return {name: table.size for name, table in self._program.tables.items()}


@cache
def _v1model_program() -> Program:
    return load_program(program().binary.read_bytes(), "v1model")


def v1model() -> V1model:
    """Return a switch with the v1model program."""
    return V1model(_v1model_program())


Plane = TypeVar("Plane", bound=DataPlane)


def configured(plane: Plane) -> Plane:
    """Give a switch flows by shim and by bytes, ranked by thresholds, by bytes and not at all.

    Return it.
    """
    plane.classes()
    plane.routes()
    for number, flow in enumerate((1, 2, 3, 4)):
        plane.shim_flow(1, number, flow)
    if plane.is_tna:
        plane.period(DEADLINES, 8, relative=False, head_start=SIZES["LEVEL_KEY_BIAS"])
        plane.period(BYTES, 0, relative=False)
    plane.deadline(1, 1, DEADLINES)
    plane.deadline(2, 1, DEADLINES, offset_us=2 * STEP_US, due_us=3 * STEP_US)
    plane.flow(3, "fixed", 5)
    plane.flow(4, "attained", 1, BYTES)
    plane.connection((HOSTS[0], HOSTS[1], 100, 200), 7, 3 * 4096, STEP_US // 2)
    plane.segment(7, 0, 4096, 5)
    plane.segment(7, 4096, 4 * 4096, 6)
    plane.flow(5, "fixed", 3)
    plane.flow(6, "fixed", 6)
    edges = [STEP_US * k + STEP_US // 2 for k in range(7, 0, -1)]
    if plane.is_tna:
        lows = [0, *(SIZES["LEVEL_KEY_BIAS"] - (ticks(edge) >> 8) for edge in edges)]
    else:
        lows = [0, *((1 << 31) - edge for edge in edges)]
    plane.levels(DEADLINES, lows, list(range(7, -1, -1)))
    plane.levels(BYTES, [0, 5, 11] if plane.is_tna else [0, 5 * 4096, 11 * 4096], [7, 4, 2])
    return plane
