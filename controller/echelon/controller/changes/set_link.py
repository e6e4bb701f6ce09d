"""A client drains or restores a link."""

from __future__ import annotations

from dataclasses import dataclass, replace

from echelon.controller.changes.lost_paths import lost_paths
from echelon.controller.machine.change import (
    AppliedChange,
    ChangeRequest,
    ControllerState,
    TrailEntry,
)
from echelon.controller.machine.errors import RefusedError, UnknownError
from echelon.controller.machine.facts import Fact, LogLine, StoryLines, of_all
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes
from echelon.controller.machine.wiring import LinkEnds, ends_of, links_of

DrainedLinks = frozenset[LinkEnds]


@dataclass(frozen=True, slots=True)
class LinkChanged(Fact):
    """A link was drained or restored."""

    link: str
    drained: bool

    def story(self) -> StoryLines:
        state = "drained" if self.drained else "restored"
        return of_all(f"link {self.link} is {state}")

    def log_line(self) -> LogLine:
        state = "drained" if self.drained else "up"
        return "link changed", {"link": self.link, "state": state}


@dataclass(frozen=True, slots=True)
class SetLink(ChangeRequest):
    """A client drains or restores the link between two nodes.

    Its target is all drained links as they will be.
    """

    a: str
    b: str
    drained: bool
    force: bool = False
    """Whether to drain it even if jobs have no other path."""

    def check(self, state: ControllerState, now: Instant) -> DrainedLinks:
        jobs = state.jobs
        fabric = jobs.whole_fabric
        link = ends_of(self.a, self.b)
        if link not in links_of(fabric):
            raise UnknownError(
                f"there is no link between '{self.a}' and '{self.b}' in fabric '{fabric.name}'",
                code="unknown-link",
            )
        if self.a in fabric.hosts or self.b in fabric.hosts:
            raise RefusedError(
                "the only link of a host cannot be drained (remove the jobs of that host instead)",
                code="unconnected",
            )
        if not self.drained:
            return jobs.drained - {link}
        if not self.force and link not in jobs.drained:
            self._check_paths(link, jobs)
        return jobs.drained | {link}

    def to_save(self, target: DrainedLinks, jobs: JobStore) -> Changes:
        return jobs.change_links(target)

    def apply(
        self,
        target: DrainedLinks,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        state.jobs.use_links(target)
        changed = LinkChanged(f"{self.a}-{self.b}", self.drained)
        return AppliedChange(ends_of(self.a, self.b), [changed])

    def planned(
        self,
        target: DrainedLinks,
        before: PlanRequest,
        jobs: JobStore,
    ) -> PlanRequest:
        return replace(before, fabric=jobs.fabric_without(target))

    def trail_entry(self) -> TrailEntry:
        action = "drain link" if self.drained else "restore link"
        return action, f"{self.a} - {self.b}"

    def _check_paths(self, link: LinkEnds, jobs: JobStore) -> None:
        """Raise `RefusedError` if jobs that have paths would have none without the link."""
        out = jobs.drained | jobs.down
        before = jobs.whole_fabric.without(out)
        after = jobs.whole_fabric.without(out | {link})
        lost = lost_paths(jobs, before, after)
        if lost is not None:
            raise RefusedError(
                f"without the link between '{self.a}' and '{self.b}', {lost} (remove them first,"
                " or force it)",
                code="no-route",
            )
