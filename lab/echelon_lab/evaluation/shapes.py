"""The shapes of jobs that scenarios draw from: iterations without durations and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

from echelon.model.quantities import duration_text, size_text

_TICK_S = Fraction(1, 10**6)
"""Durations are whole ticks, which keeps the fractions of an exact run short."""


@dataclass(frozen=True, slots=True)
class DrawnCompute:
    """A key of a job file that holds this part of the job's compute time."""

    part: Fraction


@dataclass(frozen=True, slots=True)
class Sending:
    """A key of a job file that holds this part of the job's bytes."""

    part: Fraction


@dataclass(frozen=True, slots=True)
class JobShape:
    """A drawn iteration.

    `section` has `DrawnCompute` and `Sending` in place of durations and sizes.
    """

    parallelism: str
    workers: tuple[str, ...]
    section: Mapping[str, object]

    def document(
        self,
        name: str,
        compute_s: Fraction,
        sent_bytes: Fraction,
        start_s: Fraction,
    ) -> dict[str, Any]:
        """Return the job as its file has it, with these totals.

        Durations are rounded to microseconds.
        """
        section: dict[str, object] = {}
        for key, value in self.section.items():
            match value:
                case DrawnCompute(part):
                    section[key] = _duration(part * compute_s)
                case Sending(part):
                    size_bytes = round(part * sent_bytes)
                    section[key] = size_text(max(_LEAST_BYTES, size_bytes))
                case _:
                    section[key] = value
        return {
            "job": name,
            "parallelism": self.parallelism,
            "workers": list(self.workers),
            "start": _duration(start_s),
            self.parallelism: section,
        }


_LEAST_BYTES = 64
"""Enough for a byte from each worker in each bucket."""


def _duration(seconds: Fraction) -> str:
    ticks = max(1, round(seconds / _TICK_S))
    return duration_text(ticks * _TICK_S)


def _data(random: Random, hosts: Sequence[str]) -> JobShape:
    section = {
        "compute": DrawnCompute(Fraction(1)),
        "gradient": Sending(Fraction(1)),
        "collective": _collective(random, hosts),
    }
    return JobShape("data", tuple(hosts), section)


def _buckets(random: Random, hosts: Sequence[str]) -> JobShape:
    section = {
        "forward": DrawnCompute(Fraction(1, 3)),
        "backward": DrawnCompute(Fraction(2, 3)),
        "buckets": random.choice((2, 4)),
        "gradient": Sending(Fraction(1)),
        "collective": _collective(random, hosts),
    }
    return JobShape("data", tuple(hosts), section)


def _collective(random: Random, hosts: Sequence[str]) -> str:
    choices = ["ring", "ring", "tree"]
    # Halving-doubling needs a power of two.
    if len(hosts) in (2, 4, 8):
        choices.append("halving-doubling")
    return random.choice(choices)


def _parameter_server(_random: Random, hosts: Sequence[str]) -> JobShape:
    server, *workers = hosts
    gradient = Sending(Fraction(1, len(workers)))
    section = {"server": server, "compute": DrawnCompute(Fraction(1)), "gradient": gradient}
    return JobShape("parameter_server", tuple(workers), section)


def _pipeline(schedule: str, backward: bool) -> Callable[[Random, Sequence[str]], JobShape]:
    def draw(random: Random, hosts: Sequence[str]) -> JobShape:
        micro_batches = random.choice((3, 4, 6, 8))
        section: dict[str, object] = {"schedule": schedule, "micro_batches": micro_batches}
        # As in `_buckets`, the backward pass computes twice as long as the forward one. Each
        # boundary of stages carries as much back as forth.
        if backward:
            section["forward"] = DrawnCompute(Fraction(1, 3 * micro_batches))
            section["activation"] = Sending(Fraction(1, 2 * micro_batches))
            section["backward"] = DrawnCompute(Fraction(2, 3 * micro_batches))
        else:
            section["forward"] = DrawnCompute(Fraction(1, micro_batches))
            section["activation"] = Sending(Fraction(1, micro_batches))
        return JobShape("pipeline", tuple(hosts), section)

    return draw


@dataclass(frozen=True, slots=True)
class ShapeKind:
    """A row of `SHAPES`."""

    draw: Callable[[Random, Sequence[str]], JobShape]
    """Draws a shape on the given hosts, which are all that the job uses."""
    hosts: tuple[int, ...]
    """Numbers of hosts to choose from."""


SHAPES: Mapping[str, ShapeKind] = {
    "data": ShapeKind(_data, (2, 3, 4)),
    "data in buckets": ShapeKind(_buckets, (2, 3, 4)),
    "parameter server": ShapeKind(_parameter_server, (3, 4)),
    "gpipe forward": ShapeKind(_pipeline("gpipe", backward=False), (2, 3, 4)),
    "gpipe": ShapeKind(_pipeline("gpipe", backward=True), (2, 3, 4)),
    "1f1b": ShapeKind(_pipeline("1f1b", backward=True), (2, 3, 4)),
}
"""The shapes by the name that tables show. A new paradigm takes part when it has a row here."""
