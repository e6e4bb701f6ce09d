"""SetForwardingPipelineConfig and GetForwardingPipelineConfig, and writes that are rolled back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.rpc.status import Code, RefusedError
from tests.faults import mentions

CELL = "counter_entry { counter_id: $port_counter index { index: 1 } data { packet_count: 4 } }"
FLOOD = 'action { action { action_id: $flood params { param_id: 1 value: "\\x05" } } }'
MEMBER = (
    "action_profile_member { action_profile_id: $members member_id: 1 action { action_id:"
    " $NoAction } }"
)
DEFAULT = f'table_entry {{ table_id: $idle_table is_default_action: true {FLOOD} metadata: "d" }}'
STATE = [
    f'table_entry {{ table_id: $lpm_table {FLOOD} metadata: "m" }}',
    """table_entry { table_id: $exact_table match { field_id: 1 exact { value: "\\x0a" } }
        match { field_id: 2 exact { value: "\\x01" } } action { action { action_id: $drop } }
        counter_data { packet_count: 3 byte_count: 4 } }""",
    MEMBER,
    """table_entry { table_id: $profile_table match { field_id: 1 exact { value: "\\x01" } }
        action { action_profile_member_id: 1 } }""",
    (
        "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 5 replicas {"
        " egress_port: 3 } } }"
    ),
    "digest_entry { digest_id: $station_t config { max_list_size: 6 } }",
]
CELLS = [
    CELL,
    'register_entry { register_id: $last_type index { index: 7 } data { bitstring: "\\x07" } }',
    (
        "meter_entry { meter_id: $port_meter index { index: 1 } config { cir: 1 cburst: 2 pir: 3"
        " pburst: 4 } }"
    ),
    (
        "value_set_entry { value_set_id: $special_types members { match { field_id: 1 exact {"
        ' value: "\\x90" } } } }'
    ),
    DEFAULT,
]


def refusal(call: Callable[..., object], *args: object) -> tuple[Code, str]:
    with pytest.raises(RefusedError) as caught:
        call(*args)
    return caught.value.status.code, caught.value.status.message


def everything(controller: Any) -> list[p4r.Entity]:
    return (
        controller.read("table_entry { table_id: $idle_table is_default_action: true }")
        + controller.everything()
    )


def fill(controller: Any) -> None:
    for text in STATE:
        controller.do("INSERT", text)
    controller.do("MODIFY", *CELLS)


def get(
    controller: Any, kind: str = "ALL", device_id: int = 1
) -> p4r.GetForwardingPipelineConfigResponse:
    types = p4r.GetForwardingPipelineConfigRequest
    return controller.device.get_pipeline(
        types(device_id=device_id, response_type=types.ResponseType.Value(kind))
    )


# -- before there is a pipeline --------------------------------------------------------------------


def test_nothing_works_before_a_pipeline_is_set(connect: Callable[..., Any]) -> None:
    controller = connect()
    assert not get(controller).HasField("config")
    code, text = refusal(controller.write, p4r.Update())
    assert (code, text) == (
        Code.FAILED_PRECONDITION,
        "No forwarding pipeline config set for this device",
    )
    assert refusal(controller.read, CELL)[0] == Code.FAILED_PRECONDITION
    controller.stream.receive(p4r.StreamMessageRequest(packet=p4r.PacketOut()))
    controller.stream.receive(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck()))
    assert [message.error.canonical_code for message in controller.inbox[1:]] == [
        Code.FAILED_PRECONDITION
    ] * 2
    controller.device.tick(5)
    controller.device.packet_in(b"early")
    assert controller.device.next_tick_ns() is None
    assert controller.device.wait_acknowledged(0)


# -- who may ---------------------------------------------------------------------------------------


def test_checks_come_in_the_order_of_the_specification(connect: Callable[..., Any]) -> None:
    primary = connect(5)
    backup = connect(3)
    stranger = connect(None)
    for act in (lambda who: who.write(), lambda who: who.set_pipeline("COMMIT")):
        assert refusal(act, backup)[0] == Code.PERMISSION_DENIED
        assert refusal(act, stranger) == (
            Code.PERMISSION_DENIED,
            "an unset election id is not that of the primary of role ''",
        )
        backup.role = "nobody"
        assert refusal(act, backup)[0] == Code.NOT_FOUND
        backup.role = ""
    for request in (p4r.WriteRequest(device_id=2), p4r.WriteRequest()):
        assert refusal(primary.device.write, request)[0] == Code.NOT_FOUND
    assert refusal(get, primary, "ALL", 2)[0] == Code.NOT_FOUND
    assert (
        refusal(lambda: list(primary.device.read(p4r.ReadRequest(device_id=4))))[0]
        == Code.NOT_FOUND
    )
    assert (
        refusal(primary.device.capabilities, p4r.CapabilitiesRequest(device_id=4))[0]
        == Code.NOT_FOUND
    )
    assert primary.device.capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version == "1.5.0"


def test_a_demoted_primary_may_not_write(controller: Any, connect: Callable[..., Any]) -> None:
    assert controller.write() == []
    successor = connect(9)
    assert controller.inbox[-1].arbitration.status.code == Code.ALREADY_EXISTS
    assert refusal(controller.write)[0] == Code.PERMISSION_DENIED
    assert successor.write() == []
    successor.stream.close()
    successor.stream.close()
    assert refusal(successor.write)[0] == Code.PERMISSION_DENIED
    assert controller.inbox[-1].arbitration.status.code == Code.NOT_FOUND


def test_a_message_that_comes_late_does_not_revive_its_stream(
    controller: Any, connect: Callable[..., Any]
) -> None:
    controller.stream.close()
    controller.inbox.clear()
    controller.arbitrate()
    assert controller.inbox == []
    assert refusal(controller.write)[0] == Code.PERMISSION_DENIED
    terminated = connect(5)
    terminated.role = "other"
    terminated.arbitrate()
    assert [status.code for status in terminated.ended] == [Code.FAILED_PRECONDITION]
    terminated.arbitrate()
    assert len(terminated.ended) == 1
    assert refusal(terminated.write)[0] == Code.NOT_FOUND


def test_roles_have_primaries_of_their_own(controller: Any, connect: Callable[..., Any]) -> None:
    other = connect(1, "routing")
    assert other.inbox[-1].arbitration.role.name == "routing"
    assert other.write() == []
    assert controller.write() == []


# -- actions ---------------------------------------------------------------------------------------


def test_commit_hands_over_a_new_switch(connect: Callable[..., Any]) -> None:
    controller = connect()
    handed: list[object] = []
    controller.device.on_pipeline = handed.append
    controller.set_pipeline("VERIFY_AND_COMMIT", controller.program.config(cookie=7))
    controller.set_pipeline("VERIFY_AND_COMMIT", controller.program.config(cookie=8))
    assert handed[-1] is controller.device.switch
    assert len({id(switch) for switch in handed}) == 2


def test_verify_changes_nothing(controller: Any) -> None:
    fill(controller)
    before, switch = everything(controller), controller.device.switch
    controller.set_pipeline("VERIFY", controller.program.config(cookie=4))
    assert everything(controller) == before
    assert controller.device.switch is switch
    assert not get(controller).config.HasField("cookie")


def test_verify_and_commit_clears(controller: Any) -> None:
    empty = everything(controller)
    fill(controller)
    assert everything(controller) != empty
    controller.set_pipeline("VERIFY_AND_COMMIT", controller.program.config())
    assert everything(controller) == empty


def test_saved_pipeline_is_filled_before_it_is_committed(controller: Any) -> None:
    fill(controller)
    running, before = controller.device.switch, everything(controller)
    controller.set_pipeline("VERIFY_AND_SAVE", controller.program.config(cookie=5))
    assert get(controller).config.cookie.cookie == 5
    assert controller.device.switch is running
    assert controller.read("table_entry { table_id: $lpm_table }") == []
    fill(controller)
    assert len(running.tables["IngressImpl.lpm_table"]) == 1, "the running switch is not touched"
    controller.set_pipeline("COMMIT")
    assert controller.device.switch is not running
    assert everything(controller) == before
    assert refusal(controller.set_pipeline, "COMMIT")[0] == Code.NOT_FOUND


def test_reconcile_keeps_all_state(controller: Any) -> None:
    fill(controller)
    before = everything(controller)
    controller.set_pipeline("RECONCILE_AND_COMMIT", controller.program.config(cookie=6))
    assert everything(controller) == before
    assert get(controller).config.cookie.cookie == 6


def test_reconcile_refuses_a_program_without_a_place_for_the_state(controller: Any) -> None:
    fill(controller)
    before = everything(controller)
    config = controller.program.config()
    table = next(table for table in config.p4info.tables if table.preamble.alias == "lpm_table")
    table.preamble.id += 1
    code, text = refusal(controller.set_pipeline, "RECONCILE_AND_COMMIT", config)
    assert code == Code.INVALID_ARGUMENT
    assert mentions(text, "table", controller.program.ids["lpm_table"])
    assert everything(controller) == before


def test_reconcile_without_a_predecessor_commits(connect: Callable[..., Any]) -> None:
    controller = connect()
    controller.set_pipeline("RECONCILE_AND_COMMIT", controller.program.config())
    assert controller.write() == []


def test_initial_entries_that_are_not_constant_can_be_deleted(controller: Any) -> None:
    config = controller.program.config()
    next(
        table for table in config.p4info.tables if table.preamble.alias == "const_table"
    ).is_const_table = False
    controller.set_pipeline("VERIFY_AND_COMMIT", config)
    first, second = controller.read("table_entry { table_id: $const_table }")
    assert not first.table_entry.is_const
    (status,) = controller.write(p4r.Update(type=p4r.Update.DELETE, entity=first))
    assert status.code == Code.OK
    controller.set_pipeline("RECONCILE_AND_COMMIT", config)
    assert controller.read("table_entry { table_id: $const_table }") == [second]


def change(config: p4r.ForwardingPipelineConfig, what: str) -> None:
    info = config.p4info
    if what == "no p4info":
        config.ClearField("p4info")
    elif what == "no program":
        config.p4_device_config = b""
    elif what == "not JSON":
        config.p4_device_config = b"\xff{"
    elif what == "JSON of something else":
        config.p4_device_config = b"[1, 2]"
    elif what == "truncated":
        config.p4_device_config = config.p4_device_config[:30_000]
    elif what == "table unknown":
        info.tables[0].preamble.name = "other"
    elif what == "table without id":
        info.tables[0].preamble.id = 0
    elif what == "id twice":
        info.tables[0].preamble.id = info.tables[1].preamble.id
    elif what == "action unknown":
        info.tables[0].action_refs[0].id = 1
    elif what == "another key":
        info.tables[0].match_fields.add(id=9, name="x", bitwidth=3, match_type=2)
    elif what == "no width":
        info.tables[0].match_fields[0].bitwidth = 0
        info.tables[0].match_fields[0].type_name.name = "translated_to_a_string_t"
    elif what == "width below zero":
        info.value_sets[0].match[0].bitwidth = -3
    elif what == "match type":
        info.tables[0].match_fields[0].other_match_type = "longest"
    elif what == "direct resource":
        info.tables[0].direct_resource_ids.append(3)
    elif what == "register type":
        info.registers[0].type_spec.error.SetInParent()
    elif what == "digest type":
        info.digests[0].type_spec.struct.name = "nowhere"
    elif what == "counter unknown":
        info.counters[0].preamble.name = "other"
    elif what == "profile unknown":
        info.action_profiles[0].preamble.name = "other"
    elif what == "value set unknown":
        info.value_sets[0].preamble.name = "other"


@pytest.mark.parametrize(
    "action", ["VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"]
)
@pytest.mark.parametrize(
    ("what", "facts"),
    [
        ("no p4info", "P4Info"),
        ("no program", "p4_device_config"),
        ("not JSON", "p4_device_config JSON position 0"),
        ("JSON of something else", "p4_device_config object list"),
        ("truncated", "p4_device_config JSON line"),
        ("table unknown", "table 'other'"),
        ("table without id", "'IngressImpl.exact_table' id"),
        ("id twice", "$lpm_table 'IngressImpl.lpm_table'"),
        ("action unknown", "IngressImpl.exact_table action 1"),
        ("another key", "IngressImpl.exact_table 3 2"),
        ("no width", "IngressImpl.exact_table 'hdr.ethernet.dst' width"),
        ("width below zero", "ParserImpl.special_types width"),
        ("match type", "IngressImpl.exact_table 'hdr.ethernet.dst' match type"),
        ("direct resource", "IngressImpl.exact_table direct resource 3"),
        ("register type", "IngressImpl.last_type error type"),
        ("digest type", "station_t 'nowhere'"),
        ("counter unknown", "counter 'other'"),
        ("profile unknown", "profile 'other'"),
        ("value set unknown", "value set 'other'"),
    ],
)
def test_a_pipeline_that_cannot_be_realized(
    controller: Any, action: str, what: str, facts: str
) -> None:
    config = controller.program.config()
    change(config, what)
    switch = controller.device.switch
    code, text = refusal(controller.set_pipeline, action, config)
    assert code == Code.INVALID_ARGUMENT
    assert mentions(text, *controller.program.with_ids(facts).split()), text
    assert controller.device.switch is switch
    assert controller.write() == []


@pytest.mark.parametrize("action", ["VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT"])
def test_a_program_that_is_too_large(controller: Any, action: str) -> None:
    config = controller.program.config()
    program = json.loads(config.p4_device_config)
    array = program["register_arrays"][0]
    array.update(size=1 << 24, bitwidth=1 << 16)
    config.p4_device_config = json.dumps(program).encode()
    code, text = refusal(controller.set_pipeline, action, config)
    assert code == Code.RESOURCE_EXHAUSTED
    assert mentions(text, array["name"], "137,438,953,472", "1,073,741,824"), text
    assert controller.write() == []


@pytest.mark.parametrize(
    ("action", "with_config", "code"),
    [
        ("COMMIT", True, Code.INVALID_ARGUMENT),
        ("COMMIT", False, Code.NOT_FOUND),
        ("VERIFY", False, Code.INVALID_ARGUMENT),
        ("VERIFY_AND_SAVE", False, Code.INVALID_ARGUMENT),
        ("VERIFY_AND_COMMIT", False, Code.INVALID_ARGUMENT),
        ("RECONCILE_AND_COMMIT", False, Code.INVALID_ARGUMENT),
        ("UNSPECIFIED", True, Code.INVALID_ARGUMENT),
    ],
)
def test_actions_without_or_with_a_config(
    controller: Any, action: str, with_config: bool, code: Code
) -> None:
    config = controller.program.config() if with_config else None
    assert refusal(controller.set_pipeline, action, config)[0] == code


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("ALL", {"p4info", "p4_device_config", "cookie"}),
        ("COOKIE_ONLY", {"cookie"}),
        ("P4INFO_AND_COOKIE", {"p4info", "cookie"}),
        ("DEVICE_CONFIG_AND_COOKIE", {"p4_device_config", "cookie"}),
    ],
)
def test_get_returns_what_was_set(controller: Any, kind: str, parts: set[str]) -> None:
    config = controller.program.config(cookie=2**64 - 1)
    controller.set_pipeline("VERIFY_AND_COMMIT", config)
    found = get(controller, kind).config
    assert {field.name for field, _ in found.ListFields()} == parts
    assert all(getattr(found, part) == getattr(config, part) for part in parts)


# -- atomicity -------------------------------------------------------------------------------------

LATER = [
    (
        "MODIFY",
        (
            "table_entry { table_id: $lpm_table action { action { action_id: $NoAction } }"
            ' metadata: "other" }'
        ),
    ),
    ("MODIFY", CELL.replace("4", "99")),
    ("MODIFY", 'register_entry { register_id: $last_type data { bitstring: "\\x01" } }'),
    ("MODIFY", "meter_entry { meter_id: $port_meter }"),
    ("MODIFY", "value_set_entry { value_set_id: $special_types }"),
    ("MODIFY", "table_entry { table_id: $idle_table is_default_action: true }"),
    ("DELETE", STATE[1]),
    ("DELETE", STATE[3]),
    ("DELETE", MEMBER),
    ("DELETE", STATE[4]),
    ("DELETE", STATE[5]),
    (
        "INSERT",
        (
            "packet_replication_engine_entry { clone_session_entry { session_id: 5 replicas {"
            " egress_port: 3 } } }"
        ),
    ),
]


@pytest.mark.parametrize(
    "atomicity", [p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC]
)
def test_a_failed_batch_is_undone(controller: Any, atomicity: int) -> None:
    fill(controller)
    before = everything(controller)
    updates = [controller.program.update(kind, text) for kind, text in LATER]
    bad = controller.program.update("INSERT", "table_entry { table_id: 5 }")
    statuses = controller.write(*updates, bad, *updates, atomicity=atomicity)
    assert [status.code for status in statuses] == [Code.ABORTED] * 12 + [Code.INVALID_ARGUMENT] + [
        Code.ABORTED
    ] * 12
    assert sorted(map(str, everything(controller))) == sorted(map(str, before))
    assert [status.code for status in controller.write(*updates, atomicity=atomicity)] == [
        Code.OK
    ] * 12
    assert everything(controller) != before


def test_unknown_atomicity(controller: Any) -> None:
    assert refusal(lambda: controller.write(atomicity=7))[0] == Code.INVALID_ARGUMENT


def test_what_only_the_program_knows_of(controller: Any) -> None:
    """A key of type `error` has no width in the P4Info, and an action profile that no table uses is
    not in the program: p4c's own tests have both."""
    config = controller.program.config()
    config.p4info.tables[0].match_fields[0].bitwidth = 0
    unused = config.p4info.action_profiles.add(with_selector=True, size=4)
    unused.preamble.id, unused.preamble.name = 4711, "unused"
    controller.set_pipeline("VERIFY_AND_COMMIT", config)
    assert controller.write(controller.program.exact(0xFFFFFFFFFFFF))[0].code == Code.OK
    wide = controller.program.exact(7)
    wide.entity.table_entry.match[0].exact.value = b"\1" + bytes(6)
    (status,) = controller.write(wide)
    assert status.code == Code.INVALID_ARGUMENT
    member = (
        "action_profile_member { action_profile_id: 4711 member_id: 1 action { action_id:"
        " $NoAction } }"
    )
    (status,) = controller.write(controller.program.update("INSERT", member))
    assert status.code == Code.INVALID_ARGUMENT
    assert mentions(status.message, "action profile", 4711)
