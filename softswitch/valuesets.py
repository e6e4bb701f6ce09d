"""Parser value sets: what a controller may add to the values that a select compares with."""

from __future__ import annotations

from collections.abc import Sequence

ValueElement = int | tuple[int, int] | range | None
"""What one component of a select's key must be: a value, (value, mask), one of a range, or anything."""


class ValueSet(set[tuple[ValueElement, ...]]):
    """A set of members, each with one element per component of the select's key; change it as any set.

    A key is in the set if it matches a member. Members of plain values are found at once, others are tried one by one.
    """

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (isinstance(key, tuple) and any(_matches(m, key) for m in self))

    def masked(self, key: tuple[int, ...], masks: tuple[int, ...]) -> bool:
        """As ``key in self``, where only the bits in ``masks`` count, of members too."""
        return any(
            all(_agrees(element, value, mask) for element, value, mask in zip(member, key, masks, strict=False))
            for member in self
            if len(member) == len(key)
        )


def _matches(member: Sequence[ValueElement], key: tuple[int, ...]) -> bool:
    return len(member) == len(key) and all(
        _agrees(element, value, -1) for element, value in zip(member, key, strict=False)
    )


def _agrees(element: ValueElement, value: int, mask: int) -> bool:
    match element:
        case None:
            return True
        case int():
            return (element ^ value) & mask == 0
        case range():
            return value & mask in element
        case (wanted, cared):
            return (wanted ^ value) & cared & mask == 0
