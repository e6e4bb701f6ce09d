"""Makes a failing case small: fewer steps, packets, updates and bytes, while it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.differential.case import Case, Packets, Step, Write

_T = TypeVar("_T")


def shrink(case: Case, fails: Callable[[Case], bool], budget: int = 400) -> Case:
    """Return a smaller case for which `fails` holds, as it does for `case`.

    Calls `fails` `budget` times at most.
    """
    progress = True
    while progress and budget > 0:
        progress = False
        for candidate in _smaller(case):
            budget -= 1
            if fails(candidate):
                case = candidate
                progress = True
                break
            if budget <= 0:
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yield smaller candidates, the smallest first."""
    for number in range(len(case.steps)):
        if len(case.steps) > 1:
            yield replace(case, steps=(*case.steps[:number], *case.steps[number + 1 :]))
    for number, step in enumerate(case.steps):
        if isinstance(step, Write):
            for updates in _subsets(step.updates):
                yield _with(case, number, Write(updates))
        else:
            for packets in _subsets(step.packets):
                yield _with(case, number, Packets(packets))
    if case.packet_count <= 3:
        for number, step in enumerate(case.steps):
            if isinstance(step, Packets):
                for at, (port, data) in enumerate(step.packets):
                    for shorter in (data[: len(data) // 2], data[:-1]):
                        if shorter:
                            packets = (*step.packets[:at], (port, shorter), *step.packets[at + 1 :])
                            yield _with(case, number, Packets(packets))


def _subsets(items: Sequence[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield the items without a half, a quarter, ... one item."""
    size = len(items) // 2
    while size:
        for start in range(0, len(items), size):
            kept = (*items[:start], *items[start + size :])
            if kept:
                yield kept
        size //= 2


def _with(case: Case, number: int, step: Step) -> Case:
    return replace(case, steps=(*case.steps[:number], step, *case.steps[number + 1 :]))
