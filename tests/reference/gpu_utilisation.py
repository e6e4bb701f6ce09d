"""The utilisation of the GPUs of jobs that share links: a small model of closed loops, beside the product.

A job computes for `compute_s` in each iteration and keeps all its links busy for `communicate_s`, from
`communicate_after_s` on; the next iteration begins when both are done. On a link, higher levels go first, and jobs of
one level share max-min fairly. All links have the same capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def crowds(cycles: Sequence[Cycle]) -> list[int]:
    """Return the sets of jobs that share a link, each once, as numbers with a bit for each job."""
    links = {link for cycle in cycles for link in cycle.links}
    return sorted({sum(1 << k for k, cycle in enumerate(cycles) if link in cycle.links) for link in links})


def rates(crowds: Sequence[int], levels: Sequence[int], sending: int) -> list[float]:
    """Return the part of the capacity that each job gets; `sending` has a bit for each job that sends."""
    left = [1.0] * len(crowds)
    out = [0.0] * len(levels)
    for level in sorted({*levels}, reverse=True):
        growing = sending & sum(1 << k for k, of in enumerate(levels) if of == level)
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
            left = [room - share * (crowd & stopped).bit_count() for room, crowd in zip(left, crowds, strict=True)]
            left[tightest] = 0.0
    return out


def utilisations(cycles: Sequence[Cycle], choices: Sequence[Sequence[int]], iterations: int = 40) -> Array:
    """Return the mean part of the GPUs that compute, over `iterations` of the longest job alone, for each choice.

    A choice has the level of each job; larger levels go first. Jobs begin together. All choices are simulated side by
    side, each from its own event to its own next event.
    """
    jobs, rows = len(cycles), np.arange(len(choices))
    together = crowds(cycles)
    rate_of = np.array([[rates(together, levels, sending) for sending in range(1 << jobs)] for levels in choices])
    gpus = np.array([cycle.gpus for cycle in cycles], dtype=float)
    compute = np.array([cycle.compute_s for cycle in cycles])
    communicate = np.array([cycle.communicate_s for cycle in cycles], dtype=float)
    after = np.array([cycle.communicate_after_s for cycle in cycles])
    end = iterations * float(np.maximum(compute, after + communicate).max())
    bits = 1 << np.arange(jobs)
    shape = len(choices), jobs
    now, busy = np.zeros(len(choices)), np.zeros(len(choices))
    begin = np.zeros(shape)
    left = np.tile(communicate, (len(choices), 1))
    sent, sending = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    tiny = 1e-9
    with np.errstate(divide="ignore", invalid="ignore"):
        while (now < end).any():
            rate = rate_of[rows, (sending * bits).sum(axis=1)]
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
    busy += (gpus * np.minimum(end - begin, compute)).sum(axis=1)
    return busy / (end * gpus.sum())
