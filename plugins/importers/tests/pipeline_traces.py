"""Pipelines on GPUs, and the traces that PyTorch's profiler would write of them.

What the ranks do is simulated here, without the importer: a kernel starts when its stream and what
it needs are ready, and a transfer takes `TRANSFER_US` from when both ends have started. The events
have the fields that Kineto writes (``libkineto/src/output_json.cpp``), in its two ways:

* a `send` or `recv` of its own is a kernel with the operation in its arguments;
* a batch (`batch_isend_irecv`) is a kernel without them, launched behind the records of the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from echelon_importers import Source

FORWARD_US = 1000
BACKWARD_US = 2000
TRANSFER_US = 400
ELEMENTS = 1_048_576
KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_COMPUTING = 7


@dataclass(frozen=True)
class End:
    """This rank's end of a transfer."""

    name: str
    peer: int
    group: str = "1"


@dataclass(eq=False)
class Kernel:
    """A kernel, and when it ran."""

    stream: int
    duration_us: int = 0
    ends: tuple[End, ...] = ()
    needs: tuple[Kernel, ...] = ()
    start_us: int | None = None
    end_us: int | None = None


@dataclass
class Rank:
    """The kernels of a rank in the order in which the host launches them."""

    kernels: list[Kernel] = field(default_factory=list)

    def compute(self, us: int, *needs: Kernel | None) -> Kernel:
        return self._add(Kernel(_COMPUTING, us, needs=tuple(filter(None, needs))))

    def transfer(self, *ends: End | None, stream: int = 20) -> Kernel | None:
        """Add a transfer, which waits for the computing launched before, as PyTorch's do."""
        used = tuple(end for end in ends if end)
        if not used:
            return None
        computing = [kernel for kernel in self.kernels if not kernel.ends]
        return self._add(Kernel(stream, 0, used, tuple(computing[-1:])))

    def _add(self, kernel: Kernel) -> Kernel:
        self.kernels.append(kernel)
        return kernel


def gpipe(stages: int, micro_batches: int) -> list[Rank]:
    """Return the ranks of GPipe: all forward passes, then all backward passes."""
    ranks = []
    for stage in range(stages):
        rank = Rank()
        below, above = _neighbours(stage, stages)
        for _ in range(micro_batches):
            got = rank.transfer(below and End("recv", below.peer))
            rank.compute(FORWARD_US, got)
            rank.transfer(above and End("send", above.peer))
        for _ in range(micro_batches):
            got = rank.transfer(above and End("recv", above.peer))
            rank.compute(BACKWARD_US, got)
            rank.transfer(below and End("send", below.peer))
        ranks.append(rank)
    return ranks


def one_forward_one_backward(stages: int, micro_batches: int) -> list[Rank]:
    """Return the ranks of 1F1B as Megatron runs it: a send and the next receipt are one batch."""
    ranks = []
    for stage in range(stages):
        rank = Rank()
        below, above = _neighbours(stage, stages)
        first = min(stages - 1 - stage, micro_batches)
        steady = micro_batches - first
        for _ in range(first):
            got = rank.transfer(_recv(below))
            rank.compute(FORWARD_US, got)
            rank.transfer(_send(above))
        got = rank.transfer(_recv(below)) if steady else None
        for number in range(steady):
            rank.compute(FORWARD_US, got)
            got = rank.transfer(_send(above), _recv(above))
            rank.compute(BACKWARD_US, got)
            more = below if number < steady - 1 else None
            got = rank.transfer(_send(below), _recv(more))
        for _ in range(first):
            got = rank.transfer(_recv(above))
            rank.compute(BACKWARD_US, got)
            rank.transfer(_send(below))
        ranks.append(rank)
    return ranks


def looped(stages: int, micro_batches: int) -> list[Rank]:
    """Return ranks of two stages each, breadth first: rank r has stages r and r + `stages`.

    Each way around the loop has its own process group and streams.
    """
    last = 2 * stages - 1
    ranks = [Rank() for _ in range(stages)]
    for forward in (True, False):
        chunks = (0, 1) if forward else (1, 0)
        us = FORWARD_US if forward else BACKWARD_US
        step = 1 if forward else -1
        group = "1" if forward else "2"
        for number, rank in enumerate(ranks):
            for chunk in chunks:
                stage = chunk * stages + number
                before = None if stage == (0 if forward else last) else (number - step) % stages
                after = None if stage == (last if forward else 0) else (number + step) % stages
                for _ in range(micro_batches):
                    source = None if before is None else End("recv", before, group)
                    target = None if after is None else End("send", after, group)
                    got = rank.transfer(source, stream=20 + 2 * forward)
                    rank.compute(us, got)
                    rank.transfer(target, stream=21 + 2 * forward)
    return ranks


def _neighbours(stage: int, stages: int) -> tuple[End | None, End | None]:
    below = End("", stage - 1) if stage else None
    above = End("", stage + 1) if stage < stages - 1 else None
    return below, above


def _send(neighbour: End | None) -> End | None:
    return neighbour and End("send", neighbour.peer)


def _recv(neighbour: End | None) -> End | None:
    return neighbour and End("recv", neighbour.peer)


def run(ranks: Sequence[Rank], transfer_us: int = TRANSFER_US) -> int:
    """Give all kernels their times, and return when the last ends, in microseconds."""
    waiting = {number: list(rank.kernels) for number, rank in enumerate(ranks)}
    free: dict[tuple[int, int], int] = {}
    while any(waiting.values()):
        began = sum(map(len, waiting.values()))
        for number, kernels in waiting.items():
            for kernel in list(kernels):
                if kernel.start_us is None:
                    _start(number, kernel, kernels, free)
                _finish(number, kernel, ranks, transfer_us)
                if kernel.end_us is not None:
                    free[number, kernel.stream] = kernel.end_us
                    kernels.remove(kernel)
        assert sum(map(len, waiting.values())) < began, "the schedule waits in a circle"
    return max(kernel.end_us or 0 for rank in ranks for kernel in rank.kernels)


def _start(
    number: int, kernel: Kernel, kernels: list[Kernel], free: dict[tuple[int, int], int]
) -> None:
    first = next(other for other in kernels if other.stream == kernel.stream)
    if first is kernel and all(need.end_us is not None for need in kernel.needs):
        ends = [need.end_us or 0 for need in kernel.needs]
        kernel.start_us = max([free.get((number, kernel.stream), 0), *ends])


def _finish(number: int, kernel: Kernel, ranks: Sequence[Rank], transfer_us: int) -> None:
    if kernel.start_us is None:
        return
    if not kernel.ends:
        kernel.end_us = kernel.start_us + kernel.duration_us
        return
    starts = [kernel.start_us]
    for end in kernel.ends:
        partner = _partner(number, kernel, end, ranks)
        if partner.start_us is None:
            return
        starts.append(partner.start_us)
    kernel.end_us = max(starts) + transfer_us


def _partner(number: int, kernel: Kernel, end: End, ranks: Sequence[Rank]) -> Kernel:
    """Return the kernel of the other end: the k-th of the k-th."""
    mine = list(_carriers(ranks[number], end))
    other = End("recv" if end.name == "send" else "send", number, end.group)
    theirs = list(_carriers(ranks[end.peer], other))
    assert len(mine) == len(theirs)
    return theirs[mine.index(kernel)]


def _carriers(rank: Rank, end: End) -> Iterator[Kernel]:
    return (kernel for kernel in rank.kernels if end in kernel.ends)


def traces(ranks: Sequence[Rank], *, batched: bool = False) -> list[Source]:
    """Return the trace of each rank; `batched`: every transfer is in a batch, as PyTorch's are."""
    run(ranks)
    return [
        source(number, _events(number, rank, len(ranks), batched), len(ranks))
        for number, rank in enumerate(ranks)
    ]


def source(number: int, events: Sequence[dict[str, Any]], world: int) -> Source:
    info = {"backend": "nccl", "rank": number, "world_size": world}
    document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": list(events)}
    return Source(f"rank{number}.json", json.dumps(document).encode())


def _events(number: int, rank: Rank, world: int, batched: bool) -> Iterator[dict[str, Any]]:
    host_us = 0
    for correlation, kernel in enumerate(rank.kernels, start=1):
        described: dict[str, Any] = {}
        for end in kernel.ends:
            said = arguments(end.name, end.peer, world, end.group)
            yield host("record_param_comms", "cpu_op", host_us, 3, {**said, "Rank": end.peer})
            host_us += 4
            described = said
        # A batch is launched behind its records, and a transfer of its own within its record.
        is_batch = len(kernel.ends) > 1 or batched
        launch_us = host_us if is_batch or not kernel.ends else host_us - 2
        yield host(
            "cudaLaunchKernelExC", "cuda_runtime", launch_us, 1, {"correlation": correlation}
        )
        host_us += 2
        assert kernel.start_us is not None
        assert kernel.end_us is not None
        yield {
            "ph": "X",
            "cat": "kernel",
            "name": KERNEL if kernel.ends else "gemm",
            "pid": 0,
            "tid": kernel.stream,
            "ts": 500 + kernel.start_us,
            "dur": kernel.end_us - kernel.start_us,
            "args": {
                "stream": kernel.stream,
                "device": 0,
                "correlation": correlation,
                **({} if is_batch else described),
            },
        }


def arguments(name: str, peer: int, world: int, group: str = "1") -> dict[str, Any]:
    """Return the arguments of a transfer as PyTorch writes them: the other end alone."""
    return {
        "Collective name": name,
        "In msg nelems": ELEMENTS,
        "Out msg nelems": ELEMENTS,
        "Group size": world,
        "dtype": "BFloat16",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": group,
        "Process Group Description": "pp",
        "Process Group Ranks": json.dumps(list(range(world))),
        ("Dst Rank" if name == "send" else "Src Rank"): peer,
    }


def host(name: str, kind: str, start_us: int, us: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": 1,
        "tid": 11,
        "ts": start_us,
        "dur": us,
        "args": args,
    }
