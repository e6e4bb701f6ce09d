"""Floats against fractions, and neighbourhoods against the whole network: the same runs, computed in two ways."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.allocation import ActiveFlow, Allocation, Link, Number
from echelon.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.fluid import FluidResult, Windows, simulate
from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.plan import Plan
from echelon.policies import make_policy
from echelon.policies.base import Policy
from echelon.rankings.base import Execution, Rank, Ranking
from tests.drawing import examples

HOSTS = 6
WINDOWS = Windows(packet_bytes=1000, full=16, initial=4, acknowledgement_bytes=40)
POLICIES = ["fifo", "fair", "echelon"]


def make(policy: str, order: str = "memory") -> Policy:
    """Return a policy that does not simulate before it plans."""
    return make_policy(policy, **({"order": order} if policy == "echelon" else {}))


def leaves(rate_bps: int) -> Fabric:
    """Return three leaves of two hosts each, and a spine of half the rate."""
    hosts = [f"h{i}" for i in range(HOSTS)]
    cables = [CableLink(LinkEnd(h, 0), LinkEnd(f"l{i // 2}", i), rate_bps, Fraction(0)) for i, h in enumerate(hosts)]
    cables += [CableLink(LinkEnd(f"l{i}", 9), LinkEnd("s", i), rate_bps // 2, Fraction(0)) for i in range(3)]
    return Fabric(
        "leaves",
        {h: Host(h, f"10.0.0.{i}", f"02:00:00:00:00:{i:02x}") for i, h in enumerate(hosts)},
        {name: Switch(name, number) for number, name in enumerate(("l0", "l1", "l2", "s"), start=1)},
        tuple(cables),
    )


def some_jobs(seed: int) -> list[Job]:
    """Return jobs of compute units and flows that follow each other at random; no two times are alike."""
    rng = Random(seed)
    return [_job(f"j{number}", rng) for number in range(rng.randint(1, 4))]


def _job(name: str, rng: Random) -> Job:
    def time_s() -> Fraction:
        return Fraction(rng.randint(1_000, 99_999), 100_003)

    computes = [ComputeUnit("c0", "h0", time_s())]
    flows: list[Flow] = []
    for k in range(rng.randint(2, 8)):
        earlier = [step.name for step in (*computes, *flows)]
        after = tuple(rng.sample(earlier, min(len(earlier), rng.randint(1, 2))))
        if rng.random() < 0.7:
            src, dst = rng.sample(range(HOSTS), 2)
            flows.append(Flow(f"f{k}", f"h{src}", f"h{dst}", rng.randint(10_000, 900_000), after))
        else:
            computes.append(ComputeUnit(f"c{k + 1}", "h0", time_s(), after))
    names = tuple(flow.name for flow in flows)
    offsets_s = tuple(sorted(time_s() for _ in names))
    return Job(name, tuple(computes), tuple(flows), (EchelonFlow("H", names, offsets_s),) if names else (), time_s())


def times(result: FluidResult) -> list[float]:
    """Return every start and finish in a run, in an order that does not depend on them."""
    return [
        float(time_s)
        for record in result.jobs.values()
        for iteration in record.finished
        for _, span in sorted({**iteration.flows, **iteration.computes}.items())
        for time_s in (span.start, span.finish)
        if time_s is not None
    ]


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from([*POLICIES, "varys"]),
    order=st.sampled_from(["memory", "left"]),
    ideal=st.booleans(),
)
def test_floats_are_within_a_nanosecond_of_fractions(seed: int, policy: str, order: str, ideal: bool) -> None:
    """No loop is chaotic enough over two iterations to enlarge an error of 1e-16 to more.

    Ideal ranks that count the bytes left are equal for a moment whenever flows overtake each other, and floats then
    decide by the last bit; levels do not.
    """
    runs = [
        simulate(
            some_jobs(seed),
            leaves(8_000_000),
            make(policy, "memory" if ideal else order),
            2,
            until="exactly",
            ideal=ideal,
            windows=WINDOWS,
            exact=exact,
        )
        for exact in (False, True)
    ]
    in_floats, exactly = (times(run) for run in runs)
    assert in_floats == pytest.approx(exactly, abs=1e-9, rel=1e-9)
    assert not runs[0].exact


@dataclass(frozen=True, slots=True)
class Everywhere:
    """A ranking that couples every flow to every other one."""

    ranking: Ranking

    @property
    def queues(self) -> range:
        return self.ranking.queues

    @staticmethod
    def execution(number: Callable[[Fraction], Number]) -> EverywhereExecution:
        return EverywhereExecution(number)


class EverywhereExecution:
    """The execution of the ranking inside, with all flows in one neighbourhood."""

    def __init__(self, number: Callable[[Fraction], Number]) -> None:
        self.number = number
        self.inside: dict[type[Ranking], Execution[Ranking]] = {}

    def of(self, ranking: Ranking) -> Execution[Ranking]:
        return self.inside.setdefault(type(ranking), ranking.execution(self.number))

    def started(self, now_s: Number, flow: ActiveFlow, ranking: Everywhere) -> None:
        self.of(ranking.ranking).started(now_s, flow, ranking.ranking)

    def finished(self, now_s: Number, flow: ActiveFlow, ranking: Everywhere) -> None:
        self.of(ranking.ranking).finished(now_s, flow, ranking.ranking)

    def ranks(self, now_s: Number, port: Link, flows: Sequence[tuple[ActiveFlow, Everywhere]]) -> list[Rank]:
        ranks: dict[ActiveFlow, Rank] = {}
        # The ranks of one kind are found together, as without this class: some are relative to each other.
        for kind in {type(of.ranking) for _, of in flows}:
            inside = [(flow, of.ranking) for flow, of in flows if type(of.ranking) is kind]
            found = self.of(inside[0][1]).ranks(now_s, port, inside)
            ranks |= dict(zip([flow for flow, _ in inside], found, strict=True))
        return [ranks[flow] for flow, _ in flows]

    def neighbourhood(self, flow: ActiveFlow, ranking: Everywhere) -> Hashable:
        return "all"


class Coupled:
    """A policy whose plan has every flow's rates set anew whenever anything happens."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        plan = self.policy.plan(jobs, fabric)
        return replace(plan, flows=tuple(replace(flow, ranking=Everywhere(flow.ranking)) for flow in plan.flows))


class Whole:
    """The ideal rates of a policy that is always asked for those of all flows."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.plan = policy.plan

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        allocation: Allocation = self.policy.allocate(now_s, flows)  # type: ignore[attr-defined]
        return allocation


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(POLICIES), windows=st.sampled_from([None, WINDOWS]))
def test_neighbourhoods_have_the_rates_of_the_whole_network(seed: int, policy: str, windows: Windows | None) -> None:
    jobs, fabric = some_jobs(seed), leaves(8_000_000)
    parts, whole = (
        simulate(jobs, fabric, planner, 2, until="exactly", windows=windows, exact=True)
        for planner in (make(policy), Coupled(make(policy)))
    )
    assert parts.jobs == whole.jobs


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(["fair", "echelon"]))
def test_ideal_rates_of_neighbourhoods_are_those_of_the_whole_network(seed: int, policy: str) -> None:
    jobs, fabric = some_jobs(seed), leaves(8_000_000)
    parts, whole = (
        simulate(jobs, fabric, planner, 2, until="exactly", ideal=True, exact=True)
        for planner in (make(policy), Whole(make(policy)))
    )
    assert parts.jobs == whole.jobs
