"""The registry of targets, what each target brings, and what a switch's entry may say for each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest

from echelon.model.documents import DocumentError, parse_document
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
    ("entry", "complaint"),
    [
        (
            {},
            (
                "interfaces: is missing (give the interface of each port: a pattern such as"
                " s1-eth{port}, or a mapping"
            ),
        ),
        (
            {"interfaces": "s1-eth1"},
            "interfaces: 's1-eth1' is not a pattern of interface names (write it as in",
        ),
        ({"interfaces": "{port}{port}"}, "is not a pattern"),
        ({"interfaces": "a b{port}"}, "is not a pattern"),
        ({"interfaces": "-x{port}"}, "is not a pattern"),
        ({"interfaces": "s1-eth{port}; qdisc"}, "is not a pattern"),
        ({"interfaces": "much-too-long-{port}-eth"}, "is not a pattern"),
        ({"interfaces": ["a", "b"]}, "interfaces: ['a', 'b'] is neither a pattern nor a mapping"),
        (
            {"interfaces": {"one": "a"}},
            "interfaces.one: 'one' is not a port number (give 1 to 511, in quotes)",
        ),
        ({"interfaces": {"512": "a"}}, "interfaces.512: '512' is not a port number"),
        ({"interfaces": {"0": "a"}}, "'0' is not a port number"),
        ({"interfaces": {"1": "a\nb"}}, "interfaces.1: 'a\\nb' is not the name of an interface"),
        ({"interfaces": {"1": 3}}, "interfaces.1: 3 is not the name of an interface"),
        ({"interfaces": {"1": "a", "2": "a"}}, "interfaces.2: interface 'a' has a port already"),
        (
            {"interfaces": {"1": "a"}},
            "interfaces: no interface for port 2 of the fabric (add '2': ...)",
        ),
        (
            {**OK, "thrift": "9090"},
            "thrift: '9090' is not an address (write it as in 127.0.0.1:9090)",
        ),
        ({**OK, "thrift": 9090}, "thrift: 9090 is not an address"),
        ({**OK, "thrift": "h:70000"}, "thrift: 'h:70000' is not an address"),
        ({**OK, "thrift": "h:0"}, "is not an address"),
        (
            {**OK, "namespace": "../x"},
            "namespace: '../x' is not a network namespace (give its name, or a path",
        ),
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


def test_a_softswitch_takes_no_option_but_its_program() -> None:
    options = TARGETS["softswitch"].options
    assert TARGETS["softswitch"].capabilities(options()).trees is None
    assert TARGETS["softswitch"].program(options()) == TARGETS["softswitch"].program()
    assert parse_document(options, {"program": "ranking"}, "f") == options()
    assert parse_document(options, {}, "f") == options()
    with pytest.raises(DocumentError, match="program: unknown program 'x'"):
        parse_document(options, {"program": "x"}, "f")
    with pytest.raises(DocumentError, match="thrift: unknown key"):
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
    with pytest.raises(
        DocumentError, match=r"unknown target 'bmv3' \(did you mean 'bmv2'\?\)"
    ) as caught:
        find_target("bmv3", "echelon.yaml", "switches.s1.target")
    where = (caught.value.file, caught.value.path, caught.value.code)
    assert where == ("echelon.yaml", "switches.s1.target", "unknown-target")
    with pytest.raises(DocumentError, match="own targets are not registered"):
        find_target("softswitch", "--target", targets={})


def registry_of(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> Registry:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: entries if group == GROUP else ()
    )
    return Registry()


def test_a_name_that_two_distributions_register(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (EntryPoint("stub", value, GROUP) for value in ("one:Stub", "other:Stub"))
    with pytest.raises(
        DocumentError, match="two distributions register it: one:Stub and other:Stub"
    ):
        list(registry_of(monkeypatch, *entries))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (
            "no_such_package:Stub",
            "no_such_package:Stub cannot be imported: No module named 'no_such_package'",
        ),
        ("echelon.planning.plan:Plan", "echelon.planning.plan:Plan is not a Target of that name"),
        ("echelon.switches.targets.softswitch:Softswitch", "is not a Target of that name"),
    ],
)
def test_a_distribution_that_registers_something_else(
    value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = EntryPoint("stub", value, GROUP)
    targets = registry_of(monkeypatch, stub)
    assert list(targets) == ["stub"]
    with pytest.raises(DocumentError, match=re.escape(complaint)) as caught:
        targets["stub"]
    assert str(caught.value).startswith("target stub: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere:PROGRAM", "nowhere:PROGRAM cannot be imported"),
        ("pathlib:Path", "pathlib:Path is not a SwitchProgram"),
    ],
)
def test_a_program_that_is_none_is_refused_in_one_line(
    value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("stub", value, programs.GROUP)
    monkeypatch.setattr(programs, "_entries", lambda: {"stub": entry})
    options = TARGETS["softswitch"].options(program="stub")
    with pytest.raises(DocumentError, match=said) as caught:
        TARGETS["softswitch"].capabilities(options)
    assert str(caught.value).startswith("program stub: ")
    assert "\n" not in str(caught.value)
