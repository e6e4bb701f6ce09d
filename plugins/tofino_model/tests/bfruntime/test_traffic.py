"""The fixed tables drive the schedulers of the switch's ports."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.tofino_model.tests.bfruntime.conftest import LINE_BPS, BfrtError, Client, Served
from softswitch.portgroups import LOGICAL_QUEUES, PortGroup, group_of, port_of
from softswitch.tm import QueueConfig
from tests.faults import mentions, naming

SCHED = "tf1.tm.queue.sched_cfg"
SHAPING = "tf1.tm.queue.sched_shaping"
GROUP = "tf1.tm.port.group"


def _queue(client: Client, port: int, qid: int) -> tuple[dict[str, int], int]:
    """Return the key of a logical queue of a port, and the pipe to name with it."""
    found = client.read(client.entry("tf1.tm.port.cfg", {"dev_port": port}))[0]
    return {"pg_id": found["pg_id"], "pg_queue": found["egress_qid_queues"][qid]}, port >> 7


def _drain(served: Served, port: int) -> list[int]:
    """Return the queues from which a port sends what waits, in order."""
    scheduler, order = served.ports[port], []
    while (eligible_ns := scheduler.next_eligible_ns(served.now_ns)) is not None:
        served.now_ns = eligible_ns
        leaving = scheduler.dequeue(served.now_ns)
        assert leaving is not None
        order.append(leaving.queue)
    return order


def test_a_port_comes_up_without_any_priority(served: Served, client: Client) -> None:
    key, pipe = _queue(client, 5, 3)
    assert key == {"pg_id": 1, "pg_queue": 11}
    assert client.read(client.entry(SCHED, key), pipe=pipe)[0] == {
        "key": key,
        "action": None,
        "min_rate_enable": False,
        "min_priority": "LOW",
        "max_rate_enable": False,
        "max_priority": "LOW",
        "dwrr_weight": 1023,
        "scheduling_enable": True,
    }
    assert served.ports[5].config(3) == QueueConfig(level=0, weight=1023)


def test_priorities_and_weights_decide_what_a_port_sends(served: Served, client: Client) -> None:
    for qid, (level, weight) in enumerate([("1", 10), ("7", 10), ("1", 30), ("HIGH", 10)]):
        key, pipe = _queue(client, 5, qid)
        client.modify(
            client.entry(SCHED, key, min_priority=level, max_priority=level, dwrr_weight=weight),
            pipe=pipe,
        )
    for queue in range(4):
        for _ in range(4):
            served.ports[5].enqueue(queue, None, 1000, 0)
    order = _drain(served, 5)
    assert sorted(order[:8]) == [1] * 4 + [3] * 4
    # Of the first four of level 1, shares of 10 and 30 are one and three.
    assert sorted(order[8:12]) == [0, 2, 2, 2]


def test_a_queue_is_shaped_when_its_rate_is_enabled(served: Served, client: Client) -> None:
    key, pipe = _queue(client, 2, 0)
    client.modify(client.entry(SHAPING, key, unit="BPS", max_rate=8_000, min_rate=1_000), pipe=pipe)
    assert served.ports[2].config(0).max_rate_bps is None
    client.modify(
        client.entry(SCHED, key, max_rate_enable=True, min_rate_enable=True, min_priority="3"),
        pipe=pipe,
    )
    config = served.ports[2].config(0)
    assert (config.min_rate_bps, config.max_rate_bps, config.guaranteed_level) == (
        1_000_000,
        8_000_000,
        3,
    )
    for _ in range(3):
        served.ports[2].enqueue(0, None, 1000, 0)
    assert _drain(served, 2) == [0, 0, 0]
    assert served.now_ns == 2_000_000  # two packets of 1000 bytes at 8 Mbit/s before the last one


def test_a_port_is_shaped_below_its_line_rate(served: Served, client: Client) -> None:
    client.modify(
        client.entry("tf1.tm.port.sched_shaping", {"dev_port": 4}, unit="BPS", max_rate=10_000)
    )
    client.modify(client.entry("tf1.tm.port.sched_cfg", {"dev_port": 4}, max_rate_enable=True))
    assert served.ports[4].rate_bps == 10_000_000
    client.modify(client.entry("tf1.tm.port.sched_shaping", {"dev_port": 4}, max_rate=4_000_000))
    assert served.ports[4].rate_bps == LINE_BPS
    client.modify(
        client.entry("tf1.tm.port.sched_cfg", {"dev_port": 4}, scheduling_speed="BF_SPEED_NONE")
    )
    served.ports[4].enqueue(0, None, 100, 0)
    assert _drain(served, 4) == []


def test_a_queue_waits_while_it_is_not_scheduled(served: Served, client: Client) -> None:
    key, pipe = _queue(client, 1, 6)
    client.modify(client.entry(SCHED, key, scheduling_enable=False), pipe=pipe)
    served.ports[1].enqueue(6, None, 160, 0)
    assert _drain(served, 1) == []
    counters = client.read(client.entry("tf1.tm.counter.queue", key), pipe=pipe)[0]
    assert (counters["usage_cells"], counters["watermark_cells"]) == (2, 2)
    client.modify(client.entry(SCHED, key, scheduling_enable=True), pipe=pipe)
    assert _drain(served, 1) == [6]


def test_a_queue_without_burst_absorption_is_as_deep_as_its_cells(
    served: Served, client: Client
) -> None:
    key, pipe = _queue(client, 1, 0)
    buffer = "tf1.tm.queue.buffer"
    client.modify(
        client.entry(
            buffer, key, "shared_pool", guaranteed_cells=20, pool_max_cells=5, dynamic_baf="DISABLE"
        ),
        pipe=pipe,
    )
    for _ in range(3):
        served.ports[1].enqueue(0, None, 1000, 0)
    counters = client.entry("tf1.tm.counter.queue", key)
    assert client.read(counters, pipe=pipe)[0]["drop_count_packets"] == 1
    client.modify(client.entry("tf1.tm.counter.queue", key, drop_count_packets=0), pipe=pipe)
    assert client.read(counters, pipe=pipe)[0]["drop_count_packets"] == 0
    client.modify(client.entry(buffer, key, "buffer_only"), pipe=pipe)
    assert served.ports[1].config(0).depth_bytes == 20 * 80


def test_a_group_gives_all_its_queues_to_one_port(served: Served, client: Client) -> None:
    client.modify(client.entry(GROUP, {"pg_id": 1}, "seq", port_queue_count=[0, 32, 0, 0]), pipe=0)
    assert [served.ports[port].queues for port in (4, 5, 6, 7)] == [0, 32, 0, 0]
    found = client.read(client.entry("tf1.tm.port.cfg", {"dev_port": 5}))[0]
    assert found["egress_qid_queues"] == list(range(32))
    assert (
        client.read(client.entry("tf1.tm.port.cfg", {"dev_port": 4}))[0]["egress_qid_queues"] == []
    )
    mapped = client.read(client.entry("tf1.tm.queue.map", {"pg_id": 1, "pg_queue": 31}), pipe=0)[0]
    assert (mapped["dev_port"], mapped["queue_nr"], mapped["ingress_qid_list"]) == (5, 31, [31])
    client.modify(client.entry(SCHED, {"pg_id": 1, "pg_queue": 31}, max_priority="4"), pipe=0)
    assert served.ports[5].config(31).level == 4
    assert served.traffic.queue_nr(5, 31) == 31
    served.ports[5].enqueue(30, None, 100, 0)
    with pytest.raises(BfrtError) as caught:
        client.modify(
            client.entry(GROUP, {"pg_id": 1}, "seq", port_queue_count=[8, 8, 8, 8]), pipe=0
        )
    assert caught.value.codes == ["INVALID_ARGUMENT"]
    assert mentions(caught.value.texts[0], "queue 30", "port 5")
    assert served.ports[5].queues == 32
    _drain(served, 5)
    client.delete(client.entry(GROUP, None), pipe=0)
    assert [served.ports[port].queues for port in (4, 5, 6, 7)] == [8, 8, 8, 8]
    # The setting is that of the physical queue, which is the last port's again.
    assert served.ports[7].config(7).level == 4


@pytest.mark.parametrize(
    ("table", "key", "data", "codes"),
    [
        (SCHED, {"pg_id": 0, "pg_queue": 1}, {"max_priority": "8"}, ["INVALID_ARGUMENT"]),
        (SCHED, {"pg_id": 18, "pg_queue": 1}, {"max_priority": "1"}, ["INVALID_ARGUMENT"]),
        (SCHED, {"pg_id": 0, "pg_queue": 32}, {"max_priority": "1"}, ["INVALID_ARGUMENT"]),
        (SCHED, {"pg_id": 0, "pg_queue": 10}, {"dwrr_weight": 1024}, ["INVALID_ARGUMENT"]),
        (SHAPING, {"pg_id": 0, "pg_queue": 9}, {"unit": "PPS"}, ["UNIMPLEMENTED"]),
        ("tf1.tm.port.cfg", {"dev_port": 1}, {"pg_id": 1}, ["UNIMPLEMENTED"]),
        (
            "tf1.tm.port.sched_cfg",
            {"dev_port": 72},
            {"max_rate_enable": True},
            ["INVALID_ARGUMENT"],
        ),
        (
            "tf1.tm.counter.queue",
            {"pg_id": 0, "pg_queue": 1},
            {"drop_count_packets": 5},
            ["INVALID_ARGUMENT"],
        ),
        ("$PORT", {"$DEV_PORT": 9}, {"PORT_ENABLE": True}, ["NOT_FOUND"]),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(
    client: Client, table: str, key: dict[str, int], data: dict[str, Any], codes: list[str]
) -> None:
    if table == SHAPING:
        client.modify(client.entry(SCHED, key, max_rate_enable=True), pipe=0)
    everything = client.entry(table, None)
    before = client.read(everything, pipe=0)
    with pytest.raises(BfrtError) as caught:
        client.modify(client.entry(table, key, **data), pipe=0)
    assert caught.value.codes == codes
    assert client.read(everything, pipe=0) == before


def test_a_table_of_queues_needs_one_pipe(client: Client) -> None:
    with pytest.raises(BfrtError) as caught:
        client.read(client.entry(SCHED, {"pg_id": 0, "pg_queue": 0}))
    assert caught.value.codes == ["INVALID_ARGUMENT"]
    assert len(client.read(client.entry(SCHED, None), pipe=3)) == 18 * 32


def test_ports_are_removed_added_and_disabled(served: Served, client: Client) -> None:
    ports = client.entry("$PORT", None)
    assert [entry["key"]["$DEV_PORT"] for entry in client.read(ports)] == list(range(1, 9))
    client.modify(client.entry("$PORT", {"$DEV_PORT": 2}, PORT_ENABLE=False))
    served.ports[2].enqueue(0, None, 100, 0)
    assert _drain(served, 2) == []
    client.delete(client.entry("$PORT", {"$DEV_PORT": 2}))
    assert len(client.read(ports)) == 7
    added = client.entry(
        "$PORT", {"$DEV_PORT": 2}, SPEED="BF_SPEED_10G", FEC="BF_FEC_TYP_NONE", PORT_ENABLE=True
    )
    client.insert(added)
    assert _drain(served, 2) == [0]
    with pytest.raises(BfrtError) as caught:
        client.insert(
            added,
            client.entry("$PORT", {"$DEV_PORT": 9}, SPEED="BF_SPEED_10G", FEC="BF_FEC_TYP_NONE"),
        )
    assert caught.value.codes == ["ALREADY_EXISTS", "INVALID_ARGUMENT"]


# -- the division of a group's queues --------------------------------------------------------------


def _between(cuts: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *sorted(cuts)])]


counts = st.lists(st.integers(0, 32), min_size=4, max_size=4).map(_between)


@given(counts, st.sampled_from(["sequential", "even", "cropped"]))
def test_every_queue_has_one_port_and_every_logical_queue_a_queue_of_its_port(
    given_counts: list[int], how: str
) -> None:
    make = {
        "sequential": PortGroup.sequential,
        "even": PortGroup.even,
        "cropped": PortGroup().cropped,
    }[how]
    group = make(given_counts)
    owned = [group.owner(queue) for queue in range(LOGICAL_QUEUES)]
    for port, count in enumerate(given_counts):
        own = [queue for queue, owner in enumerate(owned) if owner is not None and owner[0] == port]
        assert [owned[queue] for queue in own] == [(port, number) for number in range(count)]
        assert len(group.queues_of(port)) == (LOGICAL_QUEUES if count else 0)
        assert set(group.queues_of(port)) <= set(own)


def test_the_maps_are_those_of_the_open_sdes_documentation() -> None:
    assert PortGroup.even([8, 8, 8, 8]).maps[0] == tuple(
        queue for queue in range(8) for _ in range(4)
    )
    assert PortGroup.even([17, 0, 0, 0]).maps[0] == (*range(17), *[0] * 15)
    assert PortGroup().cropped([5, 5, 5, 5]).maps[2] == (0, 1, 2, 3, 4, 0, 0, 0) * 4
    custom = PortGroup.sequential([2, 4, 16, 10])
    assert custom.queues_of(1)[:8] == (2, 3, 4, 5, 2, 3, 4, 5)
    assert custom.queues_of(3)[:12] == (*range(22, 32), 22, 23)


@given(st.integers(0, 3), st.integers(0, 17), st.integers(0, 3))
def test_ports_and_places_in_groups_are_the_same_thing(pipe: int, group: int, number: int) -> None:
    assert group_of(port_of(pipe, group, number)) == (pipe, group, number)


@pytest.mark.parametrize("port", [-1, 72, 127, 200, 512])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(ValueError, check=naming(f"port {port}")):
        group_of(port)
