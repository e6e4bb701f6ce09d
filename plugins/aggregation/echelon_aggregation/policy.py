"""Jobs with and without memory of switches: who gets it, and the rates that follow.

Trees of a plan share the places of switches as the parameter `by` says. What finds no place loads
links as the fallback does (`echelon_aggregation.memory`). The policy gives rates, so that the fluid
engine runs with it (`--target fluid`). Switches get the places, equal queues, and, if places go by
deadline, when flows over trees are due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf
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
    TreeKey,
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
        """The blocks of a job that are under way at a time, a power of two; each needs two places.
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
        self._granted: dict[TreeKey, Grant] = {}
        """The parts of their own that trees have."""
        self._spread = Spread(range(CONTROL_QUEUE))
        self._fabric: Fabric | None = None
        self._trees: dict[FlowKey, Tree] = {}
        """Those of flows whose bytes are added up."""
        self._all: dict[TreeKey, Path] = {}
        """All trees."""
        self._enough = True
        """Whether all trees of the plan find places at the same time."""
        self._parts: Mapping[TreeKey, float] = {}
        """The part of each tree, where it does not depend on which trees are under way."""
        self._capacities: Mapping[Link, float] = {}

    @property
    def carried(self) -> Self:
        """Return the state that goes from plan to plan: queues, trees, and trees' own parts."""
        return self

    def to_document(self) -> dict[str, Any]:
        """Return the state that goes from plan to plan as JSON."""
        if isinstance(self._chooser, TreesByLoad):
            trees = self._chooser.trees
        else:
            trees = {}
        chosen = []
        for name, routes in trees.items():
            for ends, path in routes.items():
                chosen.append([name, list(ends), list(path)])
        return {
            "spread": self._spread.to_document(),
            "trees": chosen,
            "parts": self._parts_document(),
        }

    def _parts_document(self) -> list[list[Any]]:
        parts = []
        for (job, tree), grant in self._granted.items():
            if grant.take == TAKES["share"]:
                path = list(self._all[job, tree])
                parts.append([job, path, grant.first, grant.mask])
        return parts

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue from there. Raises `ValueError`."""
        self._spread.take(document["spread"])
        trees: defaultdict[str, dict[Ends, Path]] = defaultdict(dict)
        for name, ends, path in document["trees"]:
            routes = trees[name]
            routes[tuple(ends)] = tuple(path)
        if isinstance(self._chooser, TreesByLoad):
            self._chooser.remember(trees)
        self._granted = {}
        for job, path, first, mask in document["parts"]:
            tree = tree_of(tuple(path))
            part = Grant(int(first), int(mask), 0, TAKES["share"])
            self._granted[job, tree] = part

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan whose rates are those of `allocate`.

        Raises `PlanError` if a worker cannot be reached.
        """
        if paths is not None and isinstance(self._chooser, TreesByLoad):
            self._chooser.connections = paths
        paths_by_job = self._paths.update(jobs, fabric, self._chooser)
        self._fabric = fabric
        self._capacities = {link: float(rate) for link, rate in fabric.capacity_Bps.items()}
        self._find_trees(jobs, paths_by_job)

        claims = self.claims()
        served = came_first(claims, self._room)
        self._enough = all(part == 1 for part in served)
        shares = of_its_own(claims, self._room)
        self._parts = _by_tree(claims, shares)

        flows = self._spread.update(jobs, paths_by_job)
        if self.parameters.by == "deadline":
            without_dues = {job.name: (job, flows[job.name]) for job in jobs}
            flows = self._due.update(without_dues)

        # Trees keep the parts that they have, so this comes before those are forgotten.
        grants = self.grants()
        self._granted = {}
        memory = {}
        for claim, grant in grants:
            path = self._all[claim.job, claim.tree]
            memory[claim.job, path] = Memory(grant, self.parameters.window)
            if grant is not None:
                self._granted[claim.job, claim.tree] = grant
        equal_queues = (QueuePlan(level=0),) * CONTROL_QUEUE
        return Plan.of_jobs(
            self.name,
            flows,
            memory=memory,
            default_schedule=(*equal_queues, QueuePlan(level=1)),
            allocated=bool(self._trees),
        )

    def _find_trees(
        self,
        jobs: Sequence[Job],
        paths_by_job: Mapping[str, Mapping[str, Path]],
    ) -> None:
        self._trees = {}
        self._all = {}
        for job in jobs:
            paths = paths_by_job[job.name]
            for flow in job.flows:
                if not flow.among:
                    continue
                path = paths[flow.name]
                tree = tree_of(path)
                self._all[job.name, tree] = path
                # A broadcast, which ends elsewhere than it begins, adds nothing up.
                if flow.src == flow.dst:
                    self._trees[job.name, flow.name] = tree

    def claims(self) -> list[Claim]:
        """Return the trees of the last plan, in the order of the jobs, with what they ask for."""
        places = 2 * self.parameters.window
        return [Claim(job, tree, places) for job, tree in self._all]

    def grants(self) -> list[tuple[Claim, Grant | None]]:
        """Return what each tree of the last plan gets."""
        claims = self.claims()
        criterion = self.parameters.by
        if criterion == "share":
            grants = parts(claims, self._room, self._granted)
        else:
            grants = together(claims, self._room, criterion)
        return list(zip(claims, grants, strict=True))

    @property
    def _room(self) -> Mapping[str, int]:
        assert self._fabric is not None
        return dict.fromkeys(self._fabric.switches, self.parameters.places)

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of flows, where trees load links more the less memory they have."""
        served = self._served(flows)
        loads = []
        left_Bps: dict[Link, float] = {}  # noqa: N806
        for flow in flows:
            tree = self._tree(flow)
            if tree is None:
                load = dict.fromkeys(flow.links, 1.0)
            else:
                load = tree.load(served[flow.job, tree])
            loads.append(load)
            for link in load:
                left_Bps[link] = self._capacities[link]
        most_Bps = [_most_Bps(flow) for flow in flows]  # noqa: N806
        if self.parameters.rates == "deadline":
            tiers = _tiers(flows)
        else:
            tiers = [list(range(len(flows)))]
        rates = fill(loads, most_Bps, tiers, left_Bps)
        return Allocation(tuple(rates))

    def _tree(self, flow: ActiveFlow) -> Tree | None:
        """Return the tree whose switches add up a flow, if there is one."""
        return self._trees.get((flow.job, flow.flow))

    def neighbourhood(self, flow: ActiveFlow) -> str | None:
        """Return the coupling of flows by memory that is short, which also decides on loads."""
        return None if self._enough else "memory"

    def _served(self, flows: Sequence[ActiveFlow]) -> Mapping[TreeKey, float]:
        """Return the part of each tree under way that is added up."""
        due_s: dict[TreeKey, Number] = {}
        for flow in flows:
            tree = self._tree(flow)
            if tree is not None:
                key = (flow.job, tree)
                earliest_s = due_s.get(key, flow.deadline_s)
                due_s[key] = min(earliest_s, flow.deadline_s)
        if self._enough:
            return dict.fromkeys(due_s, 1.0)
        if self.parameters.by == "share":
            return self._parts
        places = 2 * self.parameters.window
        claims = [Claim(job, tree, places, due) for (job, tree), due in due_s.items()]
        serve = SERVED[self.parameters.by]
        served = serve(claims, self._room)
        return _by_tree(claims, served)


def _with_dues(job: Job, flows: tuple[FlowPlan, ...]) -> tuple[FlowPlan, ...]:
    """Return the flows, those over trees with when they are due, in the queues that they have."""
    over_trees = {flow.name for flow in job.flows if flow.among}
    due: dict[str, tuple[str, Fraction]] = {}
    for echelonflow in job.echelonflows:
        offsets_s = zip(echelonflow.flows, echelonflow.offsets_s, strict=True)
        for name, offset_s in offsets_s:
            if name in over_trees:
                due[name] = (echelonflow.name, offset_s)

    ranked = []
    for flow in flows:
        if flow.flow in due:
            echelonflow_name, offset_s = due[flow.flow]
            queues = flow.ranking.queues
            ranking = Deadline(echelonflow_name, offset_s, (), *queues, *queues)
            ranked.append(replace(flow, ranking=ranking))
        else:
            ranked.append(flow)
    return tuple(ranked)


def _most_Bps(flow: ActiveFlow) -> float:  # noqa: N802
    if flow.max_rate_Bps is None:
        return inf
    return float(flow.max_rate_Bps)


def _tiers(flows: Sequence[ActiveFlow]) -> list[list[int]]:
    """Return the numbers of the flows that are due at the same time, the first ones due first."""
    by_due: defaultdict[Number, list[int]] = defaultdict(list)
    for number, flow in enumerate(flows):
        by_due[flow.deadline_s].append(number)
    return [by_due[due_s] for due_s in sorted(by_due)]


def _by_tree(claims: Sequence[Claim], parts: Sequence[float]) -> dict[TreeKey, float]:
    by_tree = {}
    for claim, part in zip(claims, parts, strict=True):
        by_tree[claim.job, claim.tree] = part
    return by_tree
