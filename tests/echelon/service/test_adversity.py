"""What may come between: changes at the wrong moment, jobs that do not fit, switches that leave a policy waiting."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from finsy import P4DigestList

from echelon.client import Client
from echelon.fabric.load import FabricSpec, build_fabric
from echelon.fabric.model import Fabric
from echelon.lowering.intent import TableEntry
from echelon.lowering.lower import limits
from echelon.lowering.numbering import Numbering
from echelon.p4program import constants
from echelon.policies.coflow import Varys
from echelon.reaction import DecisionDue
from echelon.scheduler import CentralScheduler
from echelon.service.config import load_service_config
from echelon.service.control import Control
from echelon.service.errors import UnavailableError
from echelon.service.following import Following
from echelon.service.jobs import RegisteredJob, from_document
from echelon.service.metrics import Metrics
from echelon.service.planning import Planned, Planner, PlanningError, Wanted
from echelon.service.progress import Progress
from echelon.service.register import Register
from echelon.service.resources import PolicySetting
from echelon.service.store import Candidate, Changes, Store, StoreError, open_store
from echelon.service.switches import Switches
from echelon.southbound.connection import Installed, Refused, StateChanged
from echelon.southbound.errors import SouthboundError
from echelon.southbound.outcome import Applied
from echelon.southbound.session import DigestReport
from echelon.targets import TARGETS
from echelon.targets.softswitch.capabilities import softswitch
from echelon.telemetry.events import FlowEvent
from tests.echelon.policies.registering import register
from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import LINE, TWO_BY_TWO, Lab, ring, settle, until
from tests.echelon.service.test_progress import flows_over

T = TypeVar("T")

COFLOW = PolicySetting(name="coflow")
ECHELON = PolicySetting(name="echelon")
START, FINISH = constants()["EVENT_START"], constants()["EVENT_FINISH"]


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build_fabric(FabricSpec.model_validate(TWO_BY_TWO))


def planner(fabric: Fabric, **limited: int) -> Planner:
    capabilities = dict.fromkeys(fabric.switches, replace(softswitch(), **limited))
    return Planner(capabilities, Numbering({name: limits(of) for name, of in capabilities.items()}))


def job(name: str, *workers: str, number: int = 1) -> RegisteredJob:
    return from_document(
        {"number": number, "accepted_at": float(number), "spec": ring(name, list(workers)), "offsets_s": {}}
    )


def pipeline(name: str, micro_batches: int = 3) -> dict[str, Any]:
    return {
        "job": name, "parallelism": "pipeline", "workers": ["h1", "h2"],
        "pipeline": {"micro_batches": micro_batches, "forward": "10 ms", "activation": "1 MB"},
    }  # fmt: skip


def metrics() -> Metrics:
    return Metrics("0")


# -- planning ----------------------------------------------------------------------------------------------------------


def test_a_job_that_is_replaced_by_one_that_does_not_fit_keeps_nobody_waiting(fabric: Fabric) -> None:
    small = planner(fabric, max_flows=10)
    one, other, new = (job(f"j{n}", "h1", "h2", number=n) for n in range(1, 4))
    elsewhere = job("elsewhere", "h3", "h4", number=4)
    small.plan(Wanted((one, other), fabric, ECHELON))
    # 24 flows at a switch that takes 10.
    one = job("j1", "h1", "h2", "h3", "h4")
    planned = small.plan(Wanted((one, other, elsewhere), fabric, ECHELON))
    assert set(planned.problems) == {"j1"}
    assert [job.name for job in planned.registered] == ["j2", "elsewhere"]
    for switch in fabric.switches:
        small.settle(switch, planned.version)
    planned = small.plan(Wanted((one, other, elsewhere, new), fabric, ECHELON))
    assert set(planned.problems) == {"j1"}


def test_a_job_that_lowering_breaks_at_is_left_out(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in one job's way must not end the service, which would come back to the same job for ever."""
    keeps = planner(fabric)
    good = job("good", "h1", "h2")
    keeps.plan(Wanted((good,), fabric, ECHELON))
    real = RegisteredJob.identities

    def breaks(self: RegisteredJob, fabric: Fabric) -> object:
        if self.name == "bad":
            raise ZeroDivisionError("a slip")
        return real(self, fabric)

    monkeypatch.setattr(RegisteredJob, "identities", breaks)
    planned = keeps.plan(Wanted((good, job("bad", "h1", "h3", number=2)), fabric, ECHELON))
    assert planned.problems == {"bad": "lowering failed: ZeroDivisionError: a slip"}
    with pytest.raises(PlanningError):
        planner(fabric).react(
            CentralScheduler(Varys(), (), planned.plan),
            DecisionDue(Fraction(), {}),
            replace(planned, registered=(job("bad", "h1", "h3", number=2),)),
            fabric,
        )


def test_a_reactive_policy_reacts_although_a_job_breaks_it(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Varys):
        def plan(self, jobs: Any, fabric: Fabric, paths: Any = None) -> Any:
            if any(one.name == "bad" for one in jobs):
                raise ZeroDivisionError("a slip")
            return super().plan(jobs, fabric, paths)

    register(monkeypatch, "breaks", Breaks)
    keeps = planner(fabric)
    jobs = (job("good", "h1", "h2"), job("bad", "h1", "h3", number=2))
    planned = keeps.plan(Wanted(jobs, fabric, PolicySetting(name="breaks")))
    assert set(planned.problems) == {"bad"}
    follower = Follower(planned, keeps)
    follower.report("leaf1", planned, "good", 0, START)
    assert follower.decisions, "nobody was asked"


def test_halving_takes_no_longer_for_the_names_of_many_jobs(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are found by name, not by comparing each with each."""
    compared = 0

    def equal(self: RegisteredJob, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(RegisteredJob, "__eq__", equal)
    small = planner(fabric, max_flows=400)
    jobs = tuple(job(f"j{n}", "h1", "h2", number=n + 1) for n in range(120))
    planned = small.plan(Wanted(jobs, fabric, ECHELON))
    assert len(planned.registered) == 100
    assert compared == 0


# -- what is accepted --------------------------------------------------------------------------------------------------


def registry(fabric: Fabric, store: Store, leadership: Any) -> Register:
    return Register(fabric, ECHELON, store, leadership, metrics(), max_jobs=10, flows_per_job=1000)


def test_a_change_from_an_earlier_term_is_not_acknowledged(fabric: Fabric, tmp_path: Path) -> None:
    """The same process leads again, and has loaded, before the change comes to the store."""

    async def run() -> None:
        free = threading.Event()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with await open_store(f"sqlite:{tmp_path}/state.db", lease_s=5) as store:
            first = await store.campaign(Candidate("c", "http://c"))
            blocked = asyncio.get_running_loop().run_in_executor(None, free.wait)
            changing = asyncio.create_task(
                registry(fabric, store, first).register(ring("a", ["h1", "h2"]), replace=False)
            )
            await asyncio.sleep(0)
            await first.resign()
            second = await store.campaign(Candidate("c", "http://c"))
            later = registry(fabric, store, second)
            later.load(await store.load())
            free.set()
            await blocked
            with pytest.raises(UnavailableError):
                await changing
            assert set((await store.load())["jobs"]) == set(later.jobs)

    asyncio.run(run())


def test_reported_distances_replace_those_that_were_seen_before(fabric: Fabric) -> None:
    seen = from_document({"number": 1, "accepted_at": 1.0, "spec": pipeline("p"), "offsets_s": {}})
    (one,) = seen.job.echelonflows
    seen = replace(seen, observed_s={one.name: (Fraction(0), Fraction(1), Fraction(2))})
    reported = seen.with_reported(one.name, (Fraction(0), Fraction(3), Fraction(4)))
    assert reported.job.echelonflows[0].offsets_s == (0, 3, 4)


# -- the leader --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def leading(lab: Lab, **settings: Any) -> AsyncIterator[tuple[Control, Store]]:
    """A leader in this process."""
    config = load_service_config(lab.config("inside", store="sqlite:inside.db", coalesce="1 ms", **settings))
    async with await open_store(config.store, lease_s=config.lease_s) as store:
        leadership = await store.campaign(Candidate("c", "http://c"))
        control = Control(config, store, leadership, metrics(), started_at=0.0, rng=random.Random(1))
        await control.open()
        running = asyncio.create_task(control.run())
        try:
            yield control, store
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def when(condition: Callable[[], object], running: float = 30.0) -> None:
    async with asyncio.timeout(running):
        while not condition():
            await asyncio.sleep(0.005)


def in_plan(control: Control, *names: str) -> bool:
    try:
        return {flow.job for flow in control.plan().flows} == set(names)
    except UnavailableError:
        return False


@pytest.fixture
def offline(tmp_path: Path) -> Lab:
    """Switches that nobody started."""
    return Lab(tmp_path, TWO_BY_TWO)


def test_a_decision_of_a_policy_that_was_changed_is_dropped(offline: Lab) -> None:
    async def run() -> None:
        async with leading(offline, policy="coflow") as (control, _):
            await control.register(ring("a", ["h1", "h3"]), replace=False)
            await when(lambda: in_plan(control, "a"))
            reaction = control._following._reaction
            assert reaction is not None
            await control._adopting.acquire()
            await control.set_policy(PolicySetting(name="fifo"))
            await control.register(ring("b", ["h1", "h2"]), replace=False)
            await when(lambda: control._adopting._waiters)
            deciding = asyncio.create_task(control._decide(reaction.scheduler, DecisionDue(Fraction(1), {})))
            await when(lambda: len(control._adopting._waiters or ()) == 2)
            control._adopting.release()
            await deciding
            assert control.plan().policy == "fifo"
            assert in_plan(control, "a", "b")

    asyncio.run(run())


def test_a_session_that_ends_in_a_decision_loses_no_numbers(offline: Lab) -> None:
    """The report's task ends with its session, and what the decision did to the numbers must be on disk all the same:
    else the numbers of a job that has left are given to another while they are on disk as its own."""

    async def run() -> None:
        async with leading(offline, policy="coflow") as (control, store):
            for name in ("a", "b"):
                await control.register(ring(name, ["h1", "h3"]), replace=False)
            await when(lambda: in_plan(control, "a", "b"))
            assert set((await store.load())["numbers"]) == {"a", "b"}
            await control.remove("b")
            await when(lambda: in_plan(control, "a"))
            for switch in offline.switches:
                control.acknowledged(switch, control.plan().number)
            reaction = control._following._reaction
            assert reaction is not None
            entered, go, react = threading.Event(), threading.Event(), control._planner.react

            def slow(*arguments: Any) -> Planned:
                entered.set()
                go.wait(30)
                return react(*arguments)

            control._planner.react = slow  # type: ignore[method-assign]
            deciding = asyncio.create_task(control._decide(reaction.scheduler, DecisionDue(Fraction(1), {})))
            await when(entered.is_set)
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)
            go.set()
            await control.register(ring("c", ["h1", "h3"]), replace=False)
            await when(lambda: in_plan(control, "a", "c"))
            assert set((await store.load())["numbers"]) == {"a", "c"}

    asyncio.run(run())


def test_what_was_seen_of_a_jobs_former_self_is_not_taken_for_it(offline: Lab) -> None:
    async def run() -> None:
        async with leading(offline, telemetry={"correct_distances": True}) as (control, _):
            await control.register(pipeline("p", 3), replace=False)
            await when(lambda: in_plan(control, "p"))
            tracked = control._following.tracker._jobs["p"]
            # What switches saw arrives while the job is another one already, and not planned yet.
            await control._adopting.acquire()
            await control.register(pipeline("p", 2), replace=True)
            (name,) = (one.name for one in tracked._job.echelonflows)
            tracked.corrections.offsets_s[name] = (Fraction(0), Fraction(1), Fraction(2))  # type: ignore[index]
            control._corrected("p")
            control._adopting.release()
            await when(lambda: control.job("p").state != "accepted")
            assert control.job("p").problem is None
            assert control.job("p").state == "planned"

    asyncio.run(run())


def test_a_failure_to_settle_is_said(offline: Lab, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with leading(offline) as (control, _):
            await when(lambda: in_plan(control))

            def fails(*_: object) -> bool:
                raise ZeroDivisionError("a slip")

            control._planner.settle = fails  # type: ignore[assignment,method-assign]
            control.acknowledged("leaf1", 1)
            await when(lambda: "a slip" in caplog.text)

    asyncio.run(run())


def test_a_job_that_waits_for_numbers_gets_them(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job leaves and another comes in the same breath; there is room for one."""
    small = replace(softswitch(), max_flows=5)
    monkeypatch.setattr(type(TARGETS["softswitch"]), "capabilities", lambda _target, _options: small)
    lab = build(LINE)

    async def run() -> None:
        async with leading(lab) as (control, _):
            await control.register(ring("a", ["h1", "h2"]), replace=False)
            assert (await control.installed("a", 30)).state == "installed"
            for n in range(3):
                await control.remove("a" if n == 0 else f"b{n - 1}")
                await control.register(ring(f"b{n}", ["h1", "h2"]), replace=False)
                await when(lambda n=n: control.job(f"b{n}").state == "installed")  # type: ignore[misc]
                shown = control.job(f"b{n}")
                assert shown.timings is not None
                assert shown.installed_at is not None
            assert control.status().plan_problem is None

    asyncio.run(run())


def test_somebody_who_waits_is_told_when_leadership_is_lost(offline: Lab) -> None:
    async def run() -> None:
        async with leading(offline) as (control, _):
            await control.register(ring("a", ["h1", "h3"]), replace=False)
            waiting = asyncio.create_task(control.installed("a", 3600))
            await when(lambda: in_plan(control, "a"))
        async with asyncio.timeout(10):
            with pytest.raises(UnavailableError):
                await waiting

    asyncio.run(run())


def test_a_trouble_of_the_store_is_over_when_it_is_over(offline: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where numbers come from a reaction, and not from a plan."""
    monkeypatch.setattr("echelon.service.control._RETRY_S", 0.01)

    async def run() -> None:
        async with leading(offline) as (control, store):
            await when(lambda: in_plan(control))
            assert control._made is not None
            commit, refusals = store.commit, [StoreError("disk full"), StoreError("disk full")]

            async def fails_at_first(changes: Changes) -> None:
                if refusals:
                    assert control.status().plan_problem == ("disk full" if len(refusals) < 2 else None)
                    raise refusals.pop()
                await commit(changes)

            monkeypatch.setattr(store, "commit", fails_at_first)
            await control._save_numbers(replace(control._made.planned, kept={"a": {"numbers": {}, "routes": []}}))
            assert "a" in (await store.load())["numbers"]
            assert control.status().plan_problem is None

    asyncio.run(run())


def test_two_switches_raise_the_term(tmp_path: Path) -> None:
    """At once, and the one that was asked for less comes last."""

    async def run() -> None:
        async with await open_store(f"sqlite:{tmp_path}/state.db", lease_s=5) as store:
            leadership = await store.campaign(Candidate("c", "http://c"))
            highest = leadership.term + 10**12
            await asyncio.gather(leadership.raise_term(highest), leadership.raise_term(highest - 1))
            assert leadership.term == highest
            await leadership.resign()
            assert (await store.campaign(Candidate("c", "http://c"))).term > highest

    asyncio.run(run())


def test_numbers_that_cannot_be_read_are_one_line(offline: Lab) -> None:
    """Two jobs are said to have one number."""
    document = {"numbers": {"FLOW": {"keys": ["f"], "at": {"leaf1": [[0, 7, 1]]}}}, "routes": []}

    async def run() -> None:
        config = load_service_config(offline.config("inside", store="sqlite:inside.db"))
        async with await open_store(config.store, lease_s=5) as store:
            leadership = await store.campaign(Candidate("c", "http://c"))
            await store.commit(Changes(puts={("numbers", "a"): document, ("numbers", "b"): document}))
            control = Control(config, store, leadership, metrics(), started_at=0.0)
            with pytest.raises(StoreError, match=r"inside.db: job b: its stored numbers cannot be read: .*\(put back"):
                await control.open()

    asyncio.run(run())


def test_memory_is_what_is_on_disk_though_clients_hang_up(build: Build) -> None:
    """Connections are reset while their change is on its way to the disk."""
    lab = build(TWO_BY_TWO)
    rng = random.Random(1)
    daemon = lab.daemon()
    hosts = list(lab.fabric.hosts)
    with lab.client(daemon) as client:
        address = urlsplit(daemon.wait_listening())
        for _ in range(100):
            name = f"j{rng.randrange(8)}"
            body = json.dumps(ring(name, rng.sample(hosts, rng.randint(2, 4)))).encode()
            method = rng.choice(("PUT", "PUT", "DELETE"))
            head = f"{method} /jobs/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            with socket.create_connection((address.hostname, address.port)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                time.sleep(rng.uniform(0, 0.006))
        settle(client)
        # What was sent last may still be under way.
        until(lambda: in_memory(client) == on_disk(lab), "memory is not what is on disk")
    assert not [line for line in daemon.lines if "Traceback" in line]


def in_memory(client: Client) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {one.name: (client.job(one.name).number, one.workers) for one in client.jobs()}


def on_disk(lab: Lab) -> dict[str, tuple[int, tuple[str, ...]]]:
    with closing(sqlite3.connect(next(lab.directory.glob("*.db")))) as file:
        rows = file.execute("SELECT key, body FROM documents WHERE collection = 'jobs'").fetchall()
    jobs = {name: json.loads(body) for name, body in rows}
    return {name: (one["number"], tuple(one["spec"]["workers"])) for name, one in jobs.items()}


# -- what switches tell ------------------------------------------------------------------------------------------------


class Owner:
    def __init__(self) -> None:
        self.done: list[str] = []

    def moved(self) -> None:
        pass

    def session_opened(self, switch: str) -> None:
        pass

    def acknowledged(self, switch: str, version: int) -> None:
        pass

    def completed(self, job: str) -> None:
        self.done.append(job)


async def ignored(*_: object) -> None:
    pass


def switches(lab: Lab, progress: Progress) -> tuple[Switches, Owner]:
    config, owner = load_service_config(lab.config("inside")), Owner()
    return Switches(config, 1, metrics(), progress, owner, ignored, lambda *_: None, random.Random(1)), owner


def of_one_job() -> Progress:
    """Accepted, and planned over two switches."""
    progress = Progress()
    progress.accepted("a", 0.0)
    flows = {"a": flows_over("a", frozenset({"leaf1", "leaf2"}))}
    progress.planned(1, flows, {}, ["a"], began_s=0.0, policy_s=0.0, lowering_s=0.0)
    return progress


NOTHING = Applied(0, 0, 0, (), 0, 0, 0, 0.0, 0.0, 0.0)


def test_a_job_is_complete_when_a_switch_is_back_that_had_it(offline: Lab) -> None:
    progress = of_one_job()
    all_of_them, owner = switches(offline, progress)
    leaf1 = all_of_them["leaf1"]
    leaf1._installed = 1
    leaf1._on_event(Installed("leaf1", 1, NOTHING))
    leaf1._on_event(StateChanged("leaf1", "away", "gone"))
    leaf1._on_event(Installed("leaf2", 1, NOTHING))
    assert (progress.state("a")[0], owner.done) == ("planned", [])
    leaf1._on_event(StateChanged("leaf1", "ready", None))
    assert (progress.state("a")[0], owner.done) == ("installed", ["a"])


def test_what_is_refused_in_every_session_is_said_in_every_session(offline: Lab) -> None:
    """A connection tells of a refusal once."""
    progress = of_one_job()
    all_of_them, _ = switches(offline, progress)
    tell = all_of_them["leaf1"]._on_event
    for event in (
        StateChanged("leaf1", "refused", "table full"),
        Refused("leaf1", 1, "table full", NOTHING),
        StateChanged("leaf1", "away", "gone"),
    ):
        tell(event)
    assert progress.state("a") == ("planned", None)
    tell(StateChanged("leaf1", "writing", None))
    tell(StateChanged("leaf1", "refused", "table full"))
    assert progress.state("a") == ("planned", "table full")


# -- progress ----------------------------------------------------------------------------------------------------------


def test_a_job_that_no_plan_had_at_first_is_timed_when_it_is_installed() -> None:
    progress = Progress()
    progress.accepted("a", 0.0)
    progress.failed("no way", ["a"])
    flows = {"a": flows_over("a", frozenset({"s1"}))}
    progress.planned(1, {}, {"a": "no room"}, ["a"], began_s=0.5, policy_s=0.0, lowering_s=0.0)
    assert progress.state("a") == ("unplanned", "no room")
    progress.planned(2, flows, {}, ["a"], began_s=1.0, policy_s=0.25, lowering_s=0.5)
    assert progress.acknowledged("s1", 2, encoding_s=0.0, rpc_s=0.0, now_s=2.0, at=7.0) == ["a"]
    timings, installed_at = progress.timings("a")
    assert installed_at == 7.0
    assert timings is not None
    assert (timings.total_s, timings.queued_s) == (2.0, 1.0)


def test_a_job_that_leaves_the_plan_on_its_way_is_timed_when_it_is_back() -> None:
    progress = Progress()
    progress.accepted("a", 0.0)
    flows = {"a": flows_over("a", frozenset({"s1"}))}
    progress.planned(1, flows, {}, ["a"], began_s=0.5, policy_s=0.0, lowering_s=0.0)
    progress.planned(2, {}, {"a": "no room"}, ["a"], began_s=1.0, policy_s=0.0, lowering_s=0.0)
    assert progress.acknowledged("s1", 2, encoding_s=0.0, rpc_s=0.0, now_s=2.0, at=6.0) == []
    progress.planned(3, flows, {}, ["a"], began_s=2.5, policy_s=0.0, lowering_s=0.0)
    assert progress.acknowledged("s1", 3, encoding_s=0.0, rpc_s=0.0, now_s=3.0, at=7.0) == ["a"]
    assert progress.timings("a")[1] == 7.0


# -- reactive policies -------------------------------------------------------------------------------------------------


class Follower:
    """A `Following` of a plan, with its decisions and the counters of switches, of which some are away."""

    def __init__(self, planned: Planned, planner: Planner) -> None:
        self.planner = planner
        self.planned = planned
        self.decisions: list[DecisionDue] = []
        self.away: set[str] = set()
        self.bytes: dict[TableEntry, int] = {}
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.following = Following(metrics(), self._read, self._decide, lambda job: None)
        self.following.planned(planned, planner.policy if planned.plan.reactive else None)

    async def _read(self, switch: str, entries: Iterable[TableEntry]) -> Mapping[TableEntry, int]:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        if switch in self.away:
            raise SouthboundError(f"switch {switch}: no session")
        return {entry: self.bytes.get(entry, 0) for entry in entries}

    async def _decide(self, scheduler: CentralScheduler, due: DecisionDue) -> None:
        self.decisions.append(due)

    def replan(self, *jobs: RegisteredJob, fabric: Fabric, policy: PolicySetting = COFLOW) -> None:
        self.planned = self.planner.plan(Wanted(jobs, fabric, policy))
        self.following.planned(self.planned, self.planner.policy)

    def report(self, switch: str, planned: Planned, job: str, flow: int, kind: int, epoch: int = 1) -> None:
        asyncio.run(self.reports(switch, planned, (job, flow, kind, epoch)))

    async def reports(self, switch: str, planned: Planned, *news: tuple[str, int, int, int]) -> None:
        numbers = {
            (known.job, known.flow): known.number for part in planned.intents[switch].parts for known in part.known
        }
        names = {one.name: [flow.name for flow in one.job.flows] for one in planned.registered}
        fields = tuple(
            {"flow": numbers[job, names[job][flow]], "epoch": epoch, "time_us": 1000, "slack_key": 0, "event": kind}
            for job, flow, kind, epoch in news
        )
        received = P4DigestList("flow_event_t", list_id=1, timestamp=0, data=[])
        await self.following.digests(switch, DigestReport(fields, received))


def flow_from(registered: RegisteredJob, src: str) -> int:
    return next(n for n, flow in enumerate(registered.job.flows) if flow.src == src)


def test_decisions_go_on_while_a_switch_is_away(fabric: Fabric) -> None:
    """A flow that ends at a switch without a session: its bytes are not known, and all other flows go on."""
    keeps = planner(fabric)
    jobs = job("a", "h1", "h3"), job("b", "h1", "h2", number=2)
    planned = keeps.plan(Wanted(jobs, fabric, COFLOW))
    follower = Follower(planned, keeps)
    follower.away.add("leaf2")
    follower.report("leaf1", planned, "a", flow_from(jobs[0], "h1"), START)
    follower.report("leaf1", planned, "b", flow_from(jobs[1], "h1"), START)
    assert len(follower.decisions) == 2
    assert len(follower.decisions[-1].bytes_passed) == 2
    follower.away.clear()
    follower.report("leaf1", planned, "b", flow_from(jobs[1], "h1"), FINISH)
    assert len(follower.decisions[-1].bytes_passed) == 1


@pytest.mark.parametrize("policy", [ECHELON, COFLOW], ids=lambda policy: policy.name)
def test_a_plan_that_comes_while_counters_are_read(fabric: Fabric, policy: PolicySetting, caplog: Any) -> None:
    """The job of the flow has gone, perhaps the policy, too."""
    keeps = planner(fabric)
    jobs = job("a", "h1", "h3"), job("b", "h1", "h2", number=2)
    planned = keeps.plan(Wanted(jobs, fabric, COFLOW))
    follower = Follower(planned, keeps)

    async def replan() -> None:
        follower.replan(jobs[1], fabric=fabric, policy=policy)

    follower.meanwhile = replan
    asyncio.run(
        follower.reports(
            "leaf1", planned, ("a", flow_from(jobs[0], "h1"), START, 1), ("b", flow_from(jobs[1], "h1"), START, 1)
        )
    )
    expected = [{("b", jobs[1].job.flows[flow_from(jobs[1], "h1")].name)}] if policy is COFLOW else []
    assert [set(due.bytes_passed) for due in follower.decisions] == expected, "what the new plan must know of"


def test_a_flow_whose_start_was_not_counted_is_counted_from_now_on(fabric: Fabric) -> None:
    """A plan, or the end of the session, comes between the news of its start and the reading of its counter."""
    keeps = planner(fabric)
    jobs = job("a", "h1", "h3"), job("b", "h1", "h2", number=2)
    planned = keeps.plan(Wanted(jobs, fabric, COFLOW))
    follower = Follower(planned, keeps)

    async def replan() -> None:
        follower.replan(*jobs, fabric=fabric)

    follower.meanwhile = replan
    follower.report("leaf1", planned, "a", flow_from(jobs[0], "h1"), START)
    follower.report("leaf1", planned, "b", flow_from(jobs[1], "h1"), START)
    assert {name for name, _ in follower.decisions[-1].bytes_passed} == {"a", "b"}


def test_flows_under_way_stay_ahead_of_new_ones_after_a_plan(fabric: Fabric) -> None:
    keeps = planner(fabric)
    jobs = tuple(job(name, "h1", "h2", number=n) for n, name in enumerate("abcd", 1))
    planned = keeps.plan(Wanted(jobs[:3], fabric, COFLOW))
    follower = Follower(planned, keeps)
    for one in jobs[:3]:
        follower.report("leaf1", planned, one.name, flow_from(one, "h1"), START)
    follower.replan(*jobs, fabric=fabric)
    follower.report("leaf1", follower.planned, "d", flow_from(jobs[3], "h1"), START)
    reaction = follower.following._reaction
    assert reaction is not None
    in_line = sorted(reaction.scheduler.active.values(), key=lambda flow: flow.sequence)
    assert [flow.job for flow in in_line] == ["a", "b", "c", "d"]
    assert len({flow.sequence for flow in in_line}) == 4


def test_a_plan_for_one_job_keeps_what_the_policy_gave_the_flows_of_others(offline: Lab) -> None:
    """Its own queues are those of flows that rest."""

    async def run() -> None:
        async with leading(offline, policy="coflow") as (control, _):
            await control.register(ring("a", ["h1", "h2"]), replace=False)
            await when(lambda: in_plan(control, "a"))
            idle = control.intent("leaf1").queues
            reaction = control._following._reaction
            assert reaction is not None
            key = next(key for key, path in reaction.scheduler.paths.items() if path[1] == path[-2] == "leaf1")
            event = FlowEvent("leaf1", *key, 1, Fraction(1), Fraction(), started=True, finished=False)
            due = await reaction.observe([event])
            assert due is not None
            await control._decide(reaction.scheduler, due)
            busy = control.intent("leaf1").queues
            assert busy != idle
            await control.register(ring("b", ["h3", "h4"]), replace=False)
            await when(lambda: in_plan(control, "a", "b"))
            await when(lambda: control.intent("leaf1").queues == busy)

    asyncio.run(run())


def test_a_job_that_has_left_leaves_no_series(fabric: Fabric) -> None:
    """Its last packets are reported after it."""
    keeps = planner(fabric)
    one = job("gone", "h1", "h2")
    planned = keeps.plan(Wanted((one,), fabric, ECHELON))
    follower = Follower(planned, keeps)
    follower.report("leaf1", planned, "gone", 0, START)
    follower.replan(fabric=fabric, policy=ECHELON)
    follower.report("leaf1", planned, "gone", 0, FINISH)
    assert b'"gone"' not in follower.following._metrics.render()[0]
