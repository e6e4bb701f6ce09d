# ruff: noqa: E501 - messages in text form stay on one line
"""The effects of a port's state on members that watch it and on backup replicas, and the sizing of
groups.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softswitch.rpc.status import Code
from tests.faults import mentions


def frame(dst: int = 0, src: int = 0, kind: int = 0x800) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big") + bytes(46)


def forward(port: int) -> str:
    return f'action {{ action_id: $forward params {{ param_id: 1 value: "\\x{port:02x}" }} params {{ param_id: 2 value: "\\x00" }} }}'


KEY = 'table_id: $selector_table match { field_id: 1 exact { value: "\\x0a" } }'
ONE_SHOT = f"""table_entry {{ {KEY} action {{ action_profile_action_set {{
    action_profile_actions {{ {forward(2)} weight: 1 watch_port: "\\x02" }}
    action_profile_actions {{ {forward(3)} weight: 2 watch: 3 }}
    action_profile_actions {{ {forward(4)} weight: 1 }} }} }} }}"""


def ports(controller: Any) -> set[int]:
    """Return the ports that packets of many flows leave by."""
    switch = controller.device.switch
    return {
        port
        for src in range(200)
        for port, _ in switch.process(1, frame(dst=10, src=src * 7919), 0)
    }


@pytest.fixture
def grouped(controller: Any) -> Any:
    for port in (2, 3, 4):
        controller.do(
            "INSERT",
            f"action_profile_member {{ action_profile_id: $chooser member_id: {port} {forward(port)} }}",
        )
    controller.do(
        "INSERT",
        """action_profile_group { action_profile_id: $chooser group_id: 1
            members { member_id: 2 weight: 1 watch_port: "\\x02" } members { member_id: 3 weight: 2 watch: 3 }
            members { member_id: 4 weight: 1 } }""",
        f"table_entry {{ {KEY} action {{ action_profile_group_id: 1 }} }}",
    )
    return controller


@pytest.fixture
def one_shot(controller: Any) -> Any:
    controller.do("INSERT", ONE_SHOT)
    return controller


@pytest.mark.usefixtures("bare_device")
@pytest.mark.parametrize("way", ["grouped", "one_shot"])
def test_members_whose_port_is_down_are_not_chosen(
    way: str, request: pytest.FixtureRequest
) -> None:
    controller: Any = request.getfixturevalue(way)
    before = controller.read("table_entry { }", "action_profile_group { }")
    assert ports(controller) == {2, 3, 4}
    controller.device.set_port_up(3, False)
    assert ports(controller) == {2, 4}
    controller.device.set_port_up(4, False)
    assert ports(controller) == {2, 4}, "nobody watches port 4"
    controller.device.set_port_up(2, False)
    assert ports(controller) == {4}
    assert controller.read("table_entry { }", "action_profile_group { }") == before, (
        "what is written stays"
    )
    for port in (2, 3):
        controller.device.set_port_up(port, True)
    assert ports(controller) == {2, 3, 4}


def test_a_group_written_while_a_port_is_down(controller: Any) -> None:
    controller.device.set_port_up(2, False)
    controller.do("INSERT", ONE_SHOT)
    assert ports(controller) == {3, 4}
    controller.set_pipeline("VERIFY_AND_COMMIT", controller.program.config())
    controller.do("INSERT", ONE_SHOT)
    assert ports(controller) == {3, 4}, "a new pipeline knows of the port, too"
    controller.do("MODIFY", ONE_SHOT.replace('watch_port: "\\x02"', ""))
    assert ports(controller) == {2, 3, 4}
    controller.do("DELETE", ONE_SHOT)
    controller.device.set_port_up(2, True)
    assert ports(controller) == set()


def test_a_group_with_no_member_left_forwards_nothing(controller: Any) -> None:
    controller.do(
        "INSERT", ONE_SHOT.replace("weight: 1 } } }", 'weight: 1 watch_port: "\\x04" } } }')
    )
    for port in (2, 3, 4):
        controller.device.set_port_up(port, False)
    assert {port for port, _ in controller.device.switch.process(1, frame(dst=10), 0)} <= {0}


MULTICAST = """packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
    replicas { port: "\\x03" instance: 1 backup_replicas { port: "\\x04" instance: 2 } backup_replicas { port: "\\x05" instance: 3 } }
    replicas { port: "\\x06" instance: 4 } } }"""


def test_backup_replicas(controller: Any) -> None:
    controller.do("INSERT", MULTICAST)
    device = controller.device

    def replicas() -> list[int]:
        return sorted(port for port, _ in device.switch.process(1, frame(kind=0x9000), 0))

    assert controller.read(MULTICAST) == [controller.program.entity(MULTICAST)]
    assert replicas() == [3, 6]
    device.set_port_up(3, False)
    assert replicas() == [4, 6]
    device.set_port_up(4, False)
    assert replicas() == [5, 6]
    device.set_port_up(4, True)
    assert replicas() == [4, 6], "a preferred port that is up again is taken again"
    for port in (4, 5, 6):
        device.set_port_up(port, False)
    assert replicas() == [3, 6], (
        "with all ports down the primary port is served, as without backups"
    )
    controller.do("MODIFY", MULTICAST.replace("\\x05", "\\x07"))
    assert replicas() == [6, 7]
    controller.do("DELETE", MULTICAST)
    device.set_port_up(3, True)
    assert replicas() == []


def test_backup_replicas_of_a_clone_session(controller: Any) -> None:
    controller.do(
        "INSERT",
        """packet_replication_engine_entry { clone_session_entry { session_id: 7 packet_length_bytes: 20
            replicas { egress_port: 3 backup_replicas { port: "\\x04" } } } }""",
    )
    switch = controller.device.switch
    assert (3, frame(kind=0xFFFF)[:20]) in switch.process(1, frame(kind=0xFFFF), 0)
    controller.device.set_port_up(3, False)
    assert (4, frame(kind=0xFFFF)[:20]) in switch.process(1, frame(kind=0xFFFF), 0)


def actions(*weights: int, extra: str = "") -> str:
    parts = " ".join(
        f"action_profile_actions {{ {forward(2)} weight: {weight} }}" for weight in weights
    )
    return f"table_entry {{ {KEY} action {{ action_profile_action_set {{ {parts} {extra} }} }} }}"


def test_size_semantics_of_a_one_shot(controller: Any) -> None:
    """The selector has 64 places, counted by weight."""
    controller.do("INSERT", actions(60, 4))
    other = actions(1).replace("\\x0a", "\\x0b")
    (status,) = controller.write(controller.program.update("INSERT", other))
    assert status.code == Code.RESOURCE_EXHAUSTED
    assert mentions(status.message, "IngressImpl.chooser", 64)
    controller.do("DELETE", actions())
    for semantics in (
        "SUM_OF_MEMBERS",
        "SUM_OF_WEIGHTS",
        "DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR",
    ):
        text = actions(3, extra=f"size_semantics: {semantics} action_selection_mode: HASH")
        controller.do("INSERT", text)
        assert controller.read(text) == [controller.program.entity(text)]
        controller.do("DELETE", text)
    (status,) = controller.write(
        controller.program.update("INSERT", actions(1, extra="action_selection_mode: RANDOM"))
    )
    assert status.code == Code.UNIMPLEMENTED


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["INSERT", "MODIFY", "DELETE"]),
            st.integers(1, 4),
            st.lists(st.integers(1, 30), max_size=4),
        ),
        max_size=25,
    )
)
def test_the_selectors_size_is_the_sum_over_its_groups(
    controller: Any, steps: list[tuple[str, int, list[int]]]
) -> None:
    """The size that is taken is what the groups have, whatever is inserted, changed, refused and
    deleted.
    """
    controller.set_pipeline("VERIFY_AND_COMMIT", controller.program.config())

    def write(kind: str, number: int, weights: list[int]) -> Code:
        text = actions(*weights).replace("\\x0a", f"\\x{number:02x}")
        (status,) = controller.write(controller.program.update(kind, text))
        code: Code = status.code
        return code

    held: dict[int, int] = {}
    for kind, number, weights in steps:
        code = write(kind, number, weights)
        if kind == "DELETE":
            assert code == (Code.OK if number in held else Code.NOT_FOUND)
            held.pop(number, None)
        elif kind == "MODIFY" and number not in held:
            assert code == Code.NOT_FOUND
        elif sum(held.values()) + sum(weights) - (held[number] if kind == "MODIFY" else 0) > 64:
            assert code == Code.RESOURCE_EXHAUSTED
        elif kind == "INSERT" and number in held:
            assert code == Code.ALREADY_EXISTS
        else:
            assert code == Code.OK
            held[number] = sum(weights)
    room = 64 - sum(held.values())
    assert [write("INSERT", 10 + number, [1]) for number in range(room)] == [Code.OK] * room
    assert write("INSERT", 99, [1]) == Code.RESOURCE_EXHAUSTED
