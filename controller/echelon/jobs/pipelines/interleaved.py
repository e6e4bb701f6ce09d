"""Interleaved 1F1B: every worker has several chunks of layers, so that a pipeline fills and empties faster.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC '21,
section 2.2.2. Of p workers with v chunks each, worker w (from 0) has the stages w, w + p, w + 2p... Micro-batches go in
groups of p: a worker does its first chunk for p micro-batches, then its second for the same, and so on; backward in
reverse order of chunks. It starts with 2(p - w - 1) + (v - 1)p forward passes, then alternates one forward with one
backward. Bubbles take (p - 1) / v times a forward and a backward pass of all chunks, but v times as much is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from echelon.jobs.pipelines.schedule import Pass


def schedule(worker: int, workers: int, micro_batches: int, chunks: int) -> Iterator[Pass]:
    """Yield the passes of `worker` (from 0) in the order in which it does them.

    `micro_batches` is a multiple of `workers`.
    """
    passes = micro_batches * chunks
    warm_up = min(passes, 2 * (workers - worker - 1) + (chunks - 1) * workers)
    for number in range(passes + warm_up):
        if number < passes:
            yield _pass("forward", number, worker, workers, chunks)
        if number >= warm_up:
            yield _pass("backward", number - warm_up, worker, workers, chunks)


def _pass(direction: Literal["forward", "backward"], number: int, worker: int, workers: int, chunks: int) -> Pass:
    """Return a worker's pass of this number, from 0, of all that it does in one direction."""
    group, inside = divmod(number, workers * chunks)
    chunk, place = divmod(inside, workers)
    if direction == "backward":
        chunk = chunks - 1 - chunk
    return Pass(direction, chunk * workers + worker + 1, group * workers + place + 1)
