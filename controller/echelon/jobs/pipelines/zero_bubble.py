"""ZB-H1: 1F1B whose backward passes are split, so that bubbles are filled with the gradients of weights.

Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR '24, section 2.1. A backward pass is two: the gradient of the
input (here `backward`), which the stage before waits for, and the gradient of the weights (`weights`), which nobody
waits for. Stage s (from 1) of p starts with p - s forward passes and then alternates forward and backward as in 1F1B.
It puts off the weights of the first s - 1 micro-batches, does those of one micro-batch after each later backward pass,
and the rest at the end. A stage keeps no more activations than with 1F1B. Where F, B and W are the times of the three
passes, bubbles take (p - 1)(F + B - W), where 1F1B's take (p - 1)(F + B + W).
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.pipelines import one_f_one_b
from echelon.jobs.pipelines.schedule import Pass


def schedule(stage: int, stages: int, micro_batches: int) -> Iterator[Pass]:
    """Yield the passes of `stage` (1..stages) in the order in which it does them."""
    put_off = min(stage - 1, micro_batches)
    for each in one_f_one_b.schedule(stage, stages, micro_batches):
        yield each
        if each.direction == "backward" and each.micro_batch > put_off:
            yield Pass("weights", stage, each.micro_batch - put_off)
    for micro_batch in range(micro_batches - put_off + 1, micro_batches + 1):
        yield Pass("weights", stage, micro_batch)
