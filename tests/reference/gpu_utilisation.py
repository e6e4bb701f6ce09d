"""The utilisation of the GPUs of jobs that share links: a small model of closed loops, beside the
product.

A job computes for `compute_s` in each iteration and keeps all its links busy for `communicate_s`,
from `communicate_after_s` on; the next iteration begins when both are done. On a link, higher
levels go first, and jobs of one level share max-min fairly. All links have the same capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Cycle:
    """One job."""

    gpus: int
    compute_s: float
    communicate_s: float
    communicate_after_s: float
    links: frozenset[object]


def crowds(cycles: Sequence[Cycle]) -> tuple[int, ...]:
    """Return the sets of jobs that share a link, each once, as numbers with a bit for each job."""
    links = {link for cycle in cycles for link in cycle.links}
    return tuple(
        sorted(
            {sum(1 << k for k, cycle in enumerate(cycles) if link in cycle.links) for link in links}
        )
    )


@lru_cache(maxsize=1 << 16)
def rates(crowds: Sequence[int], levels: Sequence[int | None]) -> tuple[float, ...]:
    """Return the part of the capacity that each job gets.

    The level of a job that does not send is None.
    """
    left = [1.0] * len(crowds)
    out = [0.0] * len(levels)
    for level in sorted({level for level in levels if level is not None}, reverse=True):
        growing = sum(1 << k for k, of in enumerate(levels) if of == level)
        while growing:
            offers = [
                (room / members.bit_count(), number)
                for number, (room, crowd) in enumerate(zip(left, crowds, strict=True))
                if (members := crowd & growing)
            ]
            share, tightest = min(offers)
            stopped = crowds[tightest] & growing
            growing &= ~stopped
            for k in range(len(levels)):
                if stopped >> k & 1:
                    out[k] = share
            left = [
                room - share * (crowd & stopped).bit_count()
                for room, crowd in zip(left, crowds, strict=True)
            ]
            left[tightest] = 0.0
    return tuple(out)


def _rates_of(together: tuple[int, ...], levels: Sequence[int]) -> list[tuple[float, ...]]:
    """Return the rates for every set of jobs that may send; the index has a bit for each job."""
    out = []
    for sending in range(1 << len(levels)):
        among = sorted({level for k, level in enumerate(levels) if sending >> k & 1})
        # Ranks among those that send, so that orders that agree on them are computed once.
        out.append(
            rates(
                together,
                tuple(
                    among.index(level) if sending >> k & 1 else None
                    for k, level in enumerate(levels)
                ),
            )
        )
    return out


def utilisations(
    choices: Sequence[tuple[Sequence[Cycle], Sequence[int]]], iterations: int = 40
) -> Array:
    """Return the mean part of the GPUs that compute, over `iterations` of the longest job alone,
    for each choice.

    A choice has the jobs, and the level of each; larger levels go first. All choices have as many
    jobs. Jobs begin together. All choices are simulated side by side, each from its own event to
    its own next event.
    """
    rows = np.arange(len(choices))
    jobs = len(choices[0][0])
    rate_of = np.array([_rates_of(crowds(cycles), levels) for cycles, levels in choices])
    gpus, compute, communicate, after = (
        np.array([[getattr(cycle, what) for cycle in cycles] for cycles, _ in choices], dtype=float)
        for what in ("gpus", "compute_s", "communicate_s", "communicate_after_s")
    )
    end = iterations * np.maximum(compute, after + communicate).max(axis=1)
    bits = 1 << np.arange(jobs)
    now, busy = np.zeros(len(choices)), np.zeros(len(choices))
    begin, left = np.zeros_like(compute), communicate.copy()
    sent, sending = np.zeros(compute.shape, dtype=bool), np.zeros(compute.shape, dtype=bool)
    tiny = 1e-9
    with np.errstate(divide="ignore", invalid="ignore"):
        while (now < end).any():
            rate = rate_of[rows, sending @ bits]
            finish = np.where(rate > 0, now[:, None] + left / rate, np.inf)
            event = np.where(sending, finish, np.where(sent, begin + compute, begin + after))
            following = np.minimum(end, np.maximum(now, event.min(axis=1)))
            left -= np.where(sending, rate * (following - now)[:, None], 0)
            now = following
            done = sending & (left <= tiny)
            starts = ~sending & ~sent & (begin + after <= now[:, None] + tiny)
            sending = (sending & ~done) | starts
            sent |= done
            again = sent & (begin + compute <= now[:, None] + tiny) & (now < end)[:, None]
            busy += (again * gpus * compute).sum(axis=1)
            begin = np.where(again, now[:, None], begin)
            left = np.where(again, communicate, left)
            sent &= ~again
    busy += (gpus * np.minimum(end[:, None] - begin, compute)).sum(axis=1)
    return busy / (end * gpus.sum(axis=1))
