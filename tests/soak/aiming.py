"""Packets that match an entry: values for the fields of a walk taken from the key of an entry."""

from __future__ import annotations

import random

from softswitch import KeyElement, Switch, ir
from tests.differential.vocabulary import Vocabulary


class Aim(Vocabulary):
    """A vocabulary that gives the fields of one entry's key the values that it matches, until it is
    aimed elsewhere.
    """

    def __init__(self, program: ir.ProgramIR, rng: random.Random) -> None:
        super().__init__(program, rng)
        self._chance = rng
        self._wanted: dict[tuple[str, str], int] = {}
        self._keys_of = {
            node.name: [key.value for key in node.keys]
            for pipeline in (program.ingress, program.egress)
            for node in pipeline.nodes.values()
            if isinstance(node, ir.TableSpec) and node.keys
        }

    def field(self, header: str, name: str, width: int) -> int:
        wanted = self._wanted.get((header, name))
        return super().field(header, name, width) if wanted is None else wanted & ((1 << width) - 1)

    def at_any_entry(self, switch: Switch) -> None:
        """Aim at an entry of one of the switch's tables; at none if the table chosen is empty."""
        self._wanted = {}
        if not self._keys_of:
            return
        name = self._chance.choice(list(self._keys_of))
        entries = list(switch.tables[name].entries())
        if entries:
            key = self._chance.choice(entries).key
            for value, element in zip(self._keys_of[name], key, strict=True):
                if isinstance(value, ir.FieldRef) and (number := _first(element)) is not None:
                    self._wanted[value.header, value.field] = number

    def at_nothing(self) -> None:
        self._wanted = {}


def _first(element: KeyElement) -> int | None:
    """Return a value that an element matches, None if any does."""
    return element if element is None or isinstance(element, int) else element[0]
