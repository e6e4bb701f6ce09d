"""The TNA program's form of entries, and a controller for tests over BF Runtime."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from fractions import Fraction
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeVar
from unittest import SkipTest

import grpc  # type: ignore[import-untyped]

from echelon.model.p4program import P4Program, constants
from echelon.switches.lowering.intent import (
    Intent,
    Interval,
    Match,
    MulticastGroup,
    Part,
    QueueSetting,
    TableEntry,
    prefixes,
)
from echelon.switches.lowering.lower import DIGEST
from echelon.switches.southbound.errors import SouthboundError
from echelon_ptf.control import TIMEOUT_S, Count, FlowEvent, TargetError, UnsupportedError
from echelon_ptf.entries import Deadline, Form, entry, ranges
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino.target.queues import QUEUES, BfrtQueues
from echelon_tofino.target.session import BfrtSession

T = TypeVar("T")

_NUMBERS = constants("tna")
_KEY_BITS = _NUMBERS["LEVEL_KEY_BITS"]
_CELL_BYTES = 80
_BRIDGED_BYTES = 14
_ALL_PIPES = 0xFFFF
_FCS_BYTES = 4


def _ticks(us: int) -> int:
    return round(Fraction(us * 1000, 1024))


class TnaForm(Form):
    """The form of the TNA program's entries.

    A profile is given before the flows that are ranked by it.
    """

    def __init__(self) -> None:
        self._scales: dict[int, tuple[int, bool]] = {}
        """The bits by which each profile shifts times to the right, and whether it is relative."""

    def arguments(self, arguments: Mapping[str, int]) -> Mapping[str, int]:
        times = {name: us for name, us in arguments.items() if name == "us" or name.endswith("_us")}
        # The TNA program does not look at sequence numbers, and its iterations begin after silence.
        unknown = {*times, "whole_bytes", "in_sequence"}
        others = {name: value for name, value in arguments.items() if name not in unknown}
        forever = _NUMBERS["HOLD_FOREVER"]
        ticks = {
            f"{name[:-2]}ticks": us if us == forever else _ticks(us) for name, us in times.items()
        }
        return {**others, **ticks}

    def deadline(self, rank: Deadline) -> Mapping[str, int]:
        right, is_relative = self._scales.get(rank.profile, (0, False))
        later = _ticks(rank.later_us) >> right
        none, bias = (1 << _NUMBERS["LEFT_SHIFT_BITS"]) - 1, _NUMBERS["LEFT_SHIFT_BIAS"]
        return {
            "echelonflow": rank.echelonflow,
            "profile": rank.profile,
            "offset_us": rank.offset_us,
            "handicap": (-later if is_relative else later) % (1 << 32),
            "left_shift": none if rank.left_shift is None else rank.left_shift + right + bias,
        }

    def slacks(
        self, number: int, edges_us: Sequence[int], queues: Sequence[int]
    ) -> list[TableEntry]:
        ticks = [_ticks(edge) for edge in edges_us]
        right = _right(max(map(abs, ticks), default=0), _KEY_BITS - 1)
        edges = [_NUMBERS["LEVEL_KEY_BIAS"] - (-edge >> right) for edge in ticks]
        return self._shifted(number, edges, queues, right, head_start=_NUMBERS["LEVEL_KEY_BIAS"])

    def sent_bytes(self, number: int, edges: Sequence[int], queues: Sequence[int]) -> NoReturn:
        raise SkipTest(
            f"the TNA program counts units of {1 << _NUMBERS['ATTAINED_SHIFT']} bytes, and no"
            " frame's header"
        )

    def time_left(
        self, number: int, edges_us: Sequence[int], queues: Sequence[int]
    ) -> list[TableEntry]:
        ticks = [_ticks(edge) for edge in edges_us]
        right = _right(2 * max(ticks, default=0), _KEY_BITS)
        return self._shifted(number, [-(-edge >> right) for edge in ticks], queues, right)

    def relative(
        self,
        number: int,
        period_us: int,
        parts: Sequence[Fraction],
        queues: Sequence[int],
        *,
        head_start: Fraction,
        alone_us: int,
        idle_us: int,
    ) -> list[TableEntry]:
        right = _right(_ticks(period_us), _NUMBERS["RANK_UNIT"].bit_length())
        unit = Fraction(_ticks(period_us), 1 << right)
        facts = {
            "is_relative": 1,
            "head_start": -round(head_start * unit) % (1 << 32),
            "alone": _ticks(alone_us) >> right,
        }
        return self._shifted(
            number, [int(part * unit) + 1 for part in parts], queues, right, **facts
        )

    def hold_key(self, port: int, queue: int) -> Mapping[str, Match]:
        return {"port": port}

    def depth(self, packets: int, frame_bytes: int) -> Mapping[str, int]:
        return {"cells": packets * -(-(frame_bytes + _BRIDGED_BYTES) // _CELL_BYTES)}

    def virtual_queue(self, port: int, bits_per_ms: int, mark_above_bytes: int) -> NoReturn:
        raise SkipTest("the TNA program has no virtual queue: the queues are in the switch")

    def _shifted(
        self, number: int, edges: Sequence[int], queues: Sequence[int], right: int, **facts: int
    ) -> list[TableEntry]:
        self._scales[number] = right, bool(facts.get("is_relative"))
        arguments = {
            "right": right,
            "is_relative": 0,
            "head_start": 0,
            "alone": 0,
            "lowest": queues[-1],
            **facts,
        }
        levels = [
            entry(
                "level",
                {"profile": number, "key": Interval(low, high)},
                "set_queue",
                1,
                queue=queue,
            )
            for low, high, queue in ranges(edges, queues, (1 << _KEY_BITS) - 1)
        ]
        return [*levels, entry("period", {"profile": number}, "set_period", **arguments)]


def _right(largest: int, bits: int) -> int:
    """Return by how many bits to shift numbers up to `largest` so that they fit `bits`."""
    return max(0, largest.bit_length() - bits)


class TofinoController:
    """The controller that is bound to the program of one switch over BF Runtime.

    Its calls block.
    """

    time_error_us = 4
    """Times are ticks of 1.024 us, and the ages of shims are computed by shifts."""
    age_error = Fraction(1, 1600)

    def __init__(self, address: str, ports: Iterable[int], program: P4Program) -> None:
        self._address = address
        self._ports = tuple(ports)
        self._program = program
        self._loop = asyncio.new_event_loop()
        self._session = BfrtSession(
            "target", address, 1, program, queues=BfrtQueues("target", self._ports)
        )
        self._always: dict[tuple[object, ...], Part] = {}
        self._parts: dict[tuple[object, ...], Part] = {}
        self._groups: dict[int, MulticastGroup] = {}
        self._events: SimpleQueue[FlowEvent] = SimpleQueue()
        self._oldest_flow = 0
        self._following: asyncio.Task[None] | None = None
        described = json.loads(program.p4info.with_name("bf-rt.json").read_bytes())
        self._described = {table["name"].partition(".")[2]: table for table in described["tables"]}
        channel = grpc.insecure_channel(address)
        self._read = channel.unary_stream(
            "/bfrt_proto.BfRuntime/Read",
            bfrt.ReadRequest.SerializeToString,
            bfrt.ReadResponse.FromString,
        )
        self._write = channel.unary_unary(
            "/bfrt_proto.BfRuntime/Write",
            bfrt.WriteRequest.SerializeToString,
            bfrt.WriteResponse.FromString,
        )

    def connect(self, *always: TableEntry) -> None:
        """Bind to the program, which is installed if another one runs, and give queues strict
        priorities.

        Args:
            always: entries that a test may replace, and that are there again when the test's are
            deleted.

        Raises:
            TargetError: nobody answers, another client is bound, or the program is refused.
        """
        threading.Thread(target=self._loop.run_forever, name="bf-runtime", daemon=True).start()

        async def begin() -> None:
            await self._session.__aenter__()
            self._following = asyncio.create_task(self._follow())

        self._call(begin)
        self._always = {_key(one): _part(one) for one in always}
        self.insert(*always)

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work(), self._loop).result(TIMEOUT_S * 4)
        except SouthboundError as error:
            raise TargetError(str(error)) from None

    async def _follow(self) -> None:
        async for report in self._session.digests(DIGEST):
            for fields in report.fields:
                self._events.put(FlowEvent(**fields))

    # -- tables ------------------------------------------------------------------------------------

    def insert(self, *entries: TableEntry) -> None:
        before = self._parts
        self._parts = {**before, **{_key(one): _part(one) for one in entries}}
        try:
            self._update()
        except TargetError:
            self._parts = before
            raise

    def modify(self, *entries: TableEntry) -> None:
        self.insert(*entries)

    def delete(self, *entries: TableEntry) -> None:
        for key in map(_key, entries):
            self._parts.pop(key, None)
            if key in self._always:
                self._parts[key] = self._always[key]
        self._update()

    def _update(self) -> None:
        queues = [
            QueueSetting(port, queue, queue, 1, 0, None)
            for port in self._ports
            for queue in range(QUEUES)
        ]

        async def update() -> None:
            groups = tuple(self._groups.values())
            wanted = Intent("target", tuple(self._parts.values()), tuple(queues), groups=groups)
            (await self._session.update(wanted)).require()

        self._call(update)

    def has_table(self, name: str) -> bool:
        """Return whether the program has a table of this name."""
        return any(known.rpartition(".")[2] == name for known in self._described)

    def insert_multicast(self, group: int, ports: Iterable[int | tuple[int, int]]) -> None:
        copies = ((at, 0) if isinstance(at, int) else at for at in ports)
        self._groups[group] = MulticastGroup(group, tuple(sorted(copies)))
        self._update()

    def delete_multicast(self, group: int) -> None:
        del self._groups[group]
        self._update()

    # -- counters ----------------------------------------------------------------------------------

    def counter(self, name: str, index: int) -> Count:
        """Return a cell of an indirect counter."""
        table = self._described[name]
        message = bfrt.TableEntry(table_id=table["id"])
        message.key.fields.add(field_id=table["key"][0]["id"]).exact.value = index.to_bytes(
            4, "big"
        )
        return self._count(table, message)

    def queue_counter(self, port: int, queue: int) -> Count:
        """Return what has left a queue."""
        found = self.counter("EchelonEgress.sent", port * _NUMBERS["QUEUES"] + queue)
        # Egress counts the header by which ingress tells it things.
        return Count(found.packets, found.bytes - found.packets * _BRIDGED_BYTES)

    def direct_counter(self, entry: TableEntry) -> Count:
        """Return what an entry has counted."""
        key = bfrt.TableEntry.FromString(self._session.codec.encode(entry).key)
        return self._count(
            next(one for one in self._described.values() if one["id"] == key.table_id), key
        )

    def _count(self, table: Mapping[str, Any], message: bfrt.TableEntry) -> Count:
        request = bfrt.ReadRequest(
            p4_name=self._program.name, entities=[bfrt.Entity(table_entry=message)]
        )
        request.target.pipe_id = _ALL_PIPES
        try:
            (answer,) = self._read(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise TargetError(
                f"reading {table['name']}: {error.code().name} {error.details()}"
            ) from None
        names = {
            outer["singleton"]["id"]: outer["singleton"]["name"]
            for outer in table["data"]
            if "singleton" in outer
        }
        values = {
            names[part.field_id]: int.from_bytes(part.stream, "big")
            for part in answer.entities[0].table_entry.data.fields
            if part.field_id in names
        }
        packets = values["$COUNTER_SPEC_PKTS"]
        # A Tofino counts the frame check sequence.
        return Count(packets, values["$COUNTER_SPEC_BYTES"] - packets * _FCS_BYTES)

    def register(self, name: str, index: int) -> NoReturn:
        raise UnsupportedError("the TNA program has other registers: no packet knows what has left")

    def set_register(self, name: str, index: int, value: int) -> None:
        """Write a cell of a register of one field."""
        table = self._described.get(name)
        if table is None:
            self.register(name, index)
        request = bfrt.WriteRequest(p4_name=self._program.name)
        request.target.pipe_id = _ALL_PIPES
        update = request.updates.add(type=bfrt.Update.MODIFY)
        message = update.entity.table_entry
        message.table_id = table["id"]
        message.key.fields.add(field_id=table["key"][0]["id"]).exact.value = index.to_bytes(
            4, "big"
        )
        field = table["data"][0]["singleton"]
        width = field["type"]["width"]
        message.data.fields.add(field_id=field["id"]).stream = (value % (1 << width)).to_bytes(
            width // 8, "big"
        )
        try:
            self._write(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise TargetError(f"writing {name}: {error.code().name} {error.details()}") from None

    # -- digests -----------------------------------------------------------------------------------

    def next_event(self) -> FlowEvent:
        """Return the oldest digest that was not taken or dropped yet.

        Raises TargetError when none comes.
        """
        try:
            while 0 < (event := self._events.get(timeout=TIMEOUT_S)).flow < self._oldest_flow:
                pass
        except Empty:
            raise TargetError(f"no digest for {TIMEOUT_S:g} s") from None
        return event

    def forget_events(self, before_flow: int) -> None:
        """Drop digests so far, and later ones of flows with lower numbers than `before_flow`."""
        while not self._events.empty():
            self._events.get()
        self._oldest_flow = before_flow


def _key(entry: TableEntry) -> tuple[object, ...]:
    return entry.table, entry.match, entry.priority


def _part(one: TableEntry) -> Part:
    """Return an entry as a part of an intent; positions of segments become prefixes."""
    match = dict(one.match)
    position = match.get("position")
    if not isinstance(position, Interval):
        return Part("test", (one,))
    return Part(
        "test",
        tuple(
            TableEntry(
                one.table, tuple({**match, "position": prefix}.items()), one.actions, one.priority
            )
            for prefix in prefixes(position, 32)
        ),
    )
