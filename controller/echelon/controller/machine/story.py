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
from typing import Any, TypeAlias

from echelon.controller.machine import effects, events
from echelon.controller.machine.change import ChangeRequest
from echelon.controller.machine.effects import Effect
from echelon.controller.machine.events import Event
from echelon.controller.machine.facts import (
    Fact,
    StoryLines,
    StoryScope,
    of_all,
    of_job,
    of_jobs,
    of_switch,
)
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.model.quantities import one_line
from echelon.switches.southbound.events import Acknowledged, IntentRefused, SwitchChanged

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
    """Something that happened to a job, or that the machine did about it."""

    number: int
    """Its place in the order of all records."""
    time_s: float
    """The last time that it happened, in seconds since the epoch."""
    kind: str
    """The name of the event, effect or fact."""
    text: str
    times: int = 1
    """The number of times that it happened in a row."""


Saying: TypeAlias = Callable[[Any], StoryLines]


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
        # Stories of more jobs would push each other out.
        for name in [*jobs][-JOBS:]:
            self._add(self._job(name), now, "Snapshot", "taken from the store")

    def note(self, news: Event | Effect, now: Instant) -> None:
        """Take note of an event or an effect, if it concerns jobs."""
        kind = type(news)
        if isinstance(news, ChangeRequest):
            lines = self._begin(news)
        elif isinstance(news, Fact):
            lines = news.story()
        elif kind in SAYINGS:
            lines = SAYINGS[kind](news)
        else:
            return
        for scope, name, text in lines:
            records = self._records(scope, name)
            if records is not None:
                self._add(records, now, kind.__name__, text)
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
        parts = [records, self._for_all]
        parts += [self._switches[name] for name in switches or () if name in self._switches]
        first = records[0].number
        last = records[-1].number
        story = []
        for record in merge(*parts, key=attrgetter("number")):
            if record.number < first:
                continue
            if switches is None and record.number > last:
                break
            story.append(record)
        return story

    def _begin(self, asked: ChangeRequest) -> StoryLines:
        """Remember the job of a change until it is answered, and return what to say of it."""
        text = asked.story()
        if text is None:
            return ()
        # Nobody has checked yet that there is such a job, and its name may be of any length.
        if asked.queue not in self._jobs and not asked.creates_job:
            return ()
        self._requests[asked.request] = asked.queue
        return of_job(asked.queue, text)

    def _records(self, scope: StoryScope, name: Any) -> deque[StoryRecord] | None:
        match scope:
            case "job":
                return self._job(name)
            case "switch":
                return self._switches.setdefault(name, deque(maxlen=PER_SWITCH))
            case "request":
                job = self._requests.get(name)
                if job is None:
                    return None
                return self._job(job)
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

    def _add(
        self,
        records: deque[StoryRecord],
        now: Instant,
        kind: str,
        text: str,
    ) -> None:
        text = one_line(text)
        if len(text) > LONGEST:
            text = f"{text[: LONGEST - 3]}..."
        times = 1
        if records:
            last = records[-1]
            if last.kind == kind and last.text == text:
                # A store that is down for an hour must not push out what was before.
                times += records.pop().times
        number = next(self._numbers)
        records.append(StoryRecord(number, now.epoch_s, kind, text, times))


# -- what is said of events and effects ------------------------------------------------------------
# Facts and changes say it themselves.


def _built(event: events.JobBuilt) -> StoryLines:
    if isinstance(event.built, RegisteredJob):
        text = f"its graph is built (flows: {event.built.flow_count})"
    else:
        text = f"its graph cannot be built: {event.built}"
    return _of_request(event.request, text)


def _saved(event: events.Saved) -> StoryLines:
    return _of_saving(event.request, "went to the store")


def _save_failed(event: events.SaveFailed) -> StoryLines:
    return _of_saving(event.request, f"cannot be saved: {event.error}")


def _timed_alone(event: events.TimedAlone) -> StoryLines:
    duration_s = event.alone.duration_s
    return of_job(event.job, f"on an empty fabric an iteration takes {duration_s:.6g} s")


def _switch_changed(event: SwitchChanged) -> StoryLines:
    # Each intent begins with it, and `Acknowledged` or `IntentRefused` follows.
    if event.state == "writing":
        return []
    problem = f": {event.problem}" if event.problem else ""
    return of_switch(event.switch, f"is {event.state}{problem}")


def _acknowledged(event: Acknowledged) -> StoryLines:
    return of_switch(event.switch, f"holds plan {event.version}")


def _intent_refused(event: IntentRefused) -> StoryLines:
    return of_switch(event.switch, f"refuses a part: {event.problem}")


def _planning(effect: effects.MakePlan) -> StoryLines:
    wanted = effect.wanted
    return of_all(f"a plan is being made by policy {wanted.policy} (jobs: {len(wanted.jobs)})")


def _searching(effect: effects.SearchPlan) -> StoryLines:
    return of_jobs(effect.search.group, "a better plan is searched for")


def _of_request(request: int, text: str) -> StoryLines:
    return [("request", request, text)]


def _of_saving(request: int | None, text: str) -> StoryLines:
    """Say something of a change, or of the numbers of a plan, which no request asks for."""
    if request is None:
        return of_all(f"the plan's numbers {text}")
    return _of_request(request, f"the change {text}")


SAYINGS: Mapping[type, Saying] = {
    events.Started: lambda _: of_all("this controller leads"),
    events.LeadershipLost: lambda _: of_all("this controller leads no more"),
    events.JobBuilt: _built,
    events.Saved: _saved,
    events.SaveFailed: _save_failed,
    events.TimedAlone: _timed_alone,
    Acknowledged: _acknowledged,
    IntentRefused: _intent_refused,
    SwitchChanged: _switch_changed,
    effects.BuildJob: lambda effect: _of_request(effect.request, "its graph is being built"),
    effects.Answer: lambda effect: _of_request(effect.request, "the client is answered"),
    effects.Refuse: lambda effect: _of_request(effect.request, f"refused: {effect.error}"),
    effects.MakePlan: _planning,
    effects.SearchPlan: _searching,
}
"""The functions that say something of each event and effect that concerns jobs."""
