"""The iteration of a training job: compute units, flows, and the EchelonFlows of the flows.

A graph of *ranks* also has collectives (`CollectiveStep`). `echelon.model.jobs.free` turns it into
a graph of hosts, in which collectives have become flows.

Terms follow EchelonFlow (Pan et al., HotNets '22, section 3): an EchelonFlow is a set of flows
whose *ideal finish times* are related by an arrangement function. The function is given as offsets
``d_j - r`` from the reference time ``r``, which is when the head flow really starts in an
iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from echelon.model.errors import Code, CodedError


class GraphError(CodedError, ValueError):
    """An iteration graph with a cycle, a missing name, or a name that two steps have."""

    code: Code = "invalid-value"


_WORK: ContextVar[list[int] | None] = ContextVar("work", default=None)


@contextmanager
def limited_work(most: int) -> Iterator[None]:
    """Limit the work of building graphs inside, beyond which they raise `GraphError`.

    Work is counted in dependencies that are followed.

    Each step of a collective may wait for each of the one before, and each flow may be due by each
    that precedes it.
    """
    before = _WORK.set([most, most])
    try:
        yield
    finally:
        _WORK.reset(before)


def spend(work: int) -> None:
    """Do some of the work that `limited_work` limits."""
    left = _WORK.get()
    if left is not None:
        left[0] -= work
        if left[0] < 0:
            raise GraphError(
                f"takes more than {left[1]} dependencies to follow (use rings, fewer ranks, layers"
                " or micro-batches)",
                code="too-large",
            )


LOCAL = "local"
"""The kind of a compute unit that stands for a transfer between two ranks of one host."""
FlowKey = tuple[str, str]
"""A flow of a job: (job, flow)."""


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """Work of one worker that nothing interrupts."""

    name: str
    """Unique among the compute units and flows of the job."""
    worker: str
    """The host that does the work."""
    duration_s: Fraction
    after: tuple[str, ...] = ()
    """Names of the compute units and flows that must finish before the unit starts. A worker does
    one unit at a time, so these dependencies include the order of its units."""
    kind: str = "compute"
    """The work as the paradigm names it: `forward`, `backward`, `aggregate`... A `LOCAL` unit is a
    transfer between two ranks of one host, not computing."""
    micro_batch: int | None = None
    """The micro-batch, counted from 1. None: the unit belongs to no single micro-batch."""


Ends = tuple[str, ...]
"""The ends of a connection: source and destination, or all hosts of a flow (`Flow.among`)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes from one worker to another, or among several over a tree of switches."""

    name: str
    src: str
    dst: str
    size_bytes: int
    after: tuple[str, ...] = ()
    """Names of the compute units and flows that must finish before the flow starts."""
    micro_batch: int | None = None
    """The micro-batch, counted from 1. None: the flow belongs to no single micro-batch."""
    among: tuple[str, ...] = ()
    """The hosts of a flow over a tree of switches, `src` first and `dst` last. Where these are the
    same, all hosts send and receive, and switches add up what they send; otherwise `src` sends to
    all others. Each link of the tree carries `size_bytes`, once."""
    rounds: int = 1
    """The number of flows, one after the other, that it stands for where a job is simplified."""
    count: int = 1
    """The number of equal flows for which it stands where a job is folded
    (`echelon.model.jobs.folding`). `size_bytes` are those of each."""

    @property
    def ends(self) -> Ends:
        """Return the connection that the flow is part of."""
        return self.among or (self.src, self.dst)


@dataclass(frozen=True, slots=True)
class CollectiveStep:
    """A collective operation of some ranks, before an algorithm makes it flows."""

    name: str
    operation: str
    """`all-reduce`, `all-gather`... (`echelon.model.jobs.collectives.OPERATIONS`)."""
    group: tuple[str, ...]
    """The ranks, in the order in which the algorithm numbers them."""
    size_bytes: int
    """The size of the whole tensor (`echelon.model.jobs.collectives.OPERATIONS` says which)."""
    algorithm: str | None = None
    """None: the first that `OPERATIONS` lists."""
    matrix: tuple[tuple[int, ...], ...] | None = None
    """The bytes from each rank (row) to each (column) of an all-to-all.

    None: equal parts of `size_bytes`.
    """
    rounds: bool = False
    """Whether each rank has one flow per round.

    Otherwise each pair of sender and receiver has one flow, with the bytes of all rounds.
    """
    after: tuple[str, ...] = ()
    """Names of the steps before.

    Each rank starts its own part when it has finished its part of these.
    """
    micro_batch: int | None = None
    """The micro-batch, counted from 1. None: the collective belongs to no single micro-batch."""


@dataclass(frozen=True, slots=True)
class EchelonFlow:
    """Flows of one iteration related by an arrangement function.

    `flows` are flow names in ascending order of ideal finish time; the first is the head flow.
    `offsets_s[j]` is the ideal finish time of `flows[j]` relative to the reference time, in
    seconds. The first offset is 0, as in the paper, unless the head flow has slack: then nobody
    needs it until so long after its start. If all offsets are equal, the EchelonFlow is a coflow.
    """

    name: str
    flows: tuple[str, ...]
    offsets_s: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.flows) != len(self.offsets_s) or not self.flows:
            raise ValueError(
                f"EchelonFlow {self.name}: {len(self.flows)} flows but"
                f" {len(self.offsets_s)} offsets"
            )
        if any(early > late for early, late in pairwise(self.offsets_s)):
            raise ValueError(f"EchelonFlow {self.name}: offsets must not decrease")

    @classmethod
    def coflow(cls, name: str, flows: Iterable[str]) -> EchelonFlow:
        """Return an EchelonFlow whose flows should all finish at the reference time (eq. 5)."""
        names = tuple(flows)
        return cls(name, names, (Fraction(0),) * len(names))

    @property
    def slack_s(self) -> Fraction:
        """Return how long after its start the head flow should finish, in seconds."""
        return self.offsets_s[0]

    @property
    def is_coflow(self) -> bool:
        """Whether all flows have the same ideal finish time."""
        return self.offsets_s[0] == self.offsets_s[-1]


class IterationGraph(NamedTuple):
    """The graph of one iteration, before a job has it. Names are unique within it."""

    computes: tuple[ComputeUnit, ...]
    flows: tuple[Flow, ...]
    echelonflows: tuple[EchelonFlow, ...]

    def on_hosts(self, hosts: Mapping[str, str]) -> IterationGraph:
        """Return the same graph on other hosts, by the name of those that they replace."""

        @cache  # many flows go the same way
        def among(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(hosts.get(name, name) for name in names)

        computes = []
        for unit in self.computes:
            worker = hosts.get(unit.worker, unit.worker)
            # A constructor takes a third of the time of `replace`, and graphs are large.
            computes.append(
                ComputeUnit(
                    unit.name, worker, unit.duration_s, unit.after, unit.kind, unit.micro_batch
                )
            )
        flows = []
        for flow in self.flows:
            src = hosts.get(flow.src, flow.src)
            dst = hosts.get(flow.dst, flow.dst)
            flows.append(
                Flow(
                    flow.name,
                    src,
                    dst,
                    flow.size_bytes,
                    flow.after,
                    flow.micro_batch,
                    among(flow.among),
                    flow.rounds,
                    flow.count,
                )
            )
        return IterationGraph(tuple(computes), tuple(flows), self.echelonflows)


@dataclass(frozen=True)
class Job:
    """A training job.

    It repeats one iteration graph; an iteration starts when the previous one has finished.
    """

    name: str
    computes: tuple[ComputeUnit, ...]
    flows: tuple[Flow, ...]
    echelonflows: tuple[EchelonFlow, ...]
    start_s: Fraction = Fraction(0)
    """The start of the first iteration, in seconds."""
    weight: Fraction = Fraction(1)
    """The factor of the job's normalised tardiness when a policy compares it with others'."""
    in_turn: bool = False
    """Whether a host sends the job's flows one after the other, in the order of their start."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Return the hosts of the job in order of first mention."""
        names = [unit.worker for unit in self.computes]
        for flow in self.flows:
            names += flow.ends
        return tuple(dict.fromkeys(names))
