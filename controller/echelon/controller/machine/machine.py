"""The controller as a state machine: it accepts jobs, makes plans, and keeps switches at them.

A change is checked, saved (now the client gets its answer) and planned. Then the numbers of the
plan are saved, its intents are installed and acknowledged, and the numbers of removed jobs are
freed. After a failure, all of this goes on from what was saved and from what the switches hold.

`Machine.handle` takes one event and returns what is to be done; it does nothing by itself. The
modules beside this one are its parts:

- `requests`: changes that clients ask for, and dry runs; `change` has their steps
- `jobstore`: the jobs, policy and links that were accepted
- `planning_turns`: one plan at a time, and searches for better plans; `planning` makes the plans,
  and `kept_plan` keeps one for the next start
- `rollout`: the steps in which switches get a plan
- `reactive`: decisions of reactive policies; `decisions` makes them
- `reports`: what switches report of jobs; `agents`: what hosts report of them
- `outages`: links that are down; `disturbances`: switches that others write to
- `moves`: links that move from port to port
- `lines`: the records that the parts share, one for each job and each switch
- `story`: what happened to each job lately
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

from echelon.controller.machine import change, effects, events, facts
from echelon.controller.machine.agents import check_iterations
from echelon.controller.machine.change import OWN, ChangeRequest
from echelon.controller.machine.disturbances import Disturbances
from echelon.controller.machine.effects import Effects
from echelon.controller.machine.errors import ServiceError, UnavailableError, UnknownError
from echelon.controller.machine.events import Event, Request
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.jobstore import ChosenPolicy, JobStore
from echelon.controller.machine.lines import Alone, JobLine, Progress, SwitchLine
from echelon.controller.machine.moves import Moves, MoveStep
from echelon.controller.machine.outages import Outages
from echelon.controller.machine.planning import CARRIED, Planned, Planner, PlanRequest
from echelon.controller.machine.planning_turns import RETRY_S, PlanPipeline, Searches
from echelon.controller.machine.reactive import Reactions
from echelon.controller.machine.records import Snapshot
from echelon.controller.machine.refusals import lacks_of, ports_without_service
from echelon.controller.machine.reports import Following
from echelon.controller.machine.requests import DryRuns, Requests
from echelon.controller.machine.rollout import Rollout
from echelon.controller.machine.story import Stories, StoryRecord
from echelon.controller.machine.wiring import Wiring
from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.trees import tree_plugin
from echelon.switches.southbound.events import (
    Acknowledged,
    DriftRepaired,
    HigherPrimary,
    IntentRefused,
    PortsChanged,
    PortsUnwatched,
    SwitchChanged,
    SwitchConnected,
)
from echelon.switches.telemetry.flow_log import FlowLog
from echelon.switches.telemetry.sizes import Measured, size_factors
from echelon.switches.telemetry.tracker import JobView

OVER = "this controller no longer leads (ask again: another one does)"


@dataclass(frozen=True)
class Settings:
    """The settings of the controller at its start."""

    fabric: Fabric
    policy: ChosenPolicy
    """The policy until a client chooses another one, which is saved."""
    max_jobs: int
    flows_per_job: int
    coalesce_s: float = 0.0
    """Changes within this time become one plan."""
    correct_sizes: bool = False
    """Whether sizes that hosts measured replace those of job files."""
    search_after_s: float = 0.0
    """The time between a plan and the search for a better one.

    Meanwhile switches are brought to the plan, and other changes may come.
    """
    search_again: bool = True
    """Whether a plan is searched for again where iterations take another time than predicted."""
    reroute: bool = True
    """Whether plans avoid links that are down."""
    reroute_after_s: float = 2.0
    """The time for which a switch does not answer, or a port is down, before its links are down."""
    audit_s: float = 30.0
    """The longest time between two audits of a switch."""
    moved_by_hand: bool = True
    """Whether a person moves links and says so; otherwise the shell has an optical switch."""
    starts_known: bool = False
    """Whether jobs begin when their graphs say, as those of a run do."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The plan in force."""

    planned: Planned
    adopted_at: float
    """Time at which the plan came into force, in seconds since the epoch."""


@dataclass(slots=True)
class _PlanState:
    """The progress of planning with what was accepted.

    It counts in generations of the `JobStore`; -1: none.
    """

    seen: int = -1
    """The newest that a plan was wanted for."""
    planning: int = -1
    """The one that the plan under way has seen."""
    began_s: float = 0.0
    """The time at which that plan was begun."""
    planned: int = -1
    """The one that the last plan has seen, whether it came into force or failed."""

    def begin(self, generation: int, now_s: float) -> None:
        """Note that a plan is begun."""
        self.planning = generation
        self.began_s = now_s

    def end(self) -> None:
        """Note that the plan under way is in force, or has failed."""
        self.planned = self.planning


class Machine:
    """The controller of one term of leadership.

    `echelon.controller.machine.effects` says what its shell promises. Attributes are for reading.
    Raises `DocumentError` for a saved job, and `ValueError` for saved numbers, that cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        planner: Planner,
        snapshot: Snapshot,
        now: Instant,
    ) -> None:
        self.jobs = JobStore(settings.fabric, settings.policy, settings.max_jobs)
        self._switches = {name: SwitchLine() for name in settings.fabric.switches}
        self.progress = Progress(self.jobs.lines, self._switches)
        self.in_force: InForce | None = None
        self.outages = Outages(settings.fabric, settings.reroute_after_s)
        self.outages_waiting = False
        """Whether there are outages that came while the planner was busy.

        The next plan has all of them: what an outage costs grows with the fabric.
        """
        self.disturbances = Disturbances(settings.audit_s)
        self._settings = settings
        self._following = Following()
        self._pipeline = PlanPipeline(planner)
        self._rollout = Rollout()
        self._reactions = Reactions()
        self.searches = Searches(
            after_s=settings.search_after_s,
            judges=settings.search_again,
        )
        self.moves = Moves(settings.moved_by_hand)
        self._requests = Requests(
            self.jobs, self.progress, settings.flows_per_job, self.moves.is_switching
        )
        self._dry_runs = DryRuns(self.jobs, self._requests)
        self._waiters: dict[int, str] = {}
        """The job that the client waits for, by request."""
        self._problem: str | None = None
        """The reason why the plan in force does not carry out everything that was accepted."""
        self._over = False
        self._wanted: Literal["no", "coalescing", "now"] = "no"
        """Whether there is something to plan.

        While coalescing, whatever else comes is part of the same plan.
        """
        self._plans = _PlanState()
        self._decision_next = False
        """Plans and decisions take turns where both wait."""
        self._made_again: PlanRequest | None = None
        """The plan in force, while it is from before a restart and has to be made again."""
        self._untimed: set[str] = set()
        """Installed jobs of such a plan, whose times alone are found out with the next one."""
        self._stories = Stories()
        self.jobs.restore(snapshot)
        self._saved_generation = self.jobs.generation
        planner.restore(snapshot["numbers"], snapshot["settings"].get(CARRIED))
        for name in self.jobs.jobs:
            self.progress.accepted(name, now.s)
        self._stories.restore(self.jobs.jobs, now)

    # -- for reading -------------------------------------------------------------------------------

    @property
    def plan_problem(self) -> str | None:
        """The reason why the newest jobs, policy or fabric have no plan; None: they have one."""
        return self._pipeline.problem or self._problem

    def tree_documents(self, job: str) -> list[dict[str, Any]]:
        """Return what the hosts of a job's trees have to know, by the plan in force."""
        if self.in_force is None:
            return []
        trees = self.in_force.planned.trees.get(job, ())
        if not trees:
            return []
        plugin = tree_plugin(job)
        return [dict(plugin.host_document(tree, self.jobs.fabric)) for tree in trees]

    def ranked_at_hosts(self, job: str) -> list[dict[str, Any]]:
        """Return how the senders of a job rank by the plan in force, where switches do not."""
        if self.in_force is None:
            return []
        rules = self.in_force.planned.at_hosts.get(job, ())
        return [rule.to_document() for rule in rules]

    @property
    def settled(self) -> bool:
        """Whether nothing is under way.

        The plan has all that was accepted, then, and the switches hold it.
        """
        if self.in_force is None or not self._is_planned:
            return False
        return self._hold(self.in_force.planned.version)

    @property
    def _is_planned(self) -> bool:
        """Whether the last plan has all that was accepted, and knows of all outages."""
        return self.jobs.generation == self._plans.planned and not self.outages_waiting

    @property
    def lasting(self) -> Planned | None:
        """The plan in force, if a restart would make the same; None: it would not, or might not."""
        jobs = self.jobs
        is_busy = self._wanted != "no" or self._pipeline.work is not None
        if is_busy or not self.settled:
            return None
        if jobs.down or jobs.wiring.avoided or self._problem is not None:
            return None
        are_corrected = any(job.size_factors for job in jobs.jobs.values())
        if self.in_force is None or are_corrected:
            return None
        return self.in_force.planned

    @property
    def searching(self) -> bool:
        """Whether a better plan may come soon."""
        if self.searches.is_busy:
            return True
        return isinstance(self._pipeline.work, effects.ListSearches | effects.Improve)

    @property
    def is_over(self) -> bool:
        """Whether this term of leadership is over."""
        return self._over

    @property
    def reroutes(self) -> bool:
        """Whether plans avoid links that are down."""
        return self._settings.reroute

    def view(self, job: str) -> JobView | None:
        """Return what was seen of a job; None: the job is in no plan."""
        return self._following.view(job)

    def measured(self, job: RegisteredJob) -> Measured:
        """Return what the hosts of a job measured, if the job is as it was then."""
        line = self.jobs.lines.get(job.name)
        if line is None:
            return {}
        registered = line.registered
        if registered.spec is not job.spec or registered.number != job.number:
            return {}
        return line.measured

    @property
    def flow_log(self) -> FlowLog:
        """The flows that switches saw last."""
        return self._following.log

    def story(self, job: str) -> Sequence[StoryRecord]:
        """Return the last events and effects that concern a job, oldest first.

        The story of a job that was removed is remembered until there are too many.
        """
        line = self.jobs.lines.get(job)
        if line is None:
            return self._stories.read(job, None)
        return self._stories.read(job, line.standing.switches)

    def alone_iteration_s(self, job: str) -> float | None:
        """Return how long an iteration takes on an empty fabric (seconds).

        None: that is not computed yet.
        """
        alone = self._alone(job)
        if alone is None:
            return None
        return alone.duration_s

    def alone_tardiness_s(self, job: str) -> float | None:
        """Return the job's tardiness on an empty fabric (seconds).

        None: that is not computed yet.
        """
        alone = self._alone(job)
        if alone is None:
            return None
        return alone.tardiness_s

    def _alone(self, job: str) -> Alone | None:
        """Return what is known of a job alone, if the job is as it was then."""
        line = self.jobs.lines.get(job)
        if line is None or line.alone is None or line.alone.generation != line.generation:
            return None
        return line.alone

    # -- events ------------------------------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> Effects:
        """Return what to do about an event, in order."""
        # The event comes first: the story has it also if handling it fails.
        self._stories.note(event, now)
        if self._over:
            out = self._after_the_end(event, now)
        else:
            out = self._go_on(event, now)
        for effect in out:
            self._stories.note(effect, now)
        return out

    def _go_on(self, event: Event, now: Instant) -> Effects:
        out = self._react_to(event, now)
        if not self._over:
            out += self._advance(now)
        return out

    def _after_the_end(self, event: Event, now: Instant) -> Effects:
        """Answer clients once the term is over: changes on their way to the store may be saved."""
        match event:
            case events.Saved(int(request)):
                return self._requests.saved(request, now)
            case events.SaveFailed(int(request), error):
                return self._requests.failed(request, error, now)
            case _ if isinstance(event, Request):
                return [effects.Refuse(event.request, UnavailableError(OVER))]
        return []

    def _react_to(self, event: Event, now: Instant) -> Effects:
        match event:
            case events.Started():
                return [*self.outages.start(), *self._want_plan(), *self._forget_outdated(now)]
            case events.LeadershipLost():
                return self._end()
            case _ if isinstance(event, ChangeRequest):
                return self._requests.queue(event, now)
            case events.AwaitJob(request, job):
                self._waiters[request] = job
            case events.DryRun():
                return self._dry_runs.check(event, now)
            case events.ReportIterations():
                return self._measured(event)
            case events.StopWaiting(request):
                self._waiters.pop(request, None)
                self._dry_runs.forget(request)
            case events.JobBuilt(request, built) if request in self._dry_runs:
                return self._dry_runs.built(request, built)
            case events.JobBuilt(request, built):
                return self._requests.built(request, built, now)
            case events.Saved(None):
                self._pipeline.saved()
            case events.Saved(int(request)):
                return self._requests.saved(request, now)
            case events.SaveFailed(None, failure):
                return self._pipeline.save_failed(str(failure))
            case events.SaveFailed(change.OWN, failure):
                return [*self._requests.failed(OWN, failure, now), *self.moves.failed()]
            case events.SaveFailed(int(request), failure):
                return self._requests.failed(request, failure, now)
            case events.MoveAdvanced():
                news, step = self.moves.advanced(event)
                return [*news, *self._save_links(step, now)]
            case events.PlanMade(planned):
                return self._plan_made(planned)
            case events.PlanFailed(problem):
                return self._plan_failed(problem)
            case events.Rehearsed():
                self._pipeline.end()
                return self._dry_runs.compare(event, self._pipeline.planner)
            case events.ChangeCompared():
                return self._dry_runs.answer(event)
            case events.CountersRead(reading, switch, bytes_seen):
                return self._reactions.note_counters(reading, switch, bytes_seen)
            case events.CountersFailed(reading, switch, problem):
                return self._reactions.note_counters(reading, switch, None, problem)
            case events.SearchesListed():
                self._pipeline.end()
                return self.searches.listed(event)
            case events.SearchFound() | events.SearchFailed():
                self.searches.ended(event)
            case events.TimedAlone(job, alone):
                line = self.jobs.lines.get(job)
                if line is not None:
                    line.alone = alone
            case events.Alarm():
                return self._alarm(event, now)
            case _:
                return self._react_to_switch(event, now)
        return []

    def _react_to_switch(self, event: Event, now: Instant) -> Effects:
        """Handle news of a switch, or the outcome of raising the term."""
        match event:
            case SwitchConnected(switch):
                self._following.reconnected(switch)
            case SwitchChanged(switch, state):
                answers = state not in ("connecting", "away")
                alarms = self.outages.see_switch(switch, answers)
                return [*alarms, *self._switch_changed(event, now)]
            case PortsChanged(switch, down):
                return [*self.outages.see_ports(switch, down)]
            case Acknowledged(switch, version, encoding_s, rpc_s):
                self._pipeline.acknowledge(switch)
                return self._acknowledged(switch, version, encoding_s, rpc_s, now)
            case IntentRefused():
                return self._refused(event, now)
            case DriftRepaired():
                return self.disturbances.repaired(event, now)
            case PortsUnwatched():
                pass
            case events.Digests():
                return self._digests(event, now)
            case HigherPrimary():
                return self._contested(event, now)
            case events.TakeSwitch(switch):
                line = self._switches[switch]
                line.takeovers = 0
                if line.state == "backup" and line.taken_by is not None:
                    return [effects.RaiseTerm(switch, line.taken_by)]
            case events.TermSaved(term):
                return [effects.UseTerm(term)]
            case events.TermFailed(switch, election_id, problem, retry):
                not_raised = facts.TermNotRaised(switch, problem)
                if not retry:
                    return [not_raised]
                return [not_raised, _retry_term(switch, election_id, RETRY_S)]
            case _:
                raise TypeError(f"{event!r} is not an event of the controller")
        return []

    def _alarm(self, alarm: events.Alarm, now: Instant) -> Effects:
        match alarm.kind:
            case "coalesce" if self._wanted == "coalescing":
                self._wanted = "now"
            case "save":
                return self._pipeline.save_again()
            case "hold" if alarm.number == self._reactions.holding:
                return self._reactions.finish()
            case "search":
                self.searches.rested(alarm.number)
            case "term":
                return [effects.RaiseTerm(alarm.switch, alarm.number)]
            case "move":
                # The change of links that was not saved may be the one that forgets outdated
                # moves. `moves` does not know of that one, and would not save it again.
                orders, step = self.moves.retry(alarm.number)
                return [*orders, *self._save_links(step, now), *self._forget_outdated(now)]
            case "quiet":
                return self.disturbances.ring(alarm.switch, now)
            case "step":
                return self._rollout.ring(alarm.number, self._lacking)
            case "outage":
                return self._outage(alarm, now)
        return []

    def _outage(self, alarm: events.Alarm, now: Instant) -> Effects:
        """Take note that links are down, or up again."""
        fact = self.outages.ring(alarm.number, now)
        if fact is None:
            return []
        self.outages_waiting = True
        if not self.reroutes:
            # No plan has to avoid them.
            self._note_links_down()
        return [fact]

    def _reroute(self) -> None:
        """Have plans avoid the links that are down now."""
        self.outages_waiting = False
        if self._is_to_reroute:
            self.jobs.avoid_links(self.outages.links)
        else:
            self._note_links_down()

    @property
    def _is_to_reroute(self) -> bool:
        """Whether plans have to avoid other links than they do."""
        return self.reroutes and self.outages.links.keys() != self.jobs.down

    def _note_links_down(self) -> None:
        avoided = self.jobs.wiring.avoided
        self.progress.down = self.outages.problems(avoided, reroutes=self.reroutes)

    # -- links that move ---------------------------------------------------------------------------

    def _save_links(self, step: MoveStep | None, now: Instant) -> Effects:
        if step is None:
            return []
        return self._requests.queue(step, now)

    def _forget_outdated(self, now: Instant) -> Effects:
        """Forget moves that were saved before the fabric file had other links."""
        if not self.jobs.is_outdated:
            return []
        wiring = self.jobs.wiring
        return self._save_links(MoveStep(OWN, wiring, Wiring(wiring.now)), now)

    def _rewire(self, now: Instant) -> Effects:
        """Take up the links as they are saved now."""
        wiring = self.jobs.wiring
        out: Effects = []
        if wiring.now is not self.outages.fabric:
            self.outages.rewire(wiring.now)
            if self._is_to_reroute:
                self.jobs.avoid_links(self.outages.links)
            out += [
                self._time_alone(line)
                for line in self.jobs.lines.values()
                if line.alone is not None
            ]
        self.progress.move(wiring.avoided if wiring.begun else frozenset())
        return out + self.moves.follow(wiring, self.jobs.generation, now.s)

    def _time_alone(self, line: JobLine) -> effects.TimeAlone:
        return effects.TimeAlone(line.registered, line.generation, self.jobs.fabric)

    def _lacking(self, version: int, switches: Collection[str] | None = None) -> Sequence[str]:
        """Return which of these switches do not hold a version yet.

        None: which of all that can be reached. A switch that is down forwards nothing.
        """
        if switches is None:
            return [
                name
                for name, line in self._switches.items()
                if line.state in ("writing", "ready") and line.holds < version
            ]
        lacking = []
        for name in sorted(self._switches.keys() & switches):
            line = self._switches[name]
            holds = min(line.serves, line.cleared) >= version
            if not holds and not self.outages.is_down(name):
                lacking.append(name)
        return lacking

    def _end(self) -> Effects:
        """End the term: refuse all that can no longer be carried out."""
        self._over = True
        error = UnavailableError(OVER)
        out = self._requests.close(error) + self._dry_runs.close(error)
        out += [effects.Refuse(request, error) for request in self._waiters]
        self._waiters = {}
        return out

    # -- switches ----------------------------------------------------------------------------------

    def _switch_changed(self, event: SwitchChanged, now: Instant) -> Effects:
        """Take note of the state of a switch."""
        name = event.switch
        line = self._switches[name]
        line.state = event.state
        if event.state in ("connecting", "away", "backup"):
            self.progress.lost(name)
            return [*self.outages.see_refused(name, None)]
        if event.state == "refused" and event.problem is not None and not line.serves:
            # A refusal from before the session was lost happens again, and no `IntentRefused` tells
            # of it.
            return self._refused_as_a_whole(name, event.problem)
        if event.state == "ready" and event.holds is not None and event.holds == line.holds:
            # A switch that was away holds what it held before, and no `Acknowledged` tells of it.
            return self._acknowledged(name, event.holds, 0.0, 0.0, now)
        return []

    def _acknowledged(
        self,
        switch: str,
        version: int,
        encoding_s: float,
        rpc_s: float,
        now: Instant,
        refused: IntentRefused | None = None,
    ) -> Effects:
        """Take note that a switch holds its intent, but for the parts that it refuses."""
        parts = () if refused is None else refused.parts
        done = self.progress.acknowledged(
            switch,
            version,
            encoding_s=encoding_s,
            rpc_s=rpc_s,
            now=now,
            lacks=lacks_of(switch, parts, self.outages.fabric),
            refusal=None if refused is None else refused.problem,
        )
        out: Effects = [*self.outages.see_refused(switch, None)]
        out += self.outages.see_unserved(switch, ports_without_service(parts))
        out += self._tell_lacking(switch)
        for name in done:
            times, _ = self.progress.times(name)
            assert times is not None
            out.append(facts.JobInstalled(name, version, times.total_s))
            if self.alone_iteration_s(name) is None:
                out += self._time_installed(name)
        return out

    def _time_installed(self, name: str) -> Effects:
        """Find out how long a job takes alone, once its graph is built."""
        line = self.jobs.lines[name]
        if line.registered.graph is not None:
            return [self._time_alone(line)]
        self._untimed.add(name)
        return []

    def _refused(self, event: IntentRefused, now: Instant) -> Effects:
        """Take note of what a switch does not hold of its intent."""
        switch = event.switch
        if not event.parts:
            return self._refused_as_a_whole(switch, event.problem)
        out = self._acknowledged(switch, event.version, 0.0, 0.0, now, event)
        if event.is_clear:
            self._switches[switch].cleared = event.version
            self._pipeline.acknowledge(switch)
        return out

    def _refused_as_a_whole(self, switch: str, problem: str) -> Effects:
        self.progress.refused(switch, problem)
        return [*self.outages.see_refused(switch, problem), *self._tell_lacking(switch)]

    def _tell_lacking(self, switch: str) -> Effects:
        """Tell of the refusal of a switch, if it is another one than before."""
        line = self._switches[switch]
        if line.refusal == line.reported_refusal:
            return []
        line.reported_refusal = line.refusal
        return [facts.IntentLacking(switch, line.refusal)]

    def _hold(self, version: int) -> bool:
        """Return whether every switch that can be reached has acknowledged that version."""
        return not self._lacking(version)

    def _contested(self, event: HigherPrimary, now: Instant) -> Effects:
        """Take a switch back from another controller, now or later or not at all."""
        switch = event.switch
        election_id = event.election_id
        line = self._switches[switch]
        pause_s = line.take_over(now.s, election_id)
        out: Effects = [facts.TermContested(switch, election_id, line.takeovers, pause_s)]
        if not event.is_ours:
            out += self.disturbances.taken(switch, election_id, now)
        if pause_s is None:
            return out
        if pause_s > 0:
            return [*out, _retry_term(switch, election_id, pause_s)]
        return [*out, effects.RaiseTerm(switch, election_id)]

    def _digests(self, event: events.Digests, now: Instant) -> Effects:
        """Take a switch's report, and compare the iterations that it ends with predictions."""
        seen = self._following.note_digests(event.switch, event.digests, now)
        out: Effects = [*seen.facts]
        for fact in seen.facts:
            if isinstance(fact, facts.IterationTimed):
                alone_s = self.alone_iteration_s(fact.job)
                out += self.searches.timed(fact.job, fact.duration_s, alone_s)
        return out + self._reactions.queue_report(event.report, seen.events)

    def _starts_s(self, now: Instant) -> Mapping[str, float]:
        """Return when jobs will begin an iteration, in seconds after the end of a search.

        Jobs of which that is not known are left out.
        """
        end_at = now.epoch_s + self.searches.ahead_s()
        starts_s = {}
        if self._settings.starts_known and self.in_force is not None:
            starts_s = {job.name: float(job.start_s) for job in self.in_force.planned.jobs}
        for job, period_s in self.searches.periods_s().items():
            head_at = self._following.head_at(job)
            line = self.jobs.lines.get(job)
            if head_at is None or line is None or line.alone is None:
                continue
            began_at = head_at - line.alone.head_s
            starts_s[job] = (began_at - end_at) % period_s
        return starts_s

    # -- hosts -------------------------------------------------------------------------------------

    def _measured(self, report: events.ReportIterations) -> Effects:
        """Take what a host measured, and replace the sizes of a job's flows by it."""
        try:
            job = self.jobs.find(report.job)
            check_iterations(report, job, self.jobs.whole_fabric)
        except ServiceError as error:
            return [effects.Refuse(report.request, error)]
        line = self.jobs.lines[report.job]
        line.measured = {**line.measured, report.host: report.iterations}
        latest = {}
        for host, iterations in line.measured.items():
            if iterations:
                latest[host] = iterations[-1]
        measured = facts.IterationsMeasured(job.name, latest)
        return [effects.Answer(report.request, job), measured, *self._correct_sizes(line)]

    def _correct_sizes(self, line: JobLine) -> Effects:
        """Replace the sizes of a job's flows by what hosts measured, if they agree on others."""
        job = line.registered
        # After a start the graph is built with the first plan.
        if job.graph is None or not self._settings.correct_sizes:
            return []
        factors = size_factors(job.profiled, line.measured, job.size_factors)
        if factors == job.size_factors:
            return []
        self.jobs.correct(job.with_size_factors(factors))
        return [facts.SizesCorrected(job.name, factors)]

    # -- what follows ------------------------------------------------------------------------------

    def _advance(self, now: Instant) -> Effects:
        """Go on with whatever can go on, until nothing can."""
        out: Effects = []
        if self.jobs.wiring is not self.moves.wiring:
            out += self._rewire(now)
        out += self._rollout.advance(self._lacking)
        # The steps of a plan are in an order without loops, which another plan would break.
        if not self._rollout.is_under_way:
            out += self._adopt_ready(now)
        if self.outages_waiting and self._pipeline.work is None:
            self._reroute()

        # There may be room now for a job that was left out.
        has_room = self._pipeline.free_numbers(self._switches) and self._problem is not None
        if has_room or self.jobs.generation != self._plans.seen:
            self._plans.seen = self.jobs.generation
            out += self._want_plan()

        if self._reactions.holding is not None and self._hold(self._reactions.holding):
            out += self._reactions.finish()
        out += self.moves.advance(self._lacking, now.s)
        if self.in_force is not None:
            out += self._reactions.advance(self.in_force.planned.intents)
        out += self._next_work(now)
        return out + self._answer_waiters()

    def _next_work(self, now: Instant) -> Effects:
        """Give the planner the most urgent work, if it is idle."""
        if self._pipeline.work is not None:
            return []
        if self._made_again is not None:
            wanted, self._made_again = self._made_again, None
            return self._pipeline.begin(effects.MakePlan(self._pipeline.planner, wanted))
        is_plan_due = self._wanted == "now"
        if self._reactions.is_due and (self._decision_next or not is_plan_due):
            assert self.in_force is not None
            self._decision_next = False
            planner = self._pipeline.planner
            last = self.in_force.planned
            decision = self._reactions.decide(planner, last, self.jobs.fabric)
            return self._pipeline.begin(decision)
        if not is_plan_due:
            return self._rehearse() or self._improve(now)

        self._wanted = "no"
        self._decision_next = True
        jobs = self.jobs
        self._plans.begin(jobs.generation, now.s)
        registered = tuple(map(attrgetter("registered"), jobs.lines.values()))
        planner = self._pipeline.planner
        is_as_saved = planner.kept is not None and jobs.generation == self._saved_generation
        wanted = PlanRequest(
            registered,
            jobs.fabric,
            jobs.policy,
            jobs.down,
            is_as_saved,
        )
        return self._pipeline.begin(effects.MakePlan(planner, wanted))

    def _rehearse(self) -> Effects:
        """Begin with a dry run, if the plan in force has all that was accepted."""
        if not self._dry_runs.are_due or self._wanted != "no" or not self._is_planned:
            return []
        if self.in_force is None:
            reason = self.plan_problem or "there is no plan yet"
            return self._dry_runs.close(UnavailableError(reason, code="no-plan"))
        work = self._dry_runs.next_work(self._pipeline.planner, self.in_force.planned)
        return self._pipeline.begin(work)

    def _improve(self, now: Instant) -> Effects:
        """Search for better plans, if the plan in force has all that was accepted."""
        if self._wanted != "no" or not self._is_planned or self.in_force is None:
            return []
        planner = self._pipeline.planner
        last = self.in_force.planned
        out, improve = self.searches.adopt_result(planner, last, self.jobs.fabric, now)
        if improve is not None:
            self._plans.begin(self._plans.planned, now.s)
            return out + self._pipeline.begin(improve)
        if not self.searches.is_list_due:
            return out
        work = self.searches.list_due(planner, last, self.jobs.fabric, self._starts_s(now))
        return out + self._pipeline.begin(work)

    def _want_plan(self) -> Effects:
        """Plan soon, with whatever else is accepted until then."""
        if self._wanted != "no":
            return []
        if self._settings.coalesce_s <= 0:
            self._wanted = "now"
            return []
        self._wanted = "coalescing"
        return [effects.SetAlarm(events.Alarm("coalesce"), self._settings.coalesce_s)]

    def _plan_made(self, planned: Planned) -> Effects:
        """Save the numbers of a new plan."""
        out: Effects = []
        work = self._pipeline.work
        if isinstance(work, effects.Improve):
            out += self.searches.improved(work.group, planned.instead)
        return out + self._pipeline.save_numbers(planned)

    def _adopt_ready(self, now: Instant) -> Effects:
        """Put the plan or decision into force whose numbers are saved, if there is one."""
        ready = self._pipeline.pop_ready()
        if ready is None:
            return []
        work, planned = ready
        if isinstance(work, effects.Decide):
            return self._adopt_decision(planned, now)
        if planned.is_kept and isinstance(work, effects.MakePlan):
            self._made_again = work.wanted
        return self._adopt(planned, now)

    def _adopt(self, planned: Planned, now: Instant) -> Effects:
        """Put a plan into force."""
        self._plans.end()
        self.moves.adopted(planned.version, self._plans.planned)
        self._problem = _left_out(planned)
        # A plan of less than was accepted may lead over links that the next one avoids.
        if self._is_planned:
            self._note_links_down()
        self.progress.planned(
            planned.version,
            planned.plan.by_job,
            planned.problems,
            self.jobs.unchanged_since(self._plans.planned),
            began_s=self._plans.began_s,
            policy_s=planned.policy_s,
            lowering_s=planned.lowering_s,
        )
        out: Effects = self._follow(planned, now)
        out += self._reactions.follow_plan(planned)
        out += self.searches.follow_plan(planned)
        return out + self._install(planned, planned.problems, now)

    def _follow(self, planned: Planned, now: Instant) -> Effects:
        """Follow the jobs of a plan, if their graphs are built."""
        if planned.is_kept:
            self._following.learn_numbers(planned, now.s)
            return []
        out: Effects = [*self._following.follow_plan(planned, now.s)]
        for name in self._untimed.intersection(self.jobs.lines):
            out.append(self._time_alone(self.jobs.lines[name]))
        self._untimed = set()
        return out

    def _adopt_decision(self, planned: Planned, now: Instant) -> Effects:
        """Put a reactive policy's decision into force."""
        self._following.learn_numbers(planned, now.s)
        return self._install(planned, None, now) + self._reactions.decided(planned.version)

    def _install(
        self,
        planned: Planned,
        problems: Mapping[str, str] | None,
        now: Instant,
    ) -> Effects:
        """Bring the switches to a plan. `problems` are None for a decision."""
        self.in_force = InForce(planned, now.epoch_s)
        adopted = facts.PlanAdopted(
            version=planned.version,
            policy=planned.plan.policy,
            jobs=len(planned.registered),
            flows=len(planned.plan.flows),
            policy_s=planned.policy_s,
            lowering_s=planned.lowering_s,
            problems=problems,
        )
        return [adopted, *self._rollout.begin(planned)]

    def _plan_failed(self, problem: str) -> Effects:
        """Keep the last plan."""
        match self._pipeline.end():
            case effects.MakePlan(wanted=wanted) if wanted.is_as_saved and self.in_force is None:
                # What failed is the plan from before the start: now it is made.
                self._made_again = replace(wanted, is_as_saved=False)
            case effects.Decide():
                return [facts.DecisionRefused(problem), *self._reactions.finish()]
            case effects.Improve(group=group):
                return self.searches.rejected(group, problem)
        self._plans.end()
        self._problem = problem
        self.progress.failed(problem, self.jobs.unchanged_since(self._plans.planned))
        return [facts.PlanRefused(self.jobs.policy.name, problem)]

    def _answer_waiters(self) -> Effects:
        """Answer the clients that wait for jobs, where waiting is over."""
        out: Effects = []
        for request, name in list(self._waiters.items()):
            try:
                job = self.jobs.find(name)
            except UnknownError as error:
                out.append(effects.Refuse(request, error))
            else:
                if not self.progress.settled(name):
                    continue
                out.append(effects.Answer(request, job))
            del self._waiters[request]
        return out


def _left_out(planned: Planned) -> str | None:
    """Return that jobs are left out of a plan, with the reason of the first; None: none are."""
    problems = planned.problems
    if not problems:
        return None
    first = next(iter(problems.values()))
    count = len(problems) + len(planned.registered)
    return f"{len(problems)} of {count} jobs are left out: {first}"


def _retry_term(
    switch: str,
    election_id: int,
    delay_s: float,
) -> effects.SetAlarm:
    return effects.SetAlarm(events.Alarm("term", election_id, switch), delay_s)
