"""The kinds of change: all are listed, and the machine needs to know none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest

from echelon.controller import changes
from echelon.controller.changes import (
    ChoosePolicy,
    MoveLinks,
    RegisterJob,
    RemoveJob,
    ReportConnections,
    ReportDistances,
    SetLink,
    TurnLinks,
)
from echelon.controller.machine.change import AppliedChange, ChangeRequest, ControllerState
from echelon.controller.machine.errors import RefusedError
from echelon.controller.machine.facts import Fact, StoryLines, of_all
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import parse_job
from echelon.controller.machine.jobstore import ChosenPolicy, JobStore
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes
from echelon.controller.machine.wiring import Wiring
from echelon.model.fabric.load import FabricSpec
from tests.echelon.control.world import TWO_BY_TWO, World, ring, two_by_two

JOB = ring("a", "h1", "h3")
WIRING = Wiring(two_by_two())
CONNECTION = ("tcp", "10.0.0.1", "10.0.0.3", 5000, 5001)

TRAIL: Sequence[tuple[ChangeRequest, tuple[str, str] | None]] = [
    (RegisterJob(1, JOB, parse_job(JOB), replace=False), ("register job", "a")),
    (RegisterJob(1, JOB, parse_job(JOB), replace=True), ("replace job", "a")),
    (RemoveJob(1, "a"), ("remove job", "a")),
    (ReportDistances(1, "a", "e", (Fraction(0),)), ("report distances", "a e")),
    (ReportConnections(1, "a", "h1", (CONNECTION,)), None),
    (
        ChoosePolicy(1, ChosenPolicy("echelon", {"order": "setf"})),
        ("choose policy", "echelon order=setf"),
    ),
    (SetLink(1, "leaf1", "spine1", drained=True), ("drain link", "leaf1 - spine1")),
    (SetLink(1, "leaf1", "spine1", drained=False), ("restore link", "leaf1 - spine1")),
    (MoveLinks(1, FabricSpec.model_validate(TWO_BY_TWO)), ("move links", "two_by_two")),
    (TurnLinks(1, WIRING, WIRING), ("links moved", "by hand")),
]
"""The words of the audit trail for each kind of change.

Programs read them, so they must not change.
"""


@pytest.mark.parametrize(("request_", "entry"), TRAIL)
def test_the_audit_trail_of_each_kind(
    request_: ChangeRequest, entry: tuple[str, str] | None
) -> None:
    assert request_.trail_entry() == entry


def test_every_kind_is_in_the_list() -> None:
    assert {type(request).__name__ for request, _ in TRAIL} == set(changes.__all__)


@dataclass(frozen=True, slots=True)
class LimitRaised(Fact):
    """The limit of jobs is another one."""

    most: int

    def story(self) -> StoryLines:
        return of_all(f"there may be {self.most} jobs")


@dataclass(frozen=True, slots=True)
class RaiseLimit(ChangeRequest):
    """A kind of change that the controller does not have."""

    most: int

    def check(self, state: ControllerState, now: Instant) -> int:
        if self.most < len(state.jobs.jobs):
            raise RefusedError("there are more jobs already", "most")
        return self.most

    def to_save(self, target: int, jobs: JobStore) -> Changes:
        return Changes({("settings", "limit"): {"most": target}})

    def apply(self, target: int, state: ControllerState, now: Instant) -> AppliedChange:
        return AppliedChange(target, [LimitRaised(target)])

    def planned(self, target: int, before: PlanRequest, jobs: JobStore) -> PlanRequest:
        return before

    def trail_entry(self) -> tuple[str, str]:
        return "raise limit", str(self.most)


@pytest.fixture
def world() -> World:
    world = World(two_by_two())
    world.start()
    world.register(JOB)
    world.run()
    return world


def test_a_new_kind_goes_through_all_steps(world: World) -> None:
    request = world.carry_out_change(lambda number: RaiseLimit(number, 7))
    assert request not in world.answers, "it is not saved yet"
    world.run()
    assert world.answer(request) == 7
    assert world.store.load()["settings"]["limit"] == {"most": 7}
    assert world.facts[-1] == LimitRaised(7)
    kinds = [record.kind for record in world.machine.story("a")]
    assert "LimitRaised" in kinds


def test_a_new_kind_may_be_refused(world: World) -> None:
    request = world.carry_out_change(lambda number: RaiseLimit(number, 0))
    assert world.error(request).path == "most"
    assert world.pending == []


def test_a_new_kind_may_be_tried(world: World) -> None:
    request = world.dry_run(lambda number: RaiseLimit(number, 7))
    world.run()
    assert world.answer(request).differences == ()
    assert "limit" not in world.store.load()["settings"]
