"""The registry of targets, what each target brings, and what a switch's entry may say for each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest

from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import Code
from echelon.model.p4program import constants
from echelon.planning.plan import LEVELS
from echelon.switches.lowering.capabilities import (
    OuterQueues,
    QueueDepthMarks,
    VirtualQueueMarks,
)
from echelon.switches.targets import (
    DEFAULT_TARGET,
    TARGETS,
    UNRANKED_TARGET,
    Site,
    find_target,
    programs,
)
from echelon.switches.targets.bmv2.options import Bmv2Options, ServerAddress
from echelon.switches.targets.bmv2.queues import Bmv2Queues
from echelon.switches.targets.softswitch import SoftswitchOptions
from echelon.switches.targets.softswitch.queues import GnmiQueues
from echelon.switches.targets.target import GROUP, Registry
from tests.faults import coded
from tests.shared import refused


def bmv2(ports: tuple[int, ...] = (), **entry: object) -> Bmv2Options:
    return parse_document(Bmv2Options, entry, "echelon.yaml", {"ports": ports})


SOFT = SoftswitchOptions()


def test_what_every_target_brings() -> None:
    assert DEFAULT_TARGET in TARGETS
    numbers = constants()
    for name, options in (("softswitch", SOFT), ("bmv2", bmv2(**OK))):
        target = TARGETS[name]
        capabilities = target.capabilities(options)
        assert target.name == capabilities.target == name
        assert (capabilities.queues, capabilities.levels) == (LEVELS, LEVELS)
        assert 1 << capabilities.units.key_bits == 2 * numbers["SLACK_BIAS"]
        assert (1 << capabilities.units.offset_bits) - 1 == numbers["SLACK_MAX"]
        assert target.program().p4info.is_file()
        assert target.launcher() is not None


def test_a_switch_of_fixed_function_has_queues_and_routes_only() -> None:
    target = TARGETS[UNRANKED_TARGET]
    able = target.capabilities(target.options())
    assert (target.name, able.target, target.ranks, able.ranks) == ("dscp", "dscp", False, False)
    assert (able.queues, able.levels, able.weights, able.rates, able.trees) == (
        LEVELS,
        LEVELS,
        False,
        False,
        None,
    )
    assert able.units == TARGETS["softswitch"].capabilities(SOFT).units, (
        "hosts compute in the same units"
    )
    tables = set(
        re.findall(r'alias: "(\w+)"', target.program().p4info.read_text().split("actions {")[0])
    )
    assert tables == {"ipv4_lpm", "station", "ecn_threshold"}
    assert target.aggregating() is None
    assert target.launcher() is not None
    assert target.limits


def test_where_the_queue_is_outside_the_switch_ecn_cannot_go_by_its_depth() -> None:
    inside, outside = (
        TARGETS["softswitch"].capabilities(SOFT),
        TARGETS["bmv2"].capabilities(bmv2(**OK)),
    )
    assert isinstance(inside.ecn, QueueDepthMarks)
    assert isinstance(outside.ecn, VirtualQueueMarks)


def test_what_queues_behind_the_switch_hold_is_what_its_entry_says() -> None:
    target = TARGETS["bmv2"]
    assert target.capabilities(bmv2(**OK)).outer_queues == OuterQueues(11, 1514)
    assert target.capabilities(bmv2(**OK, depth=5, mtu=9000)).outer_queues == OuterQueues(5, 9014)
    assert TARGETS["softswitch"].capabilities(SOFT).outer_queues is None


def test_options_of_a_bmv2() -> None:
    full = bmv2(
        interfaces={"1": "s1-eth1", "12": "veth.3"},
        namespace="s1",
        thrift="[::1]:9090",
        depth=5,
        mtu=9000,
    )
    assert [full.interface(port) for port in (1, 12)] == ["s1-eth1", "veth.3"]
    assert (full.namespace, full.thrift, full.depth, full.mtu) == (
        "s1",
        ServerAddress("::1", 9090),
        5,
        9000,
    )
    pattern = bmv2(interfaces="s1-eth{port}", namespace="/proc/12/ns/net", thrift="localhost:1")
    assert pattern.interface(31) == "s1-eth31"
    assert (pattern.thrift, pattern.depth, pattern.mtu) == (ServerAddress("localhost", 1), 11, 1500)
    assert bmv2(interfaces="e{port}").thrift is None


OK = {"interfaces": "s1-eth{port}"}


@pytest.mark.parametrize(
    ("entry", "code", "path", "names"),
    [
        ({}, "missing-key", "interfaces", ["s1-eth{port}"]),
        ({"interfaces": "s1-eth1"}, "invalid-value", "interfaces", ["'s1-eth1'"]),
        ({"interfaces": "{port}{port}"}, "invalid-value", "interfaces", ["'{port}{port}'"]),
        ({"interfaces": "a b{port}"}, "invalid-value", "interfaces", ["'a b{port}'"]),
        ({"interfaces": "-x{port}"}, "invalid-value", "interfaces", ["'-x{port}'"]),
        ({"interfaces": "s1-{port}; qdisc"}, "invalid-value", "interfaces", ["'s1-{port}; qdisc'"]),
        ({"interfaces": "much-too-long-{port}-eth"}, "invalid-value", "interfaces", ["much-too-"]),
        ({"interfaces": ["a", "b"]}, "not-a-mapping", "interfaces", ["['a', 'b']"]),
        ({"interfaces": {"one": "a"}}, "invalid-value", "interfaces.one", ["'one'", "511"]),
        ({"interfaces": {"512": "a"}}, "invalid-value", "interfaces.512", ["'512'", "511"]),
        ({"interfaces": {"0": "a"}}, "invalid-value", "interfaces.0", ["'0'", "511"]),
        ({"interfaces": {"1": "a\nb"}}, "not-a-name", "interfaces.1", ["'a\\nb'"]),
        ({"interfaces": {"1": 3}}, "not-a-name", "interfaces.1", [": 3 "]),
        ({"interfaces": {"1": "a", "2": "a"}}, "duplicate", "interfaces.2", ["'a'"]),
        ({"interfaces": {"1": "a"}}, "missing-key", "interfaces", ["port 2", "'2'"]),
        ({**OK, "thrift": "9090"}, "not-an-address", "thrift", ["'9090'", "127.0.0.1:9090"]),
        ({**OK, "thrift": 9090}, "not-an-address", "thrift", [": 9090 "]),
        ({**OK, "thrift": "h:70000"}, "not-an-address", "thrift", ["'h:70000'"]),
        ({**OK, "thrift": "h:0"}, "not-an-address", "thrift", ["'h:0'"]),
        ({**OK, "namespace": "../x"}, "invalid-value", "namespace", ["'../x'"]),
        ({**OK, "namespace": "-a"}, "invalid-value", "namespace", ["'-a'"]),
        ({**OK, "namespace": 7}, "not-text", "namespace", [": 7 "]),
        ({**OK, "depth": 0}, "too-small", "depth", [": 0 ", "1"]),
        ({**OK, "depth": "3"}, "not-a-number", "depth", ["'3'"]),
        ({**OK, "mtu": 67}, "too-small", "mtu", [": 67 ", "68"]),
        ({**OK, "rate": 1}, "unknown-key", "rate", ["interfaces", "mtu"]),
    ],
)
def test_a_faulty_entry_is_refused_in_one_line(
    entry: Mapping[str, object], code: Code, path: str, names: list[str]
) -> None:
    with pytest.raises(DocumentError, check=coded(code, *names, path=path)):
        bmv2((1, 2), **entry)


def test_a_softswitch_takes_no_option_but_its_program() -> None:
    options = TARGETS["softswitch"].options
    assert TARGETS["softswitch"].capabilities(options()).trees is None
    assert TARGETS["softswitch"].program(options()) == TARGETS["softswitch"].program()
    assert parse_document(options, {"program": "ranking"}, "f") == options()
    assert parse_document(options, {}, "f") == options()
    with pytest.raises(DocumentError, check=coded("invalid-value", "'x'", path="program")):
        parse_document(options, {"program": "x"}, "f")
    with refused("unknown-key", "thrift", DocumentError):
        parse_document(options, {"thrift": "h:1"}, "f")


def test_drivers_connect_to_nothing_yet() -> None:
    site = Site("s1", {1: 10**7})
    assert isinstance(TARGETS["softswitch"].queue_driver(SOFT, site), GnmiQueues)
    nowhere = bmv2(interfaces="nowhere{port}", namespace="nosuch", thrift="127.0.0.1:1")
    assert isinstance(TARGETS["bmv2"].queue_driver(nowhere, site), Bmv2Queues)


def test_listing_names_imports_no_target() -> None:
    """The command line shows the names in its help texts."""
    loaded = _modules_after(
        "from echelon.switches.targets import TARGETS, programs; assert len(TARGETS) >= 2"
    )
    assert "echelon.switches.targets.target" in loaded
    assert not {"echelon.switches.targets.softswitch", "echelon.switches.targets.bmv2"} & loaded


def test_a_target_is_light() -> None:
    """`echelon check` reads configurations with the options of their targets."""
    loaded = _modules_after(
        "from echelon.switches.targets import TARGETS; [TARGETS[n].options for n in TARGETS]"
    )
    assert {"echelon.switches.targets.softswitch", "echelon.switches.targets.bmv2"} <= loaded
    assert not {"finsy", "grpc", "thriftpy2", "networkx", "pyroute2", "softswitch"} & loaded


def _modules_after(script: str) -> set[str]:
    command = f"import sys; sys.path[:0] = {sys.path!r}; {script}; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    place = {"file": "echelon.yaml", "path": "switches.s1.target"}
    unknown = coded("unknown-target", "'bmv3'", "'bmv2'", **place)
    with pytest.raises(DocumentError, check=unknown):
        find_target("bmv3", "echelon.yaml", "switches.s1.target")
    # The mistake is not in the name, but in how the package was installed.
    unregistered = coded("invalid-value", "pip install", file="--target", path="")
    with pytest.raises(DocumentError, check=unregistered):
        find_target("softswitch", "--target", targets={})


def registry_of(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> Registry:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: entries if group == GROUP else ()
    )
    return Registry()


def test_a_name_that_two_distributions_register(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (EntryPoint("stub", value, GROUP) for value in ("one:Stub", "other:Stub"))
    both = coded("invalid-value", "one:Stub", "other:Stub", file="target stub")
    with pytest.raises(DocumentError, check=both):
        list(registry_of(monkeypatch, *entries))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("no_such_package:Stub", "'no_such_package'"),
        ("echelon.planning.plan:Plan", "echelon.switches.targets.Target"),
        ("echelon.switches.targets.softswitch:Softswitch", "echelon.switches.targets.Target"),
    ],
)
def test_a_distribution_that_registers_something_else(
    value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = EntryPoint("stub", value, GROUP)
    targets = registry_of(monkeypatch, stub)
    assert list(targets) == ["stub"]
    other = coded("invalid-value", f"{value} ", name, file="target stub", path="")
    with pytest.raises(DocumentError, check=other):
        targets["stub"]


@pytest.mark.parametrize(
    ("value", "name"),
    [("nowhere:PROGRAM", "'nowhere'"), ("pathlib:Path", "SwitchProgram")],
)
def test_a_program_that_is_none_is_refused_in_one_line(
    value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("stub", value, programs.GROUP)
    monkeypatch.setattr(programs, "_entries", lambda: {"stub": entry})
    options = TARGETS["softswitch"].options(program="stub")
    other = coded("invalid-value", f"{value} ", name, file="program stub", path="")
    with pytest.raises(DocumentError, check=other):
        TARGETS["softswitch"].capabilities(options)
