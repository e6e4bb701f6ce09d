"""The gNMI tree without gRPC: every path, every refusal, all or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from finsy import GNMIPath
from finsy.proto import gnmi
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.gnmi.qos import QosTree
from softswitch.rpc.status import Code, RefusedError
from softswitch.tm import STRICT_QUEUES, QueueConfig
from tests.drawing import examples
from tests.faults import mentions, naming
from tests.softswitch.tm.native import SchedulerInC

QUEUE = "/qos/interfaces/interface[interface-id={}]/output/queues/queue[name={}]"
PORT_RATE = "/interfaces/interface[name={}]/config/softswitch:port-rate"


def path(text: str) -> gnmi.Path:
    return GNMIPath(text).path


def update(text: str, value: object) -> gnmi.Update:
    if isinstance(value, int) and not isinstance(value, bool):
        return gnmi.Update(path=path(text), val=gnmi.TypedValue(uint_val=value))
    return gnmi.Update(
        path=path(text), val=gnmi.TypedValue(json_ietf_val=json.dumps(value).encode())
    )


@pytest.fixture
def ports() -> dict[int, SchedulerInC]:
    return {1: SchedulerInC(10**9), 2: SchedulerInC(None)}


@pytest.fixture
def tree(ports: dict[int, SchedulerInC]) -> QosTree:
    return QosTree(ports)


def scalars(tree: QosTree, text: str, kind: int = gnmi.GetRequest.ALL) -> dict[str, int | str]:
    found = {}
    for entry in tree.get(path(text), None, kind, gnmi.PROTO):
        which = entry.val.WhichOneof("value")
        assert which is not None
        found[str(GNMIPath(entry.path))] = getattr(entry.val, which)
    return found


def from_json(tree: QosTree, text: str, encoding: int = gnmi.JSON_IETF) -> object:
    (entry,) = tree.get(path(text), None, gnmi.GetRequest.ALL, encoding)
    return json.loads(entry.val.json_ietf_val if encoding == gnmi.JSON_IETF else entry.val.json_val)


def test_leaf_by_leaf(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    config = QUEUE.format(1, 3) + "/config/softswitch:"
    values = {
        "level": 6,
        "weight": 1023,
        "min-rate": 1000,
        "max-rate": 5_000_000_000,
        "depth": 123456,
    }
    tree.set(
        gnmi.SetRequest(update=[update(config + name, value) for name, value in values.items()]), 0
    )
    assert ports[1].config(3) == QueueConfig(6, 1023, 1000, 5_000_000_000, 123456)
    for name, value in values.items():
        assert list(scalars(tree, config + name).values()) == [value]


def test_a_port_that_has_gone_is_not_there_for_paths_that_were_set_before(
    tree: QosTree, ports: dict[int, SchedulerInC]
) -> None:
    request = gnmi.SetRequest(update=[update(QUEUE.format(2, 2) + "/config/softswitch:level", 1)])
    tree.set(request, 0)
    gone = ports.pop(2)
    with pytest.raises(RefusedError, check=naming("interface-id=2", 1)) as caught:
        tree.set(request, 0)
    assert caught.value.status.code == Code.INVALID_ARGUMENT
    ports[2] = SchedulerInC(None)
    tree.set(request, 0)
    assert ports[2].config(2) == gone.config(2)


def test_a_container_at_once(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    value = {
        "name": "2",
        "softswitch:level": 1,
        "softswitch:weight": 9,
        "softswitch:max-rate": "18446744073709551615",
    }
    tree.set(gnmi.SetRequest(update=[update(QUEUE.format(2, 2) + "/config", value)]), 0)
    assert ports[2].config(2) == QueueConfig(1, 9, 0, 2**64 - 1)
    assert from_json(tree, QUEUE.format(2, 2) + "/config") == {
        "name": "2",
        "softswitch:level": 1,
        "softswitch:weight": 9,
        "softswitch:min-rate": "0",
        "softswitch:max-rate": "18446744073709551615",
        "softswitch:depth": "1048576",
    }


def test_many_ports_in_one_value(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    value = {
        "interface": [
            {
                "interface-id": str(port),
                "output": {
                    "queues": {"queue": [{"name": "0", "config": {"softswitch:weight": port * 10}}]}
                },
            }
            for port in ports
        ]
    }
    tree.set(gnmi.SetRequest(update=[update("/qos/interfaces", value)]), 0)
    assert [ports[port].config(0).weight for port in (1, 2)] == [10, 20]


def test_what_is_got_can_be_set(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    ports[1].configure(5, QueueConfig(3, 17, 1_000, 2_000, 99), 0)
    (entry,) = tree.get(path("/qos/interfaces"), None, gnmi.GetRequest.CONFIG, gnmi.JSON_IETF)
    fresh = {1: SchedulerInC(10**9), 2: SchedulerInC(None)}
    QosTree(fresh).set(gnmi.SetRequest(replace=[gnmi.Update(path=entry.path, val=entry.val)]), 0)
    for port in (1, 2):
        assert [fresh[port].config(queue) for queue in range(8)] == [
            ports[port].config(queue) for queue in range(8)
        ]


def test_port_rate(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    assert scalars(tree, PORT_RATE.format(1)) == {PORT_RATE.format(1)[1:]: 10**9}
    tree.set(gnmi.SetRequest(update=[update(PORT_RATE.format(1), 25_000_000)]), 0)
    assert ports[1].rate_bps == 25_000_000
    tree.set(gnmi.SetRequest(update=[update(PORT_RATE.format(1), 0)]), 0)
    assert ports[1].rate_bps is None
    tree.set(gnmi.SetRequest(delete=[path(PORT_RATE.format(1))]), 0)
    assert ports[1].rate_bps == 10**9, "deleting returns to the rate from before anyone set it"


def test_replace_and_delete_restore_what_they_do_not_mention(
    tree: QosTree, ports: dict[int, SchedulerInC]
) -> None:
    ports[1].configure(3, QueueConfig(1, 50, 0, 10**6), 0)
    tree.set(
        gnmi.SetRequest(replace=[update(QUEUE.format(1, 3) + "/config", {"softswitch:weight": 7})]),
        0,
    )
    assert ports[1].config(3) == QueueConfig(level=3, weight=7)
    tree.set(gnmi.SetRequest(delete=[path(QUEUE.format(1, 3))]), 0)
    assert ports[1].config(3) == STRICT_QUEUES[3]


def test_order_is_delete_replace_update(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    leaf = QUEUE.format(1, 0) + "/config/softswitch:weight"
    tree.set(
        gnmi.SetRequest(update=[update(leaf, 3)], replace=[update(leaf, 2)], delete=[path(leaf)]), 0
    )
    assert ports[1].config(0).weight == 3


def test_counters(tree: QosTree, ports: dict[int, SchedulerInC]) -> None:
    ports[1].configure(4, QueueConfig(level=4, depth_bytes=1500), 0)
    assert ports[1].enqueue(4, None, 1000, 0)
    assert not ports[1].enqueue(4, None, 1000, 0)
    assert ports[1].dequeue(0) is not None
    assert from_json(tree, QUEUE.format(1, 4) + "/state") == {
        "name": "4",
        "transmit-pkts": "1",
        "transmit-octets": "1000",
        "dropped-pkts": "1",
        "dropped-octets": "1000",
    }
    assert from_json(tree, QUEUE.format(1, 4) + "/state/dropped-pkts", gnmi.JSON) == 1


def test_wildcards_and_kinds(tree: QosTree) -> None:
    every = scalars(tree, "/")
    assert len(every) == 2 * 8 * 11 + 2 * 5
    assert scalars(
        tree,
        "/qos/interfaces/interface[interface-id=*]/output/queues/queue[name=7]/config/softswitch:level",
    ) == {QUEUE.format(port, 7)[1:] + "/config/softswitch:level": 7 for port in (1, 2)}
    config = scalars(tree, "/", gnmi.GetRequest.CONFIG)
    state = scalars(tree, "/", gnmi.GetRequest.STATE)
    assert config | state == every
    assert not set(config) & set(state)
    assert all("/state/" in name for name in state)


def test_prefix(tree: QosTree) -> None:
    prefix = path(QUEUE.format(1, 2))
    (entry,) = tree.get(path("config/softswitch:level"), prefix, gnmi.GetRequest.ALL, gnmi.PROTO)
    assert entry.val.uint_val == 2


INTERFACE = "/qos/interfaces/interface"
CONFIG = QUEUE.format(1, 0) + "/config"
STATE = QUEUE.format(1, 0) + "/state"
LEVEL = "/config/softswitch:level"
REFUSED_SETS: list[tuple[str, object, str, str]] = [
    (CONFIG + "/softswitch:level", 8, "", "8 0..7"),
    (CONFIG + "/softswitch:weight", 0, "", "0 1..1023"),
    (CONFIG + "/softswitch:weight", 1024, "", "1024 1..1023"),
    (CONFIG + "/softswitch:weight", "heavy", "", '"heavy" 1..1023'),
    (CONFIG + "/softswitch:weight", True, "", "true 1..1023"),
    (CONFIG + "/softswitch:weight", 1.5, "", "1.5 1..1023"),
    (CONFIG + "/softswitch:depth", str(1 << 64), "", f'"{1 << 64}" 0..{(1 << 64) - 1}'),
    (CONFIG + "/softswitch:colour", 1, "", "'softswitch:colour' name softswitch:level"),
    (CONFIG + "/level", 1, "", "'level' name softswitch:level"),
    (
        CONFIG,
        {"softswitch:min-rate": 5, "softswitch:max-rate": 4},
        "",
        "max_rate_bps 4 min_rate_bps 5",
    ),
    (CONFIG, {"name": "1"}, CONFIG + "/name", '"1"'),
    (CONFIG, 5, "", "5 JSON"),
    (STATE + "/transmit-pkts", 1, "", "read-only"),
    (STATE, {"transmit-pkts": 1}, STATE + "/transmit-pkts", "read-only"),
    (QUEUE.format(1, 8) + LEVEL, 1, QUEUE.format(1, 8), "'8' queues 0 1"),
    (QUEUE.format(9, 0) + LEVEL, 1, INTERFACE + "[interface-id=9]", "'9' ports 1 2"),
    (QUEUE.format("01", 0) + LEVEL, 1, INTERFACE + "[interface-id=01]", "'01' ports 1 2"),
    (QUEUE.format("*", 0) + LEVEL, 1, "", "key '*'"),
    (INTERFACE + "/output/queues/queue[name=1]" + LEVEL, 1, "", "key '*'"),
    (INTERFACE + "[name=1]/output", {}, INTERFACE + "[name=1]", "key 'interface' interface-id"),
    ("/qos/interfaces", {"interface": {}}, INTERFACE, "{} JSON"),
    ("/qos/interfaces", {"interface": [{"output": {}}]}, INTERFACE, "'interface-id'"),
    (
        "/qos/interfaces",
        {"interface": [{"interface-id": "7"}]},
        INTERFACE + "[interface-id=7]",
        "'7' ports 1 2",
    ),
    (PORT_RATE.format(3), 1, "/interfaces/interface[name=3]", "'3' ports 1 2"),
    (PORT_RATE.format(1) + "/deeper", 1, "", PORT_RATE.format(1)),
    ("/nowhere", 1, "", "'nowhere' qos interfaces"),
]
"""The path of an update, its value, the path that the answer names (empty: the same), and what else
the answer names.
"""


@pytest.mark.parametrize(("where", "value", "place", "facts"), REFUSED_SETS)
def test_refused_set_names_the_reason_and_changes_nothing(
    tree: QosTree,
    ports: dict[int, SchedulerInC],
    where: str,
    value: object,
    place: str,
    facts: str,
) -> None:
    request = gnmi.SetRequest(
        update=[
            update(QUEUE.format(2, 1) + "/config/softswitch:weight", 5),
            update(PORT_RATE.format(2), 1000),
            update(where, value),
        ]
    )
    with pytest.raises(RefusedError) as caught:
        tree.set(request, 0)
    assert caught.value.status.code == Code.INVALID_ARGUMENT
    message = caught.value.status.message
    named, reason = re.split(r":? ", message, maxsplit=1)
    assert named == (place or where)
    assert mentions(reason, *facts.split()), message
    assert all(
        port.config(queue) == STRICT_QUEUES[queue] for port in ports.values() for queue in range(8)
    )
    assert (ports[1].rate_bps, ports[2].rate_bps) == (10**9, None)


@pytest.mark.parametrize(
    "value",
    [
        gnmi.TypedValue(),
        gnmi.TypedValue(bool_val=True),
        gnmi.TypedValue(double_val=1.0),
        gnmi.TypedValue(int_val=-1),
        gnmi.TypedValue(json_ietf_val=b"{"),
        gnmi.TypedValue(json_ietf_val=b"\xff"),
        gnmi.TypedValue(json_ietf_val=b"[" * 100_000),
        gnmi.TypedValue(ascii_val="1"),
    ],
)
def test_refused_values(tree: QosTree, value: gnmi.TypedValue) -> None:
    where = path(QUEUE.format(1, 0) + "/config/softswitch:weight")
    with pytest.raises(RefusedError) as caught:
        tree.set(gnmi.SetRequest(update=[gnmi.Update(path=where, val=value)]), 0)
    assert caught.value.status.code == Code.INVALID_ARGUMENT
    assert mentions(caught.value.status.message, "softswitch:weight")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (
            lambda tree: list(tree.get(path("/qos/nothing"), None, 0, gnmi.PROTO)),
            Code.INVALID_ARGUMENT,
        ),
        (
            lambda tree: list(tree.get(path(QUEUE.format(5, 0)), None, 0, gnmi.PROTO)),
            Code.NOT_FOUND,
        ),
        (lambda tree: list(tree.get(path("/"), None, 0, gnmi.ASCII)), Code.UNIMPLEMENTED),
        (lambda tree: list(tree.get(path("/"), None, 0, 77)), Code.UNIMPLEMENTED),
        (
            lambda tree: list(tree.get(gnmi.Path(element=["qos"]), None, 0, gnmi.PROTO)),
            Code.INVALID_ARGUMENT,
        ),
        (
            lambda tree: list(tree.get(gnmi.Path(origin="cli"), None, 0, gnmi.PROTO)),
            Code.INVALID_ARGUMENT,
        ),
        (
            lambda tree: tree.set(gnmi.SetRequest(union_replace=[gnmi.Update()]), 0),
            Code.UNIMPLEMENTED,
        ),
        (
            lambda tree: tree.set(
                gnmi.SetRequest(delete=[path(QUEUE.format(1, 1) + "/state/name")]), 0
            ),
            Code.INVALID_ARGUMENT,
        ),
    ],
)
def test_refused_requests(tree: QosTree, call: Callable[[QosTree], object], code: Code) -> None:
    with pytest.raises(RefusedError) as caught:
        call(tree)
    assert caught.value.status.code == code


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2]),
            st.integers(0, 7),
            st.sampled_from(["level", "weight", "min-rate", "max-rate", "depth"]),
            st.integers(0, 1200),
        ),
        max_size=12,
    )
)
def test_a_set_is_the_sequence_of_its_updates_or_nothing(
    changes: list[tuple[int, int, str, int]],
) -> None:
    ports = {1: SchedulerInC(None), 2: SchedulerInC(None)}
    request = gnmi.SetRequest(
        update=[
            update(f"{QUEUE.format(port, queue)}/config/softswitch:{leaf}", value)
            for port, queue, leaf, value in changes
        ]
    )
    expected: dict[tuple[int, int], dict[str, int]] = {
        (port, queue): {"level": queue, "weight": 1, "min-rate": 0, "max-rate": 0, "depth": 1 << 20}
        for port in ports
        for queue in range(8)
    }
    before = {place: dict(values) for place, values in expected.items()}
    legal = True
    for port, queue, leaf, value in changes:
        expected[port, queue][leaf] = value
        legal &= not (leaf == "level" and value > 7) and not (
            leaf == "weight" and not 1 <= value <= 1023
        )
    legal &= all(
        not values["max-rate"] or values["max-rate"] >= values["min-rate"]
        for values in expected.values()
    )
    if legal:
        QosTree(ports).set(request, 0)
    else:
        with pytest.raises(RefusedError):
            QosTree(ports).set(request, 0)
        expected = before
    for (port, queue), values in expected.items():
        config = ports[port].config(queue)
        assert [
            config.level,
            config.weight,
            config.min_rate_bps,
            config.max_rate_bps or 0,
            config.depth_bytes,
        ] == list(values.values())
