"""The model of a switch with the P4 program behind it: each packet goes through both, which must do
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Protocol, Self

from finsy import P4MulticastGroupEntry, P4Schema
from finsy.proto import U128, p4d, p4r

from echelon.model.p4program import P4Program, constants, program
from echelon.switches.lowering.intent import ActionCall, MulticastGroup, Prefix, TableEntry
from echelon.switches.lowering.parts import entry
from echelon.switches.southbound.codec import encode_entry
from echelon_aggregation.program import BUILDS
from echelon_aggregation.wire import PORT, decode
from plugins.aggregation.tests.reference_switch import Address, Datagram, Member, Sent, Switch
from plugins.aggregation.tests.sequences import Sequence as PacketSequence
from softswitch.p4runtime.device import Device
from tests.differential import case
from tests.differential.bmv2 import Bmv2Target
from tests.differential.catalogue import Subject

BUILD = BUILDS / "v1model"
VALUES = 32
_SHIM = constants()["SHIM_VERSION"] << 4
_PRIMARY = 1
_DUES = 100
"""Datagrams are due at times below this; there is a flow for each."""
_TREES, _PLACES, _EPOCH = 3, 64, 1
"""The most that a sequence uses; the epoch of all packets."""
_FLOWS = ("shim_flow", "flow")
_OWNER = "EchelonIngress.aggregation.place_owner"
_DEADLINE = "EchelonIngress.by_deadline"
_FALLBACK_JOB, _UP, _DOWN = 4000, 4001, 4002
_MAC = b"\x02\0\0\0\0\1"


Item = TableEntry | MulticastGroup
Key = tuple[object, object] | int
"""A table and a match, or the number of a multicast group."""


def built() -> P4Program:
    """Return the program that is built with aggregation."""
    return program("v1model", BUILD)


class Runs(Protocol):
    """A switch that runs the program. One `ProgramSwitch` after another may have it."""

    burst: int
    """The number of packets that it is given at once."""
    installed: dict[Key, Item]
    """The items that the last of them left in its tables."""

    def write(self, kind: int, items: Iterable[Item]) -> None:
        """Insert, modify or delete entries and groups."""

    def process(self, packets: Sequence[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
        """Return what leaves for each packet, with its port."""

    def forget(self) -> None:
        """Free all places of the memory."""

    def stop(self) -> None:
        """End it."""


class InProcess:
    """The program on a softswitch in this process, at a time that stands still."""

    burst = 1

    def __init__(self, schema: P4Schema) -> None:
        self.installed: dict[Key, Item] = {}
        self._device = Device(now_ns=lambda: 0)
        stream = self._device.open_stream(lambda _message: None, lambda _status: None)
        primary = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(_PRIMARY))
        stream.receive(p4r.StreamMessageRequest(arbitration=primary))
        self._schema = schema
        self._device.set_pipeline(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=1,
                election_id=U128.encode(_PRIMARY),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=schema.get_pipeline_config(),
            )
        )

    def write(self, kind: int, items: Iterable[Item]) -> None:
        self._update(kind, _encoded(items, self._schema))

    def _update(self, kind: int, entities: Iterable[p4r.Entity]) -> None:
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]  # type: ignore[arg-type]
        request = p4r.WriteRequest(device_id=1, election_id=U128.encode(_PRIMARY), updates=updates)
        for update, status in zip(updates, self._device.write(request), strict=True):
            assert not status.code, f"{update}: {status}"

    def process(self, packets: Sequence[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
        switch = self._device.switch
        assert switch is not None
        return [switch.process(port, frame, 1_000_000) for port, frame in packets]

    def forget(self) -> None:
        register = self._schema.registers[_OWNER].id
        cells = [
            p4r.Entity(
                register_entry=p4r.RegisterEntry(
                    register_id=register,
                    index=p4r.Index(index=index),
                    data=p4d.P4Data(bitstring=b"\0"),
                )
            )
            for index in range(_PLACES)
        ]
        self._update(p4r.Update.MODIFY, cells)

    def stop(self) -> None:
        pass


class _InOrder(Subject):
    """A program whose egress does nothing to these packets that depends on others."""

    @property
    def races(self) -> bool:
        return False


class OnBmv2:
    """The program on BMv2, with gRPC instead of interfaces."""

    burst = 12
    """The packets of which five copies each fit a queue."""

    def __init__(self, schema: P4Schema) -> None:
        self.installed: dict[Key, Item] = {}
        self._schema = schema
        config = schema.get_pipeline_config()
        self._target = Bmv2Target()
        self._target.install(_InOrder("aggregation", config.p4_device_config, config.p4info))
        # BMv2's time goes on. The flows of all trees are due from one time on, nevertheless.
        for tree in range(1, _TREES + 1):
            self._target.write_register(f"{_DEADLINE}.reference_epoch", tree, 1 << 8 | _EPOCH)
            self._target.write_register(f"{_DEADLINE}.reference_us", tree, 1)

    def write(self, kind: int, items: Iterable[Item]) -> None:
        entities = _encoded(items, self._schema)
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]  # type: ignore[arg-type]
        for update, code in zip(updates, self._target.write(updates), strict=True):
            assert not code, f"{update}: {code}"

    def process(self, packets: Sequence[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
        found: list[list[tuple[int, bytes]]] = [[] for _ in packets]
        for output in self._target.send(packets, case.Sent((), 60 // self.burst)).outputs:
            found[output.cause].append((output.port, output.data))
        return found

    def forget(self) -> None:
        self._target.reset_register(_OWNER)

    def stop(self) -> None:
        self._target.stop()


def _encoded(items: Iterable[Item], schema: P4Schema) -> Iterator[p4r.Entity]:
    for item in items:
        if isinstance(item, TableEntry):
            yield p4r.Entity(table_entry=encode_entry(item, schema))
        else:
            yield P4MulticastGroupEntry(item.number, replicas=item.copies).encode(schema)


class Programs:
    """Switches that run a program, on which sequences run one after another.

    A context manager: stops them.
    """

    def __init__(
        self,
        make: Callable[[], Runs],
        switch: Callable[[Runs], ProgramSwitch] | None = None,
        values: int = VALUES,
    ) -> None:
        self._make, self._values = make, values
        self._switch = switch or ProgramSwitch
        self._running: list[Runs] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for runs in self._running:
            runs.stop()

    def run(self, seed: int) -> Counter[str]:
        """Run the sequence of a seed.

        Raise `AssertionError` if the program does anything else than the model.
        """
        used: list[ProgramSwitch] = []

        def make_switch() -> ProgramSwitch:
            if len(used) == len(self._running):
                self._running.append(self._make())
            used.append(self._switch(self._running[len(used)]))
            return used[-1]

        happened = PacketSequence(seed, make_switch, self._values).run()
        for switch in used:
            switch.settle()
        return happened


def programs(on: str) -> Programs:
    """Return switches that run the v1model program: "softswitch" or "bmv2"."""
    program = built()
    return Programs(
        partial(
            {"softswitch": InProcess, "bmv2": OnBmv2}[on], P4Schema(program.p4info, program.binary)
        )
    )


class ProgramSwitch(Switch):
    """A model that raises `AssertionError` if the program does anything else; `settle` it in the
    end.
    """

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs = runs
        self._hosts: dict[str, int] = {}
        self._tables: list[object] = []
        """The sources from which the program's tables were filled."""
        self._given: list[tuple[int, Datagram, Sent]] = []
        """Datagrams that the program has not had yet, with their ports and what must leave."""
        self._had_places = True

    def receive(self, port: int, datagram: Datagram) -> Sent:
        self._install()
        if self._had_places and not self.places:
            self.settle()
            self._runs.forget()
        expected = super().receive(port, datagram)
        self._had_places = bool(self.places)
        self._given.append((port, datagram, expected))
        if len(self._given) == self._runs.burst:
            self.settle()
        return expected

    def settle(self) -> None:
        """Give the program what the model has had, and compare."""
        given, self._given = self._given, []
        left = self._runs.process([(port, self._frame(datagram)) for port, datagram, _ in given])
        for (port, datagram, expected), leaving in zip(given, left, strict=True):
            found = sorted((out, *self._read(frame)) for out, frame in leaving)
            wanted = sorted(
                (out, sent.packet.encode(), sent.src, sent.dst) for out, sent in expected
            )
            assert found == wanted, f"port {port}, {datagram}:\nprogram {found}\nmodel   {wanted}"

    # -- frames ------------------------------------------------------------------------------------

    def _ipv4(self, host: str) -> int:
        return 10 << 24 | self._hosts.setdefault(host, len(self._hosts) + 1)

    def _frame(self, datagram: Datagram) -> bytes:
        packet = datagram.packet
        towards_fallback = datagram.dst[1] == PORT
        job, flow = (packet.tree, datagram.due) if towards_fallback else (_FALLBACK_JOB, 0)
        shim = bytes([_SHIM, _EPOCH]) + job.to_bytes(2, "big") + flow.to_bytes(2, "big") + bytes(14)
        payload = shim + packet.encode()
        (src, src_port), (dst, dst_port) = datagram.src, datagram.dst
        numbers = src_port, dst_port, 8 + len(payload), 0
        udp = b"".join(number.to_bytes(2, "big") for number in numbers)
        ipv4 = _ipv4_header(self._ipv4(src), self._ipv4(dst), 28 + len(payload), datagram.congested)
        return _MAC * 2 + b"\x08\0" + ipv4 + udp + payload

    def _read(self, frame: bytes) -> tuple[bytes, Address, Address]:
        """Return packet, source and destination of a frame, which must be well formed."""
        names = {number: name for name, number in self._hosts.items()}
        header = frame[14:34]
        assert _sum16(header) == 0xFFFF, "the IPv4 checksum is wrong"
        assert int.from_bytes(header[2:4], "big") == len(frame) - 14
        assert int.from_bytes(frame[38:40], "big") == len(frame) - 34
        packet = decode(frame[62:])
        src, dst = (names[int.from_bytes(header[at : at + 4], "big") & 0xFFFFFF] for at in (12, 16))
        ports = (int.from_bytes(frame[at : at + 2], "big") for at in (34, 36))
        return packet.encode(), (src, next(ports)), (dst, next(ports))

    # -- tables ------------------------------------------------------------------------------------

    def _install(self) -> None:
        """Bring the program's tables to what the model's are."""
        tables = [dict(self.routes), dict(self.members), dict(self.holders), dict(self.trees)]
        if tables == self._tables:
            return
        self.settle()
        self._tables = tables
        held = self._runs.installed
        wanted: dict[Key, Item] = {(each.table, each.match): each for each in self._entries()}
        wanted.update((group.number, group) for group in self._groups())
        # Flows that nothing has may stay.
        gone = [
            key
            for key in held
            if key not in wanted and not (isinstance(key, tuple) and key[0] in _FLOWS)
        ]
        new = [each for key, each in wanted.items() if key not in held]
        other = [each for key, each in wanted.items() if key in held and held[key] != each]
        removed = [held.pop(key) for key in gone]
        for kind, items in (
            (p4r.Update.DELETE, removed),
            (p4r.Update.INSERT, new),
            (p4r.Update.MODIFY, other),
        ):
            if items:
                self._runs.write(kind, items)
        held.update(wanted)

    def _entries(self) -> Iterable[TableEntry]:
        for host, port in self.routes.items():
            yield TableEntry(
                "ipv4_lpm",
                (("dst", Prefix(self._ipv4(host), 32)),),
                (ActionCall("route", (("port", port), ("dst_mac", 2))),),
            )
        for (tree, port), (member, behind) in self.members.items():
            action = {
                Member.CHILD: "from_child",
                Member.FALLBACK: "from_fallback",
                Member.PARENT: "from_parent",
            }[member]
            arguments = {} if member == Member.PARENT else {"workers_behind": behind}
            yield entry("aggregation_member", {"tree": tree, "port": port}, action, **arguments)
        fallbacks = {}
        for (tree, session), ((src, src_port), (dst, _)) in self.holders.items():
            fallbacks[tree] = dst
            yield entry(
                "aggregation_holder",
                {"tree": tree, "session": session},
                "hand_over",
                src=self._ipv4(src),
                src_port=src_port,
                dst=self._ipv4(dst),
                dst_mac=2,
                port=self.routes[dst],
                job=_FALLBACK_JOB,
                flow=_UP,
            )
        for tree, host in fallbacks.items():
            for due in range(_DUES):
                yield from _flow(tree, due, self.routes[host])
        for (tree, session), held in self.trees.items():
            key = {"tree": tree, "session": session}
            if held is None:
                yield entry("aggregation_tree", key, "pass_on")
                continue
            yield entry(
                "aggregation_tree",
                key,
                "aggregate",
                first=held.first,
                mask=held.mask,
                start=held.start,
                all=held.workers,
                take=held.take,
                is_root=int(held.parent_port is None),
                parent_port=held.parent_port or 0,
                group=_group(tree, session),
                up_flow=_UP,
                down_flow=_DOWN,
            )
        copies: dict[tuple[int, int], Address] = {}
        for (tree, _), held in self.trees.items():
            for copy, (_, address) in enumerate(() if held is None else held.children, start=1):
                if address is not None:
                    copies[tree, copy] = address
        for (tree, copy), (host, port) in copies.items():
            key = {"tree": tree, "copy": copy}
            yield entry(
                "aggregation_copy", key, "deliver", dst_mac=2, dst=self._ipv4(host), udp_port=port
            )

    def _groups(self) -> Iterable[MulticastGroup]:
        for (tree, session), held in self.trees.items():
            if held is not None:
                copies = tuple(
                    (port, copy) for copy, (port, _) in enumerate(held.children, start=1)
                )
                yield MulticastGroup(_group(tree, session), copies)


@cache
def _flow(tree: int, due: int, port: int) -> tuple[TableEntry, TableEntry]:
    number = tree * _DUES + due
    arguments = {
        "echelonflow": tree,
        "profile": 1,
        "offset_us": 0,
        "due_us": due * 1000,
        "left_shift": 63,
    }
    return (
        entry("shim_flow", {"job": tree, "flow": due}, "set_flow", flow=number),
        entry("flow", {"flow": number}, "deadline", port=port, dst_mac=2, **arguments),
    )


def _group(tree: int, session: int) -> int:
    return 0x4000 + 16 * tree + session


def _sum16(data: bytes) -> int:
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _ipv4_header(src: int, dst: int, length: int, congested: bool) -> bytes:
    ecn = 3 if congested else 2
    head = bytes([0x45, ecn]) + length.to_bytes(2, "big") + bytes(4) + bytes([64, 17])
    addresses = src.to_bytes(4, "big") + dst.to_bytes(4, "big")
    checksum = 0xFFFF - _sum16(head + addresses)
    return head + checksum.to_bytes(2, "big") + addresses
