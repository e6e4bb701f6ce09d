"""Plans that fail: the last good one holds, and only the jobs at fault are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.controller.machine.decisions import DecisionDue
from echelon.controller.machine.jobs import RegisteredJob, from_document
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import Planner, PlanningError, PlanRequest
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.fabric.model import Fabric
from echelon.planning.policies import policy_names
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.varys import Varys
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.drawing import examples
from tests.echelon.policies.registering import register
from tests.echelon.service.lab import TWO_BY_TWO, ring
from tests.faults import coded

ECHELON = ChosenPolicy("echelon")


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build_fabric(FabricSpec.model_validate(TWO_BY_TWO))


def planner(fabric: Fabric, **limited: int) -> Planner:
    of_all: Capabilities = replace(softswitch(), **limited)
    return Planner(dict.fromkeys(fabric.switches, of_all))


def job(name: str, *workers: str, number: int = 1, compute: str = "10 ms") -> RegisteredJob:
    spec = ring(name, list(workers), compute=compute)
    return from_document(
        {"number": number, "accepted_at": float(number), "spec": spec, "offsets_s": {}}
    )


def test_without_jobs_there_is_a_plan_under_every_policy(fabric: Fabric) -> None:
    for policy in policy_names():
        planned = planner(fabric).plan(PlanRequest((), fabric, ChosenPolicy(policy)))
        assert planned.plan.flows == ()
        assert all(intent.entries for intent in planned.intents.values()), "routes for everybody"


def test_a_job_that_does_not_fit_is_left_out(fabric: Fabric) -> None:
    """A ring of two has 4 flows, and one switch holds 10 here: the third job is too many."""
    small = planner(fabric, max_flows=10)
    jobs = tuple(job(f"j{n}", "h1", "h2", number=n) for n in range(1, 4))
    planned = small.plan(PlanRequest(jobs, fabric, ECHELON))
    assert [one.name for one in planned.registered] == ["j1", "j2"]
    assert set(planned.problems) == {"j3"}
    assert "leaf1" in planned.problems["j3"]
    # Elsewhere there is room.
    elsewhere = job("j4", "h3", "h4", number=4)
    again = small.plan(PlanRequest((*jobs, elsewhere), fabric, ECHELON))
    assert [one.name for one in again.registered] == ["j1", "j2", "j4"]
    assert set(again.problems) == {"j3"}
    assert again.version > planned.version
    # When one has left, and the switch has let go of it, the third fits.
    small.plan(PlanRequest((jobs[0], elsewhere), fabric, ECHELON))
    for switch in fabric.switches:
        small.settle(switch, small.version)
    last = small.plan(PlanRequest((jobs[0], jobs[2], elsewhere), fabric, ECHELON))
    assert last.problems == {}


def test_many_jobs_at_fault_are_found(fabric: Fabric) -> None:
    small = planner(fabric, max_flows=24)
    good = [job(f"g{n}", "h1", "h2", number=n) for n in range(1, 7)]
    bad = [job(f"b{n}", "h1", "h2", "h3", "h4", number=10 + n) for n in range(9)]
    mixed = [one for pair in zip(bad, good, strict=False) for one in pair]
    planned = small.plan(PlanRequest(tuple(good), fabric, ECHELON))
    assert planned.problems == {}
    planned = small.plan(PlanRequest(tuple(mixed), fabric, ECHELON))
    assert [one.name for one in planned.registered] == [one.name for one in good]
    assert set(planned.problems) == {one.name for one in mixed} - {one.name for one in good}


def test_a_job_whose_host_is_gone_is_left_out(fabric: Fabric) -> None:
    planned = planner(fabric).plan(
        PlanRequest((job("a", "h1", "h9"), job("b", "h1", "h2", number=2)), fabric, ECHELON)
    )
    assert [one.name for one in planned.registered] == ["b"]
    assert "'h9' is not a host of fabric 'two_by_two'" in planned.problems["a"]


CUT = (("leaf1", "spine1"), ("leaf1", "spine2"))


def test_a_job_without_a_path_leaves_the_plan_and_holds_up_nobody(fabric: Fabric) -> None:
    keeps = planner(fabric)
    across, here, new = (
        job("a", "h1", "h3"),
        job("b", "h1", "h2", number=2),
        job("c", "h3", "h4", number=3),
    )
    keeps.plan(PlanRequest((across, here), fabric, ECHELON))
    cut = fabric.without(CUT)
    planned = keeps.plan(PlanRequest((across, here, new), cut, ECHELON))
    assert [one.name for one in planned.registered] == ["b", "c"]
    assert planned.problems.keys() == {"a"}
    assert planned.plan.by_job.keys() == {"b", "c"}
    # Changes of the others go on, and the job is back with its path.
    assert keeps.plan(PlanRequest((across, new), cut, ChosenPolicy("fair"))).plan.by_job.keys() == {
        "c"
    }
    again = keeps.plan(PlanRequest((across, new), fabric, ECHELON))
    assert again.problems == {}
    assert [one.name for one in again.registered] == ["a", "c"]


def test_jobs_that_are_all_without_a_path_leave_the_plan(fabric: Fabric) -> None:
    keeps = planner(fabric)
    jobs = (job("a", "h1", "h3"),)
    before = keeps.plan(PlanRequest(jobs, fabric, ECHELON))
    assert keeps.plan(PlanRequest(jobs, fabric.without(CUT), ECHELON)).plan.flows == ()
    after = keeps.plan(PlanRequest(jobs, fabric, ECHELON))
    assert {name: intent.entries for name, intent in after.intents.items()} == {
        name: intent.entries for name, intent in before.intents.items()
    }


def test_a_restart_leaves_out_the_same_jobs(fabric: Fabric) -> None:
    """Two of three jobs fit, the younger two because they came first.

    A restart must not prefer the oldest.
    """
    first = planner(fabric, max_flows=10)
    jobs = tuple(job(f"j{n}", "h1", "h2", number=n) for n in range(1, 4))
    fits = first.plan(PlanRequest(jobs[1:], fabric, ECHELON))
    before = first.plan(PlanRequest(jobs, fabric, ECHELON))
    assert before.problems.keys() == {"j1"}
    kept = {**fits.kept, **before.kept}
    second = planner(fabric, max_flows=10)
    second.restore(
        {name: document for name, document in kept.items() if document},
        before.carried or fits.carried,
    )
    after = second.plan(PlanRequest(jobs, fabric, ECHELON))
    assert after.problems.keys() == {"j1"}
    assert {name: set(intent.entries) for name, intent in after.intents.items()} == {
        name: set(intent.entries) for name, intent in before.intents.items()
    }


def test_a_policy_that_breaks_is_an_error_and_is_made_anew(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Breaks:
        name = "breaks"

        Parameters = NoParameters

        def __init__(self, _parameters: NoParameters) -> None:
            made.append(self)

        def plan(self, jobs: object, fabric: object, paths: object) -> object:
            raise ZeroDivisionError("a slip")

    register(monkeypatch, "breaks", Breaks)
    keeps = planner(fabric)
    for _ in range(2):
        breaks = coded("plan-impossible", "policy breaks ", "ZeroDivisionError: a slip", job=None)
        with pytest.raises(PlanningError, check=breaks):
            keeps.plan(PlanRequest((), fabric, ChosenPolicy("breaks")))
    assert len(made) == 2


def test_unchanged_jobs_are_the_same_objects(fabric: Fabric) -> None:
    keeps = planner(fabric)
    jobs = tuple(job(f"j{n}", "h1", "h3", number=n) for n in range(1, 5))
    before = keeps.plan(PlanRequest(jobs[:3], fabric, ECHELON))
    after = keeps.plan(PlanRequest(jobs, fabric, ECHELON))
    for name in ("j1", "j2", "j3"):
        assert after.plan.by_job[name] is before.plan.by_job[name]
    assert set(after.kept) == {"j4"}


def test_paths_stay_when_the_policy_changes(fabric: Fabric) -> None:
    keeps = planner(fabric)
    jobs = tuple(job(f"j{n}", "h1", "h3", number=n) for n in range(1, 5))
    keeps.plan(PlanRequest(jobs, fabric, ECHELON))
    before = keeps.plan(PlanRequest(jobs[1:], fabric, ECHELON))
    for policy in ("fifo", "fair", "varys"):
        after = keeps.plan(PlanRequest(jobs[1:], fabric, ChosenPolicy(policy)))
        assert {(f.job, f.flow): f.path for f in after.plan.flows} == {
            (f.job, f.flow): f.path for f in before.plan.flows
        }


def test_numbers_and_paths_survive_a_restart(fabric: Fabric) -> None:
    first = planner(fabric)
    jobs = tuple(job(f"j{n}", "h1", "h3", number=n) for n in range(1, 5))
    documents: dict[str, Any] = {}
    carried = None
    for some in (jobs[:2], jobs, jobs[1:], (jobs[1], jobs[3])):
        planned = first.plan(PlanRequest(tuple(some), fabric, ECHELON))
        documents |= planned.kept
        carried = planned.carried or carried
    second = planner(fabric)
    second.restore({name: document for name, document in documents.items() if document}, carried)
    again = second.plan(PlanRequest((jobs[1], jobs[3]), fabric, ECHELON))
    for name, intent in planned.intents.items():
        assert set(again.intents[name].entries) == set(intent.entries)


CHOICES = [
    *map(ChosenPolicy, policy_names()),
    *(ChosenPolicy("echelon", {"order": order}) for order in ("normalised", "deadline", "setf")),
    ChosenPolicy("echelon", {"paths": "crux", "shifts": "cassini"}),
    ChosenPolicy("cassini", {"enforce": "hosts"}),
]


@pytest.mark.parametrize("policy", CHOICES, ids=str)
@settings(max_examples=examples(8), deadline=None)
@given(presences=st.lists(st.sets(st.sampled_from(range(5)), min_size=1), min_size=1, max_size=4))
def test_a_restart_changes_no_plan(policy: ChosenPolicy, presences: list[set[int]]) -> None:
    """Jobs of unequal length come and go; then the same ones are planned again, by one who knows
    what was saved.
    """
    fabric = build_fabric(FabricSpec.model_validate(TWO_BY_TWO))
    jobs = [job(f"j{n}", "h1", "h3", number=n + 1, compute=f"{10 * 2**n} ms") for n in range(5)]
    first = planner(fabric)
    documents: dict[str, Any] = {}
    carried = None
    for present in presences:
        wanted = PlanRequest(tuple(jobs[n] for n in sorted(present)), fabric, policy)
        planned = first.plan(wanted)
        documents |= planned.kept
        carried = planned.carried if planned.carried is not None else carried
    second = planner(fabric)
    second.restore(
        {name: document for name, document in documents.items() if document},
        json.loads(json.dumps(carried)),
    )
    again = second.plan(wanted)
    assert again.plan.by_job == planned.plan.by_job
    assert again.carried is None
    for name, intent in planned.intents.items():
        assert set(again.intents[name].entries) == set(intent.entries)


def test_what_another_version_of_a_policy_carried_is_no_obstacle(fabric: Fabric) -> None:
    keeps = planner(fabric)
    keeps.restore({}, {"name": "fair", "parameters": {}, "carried": {"first": {"j1": 99}}})
    assert keeps.plan(
        PlanRequest((job("j1", "h1", "h2"),), fabric, ChosenPolicy("fair"))
    ).plan.by_job.keys() == {"j1"}


def test_a_job_that_is_replaced_by_one_that_does_not_fit_keeps_nobody_waiting(
    fabric: Fabric,
) -> None:
    small = planner(fabric, max_flows=10)
    one, other, new = (job(f"j{n}", "h1", "h2", number=n) for n in range(1, 4))
    elsewhere = job("elsewhere", "h3", "h4", number=4)
    small.plan(PlanRequest((one, other), fabric, ECHELON))
    # 24 flows at a switch that takes 10.
    one = job("j1", "h1", "h2", "h3", "h4")
    planned = small.plan(PlanRequest((one, other, elsewhere), fabric, ECHELON))
    assert set(planned.problems) == {"j1"}
    assert [job.name for job in planned.registered] == ["j2", "elsewhere"]
    for switch in fabric.switches:
        small.settle(switch, planned.version)
    planned = small.plan(PlanRequest((one, other, elsewhere, new), fabric, ECHELON))
    assert set(planned.problems) == {"j1"}


def test_a_job_that_lowering_breaks_at_is_left_out(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the planning of one job must not end the service, which would meet the same job
    again and again.
    """
    keeps = planner(fabric)
    good = job("good", "h1", "h2")
    keeps.plan(PlanRequest((good,), fabric, ECHELON))
    real = RegisteredJob.identities

    def breaks(self: RegisteredJob, fabric: Fabric) -> object:
        if self.name == "bad":
            raise ZeroDivisionError("a slip")
        return real(self, fabric)

    monkeypatch.setattr(RegisteredJob, "identities", breaks)
    planned = keeps.plan(PlanRequest((good, job("bad", "h1", "h3", number=2)), fabric, ECHELON))
    assert planned.problems == {"bad": "lowering failed: ZeroDivisionError: a slip"}
    with pytest.raises(PlanningError):
        planner(fabric).react(
            DecisionDue(Fraction(), (), {}),
            replace(planned, policy=Varys(), registered=(job("bad", "h1", "h3", number=2),)),
            fabric,
        )


def test_halving_takes_no_longer_for_the_names_of_many_jobs(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are found by name, not by comparing each with each."""
    compared = 0

    def equal(self: RegisteredJob, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(RegisteredJob, "__eq__", equal)
    small = planner(fabric, max_flows=400)
    jobs = tuple(job(f"j{n}", "h1", "h2", number=n + 1) for n in range(120))
    planned = small.plan(PlanRequest(jobs, fabric, ECHELON))
    assert len(planned.registered) == 100
    assert compared == 0
