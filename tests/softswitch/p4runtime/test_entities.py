# ruff: noqa: E501 - messages in text form stay on one line
"""Every kind of entity: what is written is read back, reaches the data plane, and is refused as the
specification says.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.p4runtime import reading
from softswitch.rpc.status import BatchFailedError, Code
from tests.faults import mentions


def frame(dst: int = 0, src: int = 0, kind: int = 0x800) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big") + bytes(46)


EXACT_KEY = (
    'match { field_id: 1 exact { value: "\\x0a" } } match { field_id: 2 exact { value: "\\x01" } }'
)
FORWARD = (
    'action { action { action_id: $forward params { param_id: 1 value: "\\x02" } '
    'params { param_id: 2 value: "\\x07" } } }'
)
FLOOD = 'action { action { action_id: $flood params { param_id: 1 value: "\\x05" } } }'
EXACT = f"table_entry {{ table_id: $exact_table {EXACT_KEY} {FORWARD} }}"
DST = 'match { field_id: 1 exact { value: "\\x0a" } }'

SHORT = {"EXACT_KEY": EXACT_KEY, "FORWARD": FORWARD, "FLOOD": FLOOD, "EXACT": EXACT, "DST": DST}

SYMMETRIC = [
    EXACT,
    f'table_entry {{ table_id: $exact_table {EXACT_KEY} {FORWARD} metadata: "\\x00\\xff" controller_metadata: 77 }}',
    'table_entry { table_id: $lpm_table match { field_id: 1 lpm { value: "\\x0a\\x00\\x00\\x00\\x00\\x00" prefix_len: 8 } }'
    + FLOOD
    + "}",
    f"table_entry {{ table_id: $lpm_table {FLOOD} }}",
    """table_entry { table_id: $ternary_table priority: 5
        match { field_id: 1 ternary { value: "\\x0a" mask: "\\xff\\x0f" } }
        match { field_id: 2 range { low: "\\x00" high: "\\x08\\x00" } }
        match { field_id: 3 optional { value: "\\x01\\xff" } } action { action { action_id: $learn } } }""",
    "table_entry { table_id: $ternary_table priority: 2147483647 action { action { action_id: $learn } } }",
    f"table_entry {{ table_id: $idle_table {DST} {FLOOD} idle_timeout_ns: 1000000 }}",
    """table_entry { table_id: $selector_table match { field_id: 1 exact { value: "\\x0a" } }
        action { action_profile_action_set {
            action_profile_actions { action { action_id: $flood params { param_id: 1 value: "\\x01" } } weight: 2 }
            action_profile_actions { action { action_id: $flood params { param_id: 1 value: "\\x01" } } weight: 1 } } } }""",
    "action_profile_member { action_profile_id: $members member_id: 4 action { action_id: $NoAction } }",
    """action_profile_member { action_profile_id: $chooser member_id: 4294967295
        action { action_id: $flood params { param_id: 1 value: "\\x01" } } }""",
    "action_profile_group { action_profile_id: $chooser group_id: 9 max_size: 12 }",
    """packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 5 metadata: "x"
        replicas { port: "\\x01" instance: 1 } replicas { port: "\\x01" instance: 2 } replicas { egress_port: 3 } } }""",
    """packet_replication_engine_entry { clone_session_entry { session_id: 7 class_of_service: 3
        packet_length_bytes: 64 replicas { port: "\\x01\\xfe" instance: 65535 } } }""",
    "digest_entry { digest_id: $station_t config { max_timeout_ns: 5 max_list_size: 6 ack_timeout_ns: 7 } }",
]


@pytest.mark.parametrize("text", SYMMETRIC)
def test_inserted_once_read_back_deleted_once(controller: Any, text: str) -> None:
    insert = controller.program.update("INSERT", text)
    delete = controller.program.update("DELETE", text)
    kind = insert.entity.WhichOneof("entity")
    assert [status.code for status in controller.write(insert, insert)] == [
        Code.OK,
        Code.ALREADY_EXISTS,
    ]
    assert controller.read(text) == [insert.entity]
    assert [
        status.code for status in controller.write(controller.program.update("MODIFY", text))
    ] == [Code.OK]
    assert controller.read(text) == [insert.entity]
    assert [status.code for status in controller.write(delete, delete)] == [Code.OK, Code.NOT_FOUND]
    assert controller.read(text) == []
    assert controller.write(controller.program.update("MODIFY", text))[0].code == Code.NOT_FOUND
    assert kind is not None


CELLS = [
    "counter_entry { counter_id: $port_counter index { index: 3 } data { byte_count: 10 packet_count: 2 } }",
    'register_entry { register_id: $last_type index { index: 7 } data { bitstring: "\\xff\\xff\\xff\\xff" } }',
    "meter_entry { meter_id: $port_meter index { index: 1 } config { cir: 1 cburst: 2 pir: 3 pburst: 4 } }",
    'value_set_entry { value_set_id: $special_types members { match { field_id: 1 exact { value: "\\x90" } } } }',
]


@pytest.mark.parametrize("text", CELLS)
def test_cells_can_only_be_modified(controller: Any, text: str) -> None:
    for kind in ("INSERT", "DELETE"):
        assert (
            controller.write(controller.program.update(kind, text))[0].code == Code.INVALID_ARGUMENT
        )
    controller.do("MODIFY", text)
    assert controller.read(text) == [controller.program.entity(text)]


def test_byte_strings_are_read_back_in_canonical_form(controller: Any) -> None:
    controller.do(
        "INSERT", EXACT.replace('"\\x0a"', '"\\x00\\x00\\x0a"').replace('"\\x02"', '"\\x00\\x02"')
    )
    assert controller.read(EXACT) == [controller.program.entity(EXACT)]


# -- refusals --------------------------------------------------------------------------------------

REFUSED = r"""
INSERT table_entry { } -> INVALID_ARGUMENT table 0
INSERT table_entry { table_id: 5 } -> INVALID_ARGUMENT table 5
INSERT table_entry { table_id: $exact_table @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table 'hdr.ethernet.dst'
INSERT table_entry { table_id: $exact_table @EXACT_KEY @DST @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table 'hdr.ethernet.dst'
INSERT table_entry { table_id: $exact_table match { field_id: 9 } @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table field 9
INSERT table_entry { table_id: $exact_table match { field_id: 1 lpm { value: "\x01" prefix_len: 2 } } } -> INVALID_ARGUMENT IngressImpl.exact_table 'hdr.ethernet.dst' exact lpm
INSERT table_entry { table_id: $exact_table match { field_id: 1 } } -> INVALID_ARGUMENT IngressImpl.exact_table 'hdr.ethernet.dst' exact nothing
INSERT table_entry { table_id: $exact_table @DST match { field_id: 2 exact { value: "\x02\x00" } } @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table 'standard.ingress_port' 0x0200 bit<9>
INSERT table_entry { table_id: $exact_table @DST match { field_id: 2 exact { value: "" } } @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table 'standard.ingress_port' bit<9>
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action { action_id: $forward params { param_id: 1 value: "\x02" } params { param_id: 2 value: "\x01\x07" } } } } -> INVALID_ARGUMENT IngressImpl.forward 'mark' 0x0107 bit<8>
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action { action_id: $forward params { param_id: 1 value: "\x02" } params { param_id: 3 value: "\x07" } } } } -> INVALID_ARGUMENT IngressImpl.forward parameter 3
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action { action_id: $forward params { param_id: 1 value: "\x02" } params { param_id: 1 value: "\x07" } } } } -> INVALID_ARGUMENT IngressImpl.forward parameter 'port'
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action { action_id: $forward } } } -> INVALID_ARGUMENT IngressImpl.forward parameter 'port'
INSERT table_entry { table_id: $exact_table @EXACT_KEY } -> INVALID_ARGUMENT IngressImpl.exact_table action
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action_profile_member_id: 1 } } -> INVALID_ARGUMENT IngressImpl.exact_table action_profile_member_id
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action { action_id: $learn } } } -> INVALID_ARGUMENT IngressImpl.exact_table action $learn
INSERT table_entry { table_id: $exact_table @EXACT_KEY action { action { action_id: $NoAction } } } -> PERMISSION_DENIED IngressImpl.exact_table NoAction
INSERT table_entry { table_id: $exact_table @EXACT_KEY priority: 1 @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table priority 1
INSERT table_entry { table_id: $exact_table @EXACT_KEY is_const: true @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table is_const
INSERT table_entry { table_id: $exact_table @EXACT_KEY idle_timeout_ns: 1 @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table idle
INSERT table_entry { table_id: $exact_table @EXACT_KEY meter_config { } @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table direct meter
INSERT table_entry { table_id: $exact_table @EXACT_KEY meter_counter_data { } @FORWARD } -> UNIMPLEMENTED IngressImpl.exact_table meters
INSERT table_entry { table_id: $exact_table @EXACT_KEY counter_data { packet_count: -1 } @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table count
INSERT table_entry { table_id: $lpm_table @FLOOD counter_data { } } -> INVALID_ARGUMENT IngressImpl.lpm_table direct counter
INSERT table_entry { table_id: $lpm_table match { field_id: 1 lpm { value: "\x00" } } @FLOOD } -> INVALID_ARGUMENT IngressImpl.lpm_table 'hdr.ethernet.src' prefix 0 1..48
INSERT table_entry { table_id: $lpm_table match { field_id: 1 lpm { value: "\x01" prefix_len: 8 } } @FLOOD } -> INVALID_ARGUMENT IngressImpl.lpm_table 'hdr.ethernet.src' 0x1 prefix 8
INSERT table_entry { table_id: $lpm_table match { field_id: 1 lpm { value: "\x01" prefix_len: 49 } } @FLOOD } -> INVALID_ARGUMENT IngressImpl.lpm_table 'hdr.ethernet.src' prefix 49 1..48
INSERT table_entry { table_id: $ternary_table } -> INVALID_ARGUMENT IngressImpl.ternary_table priority 0
INSERT table_entry { table_id: $ternary_table priority: -1 } -> INVALID_ARGUMENT IngressImpl.ternary_table priority -1
INSERT table_entry { table_id: $ternary_table priority: 1 match { field_id: 1 ternary { value: "\x00" mask: "\x00" } } } -> INVALID_ARGUMENT IngressImpl.ternary_table 'source' mask 0
INSERT table_entry { table_id: $ternary_table priority: 1 match { field_id: 1 ternary { value: "\x03" mask: "\x01" } } } -> INVALID_ARGUMENT IngressImpl.ternary_table 'source' 0x3 mask 0x1
INSERT table_entry { table_id: $ternary_table priority: 1 match { field_id: 2 range { low: "\x03" high: "\x01" } } } -> INVALID_ARGUMENT IngressImpl.ternary_table 'hdr.ethernet.type' range 3 1
INSERT table_entry { table_id: $ternary_table priority: 1 match { field_id: 2 range { low: "\x00" high: "\xff\xff" } } } -> INVALID_ARGUMENT IngressImpl.ternary_table 'hdr.ethernet.type' range
INSERT table_entry { table_id: $const_table @DST @FLOOD } -> PERMISSION_DENIED IngressImpl.const_table entries
MODIFY table_entry { table_id: $const_table match { field_id: 1 exact { value: "\x90\x00" } } @FLOOD } -> PERMISSION_DENIED IngressImpl.const_table entries
DELETE table_entry { table_id: $const_table match { field_id: 1 exact { value: "\x90\x00" } } } -> PERMISSION_DENIED IngressImpl.const_table entries
INSERT table_entry { table_id: $keyless_table @FLOOD } -> INVALID_ARGUMENT IngressImpl.keyless_table key
INSERT table_entry { table_id: $exact_table is_default_action: true @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table default
DELETE table_entry { table_id: $exact_table is_default_action: true } -> INVALID_ARGUMENT IngressImpl.exact_table default
MODIFY table_entry { table_id: $exact_table is_default_action: true @EXACT_KEY @FORWARD } -> INVALID_ARGUMENT IngressImpl.exact_table default priority
MODIFY table_entry { table_id: $exact_table is_default_action: true @FLOOD } -> PERMISSION_DENIED IngressImpl.exact_table IngressImpl.flood default
MODIFY table_entry { table_id: $ternary_table is_default_action: true action { action { action_id: $learn } } } -> PERMISSION_DENIED IngressImpl.ternary_table default
MODIFY table_entry { table_id: $profile_table is_default_action: true @FLOOD } -> PERMISSION_DENIED IngressImpl.profile_table default
MODIFY table_entry { table_id: $idle_table is_default_action: true idle_timeout_ns: 5 @FLOOD } -> INVALID_ARGUMENT IngressImpl.idle_table default idle
INSERT table_entry { table_id: $profile_table @DST @FLOOD } -> INVALID_ARGUMENT IngressImpl.profile_table member group action
INSERT table_entry { table_id: $profile_table @DST action { action_profile_member_id: 8 } } -> NOT_FOUND IngressImpl.members member 8
INSERT table_entry { table_id: $selector_table @DST action { action_profile_group_id: 8 } } -> NOT_FOUND IngressImpl.chooser group 8
INSERT table_entry { table_id: $profile_table @DST action { action_profile_action_set { } } } -> INVALID_ARGUMENT IngressImpl.members selector
INSERT action_profile_member { action_profile_id: 1 } -> INVALID_ARGUMENT action profile 1
INSERT action_profile_member { action_profile_id: $members } -> INVALID_ARGUMENT IngressImpl.members member id
INSERT action_profile_member { action_profile_id: $members member_id: 1 } -> INVALID_ARGUMENT IngressImpl.members member 1 action
INSERT action_profile_member { action_profile_id: $members member_id: 1 action { action_id: $drop } } -> INVALID_ARGUMENT IngressImpl.members action $drop
INSERT action_profile_group { action_profile_id: $members group_id: 1 } -> INVALID_ARGUMENT IngressImpl.members selector groups
INSERT action_profile_group { action_profile_id: $chooser group_id: 1 members { member_id: 5 weight: 1 } } -> NOT_FOUND IngressImpl.chooser member 5
INSERT action_profile_group { action_profile_id: $chooser group_id: 1 members { member_id: 5 } } -> INVALID_ARGUMENT IngressImpl.chooser weight
INSERT action_profile_group { action_profile_id: $chooser group_id: 1 members { member_id: 5 weight: 2000000000 } } -> RESOURCE_EXHAUSTED IngressImpl.chooser weights 65536
INSERT action_profile_group { action_profile_id: $chooser group_id: 1 members { member_id: 5 weight: 1 watch_port: "\x02\x00" } } -> INVALID_ARGUMENT IngressImpl.chooser watch_port 0x0200 bit<9>
INSERT action_profile_group { action_profile_id: $chooser group_id: 1 members { member_id: 5 weight: 1 watch: -1 } } -> INVALID_ARGUMENT IngressImpl.chooser watch -1 bit<9>
MODIFY counter_entry { } -> INVALID_ARGUMENT counter id
MODIFY counter_entry { counter_id: 3 } -> INVALID_ARGUMENT counter 3
MODIFY counter_entry { counter_id: $port_counter index { index: 16 } } -> OUT_OF_RANGE IngressImpl.port_counter index 16
MODIFY counter_entry { counter_id: $port_counter index { index: -1 } } -> INVALID_ARGUMENT IngressImpl.port_counter index -1
MODIFY register_entry { register_id: $last_type index { } } -> INVALID_ARGUMENT IngressImpl.last_type data
MODIFY register_entry { register_id: $last_type index { } data { bool: true } } -> INVALID_ARGUMENT IngressImpl.last_type bool bitstring
MODIFY register_entry { register_id: $last_type index { } data { bitstring: "\x01\x00\x00\x00\x00" } } -> OUT_OF_RANGE IngressImpl.last_type 0x0100000000 bit<32>
MODIFY meter_entry { meter_id: $port_meter config { cir: 2 pir: 1 } } -> INVALID_ARGUMENT IngressImpl.port_meter pir 1 cir 2
MODIFY meter_entry { meter_id: $port_meter config { cir: -2 } } -> INVALID_ARGUMENT IngressImpl.port_meter rate
MODIFY meter_entry { meter_id: $port_meter config { eburst: 2 } } -> INVALID_ARGUMENT IngressImpl.port_meter eburst
MODIFY meter_entry { meter_id: $port_meter counter_data { } } -> UNIMPLEMENTED meters
MODIFY direct_counter_entry { table_entry { table_id: $exact_table @EXACT_KEY } } -> NOT_FOUND IngressImpl.exact_table key (10, 1)
INSERT direct_counter_entry { table_entry { table_id: $exact_table } } -> INVALID_ARGUMENT IngressImpl.exact_table direct counter
MODIFY direct_counter_entry { table_entry { table_id: $lpm_table } } -> INVALID_ARGUMENT IngressImpl.lpm_table direct counter
MODIFY direct_meter_entry { table_entry { table_id: $exact_table } } -> INVALID_ARGUMENT IngressImpl.exact_table direct meter
MODIFY direct_counter_entry { table_entry { table_id: $exact_table is_default_action: true priority: 1 } } -> INVALID_ARGUMENT IngressImpl.exact_table default priority
INSERT packet_replication_engine_entry { } -> INVALID_ARGUMENT replication
INSERT packet_replication_engine_entry { multicast_group_entry { } } -> INVALID_ARGUMENT multicast group 0 1..65535
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 512 } } } -> INVALID_ARGUMENT multicast group 1 port 512 bit<9>
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { port: "" } } } -> INVALID_ARGUMENT multicast group 1 port bit<9>
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 } replicas { port: "\x01" } } } -> INVALID_ARGUMENT multicast group port 1 instance 0
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 instance: 65536 } } } -> INVALID_ARGUMENT multicast group 1 instance 65536 65535
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 backup_replicas { } } } } -> INVALID_ARGUMENT multicast group 1 port bit<9>
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 backup_replicas { port: "\x00\x01" instance: 9 } } } } -> INVALID_ARGUMENT multicast group port 1 backup
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 } replicas { egress_port: 2 backup_replicas { port: "\x01" } } } } -> INVALID_ARGUMENT multicast group port 1 instance 0
INSERT packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 backup_replicas { port: "\x02" instance: 65536 } } } } -> INVALID_ARGUMENT multicast group 1 instance 65536 65535
INSERT packet_replication_engine_entry { clone_session_entry { session_id: 32768 } } -> INVALID_ARGUMENT clone session 32768 1..32767
INSERT packet_replication_engine_entry { clone_session_entry { session_id: 1 class_of_service: 8 } } -> INVALID_ARGUMENT clone session 1 class 8 0..7
INSERT packet_replication_engine_entry { clone_session_entry { session_id: 1 packet_length_bytes: -8 } } -> INVALID_ARGUMENT clone session 1 packet_length_bytes
INSERT digest_entry { digest_id: 3 } -> INVALID_ARGUMENT digest 3
INSERT digest_entry { digest_id: $station_t config { max_list_size: -1 } } -> INVALID_ARGUMENT station_t size
MODIFY value_set_entry { value_set_id: $special_types members { match { field_id: 1 exact { value: "\x09" } } } members { match { field_id: 1 exact { value: "\x00\x09" } } } } -> ALREADY_EXISTS ParserImpl.special_types member
MODIFY value_set_entry { value_set_id: $special_types members { } members { } members { } members { } members { }} -> RESOURCE_EXHAUSTED ParserImpl.special_types 5 4
MODIFY value_set_entry { value_set_id: 2 } -> INVALID_ARGUMENT value set 2
INSERT extern_entry { } -> UNIMPLEMENTED extern_entry
INSERT  -> INVALID_ARGUMENT entity
UNSPECIFIED @EXACT -> INVALID_ARGUMENT INSERT MODIFY DELETE
"""
"""Refused updates: in each line the kind of update and of entity, the status that answers, and what
its message names.
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_refused(controller: Any, line: str) -> None:
    update, answer = line.split(" -> ")
    kind, _, text = update.partition(" ")
    code, *facts = controller.program.with_ids(answer).split()
    before = controller.everything()
    (status,) = controller.write(
        controller.program.update(kind, re.sub(r"@(\w+)", lambda found: SHORT[found[1]], text))
    )
    assert status.code == Code[code], status
    assert mentions(status.message, *facts), status
    assert controller.everything() == before


def test_a_full_table(controller: Any) -> None:
    for number in range(1, 18):
        text = f'table_entry {{ table_id: $lpm_table match {{ field_id: 1 lpm {{ value: "\\x{number:02x}" prefix_len: 48 }} }} {FLOOD} }}'
        (status,) = controller.write(controller.program.update("INSERT", text))
        assert status.code == (Code.OK if number <= 16 else Code.RESOURCE_EXHAUSTED)
    assert mentions(status.message, "IngressImpl.lpm_table", 16)


def test_errors_do_not_stop_a_batch(controller: Any) -> None:
    bad = controller.program.update("INSERT", "table_entry { table_id: 5 }")
    statuses = controller.write(controller.program.exact(1), bad, controller.program.exact(2))
    assert [status.code for status in statuses] == [Code.OK, Code.INVALID_ARGUMENT, Code.OK]
    assert len(controller.read("table_entry { table_id: $exact_table }")) == 2


# -- default entries, direct resources -------------------------------------------------------------


def test_default_entry(controller: Any) -> None:
    query = "table_entry { table_id: $exact_table is_default_action: true }"
    initial = "table_entry { table_id: $exact_table is_default_action: true action { action { action_id: $drop } } }"
    changed = (
        f'table_entry {{ table_id: $exact_table is_default_action: true {FORWARD} metadata: "m" }}'
    )
    assert controller.read(query) == [controller.program.entity(initial)]
    controller.do("MODIFY", changed)
    assert controller.read(query) == [controller.program.entity(changed)]
    assert controller.device.switch.process(1, frame(dst=99), 0) == [(2, frame(dst=99))]
    controller.do("MODIFY", query)
    assert controller.read(query) == [controller.program.entity(initial)]
    assert controller.device.switch.process(1, frame(dst=99), 0) == []


def test_default_entry_counts_and_is_reset(controller: Any) -> None:
    key = "table_entry { table_id: $exact_table is_default_action: true %s }"
    controller.device.switch.process(1, frame(dst=99), 0)
    controller.device.switch.process(1, frame(dst=98), 0)
    (found,) = controller.read(key % "counter_data { }")
    assert (
        found.table_entry.counter_data.packet_count,
        found.table_entry.counter_data.byte_count,
    ) == (2, 120)
    (counter,) = controller.read(f"direct_counter_entry {{ {key % ''} }}")
    assert counter == controller.program.entity(
        f"direct_counter_entry {{ {key % ''} data {{ packet_count: 2 byte_count: 120 }} }}"
    )
    controller.do("MODIFY", f"direct_counter_entry {{ {key % ''} data {{ packet_count: 7 }} }}")
    assert controller.read(key % "counter_data { }")[0].table_entry.counter_data.packet_count == 7
    controller.do("MODIFY", key % "")
    assert controller.read(key % "counter_data { }")[0].table_entry.counter_data.packet_count == 0


def test_default_entry_has_a_meter(controller: Any) -> None:
    key = "table_entry { table_id: $meter_table is_default_action: true %s }"
    config = "meter_config { cir: 1 cburst: 1 pir: 1 pburst: 1 }"
    action = "action { action { action_id: $NoAction } }"
    controller.do("MODIFY", key % f"{action} {config}")
    assert controller.read(key % "meter_config { }") == [
        controller.program.entity(key % f"{action} {config}")
    ]
    assert controller.read(f"direct_meter_entry {{ {key % ''} }}") == [
        controller.program.entity(
            f"direct_meter_entry {{ {key % ''} {config.replace('meter_config', 'config')} }}"
        )
    ]
    controller.do("MODIFY", key % action)
    assert not controller.read(key % "meter_config { }")[0].table_entry.HasField("meter_config")


def test_constant_default_entries_say_so(controller: Any) -> None:
    for table, constant in (("ternary_table", True), ("profile_table", True), ("lpm_table", False)):
        (found,) = controller.read(f"table_entry {{ table_id: ${table} is_default_action: true }}")
        assert found.table_entry.is_const == constant


def test_direct_counter(controller: Any) -> None:
    controller.do(
        "INSERT",
        EXACT.replace(EXACT_KEY, EXACT_KEY + " counter_data { packet_count: 5 byte_count: 500 }"),
    )
    controller.device.switch.process(1, frame(dst=10), 0)
    key = f"table_entry {{ table_id: $exact_table {EXACT_KEY} }}"
    (counter,) = controller.read(f"direct_counter_entry {{ {key} }}")
    assert counter == controller.program.entity(
        f"direct_counter_entry {{ {key} data {{ packet_count: 6 byte_count: 560 }} }}"
    )
    (entry,) = controller.read(
        f"table_entry {{ table_id: $exact_table {EXACT_KEY} counter_data {{ }} }}"
    )
    assert (
        entry.table_entry.counter_data.packet_count,
        entry.table_entry.counter_data.byte_count,
    ) == (6, 560)
    assert not controller.read(EXACT)[0].table_entry.HasField("counter_data")
    controller.do("MODIFY", EXACT)
    assert controller.read(f"direct_counter_entry {{ {key} }}") == [counter], (
        "an unset counter stays as it is"
    )
    controller.do("MODIFY", f"direct_counter_entry {{ {key} data {{ }} }}")
    assert (
        controller.read("direct_counter_entry { table_entry { } }")[
            0
        ].direct_counter_entry.data.packet_count
        == 0
    )


def test_direct_meter(controller: Any) -> None:
    entry = f"table_entry {{ table_id: $meter_table {DST} action {{ action {{ action_id: $measure }} }} %s }}"
    config = "meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 }"
    key = f"table_entry {{ table_id: $meter_table {DST} }}"
    controller.do("INSERT", entry % config)
    assert controller.read(entry % "meter_config { }") == [
        controller.program.entity(entry % config)
    ]
    assert controller.read(f"direct_meter_entry {{ {key} }}") == [
        controller.program.entity(
            f"direct_meter_entry {{ {key} {config.replace('meter_config', 'config')} }}"
        )
    ]
    controller.do("MODIFY", entry % "")
    assert not controller.read(entry % "meter_config { }")[0].table_entry.HasField("meter_config")
    controller.do("MODIFY", f"direct_meter_entry {{ {key} config {{ cir: 9 pir: 9 }} }}")
    assert controller.read(entry % "meter_config { }")[0].table_entry.meter_config.cir == 9
    controller.do("MODIFY", f"direct_meter_entry {{ {key} }}")
    assert not controller.read("direct_meter_entry { table_entry { } }")[
        0
    ].direct_meter_entry.HasField("config")


# -- reads -----------------------------------------------------------------------------------------


def ternary(priority: int, source: int | None, extra: str = "") -> str:
    match = (
        ""
        if source is None
        else f'match {{ field_id: 1 ternary {{ value: "\\x{source:02x}" mask: "\\xff" }} }}'
    )
    return f"table_entry {{ table_id: $ternary_table priority: {priority} {match} {extra} action {{ action {{ action_id: $learn }} }} }}"


def test_filters(controller: Any) -> None:
    texts = [
        ternary(1, 1),
        ternary(2, 1),
        ternary(2, 2, 'metadata: "m"'),
        ternary(3, None, "controller_metadata: 4"),
    ]
    controller.do("INSERT", *texts)
    entities = [controller.program.entity(text) for text in texts]
    table = "table_id: $ternary_table"
    one = 'match { field_id: 1 ternary { value: "\\x01" mask: "\\xff" } }'
    assert controller.read(f"table_entry {{ {table} }}") == entities
    assert controller.read(f"table_entry {{ {table} priority: 2 }}") == entities[1:3]
    assert controller.read(f"table_entry {{ {table} {one} }}") == entities[:2]
    assert controller.read(f"table_entry {{ {table} {one} priority: 2 }}") == entities[1:2]
    assert controller.read(f'table_entry {{ {table} metadata: "m" }}') == entities[2:3]
    assert controller.read(f"table_entry {{ {table} controller_metadata: 4 }}") == entities[3:]
    assert (
        controller.read(f"table_entry {{ {table} action {{ action {{ action_id: $learn }} }} }}")
        == entities
    )
    assert (
        controller.read(f"table_entry {{ {table} action {{ action {{ action_id: $NoAction }} }} }}")
        == []
    )
    constants = controller.read("table_entry { table_id: $const_table }")
    assert [entry.table_entry.is_const for entry in constants] == [True, True]
    assert controller.read("table_entry { }") == [*entities, *constants]


REFUSED_QUERIES = [
    ("", Code.INVALID_ARGUMENT),
    ("table_entry { priority: 4 }", Code.INVALID_ARGUMENT),
    ("table_entry { table_id: 4 }", Code.INVALID_ARGUMENT),
    ("table_entry { table_id: $lpm_table time_since_last_hit { } }", Code.INVALID_ARGUMENT),
    ("table_entry { meter_counter_data { } }", Code.UNIMPLEMENTED),
    ("table_entry { table_id: $lpm_table match { field_id: 7 } }", Code.INVALID_ARGUMENT),
    (
        f"direct_counter_entry {{ table_entry {{ table_id: $exact_table {EXACT_KEY} }} }}",
        Code.NOT_FOUND,
    ),
    ("counter_entry { counter_id: $port_counter index { index: 16 } }", Code.OUT_OF_RANGE),
    ("register_entry { register_id: 4 }", Code.INVALID_ARGUMENT),
    ("meter_entry { counter_data { } }", Code.UNIMPLEMENTED),
    ("direct_meter_entry { counter_data { } }", Code.UNIMPLEMENTED),
    ("packet_replication_engine_entry { }", Code.INVALID_ARGUMENT),
    ("digest_entry { digest_id: 4 }", Code.INVALID_ARGUMENT),
    ("extern_entry { }", Code.UNIMPLEMENTED),
]


@pytest.mark.parametrize(("text", "code"), REFUSED_QUERIES)
def test_refused_query_comes_after_the_answers_to_the_others(
    controller: Any, text: str, code: Code
) -> None:
    cell = "counter_entry { counter_id: $port_counter index { index: 1 } }"
    request = p4r.ReadRequest(
        device_id=1, entities=[controller.program.entity(part) for part in (cell, text, cell)]
    )
    found = []
    with pytest.raises(BatchFailedError) as caught:
        found.extend(controller.device.read(request))
    assert [len(response.entities) for response in found] == [2]
    assert [status.code for status in caught.value.statuses] == [Code.OK, code, Code.OK]


def test_whole_arrays(controller: Any) -> None:
    controller.do("MODIFY", "counter_entry { counter_id: $port_counter data { packet_count: 3 } }")
    cells = controller.read("counter_entry { counter_id: $port_counter }")
    assert [
        (cell.counter_entry.index.index, cell.counter_entry.data.packet_count) for cell in cells
    ] == [(index, 3) for index in range(16)]
    assert len(controller.read("register_entry { }")) == 8
    assert len(controller.read("meter_entry { }")) == 4


def test_a_read_of_very_many_cells_is_refused(
    controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CELLS_PER_READ", 20)
    assert len(controller.read("register_entry { }", "register_entry { }")) == 16
    with pytest.raises(BatchFailedError) as caught:
        controller.read(*["register_entry { }"] * 1000)
    codes = [status.code for status in caught.value.statuses]
    assert codes == [Code.OK] * 2 + [Code.RESOURCE_EXHAUSTED] * 998


# -- effect on packets -----------------------------------------------------------------------------


def test_register_holds_what_the_program_wrote(controller: Any) -> None:
    controller.device.switch.process(3, frame(kind=0x86DD), 0)
    (cell,) = controller.read("register_entry { register_id: $last_type index { index: 3 } }")
    assert cell.register_entry.data.bitstring == b"\x86\xdd"


def test_multicast_group_replicates(controller: Any) -> None:
    controller.do(
        "INSERT",
        "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 3 } replicas { egress_port: 4 } } }",
    )
    sent = controller.device.switch.process(1, frame(kind=0x9000), 0)
    assert sorted(sent) == [(3, frame(kind=0x9000)), (4, frame(kind=0x9000))]


def test_clone_session_copies(controller: Any) -> None:
    controller.do(
        "INSERT",
        EXACT,
        "packet_replication_engine_entry { clone_session_entry { session_id: 7 replicas { egress_port: 6 } } }",
    )
    sent = controller.device.switch.process(1, frame(dst=10, kind=0xFFFF), 0)
    assert sorted(sent) == [(2, frame(dst=10, kind=0xFFFF)), (6, frame(dst=10, kind=0xFFFF))]


def test_members_and_groups(controller: Any) -> None:
    member = 'action_profile_member {{ action_profile_id: $chooser member_id: {} action {{ action_id: $forward params {{ param_id: 1 value: "\\x0{}" }} params {{ param_id: 2 value: "\\x00" }} }} }}'
    group = "action_profile_group { action_profile_id: $chooser group_id: 1 members { member_id: 1 weight: 1 } members { member_id: 2 weight: 1 } }"
    entry = (
        f"table_entry {{ table_id: $selector_table {DST} action {{ action_profile_group_id: 1 }} }}"
    )
    for text in (member.format(1, 3), member.format(2, 4), group, entry):
        controller.do("INSERT", text)
    assert controller.read(
        "action_profile_group { }", "table_entry { table_id: $selector_table }"
    ) == [
        controller.program.entity(group),
        controller.program.entity(entry),
    ]
    switch = controller.device.switch
    ports = {switch.process(1, frame(dst=10, src=src), 0)[0][0] for src in range(50)}
    assert ports == {3, 4}
    controller.do("MODIFY", member.format(2, 5))
    assert {switch.process(1, frame(dst=10, src=src), 0)[0][0] for src in range(50)} == {3, 5}
    for text in (member.format(1, 3), group):
        (status,) = controller.write(controller.program.update("DELETE", text))
        assert status.code == Code.FAILED_PRECONDITION, status
    one_shot = f"table_entry {{ table_id: $selector_table {DST} action {{ action_profile_action_set {{ }} }} }}"
    (status,) = controller.write(controller.program.update("MODIFY", one_shot))
    assert status.code == Code.INVALID_ARGUMENT
    assert mentions(status.message, "IngressImpl.chooser", "one-shot")
    for text in (entry, group, member.format(1, 3)):
        controller.do("DELETE", text)


def one_shot(*ports: int) -> str:
    actions = " ".join(
        f'action_profile_actions {{ weight: 1 action {{ action_id: $forward params {{ param_id: 1 value: "\\x{port:02x}" }} params {{ param_id: 2 value: "\\x00" }} }} }}'
        for port in ports
    )
    return f"table_entry {{ table_id: $selector_table {DST} action {{ action_profile_action_set {{ {actions} }} }} }}"


def test_one_shot(controller: Any) -> None:
    controller.do("INSERT", one_shot(3, 4))
    switch = controller.device.switch
    assert {switch.process(1, frame(dst=10, src=src), 0)[0][0] for src in range(50)} == {3, 4}
    controller.do("MODIFY", one_shot(5))
    assert {switch.process(1, frame(dst=10, src=src), 0)[0][0] for src in range(50)} == {5}
    kept = f'table_entry {{ table_id: $selector_table {DST} metadata: "m" }}'
    controller.do("MODIFY", kept)
    assert controller.read("table_entry { table_id: $selector_table }") == [
        controller.program.entity(one_shot(5)[:-1] + 'metadata: "m" }')
    ]
    assert controller.read("action_profile_member { }", "action_profile_group { }") == []
    member = "action_profile_member { action_profile_id: $chooser member_id: 1 action { action_id: $NoAction } }"
    (status,) = controller.write(controller.program.update("INSERT", member))
    assert status.code == Code.INVALID_ARGUMENT
    (status,) = controller.write(controller.program.update("INSERT", one_shot(6)))
    assert status.code == Code.ALREADY_EXISTS
    controller.do("DELETE", one_shot())
    controller.do("INSERT", member)
    assert len(switch.action_profiles["IngressImpl.chooser"].members) == 1, (
        "hidden members went with their entry"
    )


def test_value_set_and_digest(controller: Any) -> None:
    controller.do("MODIFY", CELLS[3])
    controller.do(
        "INSERT",
        ternary(1, None),
        "digest_entry { digest_id: $station_t config { max_list_size: 1 } }",
    )
    controller.device.switch.process(4, frame(src=5, kind=0x90), 1234)
    controller.device.switch.process(4, frame(src=6, kind=0x91), 1234)
    special = [message.digest.data[0].struct.members[2].bool for message in controller.inbox[1:]]
    assert special == [True, False]


# -- idle timeouts ---------------------------------------------------------------------------------


def test_idle_timeout(controller: Any, clock: Any) -> None:
    clock.now_ns = 1000
    entry = (
        f'table_entry {{ table_id: $idle_table {DST} {FLOOD} idle_timeout_ns: 100 metadata: "m" }}'
    )
    controller.do("INSERT", entry)
    device = controller.device
    controller.inbox.clear()
    assert device.next_tick_ns() == 1100
    device.tick(1099)
    assert controller.inbox == []
    device.switch.process(1, frame(dst=10), 1050)
    device.tick(1149)
    assert controller.inbox == []
    clock.now_ns = 1149
    (found,) = controller.read("table_entry { table_id: $idle_table time_since_last_hit { } }")
    assert found.table_entry.time_since_last_hit.elapsed_ns == 99
    device.tick(1150)
    (message,) = controller.inbox
    assert message.idle_timeout_notification.timestamp == 1150
    assert list(message.idle_timeout_notification.table_entry) == [
        controller.program.entity(entry).table_entry
    ]
    assert device.next_tick_ns() == 1250, "the time starts anew after a notification"
