"""All schedules of pipelines by the name that a job file gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from echelon.jobs.pipelines import gpipe, interleaved, one_f_one_b, zero_bubble
from echelon.jobs.pipelines.schedule import Pass


@dataclass(frozen=True, slots=True)
class PipelineSchedule:
    """An order of passes for workers that have one or more chunks of the model each."""

    passes: Callable[[int, int, int], Iterable[Pass]]
    """Returns all passes of an iteration for so many workers, micro-batches and chunks, those of each worker in the
    order in which it does them. Worker w, from 0, has the stages w + 1, w + 1 + workers..."""
    chunked: bool = False
    """Whether workers have several chunks, and the number of micro-batches is a multiple of that of workers."""
    splits_backward: bool = False
    """Whether the gradients of weights are passes of their own."""


def _each_stage(schedule: Callable[[int, int, int], Iterable[Pass]]) -> Callable[[int, int, int], Iterable[Pass]]:
    return lambda stages, count, _: [each for s in range(1, stages + 1) for each in schedule(s, stages, count)]


SCHEDULES: Mapping[str, PipelineSchedule] = {
    "gpipe": PipelineSchedule(lambda stages, count, _: gpipe.schedule(stages, count)),
    "1f1b": PipelineSchedule(_each_stage(one_f_one_b.schedule)),
    "interleaved": PipelineSchedule(
        lambda workers, count, chunks: [
            each for w in range(workers) for each in interleaved.schedule(w, workers, count, chunks)
        ],
        chunked=True,
    ),
    "zero-bubble": PipelineSchedule(_each_stage(zero_bubble.schedule), splits_backward=True),
}
