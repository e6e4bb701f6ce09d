"""A restart that takes over the plan from before it: all is as after a restart without it, and the
numbers of what switches hold stay taken until the plan is made again.
"""

from __future__ import annotations

import os
import pickle
import random
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.controller.machine.effects import Install, MakePlan, SetAlarm
from echelon.controller.machine.facts import PlanRefused
from echelon.controller.machine.kept_plan import can_be_kept, from_pieces, to_pieces
from echelon.controller.machine.planning import Planned
from echelon.controller.machine.records import Changes
from tests.echelon.control.world import FINISH, World, follows_from, ring, two_by_two

WORKERS = (("h1", "h2"), ("h1", "h3"), ("h2", "h4"), ("h1", "h3", "h4"))
LINKS = tuple((leaf, spine) for leaf in ("leaf1", "leaf2") for spine in ("spine1", "spine2"))
POLICIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("echelon", {"plan": "rule"}),
    ("echelon", {"order": "deadline"}),
    ("echelon", {"order": "setf", "paths": "crux"}),
    ("echelon", {"shifts": "cassini"}),
    ("cassini", {}),
    ("fair", {}),
    ("fifo", {}),
    ("crux", {}),
    ("mltcp", {}),
)


def change(world: World, rng: random.Random) -> None:
    """Register, replace or remove a job, or drain a link or restore it."""
    name = rng.choice("abcdef")
    match rng.choice(("register", "register", "remove", "drain")):
        case "register":
            gradient = f"{rng.randint(1, 9)} MB"
            document = ring(name, *rng.choice(WORKERS), gradient=gradient)
            if rng.random() < 0.3:
                document["recognition"] = {"by": "agent", "idle_gap": "50 ms"}
            world.register(document, replace=True)
        case "remove":
            world.remove(name)
        case "drain":
            drained = world.machine.jobs.drained
            link = rng.choice(LINKS)
            world.set_link(*link, drained=not drained)
            for other in drained:
                world.set_link(*other, drained=False)


def world_with_a_past(seed: str, policy: str, parameters: dict[str, str]) -> World:
    rng = random.Random(seed)
    world = World(two_by_two())
    world.start()
    world.choose(policy, **parameters)
    for _ in range(15):
        change(world, rng)
        if rng.random() < 0.5:
            world.run()
    world.register(ring("last", "h1", "h3"))
    world.run()
    # The one that may be left takes no job's last path.
    for link in sorted(world.machine.jobs.drained)[1:]:
        world.set_link(*link, drained=False)
    world.run()
    return world


def twin_of(world: World, *, keeps: bool) -> World:
    """Return another world with the same store and the same entries in switches."""
    twin = World(world.fabric, store=deepcopy(world.store))
    for name, switch in twin.switches.items():
        switch.held = world.switches[name].held
    if keeps:
        twin._kept = world._kept  # noqa: SLF001
    twin.start()
    return twin


def in_force(world: World) -> Planned:
    assert world.machine.in_force is not None
    return world.machine.in_force.planned


def make_plan(world: World) -> Planned:
    """Make the plan that waits, with its numbers saved, and return what is in force then."""
    (work,) = world.waiting(MakePlan)
    world.carry_out(work)
    while world.machine.in_force is None:
        assert world.step()
    return in_force(world)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_a_restart_with_the_plan_is_as_one_without(
    policy: str, parameters: dict[str, str], seed: int
) -> None:
    world = world_with_a_past(f"{policy} {parameters} {seed}", policy, parameters)
    running = in_force(world)
    assert world.keep_plan()
    warm, cold = twin_of(world, keeps=True), twin_of(world, keeps=False)

    kept, planned = make_plan(warm), make_plan(cold)
    assert (kept.is_kept, planned.is_kept) == (True, False)
    assert kept.plan == planned.plan == running.plan
    assert kept.intents == planned.intents
    for name, intent in running.intents.items():
        assert set(kept.intents[name].parts) == set(intent.parts), "it holds what it held"
    assert all(job.graph is None for job in kept.registered), "no graph is built"

    warm.run()
    cold.run()
    again = in_force(warm)
    assert not again.is_kept
    assert again.plan == planned.plan
    for name, intent in kept.intents.items():
        assert again.intents[name] is intent, "switches have nothing to do"
    assert not again.kept, "nothing is saved again"

    rngs = [random.Random(seed) for _ in (warm, cold)]
    for _ in range(6):
        for twin, rng in zip((warm, cold), rngs, strict=True):
            change(twin, rng)
            twin.run()
        assert in_force(warm).plan == in_force(cold).plan
        assert in_force(warm).intents == in_force(cold).intents
        for collection in ("numbers", "settings"):
            assert warm.store.load()[collection] == cold.store.load()[collection]


def restarted() -> tuple[World, Planned]:
    """Return a world after a restart with its plan, and the plan that was in force before."""
    world = World(two_by_two(), policy="fair")
    world.start()
    for name in "abc":
        world.register(ring(name, "h1", "h3"))
        world.run()
    assert world.keep_plan()
    before = in_force(world)
    world.crash()
    return world, before


def test_numbers_stay_taken_until_the_plan_is_made_again() -> None:
    world, before = restarted()
    make_plan(world)
    # All switches hold the plan before the planner has made it.
    for name in world.switches:
        world.connect(name)
        while world.can_write(name):
            world.write(name)
    world.register(ring("d", "h1", "h3"))
    world.run()
    after = in_force(world)
    for name, intent in before.intents.items():
        for number, flow in intent.flows.items():
            assert after.intents[name].flows[number] == flow


def test_a_change_before_the_first_plan_is_planned_without_it() -> None:
    world = World(two_by_two(), policy="fair")
    world.start()
    world.register(ring("a", "h1", "h3"))
    world.run()
    assert world.keep_plan()
    world.coalesce_s = 1.0
    world.crash()
    request = world.register(ring("b", "h2", "h4"))
    while world.step(alarms=False):
        pass
    assert world.answer(request)
    for effect in world.waiting(SetAlarm):
        if effect.alarm.kind == "coalesce":
            world.carry_out(effect)
    (work,) = world.waiting(MakePlan)
    assert not work.wanted.is_as_saved
    world.run()
    assert world.in_plan() == {"a", "b"}


def test_a_change_while_it_is_in_force_waits_for_the_plan() -> None:
    world, _ = restarted()
    assert make_plan(world).is_kept
    world.remove("b")
    world.set_link("leaf1", "spine1", drained=True, force=True)
    world.run()
    assert world.in_plan() == {"a", "c"}
    for flow in in_force(world).plan.flows:
        assert "spine1" not in flow.path
    assert {world.state(name) for name in "ac"} == {"installed"}


def test_reports_count_from_the_plan_that_is_made_again_on() -> None:
    world, _ = restarted()
    assert make_plan(world).is_kept
    (work,) = world.waiting(MakePlan)
    world.pending.remove(work)
    for name in world.switches:
        world.connect(name)
        while world.can_write(name):
            world.write(name)
    flow = in_force(world).plan.by_job["a"][0]
    world.report("leaf1", ("a", flow.flow, FINISH, 1))
    assert world.machine.view("a") is None
    assert world.machine.alone_iteration_s("a") is None
    world.pending.append(work)
    world.run()
    assert world.machine.view("a") is not None
    assert world.machine.alone_iteration_s("a") is not None, "its time alone is found out then"


def test_a_plan_that_cannot_be_lowered_is_made_anew() -> None:
    world, before = restarted()
    queue, *others = before.plan.default_schedule
    schedule = (replace(queue, min_share=Fraction(2)), *others)
    broken = replace(before, plan=replace(before.plan, default_schedule=schedule))
    world._kept = follows_from(world.store.load()), [*to_pieces(broken)]  # noqa: SLF001
    world.facts.clear()
    world.crash()
    world.run()
    assert in_force(world).plan == before.plan
    (refused,) = [fact for fact in world.facts if isinstance(fact, PlanRefused)]
    assert "the plan from before the start" in refused.problem
    assert world.machine.plan_problem is None


def test_without_the_numbers_of_jobs_it_stays_in_force() -> None:
    world, before = restarted()
    world.store.commit(Changes({("numbers", "a"): {"numbers": 1, "routes": []}}))
    world._kept = follows_from(world.store.load()), [*to_pieces(before)]  # noqa: SLF001
    world.crash()
    world.run()
    world.register(ring("d", "h1", "h3"))
    world.run()
    assert in_force(world).is_kept
    assert world.in_plan() == {"a", "b", "c"}
    assert "put back a copy" in str(world.machine.plan_problem)


def test_installs_rise_from_the_first_plan_on() -> None:
    world, _ = restarted()
    installed = []
    take = world._take  # noqa: SLF001

    def note(effect: object) -> None:
        if isinstance(effect, Install):
            installed.append(effect.version)
        take(effect)  # type: ignore[arg-type]

    world._take = note  # type: ignore[method-assign]  # noqa: SLF001
    world.run()
    assert installed == [1, 2]


class _Runs:
    """What an attacker would have run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._path),)


def test_bytes_of_others_run_nothing(tmp_path: Path) -> None:
    path = tmp_path / "made"
    with pytest.raises(ValueError, match=r"a plan has no posix\.mkdir"):
        from_pieces([pickle.dumps(_Runs(path))])
    assert not path.exists()


def test_plans_of_which_bytes_do_not_say_all_are_not_kept() -> None:
    _, before = restarted()
    assert can_be_kept(before)
    assert not can_be_kept(replace(before, plan=replace(before.plan, reactive=True)))
    assert not can_be_kept(replace(before, trees={"a": ()}))
    foreign = replace(before.plan.flows[0], ranking=object())
    assert not can_be_kept(replace(before, plan=replace(before.plan, flows=(foreign,))))
