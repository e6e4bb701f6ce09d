"""The meaning of SONiC's tables to a packet, read from reference to reference as orchagent does."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon_site.switch_config.dialects import SwitchPorts
from echelon_site.switch_config.differences import differences
from echelon_site.switch_config.queues import (
    STRICT,
    EcnMarking,
    PortQueues,
    QueueError,
    QueueService,
    QueueServices,
    queues_by_code_point,
    strict_queues,
)
from echelon_site.switch_config.sonic.dialect import Sonic
from plugins.site.tests.switch_config.sonic_configs import (
    Config,
    Interface,
    Served,
    delivered_config,
)
from tests.drawing import examples
from tests.faults import coded, naming

LEAF = SwitchPorts("leaf1", (1, 2, 3), 4, "leaf1.json")
TABLES = {
    "dscp_to_tc_map": "DSCP_TO_TC_MAP",
    "tc_to_queue_map": "TC_TO_QUEUE_MAP",
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
    "pfc_to_pg_map": "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
    "scheduler": "SCHEDULER",
    "wred_profile": "WRED_PROFILE",
}
"""The table that each reference is to."""


def configured(queues: PortQueues, current: Config | None = None) -> Config:
    """Return a configuration as its file has it; None: that of the switch is not known."""
    sonic = Sonic()
    ports = replace(LEAF, file="") if current is None else LEAF
    wanted = sonic.configure(queues, ports, current or {})
    return dict(sonic.parse(sonic.text(wanted), "written"))


def queues_with(
    services: QueueServices = STRICT,
    lossless: frozenset[int] | None = None,
    marking: EcnMarking | None = None,
    marks: tuple[int, ...] = (),
) -> PortQueues:
    return PortQueues(queues_by_code_point(marks), services, lossless, marking)


def dangling(config: Config) -> list[str]:
    """Return the references to nothing."""
    missing = []
    for table in ("PORT_QOS_MAP", "QUEUE"):
        for (key, fields), (field, other) in product(config[table].items(), TABLES.items()):
            if field in fields and fields[field] not in config.get(other, {}):
                missing.append(f"{table}|{key} {field}")
    return missing


lossless_sets = st.none() | st.frozensets(st.integers(1, 7))
markings = st.none() | st.builds(
    EcnMarking,
    st.integers(0, 1 << 20),
    st.integers(1 << 20, 1 << 24),
    st.integers(0, 100),
)
orders = st.integers(0, 7).flatmap(
    lambda shared: st.lists(st.integers(1, 100), min_size=shared, max_size=shared).map(
        lambda weights: (
            *(QueueService(0, weight) for weight in weights),
            *(QueueService(level) for level in range(1, 9 - shared)),
        )
    )
)
"""Queues of which the lowest share, by any weights, and the others are strict."""


def test_without_marks_a_code_point_has_the_queue_of_its_class_selector() -> None:
    interface = Interface(configured(queues_with()), "Ethernet0")
    for dscp in range(64):
        assert interface.queue(dscp) == dscp // 8


@settings(max_examples=examples(200), deadline=None)
@given(st.permutations(range(8)), st.permutations([n for n in range(64) if n % 8]))
def test_each_mark_of_the_fabric_has_its_queue(selected: list[int], others: list[int]) -> None:
    # Some queues keep their class selector, the others have any other code point.
    marks = [queue << 3 for queue in range(8)]
    for queue, code_point in zip(selected[:5], others, strict=False):
        marks[queue] = code_point
    interface = Interface(configured(queues_with(marks=tuple(marks))), "Ethernet4")
    for queue, code_point in enumerate(marks):
        assert interface.queue(code_point) == queue
        assert interface.queue(queue << 3) == queue
    for dscp in set(range(64)) - set(marks):
        assert interface.queue(dscp) == dscp // 8


@pytest.mark.parametrize(
    ("marks", "queue"),
    [
        ((26,) * 8, 1),
        ((0, 8, 16, 24, 32, 40, 46, 46), 7),
        ((8, 0, 16, 24, 32, 40, 48, 56), 0),
    ],
)
def test_a_code_point_of_two_queues_is_refused(marks: tuple[int, ...], queue: int) -> None:
    with pytest.raises(QueueError, match=rf"of queue \d and of queue {queue}"):
        queues_by_code_point(marks)


@settings(max_examples=examples(200), deadline=None)
@given(orders, lossless_sets, markings, st.booleans())
def test_every_reference_is_to_something_and_ports_do_what_was_asked(
    services: QueueServices,
    lossless: frozenset[int] | None,
    marking: EcnMarking | None,
    is_known: bool,
) -> None:
    queues = queues_with(services, lossless, marking)
    config = configured(queues, delivered_config(4) if is_known else None)
    assert dangling(config) == []
    ports = ["Ethernet0", "Ethernet4", "Ethernet8"] + ["Ethernet12"] * is_known
    assert set(ports) == set(config["PORT_QOS_MAP"]) - {"global"}
    for port in ports:
        interface = Interface(config, port)
        check_services(interface, services)
        check_pfc(interface, lossless, is_known)
        check_marking(interface, marking)


def check_services(interface: Interface, services: QueueServices) -> None:
    served = [interface.served(queue) for queue in range(8)]
    alone = [sum(other.level == service.level for other in services) == 1 for service in services]
    assert [service.strict for service in served] == alone
    # SONiC has weights from 1 to 100, in the same proportion.
    shared = [queue for queue in range(8) if not alone[queue]]
    for one, other in product(shared, shared):
        assert served[one].weight * services[other].weight == (
            served[other].weight * services[one].weight
        )
        assert 1 <= served[one].weight <= 100


def check_pfc(interface: Interface, lossless: frozenset[int] | None, is_known: bool) -> None:
    if lossless is None:
        kept = "3,4" if is_known else None
        assert interface.maps.get("pfc_enable") == kept
        assert ("tc_to_pg_map" in interface.maps) == is_known
        return
    assert interface.maps["pfc_enable"] == ",".join(map(str, sorted(lossless)))
    assert interface.maps["pfcwd_sw_enable"] == interface.maps["pfc_enable"]
    for dscp in range(64):
        queue = interface.queue(dscp)
        assert interface.priority_group(dscp) == (queue if queue in lossless else 0)
    # A pause for what a lossless queue sent stops that queue, and no other.
    for priority in lossless:
        assert interface.paused_queue(priority) == priority
    assert ("pfc_to_pg_map" in interface.maps) == (is_known and bool(lossless))


def check_marking(interface: Interface, marking: EcnMarking | None) -> None:
    for queue in range(8):
        binding = interface.binding(queue)
        if marking is None or queue in (0, 7):
            assert binding.get("wred_profile", "AZURE_LOSSLESS") == "AZURE_LOSSLESS"
            continue
        profile = interface.config["WRED_PROFILE"][binding["wred_profile"]]
        assert profile["ecn"] == "ecn_all"
        for colour in ("green", "yellow", "red"):
            assert int(profile[f"{colour}_min_threshold"]) == marking.min_bytes
            assert int(profile[f"{colour}_max_threshold"]) == marking.max_bytes
            assert int(profile[f"{colour}_drop_probability"]) == marking.percent


def test_all_else_stays_as_it_is_known() -> None:
    first = delivered_config(4)
    first["PORT"]["Ethernet400"] = {"lanes": "401", "speed": "10000", "role": "Inb"}
    first["LOOPBACK_INTERFACE"] = {"Loopback0": {}, "Loopback0|10.1.0.1/32": {}}
    untouched = deepcopy(first)
    config = configured(queues_with(lossless=frozenset({3})), first)
    assert first == untouched
    for table in ("PORT", "DEVICE_METADATA", "LOOPBACK_INTERFACE"):
        assert config[table] == untouched[table]
    for table in set(TABLES.values()):
        for name, fields in untouched[table].items():
            assert config[table][name] == fields
    assert config["QUEUE"]["CPU|0-5"] == untouched["QUEUE"]["CPU|0-5"]
    assert "Ethernet400" not in config["PORT_QOS_MAP"]
    assert config["PORT_QOS_MAP"]["global"] == {"dscp_to_tc_map": "ECHELON"}
    # What a range of queues has besides its scheduler stays with each of them.
    interface = Interface(config, "Ethernet4")
    assert [interface.binding(queue).get("wred_profile") for queue in range(5)] == [
        None,
        None,
        None,
        "AZURE_LOSSLESS",
        "AZURE_LOSSLESS",
    ]


def test_a_second_run_changes_nothing_and_other_shares_leave_no_profile_behind() -> None:
    shared = tuple(QueueService(0, weight) for weight in (1, 2, 4, 8, 16, 32, 64))
    queues = queues_with((*shared, QueueService(1)), frozenset({3, 4}))
    config = configured(queues, delivered_config(4))
    assert not list(differences("leaf1", config, configured(queues, config)))
    strict = configured(queues_with(), config)
    assert set(strict["SCHEDULER"]) == {"scheduler.0", "ECHELON_STRICT"}


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        # Queue 2 before queue 3.
        ((0, 1, 3, 2, 4, 5, 6, 7), (2, 3)),
        # Queues 3 and 4 share, before queues 0 to 2.
        ((0, 1, 2, 3, 3, 5, 6, 7), (3, 4)),
        # Two groups that share.
        ((0, 0, 0, 0, 1, 1, 1, 2), (4, 6)),
    ],
)
def test_an_order_that_switches_do_not_have_is_refused(
    levels: tuple[int, ...], said: tuple[int, ...]
) -> None:
    with pytest.raises(QueueError) as refused:
        strict_queues(tuple(map(QueueService, levels)))
    assert naming(*said)(refused.value)


def test_weights_that_sonic_does_not_have_are_refused_and_others_are_reduced() -> None:
    services = (
        *(QueueService(0, 10 * weight) for weight in (1, 2, 100)),
        *map(QueueService, range(1, 6)),
    )
    interface = Interface(configured(queues_with(services)), "Ethernet0")
    assert [interface.served(queue) for queue in range(4)] == [
        Served(False, 1),
        Served(False, 2),
        Served(False, 100),
        Served(True, 1),
    ]
    wider = (QueueService(0, 1), QueueService(0, 101), *map(QueueService, range(1, 7)))
    with pytest.raises(QueueError, check=naming(1, 101, 100)):
        configured(queues_with(wider))


@pytest.mark.parametrize(
    ("text", "code", "names"),
    [
        ("{", "bad-syntax", ["leaf1.json"]),
        ("[]", "not-a-mapping", ["leaf1.json"]),
        ('{"PORT": []}', "not-a-mapping", ["leaf1.json", "PORT"]),
        ('{"PORT_QOS_MAP": {"Ethernet0": "x"}}', "not-a-mapping", ["PORT_QOS_MAP.Ethernet0"]),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(text: str, code: Any, names: list[str]) -> None:
    with pytest.raises(DocumentError, check=coded(code, *names)):
        Sonic().parse(text, "leaf1.json")


def test_a_configuration_of_another_switch_is_refused() -> None:
    with pytest.raises(DocumentError, check=coded("does-not-fit", "leaf1.json", "PORT", "2", "3")):
        configured(queues_with(), delivered_config(2))
    with pytest.raises(DocumentError, check=coded("does-not-fit", "leaf1.json", "PORT", "0", "3")):
        configured(queues_with(), {"QUEUE": {}})
    chassis = delivered_config(4)
    chassis["DEVICE_METADATA"]["localhost"]["switch_type"] = "voq"
    with pytest.raises(DocumentError, check=coded("not-allowed", "leaf1.json", "switch_type")):
        configured(queues_with(), chassis)
    for key in ("Ethernet0,Ethernet4|3", "Ethernet0|a", "Ethernet0"):
        config = delivered_config(4) | {"QUEUE": {key: {"scheduler": "scheduler.0"}}}
        with pytest.raises(DocumentError, check=coded("not-allowed", "leaf1.json", key)):
            configured(queues_with(), json.loads(json.dumps(config)))
