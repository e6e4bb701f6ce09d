"""Roles: what a config grants and denies, and that it is enforced wherever a controller acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from finsy.proto import U128, p4r, stratum
from google.protobuf.any_pb2 import Any as AnyMessage

from softswitch.p4runtime.device import Device
from softswitch.rpc.status import Code, RefusedError
from tests.faults import mentions

LEARN_ALL = (
    "table_entry { table_id: $ternary_table priority: 1 action { action { action_id: $learn } } }"
)
DIGEST = "digest_entry { digest_id: $station_t config { max_list_size: 1 } }"
COUNTER = "counter_entry { counter_id: $port_counter index { index: 1 } data { packet_count: 4 } }"
TO_CPU = """table_entry { table_id: $exact_table match { field_id: 1 exact { value: "\\x0a" } }
    match { field_id: 2 exact { value: "\\x01" } } action { action { action_id: $forward
        params { param_id: 1 value: "\\x01\\xfe" } params { param_id: 2 value: "\\x00" } } } }"""


def frame(dst: int = 0, src: int = 0) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + b"\x08\x00" + bytes(46)


def arbitrate(controller: Any, role: str, election_id: int, config: Any = None) -> None:
    update = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(election_id))
    update.role.name = role
    if config is not None:
        update.role.config.Pack(config)
    controller.role, controller.election_id = role, election_id
    controller.stream.receive(p4r.StreamMessageRequest(arbitration=update))


@pytest.fixture
def join(device: Device, program: Any, connect: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes a controller with a role whose config has these fields; names
    stand for their P4Info ids.
    """

    def make(
        role: str, election_id: int = 1, exclusive: str = "", shared: str = "", **fields: Any
    ) -> Any:
        controller = connect(None, "not yet")
        controller.stream.close()
        controller.stream = device.open_stream(controller.inbox.append, controller.ended.append)
        controller.inbox.clear()
        config = stratum.P4RoleConfig(
            exclusive_p4_ids=[program.ids[name] for name in exclusive.split()],
            shared_p4_ids=[program.ids[name] for name in shared.split()],
            **fields,
        )
        arbitrate(controller, role, election_id, config)
        return controller

    return make


def code(controller: Any, kind: str, text: str) -> Code:
    (status,) = controller.write(controller.program.update(kind, text))
    found: Code = status.code
    return found


def test_a_role_writes_what_its_config_names(join: Callable[..., Any]) -> None:
    learner = join("learning", exclusive="ternary_table station_t")
    counter = join("counting", shared="port_counter")
    for ours, theirs, kind, texts in (
        (learner, counter, "INSERT", [LEARN_ALL, DIGEST]),
        (counter, learner, "MODIFY", [COUNTER]),
    ):
        for text in texts:
            assert code(theirs, kind, text) == Code.PERMISSION_DENIED
            assert code(ours, kind, text) == Code.OK
    statuses = counter.write(
        counter.program.update("MODIFY", COUNTER),
        counter.program.update("DELETE", LEARN_ALL),
        atomicity=1,
    )
    assert [status.code for status in statuses] == [Code.ABORTED, Code.PERMISSION_DENIED]
    assert mentions(statuses[1].message, counter.program.ids["ternary_table"])


def test_a_role_reads_what_its_config_names(
    join: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    full = connect(1)
    full.do("INSERT", LEARN_ALL, TO_CPU)
    role = join("learning", shared="ternary_table")
    everything = [role.program.entity("table_entry { }"), role.program.entity("counter_entry { }")]

    def read(name: str) -> list[str]:
        request = p4r.ReadRequest(device_id=1, role=name, entities=everything)
        found = [entity for response in role.device.read(request) for entity in response.entities]
        return [entity.WhichOneof("entity") for entity in found]

    assert read("learning") == ["table_entry"]
    assert read("") == ["table_entry"] * 4 + ["counter_entry"] * 16, (
        "two of the entries are the program's own"
    )
    with pytest.raises(RefusedError) as caught:
        read("nobody")
    assert caught.value.status.code == Code.NOT_FOUND


def test_replication_has_no_id_and_is_everybodys(join: Callable[..., Any]) -> None:
    group = "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 } }"
    assert code(join("learning", shared="ternary_table"), "INSERT", group) == Code.OK


def test_digests_and_idle_entries_go_to_the_roles_that_have_them(
    join: Callable[..., Any], connect: Callable[..., Any], device: Device, clock: Any
) -> None:
    full = connect(1)
    idle = """table_entry { table_id: $idle_table match { field_id: 1 exact { value: "\\x01" } }
        idle_timeout_ns: 10 action { action { action_id: $NoAction } } }"""
    full.do("INSERT", LEARN_ALL, DIGEST, idle)
    learner, other = join("learning", shared="station_t"), join("other", shared="idle_table")
    for controller in (full, learner, other):
        controller.inbox.clear()
    device.switch.process(1, frame(src=7), 0)
    device.tick(100)
    kinds = [[message.WhichOneof("update") for message in c.inbox] for c in (full, learner, other)]
    assert kinds == [
        ["digest", "idle_timeout_notification"],
        ["digest"],
        ["idle_timeout_notification"],
    ]


def test_packet_ins_are_filtered(
    join: Callable[..., Any], connect: Callable[..., Any], device: Device
) -> None:
    full = connect(1)
    full.do("INSERT", TO_CPU)
    filters = {
        "any": None,
        "port 1": (1, b"\x00\x01"),
        "port 2": (1, b"\x02"),
        "no such field": (9, b"\x01"),
    }
    controllers = {"none": join("none", shared="exact_table")}
    for name, wanted in filters.items():
        fields: dict[str, Any] = {"receives_packet_ins": True}
        if wanted is not None:
            fields["packet_in_filter"] = stratum.P4RoleConfig.PacketFilter(
                metadata_id=wanted[0], value=wanted[1]
            )
        controllers[name] = join(name, **fields)
    for controller in controllers.values():
        controller.inbox.clear()
    full.inbox.clear()
    ((port, packet),) = device.switch.process(1, frame(dst=10), 0)
    assert port == 510
    device.packet_in(packet)
    got = [name for name, controller in controllers.items() if controller.inbox]
    assert got == ["any", "port 1"]
    assert full.inbox[0].packet.payload == frame(dst=10)


def test_only_some_roles_may_push_a_pipeline(join: Callable[..., Any]) -> None:
    join("may", can_push_pipeline=True).set_pipeline(
        "VERIFY_AND_COMMIT", join("x").program.config()
    )
    with pytest.raises(RefusedError) as caught:
        join("may not").set_pipeline("VERIFY_AND_COMMIT", join("y").program.config())
    assert caught.value.status.code == Code.PERMISSION_DENIED


def test_configs_that_are_refused(
    join: Callable[..., Any], connect: Callable[..., Any], program: Any
) -> None:
    first = join("first", exclusive="exact_table", shared="lpm_table")
    assert first.ended == []
    for fields, table, facts in (
        ({"exclusive": "exact_table"}, "exact_table", ("'second'", "'first'")),
        ({"shared": "exact_table"}, "exact_table", ("'second'", "'first'")),
        ({"exclusive": "lpm_table"}, "lpm_table", ("'second'", "'first'")),
        ({"exclusive": "idle_table", "shared": "idle_table"}, "idle_table", ("'second'",)),
    ):
        (status,) = join("second", **fields).ended
        assert status.code == Code.INVALID_ARGUMENT
        assert mentions(status.message, program.ids[table], *facts), status
    assert join("second", shared="lpm_table").ended == []
    for config in (AnyMessage(), AnyMessage(type_url="x/y.Z", value=b"1"), p4r.Entity()):
        stranger = connect(1, "third")
        stranger.stream.close()
        stranger.stream = stranger.device.open_stream(stranger.inbox.append, stranger.ended.append)
        arbitrate(stranger, "third", 2, config)
        (status,) = stranger.ended
        assert status.code == Code.INVALID_ARGUMENT
        assert mentions(status.message, "stratum.P4RoleConfig")


def test_a_role_is_free_again_when_its_controllers_are_gone(join: Callable[..., Any]) -> None:
    first = join("first", exclusive="exact_table")
    (status,) = join("second", exclusive="exact_table").ended
    assert status.code == Code.INVALID_ARGUMENT
    first.stream.close()
    assert join("second", exclusive="exact_table").ended == []


def test_numeric_roles_are_not_mistaken_for_the_default_role(device: Device) -> None:
    ended: list[Any] = []
    stream = device.open_stream(lambda message: None, ended.append)
    update = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
    update.role.id = 3
    stream.receive(p4r.StreamMessageRequest(arbitration=update))
    assert [status.code for status in ended] == [Code.INVALID_ARGUMENT]
