"""Switches as processes: how they start, die and are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.errors import RunError
from echelon.switches.processes import free_port
from echelon.switches.targets import TARGETS, bmv2
from echelon.switches.targets.bmv2 import Bmv2Launcher
from echelon.switches.targets.launching import Place, Ports, accepts
from echelon.switches.targets.softswitch import SoftswitchLauncher
from echelon.switches.targets.target import Site
from tests.echelon.lab.hosts.backends.inside import look
from tests.faults import coded
from tests.needs import needs

OPTIONS: dict[str, dict[str, Any]] = {
    "softswitch": {"target": "softswitch"},
    "bmv2": {
        "target": "bmv2",
        "interfaces": {"1": "tor-eth1", "2": "tor-eth2"},
        "mtu": 1500,
        "depth": 692,
        # The kernel charges 2304 bytes for a frame of 1514.
        "send_buffer": 8 * 692 * 2304,
    },
}


@needs("the laboratory's sandbox")
@pytest.mark.parametrize(
    "target",
    ["softswitch", pytest.param("bmv2", marks=[pytest.mark.bmv2, needs("bmv2")])],
)
def test_a_switch_lives_as_long_as_it_is_wanted(target: str) -> None:
    seen = look(target, "switch")["switch"]
    buffers = set(seen.pop("send_buffers"))
    assert target != "bmv2" or buffers == {OPTIONS["bmv2"]["send_buffer"]}
    problem = seen.pop("problem")
    assert seen == {
        "address": True,
        "target": target,
        "options": OPTIONS[target],
        "nice": max(-20, os.getpriority(os.PRIO_PROCESS, 0) - 10),
        "files": ["echelon.yaml", "fabric.yaml", "tor.log"],
        "orphan_died": True,
    }
    assert problem.startswith("switch tor: ")
    assert "ended by SIGKILL" in problem
    assert "\n" not in problem


PLACE = Place("s1", 1, {1: "s1-eth1"}, {1: 10**7})
PORTS = Ports(9559, 9090)


def test_a_switch_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher = TARGETS["bmv2"].launcher()
    assert launcher is not None
    names = ("target bmv2", "simple_switch_grpc", "softswitch")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        launcher.launch(PLACE, tmp_path)


def test_bmv2_without_what_speaks_with_it_is_refused_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "thriftpy2", None)
    needed = ("thriftpy2", "pip install 'echelon-p4[bmv2]'")
    with pytest.raises(RunError, check=coded("run-failed", "target bmv2", *needed)):
        Bmv2Launcher().find()
    target, site = TARGETS["bmv2"], Site("s1", {1: 10**7})
    options = target.options.model_validate(
        {"interfaces": "s1-eth{port}", "thrift": "127.0.0.1:9090"}
    )
    faulty = coded("invalid-value", *needed, file="switch s1", path="thrift")
    with pytest.raises(DocumentError, check=faulty):
        target.queue_driver(options, site)


def test_a_bmv2_that_was_built_without_thrift_is_refused_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """BMv2's own warning (`switch_runner.cpp`) is in such an executable, and in no other one."""
    command = tmp_path / "simple_switch_grpc"
    command.write_text("this target was compiled without Thrift support. You can enable it")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, check=coded("run-failed", "target bmv2", "--with-thrift")):
        Bmv2Launcher().find()


@needs("bmv2")
@pytest.mark.bmv2
def test_a_bmv2_that_was_built_with_thrift_is_taken() -> None:
    assert Path(Bmv2Launcher().find()).name == "simple_switch_grpc"


def test_the_depth_of_queues_is_passed_on() -> None:
    launcher = SoftswitchLauncher()
    rates = ["--port-rate", "1=10000000"]
    assert launcher.arguments(PLACE, PORTS) == rates
    assert launcher.arguments(replace(PLACE, queue_bytes=100_000), PORTS) == [
        *rates,
        "--queue-depth",
        "100000",
    ]


@pytest.mark.parametrize(
    ("mtu", "queue_bytes", "depth"),
    [(1500, None, 692), (1500, 10_000, 6), (1500, 100, 1), (9000, None, 116)],
)
def test_bmv2_counts_packets(
    mtu: int, queue_bytes: int | None, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmv2, "mtu_bytes", lambda _interface: mtu)
    launcher = Bmv2Launcher()
    assert launcher.entry(replace(PLACE, queue_bytes=queue_bytes), PORTS)["depth"] == depth
    with pytest.raises(RunError, check=coded("run-failed", "switch s1", "100000000")):
        launcher.entry(replace(PLACE, queue_bytes=100_000_000), PORTS)


HELP = {
    "with nanomsg": (
        "  --thrift-port arg\n  --notifications-addr arg  Specify the nanomsg address\n"
    ),
    "without": "  --thrift-port arg\n  --device-id arg\n",
}


@pytest.mark.parametrize("built", HELP)
def test_bmv2_is_given_only_the_options_that_it_takes(
    built: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """BMv2 ends with its help text when it does not know an option. An executable is asked once."""
    asked = tmp_path / "asked"
    command = tmp_path / "simple_switch_grpc"
    command.write_text(f"#!/bin/sh\necho asked >> {asked}\ncat <<'END'\n{HELP[built]}END\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    own = Bmv2Launcher().arguments(PLACE, PORTS)
    assert own[:2] == ["--thrift-port", "9090"]
    assert ("--notifications-addr" in own) == (built == "with nanomsg")
    Bmv2Launcher().arguments(PLACE, PORTS)
    assert asked.read_text() == "asked\n"


def test_the_embedded_switch_says_what_it_takes() -> None:
    command = SoftswitchLauncher().find()
    assert accepts(command, "--port-rate")
    assert not accepts(command, "--port")
    assert (
        "--port-rate"
        in subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    )


def test_no_port_is_given_twice() -> None:
    ports = [free_port() for _ in range(100)]
    assert len(set(ports)) == len(ports)
