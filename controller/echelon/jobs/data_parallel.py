"""Data parallelism: every worker computes on its own data, then a ring all-reduce sums the gradients.

Ring all-reduce (Patarasu and Yuan, JPDC '09): the gradient is cut into n chunks; in each of 2(n-1) steps every worker
sends one chunk to its successor on the ring and receives one from its predecessor. The first n-1 steps add up
(reduce-scatter), the others spread the sums (all-gather). All its flows are one coflow: nobody goes on before the last
is finished (EchelonFlow, Pan et al., HotNets '22, eq. 5).

Here the all-reduce begins when all is computed; `bucketed_all_reduce` has the one that overlaps with computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow
from echelon.jobs.iteration import IterationGraph


def ring_all_reduce(workers: Sequence[str], compute_s: Fraction, gradient_bytes: int) -> IterationGraph:
    """One iteration of n >= 2 `workers`, each with `compute_s` seconds of work before `gradient_bytes` are reduced.

    `gradient_bytes` is at least n.

    Names count steps and workers from 1: computes `compute-w1`; flows `allreduce-k1-w1` (step 1, worker 1 to 2), by
    step and then worker; EchelonFlow `allreduce`.
    """
    computes = tuple(ComputeUnit(f"compute-w{i}", worker, compute_s) for i, worker in enumerate(workers, start=1))
    flows = ring_flows("allreduce", workers, gradient_bytes, [(unit.name,) for unit in computes])
    coflow = EchelonFlow("allreduce", tuple(flow.name for flow in flows), (Fraction(0),) * len(flows))
    return IterationGraph(computes, flows, (coflow,))


def ring_flows(
    name: str, workers: Sequence[str], gradient_bytes: int, after: Sequence[tuple[str, ...]]
) -> tuple[Flow, ...]:
    """The flows of one all-reduce of `gradient_bytes` (at least one for each worker), by step and then worker.

    `after[i]` is what worker i (0..n-1) waits for before its first step. A later step of a worker follows the step
    before of the worker itself (it sends one chunk at a time) and of its predecessor (what it sends is what it just
    received). Names count from 1: ``NAME-k1-w1`` is step 1, worker 1 to 2.
    """
    n = len(workers)
    return tuple(
        Flow(
            name=step_name(name, step, i),
            src=workers[i],
            dst=workers[(i + 1) % n],
            size_bytes=chunk_bytes(gradient_bytes, n, sent_chunk(step, i, n)),
            after=(step_name(name, step - 1, i), step_name(name, step - 1, (i - 1) % n)) if step else after[i],
        )
        for step in range(2 * (n - 1))
        for i in range(n)
    )


def step_name(name: str, step: int, worker: int) -> str:
    """Of the flow that `worker` (0..n-1) sends in `step` (0..2n-3) of the all-reduce `name`."""
    return f"{name}-k{step + 1}-w{worker + 1}"


def sent_chunk(step: int, worker: int, n: int) -> int:
    """The chunk (0..n-1) that `worker` (0..n-1) sends in `step` (0..2n-3).

    It starts with the chunk of its own number and always passes on the chunk it received the step before; after n-1
    steps that is a complete sum, so that the same rule serves both halves.
    """
    return (worker - step) % n


def chunk_bytes(gradient_bytes: int, n: int, chunk: int) -> int:
    """Size of a chunk: the first `gradient_bytes` mod n are one byte larger, so that they add up to the gradient."""
    return gradient_bytes // n + (chunk < gradient_bytes % n)
