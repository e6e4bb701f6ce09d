"""Iterations of a small DDP job with and without observers, in turn.

`torchrun` starts it, and rank 0 prints JSON.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from echelon_torch import observe

# The job of examples/torch/ddp.py.
WIDTH = 256
LAYERS = 8
BATCH = 1024
BUCKET_MB = 0.5
ROUNDS = 15
ITERATIONS = 6


@contextlib.contextmanager
def _observed(directory: str) -> Iterator[None]:
    with observe(directory, iterations=10**6, skip=0):
        yield


@contextlib.contextmanager
def _profiled(directory: str) -> Iterator[None]:
    trace = ExecutionTraceObserver().register_callback(
        str(Path(directory, f"trace-{dist.get_rank()}.json"))
    )
    with profile(
        activities=[ProfilerActivity.CPU],
        execution_trace_observer=trace,
    ):
        yield


def main() -> None:
    dist.init_process_group("gloo")
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(BATCH, WIDTH)

    def iterate() -> tuple[float, float]:
        """Return the wall-clock and the processor time of an iteration."""
        for number in range(ITERATIONS + 1):
            # The first call of an operation behind a change of the dispatcher takes longer.
            if number == 1:
                begin = time.perf_counter()
                busy = time.process_time()
            optimizer.zero_grad()
            model(samples).square().mean().backward()
            optimizer.step()
        wall_s = time.perf_counter() - begin
        processor_s = time.process_time() - busy
        return wall_s / ITERATIONS, processor_s / ITERATIONS

    iterate()
    arms = {"none": contextlib.nullcontext, "observer": _observed, "profiler": _profiled}
    times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(ROUNDS):
            first = number % len(arms)
            for arm in [*arms][first:] + [*arms][:first]:
                # What starts and ends an observer is no part of an iteration.
                with arms[arm](directory):
                    times[arm].append(iterate())
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
