"""Switches as processes: how they start, die and are reported."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.fabric.builders import one_tor
from echelon.fabric.load import build_fabric
from echelon.hosts import sandbox
from echelon.hosts.backends import switches
from echelon.hosts.backends.switches import LAUNCHERS, Launcher, Place, free_port
from echelon.scenarios.results import RunError
from echelon.southbound.targets import TARGETS
from tests.echelon.hosts.backends.inside import look

needs_sandbox = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))
needs_bmv2 = pytest.mark.skipif(
    shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not installed"
)

OPTIONS = {
    "softswitch": {"target": "softswitch"},
    "bmv2": {"target": "bmv2", "interfaces": {"1": "tor-eth1", "2": "tor-eth2"}, "mtu": 1500, "depth": 11},
}


def test_every_target_that_runs_as_a_process_has_a_launcher() -> None:
    assert LAUNCHERS.keys() == TARGETS.keys()


@needs_sandbox
@pytest.mark.parametrize("target", ["softswitch", pytest.param("bmv2", marks=[pytest.mark.bmv2, needs_bmv2])])
def test_a_switch_lives_as_long_as_it_is_wanted(target: str) -> None:
    seen = look(target, "switch")["switch"]
    problem = seen.pop("problem")
    assert seen == {
        "address": True,
        "target": target,
        "options": OPTIONS[target],
        "nice": -10,
        "files": ["echelon.yaml", "fabric.yaml", "tor.log"],
        "orphan_died": True,
    }
    assert problem.startswith("switch tor: ")
    assert "ended by SIGKILL" in problem
    assert "\n" not in problem


def test_a_switch_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"^switch tor: simple_switch_grpc is not installed \(.*softswitch\)$"):
        LAUNCHERS["bmv2"].launch(build_fabric(one_tor(2)), "tor", {}, tmp_path)


@pytest.mark.parametrize(
    ("target", "queue_bytes", "words"),
    [("softswitch", 100_000, ["--queue-depth", "100000"]), ("softswitch", None, [])],
)
def test_the_depth_of_queues_is_passed_on(target: str, queue_bytes: int | None, words: list[str]) -> None:
    place = Place("s1", 1, {1: "s1-eth1"}, {1: 10**7}, queue_bytes, 9559, 9090)
    launcher = LAUNCHERS[target]
    assert isinstance(launcher, Launcher)
    arguments = list(launcher.arguments(place))
    assert arguments[: arguments.index("--")][-len(words) :] == words or not words
    assert ("--queue-depth" in arguments) == bool(words)


@pytest.mark.parametrize(
    ("mtu", "queue_bytes", "depth"), [(1500, None, 11), (1500, 10_000, 6), (1500, 100, 1), (9000, None, 1)]
)
def test_bmv2_counts_packets(
    mtu: int, queue_bytes: int | None, depth: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wmem_default").write_text("212992\n")
    monkeypatch.setattr(switches, "_SEND_BUFFER", tmp_path / "wmem_default")
    monkeypatch.setattr(switches, "mtu_bytes", lambda _where, _interface: mtu)
    launcher = LAUNCHERS["bmv2"]
    assert isinstance(launcher, Launcher)
    place = Place("s1", 1, {1: "s1-eth1"}, {1: 10**7}, queue_bytes, 9559, 9090)
    assert launcher.options(place)["depth"] == depth
    with pytest.raises(RunError, match=r"^switch s1: queues of 1000000 bytes are more than BMv2 holds here, .*less"):
        launcher.options(replace(place, queue_bytes=1_000_000))


def test_no_port_is_given_twice() -> None:
    ports = [free_port() for _ in range(100)]
    assert len(set(ports)) == len(ports)
