"""A judge of plans that runs them from packets, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path

from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.paths import links_of
from echelon.planning.plan import Plan
from echelon.planning.policies.base import FixedPlan, Policy
from echelon.planning.policies.judges import Match, OpenToJudges
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab.scenarios.scenario import Scenario, Transport
from echelon_lab.virtual.run import run

NAME = "packets"
"""The name under which the judge is registered."""
_HOPS_A_SECOND = 1_000_000
_FLOW_S = 100e-6
_RUN_S = 0.3
_SWITCH_S = 0.1
_ROCE = 6
"""What a run takes of a processor: for packets that pass a link, for a flow in an iteration, for
its beginning, and for the program and the entries of each switch; and how many times as long it
takes for packets of RoCE, whose hosts are in Python. Measured on ten drawn scenarios
(`bench.ladder.scenarios`) of 5,000 to 1,500,000 hops on 2 to 20 switches, in 2, 12 and 24
iterations: what is estimated is within half as much again of what it takes."""


@dataclass(frozen=True, slots=True)
class Packets:
    """A judge that runs plans through embedded switches, with emulated senders."""

    transport: Transport = field(default_factory=Transport)
    target: str = DEFAULT_TARGET
    queue_bytes: int | None = None
    """The size of each queue; None: as the switch comes."""
    specs: Mapping[str, JobSpec] = field(default_factory=dict)
    """How switches recognise the flows of jobs; that of others is by shim."""

    def seconds(self, plan: Plan, match: Match) -> float:
        """Return about how many seconds of a processor it takes to run a plan."""
        hops = 0
        flows = 0
        paths_by_job = plan.paths
        for place, job in enumerate(match.jobs):
            iterations = match.iterations_alone(place)
            paths = paths_by_job.get(job.name, {})
            flows += iterations * len(job.flows)
            hops_an_iteration = 0
            for flow in job.flows:
                packets = ceil(flow.size_bytes / self.transport.packet_bytes)
                links = links_of(paths[flow.name])
                hops_an_iteration += packets * len(links)
            hops += self._dearness(job) * iterations * hops_an_iteration
        setup_s = _RUN_S + _SWITCH_S * len(match.fabric.switches)
        flows_s = flows * _FLOW_S
        hops_s = hops / _HOPS_A_SECOND
        return setup_s + flows_s + hops_s

    def _dearness(self, job: Job) -> int:
        """Return how many times as long the packets of a job take as those with the shim."""
        spec = self.specs.get(job.name)
        if spec is None:
            return 1
        if spec.recognition.protocol == "roce":
            return _ROCE
        return 1

    def slowdowns(self, plan: Plan, match: Match) -> Sequence[float]:
        """Return the slowdown of each job. Raises `RunError`, and `PlanError`."""

        def planned() -> Policy:
            return FixedPlan(plan)

        end_s = match.end_s
        scenario = self._scenario(match)
        played = run(
            scenario,
            plan.policy,
            planned,
            _ignore,
            target=self.target,
            end_s=Fraction(end_s),
        )
        slowdowns = []
        for job, alone_s in zip(match.jobs, match.alone_s, strict=True):
            record = played.records[job.name]
            slowdowns.append(slowdown(record, end_s, alone_s))
        return slowdowns

    def _scenario(self, match: Match) -> Scenario:
        specs = {}
        for job in match.jobs:
            spec = self.specs.get(job.name)
            if spec is None:
                spec = _spec(job)
            specs[job.name] = spec
        return Scenario(
            name="finals",
            description="",
            file=Path(),
            fabric=match.fabric,
            jobs=tuple(match.jobs),
            policies=(),
            iterations=match.iterations,
            until="all-done",
            seed=0,
            transport=self.transport,
            control_latency_s=Fraction(0),
            stop_controller_after_iteration=None,
            profile_error=Fraction(0),
            delays=(),
            background=(),
            queue_bytes=self.queue_bytes,
            specs=specs,
        )


def _spec(job: Job) -> JobSpec:
    """Return a specification of a job that is built already: only its name and hosts count."""
    hosts: dict[str, None] = {}
    for flow in job.flows:
        hosts |= dict.fromkeys(flow.ends)
    data = {"compute": "1 s", "gradient": "1 MB"}
    document = {
        "job": job.name,
        "parallelism": "data",
        "workers": list(hosts),
        "data": data,
    }
    return JobSpec.model_validate(document)


def judged(make: Callable[[], Policy], scenario: Scenario, target: str) -> Callable[[], Policy]:
    """Return `make`, whose policy may have plans judged under the settings of a scenario."""

    def offered() -> Policy:
        policy = make()
        if isinstance(policy, OpenToJudges):
            described = scenario.described
            judge = Packets(described.transport, target, described.queue_bytes, described.specs)
            policy.offer(NAME, judge)
        return policy

    return offered


def _ignore(_job: str, _iteration: int) -> None:
    return
