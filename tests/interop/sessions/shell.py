"""A session of p4runtime-shell with a switch that has no program yet: everything an operator does,
once.

    python shell.py ADDRESS P4INFO JSON PORT1 PORT2

Prints what it saw as one JSON object. Runs in the environment of p4runtime-shell.
"""

from __future__ import annotations

import json
import sys

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException
from wire import TIMEOUT_S, Wire, ethernet

CPU_PORT = "510"


def main() -> None:
    address, p4info, program, path1, path2 = sys.argv[1:]
    port1, port2 = Wire(path1), Wire(path2)
    saw: dict[str, object] = {}
    sh.setup(
        device_id=1,
        grpc_addr=address,
        election_id=(0, 7),
        config=sh.FwdPipeConfig(p4info, program),
        verbose=False,
    )
    try:
        saw["version"] = sh.client.api_version()
        saw["tables"] = sorted(table.name for table in sh.P4Objects(sh.P4Type.table))
        write_entries()
        saw["entries"] = sorted(str(entry.msg()) for entry in sh.TableEntry("exact_table").read())
        saw["everything"] = sum(
            1
            for name in ("lpm_table", "ternary_table", "selector_table", "profile_table")
            for _ in sh.TableEntry(name).read()
        )
        saw["duplicate"] = duplicate()

        port1.send(ethernet(0xA))
        saw["forwarded"] = port2.receive().hex()
        counter = sh.DirectCounterEntry("exact_counter")
        counter.table_entry.match["hdr.ethernet.dst"] = "10"
        counter.table_entry.match["standard.ingress_port"] = "1"
        saw["counted"] = [entry.data.packet_count for entry in counter.read()]
        saw["register"] = [bytes(cell.data.bitstring).hex() for cell in registers()]

        digest = sh.DigestEntry("station_t")
        digest.max_list_size = 1
        digest.ack_timeout_ns = 10**9
        digest.insert()
        port1.send(ethernet(0xA, src=0x0200000000AA))
        message = sh.client.get_stream_packet("digest", timeout=TIMEOUT_S)
        station = message.digest.data[0].struct.members
        saw["digest"] = [station[0].bitstring.hex(), station[1].bitstring.hex(), station[2].bool]
        acknowledge(message.digest)

        port1.send(ethernet(0xC))
        packet = sh.client.get_stream_packet("packet", timeout=TIMEOUT_S).packet
        saw["packet_in"] = [
            packet.payload.hex(),
            {part.metadata_id: part.value.hex() for part in packet.metadata},
        ]
        sh.PacketOut(ethernet(0xD), egress_port="2", unused="0").send()
        for _ in range(3):  # the frames that were forwarded before come first
            saw["packet_out"] = port2.receive().hex()
            if saw["packet_out"] == ethernet(0xD).hex():
                break

        for entry in sh.TableEntry("exact_table").read():
            entry.delete()
        saw["left"] = sum(1 for _ in sh.TableEntry("exact_table").read())
    finally:
        sh.teardown()
    print(json.dumps(saw))


def forward(dst: str, port: str) -> sh.TableEntry:
    entry = sh.TableEntry("exact_table")(action="forward")
    entry.match["hdr.ethernet.dst"] = dst
    entry.match["standard.ingress_port"] = "1"
    entry.action["port"] = port
    entry.action["mark"] = "7"
    return entry


def write_entries() -> None:
    forward("10", "2").insert()
    forward("11", "3").insert()
    forward("12", CPU_PORT).insert()
    changed = forward("11", "4")
    changed.metadata = b"changed"
    changed.modify()

    prefix = sh.TableEntry("lpm_table")(action="NoAction")
    prefix.match["hdr.ethernet.src"] = "00:00:0a:00:00:00/24"
    prefix.insert()
    masked = sh.TableEntry("ternary_table")(action="learn")
    masked.match["source"] = "0x0200000000aa &&& 0xffffffffffff"
    masked.priority = 5
    masked.insert()
    one_shot = sh.TableEntry("selector_table")
    one_shot.match["hdr.ethernet.dst"] = "20"
    one_shot.oneshot = sh.Oneshot("selector_table")
    one_shot.oneshot.add(sh.Action("NoAction"), weight=2)
    one_shot.insert()
    member = sh.ActionProfileMember("members")(member_id=4, action="NoAction")
    member.insert()
    indirect = sh.TableEntry("profile_table")
    indirect.match["hdr.ethernet.dst"] = "20"
    indirect.member_id = 4
    indirect.insert()
    default = sh.TableEntry("exact_table")(action="drop", is_default=True)
    default.modify()
    group = sh.MulticastGroupEntry(5)
    group.add(3, 1).add(4, 1)
    group.insert()


def duplicate() -> str:
    try:
        forward("10", "2").insert()
    except P4RuntimeWriteException as error:
        return str(error)
    return "no error"


def registers() -> list[object]:
    """Return the registers, which the shell does not have; its client has."""
    from p4.v1 import p4runtime_pb2

    entity = p4runtime_pb2.Entity()
    p4info = sh.client.get_p4info()
    (entity.register_entry.register_id,) = (register.preamble.id for register in p4info.registers)
    entity.register_entry.index.index = 1
    return [
        found.register_entry
        for response in sh.client.read_one(entity)
        for found in response.entities
    ]


def acknowledge(digest: object) -> None:
    from p4.v1 import p4runtime_pb2

    message = p4runtime_pb2.StreamMessageRequest()
    message.digest_ack.digest_id = digest.digest_id
    message.digest_ack.list_id = digest.list_id
    sh.client.stream_out_q.put(message)


main()
