"""An algebra that builds iteration graphs from single steps.

A `Block` is a part of an iteration. `compute` and `flow` make blocks of one step; two operations
combine blocks:

* `parallel(a, b)` has the steps and the dependencies of both.
* `series(a, b)` has, in addition, every rank finish its part of `a` before it starts its part of
  `b`. Ranks do not wait for each other: only a flow carries a dependency from one rank to another.

A rank is a host of the job, or one of several ranks on a host (`echelon.model.jobs.free`). A
compute unit is part of its worker's work. A flow is part of the work of both its ends, but only its
source starts it, so a rank that only receives in `b` may receive before it has finished `a`. A
collective is part of the work of all its ranks.

Steps are identified by name, so blocks may share them: `parallel(series(a, b), series(a, c))` has
one `a`, which `b` and `c` both follow. Every directed acyclic graph can be written this way. These
are *overlay* and *connect* of Mokhov, Algebraic Graphs with Class, Haskell '17, section 2, with one
difference: `series` connects rank by rank, where *connect* makes every step of `a` precede every
step of `b`.

Both operations are associative and have the empty block as their identity. `parallel` is
idempotent, and commutative up to the order in which steps are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from echelon.model.jobs.graph import (
    CollectiveStep,
    ComputeUnit,
    EchelonFlow,
    Flow,
    GraphError,
    IterationGraph,
)

Step: TypeAlias = ComputeUnit | Flow | CollectiveStep
Names: TypeAlias = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of an iteration: steps, dependencies, and where each rank enters and leaves."""

    steps: Mapping[str, Step]
    """Steps by name, in order of first mention. Their own `after` is empty."""
    after: Names
    """The steps that must finish before each step starts. Steps without any are left out."""
    first: Names
    """Steps that each rank starts, such that each step that it starts is or follows one of them."""
    last: Names
    """Steps that each rank takes part in, such that each such step is or precedes one of them."""

    @property
    def flows(self) -> tuple[str, ...]:
        """Return the names of the flows in order of first mention."""
        return tuple(name for name, step in self.steps.items() if isinstance(step, Flow))

    def nodes(self) -> tuple[Step, ...]:
        """Return the steps in order of first mention, each with its dependencies."""
        nodes = dict(self.steps)
        for name, names in self.after.items():
            nodes[name] = replace(nodes[name], after=names)
        return tuple(nodes.values())

    def graph(self, *echelonflows: EchelonFlow) -> IterationGraph:
        """Return a block without collectives as a whole iteration with these EchelonFlows."""
        steps = self.nodes()
        computes = tuple(step for step in steps if isinstance(step, ComputeUnit))
        flows = tuple(step for step in steps if isinstance(step, Flow))
        return IterationGraph(computes, flows, echelonflows)


def compute(
    name: str,
    worker: str,
    duration_s: Fraction,
    kind: str = "compute",
    micro_batch: int | None = None,
) -> Block:
    """Return a block of one compute unit, which takes `duration_s` seconds."""
    unit = ComputeUnit(
        name,
        worker,
        duration_s,
        kind=kind,
        micro_batch=micro_batch,
    )
    part = {worker: (name,)}
    return Block({name: unit}, {}, part, part)


def flow(
    name: str,
    src: str,
    dst: str,
    size_bytes: int,
    micro_batch: int | None = None,
) -> Block:
    """Return a block of one flow of `size_bytes` from `src` to `dst`."""
    step = Flow(name, src, dst, size_bytes, micro_batch=micro_batch)
    parts = dict.fromkeys((src, dst), (name,))
    return Block({name: step}, {}, {src: (name,)}, parts)


def collective(
    name: str,
    operation: str,
    group: Iterable[str],
    size_bytes: int,
    algorithm: str | None = None,
    micro_batch: int | None = None,
    matrix: tuple[tuple[int, ...], ...] | None = None,
) -> Block:
    """Return a block of one collective; `CollectiveStep` explains the arguments."""
    ranks = tuple(group)
    step = CollectiveStep(
        name, operation, ranks, size_bytes, algorithm, matrix, micro_batch=micro_batch
    )
    parts = dict.fromkeys(ranks, (name,))
    return Block({name: step}, {}, parts, parts)


def parallel(*blocks: Block) -> Block:
    """Return the steps and dependencies of all blocks.

    Raises `GraphError` if two different steps have one name.
    """
    after = _joined(block.after for block in blocks)
    first = _joined(block.first for block in blocks)
    last = _joined(block.last for block in blocks)
    return Block(_steps(blocks), after, first, last)


def series(*blocks: Block) -> Block:
    """Return all blocks, each rank doing its parts of them in this order.

    Raises `GraphError` if two different steps have one name.
    """
    joints: list[Names] = []
    first: dict[str, tuple[str, ...]] = {}
    last: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        for rank, names in block.first.items():
            # A mapping for each rank, because ranks may share a collective as their first step.
            if rank in last:
                joints.append(dict.fromkeys(names, last[rank]))
            first.setdefault(rank, names)
        for rank, names in block.last.items():
            # A rank that only receives in this block does not wait for its part of the blocks
            # before.
            if rank in block.first or rank not in last:
                last[rank] = names
            else:
                last[rank] = tuple(dict.fromkeys((*last[rank], *names)))
    after = [block.after for block in blocks]
    return Block(_steps(blocks), _joined([*after, *joints]), first, last)


def replicate(ranks: Iterable[str], build: Callable[[int, str], Block]) -> Block:
    """Return `build(number, rank)` for every rank, in parallel. Numbers count from 1."""
    blocks = [build(number, rank) for number, rank in enumerate(ranks, start=1)]
    return parallel(*blocks)


def _steps(blocks: Iterable[Block]) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    for block in blocks:
        for name, step in block.steps.items():
            first = steps.setdefault(name, step)
            if first is not step and first != step:
                raise GraphError(
                    f"the name '{name}' is given to two different steps (give each its own)",
                    code="duplicate",
                )
    return steps


def _joined(mappings: Iterable[Names]) -> Names:
    joined: dict[str, tuple[str, ...]] = {}
    # Keys that several mappings have; sets keep this linear in a block of many parts.
    shared: dict[str, dict[str, None]] = {}
    for mapping in mappings:
        for key, names in mapping.items():
            if joined.setdefault(key, names) is names:
                continue
            if key not in shared:
                shared[key] = dict.fromkeys(joined[key])
            shared[key].update(dict.fromkeys(names))
    for key, all_names in shared.items():
        joined[key] = tuple(all_names)
    return joined
