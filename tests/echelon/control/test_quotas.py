"""Quotas of clients: what each may have registered, whoever asks meanwhile."""

from __future__ import annotations

import pytest

from echelon.controller.changes import RegisterJob
from echelon.controller.machine.effects import Save
from echelon.controller.machine.errors import RefusedError
from echelon.controller.machine.jobs import Quota, parse_job
from tests.echelon.control.world import World, ring, two_by_two

FLOWS = 4
"""The flows of a ring of two."""


@pytest.fixture
def world() -> World:
    world = World(two_by_two())
    world.start()
    world.run()
    return world


def registration(name: str, quota: Quota, *workers: str, number: int = 0) -> RegisterJob:
    document = ring(name, *(workers or ("h1", "h2")))
    return RegisterJob(number, document, parse_job(document), replace=True, quota=quota)


def ask(world: World, name: str, quota: Quota, *workers: str) -> int:
    document = ring(name, *(workers or ("h1", "h2")))
    return world.carry_out_change(
        lambda number: RegisterJob(number, document, parse_job(document), True, quota=quota)
    )


def test_a_client_has_a_limit_of_jobs_and_others_do_not(world: World) -> None:
    few = Quota("ci", jobs=2)
    asked = [ask(world, name, few) for name in "abc"]
    world.run()
    assert sorted(world.machine.jobs.jobs) == ["a", "b"]
    refusal = world.error(asked[2])
    assert isinstance(refusal, RefusedError)
    assert refusal.code == "limit-reached"
    assert "'ci'" in refusal.reason
    ask(world, "d", Quota("ops"))
    ask(world, "a", few, "h1", "h3")
    world.remove("b")
    world.run()
    ask(world, "e", few)
    world.run()
    assert sorted(world.machine.jobs.jobs) == ["a", "d", "e"]
    assert world.machine.jobs.jobs["a"].spec.workers == ("h1", "h3"), "it may change what it has"


def test_a_client_has_a_limit_of_flows(world: World) -> None:
    some = Quota("ci", flows=2 * FLOWS + 1)
    asked = [ask(world, name, some) for name in "abc"]
    world.run()
    assert sorted(world.machine.jobs.jobs) == ["a", "b"]
    assert world.error(asked[2]).path == "workers"
    grown = ask(world, "a", some, "h1", "h2", "h3")
    world.run()
    assert isinstance(world.error(grown), RefusedError), "a change counts, too"


def test_jobs_on_their_way_to_the_store_count(world: World) -> None:
    few = Quota("ci", jobs=1)
    first, second = ask(world, "a", few), ask(world, "b", few)
    assert second in world.answers
    assert first not in world.answers
    while not world.waiting(Save):
        world.carry_out(world.ready()[0])
    world.carry_out(world.waiting(Save)[0], fails=True)
    third = ask(world, "b", few)
    world.run()
    assert world.answer(third).owner == "ci"
    assert isinstance(world.error(first), Exception)


def test_owners_outlive_the_controller_and_stay(world: World) -> None:
    ask(world, "a", Quota("ci", jobs=1))
    world.run()
    ask(world, "a", Quota("ops"), "h1", "h3")
    world.run()
    world.crash()
    world.run()
    assert world.machine.jobs.jobs["a"].owner == "ci"
    refused = ask(world, "b", Quota("ci", jobs=1))
    assert isinstance(world.error(refused), RefusedError)
    rehearsed = world.dry_run(lambda number: registration("b", Quota("ci", jobs=1), number=number))
    assert isinstance(world.error(rehearsed), RefusedError)
