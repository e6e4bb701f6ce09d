"""One short run with everything in it that a scenario can ask of real hosts."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from echelon_lab.plots.measured import load_whole
from echelon_lab.scenarios.results import rounded
from echelon_lab.scenarios.scenario import load_scenario
from tests.echelon.lab.hosts.conftest import Start

SCENARIO: dict[str, Any] = {
    "scenario": "everything",
    "fabric": {
        "fabric": "dumbbell",
        "hosts": ["h1", "h2", "h3", "h4"],
        "switches": ["s1", "s2"],
        "links": [
            {"between": ["s1", "s2"], "rate": "20 Mbit/s"},
            *({"between": [host, switch], "rate": "100 Mbit/s"}
              for host, switch in (("h1", "s1"), ("h2", "s1"), ("h3", "s2"), ("h4", "s2"))),
        ],
    },
    "jobs": [
        {
            "job": "shim",
            "parallelism": "pipeline",
            "workers": ["h1", "h3"],
            "pipeline": {"micro_batches": 2, "forward": "40 ms", "backward": "40 ms", "activation": "50 kB"},
        },
        {
            "job": "tcp",
            "parallelism": "data",
            "workers": ["h2", "h4", "h1"],
            "data": {"compute": "50 ms", "gradient": "90 kB"},
            "recognition": {"by": "bytes", "source_port": 5001, "destination_port": 5002, "idle_gap": "20 ms"},
        },
    ],
    "iterations": 3,
    "background": [{"name": "steady", "src": "h1", "dst": "h4", "rate": "1 Mbit/s", "packet": "500 B"}],
    "traffic": [
        {"name": "web", "model": "consistent", "src": "h2", "dst": ["h3", "h4"], "load": "2 Mbit/s",
         "size_scale": 0.001, "ecn": True},
    ],
    "delays": [{"job": "shim", "worker": "h1", "iteration": 2, "delay": "100 ms"}],
    "profile_error": 0.2,
    "stop_controller_after_iteration": 2,
    "policies": ["echelon"],
}  # fmt: skip


def interfaces() -> set[str]:
    return {
        line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]
    }


def named_namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout


def what_is_outside() -> tuple[set[str], str, set[str]]:
    return interfaces(), named_namespaces(), {entry.name for entry in Path("/run").iterdir()}


@pytest.mark.xdist_group("hosts")
def test_everything_at_once(start: Start, tmp_path: Path) -> None:
    before = what_is_outside()
    run = start(SCENARIO, "echelon")
    run.wait_line("standing")
    assert len(run.marked()) >= 8, (
        "a controller, two switches, four workers, two receivers of traffic and who starts them"
    )
    document = run.document()
    assert run.marked() == []
    assert what_is_outside() == before
    assert list(run.temporary.iterdir()) == []

    scenario = load_scenario(_written(tmp_path))
    measured = document["results"]["results"]["echelon"]
    for job in scenario.jobs:
        of_job = measured["jobs"][job.name]
        iterations = len(of_job["iteration_times_s"])
        assert iterations >= 3
        assert len(of_job["flows"]) == iterations * len(job.flows)
        seen = {(flow["iteration"], flow["name"]): flow for flow in of_job["flows"]}
        for flow in job.flows:
            for iteration in range(1, iterations + 1):
                one = seen[iteration, flow.name]
                assert (one["src"], one["dst"], one["bytes"]) == (
                    flow.src,
                    flow.dst,
                    flow.size_bytes,
                )
                assert one["start_s"] < one["finish_s"]
                for other in flow.after:
                    if (iteration, other) in seen:
                        assert seen[iteration, other]["finish_s"] < one["start_s"]
        # No network is faster than none, and no processor than the wait that stands for it.
        assert min(of_job["iteration_times_s"]) > of_job["alone_iteration_s"] * 0.99
    delayed = measured["jobs"]["shim"]["iteration_times_s"][1]
    assert (
        delayed
        > rounded(scenario.delays[0].delay_s) + measured["jobs"]["shim"]["alone_iteration_s"] * 0.99
    )
    for name, content in (("results", document["results"]), ("network", document["network"])):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    # Both jobs together use both directions of every link.
    carried_bytes: Counter[tuple[str, str]] = Counter()
    whole = load_whole(tmp_path)
    end_s = 0.0
    for job in scenario.jobs:
        for flow in measured["jobs"][job.name]["flows"]:
            end_s = max(end_s, flow["finish_s"])
            for link in whole.links("echelon", job.name, flow["name"]):
                carried_bytes[link] += flow["bytes"]
    rates_bps = scenario.fabric.rate_bps
    assert rates_bps.keys() == carried_bytes.keys()
    for link, size_bytes in carried_bytes.items():
        assert 0 < size_bytes * 8 <= rates_bps[link] * end_s
    for switch in measured["switches"].values():
        assert switch["packets_in"] == switch["packets_out"] + switch["packets_dropped"] > 0
        assert switch["entries"] > 0
        assert switch["digests"] > 0
    web = measured["traffic"]["web"]
    assert web["flows"] > 0
    assert web["failed"] == 0
    assert web["achieved_bps"] > 0


def _written(directory: Path) -> Path:
    path = directory / "again.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    return path
