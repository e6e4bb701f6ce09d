"""Judges of the best plans of a search: what they are shown, and what comes of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from statistics import fmean
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.plan import Plan, PlanError
from echelon.planning.policies import PolicyChoiceError, judges, make_policy
from echelon.planning.policies.base import Choice
from echelon.planning.policies.echelon.brief import BriefSearch
from echelon.planning.policies.echelon.candidates import UNSEARCHED, PlanCandidate, candidates
from echelon.planning.policies.echelon.finals import BEST, LENGTHS, OVERRULING, Panel
from echelon.planning.policies.echelon.neighbourhoods import NeighbourhoodSearch
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import WORST, PlanSearch
from echelon.planning.policies.echelon.unknowns import Doubt
from echelon.planning.policies.judges import Judge, Match
from tests.echelon.policies.registering import Registered
from tests.echelon.policies.test_choice import mix, pairs

JOBS = mix(7, 3)
FABRIC = pairs(3)
WORK = 1 << 60
"""Enough for everything."""


@dataclass
class Favouring:
    """A judge under whom jobs of one plan run as if alone, and `rest` times as long under others.

    It remembers what it was shown.
    """

    favourite: Plan
    price_s: float = 1.0
    rest: float = 2.0
    refused: Sequence[Plan] = ()
    runs: list[tuple[Plan, Match]] = field(default_factory=list)

    def seconds(self, plan: Plan, match: Match) -> float:
        return self.price_s

    def slowdowns(self, plan: Plan, match: Match) -> Sequence[float]:
        self.runs.append((plan, match))
        if plan in self.refused:
            raise RunError("cannot be carried")
        return [1.0 if plan == self.favourite else self.rest for _ in match.jobs]

    def plans(self) -> list[Plan]:
        plans = []
        for plan, _ in self.runs:
            if plan not in plans:
                plans.append(plan)
        return plans


def search(
    judge: Judge | None = None,
    work: int = WORK,
    kind: type[PlanSearch] = PlanSearch,
    **options: Any,
) -> PlanSearch:
    panel = None
    if judge is not None:
        panel = Panel("mine", judge, work)
    starts_s = {job.name: float(job.start_s) for job in JOBS}
    return kind(
        JOBS,
        FABRIC,
        candidates(several_paths=False),
        Doubt(draws=4),
        UNSEARCHED,
        starts_s=starts_s,
        panel=panel,
        **options,
    )


def plan_of(candidate: PlanCandidate) -> Plan:
    return candidate.plan(candidate.new_policy(), JOBS, FABRIC, None, {})


SRPT = plan_of(PlanCandidate(policy="srpt"))
NONE = replace(SRPT, policy="nobody's")


def on_model() -> Choice[PlanCandidate]:
    return search().run()


@pytest.fixture(scope="module")
def model() -> Choice[PlanCandidate]:
    """Return the choice of the model."""
    return on_model()


def test_the_plan_that_the_judge_prefers_is_taken(model: Choice[PlanCandidate]) -> None:
    assert model.best.candidate.policy != "srpt"
    choice = search(Favouring(SRPT)).run()
    assert choice.best.candidate.policy == "srpt"
    assert choice.judge == "mine"
    assert choice.unjudged is None
    assert choice.best.slowdowns == {job.name: pytest.approx(1.0) for job in JOBS}
    assert choice.best.score == pytest.approx(1 + WORST)
    assert choice.tried[0] == choice.best


def test_both_predictions_are_in_the_choice(model: Choice[PlanCandidate]) -> None:
    judge = Favouring(SRPT)
    choice = search(judge).run()
    by_candidate = {prediction.candidate: prediction for prediction in model.tried}
    judged = [prediction for prediction in choice.tried if prediction.by_model]
    assert len(judged) == len(judge.plans())
    for prediction in judged:
        before = by_candidate.pop(prediction.candidate)
        assert prediction.by_model == before.slowdowns
        assert fmean(prediction.slowdowns.values()) == pytest.approx(
            1.0 if prediction == choice.best else 2.0
        )
    rest = [prediction for prediction in choice.tried if not prediction.by_model]
    assert rest == [*by_candidate.values()], "what was not judged is as it was"


def test_the_judge_is_shown_the_best_of_the_model_and_the_rivals(
    model: Choice[PlanCandidate],
) -> None:
    judge = Favouring(NONE)
    search(judge).run()
    best: list[Plan] = []
    for prediction in (model.best, *model.tried):
        plan = plan_of(prediction.candidate)
        if plan not in best and len(best) < BEST:
            best.append(plan)
    rivals = [
        plan_of(PlanCandidate(policy="crux", parameters=(("paths", "given"),))),
        SRPT,
        plan_of(PlanCandidate(policy="fair")),
    ]
    expected = [*best, *(rival for rival in rivals if rival not in best)]
    assert judge.plans() == expected


def test_the_first_draw_is_as_the_files_say_and_others_are_not() -> None:
    judge = Favouring(NONE)
    search(judge).run()
    iterations, draws = LENGTHS[0].iterations, LENGTHS[0].draws
    matches = [match for plan, match in judge.runs if plan == judge.runs[0][0]]
    assert len(matches) == draws > 1
    first, *others = matches
    alone_s = [float(alone_iteration_s(job, FABRIC)) for job in JOBS]
    for job, exact in zip(first.jobs, JOBS, strict=True):
        assert float(job.start_s) == float(exact.start_s)
        assert replace(job, start_s=exact.start_s) == exact
    assert [*first.alone_s] == pytest.approx(alone_s)
    assert first.end_s == pytest.approx(iterations * max(alone_s))
    for match in others:
        assert [job.name for job in match.jobs] == [job.name for job in JOBS]
        for job, exact, job_alone_s in zip(match.jobs, JOBS, match.alone_s, strict=True):
            assert job != exact
            alone_job_s = float(alone_iteration_s(job, FABRIC))
            assert job_alone_s == pytest.approx(alone_job_s, rel=1e-4)


@pytest.mark.parametrize("rest", [1 + OVERRULING / 2, 1 + 2 * OVERRULING])
def test_the_choice_of_the_model_stays_unless_another_gains_two_percent(
    model: Choice[PlanCandidate], rest: float
) -> None:
    choice = search(Favouring(SRPT, rest=rest)).run()
    taken = choice.best.candidate
    assert taken == (
        model.best.candidate if rest < 1 + OVERRULING else PlanCandidate(policy="srpt")
    )
    assert choice.judge == "mine"
    assert choice.best.by_model


def test_without_work_enough_the_choice_of_the_model_stands(model: Choice[PlanCandidate]) -> None:
    judge = Favouring(SRPT, price_s=1e9)
    choice = search(judge, work=1000).run()
    assert judge.runs == []
    assert choice.unjudged is not None
    assert "mine would take" in choice.unjudged
    assert replace(choice, unjudged=None) == model
    assert choice.judge == "model"


def test_with_less_work_there_are_fewer_draws() -> None:
    judge = Favouring(SRPT)
    choice = search(judge, work=8 * 5_000_000).run()
    assert choice.best.draws == 1
    assert choice.best.candidate.policy == "srpt"


def test_a_plan_that_cannot_run_is_left_out(model: Choice[PlanCandidate]) -> None:
    choice = search(Favouring(NONE, refused=[SRPT])).run()
    assert choice.judge == "mine"
    [srpt] = [p for p in choice.tried if p.candidate.policy == "srpt"]
    assert not srpt.by_model
    assert srpt in choice.tried[1:]


def test_if_the_best_plan_cannot_run_the_choice_of_the_model_stands(
    model: Choice[PlanCandidate],
) -> None:
    choice = search(Favouring(SRPT, refused=[plan_of(model.best.candidate)])).run()
    assert choice.best == model.best
    assert choice.unjudged == "mine cannot run the plan: cannot be carried"


def test_a_plan_in_force_stays_unless_the_judge_sees_a_gain() -> None:
    """Among plans that are equally good to the judge it is the one in force."""
    choice = search(Favouring(NONE), loyal=True).run()
    assert choice.best.candidate == UNSEARCHED
    assert choice.best.by_model


def test_a_preliminary_result_is_not_judged() -> None:
    judge = Favouring(SRPT)
    choice = search(judge, kind=BriefSearch, most_work=4000).run()
    assert choice.preliminary
    assert judge.runs == []
    final = search(judge, kind=BriefSearch).run()
    assert not final.preliminary
    assert final.judge == "mine"


def test_a_search_by_neighbourhoods_is_not_judged() -> None:
    judge = Favouring(SRPT)
    policy = Echelon()
    policy.plan(JOBS, FABRIC)
    paths = policy._kept  # noqa: SLF001
    choice = search(judge, kind=NeighbourhoodSearch, paths=paths).run()
    assert judge.runs == []
    assert choice.unjudged == "3 jobs are too many to be judged"


def test_a_search_with_a_judge_can_be_pickled() -> None:
    """Services search in another process."""
    sent = pickle.loads(pickle.dumps(search(Favouring(SRPT))))
    assert sent.run().best.candidate.policy == "srpt"


# -- the parameter ---------------------------------------------------------------------------------


def register(monkeypatch: pytest.MonkeyPatch, entries: Mapping[str, EntryPoint]) -> None:
    monkeypatch.setattr(judges, "registered", lambda: entries)


def only_judge() -> Judge:
    return Favouring(SRPT)


def best_policy(**parameters: object) -> tuple[Choice[Any], str]:
    policy = make_policy("echelon", **parameters)
    assert isinstance(policy, Echelon)
    policy.best_plan(JOBS, FABRIC)
    [decision] = policy.choices.values()
    assert decision.choice is not None
    return decision.choice, decision.candidate.label


def test_a_registered_judge_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Registered("mine", "tests:judge", judges.GROUP)
    vars(entry)["policy"] = only_judge
    register(monkeypatch, {"mine": entry})
    choice, label = best_policy(judge="mine")
    assert (choice.judge, label) == ("mine", "srpt")


def test_a_judge_that_is_offered_is_taken_if_any_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, {"mine": Registered("mine", "tests:judge", judges.GROUP)})
    for asked_for, expected in (("auto", "mine"), ("mine", "mine"), ("model", "model")):
        policy = make_policy("echelon", judge=asked_for)
        assert isinstance(policy, judges.OpenToJudges)
        assert isinstance(policy, Echelon)
        policy.offer("mine", Favouring(SRPT))
        policy.best_plan(JOBS, FABRIC)
        [decision] = policy.choices.values()
        assert decision.choice is not None
        assert decision.choice.judge == expected


@pytest.mark.parametrize("parameters", [{}, {"judge": "auto"}])
def test_the_model_judges_where_nobody_is_offered(parameters: Mapping[str, object]) -> None:
    choice, _ = best_policy(**parameters)
    assert choice.judge == "model"
    assert choice.unjudged is None


def test_an_unknown_judge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, {})
    with pytest.raises(PolicyChoiceError, match="unknown judge 'packet' "):
        make_policy("echelon", judge="packet")
    with pytest.raises(PolicyChoiceError, match=r"echelon-p4\[lab\]"):
        make_policy("echelon", judge="packets")


def test_a_judge_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, {"mine": EntryPoint("mine", "no_such_module:Judge", judges.GROUP)})
    with pytest.raises(PlanError, match=r"judge 'mine' of .* cannot be used"):
        best_policy(judge="mine")
