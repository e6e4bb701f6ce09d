"""The data of a table's action: an entry's parameters and the slots of memory that hold them.

The assembly describes them by aliases. ``{ port_1: immediate(0..8), port: port_1 }`` packs the
parameter ``port`` into the bits 0 to 8 of the immediate data; instructions name the parameter, the
alias or the slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Mapping,
    Name,
    Number,
    Term,
    bounds,
    refusal,
    text,
)

Pack = Callable[[dict[str, int]], int]
"""A function from an entry's arguments to the value of an operand."""

_PART = re.compile(r"(.+)\.([0-9]+)-([0-9]+)")
_SLOT = re.compile(r"immediate|\$adf_[bhwf][0-9]+")


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an alias: ``width`` bits of ``name`` from bit ``low`` on; None: all."""

    name: str
    low: int
    width: int | None


class ActionData:
    """The parameters and aliases of one action."""

    def __init__(self) -> None:
        self.params: dict[str, int] = {}
        """The width of each parameter in bits, in P4's order."""
        self._places: dict[str, list[_Place]] = {}
        self._constants: dict[str, int] = {}
        self._contents: dict[str, list[tuple[str, int]]] = {}

    def declare(self, params: Mapping) -> None:
        """Add the parameters of a ``p4_param_order``."""
        for name, width in params.pairs:
            if isinstance(width, Mapping):
                width = width.get("width") or width
            if not isinstance(width, Number):
                raise refusal(name.line, "a parameter needs its width in bits")
            self.params[text(name)] = width.value

    def alias(self, pairs: Mapping) -> None:
        """Add the aliases of one map."""
        for key, value in pairs.pairs:
            name = text(key)
            match value:
                case Number():
                    self._constants[name] = value.value
                case Name():
                    self._add(name, _Place(value.text, 0, None))
                case Invocation() if len(value.args) == 1:
                    low, high = bounds(value.args[0])
                    self._add(name, _Place(value.name, low, high - low + 1))
                case _:
                    raise refusal(key.line, f"the alias '{name}' is not supported")

    def _add(self, name: str, place: _Place) -> None:
        self._places.setdefault(name, []).append(place)
        self._contents.setdefault(place.name, []).append((name, place.low))

    def infer_params(self) -> None:
        """Make parameters of the aliases of memory slots if the file lists no parameters.

        Only files written by hand need this.
        """
        if self.params:
            return
        for name, places in self._places.items():
            is_slot = _SLOT.fullmatch(places[0].name) is not None
            if is_slot and name not in self._constants and not name.startswith("$"):
                self.params[name] = places[0].width or 32

    def knows(self, name: str) -> bool:
        """Return whether a name is a parameter, an alias or a slot of this action."""
        if name in self._places or name in self._contents or name in self._constants:
            return True
        return _SLOT.fullmatch(name) is not None or self._parameter(name) is not None

    def target(self, name: str) -> str | None:
        """Return the name that an alias stands for as a whole, such as ``counter_addr``."""
        places = self._places.get(name)
        if places and places[0].width is None:
            return places[0].name
        return None

    def slot(self, name: str) -> tuple[str, int] | None:
        """Return the memory slot in which a name lies, and its lowest bit there, or None."""
        low = 0
        for _ in range(len(self._places) + 1):
            if _SLOT.fullmatch(name):
                return name, low
            places = self._places.get(name)
            if not places:
                return None
            name = places[0].name
            low = low + places[0].low
        return None

    def mask_slot(self, name: str, size: int) -> tuple[str, int] | None:
        """Return the slot of a `bitmasked-set`'s mask, next to that of `name`, and its lowest bit.

        ``size`` is the width of the container in bits.
        """
        place = self.slot(name)
        if place is None:
            return None
        slot, low = place
        if slot == "immediate":
            # The mask is behind the value, at the next multiple of the container's width.
            return slot, low // size * size + size
        # Slots are named `$adf_w3`: the kind, then the number.
        kind = slot[:6]
        number = int(slot[6:])
        return f"{kind}{number + 1}", 0

    def _parameter(self, name: str) -> tuple[str, int, int] | None:
        """Return (parameter, lowest bit, width) for a parameter or a part of one."""
        if name in self.params:
            return name, 0, self.params[name]
        part = _PART.fullmatch(name)
        if part is not None and part[1] in self.params:
            low = int(part[2])
            high = int(part[3])
            return part[1], low, high - low + 1
        return None

    def width(self, name: str) -> int | None:
        """Return the width of a parameter or alias in bits, None if it is not known."""
        parameter = self._parameter(name)
        if parameter is not None:
            return parameter[2]
        for place in self._places.get(name, ()):
            if place.width is not None:
                return place.width
            return self.width(place.name)
        return None

    def pack(self, name: str, line: int) -> Pack:
        """Return a function that computes the value of a name from an entry's arguments."""
        return self._pack(name, line, ())

    def _pack(
        self,
        name: str,
        line: int,
        path: tuple[str, ...],
    ) -> Pack:
        if name in path:
            raise refusal(line, f"the alias '{name}' refers to itself")
        parameter = self._parameter(name)
        if parameter is not None:
            source, low, width = parameter
            mask = (1 << width) - 1
            return lambda args: args.get(source, 0) >> low & mask
        if name in self._constants:
            constant = self._constants[name]
            return lambda _args: constant
        parts: list[tuple[Pack, int]] = []
        for content, low in self._contents.get(name, ()):
            parts.append((self._pack(content, line, (*path, name)), low))
        if parts:
            return lambda args: sum_of(parts, args)
        for place in self._places.get(name, ()):
            value = self._pack(place.name, line, (*path, name))
            if place.width is None:
                return value
            low = place.low
            mask = (1 << place.width) - 1
            return lambda args: value(args) >> low & mask
        if _SLOT.fullmatch(name):
            return lambda _args: 0
        raise refusal(line, f"'{name}' is neither a parameter nor a part of the action's data")


def sum_of(parts: list[tuple[Pack, int]], args: dict[str, int]) -> int:
    """Return one number that has the value of each part at its lowest bit."""
    value = 0
    for pack, low in parts:
        value |= pack(args) << low
    return value


def name_of(node: Term) -> str:
    """Return the name that a node begins with."""
    if isinstance(node, Invocation):
        return node.name
    return text(node)
