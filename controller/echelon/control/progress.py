"""The progress of every job: in the store, in a plan, on the switches. Pure bookkeeping; callers give the times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from echelon.control.lines import ChangeTimes, JobLine, JobStanding, PendingChange, SwitchLine
from echelon.plan import FlowPlan

JobState = Literal["accepted", "planned", "installed", "unplanned"]
"""accepted: in the store. planned: part of the plan in force. installed: acknowledged by every switch that its flows
pass (a switch that restarts or is cut off has not acknowledged until it is back). unplanned: the policy or lowering
refuses the job; the last good plan holds, and the problem says why."""


@dataclass
class Progress:
    """The progress of all jobs over the switches of one fabric."""

    jobs: Mapping[str, JobLine]
    switches: Mapping[str, SwitchLine]
    _pending: set[str] = field(default_factory=set)
    """Jobs with a change that is planned and not on every switch yet."""
    _counts: Mapping[JobState, int] | None = None
    """The number of jobs by state; None: something has happened since they were counted."""

    def accepted(self, name: str, now_s: float) -> None:
        """Note that a new or changed job is saved."""
        self._counts = None
        standing = self.jobs[name].standing
        standing.change = PendingChange(now_s)
        standing.version = None
        standing.problem = None
        self._pending.discard(name)

    def removed(self, name: str) -> None:
        """Forget a job, which has no line any more."""
        self._counts = None
        self._pending.discard(name)

    def planned(
        self,
        version: int,
        flows: Mapping[str, tuple[FlowPlan, ...]],
        problems: Mapping[str, str],
        current: Iterable[str],
        *,
        began_s: float,
        policy_s: float,
        lowering_s: float,
    ) -> None:
        """Note that the intents of `version` are in force.

        `flows`: by job in the plan. `current`: jobs that have not changed since planning began; of other jobs the plan
        holds a former self.
        """
        self._counts = None
        for name in current:
            standing = self.jobs[name].standing
            standing.problem = problems.get(name)
            of_job = flows.get(name)
            if of_job is None:
                standing.version, standing.flows = None, ()
                if standing.change is not None:
                    # The change stays under way until there is room for the job.
                    standing.change = PendingChange(standing.change.accepted_s)
                self._pending.discard(name)
                continue
            if standing.flows is not of_job or standing.version is None:
                standing.version = version
                standing.flows = of_job
                standing.switches = frozenset(node for flow in of_job for node in flow.path[1:-1])
            change = standing.change
            if change is not None and change.planning_s is None:
                change.planning_s, change.policy_s, change.lowering_s = began_s, policy_s, lowering_s
                self._pending.add(name)

    def failed(self, problem: str, current: Iterable[str]) -> None:
        """Note that there is no new plan; those of `current` that no plan has yet are unplanned."""
        self._counts = None
        for name in current:
            standing = self.jobs[name].standing
            if standing.version is None:
                standing.problem = problem

    def acknowledged(
        self, switch: str, version: int, *, encoding_s: float, rpc_s: float, now_s: float, at: float
    ) -> list[str]:
        """Note that a switch holds the intent of `version`. Return the jobs whose change is complete with that.

        `at`: the same moment in seconds since the epoch.
        """
        self._counts = None
        self.switches[switch].acknowledge(version)
        done = []
        for name in sorted(self._pending):
            standing = self.jobs[name].standing
            assert standing.version is not None
            assert standing.change is not None
            if switch not in standing.switches or standing.version > version:
                continue
            change = standing.change
            change.encoding_s += encoding_s
            change.rpc_s = max(change.rpc_s, rpc_s)
            if self._is_installed(standing):
                standing.times, standing.change, standing.installed_at = change.times(now_s), None, at
                self._pending.discard(name)
                done.append(name)
        return done

    def refused(self, switch: str, problem: str) -> None:
        """Note that a switch refuses part of its intent."""
        self._counts = None
        self.switches[switch].refuse(problem)

    def lost(self, switch: str) -> None:
        """Note that there is no session with a switch, so that its entries are not known."""
        self._counts = None
        self.switches[switch].lose()

    def state(self, name: str) -> tuple[JobState, str | None]:
        """Return the state of an accepted job, and its problem if it has one."""
        standing = self.jobs[name].standing
        if standing.version is None:
            return ("unplanned", standing.problem) if standing.problem else ("accepted", None)
        if self._is_installed(standing):
            return "installed", None
        refusals = (self.switches[switch].refusal for switch in standing.switches)
        return "planned", next((one for one in refusals if one is not None), None)

    def counts(self) -> Mapping[JobState, int]:
        """Return the number of jobs in each state that some job is in."""
        if self._counts is None:
            self._counts = Counter(self.state(name)[0] for name in self.jobs)
        return self._counts

    def settled(self, name: str) -> bool:
        """Return whether waiting for the job is over: it is installed, or cannot be."""
        return self.state(name)[0] in ("installed", "unplanned")

    def times(self, name: str) -> tuple[ChangeTimes | None, float | None]:
        """Return the times of the last complete change, and when it was complete (seconds since the epoch)."""
        standing = self.jobs[name].standing
        return standing.times, standing.installed_at

    def _is_installed(self, standing: JobStanding) -> bool:
        version = standing.version
        return version is not None and all(self.switches[s].surely_holds(version) for s in standing.switches)
