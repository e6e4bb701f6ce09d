"""The places where a scenario can run: in virtual time inside this process, or on real hosts with real sockets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from echelon.progress import CommandProgress

if TYPE_CHECKING:
    from echelon.lab.scenarios.results import PolicyRun
    from echelon.lab.scenarios.scenario import Scenario
    from echelon.policies.base import Policy

Runner = Callable[["Scenario", str, "Callable[[], Policy]", Callable[[str, int], None]], "PolicyRun"]
"""Runs a scenario under one policy: (scenario, policy's label, policy factory, progress(job, iteration))."""
Watch = Callable[[str], AbstractContextManager[None]]
"""A context manager around a run's jobs, made with the URL of the run's service."""
Start = Callable[[Watch, CommandProgress], Runner]
"""Returns the runner of a place. It enters the `Watch`, and tells the progress what it does."""


FLUID = "fluid"
"""The place without switches: the fluid engine executes plans in virtual time."""
VIRTUAL = "virtual"
PRIVATE = frozenset({"namespaces", "mininet"})
"""The fabrics that build interfaces and processes, and therefore run in namespaces of their own."""
FABRICS = (VIRTUAL, "namespaces", "mininet")


def place(fabric: str, target: str) -> Start:
    """Return a function that gives the runner of a target on a fabric.

    Raises `DocumentError` for an unknown fabric or target, and for two that do not go together.
    """
    from echelon.documents import DocumentError, suggestion
    from echelon.targets import TARGETS

    if fabric not in FABRICS:
        raise DocumentError("--on", "", f"unknown fabric '{fabric}' ({suggestion(fabric, FABRICS)})")
    if target != FLUID and target not in TARGETS:
        raise DocumentError(
            "--target",
            "",
            f"unknown target '{target}' ({suggestion(target, (FLUID, *TARGETS))})",
            code="unknown-target",
        )
    if not _goes_together(fabric, target):
        others = " or ".join(name for name in FABRICS if _goes_together(name, target)) or "none"
        raise DocumentError("--target", "", f"{target} does not run on the {fabric} fabric (add --on {others})")
    if fabric != VIRTUAL:
        return partial(_on_hosts, fabric, target)
    return _fluid if target == FLUID else partial(_virtual, target)


def ideal_place(target: str) -> Runner:
    """Return the runner of the rates that policies would ideally give. Raises `DocumentError` unless it is `FLUID`."""
    from echelon.documents import DocumentError

    if target != FLUID:
        reason = f"{target} has queues, which is what an ideal run does without (add --target {FLUID})"
        raise DocumentError("--ideal", "", reason)
    from echelon.lab.virtual.fluid_run import run

    return partial(run, ideal=True)


def _goes_together(fabric: str, target: str) -> bool:
    from echelon.targets import TARGETS

    if target == FLUID:
        return fabric == VIRTUAL
    kind = TARGETS[target]
    return (kind.virtual_fabric() if fabric == VIRTUAL else kind.launcher()) is not None


def _fluid(watch: Watch, progress: CommandProgress) -> Runner:
    from echelon.lab.virtual.fluid_run import run

    return run


def _virtual(target: str, watch: Watch, progress: CommandProgress) -> Runner:
    from echelon.lab.virtual.run import run

    return partial(run, target=target, shown=progress)


def _on_hosts(backend: str, target: str, watch: Watch, progress: CommandProgress) -> Runner:
    from echelon.lab.hosts.run import run

    return partial(run, backend=backend, target=target, watch=watch, shown=progress)


def unwatched(_url: str) -> AbstractContextManager[None]:
    """Watch nothing."""
    return nullcontext()
