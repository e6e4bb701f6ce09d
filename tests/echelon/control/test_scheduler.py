"""The central scheduler: who is active, and what is decided for them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.controller.machine.decisions import DecisionDue, decide
from echelon.controller.machine.reactive import ActiveFlows
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import EchelonFlow, Flow, FlowKey, Job
from echelon.planning.plan import Plan
from echelon.planning.policies.varys import Varys
from echelon.planning.rankings.fixed import Fixed
from tests.drawing import examples

FABRIC = Fabric(
    "one",
    {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in (1, 2)},
    {"s1": Switch("s1", 1)},
    tuple(CableLink(LinkEnd(f"h{i}", 0), LinkEnd("s1", i), 8000, Fraction(0)) for i in (1, 2)),
)
FLOWS = ("f0", "f1", "f2")
OUT = ("s1", "h2")
KEYS = [("j", name) for name in FLOWS]


@pytest.fixture
def scheduler() -> CentralScheduler:
    return make()


class CentralScheduler(ActiveFlows):
    """The active flows, with what is decided for them."""

    def __init__(self, policy: Varys, job: Job) -> None:
        self.policy, self.plan = policy, policy.plan([job], FABRIC)
        super().__init__([job], self.plan)

    def decide(self, now_s: Fraction, bytes_passed: Mapping[FlowKey, int]) -> Plan:
        due = DecisionDue(now_s, tuple(self.active.values()), bytes_passed)
        self.plan = decide(self.policy, self.plan, due)
        return self.plan


def make() -> CentralScheduler:
    flows = tuple(Flow(name, "h1", "h2", 1000) for name in FLOWS)
    job = Job("j", (), flows, (EchelonFlow("e", FLOWS, (Fraction(0),) * 3),))
    return CentralScheduler(Varys(), job)


def shares(scheduler: CentralScheduler) -> dict[str, Fraction]:
    """Return the shares of the active flows at the port to h2, by the queues that the plan in force
    has.
    """
    port = scheduler.plan.schedules[OUT]
    queue = {f.flow: f.ranking.queue for f in scheduler.plan.flows if isinstance(f.ranking, Fixed)}
    weights = {name: port[queue[name]].weight for _, name in scheduler.active}
    assert len({queue[name] for name in weights}) == len(weights)
    return {name: Fraction(weight, sum(weights.values())) for name, weight in weights.items()}


def test_a_coflow_finishes_together(scheduler: CentralScheduler) -> None:
    for key in KEYS:
        assert scheduler.start(key, 1, Fraction(1))
    scheduler.decide(Fraction(2), {KEYS[0]: 1000 - 100, KEYS[1]: 1000 - 200, KEYS[2]: 1000 - 300})
    assert all(
        abs(shares(scheduler)[name] - Fraction(k, 6)) < Fraction(1, 1000)
        for k, name in enumerate(FLOWS, 1)
    )
    assert scheduler.finish(KEYS[0], 1)
    scheduler.decide(Fraction(3), {KEYS[1]: 1000 - 100, KEYS[2]: 1000 - 300})
    assert abs(shares(scheduler)["f1"] - Fraction(1, 4)) < Fraction(1, 1000)
    assert scheduler.finish(KEYS[1], 1)
    assert scheduler.finish(KEYS[2], 1)
    assert scheduler.decide(Fraction(4), {}).schedules == {}


def test_flows_stay_in_their_queues(scheduler: CentralScheduler) -> None:
    before = scheduler.plan.flows
    for key in KEYS:
        scheduler.start(key, 1, Fraction(0))
        assert scheduler.decide(Fraction(0), {}).flows == before


def test_what_has_no_plan_is_ignored(scheduler: CentralScheduler) -> None:
    for key in (("j", "other"), ("other", "f0")):
        assert not scheduler.start(key, 1, Fraction(0))
        assert not scheduler.finish(key, 1)
    assert scheduler.active == {}
    # Counters of flows that are not active do no harm.
    assert scheduler.decide(Fraction(0), {("j", "other"): 5, KEYS[0]: 5}).schedules == {}


def test_repeated_events_change_nothing(scheduler: CentralScheduler) -> None:
    assert scheduler.start(KEYS[0], 1, Fraction(1))
    assert not scheduler.start(KEYS[0], 1, Fraction(2))
    assert scheduler.active[KEYS[0]].start_s == 1
    assert scheduler.finish(KEYS[0], 1)
    assert not scheduler.finish(KEYS[0], 1)
    assert not scheduler.start(KEYS[0], 1, Fraction(3)), "this iteration is over"
    assert scheduler.start(KEYS[0], 2, Fraction(4))


def test_a_restart_after_a_lost_finish_counts_anew(scheduler: CentralScheduler) -> None:
    scheduler.start(KEYS[0], 255, Fraction(1))
    scheduler.start(KEYS[1], 0, Fraction(2))
    assert scheduler.start(KEYS[0], 0, Fraction(3))
    again = scheduler.active[KEYS[0]]
    assert (again.iteration, again.start_s, again.sequence, again.remaining_bytes) == (
        0,
        3,
        3,
        1000,
    )
    assert not scheduler.finish(KEYS[0], 255), "too late: that is another iteration"
    assert KEYS[0] in scheduler.active
    assert scheduler.finish(KEYS[0], 0)


def test_a_finish_that_overtakes_its_start(scheduler: CentralScheduler) -> None:
    """First and last packet pass different switches, which report independently."""
    assert not scheduler.finish(KEYS[0], 4)
    assert not scheduler.start(KEYS[0], 4, Fraction(0))
    assert scheduler.active == {}


def test_a_flow_that_has_passed_but_is_not_finished_counts_as_almost_nothing(
    scheduler: CentralScheduler,
) -> None:
    for key in KEYS[:2]:
        scheduler.start(key, 1, Fraction(0))
    scheduler.decide(Fraction(1), {KEYS[0]: 5000})
    assert shares(scheduler)["f0"] <= Fraction(1, 500)


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS), st.integers(0, 2)), max_size=30),
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 2000)),
)
def test_any_history(
    history: list[tuple[bool, tuple[str, str], int]], passed: dict[tuple[str, str], int]
) -> None:
    """Active are the flows whose latest news is a start; each gets the share of what it still has
    to send.
    """
    scheduler = make()
    model: dict[tuple[str, str], int] = {}
    over: dict[tuple[str, str], int] = {}
    for starts, key, iteration in history:
        if starts:
            news = over.get(key) != iteration and model.get(key) != iteration
            assert scheduler.start(key, iteration, Fraction(0)) == news
            if news:
                model.pop(key, None)
                model[key] = iteration
        else:
            news = model.get(key) == iteration
            assert scheduler.finish(key, iteration) == news
            if news or key not in model:
                over[key] = iteration
                model.pop(key, None)
    assert list(scheduler.active) == list(model)
    assert {key: flow.iteration for key, flow in scheduler.active.items()} == model
    scheduler.decide(Fraction(0), passed)
    if model:
        # One coflow for each iteration: of equal bottlenecks the older, but in general the smaller
        # goes first.
        remaining = {key: max(1000 - passed.get(key, 0), 1) for key in model}
        coflows = {
            i: sum(remaining[key] for key in model if model[key] == i) for i in set(model.values())
        }
        sequence = {key: flow.sequence for key, flow in scheduler.active.items()}
        first = min(
            coflows,
            key=lambda i: (coflows[i], min(sequence[key] for key in model if model[key] == i)),
        )
        port = scheduler.plan.schedules[OUT]
        queue = {
            f.flow: f.ranking.queue for f in scheduler.plan.flows if isinstance(f.ranking, Fixed)
        }
        for key in model:
            settings_ = port[queue[key[1]]]
            assert settings_.level == (1 if model[key] == first else 0)
            if model[key] == first:
                most = max(remaining[other] for other in model if model[other] == first)
                assert settings_.weight == max(1, round(1023 * Fraction(remaining[key], most)))
