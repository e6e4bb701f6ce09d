"""Writes and reads of a program's tables over gRPC."""

from __future__ import annotations

import grpc
import pytest

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from plugins.tofino_model.tests.bfruntime.conftest import BfrtError, Client, Served
from tests.faults import mentions

FORWARD = "pipe.Ingress.forward"
MAC = "hdr.ethernet.dst_addr"
SEND = "Ingress.send"
ROLLBACK = bfrt.WriteRequest.ROLLBACK_ON_ERROR


def test_entries_come_back_as_they_were_written(client: Client) -> None:
    client.insert(client.entry(FORWARD, {MAC: 0x0A0B0C0D0E0F}, SEND, port=0x1FF, qid=31))
    client.insert(
        client.entry(
            "pipe.Ingress.route", {"hdr.ipv4.dst_addr": (0x0A010203, 16)}, SEND, port=3, qid=1
        )
    )
    client.insert(
        client.entry(
            "pipe.Ingress.urgency",
            {"meta.profile": (0xFF, 0x0F), "meta.slack": (5, 0xFFFFF), "$MATCH_PRIORITY": 9},
            "Ingress.set_queue",
            queue=6,
        )
    )
    counted = {"$COUNTER_SPEC_BYTES": 0, "$COUNTER_SPEC_PKTS": 0}
    assert client.read(client.entry(FORWARD, None)) == [
        {"key": {MAC: 0x0A0B0C0D0E0F}, "action": SEND, "port": 0x1FF, "qid": 31, **counted}
    ]
    # Bits behind a prefix or outside a mask do not belong to the key.
    assert client.read(
        client.entry("pipe.Ingress.route", {"hdr.ipv4.dst_addr": (0x0A01FFFF, 16)})
    ) == [{"key": {"hdr.ipv4.dst_addr": (0x0A010000, 16)}, "action": SEND, "port": 3, "qid": 1}]
    assert client.read(client.entry("pipe.Ingress.urgency", None)) == [
        {
            "key": {"meta.profile": (0x0F, 0x0F), "meta.slack": (5, 0xFFFFF), "$MATCH_PRIORITY": 9},
            "action": "Ingress.set_queue",
            "queue": 6,
        }
    ]


def test_each_update_of_a_batch_has_a_status(client: Client) -> None:
    client.insert(client.entry(FORWARD, {MAC: 1}, "Ingress.drop"))
    too_wide = client.entry(FORWARD, {MAC: 9}, SEND, qid=1)
    too_wide.data.fields.add(field_id=1, stream=b"\x02\x00")
    with pytest.raises(BfrtError) as caught:
        client.insert(
            client.entry(FORWARD, {MAC: 2}, "Ingress.drop"),
            client.entry(FORWARD, {MAC: 1}, "Ingress.drop"),
            client.entry(FORWARD, {MAC: 3}, SEND, port=1),
            client.entry(FORWARD, {MAC: 4}),
            too_wide,
            client.entry(FORWARD, {MAC: 5}, "Ingress.drop"),
            client.entry(FORWARD, {MAC: 6}, "Ingress.drop"),
            client.entry(FORWARD, {MAC: 7}, "Ingress.drop"),
        )
    invalid = "INVALID_ARGUMENT"
    assert caught.value.codes == [
        "OK",
        "ALREADY_EXISTS",
        invalid,
        invalid,
        invalid,
        "OK",
        "OK",
        "RESOURCE_EXHAUSTED",
    ]
    assert mentions(caught.value.texts[2], "qid")
    assert mentions(caught.value.texts[4], 512, 9)
    assert sorted(entry["key"][MAC] for entry in client.read(client.entry(FORWARD, None))) == [
        1,
        2,
        5,
        6,
    ]


def test_a_batch_is_rolled_back_as_a_whole(client: Client) -> None:
    client.insert(
        client.entry(FORWARD, {MAC: 1}, SEND, port=1, qid=1),
        client.entry(FORWARD, {MAC: 2}, SEND, port=2, qid=2),
    )
    before = client.read(client.entry(FORWARD, None))
    request = bfrt.WriteRequest(client_id=client.id, atomicity=ROLLBACK)
    request.target.pipe_id = 0xFFFF
    for kind, entry in (
        (bfrt.Update.INSERT, client.entry(FORWARD, {MAC: 3}, "Ingress.drop")),
        (bfrt.Update.MODIFY, client.entry(FORWARD, {MAC: 1}, "Ingress.drop")),
        (
            bfrt.Update.MODIFY,
            client.entry("pipe.Ingress.position", {"$REGISTER_INDEX": 3}, Ingress_position_f1=8),
        ),
        (bfrt.Update.MODIFY, client.entry(FORWARD, None, "Ingress.drop", default=True)),
        (bfrt.Update.DELETE, client.entry(FORWARD, {MAC: 2})),
        (bfrt.Update.DELETE, client.entry(FORWARD, {MAC: 9})),
    ):
        request.updates.add(type=kind).entity.table_entry.CopyFrom(entry)
    with pytest.raises(grpc.RpcError):
        client.write_call(request)
    after = client.read(client.entry(FORWARD, None))
    assert sorted(after, key=str) == sorted(before, key=str)
    register = client.read(client.entry("pipe.Ingress.position", {"$REGISTER_INDEX": 3}))
    assert register[0]["Ingress.position.f1"] == 0
    assert client.read(client.entry(FORWARD, None, default=True)) == []


def test_a_modified_entry_keeps_what_is_not_given(client: Client) -> None:
    client.insert(client.entry(FORWARD, {MAC: 1}, SEND, port=5, qid=2, COUNTER_SPEC_PKTS=40))
    client.modify(client.entry(FORWARD, {MAC: 1}, SEND, port=6))
    assert (
        client.read(client.entry(FORWARD, {MAC: 1}))[0].items()
        >= {"port": 6, "qid": 2, "$COUNTER_SPEC_PKTS": 40}.items()
    )
    client.modify(client.entry(FORWARD, {MAC: 1}, "Ingress.drop"))
    found = client.read(client.entry(FORWARD, {MAC: 1}))[0]
    assert (found["action"], found["$COUNTER_SPEC_PKTS"], "port" in found) == (
        "Ingress.drop",
        40,
        False,
    )
    with pytest.raises(BfrtError) as caught:
        client.modify(client.entry(FORWARD, {MAC: 2}, "Ingress.drop"))
    assert caught.value.codes == ["NOT_FOUND"]


def test_entries_are_inserted_or_modified_and_deleted_or_ignored(client: Client) -> None:
    either = bfrt.Update.INSERT_OR_MODIFY
    entry = client.entry(FORWARD, {MAC: 1}, "Ingress.drop")
    assert not client.write(either, entry).status
    assert [status.code for status in client.write(either, entry).status] == [
        grpc.StatusCode.ALREADY_EXISTS.value[0]
    ]
    client.delete(entry)
    with pytest.raises(BfrtError) as caught:
        client.delete(entry)
    assert caught.value.codes == ["NOT_FOUND"]
    answer = client.write(bfrt.Update.DELETE, entry, metadata=(("ignore_not_found", "1"),))
    assert [status.canonical_code for status in answer.status] == [0]
    told = client.write(bfrt.Update.DELETE, entry, metadata=(("error_in_resp", "1"),))
    assert [status.canonical_code for status in told.status] == [grpc.StatusCode.NOT_FOUND.value[0]]


def test_the_default_entry_is_set_within_its_actions(client: Client) -> None:
    table = "pipe.Ingress.urgency"
    client.modify(client.entry(table, None, "Ingress.drop", default=True))
    assert client.read(client.entry(table, None, default=True)) == [
        {"key": {}, "action": "Ingress.drop"}
    ]
    with pytest.raises(BfrtError) as caught:
        client.modify(client.entry(table, None, "Ingress.set_queue", default=True, queue=1))
    assert caught.value.codes == ["INVALID_ARGUMENT"]
    client.delete(client.entry(table, None, default=True))
    assert client.read(client.entry(table, None, default=True)) == []


def test_registers_counters_and_meters_have_an_entry_for_each_index(client: Client) -> None:
    register = "pipe.Ingress.position"
    client.insert(client.entry(register, {"$REGISTER_INDEX": 15}, Ingress_position_f1=0xFFFFFFFF))
    values = [entry["Ingress.position.f1"] for entry in client.read(client.entry(register, None))]
    assert values == [0] * 15 + [0xFFFFFFFF]
    client.modify(client.entry("pipe.Ingress.seen", {"$COUNTER_INDEX": 2}, COUNTER_SPEC_PKTS=3))
    assert (
        client.read(client.entry("pipe.Ingress.seen", {"$COUNTER_INDEX": 2}))[0].items()
        >= {
            "$COUNTER_SPEC_PKTS": 3,
            "$COUNTER_SPEC_BYTES": 0,
        }.items()
    )
    assert (
        client.read(client.entry("pipe.Ingress.policer", {"$METER_INDEX": 0}))[0][
            "$METER_SPEC_CIR_KBPS"
        ]
        == 2**64 - 1
    )
    with pytest.raises(BfrtError) as caught:
        client.modify(client.entry(register, {"$REGISTER_INDEX": 16}, Ingress_position_f1=1))
    assert caught.value.codes == ["INVALID_ARGUMENT"]
    client.delete(client.entry(register, None))
    assert (
        client.read(client.entry(register, {"$REGISTER_INDEX": 15}))[0]["Ingress.position.f1"] == 0
    )


def test_reads_select_entries_fields_and_actions(client: Client) -> None:
    client.insert(
        client.entry(FORWARD, {MAC: 1}, SEND, port=1, qid=1),
        client.entry(FORWARD, {MAC: 2}, "Ingress.drop"),
    )
    query = client.entry(FORWARD, None, SEND)
    query.data.fields.add(field_id=2)
    assert client.read(query) == [{"key": {MAC: 1}, "action": SEND, "qid": 1}]
    usage = bfrt.Entity()
    usage.table_usage.table_id = client.table(FORWARD).id
    assert client.read_entities(usage)[0].table_usage.usage == 2
    named = bfrt.Entity()
    named.object_id.table_object.table_name = FORWARD
    named.object_id.table_object.data_field_name.action = SEND
    named.object_id.table_object.data_field_name.field = "qid"
    assert client.read_entities(named)[0].object_id.id == 2
    with pytest.raises(BfrtError) as caught:
        client.read_entities(
            bfrt.Entity(table_entry=client.entry(FORWARD, {MAC: 1})),
            bfrt.Entity(table_entry=client.entry(FORWARD, {MAC: 3})),
            bfrt.Entity(table_entry=bfrt.TableEntry(table_id=99)),
        )
    assert caught.value.codes == ["OK", "NOT_FOUND", "NOT_FOUND"]


def test_a_large_table_comes_in_several_messages(served: Served, client: Client) -> None:
    entries = [
        client.entry("pipe.Ingress.route", {"hdr.ipv4.dst_addr": (number << 8, 24)}, "NoAction")
        for number in range(1024)
    ]
    client.insert(*entries)
    read = client.read(client.entry("pipe.Ingress.route", None))
    assert [entry["key"]["hdr.ipv4.dst_addr"] for entry in read] == [
        (number << 8, 24) for number in range(1024)
    ]
