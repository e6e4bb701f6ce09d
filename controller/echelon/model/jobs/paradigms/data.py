"""Data parallelism: every worker computes on its own data, and an all-reduce sums the gradients.

**Without overlap.** The all-reduce starts when a worker has computed everything. All its flows are
one coflow, because no worker goes on before the last of them has finished (EchelonFlow, Pan et al.,
HotNets '22, section 3, eq. 5).

**With overlap**: wait-free backpropagation in buckets. The gradients of a layer are complete long
before the backward pass is over, last layer first, and are sent as they come (Poseidon, Zhang et
al., ATC '17, section 3.1). Layers are merged into buckets, because a collective of a few kilobytes
does not fill a link (tensor fusion in Horovod, Sergeev and Del Balso, arXiv:1802.05799; gradient
bucketing in PyTorch DDP, Li et al., VLDB '20, section 3.2.3). There is one communication stream: a
worker starts the all-reduce of a bucket when it has computed the bucket and has finished its part
in the all-reduce of the bucket before.

**Arrangement with overlap.** All buckets together are one coflow, ``d_j = r``. An arrangement
follows the times at which flows are consumed; nobody consumes a bucket before the next iteration,
and that waits for the last bucket. The order in which buckets are sent is up to the stream, not the
network.

Two alternatives lose: ideal finish times spread over the backward pass, as gradients become
complete, and a coflow for each bucket. With either, a bucket that is late by some time ranks the
same whether it is the first, which can wait, or the last, which delays the iteration. Two equal
jobs then take turns bucket by bucket and stay in step for ever. With one coflow, the job that
started first goes first, until neither meets the other. In the fluid model, two jobs of 1 s forward
and 2 s backward in 4 buckets, with 1.5 s of traffic on one link, started 1/16 s apart, take 1.31
times as long as alone under fair sharing, 1.22 ranked by spread times, and 1.00 as one coflow from
the third iteration on.

**Staleness of one step** (SAPipe, Chen et al., NeurIPS '22; Pipe-SGD, Li et al., NeurIPS '18, for
all buckets). The backward pass ends with the first layers, so nothing hides their all-reduce.
Workers apply the gradients of the last `stale_buckets` buckets one iteration late: those that one
iteration computes are all-reduced while the next one computes, and are consumed when that one ends.
As iterations do not overlap here, a job's iteration is its steady state: it begins with the
all-reduce of the stale gradients of the iteration before, and the stream goes on with the buckets
that it computes itself. Each iteration waits for what a worker waits for. The one difference is
that a stale bucket is never sent before its own iteration has ended. With one stale bucket, or if
the all-reduces of the others do not end before the backward pass, the stream could not send it
earlier. We leave out SAPipe's prediction of weights.

Stale buckets are a coflow of their own, whose ideal finish time is what it would be without
staleness, one iteration later: when the next iteration's first bucket is complete. So it has that
much slack from its start, ``d_j = r + forward + backward / buckets``.

**Local SGD** (Stich, ICLR '19; Lin et al., ICLR '20). Workers take `local_steps` steps on their own
and then average their models, whose parameters have the size of the gradients. An iteration is all
these steps and the all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from pydantic import Field, model_validator

from echelon.model.documents import Count, Duration, Size, UpTo1000, conflict, missing, problem
from echelon.model.jobs.algorithms import ALL_REDUCES, AllReduceName
from echelon.model.jobs.collectives import Collective, chunk_bytes
from echelon.model.jobs.combinators import Block, compute, parallel, replicate, series
from echelon.model.jobs.graph import EchelonFlow, IterationGraph
from echelon.model.jobs.paradigm import Examples, Paradigm, example


class Data(Paradigm):
    """Data parallelism with an all-reduce after all computing, or one for each bucket.

    `workers` are in the order of the ring, or in the order in which another algorithm numbers its
    ranks.
    """

    examples: ClassVar[Examples] = {
        "data": {
            "job": "vgg",
            "parallelism": "data",
            "workers": ["h1", "h2", "h3"],
            "weight": 2,
            "data": {"compute": "500 ms", "gradient": "5 MB"},
        },
        "overlap": example(
            "data",
            "resnet",
            3,
            forward="50 ms",
            backward="100 ms",
            buckets=4,
            gradient="5 MB",
        ),
        "staleness": example(
            "data",
            "sapipe",
            3,
            forward="50 ms",
            backward="100 ms",
            buckets=4,
            stale_buckets=1,
            gradient="5 MB",
        ),
        "local SGD": example(
            "data",
            "local",
            3,
            compute="150 ms",
            local_steps=8,
            gradient="5 MB",
        ),
    }
    compute_times = frozenset({"compute", "forward", "backward"})

    gradient: Size = Field(description="the bytes to all-reduce, e.g. 5 MB")
    collective: AllReduceName = "ring"
    """The algorithm of the all-reduce."""
    compute: Duration | None = None
    """Seconds before the all-reduce; the alternative is `forward`, `backward` and `buckets`."""
    forward: Duration | None = None
    """Seconds of the whole forward pass."""
    backward: Duration | None = None
    """Seconds of the whole backward pass. Gradients are all-reduced as it computes them."""
    buckets: UpTo1000 | None = None
    """The number of equal units of the backward pass, each with an all-reduce of its own."""
    stale_buckets: UpTo1000 | None = None
    """The number of last buckets that are all-reduced in the next iteration; only with `buckets`.

    None: none.
    """
    local_steps: Count | None = None
    """The steps of `compute` of each worker before the all-reduce; only with `compute`.

    None: one.
    """

    def flow_count(self, workers: int) -> int:
        return ALL_REDUCES[self.collective].flow_count(workers) * (self.buckets or 1)

    def connection_bytes(self, workers: int) -> int:
        buckets = self.buckets or 1
        size, larger = divmod(self.gradient, buckets)
        carried = ALL_REDUCES[self.collective].connection_bytes
        larger_bytes = larger * carried(workers, size + 1)
        return larger_bytes + (buckets - larger) * carried(workers, size)

    def counting_refusal(self, exactly: bool) -> str | None:
        if self.stale_buckets is None:
            return None
        return (
            "needs connections that pause between iterations,"
            " but stale buckets are sent as soon as one begins"
        )

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        if self.compute is not None:
            compute_s = (self.local_steps or 1) * self.compute
            return all_reduce(workers, compute_s, self.gradient, self.collective)
        # The validator below has made sure that these are given.
        assert self.forward is not None
        assert self.backward is not None
        assert self.buckets is not None
        return bucketed_all_reduce(
            workers,
            self.forward,
            self.backward,
            self.buckets,
            self.gradient,
            self.collective,
            self.stale_buckets or 0,
        )

    def check(self, workers: Sequence[str]) -> None:
        algorithm = ALL_REDUCES[self.collective]
        refusal = algorithm.refusal(len(workers))
        if refusal:
            raise problem(f"'{self.collective}' {refusal}", "collective", code="not-allowed")
        if self.gradient < len(workers) * (self.buckets or 1):
            parts = f"each of {len(workers)} workers"
            if self.buckets:
                parts += f" in each of {self.buckets} buckets"
            reason = f"of {self.gradient} B is less than a byte for {parts} (give more)"
            raise problem(reason, "gradient", code="too-small")

    @model_validator(mode="after")
    def _check_passes(self) -> Data:
        passes = {"forward": self.forward, "backward": self.backward, "buckets": self.buckets}
        keys = [key for key, value in passes.items() if value is not None]
        if self.compute is not None and keys:
            raise conflict(
                "does not go with 'compute' (give one, or forward, backward and buckets)", keys[0]
            )
        if self.compute is None and not keys:
            raise missing(
                "give the compute time of an iteration, e.g. 500 ms; or forward,"
                " backward and buckets",
                "compute",
            )
        for key, value in passes.items():
            if keys and value is None:
                raise missing(f"'{keys[0]}' needs forward, backward and buckets", key)
        if self.stale_buckets is not None:
            self._check_stale_buckets(self.stale_buckets)
        if self.local_steps is not None and self.compute is None:
            raise conflict(
                "does not go with 'buckets' (give 'compute' instead of forward,"
                " backward and buckets)",
                "local_steps",
            )
        return self

    def _check_stale_buckets(self, stale_buckets: int) -> None:
        if self.buckets is None:
            raise conflict(
                "does not go with 'compute' (give forward, backward and buckets instead)",
                "stale_buckets",
            )
        if stale_buckets > self.buckets:
            reason = f"is more than the {self.buckets} buckets (give less)"
            raise problem(reason, "stale_buckets", code="too-large")


def all_reduce(
    workers: Sequence[str],
    compute_s: Fraction,
    gradient_bytes: int,
    collective: AllReduceName = "ring",
) -> IterationGraph:
    """Return one iteration of `workers`: computing, and an all-reduce of `gradient_bytes`.

    Each worker computes for `compute_s` seconds before that.

    There are two or more workers, and at least one byte for each.

    Names count rounds and workers from 1: compute units `compute-w1`; flows `allreduce-k1-w1` (what
    worker 1 sends in round 1), by round and then worker; EchelonFlow `allreduce`.
    """
    reduced = Collective(ALL_REDUCES[collective], workers).block("allreduce", gradient_bytes)
    computed = replicate(workers, lambda i, worker: compute(f"compute-w{i}", worker, compute_s))
    return series(computed, reduced).graph(EchelonFlow.coflow("allreduce", reduced.flows))


def _passes(
    workers: Sequence[str],
    direction: str,
    duration_s: Fraction,
    suffix: str = "",
) -> Block:
    """Return a pass of each worker."""

    def unit(number: int, worker: str) -> Block:
        return compute(f"{direction}{suffix}-w{number}", worker, duration_s, direction)

    return replicate(workers, unit)


def bucketed_all_reduce(
    workers: Sequence[str],
    forward_s: Fraction,
    backward_s: Fraction,
    buckets: int,
    gradient_bytes: int,
    collective: AllReduceName = "ring",
    stale_buckets: int = 0,
) -> IterationGraph:
    """Return one iteration of `workers`, with an all-reduce for each unit of the backward pass.

    The units follow a forward pass, and are equal.

    The all-reduces of the last `stale_buckets` units come first, since their gradients are from the
    iteration before.

    There are two or more workers, and at least one byte for each in each bucket. `forward_s` and
    `backward_s` are the seconds of the whole pass. `gradient_bytes` are those of all buckets, cut
    evenly; the first buckets have one byte more where they do not divide.

    Names count buckets, rounds and workers from 1: compute units `forward-w1`, `backward-b2-w1`;
    flows `allreduce-b2-k1-w1` (bucket 2, round 1, worker 1), by bucket, round and worker;
    EchelonFlows `stale`, if there are stale buckets, and `allreduce`, if there are others.
    """
    ranks = Collective(ALL_REDUCES[collective], workers)
    unit_s = backward_s / buckets
    forward = _passes(workers, "forward", forward_s)
    backward: list[Block] = []
    reduced: list[Block] = []
    for bucket in range(1, buckets + 1):
        backward.append(_passes(workers, "backward", unit_s, f"-b{bucket}"))
        bucket_bytes = chunk_bytes(gradient_bytes, buckets, bucket - 1)
        reduced.append(ranks.block(f"allreduce-b{bucket}", bucket_bytes))
    fresh = reduced[: buckets - stale_buckets]
    stale = reduced[buckets - stale_buckets :]
    passes = series(forward, *backward)
    stream = series(*stale, *fresh)
    behind_passes = map(series, backward[: len(fresh)], fresh)
    graph = parallel(passes, *behind_passes, stream)
    echelonflows: list[EchelonFlow] = []
    stale_flows = parallel(*stale).flows
    if stale_flows:
        slack_s = forward_s + unit_s
        offsets_s = (slack_s,) * len(stale_flows)
        echelonflows.append(EchelonFlow("stale", stale_flows, offsets_s))
    fresh_flows = parallel(*fresh).flows
    if fresh_flows:
        echelonflows.append(EchelonFlow.coflow("allreduce", fresh_flows))
    return graph.graph(*echelonflows)
