"""Tardiness with memory, continuous and in levels, against an independent model that ranks in small
steps of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import mean
from typing import Literal

import pytest
from reference import tardiness_with_memory as model

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.plan import Plan, QueuePlan
from echelon.planning.policies import make_policy

BYTES = 1_000_000
"""The bytes that a slow link carries in a second; a unit of the model's time is a second here."""
HORIZON = 6_000
TICK = 0.5


class Strict:
    """The policy echelon without minimum shares, which the model does not have."""

    name = "strict"

    def __init__(self) -> None:
        self._policy = make_policy("echelon", order="memory")

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        plan = self._policy.plan(jobs, fabric, paths)
        return replace(
            plan, default_schedule=tuple(QueuePlan(queue.level) for queue in plan.default_schedule)
        )


def build_fabric(jobs: Sequence[model.Job]) -> Fabric:
    """Return a switch for each place of the model, and at each a host for each job, whose own link
    is fast.
    """
    links = sorted(
        {frozenset(port.split("-")) for job in jobs for ports in job.hops for port in ports},
        key=sorted,
    )
    places = sorted(set().union(*links))
    switches = {
        f"p{place}": Switch(f"p{place}", number) for number, place in enumerate(places, start=1)
    }
    hosts: dict[str, Host] = {}
    cables = []
    for number, link in enumerate(links):
        a, b = sorted(link)
        cables.append(
            CableLink(
                LinkEnd(f"p{a}", 500 + number),
                LinkEnd(f"p{b}", 500 + number),
                8 * BYTES,
                Fraction(0),
            )
        )
    for index in range(len(jobs)):
        for place in places:
            name, number = f"j{index}p{place}", len(hosts) + 1
            hosts[name] = Host(
                name, f"10.0.{index}.{number % 250}", f"02:00:00:00:{index:02x}:{number:02x}"
            )
            cables.append(
                CableLink(LinkEnd(name, 0), LinkEnd(f"p{place}", number), 800 * BYTES, Fraction(0))
            )
    return Fabric("places", hosts, switches, tuple(cables))


def build_job(index: int, made: model.Job) -> Job:
    compute, size, start = Fraction(made.compute), round(made.size * BYTES), Fraction(made.start)
    ends = [
        (f"j{index}p{ports[0].split('-')[0]}", f"j{index}p{ports[-1].split('-')[1]}")
        for ports in made.hops
    ]
    if made.kind == "data":
        flows = tuple(Flow(f"f{k}", src, dst, size, ("c",)) for k, (src, dst) in enumerate(ends))
        held = EchelonFlow.coflow("H", [flow.name for flow in flows])
        return Job(f"j{index}", (ComputeUnit("c", ends[0][0], compute),), flows, (held,), start)
    computes, sent, echelonflows = [], [], []
    workers = [src for src, _ in ends] + [ends[-1][1]]
    for s, worker in enumerate(workers):
        for m in range(made.micro_batches):
            after = ((f"c{s}.{m - 1}",) if m else ()) + ((f"f{s - 1}.{m}",) if s else ())
            computes.append(ComputeUnit(f"c{s}.{m}", worker, compute, after))
            if s < len(ends):
                sent.append(Flow(f"f{s}.{m}", *ends[s], size, (f"c{s}.{m}",)))
        if s < len(ends):
            names = tuple(f"f{s}.{m}" for m in range(made.micro_batches))
            echelonflows.append(
                EchelonFlow(f"H{s}", names, tuple(compute * m for m in range(made.micro_batches)))
            )
    return Job(f"j{index}", tuple(computes), tuple(sent), tuple(echelonflows), start)


MIXES: dict[str, tuple[Literal["continuous", "levels"], Callable[[], list[model.Job]]]] = {
    "one link, 4 data-parallel": ("continuous", lambda: model.on_link(1, "data", 4, 1.0)),
    "one link, 4 mixed": ("continuous", lambda: model.on_link(2, "mix", 4, 0.7)),
    "one link, 6 mixed": ("continuous", lambda: model.on_link(3, "mix", 6, 1.3)),
    "one switch, 6 mixed": ("continuous", lambda: model.on_switch(4, 6, 6, 0.25)),
    "one switch, 8 mixed": ("continuous", lambda: model.on_switch(5, 8, 6, 0.25)),
    "one link, 4 data-parallel, in levels": ("levels", lambda: model.on_link(1, "data", 4, 1.0)),
    "one link, 4 mixed, in levels": ("levels", lambda: model.on_link(2, "mix", 4, 0.7)),
    "one link, 6 mixed, in levels": ("levels", lambda: model.on_link(3, "mix", 6, 1.3)),
    # In the model, a flow has one level at all of its ports.
    "ports out of a switch, 6 mixed, in levels": (
        "levels",
        lambda: model.on_switch(4, 6, 6, 0.3, into=False),
    ),
    "ports out of a switch, 8 mixed, in levels": (
        "levels",
        lambda: model.on_switch(5, 8, 6, 0.25, into=False),
    ),
}


@pytest.mark.parametrize("mix", MIXES)
def test_slowdowns_are_those_of_the_model(mix: str) -> None:
    ranks, make = MIXES[mix]
    made = make()
    theirs = model.slowdowns(made, ranks == "levels", HORIZON, TICK)
    fabric, jobs = build_fabric(made), [build_job(index, each) for index, each in enumerate(made)]
    policy = make_policy("echelon", order="memory") if ranks == "continuous" else Strict()
    result = simulate(
        jobs, fabric, policy, None, until=Fraction(HORIZON), ideal=ranks == "continuous"
    )
    ours = []
    for job in jobs:
        times = result.iteration_times_s(job.name)
        settled = times[len(times) // 3 :]
        ours.append(float(sum(settled) / len(settled) / alone_iteration_s(job, fabric)))
    assert mean(ours) == pytest.approx(mean(theirs), rel=0.01)
    assert max(ours) == pytest.approx(max(theirs), rel=0.01)
