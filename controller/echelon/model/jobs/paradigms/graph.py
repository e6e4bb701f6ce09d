"""A free graph: what each rank computes, sends, and runs together with others, node by node.

`echelon.model.jobs.free` says what the graph means, `echelon.model.jobs.arrangement` which
EchelonFlows follow from it, and `echelon.model.jobs.collectives.OPERATIONS` which tensor `bytes` is
the size of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from echelon.model.documents import (
    Count,
    Duration,
    Name,
    Section,
    Size,
    StepName,
    conflict,
    missing,
    problem,
    suggestion,
)
from echelon.model.jobs.algorithms import OPERATIONS
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph, FreeGraphError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow, GraphError
from echelon.model.jobs.paradigm import Examples, example
from echelon.model.jobs.ranked import RankedParadigm
from echelon.model.quantities import size_bytes, size_text

Rank = Annotated[int, Field(strict=True, ge=0, le=10**6)]
# A document of a megabyte has a hundred thousand mistakes, and one is explained: lists end at their
# first.
Ranks = Annotated[tuple[Rank, ...], Field(fail_fast=True)]
SizeOrNone = Annotated[
    int, PlainValidator(size_bytes), PlainSerializer(size_text, when_used="json")
]
"""Bytes; 0 or more."""
KINDS = ("compute", "send", "collective")
"""The keys of which a node has exactly one."""
KEYS = {
    "compute": {"rank", "kind"},
    "send": {"bytes"},
    "collective": {"group", "bytes", "matrix", "algorithm", "steps"},
}
"""The other keys of each kind of node; all have `name`, `after` and `micro_batch`."""
NEEDED = {"compute": ("rank",), "send": ("bytes",), "collective": ("group",)}


class Node(Section):
    """A node: a rank computes, a rank sends to another, or ranks run a collective."""

    name: StepName = Field(description="the node's name, e.g. forward-0")
    after: Annotated[tuple[StepName, ...], Field(fail_fast=True)] = ()
    """The nodes before.

    Each rank starts its part of this node when it has finished its part of them.
    """
    micro_batch: Count | None = None
    """The number of the micro-batch that the node belongs to."""
    rank: Rank | None = None
    """The rank that computes. Nodes that communicate have none."""
    compute: Duration | None = None
    """The seconds for which `rank` computes."""
    kind: Name = "compute"
    """The kind of computing, in a word; pictures show its first letter."""
    send: Annotated[tuple[Rank, ...], Field(min_length=2, max_length=2)] | None = None
    """The sending and the receiving rank."""
    bytes: Size | None = None
    """The bytes sent, or the size of a collective's tensor."""
    collective: Literal[tuple(OPERATIONS)] | None = None  # type: ignore[valid-type]
    """The kind of collective of a node that communicates."""
    matrix: (
        Annotated[
            tuple[Annotated[tuple[SizeOrNone, ...], Field(fail_fast=True)], ...],
            Field(fail_fast=True),
        ]
        | None
    ) = None
    """The bytes from each rank (row) of an all-to-all to each (column), instead of `bytes`."""
    group: Name | Ranks | None = None
    """The ranks of the collective, or the name of a group of the graph."""
    algorithm: Name | None = None
    """The algorithm of the collective; default: the first of its kind."""
    steps: Literal["whole", "rounds"] = "whole"
    """The flows of the collective.

    whole: one for each pair of sender and receiver, with the bytes of all rounds. rounds: one for
    each round and rank.
    """

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        kinds = [key for key in KINDS if getattr(self, key) is not None]
        if len(kinds) != 1:
            fault = f"has {' and '.join(kinds)}" if kinds else "does nothing"
            raise conflict(f"{fault} (give one of {', '.join(KINDS)})")
        (kind,) = kinds
        all_keys = set[str]().union(*KEYS.values())
        for key in sorted(all_keys - KEYS[kind]):
            if key in self.model_fields_set:
                raise conflict(f"does not go with '{kind}' (remove it)", key)
        if self.matrix is not None and self.bytes is not None:
            raise conflict("does not go with 'matrix' (remove one)", "bytes")
        sized = kind == "collective" and self.collective != "barrier" and self.matrix is None
        needed = NEEDED[kind] + (("bytes",) if sized else ())
        for key in needed:
            if getattr(self, key) is None:
                raise missing(f"'{kind}' needs {' and '.join(needed)}", key)
        return self

    def ranks(self, groups: Mapping[str, Sequence[int]]) -> Sequence[int]:
        """Return the ranks of the collective."""
        if isinstance(self.group, str):
            return groups[self.group]
        return self.group or ()

    def step(self, groups: Mapping[str, Sequence[int]]) -> Step:
        """Return the node as a step of a `FreeGraph`."""
        if self.compute is not None:
            rank = str(self.rank)
            return ComputeUnit(
                self.name, rank, self.compute, self.after, self.kind, self.micro_batch
            )
        if self.send is not None:
            src, dst = map(str, self.send)
            return Flow(self.name, src, dst, self.bytes or 1, self.after, self.micro_batch)
        return CollectiveStep(
            self.name,
            str(self.collective),
            tuple(map(str, self.ranks(groups))),
            self.bytes or 1,
            self.algorithm,
            self.matrix,
            self.steps == "rounds",
            self.after,
            self.micro_batch,
        )


class Graph(RankedParadigm):
    """A free graph; `workers` hold the ranks in order, `ranks_per_worker` each."""

    examples: ClassVar[Examples] = {
        "graph": example(
            "graph",
            "custom",
            2,
            nodes=[
                {"name": "forward-0", "rank": 0, "compute": "3 ms"},
                {"name": "activation", "send": [0, 1], "bytes": "4 MB", "after": ["forward-0"]},
                {"name": "forward-1", "rank": 1, "compute": "3 ms", "after": ["activation"]},
                {
                    "name": "sum",
                    "collective": "all-reduce",
                    "group": [0, 1],
                    "bytes": "8 MB",
                    "after": ["forward-0", "forward-1"],
                },
            ],
        ),
    }
    compute_times = frozenset[str]()

    nodes: Annotated[
        tuple[Node, ...],
        Field(
            fail_fast=True,
            min_length=1,
            description="the nodes of the graph, as a list",
        ),
    ]
    groups: Mapping[Name, Ranks] = Field(default_factory=dict)
    """Names for lists of ranks."""
    sends: Literal["together", "in-turn"] = "together"
    """The sending of a worker's flows.

    together: all at once. in-turn: one after the other, in the order in which they start.
    """

    @property
    def sends_in_turn(self) -> bool:
        return self.sends == "in-turn"

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        for index, node in enumerate(self.nodes):
            if isinstance(node.group, str) and node.group not in self.groups:
                reason = (
                    f"'{node.group}' of node '{node.name}' is not a group"
                    f" ({suggestion(node.group, self.groups)})"
                )
                raise problem(reason, "nodes", index, "group", code="unknown-name")
        return self

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        return tuple(node.step(self.groups) for node in self.nodes)

    def rank_steps(self, ranks: int) -> int:
        steps = len(self.nodes) + sum(len(node.after) for node in self.nodes)
        kinds: Counter[tuple[str, str | None, int, bool]] = Counter()
        for node in self.nodes:
            if node.matrix is not None:
                steps += len(node.matrix) ** 2
            elif node.collective is not None:
                size = len(node.ranks(self.groups))
                kinds[node.collective, node.algorithm, size, node.steps == "rounds"] += 1
        for (operation, name, size, rounds), times in kinds.items():
            algorithms = OPERATIONS[operation]
            # `check_ranks` refuses an unknown algorithm.
            algorithm = algorithms.get(str(name), next(iter(algorithms.values())))
            steps += times * size + algorithm.step_count(size, times, rounds=rounds)
        return steps

    def check_ranks(self, ranks: int) -> None:
        try:
            FreeGraph(self.steps(()), self.ranks_per_worker).check(ranks)
        except FreeGraphError as error:
            reason = f"{error.reason.rstrip(')')}; node '{self.nodes[error.node].name}')"
            raise problem(reason, "nodes", error.node, error.key, code=error.code) from None
        except GraphError as error:
            reason = f"{error} (remove one of these edges)"
            raise problem(reason, "nodes", code=error.code) from None
        if self.sends_in_turn:
            self._check_turns()

    def _check_turns(self) -> None:
        for index, node in enumerate(self.nodes):
            if node.algorithm is None:
                continue
            algorithm = OPERATIONS[str(node.collective)][node.algorithm]
            if not algorithm.by_ranks:
                reason = (
                    f"'{node.algorithm}' is sent by several ranks at once, which take no turns (use"
                    " another, or 'sends: together')"
                )
                raise problem(reason, "nodes", index, "algorithm")

    def scaled(self, factor: Fraction) -> Self:
        nodes = []
        for node in self.nodes:
            if node.compute is not None:
                node = node.model_copy(update={"compute": node.compute * factor})
            nodes.append(node)
        return self.model_copy(update={"nodes": tuple(nodes)})
