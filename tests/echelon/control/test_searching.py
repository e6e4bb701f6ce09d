"""Searches for better plans: when they begin, what becomes of their results, and what they cannot
spoil.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from echelon.controller.machine.effects import Improve, MakePlan, Save, SearchPlan, SetAlarm
from echelon.controller.machine.facts import NoPlanChosen, PlanChosen, PredictionJudged, SearchEnded
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import registered_policy
from echelon.controller.machine.planning_turns import JUDGED, LONGEST_RETRY_S, SEARCH_RETRY_S
from echelon.model.fabric.model import Fabric
from echelon.planning.plan import FlowPlan
from echelon.planning.policies import PlanError
from echelon.planning.policies.base import Choice, Prediction
from echelon.planning.policies.echelon.brief import BriefSearch
from echelon.planning.policies.echelon.candidates import FAIR, UNSEARCHED, PlanCandidate
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import PlanSearch
from tests.echelon.control.world import START, World, ring, two_by_two

SRPT = PlanCandidate(policy="srpt")
NOTHING_BETTER = UNSEARCHED
IMPOSSIBLE = PlanCandidate(policy="there-is-none")


class Told:
    """A search that finds what a test says, or nothing; and behind that, other candidates."""

    def __init__(
        self,
        search: PlanSearch,
        found: PlanCandidate | None,
        slowdown: float,
        others: Sequence[PlanCandidate] = (),
        preliminary: bool = False,
    ) -> None:
        self.group = search.group
        self._found = found
        self._slowdown = slowdown
        self._others = others
        self._preliminary = preliminary and isinstance(search, BriefSearch)

    def run(self) -> Choice[PlanCandidate]:
        if self._found is None:
            raise PlanError("no plan can be simulated")
        best = Prediction(
            self._found, dict.fromkeys(self.group, self._slowdown), 1.1 * self._slowdown, 4
        )
        worse = (Prediction(other, best.slowdowns, 2 * best.score, 4) for other in self._others)
        return Choice(best, (best, *worse), self._preliminary)


class Scripted(Echelon):
    """A policy whose searches find one candidate after the other; the last one again and again."""

    name = "scripted"

    def __init__(
        self,
        finds: list[PlanCandidate | None],
        slowdown: float = 1.0,
        others: Sequence[PlanCandidate] = (),
        preliminary: bool = False,
    ) -> None:
        super().__init__()
        self._finds, self._slowdown, self._others = finds, slowdown, others
        self._preliminary = preliminary
        self.starts_s: list[Mapping[str, float]] = []
        """The phases that were known at each call."""

    def searches(self, *args: Any, **others: Any) -> list[Any]:
        self.starts_s.append(args[3])
        found = super().searches(*args, **others)
        return [
            Told(search, self._finds[0], self._slowdown, self._others, self._preliminary)
            for search in found
        ]

    def adopt(self, group: frozenset[str], choice: Choice[PlanCandidate]) -> bool:
        self._finds[1:] and self._finds.pop(0)
        return super().adopt(group, choice)


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return two_by_two()


def world_of(
    fabric: Fabric,
    *finds: PlanCandidate | None,
    slowdown: float = 1.0,
    others: Sequence[PlanCandidate] = (),
    preliminary: bool = False,
) -> tuple[World, list[Scripted]]:
    """Return a world at rest with two jobs that share links, and the policies that it has made; no
    search is run.

    `preliminary`: brief searches call for longer ones.
    """
    made: list[Scripted] = []

    def make(chosen: ChosenPolicy) -> Any:
        if chosen.name != Scripted.name:
            return registered_policy(chosen)
        made.append(Scripted(list(finds), slowdown, others, preliminary))
        return made[-1]

    world = World(fabric, policy=Scripted.name, make_policy=make)
    world.start()
    for name in world.switches:
        world.connect(name)
    world.register(ring("a", "h1", "h3"))
    world.register(ring("b", "h2", "h4"))
    all_but_searches(world)
    return world, made


def all_but_searches(world: World) -> None:
    """Do everything that can be done but searches, and what alarms would begin."""
    for name in world.switches:
        world.connect(name)
    while True:
        ready = [one for one in world.ready() if not isinstance(one, SearchPlan | SetAlarm)]
        writable = [name for name in world.switches if world.can_write(name)]
        if ready:
            world.carry_out(ready[0])
        elif writable:
            world.write(writable[0])
        else:
            return


def search(world: World, *, fails: bool = False) -> None:
    """Run the search under way, and do what follows."""
    (under_way,) = [one for one in world.waiting(SearchPlan) if one.number not in world.ended]
    world.carry_out(under_way, fails=fails)
    all_but_searches(world)


def plan(world: World) -> Mapping[str, tuple[FlowPlan, ...]]:
    assert world.machine.in_force is not None
    return world.machine.in_force.planned.plan.by_job


def labels(world: World) -> set[str]:
    return set(world.machine.searches.plans.values())


def test_no_plan_waits_for_a_search(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR)
    assert world.state("a") == world.state("b") == "installed"
    assert world.machine.settled
    assert world.machine.searching
    assert len(world.waiting(SearchPlan)) == 1
    # And while it is under way, changes go on as always.
    world.register(ring("c", "h1", "h2"))
    all_but_searches(world)
    assert world.state("c") == "installed"


def test_a_plan_that_is_found_takes_the_way_of_all_plans(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR)
    before, at_once = world.machine.in_force, plan(world)
    world.carry_out(*world.waiting(SearchPlan))
    world.carry_out(*world.waiting(Improve))
    (save,) = world.waiting(Save)
    assert world.machine.in_force is before, "it is not saved yet"
    world.carry_out(save)
    assert world.machine.in_force is not before
    all_but_searches(world)
    assert world.machine.settled
    assert not world.machine.searching
    alone = World(fabric, policy="fair")
    alone.start()
    for name, workers in (("a", ("h1", "h3")), ("b", ("h2", "h4"))):
        alone.register(ring(name, *workers))
    alone.run()
    assert {name: [flow.ranking for flow in flows] for name, flows in plan(world).items()} == {
        name: [flow.ranking for flow in flows] for name, flows in plan(alone).items()
    }
    assert plan(world) != at_once
    (told,) = [fact for fact in world.facts if isinstance(fact, PlanChosen)]
    assert (told.jobs, told.plan, told.before) == (
        ("a", "b"),
        "fair",
        "rule critical_and_short_first",
    )


def test_a_restart_takes_up_the_plan_that_was_chosen(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR)
    search(world)
    chosen = plan(world)
    world.crash()
    all_but_searches(world)
    assert plan(world) == chosen, "before any search"
    world.run()
    assert plan(world) == chosen


def test_a_crash_before_the_plan_is_saved_leaves_the_former_one(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR)
    at_once = plan(world)
    world.carry_out(*world.waiting(SearchPlan))
    world.carry_out(*world.waiting(Improve))
    world.crash(saved=0)
    all_but_searches(world)
    assert plan(world) == at_once
    world.run()
    assert labels(world) == {"fair"}


@pytest.mark.parametrize("late", [False, True], ids=["never answered", "answered late"])
def test_a_search_for_jobs_that_have_changed_is_ended(fabric: Fabric, late: bool) -> None:
    world, _ = world_of(fabric, FAIR, SRPT)
    (outdated,) = world.waiting(SearchPlan)
    world.register(ring("b", "h2", "h4", gradient="2 MB"), replace=True)
    all_but_searches(world)
    assert world.ended == {outdated.number}
    assert [fact.jobs for fact in world.facts if isinstance(fact, SearchEnded)] == [("a", "b")]
    at_once = plan(world)
    if late:
        world.carry_out(outdated)
        all_but_searches(world)
    else:
        world.pending.remove(outdated)
    assert plan(world) == at_once
    search(world)
    assert labels(world) == {"fair"}


def test_a_result_that_meets_a_change_on_its_way_is_not_taken(fabric: Fabric) -> None:
    """It comes while the plan without one of its jobs is being made."""
    world, _ = world_of(fabric, FAIR)
    world.remove("b")
    while not world.waiting(MakePlan):
        world.carry_out(world.waiting(Save)[0])
    world.carry_out(*world.waiting(SearchPlan))
    all_but_searches(world)
    assert labels(world) == {"rule memory"}
    assert not any(isinstance(fact, PlanChosen) for fact in world.facts)


def test_a_drained_link_calls_for_another_search(fabric: Fabric) -> None:
    world, _ = world_of(fabric, NOTHING_BETTER)
    search(world)
    assert not world.machine.searching
    world.set_link("leaf1", "spine1", drained=True)
    all_but_searches(world)
    search(world)
    assert world.machine.searches.chosen.keys() == {frozenset("ab")}
    world.choose("scripted", draws="2")
    all_but_searches(world)
    assert world.machine.searching, "another policy knows nothing of it"


def test_a_group_comes_back_to_its_plan_when_another_job_has_gone(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, SRPT)
    search(world)
    fair = plan(world)
    world.register(ring("c", "h1", "h4"))
    all_but_searches(world)
    search(world)
    assert labels(world) == {"srpt"}
    world.remove("c")
    all_but_searches(world)
    assert plan(world) == fair
    assert not world.machine.searching


def test_jobs_that_share_no_links_are_not_searched_for(fabric: Fabric) -> None:
    world = World(fabric)
    world.start()
    world.register(ring("a", "h1", "h2"))
    world.register(ring("b", "h3", "h4"))
    all_but_searches(world)
    assert world.waiting(SearchPlan) == []
    assert world.machine.searches.plans.keys() == {frozenset("a"), frozenset("b")}


def test_a_policy_that_simulates_nothing_ends_the_search(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR)
    world.choose("fifo")
    all_but_searches(world)
    assert world.ended
    assert not world.machine.searching
    assert world.machine.searches.plans == {}


# -- brief searches --------------------------------------------------------------------------------


def test_a_longer_search_follows_a_brief_one_whose_result_is_preliminary(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, SRPT, preliminary=True)
    search(world)
    assert labels(world) == {"fair"}
    assert world.machine.searching
    search(world)
    assert labels(world) == {"srpt"}
    assert not world.machine.searching
    told = [(fact.before, fact.plan) for fact in world.facts if isinstance(fact, PlanChosen)]
    assert told[1] == ("fair", "srpt")


def test_a_change_between_the_two_calls_for_another_brief_one(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, SRPT, FAIR, preliminary=True)
    search(world)
    (longer,) = world.waiting(SearchPlan)
    world.register(ring("b", "h2", "h4", gradient="2 MB"), replace=True)
    all_but_searches(world)
    assert world.ended == {longer.number}
    search(world)
    assert labels(world) == {"srpt"}
    assert world.machine.searching, "that was the brief one"
    search(world)
    assert labels(world) == {"fair"}
    assert not world.machine.searching


def test_a_group_that_comes_back_lacks_only_the_longer_search(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, SRPT, preliminary=True)
    search(world)
    world.register(ring("c", "h1", "h4"))
    all_but_searches(world)
    world.remove("c")
    all_but_searches(world)
    assert labels(world) == {"fair"}
    search(world)
    assert labels(world) == {"srpt"}
    assert not world.machine.searching


def test_after_a_restart_between_the_two_the_first_result_is_in_force(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, preliminary=True)
    search(world)
    preliminary = plan(world)
    world.crash()
    all_but_searches(world)
    assert plan(world) == preliminary
    search(world)
    search(world)
    assert labels(world) == {"fair"}
    assert not world.machine.searching


def test_a_longer_search_follows_a_plan_that_switches_cannot_carry(fabric: Fabric) -> None:
    world, _ = world_of(fabric, IMPOSSIBLE, FAIR, preliminary=True)
    at_once = plan(world)
    search(world)
    assert plan(world) == at_once
    search(world)
    assert labels(world) == {"fair"}
    assert not world.machine.searching


def test_a_longer_search_yields_once_to_a_brief_one_for_other_jobs(fabric: Fabric) -> None:
    world, _ = world_of(fabric, NOTHING_BETTER, preliminary=True)
    world.remove("b")
    world.register(ring("a", "h1", "h2"), replace=True)
    world.register(ring("b", "h1", "h2"))
    all_but_searches(world)
    search(world)
    (longer,) = [one for one in world.waiting(SearchPlan) if one.number not in world.ended]
    assert longer.search.group == frozenset("ab")

    world.register(ring("c", "h3", "h4"))
    world.register(ring("d", "h3", "h4"))
    all_but_searches(world)
    assert longer.number in world.ended
    search(world)
    assert frozenset("cd") in world.machine.searches.chosen
    (longer,) = [one for one in world.waiting(SearchPlan) if one.number not in world.ended]
    assert longer.search.group == frozenset("ab")

    world.register(ring("d", "h3", "h4", gradient="2 MB"), replace=True)
    all_but_searches(world)
    assert longer.number not in world.ended
    for _ in range(3):
        assert world.machine.searching
        search(world)
    assert not world.machine.searching


# -- failures --------------------------------------------------------------------------------------


def test_a_plan_that_switches_cannot_carry_replaces_nothing(fabric: Fabric) -> None:
    world, _ = world_of(fabric, IMPOSSIBLE, FAIR)
    at_once = plan(world)
    search(world)
    assert plan(world) == at_once
    (told,) = [fact for fact in world.facts if isinstance(fact, NoPlanChosen)]
    assert told.jobs == ("a", "b")
    assert not world.machine.searching, "it would find the same again"
    assert world.machine.plan_problem is None
    world.register(ring("c", "h1", "h4"))
    all_but_searches(world)
    assert world.in_plan() == {"a", "b", "c"}
    search(world)
    assert labels(world) == {"fair"}


def test_the_next_best_plan_that_switches_can_carry_replaces_one_that_they_cannot(
    fabric: Fabric,
) -> None:
    world, _ = world_of(fabric, IMPOSSIBLE, others=(PlanCandidate(policy="nor-this"), FAIR, SRPT))
    search(world)
    assert labels(world) == {"fair"}
    assert not world.machine.searching
    [chosen] = world.machine.searches.chosen.values()
    assert chosen.choice.best.candidate == FAIR
    assert f"'{IMPOSSIBLE.policy}'" in (chosen.problem or "")
    told = [type(fact) for fact in world.facts if isinstance(fact, NoPlanChosen | PlanChosen)]
    assert told == [NoPlanChosen, PlanChosen]


@pytest.mark.parametrize(
    "others",
    [(NOTHING_BETTER, FAIR), tuple(PlanCandidate(policy=f"none-{number}") for number in range(9))],
    ids=["next", "none"],
)
def test_a_plan_in_force_stays_if_it_is_the_next_best_or_none_can_be_carried(
    fabric: Fabric, others: Sequence[PlanCandidate]
) -> None:
    world, _ = world_of(fabric, IMPOSSIBLE, others=others)
    before, at_once = labels(world), plan(world)
    search(world)
    assert (labels(world), plan(world)) == (before, at_once)
    told = [type(fact) for fact in world.facts if isinstance(fact, NoPlanChosen | PlanChosen)]
    assert told == [NoPlanChosen]
    assert not world.machine.searching


def test_a_search_without_a_result_is_not_made_again_for_the_same(fabric: Fabric) -> None:
    world, _ = world_of(fabric, None, FAIR)
    search(world)
    world.register(ring("c", "h1", "h2"))
    world.remove("c")
    all_but_searches(world)
    assert [one for one in world.waiting(SearchPlan) if one.number not in world.ended] == []
    assert any(isinstance(fact, NoPlanChosen) for fact in world.facts)


def test_searches_begin_again_ever_later_after_their_process_has_ended(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR)
    delays = []
    for _ in range(9):
        search(world, fails=True)
        assert not world.machine.searching, "nobody should wait for it"
        (alarm,) = (one for one in world.waiting(SetAlarm) if one.alarm.kind == "search")
        delays.append(alarm.delay_s)
        world.carry_out(alarm)
        all_but_searches(world)
    assert delays[:3] == [SEARCH_RETRY_S, 2 * SEARCH_RETRY_S, 4 * SEARCH_RETRY_S]
    assert delays[-1] == LONGEST_RETRY_S
    search(world)
    assert labels(world) == {"fair"}


# -- predictions -----------------------------------------------------------------------------------

ALONE_S = 0.010 + 2 * 0.5e6 * 8 / 1e9
"""Ten milliseconds of computing, then a ring of two with 1 MB both ways at 1 Gbit/s."""


UNTIMED = 2
"""The first starts, which end no iteration that was seen whole."""


def iterate(world: World, count: int, **periods_s: float) -> list[PredictionJudged]:
    """Let jobs iterate in turn, and return how predictions were judged. Reports come at once."""
    known = len(world.facts)
    begun = {job: getattr(world, f"_{job}", 0) for job in periods_s}
    for number in range(count):
        for job, period_s in periods_s.items():
            head = world.machine.jobs.jobs[job].job.flows[0]
            leaf = "leaf1" if head.src in ("h1", "h2") else "leaf2"
            epoch = begun[job] + number
            time_s = 1000 + period_s * epoch
            world.now_s = max(world.now_s, time_s)
            world.report(leaf, (job, head.name, START, epoch % 256), time_us=round(time_s * 1e6))
    for job in periods_s:
        setattr(world, f"_{job}", begun[job] + count)
    return [fact for fact in world.facts[known:] if isinstance(fact, PredictionJudged)]


def test_predictions_that_hold_change_nothing(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, SRPT, slowdown=1.5)
    search(world)
    judged = iterate(world, 3 * JUDGED + UNTIMED, a=1.52 * ALONE_S, b=1.48 * ALONE_S)
    assert len(judged) == 6
    for fact in judged:
        assert fact.predicted_s == pytest.approx(1.5 * ALONE_S)
        assert fact.measured_s == pytest.approx(
            {"a": 1.52, "b": 1.48}[fact.job] * ALONE_S, rel=1e-3
        )
        assert not fact.search_again
    assert world.waiting(SearchPlan) == []


def test_a_prediction_that_is_wrong_calls_for_a_search_from_the_observed_phases(
    fabric: Fabric,
) -> None:
    world, made = world_of(fabric, FAIR, slowdown=1.5)
    search(world)
    period_s = 1.6 * ALONE_S
    assert iterate(world, JUDGED - 1 + UNTIMED, a=period_s, b=period_s) == []
    judged = iterate(world, 1, a=period_s, b=period_s)
    asked_s = world.now_s
    assert [fact.search_again for fact in judged] == [False, True], (
        "once for both, when both have iterated"
    )
    all_but_searches(world)
    (under_way,) = world.waiting(SearchPlan)
    assert under_way.search.group == frozenset("ab")
    # The last iterations began 10 ms of computing before their head flows started, of which the
    # fastest report took the millisecond of an event. The next ones begin a period later.
    head_s = 1000 + period_s * (JUDGED - 1 + UNTIMED) + 0.001
    expected_s = (head_s - 0.010 - asked_s) % period_s
    assert made[-1].starts_s[-1] == pytest.approx({"a": expected_s, "b": expected_s}, abs=1e-5)
    # While it is under way, nothing else is asked for; it changes nothing, so the next one has to
    # wait twice as long.
    assert not any(fact.search_again for fact in iterate(world, JUDGED, a=period_s, b=period_s))
    search(world)
    assert not any(fact.search_again for fact in iterate(world, JUDGED, a=period_s, b=period_s))
    assert any(fact.search_again for fact in iterate(world, JUDGED, a=period_s, b=period_s))


def test_of_a_job_that_pauses_nothing_is_concluded(fabric: Fabric) -> None:
    world, _ = world_of(fabric, FAIR, slowdown=1.5)
    search(world)
    judged = iterate(world, 4 * JUDGED, a=ALONE_S)
    assert judged
    assert not any(fact.search_again for fact in judged)
