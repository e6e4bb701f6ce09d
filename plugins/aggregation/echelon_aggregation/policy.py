"""Jobs with and without memory of switches: who gets it, and the rates that follow.

Trees of a plan share the places of switches as the parameter `by` says. What finds no place loads
links as the fallback does (`echelon_aggregation.memory`). The policy gives rates, so that the fluid
engine runs with it (`--target fluid`). Switches get the places, equal queues, and, if places go by
deadline, when flows over trees are due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from echelon.model.documents import Section, problem
from echelon.model.fabric.model import Fabric, Path
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Ends, FlowKey, Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import CONTROL_QUEUE, FlowPlan, Plan, QueuePlan
from echelon.planning.policies.spread import Spread
from echelon.planning.rankings.deadline import Deadline
from echelon_aggregation.atp import came_first
from echelon_aggregation.filling import fill
from echelon_aggregation.memory import (
    TAKES,
    By,
    Claim,
    Grant,
    Memory,
    Of,
    due_first,
    parts,
    together,
)
from echelon_aggregation.panama import TreesByLoad
from echelon_aggregation.switchml import of_its_own
from echelon_aggregation.trees import Tree, tree_of

SERVED = {"share": of_its_own, "first": came_first, "deadline": due_first}
"""The part of each tree that finds places, by who gets them."""


class Aggregation:
    """Fair sharing, or by deadline, with trees of switches that have so much memory."""

    name = "aggregation"

    class Parameters(Section):
        """Who gets the memory of switches, and how much there is."""

        by: By = "deadline"
        """deadline: who is due first. share: parts for as many jobs as there is room for. first:
        who comes first.
        """
        places: Annotated[int, Field(ge=0, le=1 << 24)] = 4096
        """The places of a switch, each for a block."""
        window: Annotated[int, Field(ge=1, le=1 << 20)] = 256
        """The blocks of a job that are under way at a time, a power of two; each needs two
        places.
        """
        rates: Literal["fair", "deadline"] = "fair"
        """fair: max-min. deadline: flows that are due first go first on every link (in the fluid
        engine alone).
        """

        @model_validator(mode="after")
        def _check_window(self) -> Any:
            if self.window & (self.window - 1):
                raise problem(f"of {self.window} blocks is not a power of two", "window")
            return self

    def __init__(
        self, parameters: Parameters | None = None, paths: PathChooser | None = None
    ) -> None:
        self.parameters = parameters or self.Parameters()
        self._paths = FlowPaths()
        self._chooser = paths or TreesByLoad()
        self._due = Kept(_with_dues)
        self._granted: dict[Of, Grant] = {}
        """The parts of their own that trees have."""
        self._spread = Spread(range(CONTROL_QUEUE))
        self._fabric: Fabric | None = None
        self._trees: dict[FlowKey, Tree] = {}
        """Those of flows whose bytes are added up."""
        self._all: dict[Of, Path] = {}
        """All trees."""
        self._enough = True
        """Whether all trees of the plan find places at the same time."""
        self._parts: Mapping[Of, float] = {}
        """What each tree has added up, where that does not depend on which are under way."""
        self._capacities: Mapping[Link, float] = {}

    @property
    def carried(self) -> Self:
        """What goes from plan to plan: the queues, the trees, and the parts of their own that trees
        have.
        """
        return self

    def to_document(self) -> dict[str, Any]:
        """Return that as JSON."""
        if isinstance(self._chooser, TreesByLoad):
            trees = self._chooser.trees
        else:
            trees = {}
        return {
            "spread": self._spread.to_document(),
            "trees": [
                [name, list(ends), list(path)]
                for name, of in trees.items()
                for ends, path in of.items()
            ],
            "parts": [
                [job, list(self._all[job, tree]), grant.first, grant.mask]
                for (job, tree), grant in self._granted.items()
                if grant.take == TAKES["share"]
            ],
        }

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue from there. Raises `ValueError`."""
        self._spread.take(document["spread"])
        trees: dict[str, dict[Ends, Path]] = {}
        for name, ends, path in document["trees"]:
            trees.setdefault(name, {})[tuple(ends)] = tuple(path)
        if isinstance(self._chooser, TreesByLoad):
            self._chooser.remember(trees)
        self._granted = {
            (job, tree_of(tuple(path))): Grant(int(first), int(mask), 0, TAKES["share"])
            for job, path, first, mask in document["parts"]
        }

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan whose rates are those of `allocate`.

        Raises `PlanError` if a worker cannot be reached.
        """
        if paths is not None and isinstance(self._chooser, TreesByLoad):
            self._chooser.connections = paths
        of_jobs = self._paths.update(jobs, fabric, self._chooser)
        self._fabric = fabric
        self._capacities = {link: float(rate) for link, rate in fabric.capacity_Bps.items()}
        self._trees = {
            (job.name, flow.name): tree_of(of_jobs[job.name][flow.name])
            for job in jobs
            for flow in job.flows
            if flow.among and flow.src == flow.dst
        }
        over = [
            (job.name, of_jobs[job.name][flow.name])
            for job in jobs
            for flow in job.flows
            if flow.among
        ]
        self._all = {(job, tree_of(path)): path for job, path in over}
        claims = self.claims()
        self._enough = all(part == 1 for part in came_first(claims, self._room))
        self._parts = _by_tree(claims, of_its_own(claims, self._room))
        flows = self._spread.update(jobs, of_jobs)
        if self.parameters.by == "deadline":
            flows = self._due.update({job.name: (job, flows[job.name]) for job in jobs})
        grants = self.grants()
        self._granted = {
            (claim.job, claim.tree): grant for claim, grant in grants if grant is not None
        }
        window = self.parameters.window
        return Plan.of_jobs(
            self.name,
            flows,
            memory={
                (of.job, self._all[of.job, of.tree]): Memory(grant, window) for of, grant in grants
            },
            default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
            allocated=bool(self._trees),
        )

    def claims(self) -> list[Claim]:
        """Return the trees of the last plan, in the order of the jobs, with what they ask for."""
        return [Claim(job, tree, 2 * self.parameters.window) for job, tree in self._all]

    def grants(self) -> list[tuple[Claim, Grant | None]]:
        """Return what each tree of the last plan gets."""
        claims = self.claims()
        by = self.parameters.by
        if by == "share":
            found = parts(claims, self._room, self._granted)
        else:
            found = together(claims, self._room, by)
        return list(zip(claims, found, strict=True))

    @property
    def _room(self) -> Mapping[str, int]:
        assert self._fabric is not None
        return dict.fromkeys(self._fabric.switches, self.parameters.places)

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of flows, where those over trees load links more the less memory they
        have.
        """
        served = self._served(flows)
        loads = []
        for flow in flows:
            tree = self._trees.get((flow.job, flow.flow))
            loads.append(
                dict.fromkeys(flow.links, 1.0)
                if tree is None
                else tree.load(served[flow.job, tree])
            )
        most = [
            float("inf") if flow.max_rate_Bps is None else float(flow.max_rate_Bps)
            for flow in flows
        ]
        tiers: list[list[int]] = [list(range(len(flows)))]
        if self.parameters.rates == "deadline":
            dues = sorted({flow.ideal_finish_s for flow in flows})
            tiers = [
                [at for at, flow in enumerate(flows) if flow.ideal_finish_s == due] for due in dues
            ]
        left = {link: self._capacities[link] for load in loads for link in load}
        return Allocation(tuple(fill(loads, most, tiers, left)))

    def neighbourhood(self, flow: ActiveFlow) -> str | None:
        """Return what couples flows beside links: memory, if there is not enough for all; it also
        decides on loads.
        """
        return None if self._enough else "memory"

    def _served(self, flows: Sequence[ActiveFlow]) -> Mapping[Of, float]:
        """Return the part of each tree under way that is added up."""
        trees = [
            ((flow.job, self._trees[flow.job, flow.flow]), flow)
            for flow in flows
            if _key(flow) in self._trees
        ]
        if self._enough:
            return dict.fromkeys((of for of, _ in trees), 1.0)
        if self.parameters.by == "share":
            return self._parts
        due_s: dict[Of, Number] = {}
        for of, flow in trees:
            due_s[of] = min(due_s.get(of, flow.ideal_finish_s), flow.ideal_finish_s)
        claims = [
            Claim(job, tree, 2 * self.parameters.window, due) for (job, tree), due in due_s.items()
        ]
        return _by_tree(claims, SERVED[self.parameters.by](claims, self._room))


def _with_dues(job: Job, flows: tuple[FlowPlan, ...]) -> tuple[FlowPlan, ...]:
    """Return the flows, those over trees with when they are due, in the queues that they have."""
    over = {flow.name for flow in job.flows if flow.among}
    due = {
        name: (of.name, at)
        for of in job.echelonflows
        for name, at in zip(of.flows, of.offsets_s, strict=True)
    }

    def ranked(flow: FlowPlan) -> FlowPlan:
        if flow.flow not in over or flow.flow not in due:
            return flow
        return replace(
            flow, ranking=Deadline(*due[flow.flow], (), *flow.ranking.queues, *flow.ranking.queues)
        )

    return tuple(map(ranked, flows))


def _key(flow: ActiveFlow) -> FlowKey:
    return flow.job, flow.flow


def _by_tree(claims: Sequence[Claim], parts: Sequence[float]) -> dict[Of, float]:
    return {(claim.job, claim.tree): part for claim, part in zip(claims, parts, strict=True)}
