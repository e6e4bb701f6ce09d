"""Data parallelism whose all-reduce overlaps with the backward pass: wait-free backpropagation in buckets.

Gradients are complete layer by layer, from the last layer to the first, long before the backward pass is over: they
are sent as they come (Poseidon, Zhang et al., ATC '17, section 3.1). Layers are put together into buckets, because a
collective of a few kilobytes does not fill a link (tensor fusion in Horovod, Sergeev and Del Balso, arXiv:1802.05799;
gradient bucketing in PyTorch DDP, Li et al., VLDB '20, section 3.2.3). There is one communication stream: a worker
begins the ring all-reduce of a bucket when it has computed the bucket and is done with the bucket before.

**Arrangement.** All buckets together are one coflow, ``d_j = r`` (EchelonFlow, Pan et al., HotNets '22, section 3, eq.
5): an arrangement follows the times at which flows are consumed, nobody consumes a bucket before the next iteration,
and that waits for the last of them. In which order they are sent is the stream's to say, not the network's.

To spread ideal finish times over the backward pass instead, as gradients come into being, or to make a coflow of each
bucket, loses. A bucket that is late by as much then ranks the same whether it is the first, which can wait, or the
last, which holds up the iteration; two equal jobs take turns bucket by bucket and stay in step for ever, where with one
coflow the job that began first goes first, until neither meets the other. In the fluid model, two jobs of 1 s forward
and 2 s backward in 4 buckets with 1.5 s of traffic on one link, started 1/16 s apart, take 1.31 times as long as alone
under fair sharing, 1.22 ranked by spread times, and 1.00 as one coflow from the third iteration on.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from echelon.jobs.data_parallel import chunk_bytes, ring_flows, step_name
from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow
from echelon.jobs.iteration import IterationGraph


def bucketed_all_reduce(
    workers: Sequence[str], forward_s: Fraction, backward_s: Fraction, buckets: int, gradient_bytes: int
) -> IterationGraph:
    """One iteration of n >= 2 `workers`: forward pass, backward pass in `buckets` equal units, an all-reduce for each.

    `forward_s` and `backward_s` are seconds of the whole pass; `gradient_bytes` are those of all buckets, at least
    n * `buckets`, cut evenly with the remainder in the first ones.

    Names count buckets, steps and workers from 1: computes `forward-w1`, `backward-b2-w1`; flows `allreduce-b2-k1-w1`
    (bucket 2, step 1, worker 1 to 2), by bucket, step and worker; EchelonFlow `allreduce`.
    """
    n = len(workers)
    last_step = 2 * (n - 1) - 1
    unit_s = backward_s / buckets
    computes = [ComputeUnit(f"forward-w{i}", worker, forward_s) for i, worker in enumerate(workers, start=1)]
    flows: list[Flow] = []
    before = [unit.name for unit in computes]
    # What a worker waits for before it begins with the next bucket: that it has sent and received all of this one.
    stream: list[tuple[str, ...]] = [()] * n
    for bucket in range(buckets):
        units = [
            ComputeUnit(f"backward-b{bucket + 1}-w{i + 1}", worker, unit_s, (before[i],))
            for i, worker in enumerate(workers)
        ]
        before = [unit.name for unit in units]
        name = f"allreduce-b{bucket + 1}"
        size_bytes = bucket_bytes(gradient_bytes, buckets, bucket)
        ready = [(unit.name, *free) for unit, free in zip(units, stream, strict=True)]
        flows += ring_flows(name, workers, size_bytes, ready)
        stream = [(step_name(name, last_step, i), step_name(name, last_step, (i - 1) % n)) for i in range(n)]
        computes += units
    coflow = EchelonFlow("allreduce", tuple(flow.name for flow in flows), (Fraction(0),) * len(flows))
    return IterationGraph(tuple(computes), tuple(flows), (coflow,))


def bucket_bytes(gradient_bytes: int, buckets: int, bucket: int) -> int:
    """Size of a bucket (0..buckets-1): all the same but for a byte, and together the gradient."""
    return chunk_bytes(gradient_bytes, buckets, bucket)
