"""An event of a trace in Chrome's format, as Kineto writes it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from echelon.model.quantities import excerpt
from echelon_importers.pytorch.profile import Call
from echelon_importers.pytorch.records import Fields, Place

GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""The categories of what a GPU does."""
_MOST_US = 10**12
"""The longest duration: eleven days."""
_LATEST_US = 10**18


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An event that takes time."""

    place: Place
    fields: Fields

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.fields["name"])

    @property
    def arguments(self) -> Fields:
        """Return its arguments."""
        arguments = self.fields.get("args")
        return arguments if isinstance(arguments, dict) else {}

    def integer(self, key: str) -> int | None:
        """Return an argument that is a whole number; None if it is none."""
        value = self.arguments.get(key)
        return value if type(value) is int else None

    def start_us(self) -> Fraction:
        """Return when it began. Raises `DocumentError`."""
        return microseconds(self.place, self.fields, "ts")

    def duration_us(self) -> Fraction:
        """Return how long it took. Raises `DocumentError`."""
        return microseconds(self.place, self.fields, "dur")

    def call(self) -> Call:
        """Return it as a call of the host. Raises `DocumentError`."""
        start_us = self.start_us()
        end_us = start_us + self.duration_us()
        thread = str(self.fields.get("tid"))
        return Call(self.place.entry, thread, start_us, end_us, self.arguments)


def microseconds(
    place: Place,
    event: Fields,
    key: str,
) -> Fraction:
    """Return a time of an event. Raises `DocumentError`."""
    value: Any = event.get(key)
    limit = _LATEST_US if key == "ts" else _MOST_US
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= limit:
        raise place.fault(f"{key} is {excerpt(value)}", "give microseconds")
    return Fraction(repr(value))
