"""Refusals of scenarios that real hosts cannot run, before anything is built."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import parse_document
from echelon.model.errors import Code, RunError
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import with_profile_error
from echelon.model.jobs.spec import JobSpec
from echelon.planning.policies import make_policy
from echelon_lab.hosts import run as hosts_run
from echelon_lab.hosts.serving import document, fabric_document
from echelon_lab.hosts.workers.coordinator import assign, check_senders
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.schedule import DEFAULT_PORT, Schedule, ScheduledFlow
from tests.echelon.lab.hosts.conftest import fig2
from tests.faults import coded
from tests.needs import needs


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(fig2(1)))
    return load_scenario(path)


@pytest.mark.parametrize(
    ("change", "label", "code", "name"),
    [
        (
            lambda s: replace(s, control_latency_s=Fraction(1)),
            "fair",
            "conflicting-key",
            "control_latency: ",
        ),
        (
            lambda s: replace(s, ecn_threshold_packets=8),
            "fair",
            "conflicting-key",
            "ecn_threshold: ",
        ),
        (lambda s: replace(s, specs={}), "fair", "missing-key", "job pipeline"),
        (lambda s: s, "fifo", "unknown-policy", "policy fifo"),
        (lambda s: s, "fair", "run-failed", "sandbox"),
    ],
)
def test_in_one_line(
    scenario: Scenario, change: Callable[[Scenario], Scenario], label: str, code: Code, name: str
) -> None:
    with pytest.raises(RunError, check=coded(code, name)):
        hosts_run.run(
            change(scenario),
            label,
            lambda: make_policy(label),
            lambda job, iteration: None,
            backend="namespaces",
            target="softswitch",
        )


def test_a_target_that_lacks_something_is_refused_before_hosts_are_made(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "thriftpy2", None)
    # Making hosts would be refused, too: this is not in the sandbox.
    names = ("target bmv2", "thriftpy2", "pip install 'echelon-p4[bmv2]'")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        hosts_run.run(
            scenario,
            "fair",
            lambda: make_policy("fair"),
            lambda job, iteration: None,
            backend="namespaces",
            target="bmv2",
        )


def test_cross_traffic_that_nothing_sends(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = TrafficSource("web", Schedule((ScheduledFlow(0, "h1", "h2", 100),), 1))
    monkeypatch.setattr(hosts_run, "entry_points", lambda **_: ())
    names = ("traffic web", "'traffic send'", "echelon-lab", "pip install")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        hosts_run.run(
            replace(scenario, traffic=(traffic,)),
            "fair",
            lambda: make_policy("fair"),
            lambda job, iteration: None,
            backend="namespaces",
            target="softswitch",
        )


@needs("the laboratory's sandbox")
def test_what_lies_in_the_directory_is_no_module_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise RuntimeError('imported by root')\n")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(fig2(1, control_latency="1 ms")))
    command = [
        sys.executable,
        "-Pm",
        "echelon",
        "run",
        "s.yaml",
        "--on",
        "namespaces",
        "--out",
        "out",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    [line] = done.stderr.splitlines()
    assert line.startswith("s.yaml: control_latency: ")


@pytest.mark.parametrize(
    ("recognition", "code", "name"),
    [
        ({"source_port": 5001, "destination_port": 5001}, "duplicate", "5001"),
        (
            {"source_port": 5001, "destination_port": 5002, "protocol": "udp"},
            "not-allowed",
            "UDP",
        ),
    ],
)
def test_senders_that_there_are_not(
    scenario: Scenario, recognition: dict[str, Any], code: Code, name: str
) -> None:
    spec = scenario.specs["pipeline"]
    by_bytes = {**document(spec), "recognition": {"by": "bytes", "idle_gap": "1 s", **recognition}}
    changed = replace(scenario, specs={"pipeline": parse_document(JobSpec, by_bytes, "job")})
    numbers = {"pipeline": (1, {flow.name: n for n, flow in enumerate(scenario.jobs[0].flows)})}
    with pytest.raises(RunError, check=coded(code, "job pipeline", name)):
        assign(changed, numbers, {}, Path("control"))


def test_a_job_on_the_port_of_cross_traffic(scenario: Scenario) -> None:
    by_bytes = {
        "by": "bytes",
        "idle_gap": "1 s",
        "source_port": 5001,
        "destination_port": DEFAULT_PORT,
    }
    document_ = {**document(scenario.specs["pipeline"]), "recognition": by_bytes}
    alone = replace(scenario, specs={"pipeline": parse_document(JobSpec, document_, "job")})
    check_senders(alone)
    traffic = TrafficSource("web", Schedule((ScheduledFlow(0, "h1", "h2", 100),), 1))
    taken = coded("duplicate", "job pipeline", f"{DEFAULT_PORT}")
    with pytest.raises(RunError, check=taken):
        check_senders(replace(alone, traffic=(traffic,)))


def test_the_fabric_that_the_controller_reads_is_the_same(scenario: Scenario) -> None:
    text = yaml.safe_dump(fabric_document(scenario.fabric))
    assert (
        build_fabric(parse_document(FabricSpec, yaml.safe_load(text), "fabric")) == scenario.fabric
    )


JOBS: list[dict[str, Any]] = [
    {
        "parallelism": "pipeline",
        "pipeline": {"micro_batches": 2, "forward": ["1 ms", "3 ms"], "activation": "1 kB"},
    },
    {
        "parallelism": "data",
        "data": {"compute": "7 ms", "gradient": "1 kB"},
        "weight": 2.5,
        "start": "1 s",
    },
    {
        "parallelism": "data",
        "data": {"forward": "7 ms", "backward": "9 ms", "buckets": 3, "gradient": "1 kB"},
    },
    {
        "parallelism": "parameter_server",
        "parameter_server": {
            "server": "h0",
            "compute": "7 ms",
            "gradient": "1 kB",
            "aggregate": "1 ms",
        },
    },
]


@settings(deadline=None)
@given(st.sampled_from(JOBS), st.integers(-99, 1000))
def test_a_believed_job_is_what_its_graph_would_be(sections: dict[str, Any], percent: int) -> None:
    """The job is the same through the document that the controller is sent."""
    spec = parse_document(JobSpec, {"job": "j", "workers": ["h1", "h2"], **sections}, "job")
    error = Fraction(percent, 100)
    expected = with_profile_error(build_job(spec), error)
    assert build_job(spec.with_profile_error(error)) == expected
    assert (
        build_job(parse_document(JobSpec, document(spec.with_profile_error(error)), "job"))
        == expected
    )
