"""The model of a switch with the P4 program behind it: each packet goes through both, which must do the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from finsy import P4MulticastGroupEntry, P4Schema
from finsy.proto import U128, p4d, p4r

from echelon.extras import shipped
from echelon.lowering.intent import ActionCall, MulticastGroup, Prefix, TableEntry
from echelon.lowering.parts import entry
from echelon.p4program import P4Program, constants, program
from echelon.southbound.codec import encode_entry
from echelon_aggregation.wire import PORT, decode
from plugins.aggregation.tests.reference_switch import Address, Datagram, Member, Sent, Switch
from softswitch.p4runtime.device import Device

BUILD = Path("p4src/build/v1model-aggregation")
_SHIM = constants()["SHIM_VERSION"] << 4
_PRIMARY = 1
_DUES = 100
"""Datagrams are due at times below this; there is a flow for each."""
_FALLBACK_JOB, _UP, _DOWN = 4000, 4001, 4002
_MAC = b"\x02\0\0\0\0\1"


def built() -> P4Program:
    """Return the program that is built with aggregation."""
    return program("v1model", shipped() / BUILD)


class Runs(Protocol):
    """A switch that runs the program."""

    def write(self, kind: int, entities: Iterable[p4r.Entity]) -> None: ...

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return what leaves, with its port."""
        ...


class InProcess:
    """The program on a softswitch in this process, at a time that stands still."""

    def __init__(self, installed: P4Program) -> None:
        self._device = Device(now_ns=lambda: 0)
        stream = self._device.open_stream(lambda _message: None, lambda _status: None)
        primary = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(_PRIMARY))
        stream.receive(p4r.StreamMessageRequest(arbitration=primary))
        schema = P4Schema(installed.p4info, installed.binary)
        self._device.set_pipeline(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=1,
                election_id=U128.encode(_PRIMARY),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=schema.get_pipeline_config(),
            )
        )

    def write(self, kind: int, entities: Iterable[p4r.Entity]) -> None:
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]  # type: ignore[arg-type]
        request = p4r.WriteRequest(device_id=1, election_id=U128.encode(_PRIMARY), updates=updates)
        for update, status in zip(updates, self._device.write(request), strict=True):
            assert not status.code, f"{update}: {status}"

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        switch = self._device.switch
        assert switch is not None
        return switch.process(port, frame, 1_000_000)


class ProgramSwitch(Switch):
    """A model that raises `AssertionError` if the program does anything else."""

    def __init__(self, runs: Runs, schema: P4Schema) -> None:
        super().__init__()
        self._runs, self._schema = runs, schema
        self._installed: dict[object, p4r.Entity] = {}
        self._hosts: dict[str, int] = {}
        self._had_places = False

    def receive(self, port: int, datagram: Datagram) -> Sent:
        self._install()
        if self._had_places and not self.places:
            self._forget()
        expected = super().receive(port, datagram)
        self._had_places = bool(self.places)
        left = self._runs.process(port, self._frame(datagram))
        found = sorted((out, *self._read(frame)) for out, frame in left)
        wanted = sorted((out, sent.packet.encode(), sent.src, sent.dst) for out, sent in expected)
        assert found == wanted, f"port {port}, {datagram}:\nprogram {found}\nmodel   {wanted}"
        return expected

    # -- frames --------------------------------------------------------------------------------------------------

    def _ipv4(self, host: str) -> int:
        return 10 << 24 | self._hosts.setdefault(host, len(self._hosts) + 1)

    def _frame(self, datagram: Datagram) -> bytes:
        packet = datagram.packet
        towards_fallback = datagram.dst[1] == PORT
        job, flow = (packet.tree, datagram.due) if towards_fallback else (_FALLBACK_JOB, 0)
        shim = bytes([_SHIM, 1]) + job.to_bytes(2, "big") + flow.to_bytes(2, "big") + bytes(14)
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

    # -- tables --------------------------------------------------------------------------------------------------

    def _install(self) -> None:
        """Bring the program's tables to what the model's are."""
        wanted: dict[object, p4r.Entity] = {}
        for each in self._entries():
            wanted[each.table, each.match] = p4r.Entity(table_entry=encode_entry(each, self._schema))
        for group in self._groups():
            made = P4MulticastGroupEntry(group.number, replicas=group.copies)
            wanted[group.number] = made.encode(self._schema)
        held = self._installed
        gone = [entity for key, entity in held.items() if key not in wanted]
        new = [entity for key, entity in wanted.items() if key not in held]
        other = [entity for key, entity in wanted.items() if key in held and held[key] != entity]
        for kind, entities in ((p4r.Update.DELETE, gone), (p4r.Update.INSERT, new), (p4r.Update.MODIFY, other)):
            if entities:
                self._runs.write(kind, entities)
        self._installed = wanted

    def _entries(self) -> Iterable[TableEntry]:
        for host, port in self.routes.items():
            yield TableEntry(
                "ipv4_lpm",
                (("dst", Prefix(self._ipv4(host), 32)),),
                (ActionCall("route", (("port", port), ("dst_mac", 2))),),
            )
        for (tree, port), (member, behind) in self.members.items():
            action = {Member.CHILD: "from_child", Member.FALLBACK: "from_fallback", Member.PARENT: "from_parent"}[
                member
            ]
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
                number = tree * _DUES + due
                arguments = {"echelonflow": tree, "profile": 1, "offset_us": 0, "due_us": due * 1000, "left_shift": 63}
                yield entry("shim_flow", {"job": tree, "flow": due}, "set_flow", flow=number)
                yield entry("flow", {"flow": number}, "deadline", port=self.routes[host], dst_mac=2, **arguments)
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
            yield entry("aggregation_copy", key, "deliver", dst_mac=2, dst=self._ipv4(host), udp_port=port)

    def _groups(self) -> Iterable[MulticastGroup]:
        for (tree, session), held in self.trees.items():
            if held is not None:
                copies = tuple((port, copy) for copy, (port, _) in enumerate(held.children, start=1))
                yield MulticastGroup(_group(tree, session), copies)

    def _forget(self) -> None:
        register = self._schema.registers["EchelonIngress.aggregation.place_owner"].id
        cells = [
            p4r.Entity(
                register_entry=p4r.RegisterEntry(
                    register_id=register, index=p4r.Index(index=index), data=p4d.P4Data(bitstring=b"\0")
                )
            )
            for index in range(64)
        ]
        self._runs.write(p4r.Update.MODIFY, cells)


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
