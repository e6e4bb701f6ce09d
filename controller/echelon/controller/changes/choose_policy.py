"""A client chooses a policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from echelon.controller.machine.change import (
    AppliedChange,
    ChangeRequest,
    ControllerState,
    TrailEntry,
)
from echelon.controller.machine.facts import Fact, LogLine, StoryLines, of_all
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobstore import ChosenPolicy, JobStore
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes


@dataclass(frozen=True, slots=True)
class PolicyChosen(Fact):
    """Another policy is saved."""

    policy: str

    def story(self) -> StoryLines:
        return of_all(f"policy {self.policy} is chosen")

    def log_line(self) -> LogLine:
        return "policy changed", {"policy": self.policy}


@dataclass(frozen=True, slots=True)
class ChoosePolicy(ChangeRequest):
    """A client chooses a policy, which is known to exist."""

    policy: ChosenPolicy

    def check(self, state: ControllerState, now: Instant) -> None:
        """Refuse nothing: the API has checked the policy and its parameters."""

    def to_save(self, target: None, jobs: JobStore) -> Changes:
        return jobs.change_policy(self.policy)

    def apply(
        self,
        target: None,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        state.jobs.use_policy(self.policy)
        return AppliedChange(self.policy, [PolicyChosen(str(self.policy))])

    def planned(
        self,
        target: None,
        before: PlanRequest,
        jobs: JobStore,
    ) -> PlanRequest:
        return replace(before, policy=self.policy)

    def trail_entry(self) -> TrailEntry:
        parameters = (f"{key}={value}" for key, value in self.policy.parameters.items())
        return "choose policy", " ".join([self.policy.name, *parameters])
