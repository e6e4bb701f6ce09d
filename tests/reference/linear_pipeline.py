"""A linear pipeline in the fluid model, in exact rationals, independent of Echelon's own simulator.

Each worker computes its micro-batches in order. A computed micro-batch is a flow to the next
worker, over a link of their own that carries one unit of data in one unit of time. The links do not
depend on later ones, so each is simulated once, after the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Policy = Literal["fair", "coflow", "edf"]


@dataclass(frozen=True)
class Transfer:
    """The flows of one link, in the order of their micro-batches."""

    finish: list[Fraction]
    tardiness: Fraction
    """The largest finish after the ideal one: that of a flow computed alone, at the pace of the
    first worker.
    """


def run(
    policy: Policy, stages: int, micro_batches: int, size: Fraction | int, compute: Fraction | int
) -> tuple[Fraction, list[Transfer]]:
    """Return when the last worker has computed its last micro-batch, and what happened on each
    link.
    """
    size, compute = Fraction(size), Fraction(compute)
    arrived, transfers = [Fraction(0)] * micro_batches, []
    for _ in range(stages - 1):
        starts = _computed(arrived, compute)
        arrived = _finishes(policy, starts, size)
        ideal = [starts[0] + number * compute for number in range(micro_batches)]
        transfers.append(
            Transfer(arrived, max(late - due for late, due in zip(arrived, ideal, strict=True)))
        )
    return _computed(arrived, compute)[-1], transfers


def _computed(arrived: list[Fraction], compute: Fraction) -> list[Fraction]:
    done, free = [], Fraction(0)
    for at in arrived:
        free = max(free, at) + compute
        done.append(free)
    return done


def _finishes(policy: Policy, starts: list[Fraction], size: Fraction) -> list[Fraction]:
    finish: dict[int, Fraction] = {}
    left: dict[int, Fraction] = {}
    now = starts[0]
    for number, start in enumerate(starts):
        now = _advance(policy, left, now, start, finish)
        left[number] = size
    _advance(policy, left, now, None, finish)
    return [finish[number] for number in range(len(starts))]


def _advance(
    policy: Policy,
    left: dict[int, Fraction],
    now: Fraction,
    until: Fraction | None,
    finish: dict[int, Fraction],
) -> Fraction:
    """Send what is `left` from `now` to `until` (None: until all is sent).

    Return the time of the last event.
    """
    while left and (until is None or now < until):
        rates = _rates(policy, left)
        step = min(left[number] / rate for number, rate in rates.items() if rate)
        if until is not None:
            step = min(step, until - now)
        now += step
        for number, rate in rates.items():
            left[number] -= rate * step
            if not left[number]:
                finish[number] = now
                del left[number]
    return now if until is None else until


def _rates(policy: Policy, left: Mapping[int, Fraction]) -> dict[int, Fraction]:
    if policy == "fair":
        return dict.fromkeys(left, Fraction(1, len(left)))
    if policy == "coflow":
        total = sum(left.values(), Fraction(0))
        return {number: rest / total for number, rest in left.items()}
    return {number: Fraction(number == min(left)) for number in left}
