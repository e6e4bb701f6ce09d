"""What differs between two configurations, leaf by leaf, and as few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from echelon_site.switch_config.dialects import Config

_LISTED = 5
"""The most names that a line lists. Of more it has the first, the last and how many."""

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that another configuration has otherwise, or not at all."""

    switch: str
    table: str
    """The keys above `key`, joined by blanks."""
    key: str
    """The key of what has the setting."""
    field: str
    before: Any
    """The value before; None: there was none."""
    after: Any


def differences(
    switch: str,
    before: Config,
    after: Config,
) -> Iterator[Difference]:
    """Yield what differs in the configurations of a switch."""
    old = dict(_leaves(before, ()))
    new = dict(_leaves(after, ()))
    for path in {**old, **new}:
        if old.get(path) != new.get(path):
            *tables, key, field = ("", "", *path)[-max(len(path), 2) :]
            table = " ".join(tables)
            yield Difference(switch, table, key, field, old.get(path), new.get(path))


def _leaves(config: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of each setting."""
    if not isinstance(config, dict):
        yield path, config
        return
    for key, value in config.items():
        yield from _leaves(value, (*path, key))


def rows(changes: Sequence[Difference]) -> Sequence[Row]:
    """Return rows of switches, table, keys, fields, before and after; those alike are one row."""
    lines: list[Row] = []
    for difference in changes:
        before = "-" if difference.before is None else str(difference.before)
        after = "-" if difference.after is None else str(difference.after)
        place = (difference.switch, difference.table, difference.key, difference.field)
        lines.append((*place, before, after))
    for column in (_FIELD, _KEY, _SWITCH):
        lines = _merged(lines, column)
    return lines


_SWITCH, _KEY, _FIELD = 0, 2, 3
"""The columns that have names of several."""


def _merged(lines: Sequence[Row], column: int) -> list[Row]:
    """Return lines that differ in one column alone as one line."""
    names_by_rest: dict[tuple[Row, Row], list[str]] = {}
    for line in lines:
        rest = line[:column], line[column + 1 :]
        names_by_rest.setdefault(rest, []).append(line[column])
    return [(*left, _listed(names), *right) for (left, right), names in names_by_rest.items()]


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _LISTED:
        return ", ".join(names)
    return f"{names[0]} .. {names[-1]} ({len(names)})"
