"""Everything around the controller's machine, moved by hand: a durable store, switches, time, work
that takes a while.

Effects wait in `pending` until the test carries them out, in any order that the shell's promises
allow; a crash loses those that wait, but for saves that had reached the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from echelon.controller.changes import ChoosePolicy, MoveLinks, RegisterJob, RemoveJob, SetLink
from echelon.controller.machine.change import ChangeRequest
from echelon.controller.machine.effects import (
    AcknowledgeDigests,
    AdvanceMove,
    Answer,
    BuildJob,
    Compare,
    Decide,
    Effect,
    EndSearch,
    Improve,
    Install,
    ListSearches,
    MakePlan,
    RaiseTerm,
    ReadCounters,
    Refuse,
    Rehearse,
    Save,
    SearchPlan,
    SetAlarm,
    TimeAlone,
    UseTerm,
)
from echelon.controller.machine.errors import ServiceError, UnavailableError
from echelon.controller.machine.events import (
    AwaitJob,
    CountersFailed,
    CountersRead,
    Digests,
    DryRun,
    Event,
    LeadershipLost,
    MoveAdvanced,
    Saved,
    SaveFailed,
    SearchFailed,
    Started,
    TermSaved,
)
from echelon.controller.machine.facts import Fact
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import parse_job
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.kept_plan import can_be_kept, from_pieces, to_pieces
from echelon.controller.machine.machine import Machine, Settings
from echelon.controller.machine.planning import MakePolicy, Planner, registered_policy
from echelon.controller.machine.records import Snapshot
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.spec import JobSpec
from echelon.model.p4program import constants
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.intent import Intent, Part, TableEntry
from echelon.switches.southbound.events import (
    Acknowledged,
    IntentRefused,
    SwitchChanged,
    SwitchConnected,
)
from echelon.switches.southbound.outcomes import Refused
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon_lab.virtual.controller import MemoryStore

START, FINISH = constants()["EVENT_START"], constants()["EVENT_FINISH"]

TWO_BY_TWO = {
    "fabric": "two_by_two",
    "hosts": ["h1", "h2", "h3", "h4"],
    "switches": ["leaf1", "leaf2", "spine1", "spine2"],
    "links": [
        *({"between": [host, leaf], "rate": "1 Gbit/s"} for host, leaf in
          (("h1", "leaf1"), ("h2", "leaf1"), ("h3", "leaf2"), ("h4", "leaf2"))),
        *({"between": [leaf, spine], "rate": "1 Gbit/s"} for leaf in ("leaf1", "leaf2")
          for spine in ("spine1", "spine2")),
    ],
}  # fmt: skip


def two_by_two() -> Fabric:
    return build_fabric(FabricSpec.model_validate(TWO_BY_TWO))


def ring(name: str, *workers: str, gradient: str = "1 MB") -> dict[str, Any]:
    """Return the spec of a data-parallel job."""
    return {
        "job": name,
        "parallelism": "data",
        "workers": list(workers),
        "data": {"compute": "10 ms", "gradient": gradient},
    }


@dataclass
class SwitchModel:
    """A switch, and the connection with it.

    It is written in two steps: what is new, then what is old goes. What it holds survives a crash
    of the controller.
    """

    name: str
    held: tuple[Part, ...] = ()
    connected: bool = False
    wanted: Install | None = None
    writing: Install | None = None
    acknowledged: int | None = None
    known: bool = False
    """Whether this session has written, and the last write succeeded."""
    refuses: tuple[Refused, ...] = ()
    """The parts that it refuses of whatever is written."""
    is_stuck: bool = False
    """Whether it carries out nothing."""


@dataclass
class World:
    """A machine, and what is around it.

    `start` makes a new machine from the store, as after a crash.
    """

    fabric: Fabric
    policy: str = "echelon"
    coalesce_s: float = 0.0
    correct_sizes: bool = False
    capabilities: Capabilities = field(default_factory=softswitch)
    make_policy: MakePolicy = registered_policy
    max_jobs: int = 100
    reroute: bool = True
    by_hand: bool = False
    keeps: bool = False
    """Whether the plan in force is kept for the next start if a restart would make the same."""
    store: MemoryStore = field(default_factory=MemoryStore)
    pending: list[Effect] = field(default_factory=list)
    answers: dict[int, Answer | Refuse] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    """Searches that need no answer any more."""
    dealt_with: set[int] = field(default_factory=set)
    """Reports that were acknowledged."""
    counters: dict[TableEntry, int] = field(default_factory=dict)
    now_s: float = 0.0
    terms: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.switches = {name: SwitchModel(name) for name in self.fabric.switches}
        self.machine: Machine
        self.cabling = self.fabric
        """The fabric with the links where they physically are."""
        self._kept: tuple[object, Sequence[bytes]] = (None, ())
        """The documents that the plan in force followed from when it was kept, and the plan."""
        self._number = 0
        self._specs: dict[str, JobSpec] = {}

    # -- the controller ----------------------------------------------------------------------------

    def start(self) -> None:
        settings = Settings(
            self.fabric,
            ChosenPolicy(self.policy),
            self.max_jobs,
            1000,
            self.coalesce_s,
            self.correct_sizes,
            reroute=self.reroute,
            moved_by_hand=self.by_hand,
        )
        planner = Planner(dict.fromkeys(self.fabric.switches, self.capabilities), self.make_policy)
        snapshot = self.store.load()
        basis, pieces = self._kept
        if pieces and basis == follows_from(snapshot):
            planner.kept = from_pieces(pieces)
        self.machine = Machine(settings, planner, snapshot, self.now)
        self.tell(Started())

    @property
    def now(self) -> Instant:
        return Instant(self.now_s, 1_000_000 + self.now_s)

    def tell(self, event: Event) -> None:
        self.now_s += 0.001
        todo = self.machine.handle(event, self.now)
        self._look_at_step(todo)
        for effect in todo:
            self._take(effect)
        if self.keeps:
            self.keep_plan()

    def keep_plan(self) -> bool:
        """Keep the plan in force for the next start, if a restart would make the same."""
        planned = self.machine.lasting
        if planned is None or self.waiting(Save) or not can_be_kept(planned):
            return False
        self._kept = follows_from(self.store.load()), [*to_pieces(planned)]
        return True

    def _look_at_step(self, todo: Sequence[Effect]) -> None:
        """Look at the machine after a step, before its effects are taken."""

    def _take(self, effect: Effect) -> None:
        match effect:
            case Answer(request) | Refuse(request):
                assert request not in self.answers, "answered twice"
                self.answers[request] = effect
            case AcknowledgeDigests(report):
                assert report not in self.dealt_with
                self.dealt_with.add(report)
            case Install():
                for switch in self.switches.values():
                    switch.wanted = effect
            case UseTerm(term):
                self.terms.append(term)
            case (
                Save()
                | BuildJob()
                | MakePlan()
                | Decide()
                | Rehearse()
                | ListSearches()
                | Improve()
                | Compare()
                | SearchPlan()
                | ReadCounters()
                | SetAlarm()
                | RaiseTerm()
                | TimeAlone()
                | AdvanceMove()
            ):
                self.pending.append(effect)
            case EndSearch():
                # They may still end, and tell.
                self.ended |= {effect.number for effect in self.waiting(SearchPlan)}
            case _:
                self.facts.append(effect)

    # -- what clients ask --------------------------------------------------------------------------

    def _next(self) -> int:
        self._number += 1
        return self._number

    def spec(self, document: Mapping[str, Any]) -> JobSpec:
        """Return the spec of a document, parsed once."""
        key = repr(sorted(document.items()))
        if key not in self._specs:
            self._specs[key] = parse_job(document)
        return self._specs[key]

    def register(self, document: Mapping[str, Any], *, replace: bool = False) -> int:
        request = self._next()
        self.tell(RegisterJob(request, document, self.spec(document), replace))
        return request

    def remove(self, name: str) -> int:
        request = self._next()
        self.tell(RemoveJob(request, name))
        return request

    def choose(self, policy: str, **parameters: str) -> int:
        request = self._next()
        self.tell(ChoosePolicy(request, ChosenPolicy(policy, parameters)))
        return request

    def set_link(self, a: str, b: str, *, drained: bool, force: bool = False) -> int:
        request = self._next()
        self.tell(SetLink(request, a, b, drained, force))
        return request

    def move(self, document: Mapping[str, Any]) -> int:
        request = self._next()
        self.tell(MoveLinks(request, FabricSpec.model_validate(document)))
        return request

    def dry_run(self, make: Callable[[int], ChangeRequest]) -> int:
        """Ask what a change would do, which `make` makes of its number."""
        request = self._next()
        self.tell(DryRun(request, make(request)))
        return request

    def carry_out_change(self, make: Callable[[int], ChangeRequest]) -> int:
        """Ask for that change."""
        request = self._next()
        self.tell(make(request))
        return request

    def wait_for(self, name: str) -> int:
        request = self._next()
        self.tell(AwaitJob(request, name))
        return request

    # -- effects that wait -------------------------------------------------------------------------

    def waiting(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.pending if isinstance(effect, kind)]

    def carry_out(self, effect: Effect, *, fails: bool = False) -> None:
        """Carry out an effect that waits. `fails`: the store or the switch does not do it."""
        self.pending.remove(effect)
        match effect:
            case Save(request, changes):
                if fails:
                    self.tell(SaveFailed(request, UnavailableError("disk full")))
                else:
                    self.store.commit(changes)
                    self.tell(Saved(request))
            case SearchPlan(number) if fails and number in self.ended:
                pass
            case SearchPlan(number) if fails:
                self.tell(SearchFailed(number, "the process has ended", retry=True))
            case (
                BuildJob()
                | MakePlan()
                | Decide()
                | Rehearse()
                | ListSearches()
                | Improve()
                | Compare()
                | SearchPlan()
            ):
                self.tell(effect.run())
            case TimeAlone():
                timed = effect.run()
                if timed is not None:
                    self.tell(timed)
            case ReadCounters(reading, switch, entries):
                if fails or not self.switches[switch].connected:
                    self.tell(CountersFailed(reading, switch, f"switch {switch}: no session"))
                else:
                    self.tell(
                        CountersRead(
                            reading, switch, {one: self.counters.get(one, 0) for one in entries}
                        )
                    )
            case SetAlarm(alarm, delay_s):
                self.now_s += delay_s
                self.tell(alarm)
            case AdvanceMove(number, wiring):
                if fails and wiring.begun:
                    self.tell(MoveAdvanced(number, "the optical switch does not answer"))
                    return
                if wiring.begun and wiring.then is not None:
                    self.cabling = wiring.then
                self.tell(MoveAdvanced(number))
            case RaiseTerm(_, election_id):
                self.tell(TermSaved(election_id + 1))
            case _:
                raise AssertionError(effect)

    def ready(self) -> list[Effect]:
        """Return the effects that may be carried out next: saves take effect in their order."""
        saves = self.waiting(Save)
        return [
            effect for effect in self.pending if not isinstance(effect, Save) or effect is saves[0]
        ]

    # -- switches ----------------------------------------------------------------------------------

    def connect(self, name: str) -> None:
        switch = self.switches[name]
        if not switch.connected:
            switch.connected, switch.known = True, False
            self.tell(SwitchConnected(name))
            self.tell(SwitchChanged(name, "writing"))

    def disconnect(self, name: str, *, restart: bool = False) -> None:
        """Lose the session, and with `restart` also everything that the switch held."""
        switch = self.switches[name]
        if restart:
            switch.held = ()
        if switch.connected:
            switch.connected, switch.writing = False, None
            self.tell(SwitchChanged(name, "away", f"switch {name}: gone", switch.acknowledged))

    def can_write(self, name: str) -> bool:
        switch = self.switches[name]
        return (
            switch.connected
            and not switch.is_stuck
            and (
                switch.writing is not None
                or (
                    switch.wanted is not None
                    and (switch.wanted.version != switch.acknowledged or not switch.known)
                )
            )
        )

    def write(self, name: str) -> None:
        """Take the next step of bringing a switch to its intent."""
        switch = self.switches[name]
        if switch.writing is None:
            assert switch.wanted is not None
            switch.writing = switch.wanted
            switch.held = merged(switch.held, switch.writing.intents[name].parts)
        else:
            done, switch.writing = switch.writing, None
            switch.held, switch.known = done.intents[name].parts, True
            again = switch.acknowledged == done.version
            switch.acknowledged = done.version
            if switch.refuses:
                text = str(switch.refuses[0])
                if len(switch.refuses) > 1:
                    text += f" (and {len(switch.refuses) - 1} more)"
                self.tell(SwitchChanged(name, "refused", text))
                self.tell(IntentRefused(name, text, done.version, switch.refuses, is_clear=True))
            elif again:
                self.tell(SwitchChanged(name, "ready", None, done.version))
            else:
                self.tell(Acknowledged(name, done.version, 0.125, 0.25))
                if switch.wanted is done:
                    self.tell(SwitchChanged(name, "ready", None, done.version))

    def refuse_parts(self, name: str, *parts: Refused) -> None:
        """Let a switch refuse these parts from now on, and only these; it is written again."""
        switch = self.switches[name]
        if switch.refuses != parts:
            switch.refuses = parts
            switch.known, switch.acknowledged = False, None

    def report(self, name: str, *news: tuple[str, str, int, int], time_us: int = 1000) -> int:
        """Report (job, flow, kind, epoch) from a switch, by the numbers of what it holds."""
        numbers = {
            (known.job, known.flow): known.number
            for part in self.switches[name].held
            for known in part.flows
        }
        fields = tuple(
            {
                "flow": numbers[job, flow],
                "epoch": epoch,
                "time_us": time_us,
                "slack_key": 0,
                "event": kind,
            }
            for job, flow, kind, epoch in news
        )
        number = self._next()
        self.tell(Digests(number, name, fields))
        return number

    # -- all of it ---------------------------------------------------------------------------------

    def step(self, *, alarms: bool = True) -> bool:
        """Carry out the first thing that can be done. Returns whether there was any."""
        for effect in self.ready():
            if alarms or not isinstance(effect, SetAlarm):
                self.carry_out(effect)
                return True
        for name in self.switches:
            if self.can_write(name):
                self.write(name)
                return True
        return False

    def run(self, *, connect: bool = True) -> None:
        """Run until nothing is left to be done."""
        if connect:
            for name in self.switches:
                self.connect(name)
        for _ in range(10_000):
            if not self.step():
                return
        raise AssertionError(f"does not come to rest: {self.pending}")

    def run_until_waiting(self, kind: type[Any]) -> None:
        """Run until an effect of that kind waits."""
        for _ in range(10_000):
            if self.waiting(kind) or not self.step():
                return

    def crash(self, saved: int = 0) -> None:
        """Crash the controller after `saved` of its saves under way have reached the store, and
        start another one.
        """
        for effect in self.waiting(Save)[:saved]:
            self.store.commit(effect.changes)
        self.pending.clear()
        for switch in self.switches.values():
            switch.connected, switch.wanted, switch.writing, switch.acknowledged = (
                False,
                None,
                None,
                None,
            )
        self.start()

    def lose_leadership(self) -> None:
        """Lose leadership: saves under way are still answered, then this controller leads again, in
        a later term.
        """
        self.tell(LeadershipLost())
        for effect in self.waiting(Save):
            self.carry_out(effect)
        self.crash()

    # -- for assertions ----------------------------------------------------------------------------

    def state(self, job: str) -> str:
        return self.machine.progress.state(job)[0]

    def in_plan(self) -> set[str]:
        in_force = self.machine.in_force
        return set() if in_force is None else {flow.job for flow in in_force.planned.plan.flows}

    def answer(self, request: int) -> Any:
        """Return the answer to a request. Raises the reason of a refusal."""
        answer = self.answers[request]
        if isinstance(answer, Refuse):
            raise answer.error
        return answer.value

    def error(self, request: int) -> ServiceError:
        answer = self.answers[request]
        assert isinstance(answer, Refuse)
        assert isinstance(answer.error, ServiceError)
        return answer.error


def merged(before: Iterable[Part], now: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts of both, each once."""
    return tuple({id(part): part for part in (*before, *now)}.values())


def known_flows(parts: Iterable[Part]) -> dict[int, set[tuple[str, str]]]:
    """Return the flows that have each number."""
    out: dict[int, set[tuple[str, str]]] = {}
    for part in parts:
        for known in part.flows:
            out.setdefault(known.number, set()).add((known.job, known.flow))
    return out


def small(**limits: int) -> Capabilities:
    """Return a softswitch with smaller tables."""
    return replace(softswitch(), **limits)


def follows_from(snapshot: Snapshot) -> object:
    """Return the documents that a plan follows from: all but the trail."""
    return {**snapshot.documents, "events": None}


def snapshot_of(world: World) -> Snapshot:
    return world.store.load()


def entries_of(intent: Intent) -> set[TableEntry]:
    return set(intent.entries)
