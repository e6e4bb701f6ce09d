"""Random interleavings of everything that can happen to the controller, crashes included.

Acknowledged jobs are never lost, no number is given twice, numbers are saved before any switch has
them, and entries at rest equal the plan. ``python -m tests.soak control`` plays as many sequences
as you like.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import echelon
import echelon_lab
from tests.drawing import examples
from tests.echelon.control.adversary import (
    HOSTS,
    LEAVES,
    LINKS,
    NAMES,
    POLICIES,
    SWITCHES,
    WORKERS,
    Adversary,
    play,
)

PACKAGE, LAB = (Path(package.__file__).parent for package in (echelon, echelon_lab))
INDEX = st.integers(0, 63)


class Controller(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(POLICIES),
        coalesce_s=st.sampled_from((0.0, 0.005)),
        jobs=st.integers(0, 3),
        keeps=st.booleans(),
    )
    def begin(self, policy: str, coalesce_s: float, jobs: int, keeps: bool) -> None:
        self.world = Adversary(policy, coalesce_s=coalesce_s)
        self.world.keeps = keeps
        for name in NAMES[:jobs]:
            self.world.ask_for(name, WORKERS[0], replaces=False)
            self.world.run()

    @rule(name=st.sampled_from(NAMES), workers=st.sampled_from(WORKERS), replaces=st.booleans())
    def register(self, name: str, workers: tuple[str, ...], replaces: bool) -> None:
        self.world.ask_for(name, workers, replaces=replaces)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.world.ask_removal(name)

    @rule(name=st.sampled_from(NAMES))
    def wait(self, name: str) -> None:
        self.world.ask_wait(name)

    @rule(index=INDEX)
    def stop_waiting(self, index: int) -> None:
        self.world.stop_waiting(index)

    @rule(policy=st.sampled_from(POLICIES))
    def choose(self, policy: str) -> None:
        self.world.choose(policy)

    @rule(link=st.sampled_from(LINKS), drained=st.booleans(), force=st.booleans())
    def set_link(self, link: tuple[str, str], drained: bool, force: bool) -> None:
        self.world.set_link(*link, drained=drained, force=force)

    @rule(index=INDEX, fails=st.booleans())
    def carry_out(self, index: int, fails: bool) -> None:
        self.world.carry_out_one(index, fails=fails)

    @rule(index=INDEX)
    def carry_out_well(self, index: int) -> None:
        self.world.carry_out_one(index, fails=False)

    @rule(switch=st.sampled_from(SWITCHES))
    def connect(self, switch: str) -> None:
        self.world.connect(switch)

    @rule(switch=st.sampled_from(SWITCHES), restart=st.booleans())
    def leave(self, switch: str, restart: bool) -> None:
        self.world.leave(switch, restart=restart)

    @rule(switch=st.sampled_from(SWITCHES), restart=st.booleans())
    def lose(self, switch: str, restart: bool) -> None:
        self.world.lose(switch, restart=restart)

    @rule(switch=st.sampled_from(SWITCHES))
    def get_back(self, switch: str) -> None:
        self.world.get_back(switch)

    @rule(switch=st.sampled_from(SWITCHES), times=st.integers(1, 3))
    def flap(self, switch: str, times: int) -> None:
        self.world.flap(switch, times)

    @rule(switch=st.sampled_from(SWITCHES), others=st.lists(st.sampled_from((*SWITCHES, *HOSTS))))
    def unplug(self, switch: str, others: list[str]) -> None:
        self.world.unplug(switch, others)

    @rule(switch=st.sampled_from(SWITCHES))
    def write(self, switch: str) -> None:
        self.world.write_some(switch)

    @rule(switch=st.sampled_from(SWITCHES), other=st.sampled_from((*SWITCHES, *HOSTS)))
    def refuse_port(self, switch: str, other: str) -> None:
        self.world.refuse_port(switch, other)

    @rule(switch=st.sampled_from(SWITCHES))
    def refuse(self, switch: str) -> None:
        self.world.refuse(switch)

    @rule(
        switch=st.sampled_from(LEAVES), index=INDEX, starts=st.booleans(), epoch=st.integers(0, 2)
    )
    def report(self, switch: str, index: int, starts: bool, epoch: int) -> None:
        self.world.report_one(switch, index, starts=starts, epoch=epoch)

    @rule(switch=st.sampled_from(SWITCHES))
    def outrank(self, switch: str) -> None:
        self.world.outrank(switch)

    @rule(saved=st.integers(0, 3))
    def die(self, saved: int) -> None:
        self.world.die(saved)

    @rule()
    def abdicate(self) -> None:
        self.world.abdicate()

    @invariant()
    def books_are_right(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        # Absent where hypothesis gave up before the beginning.
        if hasattr(self, "world"):
            self.world.rest()


TestController = Controller.TestCase
TestController.settings = settings(
    max_examples=examples(120),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


further = [pytest.param(seed, marks=pytest.mark.wide) for seed in range(8, 20)]


@pytest.mark.parametrize("seed", [*range(8), *further, 828])
def test_random_sequences(seed: int) -> None:
    """Each seed plays as ``python -m tests.soak control`` plays it.

    In 828 a job is built after a later one.
    """
    play(seed, 50)


@pytest.mark.parametrize("seed", [*range(8), *further])
def test_random_sequences_while_links_move(seed: int) -> None:
    """Play sequences as ``python -m tests.soak control --moves`` does."""
    play(seed, 50, moves=True)


def test_a_sequence_is_the_same_every_time() -> None:
    first, second = play(7, 50), play(7, 50)
    assert first.facts == second.facts
    assert first.store.load() == second.store.load()


# -- one controller --------------------------------------------------------------------------------


def nodes(package: Path = PACKAGE, folder: str = ".") -> dict[str, list[ast.AST]]:
    """Return the nodes of the syntax tree of each module in a folder of a package."""
    return {
        path.relative_to(package).as_posix(): list(ast.walk(ast.parse(path.read_text())))
        for path in (package / folder).rglob("*.py")
    }


@cache
def texts() -> dict[str, str]:
    """Return the text of each module of both packages."""
    return {
        path.relative_to(package).as_posix(): path.read_text()
        for package in (PACKAGE, LAB)
        for path in package.rglob("*.py")
    }


def calls(name: str) -> set[str]:
    """Return the modules that call a class or function."""
    # To parse all of them takes two seconds.
    likely = {module: text for module, text in texts().items() if f"{name}(" in text}
    return {
        module
        for module, text in likely.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name)
        if node.func.id == name
    }


def test_service_and_virtual_runs_have_one_controller() -> None:
    """Only the machine follows digests, numbers flows and reacts; two shells run the machine."""
    assert calls("Machine") == {"controller/service/leader.py", "virtual/controller.py"}
    for part in ("Following", "PlanPipeline", "Reactions", "Requests", "JobStore"):
        assert calls(part) == {"controller/machine/machine.py"}
    assert calls("Decoder") == calls("Tracker") == {"controller/machine/reports.py"}
    assert calls("ActiveFlows") == {"controller/machine/reactive.py"}
    assert calls("decide") == {"controller/machine/planning.py"}
    assert calls("Numbering") == {"controller/machine/planning.py", "switches/lowering/lower.py"}
    assert not any(
        (PACKAGE / name).exists() for name in ("control_loop.py", "scheduler.py", "reaction.py")
    )


def test_the_machine_knows_no_clock_and_no_input_or_output() -> None:
    """The machine is a function of its events."""
    forbidden = {
        "asyncio",
        "threading",
        "concurrent",
        "time",
        "datetime",
        "socket",
        "select",
        "os",
        "random",
        "logging",
    }

    def imports_forbidden(node: ast.AST) -> bool:
        match node:
            case ast.Import(names=names):
                return any(name.name.partition(".")[0] in forbidden for name in names)
            case ast.ImportFrom(module=str(module)):
                return module.partition(".")[0] in forbidden
        return isinstance(node, ast.AsyncFunctionDef | ast.Await)

    machine = nodes(folder="controller/machine")
    assert len(machine) > 10
    assert [
        module for module, of_module in machine.items() if any(map(imports_forbidden, of_module))
    ] == []
