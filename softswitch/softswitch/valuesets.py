"""Parser value sets: the values that a controller adds to those that a select compares with."""

from __future__ import annotations

from collections.abc import Sequence

ValueElement = int | tuple[int, int] | range | None
"""A condition on one component of a select's key.

It is a value, (value, mask), a range, or None for anything.
"""


class ValueSet(set[tuple[ValueElement, ...]]):
    """A set of members, each with one element per component of the select's key.

    It changes as any set does.

    A key is in the set if it matches a member. Members of plain values are found at once; all
    others are tried one by one.
    """

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        return isinstance(key, tuple) and any(_matches(member, key) for member in self)

    def masked(self, key: tuple[int, ...], masks: tuple[int, ...]) -> bool:
        """Return ``key in self`` with only the bits in ``masks`` compared, of the members too."""
        members = [member for member in self if len(member) == len(key)]
        return any(all(map(_agrees, member, key, masks)) for member in members)


def _matches(member: Sequence[ValueElement], key: tuple[int, ...]) -> bool:
    if len(member) != len(key):
        return False
    return all(_agrees(element, value, -1) for element, value in zip(member, key, strict=True))


def _agrees(
    element: ValueElement,
    value: int,
    mask: int,
) -> bool:
    match element:
        case None:
            return True
        case int():
            return (element ^ value) & mask == 0
        case range():
            return value & mask in element
        case (wanted, cared):
            return (wanted ^ value) & cared & mask == 0
