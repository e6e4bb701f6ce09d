"""Slurm's lists of hosts: ``tux[0-3,12,18-20],login1`` and ``rack[0-1]n[01-04]``.

Source: the man page topology.conf(5), and Slurm's `hostlist_create` for zeros in front: numbers
keep the width of the first of their range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from echelon.model.quantities import excerpt

_MOST_NAMES = 1 << 16
"""The most names of one list."""

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SPLIT = re.compile(r",(?![^\[]*\])")


class HostlistError(ValueError):
    """The text is not a list of hosts. The message says why and what to write."""


def expanded(text: str) -> list[str]:
    """Return the names in a list of hosts, in its order. Raises `HostlistError`."""
    names: list[str] = []
    for word in _SPLIT.split(text):
        names += _names(word.strip())
        if len(names) > _MOST_NAMES:
            raise HostlistError(f"{excerpt(text)} has too many names (write fewer)")
    return names


def _names(word: str) -> Iterator[str]:
    parts = list(_PART.finditer(word))
    if not parts or sum(len(part[0]) for part in parts) != len(word):
        raise HostlistError(f"{excerpt(word)} is not a list of names (write it as n[0-3,7])")
    choices: list[list[str]] = []
    count = 1
    for part in parts:
        choices.append([part[2]] if part[2] else _numbers(part[1], word))
        count *= len(choices[-1])
    if count > _MOST_NAMES:
        raise HostlistError(f"{excerpt(word)} has too many names (write fewer)")
    for combination in product(*choices):
        yield "".join(combination)


def _numbers(ranges: str, word: str) -> list[str]:
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            remedy = "write ranges as 0-3,7"
            raise HostlistError(f"{excerpt(text)} in {excerpt(word)} is not a range ({remedy})")
        first = int(match[1])
        last = int(match[2] or match[1])
        if not first <= last < first + _MOST_NAMES:
            remedy = "write the smaller number first"
            raise HostlistError(f"{excerpt(text)} in {excerpt(word)} has no numbers ({remedy})")
        # As in Slurm, the first number says how many digits the others have at least.
        width = len(match[1])
        numbers += [f"{number:0{width}}" for number in range(first, last + 1)]
    return numbers
