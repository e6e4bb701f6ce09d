"""The file that keeps the plan in force for the next start: it is used as it was written, or not at
all.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from echelon.controller.changes import RegisterJob
from echelon.controller.machine.jobs import RegisteredJob, parse_job
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import KeptPlan, Planned, Planner, PlanRequest
from echelon.controller.machine.records import Changes
from echelon.controller.service import leader as leading
from echelon.controller.service import plan_file
from echelon.controller.service.config import load_service_config
from echelon.controller.service.leader import Leader
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.plan_file import PlanFile, UnusablePlanError
from echelon.controller.service.store import Candidate, Leadership, Store, open_store
from echelon.controller.service.store.sqlite import open_sqlite
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.echelon.control.world import TWO_BY_TWO, ring, two_by_two
from tests.echelon.service.lab import Lab

FABRIC = two_by_two()
ABLE = dict.fromkeys(FABRIC.switches, softswitch())
FAIR = ChosenPolicy("fair")
PATIENCE_S = 120.0


def plan_of(count: int) -> Planned:
    """Return a plan of so many jobs."""
    jobs = []
    for number in range(1, count + 1):
        document = ring(f"j{number}", "h1", "h3")
        jobs.append(RegisteredJob(f"j{number}", number, 0.5, document, parse_job(document), {}))
    return Planner(ABLE).plan(PlanRequest(tuple(jobs), FABRIC, FAIR))


PLANNED = plan_of(3)
SAVED = "5afe"
"""The digest of what a store holds with that plan."""


def file_at(path: Path) -> PlanFile:
    return PlanFile(path.with_name("state.db"), FABRIC, ABLE, FAIR)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = file_at(tmp_path / "state.db.plan")
    file.write(PLANNED, SAVED)
    assert file.path == tmp_path / "state.db.plan"
    return file.path


def read(path: Path, saved: str = SAVED) -> KeptPlan:
    return file_at(path).read(saved)


def test_it_has_the_plan_and_what_switches_hold(path: Path) -> None:
    kept = read(path)
    assert kept.plan == PLANNED.plan
    assert [*kept.plan.by_job] == [*PLANNED.plan.by_job]
    for name, lowered in PLANNED.lowered.items():
        assert kept.parts[name] == lowered.parts
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*path.parent.iterdir()] == [path], "nothing is left beside it"


def test_without_a_file_there_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(UnusablePlanError, match="there is none"):
        read(tmp_path / "state.db.plan")


def test_every_damage_is_found(path: Path) -> None:
    intact = path.read_bytes()
    rng = random.Random(1)
    damaged = [intact[:cut] for cut in (0, 1, 50, len(intact) // 2, len(intact) - 1)]
    damaged += [intact + b"\0", intact + intact, b"\n" + intact, intact.replace(b"\n", b"", 1)]
    for _ in range(100):
        place = rng.randrange(len(intact))
        flipped = bytes([intact[place] ^ (1 << rng.randrange(8))])
        damaged.append(intact[:place] + flipped + intact[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(UnusablePlanError):
            read(path)
    path.write_bytes(intact)
    assert read(path).plan == PLANNED.plan


def test_the_file_of_another_format_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_file, "FORMAT", plan_file.FORMAT + 1)
    with pytest.raises(UnusablePlanError, match="another version"):
        read(path)


def test_the_file_of_another_version_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_file, "version", lambda _: "0.0.1")
    with pytest.raises(UnusablePlanError, match="follows from other"):
        read(path)


def test_a_whole_file_of_foreign_objects_is_not_read(path: Path) -> None:
    pieces = [
        pickle.dumps(replace(PLANNED.plan, flows=())),
        pickle.dumps([("j1", (), {"leaf1": Path("x")})]),
    ]
    file = PlanFile(path, FABRIC, ABLE, FAIR)
    body = b"".join(len(piece).to_bytes(4, "big") + piece for piece in pieces)
    content = hashlib.sha256(body).hexdigest()
    seal = plan_file._seal(file._digest(SAVED), content)  # noqa: SLF001
    path.write_bytes(body + b"\n" + seal)
    with pytest.raises(UnusablePlanError, match="a plan has no pathlib"):
        read(path)


DOCUMENTS: Mapping[Any, Any] = {
    ("jobs", "j1"): {"accepted_at": 0.5, "spec": {"weight": 1}},
    ("jobs", "j2"): {"accepted_at": 0.5, "spec": {"weight": 1}},
    ("numbers", "j1"): {"numbers": {}},
    ("settings", "carried"): {"name": "fair"},
}


async def digest_of(path: Path, puts: Mapping[Any, Any], deletes: Collection[Any] = ()) -> str:
    """Return the digest of a new store with these documents, changed so."""
    async with await open_sqlite(path) as store:
        await store.campaign(Candidate("c", "http://c"))
        await store.commit(Changes(DOCUMENTS))
        await store.commit(Changes(puts, deletes))
        return await store.digest()


async def test_all_that_is_saved_behind_it_counts(path: Path) -> None:
    """A crash between the store and the file leaves either of them as the older one."""
    stores = (path.with_name(f"{number}.db") for number in count())
    first = await digest_of(next(stores), {})
    with pytest.raises(UnusablePlanError, match="follows from other"):
        read(path, first)
    file_at(path).write(PLANNED, first)
    assert read(path, await digest_of(next(stores), {})).plan == PLANNED.plan
    digests = [
        await digest_of(next(stores), {}, [("jobs", "j2")]),
        await digest_of(next(stores), {}, [("settings", "carried")]),
        await digest_of(next(stores), {("jobs", "j3"): {}}),
        await digest_of(next(stores), {("jobs", "j2"): {"accepted_at": 0.6}}),
        await digest_of(next(stores), {("numbers", "j1"): {"numbers": {"FLOW": {}}}}),
        await digest_of(next(stores), {("settings", "drained"): {"links": []}}),
    ]
    for saved in digests:
        with pytest.raises(UnusablePlanError, match="follows from other"):
            read(path, saved)
    assert len({first, *digests}) == 1 + len(digests)
    with_trail = await digest_of(next(stores), {("events", "1"): {"at": 1.0}})
    assert with_trail == first, "the trail does not count"


def test_another_configuration_counts(path: Path) -> None:
    cables = (replace(FABRIC.cables[0], rate_bps=1), *FABRIC.cables[1:])
    other_fabric = replace(FABRIC, cables=cables)
    other_switch = {**ABLE, "leaf1": replace(ABLE["leaf1"], max_flows=100)}
    store = path.with_name("state.db")
    for file in (
        PlanFile(store, other_fabric, ABLE, FAIR),
        PlanFile(store, FABRIC, other_switch, FAIR),
        PlanFile(store, FABRIC, ABLE, ChosenPolicy("fifo")),
    ):
        with pytest.raises(UnusablePlanError, match="follows from other"):
            file.read(SAVED)


def test_the_same_plan_is_not_written_again(path: Path) -> None:
    file = file_at(path)
    file.read(SAVED)
    before = path.stat()
    file.write(PLANNED, SAVED)
    assert path.stat().st_ino == before.st_ino
    planned = plan_of(2)
    file.write(planned, "07e4")
    assert path.stat().st_ino != before.st_ino
    assert read(path, "07e4").plan == planned.plan


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def _lead(lab: Lab, store: Store, leadership: Leadership) -> Leader:
    config = load_service_config(lab.config("inside", store=f"sqlite:{lab.directory}/state.db"))
    leader = Leader(config, store, leadership, Metrics("0"), rng=random.Random(1))
    # Nobody connects with the switches.
    leader.switches.run_in = lambda _: None  # type: ignore[method-assign]
    await leader.open()
    return leader


@pytest.mark.parametrize("after_s", [0.02, 1e6], ids=["while it runs", "when it stops"])
async def test_the_next_leader_takes_it_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    monkeypatch.setattr(leading, "KEPT_FROM", 2)
    monkeypatch.setattr(leading, "_KEPT_AFTER_S", after_s)
    kept: list[KeptPlan | UnusablePlanError] = []
    read_file = PlanFile.read

    def note(file: PlanFile, saved: str) -> KeptPlan:
        try:
            kept.append(read_file(file, saved))
        except UnusablePlanError as error:
            kept.append(error)
            raise
        return read_file(file, saved)

    monkeypatch.setattr(PlanFile, "read", note)
    lab = Lab(tmp_path, TWO_BY_TWO)
    path = tmp_path / "state.db.plan"
    async with await open_store(f"sqlite:{tmp_path}/state.db", lease_s=5) as store:
        leadership = await store.campaign(Candidate("c", "http://c"))
        leader = await _lead(lab, store, leadership)
        running = asyncio.ensure_future(leader.run())
        for name in ("a", "b"):
            document = ring(name, "h1", "h3")
            spec = parse_job(document)
            await leader.ask(
                lambda number, document=document, spec=spec: RegisterJob(  # type: ignore[misc]
                    number, document, spec, replace=False
                ),
                lambda answer: answer.value,
            )
        await _until(lambda: leader.machine.lasting is not None)
        await _until(lambda: path.exists() == (after_s < 1))
        assert leader.machine.in_force is not None
        plan = leader.machine.in_force.planned.plan
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

        leader = await _lead(lab, store, leadership)
        (taken,) = kept
        assert isinstance(taken, KeptPlan)
        assert taken.plan == plan
        running = asyncio.ensure_future(leader.run())
        await _until(lambda: leader.machine.in_force is not None)
        await _until(lambda: leader.machine.lasting is not None)
        planned = leader.machine.in_force.planned
        assert (planned.is_kept, planned.version, planned.plan) == (False, 2, plan)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

        path.write_bytes(path.read_bytes()[:-1])
        await _lead(lab, store, leadership)
        assert isinstance(kept[-1], UnusablePlanError)
