"""Judges: who says which of the best plans of a search is the best.

A policy that simulates plans compares many of them on the fluid model. A judge compares the last
few in another way that takes longer, and is closer to what switches do. A distribution registers a
class, or a function, that returns a `Judge` without arguments in the entry-point group
`echelon.judges`::

    [project.entry-points."echelon.judges"]
    packets = "echelon_lab.virtual.judging:Packets"

Whoever runs a policy in surroundings that are known may have a judge that knows them, too, and
offer it to the policy (`OpenToJudges`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from math import ceil
from typing import Protocol, runtime_checkable

from echelon.model.documents import suggestion
from echelon.model.extras import PLUG_INS, origin, plug_in
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.entries import entries_by_name
from echelon.planning.plan import Plan, PlanError

GROUP = "echelon.judges"
"""The entry-point group."""
AUTO = "auto"
"""The choice of the judge that is offered, or else of the model."""
MODEL = "model"
"""The choice of no judge: plans are compared on the fluid model only."""


@dataclass(frozen=True, slots=True)
class Match:
    """What plans are compared on: jobs, and for how long they run."""

    jobs: Sequence[Job]
    """The jobs that share links, with the starts, sizes and computing that they turn out to have.

    Plans may have been made for others.
    """
    fabric: Fabric
    alone_s: Sequence[float]
    """The seconds of an iteration of each job that has the network to itself."""
    iterations: int
    """The length of a run, in iterations of the slowest job alone."""

    @property
    def end_s(self) -> float:
        """The length of a run in seconds."""
        return self.iterations * max(self.alone_s)

    def iterations_alone(self, place: int) -> int:
        """Return about how many iterations the job at a place of `jobs` does, if it runs alone."""
        return ceil(self.end_s / self.alone_s[place])


class Judge(Protocol):
    """Who runs plans. It can be pickled, and changes nothing."""

    def seconds(self, plan: Plan, match: Match) -> float:
        """Return about how many seconds of a processor it takes to run a plan.

        It is the same on every machine, so that jobs get the same plan on each.
        """

    def slowdowns(self, plan: Plan, match: Match) -> Sequence[float]:
        """Return the slowdown of each job, as `echelon.planning.fluid.slowdown` has it.

        Raises `RunError` if it cannot run the plan, `PlanError` if switches cannot carry it.
        """


@runtime_checkable
class OpenToJudges(Protocol):
    """A policy that lets others judge its best plans."""

    def offer(self, name: str, judge: Judge) -> None:
        """Take a judge that knows the surroundings, instead of the one that is registered."""


def known_judge(name: str) -> str:
    """Return the name of a judge. Raises `PlanError` if there is none of that name."""
    names = (AUTO, MODEL, *registered())
    if name in names:
        return name
    hint = suggestion(name, names)
    if name in PLUG_INS[GROUP]:
        hint = str(plug_in(GROUP, name))
    raise PlanError(f"unknown judge '{name}' ({hint})")


def new_judge(name: str) -> Judge:
    """Return a new judge of that name. Raises `PlanError`."""
    entry = registered()[known_judge(name)]
    try:
        judge: Judge = entry.load()()
    except Exception as error:  # whatever a foreign module raises when it is imported
        reason = f"judge '{name}' of {origin(entry)} cannot be used: {error} (repair or remove it)"
        raise PlanError(reason) from error
    return judge


@cache
def registered() -> Mapping[str, EntryPoint]:
    """Return the entry point of every installed judge, by name, in alphabetical order.

    Raises `PlanError` if two distributions register the same name.
    """
    return entries_by_name(entry_points(group=GROUP), "judge")
