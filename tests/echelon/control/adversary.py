"""Everything that can happen to the controller, in any order, and what must hold all the while.

`Adversary` is driven by hypothesis (test_machine.py) and at random (``python -m tests.soak
control``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from echelon.controller.changes import ReportConnections
from echelon.controller.machine.effects import (
    Answer,
    Effect,
    Install,
    ReadCounters,
    Refuse,
    Save,
    SearchPlan,
    SetAlarm,
)
from echelon.controller.machine.events import ReportIterations, StopWaiting
from echelon.controller.machine.facts import NoPlanChosen
from echelon.controller.machine.invariants import check as check_invariants
from echelon.controller.machine.invariants import mixed_up
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.machine import InForce
from echelon.controller.machine.planning import registered_policy
from echelon.model.fabric.model import Fabric
from echelon.planning.plan import FlowPlan
from echelon.planning.policies import PlanError
from echelon.planning.policies.base import Choice, Policy, Prediction
from echelon.planning.policies.echelon.brief import BriefSearch
from echelon.planning.policies.echelon.candidates import PlanCandidate, candidates
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import PlanSearch
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.intent import Part
from echelon.switches.southbound.events import (
    HigherPrimary,
    IntentRefused,
    PortsChanged,
    SwitchChanged,
)
from echelon.switches.southbound.outcomes import RefusedSetting
from echelon.switches.telemetry.sizes import HostIteration
from tests.echelon.control.world import (
    FINISH,
    START,
    TWO_BY_TWO,
    World,
    known_flows,
    merged,
    ring,
    small,
    two_by_two,
)

NAMES = ("a", "b", "c")
WORKERS = (("h1", "h2"), ("h1", "h3"), ("h2", "h4"), ("h1", "h3", "h4"))
BY_AGENT = frozenset(NAMES[::2])
"""The jobs that switches recognise by what agents report."""
DOCUMENTS = {
    (name, workers): {
        **ring(name, *workers),
        **({"recognition": {"by": "agent", "idle_gap": "50 ms"}} if name in BY_AGENT else {}),
    }
    for name in NAMES
    for workers in WORKERS
}
POLICIES = ("fifo", "echelon", "varys", "fickle")
LINKS = tuple((leaf, spine) for leaf in ("leaf1", "leaf2") for spine in ("spine1", "spine2"))
SWITCHES = ("leaf1", "leaf2", "spine1", "spine2")
LEAVES = SWITCHES[:2]


def with_links(*between: tuple[str, str], **ports: int) -> dict[str, Any]:
    """Return the fabric with these links between switches; `ports` are those of the first switch of
    each link, by the second."""
    hosts = [link for link in TWO_BY_TWO["links"] if link["between"][0] in TWO_BY_TWO["hosts"]]
    links = [
        {"between": [a, b], "rate": "1 Gbit/s", "ports": {a: ports[b]} if b in ports else {}}
        for a, b in between
    ]
    return {**TWO_BY_TWO, "links": [*hosts, *links]}


MOVED = (
    TWO_BY_TWO,
    # Without a path over links that stay.
    with_links(("leaf1", "spine1"), ("leaf2", "spine2"), ("leaf1", "leaf2"), ("spine1", "spine2")),
    # The same links at other ports.
    with_links(
        ("leaf1", "spine1"),
        ("leaf1", "spine2"),
        ("leaf2", "spine1"),
        ("leaf2", "spine2"),
        spine1=4,
        spine2=3,
    ),
)

FABRIC = two_by_two()
HOSTS = tuple(FABRIC.hosts)
TIGHT = small(max_flows=12)
"""A ring of two is 4 flows, one of three is 12: not all jobs have room at one switch."""


class Whim:
    """A search that finds anything, also what switches cannot carry and what cannot be planned."""

    def __init__(self, search: PlanSearch, number: int) -> None:
        self.group = search.group
        self._is_brief = isinstance(search, BriefSearch)
        self._number = number

    def run(self) -> Choice[PlanCandidate]:
        rng = random.Random(f"{sorted(self.group)} {self._number}")
        if rng.random() < 0.1:
            raise PlanError("no plan can be simulated")
        one = rng.choice((*candidates(several_paths=True), PlanCandidate(policy="none")))
        found = Prediction(one, dict.fromkeys(self.group, 1.0), 1.0, 1)
        return Choice(found, (found,), preliminary=self._is_brief and rng.random() < 0.5)


class Fickle(Echelon):
    """A policy that changes its mind with every search."""

    name = "fickle"
    _searched = 0

    def searches(self, *args: Any, **others: Any) -> list[Any]:
        found = super().searches(*args, **others)
        self._searched += len(found)
        return [Whim(search, self._searched) for search in found]


def make_policy(chosen: ChosenPolicy) -> Policy:
    """Return a registered policy, or `Fickle`."""
    return Fickle() if chosen.name == Fickle.name else registered_policy(chosen)


class Adversary(World):
    """A world that checks the machine after each step.

    It keeps books of what was acknowledged, and checks them, the store and the switches at every
    turn.
    """

    def __init__(
        self, policy: str = "echelon", capabilities: Capabilities = TIGHT, coalesce_s: float = 0.0
    ) -> None:
        super().__init__(
            FABRIC,
            policy=policy,
            capabilities=capabilities,
            coalesce_s=coalesce_s,
            correct_sizes=True,
            make_policy=make_policy,
        )
        self.accepted: dict[str, Mapping[str, Any]] = {}
        """The documents of all jobs that were acknowledged and not removed since."""
        self.asked: dict[int, tuple[str, Mapping[str, Any] | None]] = {}
        """The job and its document (None: its removal) of each request without an answer yet."""
        self.waits: set[int] = set()
        self.reports: dict[int, str] = {}
        """The switch of each report that is not dealt with yet."""
        self._leaf = {
            host: leaf
            for host in self.fabric.hosts
            for leaf in LEAVES
            if (leaf, host) in self.fabric.port_to
        }
        self.start()

    def _take(self, effect: Effect) -> None:
        super()._take(effect)
        match effect:
            case Answer(request) if request in self.asked:
                name, document = self.asked.pop(request)
                if document is None:
                    self.accepted.pop(name, None)
                else:
                    self.accepted[name] = document
                    assert name in self.store.load()["jobs"], "acknowledged before it was saved"
            case Refuse(request) if request in self.asked:
                del self.asked[request]
            case Install(version, intents):
                assert version > self._newest, "versions must rise"
                self._newest = version
                for name, switch in self.switches.items():
                    assert_told_apart(merged(switch.held, intents[name].parts))
                    self._assert_saved(name, intents[name].parts)

    def start(self) -> None:
        self._newest = 0
        self._checked: InForce | None = None
        """The plan that was in force at the last check of the machine."""
        super().start()

    def _look_at_step(self, todo: Sequence[Effect]) -> None:
        check_invariants(self.machine, todo, self._checked)
        self._checked = self.machine.in_force

    # -- what must hold ----------------------------------------------------------------------------

    def _assert_saved(self, switch: str, parts: Sequence[Part]) -> None:
        """Assert that the numbers of every job are in the store before any switch has them."""
        stored = self.store.load()["numbers"]
        for number, flows in known_flows(parts).items():
            for job, flow in flows:
                of_flows = stored[job]["numbers"]["FLOW"]
                saved = {
                    of_flows["keys"][first + step]: begin + step
                    for first, begin, length in of_flows["at"][switch]
                    for step in range(length)
                }
                assert saved[flow] == number

    def check(self) -> None:
        """Check the state after an event."""
        jobs = self.machine.jobs.jobs
        in_doubt = {name for name, _ in self.asked.values()}
        for name in NAMES:
            if name not in in_doubt:
                assert (jobs[name].document if name in jobs else None) == self.accepted.get(name), (
                    name
                )
        stored = self.store.load()["jobs"]
        assert {name: job.to_document() for name, job in jobs.items()} == stored
        saved = self.store.load()["settings"].get("drained", {"links": []})["links"]
        assert self.machine.jobs.drained == {tuple(link) for link in saved}, (
            "what is down was taken for drained"
        )
        wiring = self.machine.jobs.wiring
        in_store = self.store.load()["settings"].get(
            "links", {"now": cables_of(FABRIC), "then": None, "begun": False}
        )
        assert in_store["now"] == cables_of(wiring.now)
        assert in_store["then"] == (None if wiring.then is None else cables_of(wiring.then))
        possible = (
            [wiring.now, wiring.then] if wiring.begun and wiring.then is not None else [wiring.now]
        )
        assert cables_of(self.cabling) in map(cables_of, possible), (
            "links are where nobody would look for them"
        )
        self._check_installed()

    def _check_installed(self) -> None:
        """Check that an installed job is on every switch that its flows pass, and that these have
        sessions.
        """
        in_force = self.machine.in_force
        for name in self.machine.jobs.jobs if in_force is not None else ():
            if self.state(name) == "installed":
                assert in_force is not None
                for flow in in_force.planned.plan.by_job[name]:
                    for node in flow.path[1:-1]:
                        switch = self.switches[node]
                        assert switch.connected
                        assert any(
                            (name, flow.flow) in flows
                            for flows in known_flows(switch.held).values()
                        )

    def rest(self) -> None:
        """Let everything come to rest, and compare what switches hold with the plan, and the plan
        with the jobs.
        """
        self.run()
        for name in self.switches:
            self.unplug(name, ())
            self.refuse_parts(name)
        for link in self.machine.jobs.drained:
            self.set_link(*link, drained=False)
        self.run()
        self.check()
        machine, in_force = self.machine, self.machine.in_force
        assert machine.outages.links == {}, "links are down though all switches answer"
        assert (machine.moves.stage, machine.jobs.wiring.then) == ("standing", None)
        assert in_force is not None
        assert machine.settled
        assert self.asked == {}, "requests without an answer"
        assert self.dealt_with >= self.reports.keys(), "reports that nobody dealt with"
        for name, switch in self.switches.items():
            assert set(switch.held) == set(in_force.planned.intents[name].parts), name
        planned = in_force.planned.plan.by_job
        expected: dict[str, set[tuple[str, str]]] = {name: set() for name in self.switches}
        for name, job in machine.jobs.jobs.items():
            state, problem = machine.progress.state(name)
            if name not in planned:
                assert (state, bool(problem)) == ("unplanned", True), (name, state, problem)
                assert machine.plan_problem is not None
                assert not self._has_room(name, set(planned)), (
                    "it was left out although there is room"
                )
                continue
            assert state == "installed", (name, state, problem)
            assert {flow.flow for flow in planned[name]} == {flow.name for flow in job.job.flows}
            for flow in planned[name]:
                for node in flow.path[1:-1]:
                    expected[node].add((name, flow.flow))
        assert set(planned) <= set(machine.jobs.jobs)
        for name, switch in self.switches.items():
            held = [flow for flows in known_flows(switch.held).values() for flow in flows]
            assert len(held) == len(set(held)) == len(expected[name])
            assert set(held) == expected[name], name
        for request in self.waits:
            assert request in self.answers, "somebody still waits"
        self._check_choices()

    def _check_choices(self) -> None:
        """Check that every group of jobs was searched for, and that a restart changes nothing."""
        searches, failed = (
            self.machine.searches,
            {fact.jobs for fact in self.facts if isinstance(fact, NoPlanChosen)},
        )
        assert not self.machine.searching
        for group in searches.plans:
            if len(group) > 1 and tuple(sorted(group)) not in failed:
                assert not searches.chosen[group].choice.preliminary
        # Sizes that hosts have measured are not stored, as agents report them again.
        corrected = any(job.size_factors for job in self.machine.jobs.jobs.values())
        if self.machine.jobs.policy.name not in (Fickle.name, "varys") and not corrected:
            flows = self._planned_flows()
            self.crash()
            self.run()
            assert self._planned_flows() == flows

    def _planned_flows(self) -> Mapping[str, Sequence[FlowPlan]]:
        assert self.machine.in_force is not None
        return self.machine.in_force.planned.plan.by_job

    def _has_room(self, name: str, planned: set[str]) -> bool:
        """Return whether every leaf has room for the flows, which pass the leaves of their job's
        workers.
        """
        jobs = self.machine.jobs.jobs
        return all(
            sum(
                leaf in (self._leaf[flow.src], self._leaf[flow.dst])
                for one in (*planned, name)
                for flow in jobs[one].job.flows
            )
            <= self.capabilities.max_flows
            for leaf in LEAVES
        )

    # -- what can happen ---------------------------------------------------------------------------

    def ask_for(self, name: str, workers: tuple[str, ...], *, replaces: bool) -> None:
        document = DOCUMENTS[name, workers]
        # It may be answered within.
        self.asked[self._number + 1] = name, document
        self.register(document, replace=replaces)

    def ask_removal(self, name: str) -> None:
        self.asked[self._number + 1] = name, None
        self.remove(name)

    def see(self, name: str, host: str, other: str, ports: Sequence[int]) -> None:
        """Let the agent of a host report connections, whether or not these are hosts of the job."""
        src, dst = self.fabric.hosts[host].ipv4, self.fabric.hosts[other].ipv4
        seen = tuple(("tcp", src, dst, port, port) for port in ports)
        self.carry_out_change(lambda request: ReportConnections(request, name, host, seen))

    def measure(self, name: str, host: str, other: str, sent_bytes: int, count: int) -> None:
        """Let the agent of a host report iterations, whether or not these are hosts of the job."""
        seen = (HostIteration(Fraction(1), {other: sent_bytes}),) * count
        self.carry_out_change(lambda request: ReportIterations(request, name, host, seen))

    def ask_wait(self, name: str) -> None:
        self.waits.add(self.wait_for(name))

    def stop_waiting(self, index: int) -> None:
        waits = sorted(self.waits - self.answers.keys())
        if waits:
            request = waits[index % len(waits)]
            self.waits.discard(request)
            self.tell(StopWaiting(request))

    def carry_out_one(self, index: int, *, fails: bool) -> None:
        ready = self.ready()
        if ready:
            effect = ready[index % len(ready)]
            self.carry_out(
                effect, fails=fails and isinstance(effect, Save | ReadCounters | SearchPlan)
            )

    def write_some(self, name: str) -> None:
        if self.can_write(name):
            self.write(name)
            assert_told_apart(self.switches[name].held)

    def refuse(self, name: str) -> None:
        """Let a switch refuse part of its intent; it is written again later."""
        switch = self.switches[name]
        if switch.writing is not None:
            switch.writing, switch.known = None, False
            self.tell(SwitchChanged(name, "refused", "table full", switch.acknowledged))
            self.tell(IntentRefused(name, "table full"))

    def refuse_port(self, name: str, other: str) -> None:
        """Let a switch refuse the queues of the port that leads to another node, if there is one."""
        port = self.fabric.port_to.get((name, other))
        if port is None:
            self.refuse_parts(name)
            return
        queues = f"queues of port {port}"
        refused = RefusedSetting(
            name, queues, "no", frozenset({port}), takes_links=True, settings=8
        )
        self.refuse_parts(name, refused)

    def report_one(self, name: str, index: int, *, starts: bool, epoch: int) -> None:
        switch = self.switches[name]
        flows = sorted(flow for found in known_flows(switch.held).values() for flow in found)
        if switch.connected and flows:
            job, flow = flows[index % len(flows)]
            self.reports[self._number + 1] = name
            self.report(
                name, (job, flow, START if starts else FINISH, epoch), time_us=int(self.now_s * 1e6)
            )

    def leave(self, name: str, *, restart: bool) -> None:
        self.disconnect(name, restart=restart)
        self._forget_reports()

    def lose(self, name: str, *, restart: bool) -> None:
        """Let a switch die, and be dead for longer than the grace time."""
        self.leave(name, restart=restart)
        self._pass_time(name)

    def get_back(self, name: str) -> None:
        """Let a switch return, and be there for long enough."""
        self.connect(name)
        self._pass_time(name)

    def flap(self, name: str, times: int) -> None:
        """Let a switch die and return so often, and let only its last news be true for long."""
        for _ in range(times):
            self.leave(name, restart=False)
            self.connect(name)
        self._pass_time(name)

    def unplug(self, name: str, others: Sequence[str]) -> None:
        """Let those ports of a switch be down that lead to others, and no more."""
        down = (self.fabric.port_to.get((name, other)) for other in others)
        self.tell(PortsChanged(name, frozenset(port for port in down if port is not None)))

    def _pass_time(self, name: str) -> None:
        for one in self.waiting(SetAlarm):
            if (one.alarm.kind, one.alarm.switch) == ("outage", name):
                self.carry_out(one)

    def outrank(self, name: str) -> None:
        self.tell(HigherPrimary(name, 1000))

    def die(self, saved: int) -> None:
        """Let the controller die. Requests under way are in doubt: the store decides."""
        self.waits.clear()
        asked = set(self.asked)
        self.crash(saved)
        self._look_again(asked)

    def abdicate(self) -> None:
        self.waits.clear()
        self.lose_leadership()
        assert self.asked == {}, "requests that were left without an answer"
        self._look_again(set())

    def _look_again(self, asked: set[int]) -> None:
        in_doubt: dict[str, list[Mapping[str, Any] | None]] = {}
        for request in asked:
            name, document = self.asked.pop(request)
            in_doubt.setdefault(name, [self.accepted.get(name)]).append(document)
        for name, possible in in_doubt.items():
            job = self.machine.jobs.jobs.get(name)
            found = None if job is None else job.document
            assert found in possible, f"{name} was neither as before nor as asked"
            self.accepted.pop(name, None)
            if found is not None:
                self.accepted[name] = found
        self.reports.clear()

    def _forget_reports(self) -> None:
        """Forget reports of sessions that ended, which need no acknowledgement, though they may get
        one.
        """
        self.reports = {
            report: name for report, name in self.reports.items() if self.switches[name].connected
        }  # fmt: skip


def cables_of(fabric: Fabric) -> list[Any]:
    """Return the links of a fabric as the store has them."""
    return [
        [c.a.node, c.a.port, c.b.node, c.b.port, c.rate_bps, str(c.delay_s)] for c in fabric.cables
    ]


def assert_told_apart(parts: Sequence[Part]) -> None:
    """Assert that no number of a switch means two flows, and that no match means two of them."""
    assert not list(mixed_up(parts))


Turn = Callable[[Adversary, random.Random], None]

TURNS: tuple[tuple[int, Turn], ...] = (
    (10, lambda a, r: a.ask_for(r.choice(NAMES), r.choice(WORKERS), replaces=r.random() < 0.6)),
    (5, lambda a, r: a.ask_removal(r.choice(NAMES))),
    (
        3,
        lambda a, r: a.measure(
            r.choice(NAMES), *r.sample(HOSTS, 2), r.randrange(10**6), r.choice((3, 8, 17))
        ),
    ),
    (
        6,
        lambda a, r: a.see(
            r.choice(NAMES), *r.sample(HOSTS, 2), r.sample(range(1, 5), r.randrange(3))
        ),
    ),
    (2, lambda a, r: a.ask_wait(r.choice(NAMES))),
    (1, lambda a, r: a.stop_waiting(r.randrange(8))),
    (2, lambda a, r: void(a.choose(r.choice(POLICIES)))),
    (
        2,
        lambda a, r: void(
            a.set_link(*r.choice(LINKS), drained=r.random() < 0.5, force=r.random() < 0.5)
        ),
    ),
    (30, lambda a, r: a.carry_out_one(r.randrange(8), fails=r.random() < 0.15)),
    (25, lambda a, r: a.write_some(r.choice(SWITCHES))),
    (8, lambda a, r: a.connect(r.choice(SWITCHES))),
    (2, lambda a, r: a.leave(r.choice(SWITCHES), restart=r.random() < 0.5)),
    (2, lambda a, r: a.lose(r.choice(SWITCHES), restart=r.random() < 0.5)),
    (3, lambda a, r: a.get_back(r.choice(SWITCHES))),
    (1, lambda a, r: a.flap(r.choice(SWITCHES), r.randrange(1, 4))),
    (2, lambda a, r: a.unplug(r.choice(SWITCHES), r.sample((*SWITCHES, *HOSTS), 3))),
    (2, lambda a, r: a.refuse(r.choice(SWITCHES))),
    (2, lambda a, r: a.refuse_port(r.choice(SWITCHES), r.choice((*SWITCHES, *HOSTS)))),
    (
        14,
        lambda a, r: a.report_one(
            r.choice(LEAVES), r.randrange(64), starts=r.random() < 0.6, epoch=r.randrange(3)
        ),
    ),
    (1, lambda a, r: a.outrank(r.choice(SWITCHES))),
    (2, lambda a, r: a.die(r.randrange(4))),
    (1, lambda a, r: a.abdicate()),
)
"""The turns that a random sequence can take, with their weights."""
MOVES: tuple[tuple[int, Turn], ...] = ((5, lambda a, r: void(a.move(r.choice(MOVED)))),)
"""More of them, for sequences in which links move."""


def void(_: object) -> None:
    pass


def play(seed: int, events: int, *, moves: bool = False) -> Adversary:
    """Play one random sequence on a controller with a past, then let it come to rest.

    Deterministic.
    """
    possible = TURNS + MOVES if moves else TURNS
    rng = random.Random(seed)
    adversary = Adversary(rng.choice((*POLICIES, "varys")), coalesce_s=rng.choice((0.0, 0.005)))
    adversary.keeps = seed % 2 == 1
    for name in NAMES[: rng.randrange(4)]:
        adversary.ask_for(name, rng.choice(WORKERS), replaces=False)
        adversary.run()
    turns = rng.choices(
        [turn for _, turn in possible], [weight for weight, _ in possible], k=events
    )
    for turn in turns:
        turn(adversary, rng)
        adversary.check()
    adversary.rest()
    return adversary
