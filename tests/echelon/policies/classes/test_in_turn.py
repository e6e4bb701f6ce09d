"""Messages of one connection go one after the other, and connections of jobs share as before."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.plan import Plan
from echelon.planning.policies.base import FixedPlan
from echelon.planning.policies.classes.assignment import Assignment
from echelon.planning.windows import Windows

RACK = build_fabric(one_tor(3))
HOSTS = [*RACK.hosts]
SIZE_BYTES = 1_000_000
ALONE_S = SIZE_BYTES / float(RACK.capacity_Bps[HOSTS[0], "tor"])
ENGINES: dict[str, dict[str, Any]] = {"native": {}, "python": {"observe": lambda *_: None}}


def job(name: str, ends: list[tuple[str, str]]) -> Job:
    """Return a job whose flows all start at once, each in an EchelonFlow of its own."""
    flows = []
    echelonflows = []
    for number, (src, dst) in enumerate(ends):
        flow = f"f{number}"
        flows.append(Flow(flow, src, dst, SIZE_BYTES))
        echelonflows.append(EchelonFlow(f"e{number}", (flow,), (Fraction(0),)))
    return Job(name, (), tuple(flows), tuple(echelonflows))


def finishes(jobs: list[Job], plan: Plan, engine: str) -> dict[str, list[float]]:
    """Return when each flow ends, in the time of one alone, by job."""
    windows = Windows(passes=False, streams=True)
    run = simulate(
        jobs, RACK, FixedPlan(plan), 1, until="exactly", windows=windows, **ENGINES[engine]
    )
    out = {}
    for name, record in run.jobs.items():
        [iteration] = record.iterations
        out[name] = [float(span.finish) / ALONE_S for span in iteration.flows.values()]
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_flows_between_two_hosts_end_one_after_the_other(engine: str) -> None:
    jobs = [job("a", [(HOSTS[0], HOSTS[2])] * 3)]
    plan = Assignment(classes=8).new_policy().plan(jobs, RACK)
    assert finishes(jobs, plan, engine)["a"] == pytest.approx([1, 2, 3])


@pytest.mark.parametrize("engine", ENGINES)
def test_other_hosts_and_other_jobs_do_not_wait(engine: str) -> None:
    """Two connections share the link of their destination; each has two messages."""
    pairs = [(HOSTS[0], HOSTS[2]), (HOSTS[1], HOSTS[2])]
    together = [job("a", [*pairs, *pairs])]
    plan = Assignment(classes=8).new_policy().plan(together, RACK)
    assert finishes(together, plan, engine)["a"] == pytest.approx([2, 2, 4, 4])
    apart = [job("a", pairs[:1] * 2), job("b", pairs[:1] * 2)]
    plan = Assignment(classes=8).new_policy().plan(apart, RACK)
    both = finishes(apart, plan, engine)
    assert both["a"] == both["b"] == pytest.approx([2, 4])


@pytest.mark.parametrize("engine", ENGINES)
def test_of_two_communicators_between_two_hosts_the_higher_class_goes_first(engine: str) -> None:
    ring = [(HOSTS[0], HOSTS[2]), (HOSTS[2], HOSTS[0])]
    flows = tuple(Flow(f"r{n}", *ends, SIZE_BYTES) for n, ends in enumerate(ring))
    sends = job("a", [(HOSTS[0], HOSTS[2])])
    collective = EchelonFlow("ring", ("r0", "r1"), (Fraction(0), Fraction(0)))
    both = Job("a", (), (*sends.flows, *flows), (*sends.echelonflows, collective))
    assignment = Assignment(classes=8).with_classes({("a", "e0"): 0, ("a", "ring"): 1})
    plan = assignment.new_policy().plan([both], RACK)
    assert finishes([both], plan, engine)["a"] == pytest.approx([2, 1, 1])
