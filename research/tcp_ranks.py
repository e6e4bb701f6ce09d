"""Mechanisms that let unmodified TCP follow its rank, beside the shim.

They are compared on pairs of pipelines with one bottleneck.
Two equal jobs each have 300 ms to send over the bottleneck, and compute for as long or half as
long, in one to eight micro-batches. `python -m research.tcp_ranks` runs all cases in virtual time
(four minutes of one processor) and prints the mean iteration over that of the same jobs over the
shim; with the number of a column, for that column. With `--on namespaces` it runs the shim,
`echelon` and the pause `--runs` times each with the kernel's TCP (root; two minutes a column and
run).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from unittest.mock import patch

import yaml

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.execution import duration_s
from echelon.planning.plan import CONTROL_QUEUE, Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import Policy
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.lowering.capabilities import Capabilities, OuterQueues
from echelon.switches.targets.softswitch import Softswitch, SoftswitchOptions
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.virtual import run as virtual_run
from research.measure import scenario_of

HOSTS = ["h1", "h2", "h3", "h4"]
SENDING_US = 300_000
BYTES = 375_000
"""The bytes that take that long at the bottleneck's 10 Mbit/s."""
ITERATIONS = 20
SKIPPED = 4
PATIENCE_S = 300.0
SMALL = {"receive_window": "20 kB"}
"""The window that the shim has: 16 packets."""


@dataclass(frozen=True)
class Pair:
    """Two pipelines, the second of which begins later."""

    micro_batches: int
    backward: bool
    ratio: float
    """Communication over computation."""
    later: str = "40 ms"

    def __str__(self) -> str:
        passes = "forward, backward" if self.backward else "forward"
        return f"{self.micro_batches} × {passes}, {self.ratio:g}:1"

    def scenario(
        self,
        recognition: Mapping[str, object] | None,
        transport: Mapping[str, object],
    ) -> dict[str, object]:
        """Return the scenario file of the pair."""
        unit_us = round(SENDING_US / self.micro_batches / self.ratio)
        section: dict[str, object] = {
            "micro_batches": self.micro_batches,
            "forward": f"{unit_us} us",
            "activation": f"{BYTES // self.micro_batches} B",
        }
        if self.backward:
            section["backward"] = section["forward"]
        if recognition is None:
            recognised: dict[str, object] = {"by": "shim"}
        else:
            recognised = {
                "by": "bytes",
                "source_port": 5001,
                "destination_port": 5002,
                "idle_gap": f"{unit_us * 3 // 2} us",
                **recognition,
            }
        common = {"parallelism": "pipeline", "pipeline": section, "recognition": recognised}
        jobs = [
            {"job": "a", "workers": ["h1", "h3"], "start": "0 s", **common},
            {"job": "b", "workers": ["h2", "h4"], "start": self.later, **common},
        ]
        links = [{"between": ["s1", "s2"], "rate": "10 Mbit/s"}]
        for host, switch in zip(HOSTS, ["s1", "s1", "s2", "s2"], strict=True):
            links.append({"between": [host, switch], "rate": "100 Mbit/s"})
        fabric = {"fabric": "pair", "hosts": HOSTS, "switches": ["s1", "s2"], "links": links}
        return {
            "scenario": "tcp_ranks",
            "fabric": fabric,
            "jobs": jobs,
            "transport": {"window": 16, **transport},
            "iterations": ITERATIONS,
            "policies": ["echelon"],
        }


PAIRS = [
    Pair(1, backward=False, ratio=1),
    Pair(2, backward=False, ratio=2),
    Pair(4, backward=False, ratio=1),
    Pair(4, backward=True, ratio=2),
    Pair(8, backward=True, ratio=1),
]


class AcknowledgementsApart(Echelon):
    """Echelon with one level less for jobs, so that acknowledgements have theirs for themselves."""

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return the plan with every flow a level lower."""
        plan = super().plan(jobs, fabric, paths)
        flows = {}
        for job, planned in plan.by_job.items():
            lowered = []
            for flow in planned:
                ranking = flow.ranking
                assert isinstance(ranking, Deadline)
                below = replace(ranking, lowest=ranking.lowest - 1, highest=CONTROL_QUEUE - 1)
                lowered.append(replace(flow, ranking=below))
            flows[job] = tuple(lowered)
        return Plan.of_jobs(
            plan.policy,
            flows,
            default_schedule=plan.default_schedule,
            hosts_rank=True,
        )


class HoldTimes(Softswitch):
    """A softswitch whose controller takes its queues for queues behind it: flows change them after
    the hold time.
    """

    def capabilities(self, options: SoftswitchOptions) -> Capabilities:
        """Return the capabilities with queues of twenty packets."""
        outer = OuterQueues(depth_packets=20, frame_bytes=1250)
        return replace(super().capabilities(options), outer_queues=outer)


def held() -> AbstractContextManager[object]:
    """Return the context in which switches have hold times."""
    return patch.object(virtual_run, "TARGETS", {"softswitch": HoldTimes()})


def echelon() -> Policy:
    # The plan that was measured. A search finds others that are as good for the shim, but not for TCP.
    return make_policy("echelon", shifts="cassini")


def fair() -> Policy:
    return make_policy("fair")


@dataclass(frozen=True)
class Mechanism:
    """One way of sending over TCP."""

    name: str
    policy: Callable[[], Policy] = echelon
    recognition: Mapping[str, object] = field(default_factory=dict)
    transport: Mapping[str, object] = field(default_factory=dict)
    switches: Callable[[], AbstractContextManager[object]] = nullcontext


PAUSE = {"pause": True}
MECHANISMS = [
    Mechanism("`fair`", fair),
    Mechanism("`echelon`"),
    Mechanism("a level for acknowledgements", AcknowledgementsApart),
    Mechanism("hold times at the borders of flows", switches=held),
    Mechanism("ECN", transport={"ecn": True}),
    Mechanism("pacing at the bottleneck's rate", transport={"host_rate": "10 Mbit/s"}),
    Mechanism("pacing at half of it", transport={"host_rate": "5 Mbit/s"}),
    Mechanism("window of 20 kB", transport=SMALL),
    Mechanism("pause", recognition=PAUSE),
    Mechanism("pause, and a level for acknowledgements", AcknowledgementsApart, PAUSE),
    Mechanism(
        "window of 64 kB, pause",
        recognition=PAUSE,
        transport={"receive_window": "64 kB"},
    ),
    Mechanism(
        "window of 20 kB, pause",
        recognition=PAUSE,
        transport=SMALL,
    ),
    Mechanism("the same, and a level for acknowledgements", AcknowledgementsApart, PAUSE, SMALL),
    Mechanism(
        "the same, hold times instead",
        recognition=PAUSE,
        transport=SMALL,
        switches=held,
    ),
]


def run_of(pair: Pair, mechanism: Mechanism | None) -> PolicyRun:
    """Return the run of a pair over TCP, or over the shim."""
    if mechanism is None:
        chosen = Mechanism("shim")
        recognition = None
    else:
        chosen = mechanism
        recognition = chosen.recognition
    document = pair.scenario(recognition, chosen.transport)
    scenario = scenario_of(document, "tcp_ranks")
    with chosen.switches():
        return virtual_run.run(scenario, chosen.name, chosen.policy, unseen)


def unseen(_job: str, _iteration: int) -> None:
    """Show no progress."""


def iteration_s(run: PolicyRun) -> float:
    """Return the mean iteration time of both jobs after they have found each other, in seconds."""
    times_s: list[float] = []
    for record in run.records.values():
        counted = record.finished[SKIPPED:]
        times_s += (float(duration_s(iteration)) for iteration in counted)
    return mean(times_s)


def on_real_hosts(
    pair: Pair,
    mechanism: Mechanism | None,
    target: str,
) -> float:
    """Return the mean iteration time on namespaces, in seconds."""
    if mechanism is None:
        document = pair.scenario(None, {})
    else:
        document = pair.scenario(mechanism.recognition, mechanism.transport)
    document["iterations"] = ITERATIONS - SKIPPED
    counted_s: list[float] = []
    for times_s in iterations_s(document, target):
        counted_s += times_s[SKIPPED:]
    return mean(counted_s)


def iterations_s(document: Mapping[str, object], target: str) -> list[list[float]]:
    """Run a scenario with one policy on namespaces, and return the times of the iterations of each
    job, in seconds.

    Raises `subprocess.SubprocessError` if it fails or takes minutes.
    """
    with TemporaryDirectory() as directory:
        file = Path(directory, "pair.yaml")
        out = Path(directory, "out")
        file.write_text(yaml.safe_dump(dict(document)), encoding="utf-8")
        command = [
            "echelon",
            "run",
            str(file),
            "--on",
            "namespaces",
            "--target",
            target,
            "--out",
            str(out),
        ]
        subprocess.run(
            [sys.executable, "-m", *command],
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        document_of_results = json.loads((out / "results.json").read_text())
    [results] = document_of_results["results"].values()
    return [job["iteration_times_s"] for job in results["jobs"].values()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "columns",
        nargs="*",
        type=int,
    )
    parser.add_argument("--on", choices=["namespaces"])
    parser.add_argument("--target", default="softswitch")
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
    )
    arguments = parser.parse_args()
    pairs = [PAIRS[column] for column in arguments.columns] or PAIRS
    if arguments.on:
        names = ("`echelon`", "pause", "window of 20 kB, pause")
        chosen: list[Mechanism | None] = [None]
        chosen += (mechanism for mechanism in MECHANISMS if mechanism.name in names)
        print(f"| | over the shim | {' | '.join(names)} |\n|---|{'---|' * len(chosen)}")
        for pair in pairs:
            rounds = []
            for _ in range(arguments.runs):
                times_s = [on_real_hosts(pair, each, arguments.target) for each in chosen]
                rounds.append(times_s)
            shim_s, *mechanisms_s = map(mean, zip(*rounds, strict=True))
            ratios = [f"{time_s / shim_s:.3f}" for time_s in mechanisms_s]
            print(f"| {pair} | {shim_s:.3f} s | {' | '.join(ratios)} |", flush=True)
        return

    titles = [str(pair) for pair in pairs]
    print(f"| | {' | '.join(titles)} | reordered |\n|---|{'---|' * (len(pairs) + 1)}")
    shim = [iteration_s(run_of(pair, None)) for pair in pairs]
    cells = [f"{time_s:.3f} s" for time_s in shim]
    print(f"| over the shim | {' | '.join(cells)} | 0 |", flush=True)
    for mechanism in MECHANISMS:
        cells = []
        reordered = 0
        for pair, shim_s in zip(pairs, shim, strict=True):
            run = run_of(pair, mechanism)
            ratio = iteration_s(run) / shim_s
            cells.append(f"{ratio:.3f}")
            reordered += sum(run.reordered.values())
        print(f"| {mechanism.name} | {' | '.join(cells)} | {reordered} |", flush=True)


if __name__ == "__main__":
    main()
