"""The stories of jobs: the last events and effects of the machine that concern each of them.

A record is of one job, of one switch, or of all jobs, so that a plan for a thousand jobs is one
record. The story of a job is put together when somebody asks for it. What comes with every
iteration is left out: it would push out the rest, and `GET /history` has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import count
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.effects import Effect
from echelon.controller.machine.errors import one_line
from echelon.controller.machine.events import Event, Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.switches.southbound.events import (
    Acknowledged,
    DriftRepaired,
    IntentRefused,
    SwitchChanged,
)

JOBS = 2000
"""The most jobs that have stories, removed ones among them: twice the default of `limits.jobs`."""
PER_JOB = 32
"""The most records of one job. A change takes about ten."""
PER_SWITCH = 24
"""The most records of one switch. A plan takes two, or three if flows change their paths."""
FOR_ALL = 64
"""The most records that concern all jobs. A plan takes five."""
LONGEST = 200
"""The longest text of a record. With it, all stories take less than 30 MB."""


@dataclass(frozen=True, slots=True)
class StoryRecord:
    """What happened to a job, or what the machine did about it."""

    number: int
    """Its place in the order of all records."""
    time_s: float
    """When it happened last, in seconds since the epoch."""
    kind: str
    """The name of the event, effect or fact."""
    text: str
    times: int = 1
    """How often it happened, with nothing else of its job, switch or all jobs between."""


Scope: TypeAlias = Literal["job", "switch", "request", "all"]
"""What a line concerns: a job or switch by name, the job of a request by number, or all jobs."""
Lines: TypeAlias = Iterable[tuple[Scope, Any, str]]
Saying: TypeAlias = Callable[[Any], Lines]


class Stories:
    """The records of all jobs."""

    def __init__(self) -> None:
        self._numbers = count()
        self._jobs: dict[str, deque[StoryRecord]] = {}
        """The records of each job. The job that was silent for longest comes first."""
        self._switches: dict[str, deque[StoryRecord]] = {}
        self._for_all: deque[StoryRecord] = deque(maxlen=FOR_ALL)
        self._requests: dict[int, str] = {}
        """The job of each change that is not answered yet."""

    def restore(self, jobs: Iterable[str], now: Instant) -> None:
        """Begin the stories of jobs that were saved."""
        for name in jobs:
            self._add(self._job(name), now, "Snapshot", "taken from the store")

    def note(self, news: Event | Effect, now: Instant) -> None:
        """Take note of an event or an effect, if it concerns jobs."""
        say = SAYINGS.get(type(news))
        if say is None:
            return
        if isinstance(news, events.RegisterJob):
            self._requests[news.request] = news.spec.job
        elif isinstance(news, events.RemoveJob | events.ReportDistances):
            # Nobody has checked yet that there is such a job, and its name may be of any length.
            if news.job not in self._jobs:
                return
            self._requests[news.request] = news.job
        for scope, name, text in say(news):
            records = self._records(scope, name)
            if records is not None:
                self._add(records, now, type(news).__name__, text)
        if isinstance(news, effects.Answer | effects.Refuse):
            self._requests.pop(news.request, None)

    def read(self, job: str, switches: Collection[str] | None) -> Sequence[StoryRecord]:
        """Return the records of a job, oldest first.

        `switches` are those that its flows pass. None: the job was removed, nobody knows which they
        were, and its story ends with its last record.
        """
        records = self._jobs.get(job)
        if not records:
            return ()
        parts = [records, self._for_all, *(self._switches.get(name, ()) for name in switches or ())]
        first = records[0].number
        last = records[-1].number
        return [
            record
            for record in merge(*parts, key=attrgetter("number"))
            if first <= record.number and (switches is not None or record.number <= last)
        ]

    def _records(self, scope: Scope, name: Any) -> deque[StoryRecord] | None:
        match scope:
            case "job":
                return self._job(name)
            case "switch":
                return self._switches.setdefault(name, deque(maxlen=PER_SWITCH))
            case "request":
                job = self._requests.get(name)
                return None if job is None else self._job(job)
        return self._for_all

    def _job(self, name: str) -> deque[StoryRecord]:
        """Return the records of a job, and put it behind those that are silent for longer."""
        records = self._jobs.pop(name, None)
        if records is None:
            records = deque(maxlen=PER_JOB)
            if len(self._jobs) >= JOBS:
                del self._jobs[next(iter(self._jobs))]
        self._jobs[name] = records
        return records

    def _add(self, records: deque[StoryRecord], now: Instant, kind: str, text: str) -> None:
        text = one_line(text)
        if len(text) > LONGEST:
            text = f"{text[: LONGEST - 3]}..."
        number = next(self._numbers)
        times = 1
        if records and (records[-1].kind, records[-1].text) == (kind, text):
            # A store that is down for an hour must not push out what was before.
            times += records.pop().times
        records.append(StoryRecord(number, now.at, kind, text, times))


# -- what is said of each --------------------------------------------------------------------------
# Texts are templates: `{0.problem}` is the attribute `problem` of the event, effect or fact.


def _job(text: str) -> Saying:
    return lambda news: [("job", news.job, text.format(news))]


def _jobs(text: str) -> Saying:
    return lambda news: [("job", name, text.format(news)) for name in news.jobs]


def _switch(text: str) -> Saying:
    text = f"switch {{0.switch}} {text}"
    return lambda news: [("switch", news.switch, text.format(news))]


def _request(text: str) -> Saying:
    return lambda news: [("request", news.request, text.format(news))]


def _all(text: str) -> Saying:
    return lambda news: [("all", None, text.format(news))]


def _saving(text: str) -> Saying:
    """Return what to say of a change, or of the numbers of a plan, which no request asks for."""
    change = _request(f"the change {text}")
    numbers = _all(f"the plan's numbers {text}")
    return lambda news: numbers(news) if news.request is None else change(news)


def _registers(event: events.RegisterJob) -> Lines:
    replaces = " or replaces it" if event.replace else ""
    return [("job", event.spec.job, f"a client registers it{replaces}")]


def _built(event: events.JobBuilt) -> Lines:
    if isinstance(event.built, RegisteredJob):
        text = f"its graph is built (flows: {event.built.flow_count})"
    else:
        text = f"its graph cannot be built: {event.built}"
    return [("request", event.request, text)]


def _switch_changed(event: SwitchChanged) -> Lines:
    # Each intent begins with it, and `Acknowledged` or `IntentRefused` follows.
    if event.state == "writing":
        return []
    problem = f": {event.problem}" if event.problem else ""
    return [("switch", event.switch, f"switch {event.switch} is {event.state}{problem}")]


def _planning(effect: effects.MakePlan) -> Lines:
    wanted = effect.wanted
    text = f"a plan is being made by policy {wanted.policy} (jobs: {len(wanted.jobs)})"
    return [("all", None, text)]


def _searching(effect: effects.SearchPlan) -> Lines:
    return [("job", name, "a better plan is searched for") for name in effect.search.group]


def _accepted(fact: facts.JobAccepted) -> Lines:
    kind = "new" if fact.created else "changed"
    return [("job", fact.job, f"accepted as a {kind} job (flows: {fact.flows})")]


def _adopted(fact: facts.PlanAdopted) -> Lines:
    # A reactive policy decides many times a second.
    if fact.problems is None:
        return
    counts = f"jobs: {fact.jobs}, flows: {fact.flows}"
    yield "all", None, f"plan {fact.version} by {fact.policy} is in force ({counts})"
    for job, problem in fact.problems.items():
        yield "job", job, f"left out of the plan: {problem}"


def _chosen(fact: facts.PlanChosen) -> Lines:
    if fact.plan == fact.before:
        text = f"no other plan is better than {fact.plan}"
    else:
        text = f"planned by {fact.plan} instead of {fact.before}"
    return [("job", name, f"{text} (tried: {fact.tried})") for name in fact.jobs]


def _judged(fact: facts.PredictionJudged) -> Lines:
    if not fact.again:
        return []
    took = f"{fact.measured_s:.6g} s, predicted {fact.predicted_s:.6g} s"
    return [("job", fact.job, f"its iterations take {took}: a plan is searched for again")]


def _link(fact: facts.LinkChanged) -> Lines:
    return [("all", None, f"link {fact.link} is {'drained' if fact.drained else 'restored'}")]


def _links_down(fact: facts.LinksDown) -> Lines:
    return [("all", None, f"links are {'down' if fact.down else 'up'}: {fact}")]


SAYINGS: Mapping[type, Saying] = {
    events.Started: _all("this controller leads"),
    events.LeadershipLost: _all("this controller leads no more"),
    events.RegisterJob: _registers,
    events.RemoveJob: _job("a client removes it"),
    events.ReportDistances: _job("a client reports the arrangement function of {0.echelonflow}"),
    events.JobBuilt: _built,
    events.Saved: _saving("went to the store"),
    events.SaveFailed: _saving("cannot be saved: {0.error}"),
    events.TimedAlone: _job("on an empty fabric an iteration takes {0.alone.duration_s:.6g} s"),
    Acknowledged: _switch("holds plan {0.version}"),
    IntentRefused: _switch("refuses a part: {0.problem}"),
    DriftRepaired: _switch("was repaired (differences: {0.count})"),
    SwitchChanged: _switch_changed,
    effects.BuildJob: _request("its graph is being built"),
    effects.Answer: _request("the client is answered"),
    effects.Refuse: _request("refused: {0.error}"),
    effects.MakePlan: _planning,
    effects.SearchPlan: _searching,
    facts.JobAccepted: _accepted,
    facts.JobRemoved: _job("removed"),
    facts.JobLeft: _job("the plan does not have it any more"),
    facts.JobInstalled: _job("installed with plan {0.version}, {0.total_s:.6g} s after it came"),
    facts.ConnectionsReported: _job(
        "host {0.host} reports connections (new: {0.opened}, gone: {0.closed})"
    ),
    facts.DistancesCorrected: _job("its distances are corrected"),
    facts.SizesCorrected: _job("its sizes are corrected"),
    facts.PredictionJudged: _judged,
    facts.PlanAdopted: _adopted,
    facts.PlanRefused: _all("{0.policy} makes no new plan: {0.problem}"),
    facts.DecisionRefused: _all("the policy decides nothing: {0.problem}"),
    facts.PlanChosen: _chosen,
    facts.SearchEnded: _jobs("jobs or links changed: the search ended"),
    facts.NoPlanChosen: _jobs("no better plan: {0.problem}"),
    facts.OrderGivenUp: _all("some switches are slow: all take plan {0.version} at once"),
    facts.NumbersUnsaved: _all("switches wait for the store: {0.problem}"),
    facts.PolicyChosen: _all("policy {0.policy} is chosen"),
    facts.LinkChanged: _link,
    facts.LinksDown: _links_down,
    facts.LinksMoved: _all("links have moved: {0}"),
    facts.MoveFailed: _all("links are not moved yet: {0.problem}"),
    facts.TermContested: _switch("obeys another controller, of election id {0.election_id}"),
    facts.TermNotRaised: _switch("is left to others: {0.problem}"),
}
"""What to say of each event, effect and fact that concerns jobs."""
