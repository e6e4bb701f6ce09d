"""Values of nodes in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_importers.chakra.wire import node_fault
from echelon_importers.importer import Source


@dataclass(frozen=True, slots=True)
class JsonFields:
    """A node in JSON, and its place in the file."""

    source: Source
    index: int
    values: Mapping[str, Any]

    @property
    def number(self) -> object:
        """Return the number of the node: its place in the file if it has none of its own."""
        number = self.values.get("id", self.index)
        return self.values.get("Id", number)

    def integer(self, key: str, missing: int | None = None) -> int:
        """Return a whole number from 0. Raises `DocumentError`."""
        value = self.values.get(key, missing)
        return self.checked(key, value)

    def integers(self, key: str) -> tuple[int, ...]:
        """Return whole numbers from 0. Raises `DocumentError`."""
        values = self.values.get(key, [])
        if not isinstance(values, list):
            raise self.fault(f"{key} is not a list", "write [1, 2]")
        return tuple(self.checked(key, value) for value in values)

    def checked(
        self,
        key: str,
        value: Any,
        least: int = 0,
    ) -> int:
        """Return a whole number, which the jsonizer writes as text if it has 64 bits."""
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
            value = int(value)
        if type(value) is not int or not least <= value < 2**64:
            raise self.fault(f"{key} is {excerpt(value)}", "give a whole number")
        return value

    def fault(self, reason: str, remedy: str) -> DocumentError:
        """Return an error about the node."""
        return node_fault(self.source, self.number, reason, remedy)
