"""The shapes of jobs that scenarios draw from: an iteration with its structure, but without
durations and sizes.
"""

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
class Shape:
    """A drawn iteration.

    `section` has `DrawnCompute` and `Sending` in place of durations and sizes.
    """

    parallelism: str
    workers: tuple[str, ...]
    section: Mapping[str, object]

    def document(
        self, name: str, compute_s: Fraction, sent_bytes: Fraction, start_s: Fraction
    ) -> dict[str, Any]:
        """Return the job as its file has it, with these totals.

        Durations are rounded to microseconds.
        """

        def filled(value: object) -> object:
            match value:
                case DrawnCompute(part):
                    return _duration(part * compute_s)
                case Sending(part):
                    return size_text(max(_LEAST_BYTES, round(part * sent_bytes)))
                case _:
                    return value

        return {
            "job": name,
            "parallelism": self.parallelism,
            "workers": list(self.workers),
            "start": _duration(start_s),
            self.parallelism: {key: filled(value) for key, value in self.section.items()},
        }


_LEAST_BYTES = 64
"""Enough for a byte from each worker in each bucket."""


def _duration(seconds: Fraction) -> str:
    return duration_text(max(1, round(seconds / _TICK_S)) * _TICK_S)


def _data(random: Random, hosts: Sequence[str]) -> Shape:
    section = {"compute": DrawnCompute(Fraction(1)), "gradient": Sending(Fraction(1))}
    return Shape("data", tuple(hosts), section | _collective(random, hosts))


def _buckets(random: Random, hosts: Sequence[str]) -> Shape:
    section = {
        "forward": DrawnCompute(Fraction(1, 3)),
        "backward": DrawnCompute(Fraction(2, 3)),
        "buckets": random.choice((2, 4)),
        "gradient": Sending(Fraction(1)),
    }
    return Shape("data", tuple(hosts), section | _collective(random, hosts))


def _collective(random: Random, hosts: Sequence[str]) -> dict[str, object]:
    # Halving-doubling needs a power of two.
    choices = (
        ("ring", "ring", "tree", "halving-doubling")
        if len(hosts) in (2, 4, 8)
        else ("ring", "ring", "tree")
    )
    return {"collective": random.choice(choices)}


def _parameter_server(_random: Random, hosts: Sequence[str]) -> Shape:
    server, *workers = hosts
    gradient = Sending(Fraction(1, len(workers)))
    section = {"server": server, "compute": DrawnCompute(Fraction(1)), "gradient": gradient}
    return Shape("parameter_server", tuple(workers), section)


def _pipeline(schedule: str, backward: bool) -> Callable[[Random, Sequence[str]], Shape]:
    def draw(random: Random, hosts: Sequence[str]) -> Shape:
        micro_batches = random.choice((3, 4, 6, 8))
        section: dict[str, object] = {
            "schedule": schedule,
            "micro_batches": micro_batches,
            "forward": DrawnCompute(Fraction(1, (3 if backward else 1) * micro_batches)),
            "activation": Sending(Fraction(1, (2 if backward else 1) * micro_batches)),
        }
        if backward:
            section["backward"] = DrawnCompute(Fraction(2, 3 * micro_batches))
        return Shape("pipeline", tuple(hosts), section)

    return draw


@dataclass(frozen=True, slots=True)
class ShapeKind:
    """A row of `SHAPES`."""

    draw: Callable[[Random, Sequence[str]], Shape]
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
