"""The registry of targets: what a switch's entry may say for each, and what comes of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from echelon.documents import DocumentError, parse_document
from echelon.lowering.capabilities import OuterQueues, QueueDepthMarks, VirtualQueueMarks
from echelon.plan import LEVELS
from echelon.southbound.queues.bmv2 import Bmv2Queues
from echelon.southbound.targets import TARGETS, Bmv2Options, Endpoint, Site


def bmv2(ports: tuple[int, ...] = (), **entry: object) -> Bmv2Options:
    return parse_document(Bmv2Options, entry, "echelon.yaml", {"ports": ports})


def test_what_every_target_brings() -> None:
    assert list(TARGETS) == ["softswitch", "bmv2"]
    for name, target in TARGETS.items():
        assert target.name == target.capabilities().target == name
        capabilities = target.capabilities()
        assert (capabilities.queues, capabilities.levels) == (LEVELS, LEVELS)
        assert target.program().p4info.is_file()


def test_where_the_queue_is_outside_the_switch_ecn_cannot_go_by_its_depth() -> None:
    inside, outside = TARGETS["softswitch"].capabilities(), TARGETS["bmv2"].capabilities()
    assert isinstance(inside.ecn, QueueDepthMarks)
    assert isinstance(outside.ecn, VirtualQueueMarks)


def test_what_queues_behind_the_switch_hold_is_what_its_entry_says() -> None:
    target = TARGETS["bmv2"]
    assert target.capabilities_of(bmv2(**OK)) == target.capabilities()
    assert target.capabilities_of(bmv2(**OK, depth=5, mtu=9000)).outer_queues == OuterQueues(5, 9014)
    assert TARGETS["softswitch"].capabilities().outer_queues is None


def test_options_of_a_bmv2() -> None:
    full = bmv2(interfaces={"1": "s1-eth1", "12": "veth.3"}, namespace="s1", thrift="[::1]:9090", depth=5, mtu=9000)
    assert [full.interface(port) for port in (1, 12)] == ["s1-eth1", "veth.3"]
    assert (full.namespace, full.thrift, full.depth, full.mtu) == ("s1", Endpoint("::1", 9090), 5, 9000)
    pattern = bmv2(interfaces="s1-eth{port}", namespace="/proc/12/ns/net", thrift="localhost:1")
    assert pattern.interface(31) == "s1-eth31"
    assert (pattern.thrift, pattern.depth, pattern.mtu) == (Endpoint("localhost", 1), 11, 1500)
    assert bmv2(interfaces="e{port}").thrift is None


OK = {"interfaces": "s1-eth{port}"}


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({}, "interfaces: is missing (give the interface of each port: a pattern as s1-eth{port}, or a mapping"),
        ({"interfaces": "s1-eth1"}, "interfaces: 's1-eth1' is not a pattern of interface names (write it as in"),
        ({"interfaces": "{port}{port}"}, "is not a pattern"),
        ({"interfaces": "a b{port}"}, "is not a pattern"),
        ({"interfaces": "-x{port}"}, "is not a pattern"),
        ({"interfaces": "s1-eth{port}; qdisc"}, "is not a pattern"),
        ({"interfaces": "much-too-long-{port}-eth"}, "is not a pattern"),
        ({"interfaces": ["a", "b"]}, "interfaces: ['a', 'b'] is neither a pattern nor a mapping"),
        ({"interfaces": {"one": "a"}}, "interfaces.one: 'one' is not a port number (give 1 to 511, in quotes)"),
        ({"interfaces": {"512": "a"}}, "interfaces.512: '512' is not a port number"),
        ({"interfaces": {"0": "a"}}, "'0' is not a port number"),
        ({"interfaces": {"1": "a\nb"}}, "interfaces.1: 'a\\nb' is not the name of an interface"),
        ({"interfaces": {"1": 3}}, "interfaces.1: 3 is not the name of an interface"),
        ({"interfaces": {"1": "a", "2": "a"}}, "interfaces.2: interface 'a' has a port already"),
        ({"interfaces": {"1": "a"}}, "interfaces: no interface for port 2 of the fabric (add '2': ...)"),
        ({**OK, "thrift": "9090"}, "thrift: '9090' is not an address (write it as in 127.0.0.1:9090)"),
        ({**OK, "thrift": 9090}, "thrift: 9090 is not an address"),
        ({**OK, "thrift": "h:70000"}, "thrift: 'h:70000' is not an address"),
        ({**OK, "thrift": "h:0"}, "is not an address"),
        ({**OK, "namespace": "../x"}, "namespace: '../x' is not a network namespace (give its name, or a path"),
        ({**OK, "namespace": "-a"}, "is not a network namespace"),
        ({**OK, "namespace": 7}, "namespace: 7 is not text"),
        ({**OK, "depth": 0}, "depth: 0 is too small (give 1 or more)"),
        ({**OK, "depth": "3"}, "depth: '3' is not a whole number"),
        ({**OK, "mtu": 67}, "mtu: 67 is too small"),
        ({**OK, "rate": 1}, "rate: unknown key"),
    ],
)
def test_a_faulty_entry_is_refused_in_one_line(entry: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(complaint)) as caught:
        bmv2((1, 2), **entry)
    assert "\n" not in str(caught.value)


def test_a_softswitch_takes_no_options() -> None:
    options = TARGETS["softswitch"].options
    assert parse_document(options, {}, "f") == options()
    with pytest.raises(DocumentError, match="thrift: unknown key"):
        parse_document(options, {"thrift": "h:1"}, "f")


def test_drivers_connect_to_nothing_yet() -> None:
    soft = TARGETS["softswitch"]
    assert soft.queue_driver(soft.options(), Site("s1", {1: 10**7})) is None
    nowhere = bmv2(interfaces="nowhere{port}", namespace="nosuch", thrift="127.0.0.1:1")
    assert isinstance(TARGETS["bmv2"].queue_driver(nowhere, Site("s1", {1: 10**7})), Bmv2Queues)


def test_the_registry_is_light() -> None:
    """`echelon check` reads configurations with it."""
    script = "import sys, echelon.southbound.targets; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {script}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "echelon.southbound.targets" in loaded
    assert not {"finsy", "grpc", "thriftpy2", "networkx", "asyncio"} & set(loaded)
