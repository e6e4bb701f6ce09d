"""JSON values that know their position in the program."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.numerals import brief

_T = TypeVar("_T")


class Reader:
    """A JSON value together with the words that describe its position."""

    __slots__ = ("place", "value")

    def __init__(self, value: Any, place: str) -> None:
        self.value = value
        self.place = place

    def fail(self, fault: str) -> ProgramError:
        """Return the error to raise about this value."""
        return ProgramError(self.place, fault)

    def with_place(self, place: str) -> Reader:
        """Return a reader of the same value that reports `place` as its position in errors."""
        return Reader(self.value, place)

    def _typed(self, kind: type[_T], name: str) -> _T:
        # In Python a truth value is an integer, too.
        is_other_truth = isinstance(self.value, bool) and kind is not bool
        if not isinstance(self.value, kind) or is_other_truth:
            raise self.fail(f"must be {name}, is {abbreviated(self.value)}")
        return self.value

    def text(self) -> str:
        return self._typed(str, "a string")

    def truth(self) -> bool:
        return self._typed(bool, "true or false")

    def integer(self, low: int = 0, high: int | None = None) -> int:
        value = self._typed(int, "an integer")
        too_large = high is not None and value > high
        if value < low or too_large:
            limit = "" if high is None else high
            raise self.fail(f"must be in {low}..{limit}, is {brief(value)}")
        return value

    def hexadecimal(self) -> int:
        text = self._typed(str, "a hexadecimal string")
        try:
            return int(text, 16)
        except ValueError:
            raise self.fail(f"must be a hexadecimal string, is {abbreviated(text)}") from None

    def elements(self) -> list[Reader]:
        items = self._typed(list, "a list")
        return [Reader(item, f"{self.place}[{i}]") for i, item in enumerate(items)]

    def pair(self) -> tuple[Reader, Reader]:
        items = self.elements()
        if len(items) != 2:
            raise self.fail(f"must have 2 elements, has {len(items)}")
        return items[0], items[1]

    def get(self, key: str) -> Reader:
        """Return the member ``key``, which must exist."""
        mapping: dict[str, Any] = self._typed(dict, "an object")
        if key not in mapping:
            raise self.fail(f"has no '{key}'")
        return Reader(mapping[key], f"{self.place}: '{key}'")

    def text_of(self, key: str) -> str:
        """Return the member ``key``, which must be a string."""
        return self.get(key).text()

    def integer_of(
        self,
        key: str,
        low: int = 0,
        high: int | None = None,
    ) -> int:
        """Return the member ``key``, which must be an integer in a range."""
        return self.get(key).integer(low, high)

    def hexadecimal_of(self, key: str) -> int:
        """Return the member ``key``, which must be a number in hexadecimal digits."""
        return self.get(key).hexadecimal()

    def elements_of(self, key: str) -> list[Reader]:
        """Return the elements of the member ``key``, which must be a list."""
        return self.get(key).elements()

    def find(self, key: str) -> Reader | None:
        """Return the member, None where it is absent or null."""
        mapping: dict[str, Any] = self._typed(dict, "an object")
        if mapping.get(key) is None:
            return None
        return Reader(mapping[key], f"{self.place}: '{key}'")

    def members(self, key: str) -> list[Reader]:
        """Return the elements of list ``key``, none if it is absent."""
        member = self.find(key)
        return [] if member is None else member.elements()

    def numbered(self, elements: list[Reader], kind: str) -> list[Reader]:
        """Return elements of this object under places that count them: "PLACE KIND NUMBER"."""
        return [
            element.with_place(f"{self.place} {kind} {number}")
            for number, element in enumerate(elements)
        ]

    def flag(self, key: str, default: bool = False) -> bool:
        member = self.find(key)
        if member is None:
            return default
        return member.truth()

    def optional_text(self, key: str) -> str | None:
        member = self.find(key)
        return None if member is None else member.text()

    def origin(self) -> ir.Origin | None:
        """Return the source position that p4c recorded for this object, if it is meaningful."""
        if not isinstance(self.value, dict):
            return None
        source = self.value.get("source_info")
        if not isinstance(source, dict):
            return None
        file = source.get("filename")
        line = source.get("line")
        text = source.get("source_fragment")
        if not isinstance(file, str) or not isinstance(line, int) or not isinstance(text, str):
            return None
        return ir.Origin(file, line, " ".join(text.split()))

    def named(self, kind: str) -> tuple[str, Reader]:
        """Return the value of ``name``, and the same object under the place "``kind`` 'name'"."""
        name = self.text_of("name")
        return name, self.with_place(f"{kind} '{name}'")


def abbreviated(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if type(value) is int:
        return brief(value)
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
