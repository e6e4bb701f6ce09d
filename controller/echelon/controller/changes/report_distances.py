"""A client reports the arrangement function of an EchelonFlow."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from echelon.controller.changes.job_change import JobChange, keep
from echelon.controller.machine.change import AppliedChange, ControllerState, TrailEntry
from echelon.controller.machine.facts import Fact, LogLine
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob


@dataclass(frozen=True, slots=True)
class DistancesReported(Fact):
    """A client reported an arrangement function."""

    job: str
    echelonflow: str

    def log_line(self) -> LogLine:
        return "distances reported", {"job": self.job, "echelonflow": self.echelonflow}


@dataclass(frozen=True, slots=True)
class ReportDistances(JobChange):
    """A client reports the arrangement function of an EchelonFlow, in seconds."""

    job: str
    echelonflow: str
    offsets_s: tuple[Fraction, ...]

    builds_graph: ClassVar[bool] = True

    @property
    def queue(self) -> str:
        return self.job

    def check(self, state: ControllerState, now: Instant) -> RegisteredJob:
        return state.jobs.find(self.job).with_reported(self.echelonflow, self.offsets_s)

    def apply(
        self,
        target: RegisteredJob,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        keep(target, state, now)
        return AppliedChange(target, [DistancesReported(self.job, self.echelonflow)])

    def trail_entry(self) -> TrailEntry:
        return "report distances", f"{self.job} {self.echelonflow}"

    def story(self) -> str:
        return f"a client reports the arrangement function of {self.echelonflow}"
