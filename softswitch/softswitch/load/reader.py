"""JSON values that know their position in the program."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from softswitch import ir
from softswitch.errors import ProgramError

_T = TypeVar("_T")


class Reader:
    """A JSON value together with the words that describe its position."""

    __slots__ = ("place", "value")

    def __init__(self, value: Any, place: str) -> None:
        self.value = value
        self.place = place

    def fail(self, what: str) -> ProgramError:
        """Return the error to raise about this value."""
        return ProgramError(self.place, what)

    def at(self, place: str) -> Reader:
        """Return the same value under another name of its place."""
        return Reader(self.value, place)

    def _typed(self, kind: type[_T], name: str) -> _T:
        if not isinstance(self.value, kind) or (isinstance(self.value, bool) and kind is not bool):
            raise self.fail(f"must be {name}, is {shown(self.value)}")
        return self.value

    def text(self) -> str:
        return self._typed(str, "a string")

    def truth(self) -> bool:
        return self._typed(bool, "true or false")

    def integer(self, low: int = 0, high: int | None = None) -> int:
        value = self._typed(int, "an integer")
        if value < low or (high is not None and value > high):
            raise self.fail(f"must be in {low}..{'' if high is None else high}, is {value}")
        return value

    def hexadecimal(self) -> int:
        text = self._typed(str, "a hexadecimal string")
        try:
            return int(text, 16)
        except ValueError:
            raise self.fail(f"must be a hexadecimal string, is {shown(text)}") from None

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

    def find(self, key: str) -> Reader | None:
        """Return the member, None where it is absent or null."""
        mapping: dict[str, Any] = self._typed(dict, "an object")
        if mapping.get(key) is None:
            return None
        return Reader(mapping[key], f"{self.place}: '{key}'")

    def members(self, key: str) -> list[Reader]:
        """Return the elements of list ``key``, none if it is absent."""
        found = self.find(key)
        return [] if found is None else found.elements()

    def flag(self, key: str, default: bool = False) -> bool:
        found = self.find(key)
        return default if found is None else found.truth()

    def optional_text(self, key: str) -> str | None:
        found = self.find(key)
        return None if found is None else found.text()

    def origin(self) -> ir.Origin | None:
        """Return the source position that p4c recorded for this object, if it is meaningful."""
        if isinstance(self.value, dict):
            found = self.value.get("source_info")
        else:
            found = None
        if not isinstance(found, dict):
            return None
        file, line, text = (found.get(key) for key in ("filename", "line", "source_fragment"))
        if not isinstance(file, str) or not isinstance(line, int) or not isinstance(text, str):
            return None
        return ir.Origin(file, line, " ".join(text.split()))

    def named(self, kind: str) -> tuple[str, Reader]:
        """Return the value of ``name``, and the same object under the place "``kind`` 'name'"."""
        name = self.get("name").text()
        return name, self.at(f"{kind} '{name}'")


def shown(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
