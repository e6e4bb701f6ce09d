"""Deep pipelines from packets, beside packets in the order of earliest deadline first (EDF).

A job is alone on a line of switches, one stage at each. `python -m research.deep_pipelines` prints
the slowest of three iterations under `echelon` over that under EDF, for all cases (half an hour of
one processor); with the number of a row, for that row.

EDF needs no ranking by time here: between two stages, the order of deadlines is that of the
micro-batches. The reference therefore gives each micro-batch a queue of its own, which has no
thresholds, promotion or memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import yaml

from echelon.model.fabric.builders import LINK_BPS, line
from echelon.model.fabric.load import fabric_text
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.execution import duration_s
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import LEVELS, FlowPlan, Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import NoParameters, Policy
from echelon.planning.policies.levels import strict
from echelon.planning.rankings.fixed import Fixed
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.virtual.run import run as run_packets
from research.measure import scenario_of

FLOW_PACKETS = 400
ITERATIONS = 3


@dataclass(frozen=True, slots=True)
class DeepPipeline:
    """A GPipe pipeline whose transfers take `ratio` times as long as its compute units."""

    stages: int
    micro_batches: int
    ratio: int
    backward: bool

    def scenario(self, flow_packets: int = FLOW_PACKETS, iterations: int = ITERATIONS) -> Scenario:
        """Return the job on its fabric."""
        size_bytes = flow_packets * 1250
        sending_s = Fraction(size_bytes * 8, LINK_BPS)
        compute = f"{round(sending_s / self.ratio * 10**6)} us"
        section: dict[str, object] = {
            "micro_batches": self.micro_batches,
            "forward": compute,
            "activation": f"{size_bytes} B",
        }
        if self.backward:
            section["backward"] = compute
        workers = [f"h{stage}" for stage in range(1, self.stages + 1)]
        job = {
            "job": "pipeline",
            "parallelism": "pipeline",
            "workers": workers,
            "pipeline": section,
        }
        fabric = fabric_text(line(self.stages), "")
        document = {
            "scenario": "deep_pipeline",
            "fabric": yaml.safe_load(fabric),
            "jobs": [job],
            "policies": ["echelon"],
            "iterations": iterations,
        }
        return scenario_of(document, "deep_pipeline")


def pipelines() -> Iterator[DeepPipeline]:
    """Yield the pipelines of the table."""
    for stages, micro_batches in ((5, 4), (5, 8), (8, 8)):
        for backward in (False, True):
            for ratio in (1, 2, 3):
                yield DeepPipeline(stages, micro_batches, ratio, backward)


PIPELINES = list(pipelines())


class Edf:
    """The policy that serves the flows between two stages one after another, in the order of their
    deadlines.
    """

    name = "edf"
    Parameters = NoParameters

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan with a queue for each flow between two stages.

        Raise `ValueError` for more than eight.
        """
        paths_by_job = FlowPaths().update(jobs, fabric, paths)
        places: dict[str, int] = {}
        for job in jobs:
            for echelonflow in job.echelonflows:
                due = sorted(zip(echelonflow.offsets_s, echelonflow.flows, strict=True))
                for place, (_, flow) in enumerate(due):
                    places[flow] = place
        if max(places.values()) >= LEVELS:
            raise ValueError(f"an EchelonFlow has more flows than a port has queues ({LEVELS})")
        flows = {}
        for job_name, job_paths in paths_by_job.items():
            planned = []
            for flow, path in job_paths.items():
                ranking = Fixed(LEVELS - 1 - places[flow])
                planned.append(FlowPlan(job_name, flow, ranking, path))
            flows[job_name] = tuple(planned)
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=strict(),
            hosts_rank=True,
        )


def slowest_s(run: PolicyRun) -> float:
    """Return the time of the slowest iteration, in seconds."""
    record = run.records["pipeline"]
    return max(float(duration_s(iteration)) for iteration in record.finished)


def from_packets(scenario: Scenario, make: Callable[[], Policy]) -> PolicyRun:
    """Return the run of a scenario on embedded switches."""
    return run_packets(scenario, "deep_pipeline", make, unseen)


def unseen(_job: str, _iteration: int) -> None:
    """Show no progress."""


def echelon_over_edf(pipeline: DeepPipeline, order: str = "memory") -> float:
    """Return the slowest iteration under `echelon` over that under EDF.

    Raise `AssertionError` for reordering.
    """
    scenario = pipeline.scenario()
    ours = from_packets(scenario, partial(make_policy, "echelon", order=order))
    assert not any(ours.reordered.values()), ours.reordered
    edf = from_packets(scenario, Edf)
    return slowest_s(ours) / slowest_s(edf)


def main() -> None:
    chosen = [PIPELINES[int(row)] for row in sys.argv[1:]] or PIPELINES
    print(
        "| stages, micro-batches | passes | communication : compute | echelon / EDF"
        " |\n|---|---|---|---|"
    )
    for each in chosen:
        if each.backward:
            passes = "forward and backward"
        else:
            passes = "forward"
        print(
            f"| {each.stages}, {each.micro_batches} | {passes} | {each.ratio}:1 |"
            f" {echelon_over_edf(each):.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
