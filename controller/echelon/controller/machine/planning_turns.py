"""The turns of the planner: which work it does, and when.

One plan at a time is on its way to the switches: it is made, its numbers are saved, then it is
ready to install. `Searches` says which search for a better plan is under way, what came of it, and
when to look again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.effects import Effects, PlanningWork, Save, SetAlarm
from echelon.controller.machine.events import Alarm
from echelon.controller.machine.facts import NumbersUnsaved
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.lines import SwitchLine
from echelon.controller.machine.planning import (
    CARRIED,
    PAST_GROUPS,
    Basis,
    DueSearch,
    Instead,
    Planned,
    Planner,
    PlanningError,
)
from echelon.controller.machine.records import Changes, Document, Key
from echelon.model.fabric.model import Fabric
from echelon.planning.policies.base import Choice, Group, Labelled, Policy, Prediction, Searching
from echelon.switches.lowering.trees import EVERYWHERE

RETRY_S = 1.0
"""Wait before asking a store again that failed."""


class PlanPipeline:
    """The planner, and the plan that is under way.

    Numbers are saved before any switch has them, so that a controller that comes after this one
    gives the same.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self.work: PlanningWork | None = None
        """The work under way, until its plan is taken or has failed; None: the pipeline is idle."""
        self.problem: str | None = None
        """The reason why the store does not take a plan's numbers."""
        self._unsaved: Planned | None = None
        self._ready: Planned | None = None
        self._acknowledged: dict[str, None] = {}
        """Switches that hold newer intents.

        The numbers of their former ones become free when the planner is idle.
        """

    @property
    def planner(self) -> Planner:
        """The planner, while the pipeline is idle.

        It is lent out with the work that is under way.
        """
        assert self.work is None
        return self._planner

    def begin(self, work: PlanningWork) -> Effects:
        """Begin with a plan or decision."""
        assert self.work is None
        self.work = work
        return [work]

    def save_numbers(self, planned: Planned) -> Effects:
        """Save a plan's numbers, if there are new ones. It is ready to install after that."""
        if not planned.kept and planned.carried is None:
            self._ready = planned
            return []
        self._unsaved = planned
        return [self._save(planned)]

    def save_failed(self, problem: str) -> Effects:
        """Try again later, until the store takes the numbers."""
        self.problem = problem
        return [NumbersUnsaved(problem), SetAlarm(Alarm("save"), RETRY_S)]

    def save_again(self) -> Effects:
        """Save the numbers that the store did not take."""
        if self._unsaved is None:
            return []
        return [self._save(self._unsaved)]

    def saved(self) -> None:
        """Note that the numbers are saved."""
        self._ready = self._unsaved
        self._unsaved = None
        self.problem = None

    def pop_ready(self) -> tuple[PlanningWork, Planned] | None:
        """Return the work and its plan once the plan may be installed.

        The pipeline is idle then.
        """
        if self._ready is None or self.work is None:
            return None
        ready = self.work, self._ready
        self.work = None
        self._ready = None
        return ready

    def end(self) -> PlanningWork:
        """Return the work that ended without a plan to install; the pipeline is idle then."""
        assert self.work is not None
        work = self.work
        self.work = None
        return work

    def acknowledge(self, switch: str) -> None:
        """Note that a switch holds other intents than before, and nothing older."""
        self._acknowledged[switch] = None

    def free_numbers(self, switches: Mapping[str, SwitchLine]) -> bool:
        """Free the numbers of what switches no longer hold. Returns whether any became free."""
        if self.work is not None or not self._acknowledged:
            return False
        acknowledged = self._acknowledged
        self._acknowledged = {}
        freed = [self.planner.settle(switch, switches[switch].cleared) for switch in acknowledged]
        # What has one number at all switches is free when none of them holds it.
        if self.planner.keeps_back(EVERYWHERE):
            oldest = min(switch.cleared for switch in switches.values())
            freed.append(self.planner.settle(EVERYWHERE, oldest))
        return any(freed)

    def _save(self, planned: Planned) -> Save:
        documents: dict[Key, Document] = {}
        for job, document in planned.kept.items():
            documents["numbers", job] = document
        if planned.carried is not None:
            documents["settings", CARRIED] = planned.carried
        # An empty document means that there is nothing to remember any more.
        puts = {key: document for key, document in documents.items() if document}
        deletes = [key for key, document in documents.items() if not document]
        return Save(None, Changes(puts, deletes))


OFF = 0.03
"""The part by which iterations may differ from their prediction before another search."""
JUDGED = 12
"""The number of iterations, of each job of a group, after which a prediction is judged."""
COUNTED = 8
"""The number of those that count: the first ones begin under another plan."""
MOST_PATIENCE = 64
"""The largest patience: a job of a second an iteration is judged every quarter of an hour then."""
SEARCH_RETRY_S = 10.0
"""The time after which a search is tried again that has failed; it doubles with each failure."""
LONGEST_RETRY_S = 600.0
SEARCHED_AT_ONCE = 100
"""The jobs of a plan from which on a search for a better one waits longer, in proportion."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The result of the last search for a group of jobs."""

    choice: Choice[Labelled]
    before: str
    """The plan that was in force."""
    took_s: float
    searched_at: float
    """Seconds since the epoch."""
    problem: str | None = None
    """The reason why the best plan is not in force."""


@dataclass(slots=True)
class _Watch:
    """The iterations of a group of jobs since its plan was searched for."""

    patience: int = 1
    """The multiple of `JUDGED` before another search; one that changes nothing doubles it."""
    iterations: Counter[str] = field(default_factory=Counter)
    times_s: dict[str, deque[float]] = field(default_factory=dict)
    """The times of the last ones, by job."""

    def note(self, job: str, time_s: float) -> None:
        """Take note of an iteration."""
        self.iterations[job] += 1
        self.times_s.setdefault(job, deque(maxlen=COUNTED)).append(time_s)


class Searches:
    """The searches for the plans of all groups of jobs. Attributes are for reading.

    `after_s`: how long after a plan the policy is asked what it lacks. `judges`: whether plans are
    searched for again where predictions are wrong.

    One search is under way at a time: after a change a brief one for each group, then the longer
    ones that their results call for. Whenever a plan comes into force, the policy is asked what it
    lacks: a search that is about other jobs or links is ended then, and the next one begins.
    """

    def __init__(self, *, after_s: float, judges: bool) -> None:
        self.plans: Mapping[Group, str] = {}
        """The label of each group's plan."""
        self.chosen: dict[Group, Chosen] = {}
        self._after_s = after_s
        self._judges = judges
        self._policy: Policy | None = None
        """The policy of the plan in force."""
        self._due = False
        """Whether the policy has to be asked what its plan lacks."""
        self._alarms = 0
        self._waits: int | None = None
        """The alarm that is waited for, after a plan or a search that has failed."""
        self._failures = 0
        self._number = 0
        self._under_way: DueSearch | None = None
        self._yielded: Basis | None = None
        """The basis of the last search that was ended so that a brief one need not wait."""
        self._result: events.SearchFound | events.SearchFailed | None = None
        """The result of the search under way, until the planner can take it."""
        self._missed: set[str] = set()
        """Jobs whose predictions were wrong, until their plan was searched for anew."""
        self._watches: dict[Group, _Watch] = {}
        self._group_of: dict[str, Group] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a better plan may come soon."""
        return self._under_way is not None or (self._due and not self._failures)

    # -- searches ----------------------------------------------------------------------------------

    def follow_plan(self, planned: Planned) -> Effects:
        """Find out what a plan that is in force lacks."""
        if planned.policy is not self._policy:
            self._policy = planned.policy
            self.chosen = {}
            self._failures = 0
        self._due = isinstance(planned.policy, Searching)
        if not self._due:
            return self.listed(events.SearchesListed((), {}))
        if self._after_s and self._waits is None:
            # A search for thousands of jobs takes seconds to hand over, in which changes wait.
            return self._wait(self._after_s * max(1, len(planned.registered) / SEARCHED_AT_ONCE))
        return []

    @property
    def is_list_due(self) -> bool:
        """Whether the policy has to be asked now what its plan lacks."""
        return self._due and self._waits is None

    def list_due(
        self,
        planner: Planner,
        last: Planned,
        fabric: Fabric,
        starts_s: Mapping[str, float],
    ) -> effects.ListSearches:
        """Return the work of asking the policy, for the free planner.

        `starts_s` says when jobs will begin an iteration.
        """
        self._due = False
        return effects.ListSearches(planner, last, fabric, frozenset(self._missed), starts_s)

    def listed(self, event: events.SearchesListed) -> Effects:
        """Begin with the first search that the plan lacks, unless one of them is under way."""
        self.plans = event.plans
        self._remember_groups(event.plans)
        out: Effects = []
        if event.problem is not None:
            out.append(facts.NoPlanChosen((), event.problem))

        if self._under_way is not None:
            basis = self._under_way.basis
            if any(due.basis.same(basis) for due in event.due):
                if not self._yields(event.due[0]):
                    return out
                self._yielded = basis
                out.append(effects.EndSearch())
            else:
                out += [effects.EndSearch(), facts.SearchEnded(_names(self._under_way))]
            self._under_way = None
            self._result = None
        if event.due:
            self._under_way = event.due[0]
            self._number += 1
            out.append(effects.SearchPlan(self._number, self._under_way.search))
        return out

    def _yields(self, first: DueSearch) -> bool:
        """Return whether the search under way, which is still wanted, is ended for this one.

        A search takes up to a minute, and is begun again after that. So it is ended for a brief one
        only, before it has a result, and only once: changes may come faster than searches end.
        """
        under_way = self._under_way
        if under_way is None or under_way.is_brief or self._result is not None:
            return False
        has_yielded = self._yielded is not None and self._yielded.same(under_way.basis)
        return first.is_brief and not has_yielded

    def _remember_groups(self, groups: Iterable[Group]) -> None:
        """Remember what was chosen for these groups, and for the last others whose jobs are there.

        A policy may go back to what was chosen for a group before other jobs joined it.
        """
        present = dict.fromkeys(groups)
        group_of: dict[str, Group] = {}
        for group in present:
            group_of |= dict.fromkeys(group, group)
        removed = self._group_of.keys() - group_of
        self._group_of = group_of

        past = [
            group for group in self.chosen if group not in present and group.isdisjoint(removed)
        ]
        remembered = {*present, *past[-PAST_GROUPS:]}
        self.chosen = {
            group: chosen for group, chosen in self.chosen.items() if group in remembered
        }
        self._watches = {group: self._watches.get(group, _Watch()) for group in present}

    def ended(self, event: events.SearchFound | events.SearchFailed) -> None:
        """Keep the result of the search under way."""
        if self._under_way is not None and event.number == self._number:
            self._result = event

    def _wait(self, delay_s: float) -> Effects:
        self._alarms += 1
        self._waits = self._alarms
        return [effects.SetAlarm(events.Alarm("search", self._alarms), delay_s)]

    def rested(self, alarm: int) -> None:
        """Look again after a plan, or after a search that has failed."""
        if alarm == self._waits:
            self._waits = None

    def adopt_result(
        self,
        planner: Planner,
        last: Planned,
        fabric: Fabric,
        now: Instant,
    ) -> tuple[Effects, effects.Improve | None]:
        """Give the result of a search to the free planner.

        Returns also what the planner has to do with it, if the next plan differs.
        """
        result = self._result
        due = self._under_way
        if result is None or due is None:
            return [], None
        self._result = None
        self._under_way = None
        # Whatever comes of it, the plan may lack other searches now.
        self._due = True
        jobs = _names(due)
        group = due.search.group
        if not planner.is_current(due, last, fabric):
            return [facts.SearchEnded(jobs)], None
        self._missed -= group

        if isinstance(result, events.SearchFailed):
            out: Effects = [facts.NoPlanChosen(jobs, result.problem)]
            if result.retry:
                return out + self._retry(), None
            planner.adopt(due, None)
            return out, None

        self._failures = 0
        before = self.plans.get(group, "")
        self.chosen[group] = Chosen(result.choice, before, result.took_s, now.epoch_s)
        try:
            differs = planner.adopt(due, result.choice)
        except PlanningError as error:
            return self.rejected(group, str(error)), None
        if differs:
            self._watches[group] = _Watch()
            return [], effects.Improve(planner, group, last, fabric)
        if result.choice.preliminary:
            return self.improved(group), None
        patience = 2 * self._watches.get(group, _Watch()).patience
        self._watches[group] = _Watch(min(patience, MOST_PATIENCE))
        return self.improved(group), None

    def _retry(self) -> Effects:
        """Search again later, ever more rarely."""
        self._failures += 1
        doublings = min(self._failures - 1, 30)
        return self._wait(min(LONGEST_RETRY_S, SEARCH_RETRY_S * 2.0**doublings))

    def improved(self, group: Group, instead: Instead | None = None) -> Effects:
        """Return the fact that the plan that was chosen for a group is in force.

        `instead` is the one that is in force in its place.
        """
        jobs = tuple(sorted(group))
        if instead is None:
            return [_plan_chosen(jobs, self.chosen[group])]
        chosen = replace(
            self.chosen[group],
            choice=instead.choice,
            problem=instead.problem,
        )
        self.chosen[group] = chosen
        return [facts.NoPlanChosen(jobs, instead.problem), _plan_chosen(jobs, chosen)]

    def rejected(self, group: Group, problem: str) -> Effects:
        """Note that switches cannot carry the plan that was chosen for a group."""
        if group in self.chosen:
            self.chosen[group] = replace(self.chosen[group], problem=problem)
        return [facts.NoPlanChosen(tuple(sorted(group)), problem)]

    # -- predictions -------------------------------------------------------------------------------

    def timed(
        self,
        job: str,
        time_s: float,
        alone_s: float | None,
    ) -> Effects:
        """Take note of an iteration; now and then judge the prediction for the job.

        `alone_s`: its time alone.
        """
        group = self._group_of.get(job)
        if group is None or group not in self.chosen or alone_s is None:
            return []
        prediction = self.chosen[group].choice.best
        if job not in prediction.slowdowns:
            return []
        watch = self._watches[group]
        watch.note(job, time_s)
        if watch.iterations[job] % JUDGED:
            return []

        measured_s = fmean(watch.times_s[job])
        predicted_s = alone_s * prediction.slowdowns[job]
        is_off = abs(measured_s - predicted_s) > OFF * predicted_s
        # Of jobs that do not run, predictions for the others say nothing.
        fewest = min(watch.iterations[member] for member in group)
        all_run = fewest >= JUDGED * watch.patience
        search_again = self._judges and is_off and all_run and not self._missed & group
        if search_again:
            self._missed.add(job)
            self._due = True
        return [facts.PredictionJudged(job, predicted_s, measured_s, search_again)]

    def periods_s(self) -> Mapping[str, float]:
        """Return the measured time of an iteration, by job.

        These are the jobs of groups whose plans are searched for again.
        """
        periods_s = {}
        for group in self._missed_groups:
            for job, times_s in self._watches[group].times_s.items():
                periods_s[job] = fmean(times_s)
        return periods_s

    def ahead_s(self) -> float:
        """Return how long the next search for these groups will take, by the last ones."""
        groups = self._missed_groups & self.chosen.keys()
        return max((self.chosen[group].took_s for group in groups), default=0.0)

    @property
    def _missed_groups(self) -> set[Group]:
        return {self._group_of[job] for job in self._missed if job in self._group_of}


def _names(due: DueSearch) -> tuple[str, ...]:
    return tuple(sorted(due.search.group))


def _plan_chosen(jobs: tuple[str, ...], chosen: Chosen) -> facts.PlanChosen:
    best = chosen.choice.best
    before = best
    for prediction in chosen.choice.tried:
        if prediction.candidate.label == chosen.before:
            before = prediction
            break
    # Without a simulation there is nothing to compare with.
    gain = 1 - best.score / before.score if before.slowdowns else 0.0
    return facts.PlanChosen(
        jobs=jobs,
        plan=best.candidate.label,
        before=chosen.before,
        tried=len(chosen.choice.tried),
        mean=mean_slowdown(best),
        worst=max(best.slowdowns.values(), default=0.0),
        gain=gain,
        took_s=chosen.took_s,
    )


def mean_slowdown(prediction: Prediction[Labelled]) -> float:
    """Return the mean slowdown of the jobs; 0 if there was no simulation."""
    if not prediction.slowdowns:
        return 0.0
    return fmean(prediction.slowdowns.values())
