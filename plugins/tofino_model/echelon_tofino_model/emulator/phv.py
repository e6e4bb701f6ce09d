"""The packet header vector (PHV): containers, and the assembly's names for slices of them.

At run time a vector is a list of integers, one per container. The validity of Tofino 1's containers
is kept apart from it, as one integer with a bit per container.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Name,
    Section,
    Term,
    bounds,
    mapping,
    refusal,
    text,
)
from echelon_tofino_model.emulator.assembly import Mapping as Pairs

Vector = list[int]
Read = Callable[[Vector], int]

STAGES = 12
"""The match-action stages of Tofino 1.

The parser reads names as in stage 0, the deparser as in this stage.
"""

_GROUPS: Mapping[str, tuple[int, int, int]] = {
    "W": (0, 64, 32),
    "B": (64, 64, 8),
    "H": (128, 96, 16),
    "TW": (224, 32, 32),
    "TB": (256, 32, 8),
    "TH": (288, 48, 16),
}
"""The first index, the number and the width in bits of each kind of container."""

CONTAINERS = 336
"""The length of a vector."""

_CONTAINER = re.compile(r"(TW|TB|TH|W|B|H)([0-9]+)")


_SPAN = re.compile(r"([0-9]+)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Slice:
    """The bits ``low`` to ``high``, both included, of a container that is ``size`` bits wide."""

    container: int
    size: int
    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def mask(self) -> int:
        """Return a mask of the slice's width, at bit 0."""
        return (1 << self.width) - 1

    @property
    def is_whole(self) -> bool:
        return self.width == self.size

    def part(
        self,
        low: int,
        high: int,
        line: int,
    ) -> Slice:
        """Return the bits ``low`` to ``high`` of this slice; refuse bits beyond its end."""
        if not 0 <= low <= high < self.width:
            raise refusal(line, f"bits {low}..{high} are not in a field of {self.width} bits")
        return Slice(self.container, self.size, self.low + low, self.low + high)

    def reader(self) -> Read:
        """Return a function that reads the slice from a vector."""
        container = self.container
        low = self.low
        mask = self.mask
        if self.is_whole:
            return lambda vector: vector[container]
        if low == 0:
            return lambda vector: vector[container] & mask
        return lambda vector: vector[container] >> low & mask


def container(name: str) -> Slice | None:
    """Return a whole container by its name, such as ``W3`` or ``TB0``; None for another name."""
    parts = _CONTAINER.fullmatch(name)
    if parts is None:
        return None
    first, count, size = _GROUPS[parts[1]]
    number = int(parts[2])
    if number < count:
        return Slice(first + number, size, 0, size - 1)
    return None


@dataclass(frozen=True, slots=True)
class _Placement:
    """A place of a field, for the stages ``first`` to ``last``."""

    first: int
    last: int
    slice: Slice


class FieldNames:
    """The names of one direction (ingress or egress), each with its place in every stage."""

    def __init__(self) -> None:
        self._places: dict[str, list[_Placement]] = {}

    def load(self, section: Section) -> None:
        """Take the names of a ``phv`` section."""
        for key, value in mapping(section.value).pairs:
            if isinstance(key, Name) and key.text != "context_json":
                self._places.setdefault(key.text, []).extend(self._read(value))

    def _read(self, value: Term) -> list[_Placement]:
        if not isinstance(value, Pairs):
            return [_Placement(0, STAGES, self.slice(value, 0))]
        places = []
        for key, place in value.pairs:
            if not isinstance(key, Invocation) or key.name != "stage":
                raise refusal(key.line, "a field's place needs its stages, as 'stage 0..3'")
            first, last = bounds(key.args[0])
            places.append(_Placement(first, last, self.slice(place, 0)))
        return places

    def slice(self, node: Term, stage: int) -> Slice:
        """Return the slice that ``node`` names in ``stage``; refuse an unknown name."""
        place = self.find(node, stage)
        if place is None:
            name = node.name if isinstance(node, Invocation) else text(node)
            raise refusal(
                node.line, f"'{name}' is not a field of the packet header vector in stage {stage}"
            )
        return place

    def find(self, node: Term, stage: int) -> Slice | None:
        """Return the slice that ``node`` names in ``stage``, None if it names no field."""
        if isinstance(node, Name):
            return self.named(node.text, stage)
        if not isinstance(node, Invocation) or len(node.args) != 1:
            return None
        span = node.args[0]
        field = self.named(node.name, stage)
        if field is None or isinstance(span, Name | Invocation):
            return None
        return field.part(*bounds(span), node.line)

    def named(self, name: str, stage: int) -> Slice | None:
        """Return the slice of the name itself."""
        places = self._places.get(name)
        if places is None:
            return container(name)
        for place in places:
            # A field may have another place in later stages.
            if place.first <= stage <= place.last:
                return place.slice
        return None

    def parts(self, field: str, stage: int) -> list[tuple[int, Slice]]:
        """Return the slices of a field, each with the position of its lowest bit in the field.

        A part's name is the field's with the range of its bits: ``hdr.ipv6.src.32-63``.
        """
        undivided = self.named(field, stage)
        if undivided is not None:
            return [(0, undivided)]
        parts = []
        prefix = f"{field}."
        for name in self._places:
            if not name.startswith(prefix):
                continue
            span = _SPAN.fullmatch(name.removeprefix(prefix))
            place = self.named(name, stage)
            if span is not None and place is not None:
                parts.append((int(span[1]), place))
        return sorted(parts, key=lambda part: part[0])

    def field_reader(
        self,
        field: str,
        low: int,
        width: int,
        stage: int,
        line: int,
        mask: int | None = None,
    ) -> Read:
        """Return a function that reads ``width`` bits of a field from bit ``low``.

        Bits outside ``mask`` need not have a place.
        """
        reads: list[tuple[Read, int]] = []
        covered = 0
        for start, part in self.parts(field, stage):
            first = max(start, low)
            last = min(start + part.width, low + width) - 1
            if first <= last:
                needed = part.part(first - start, last - start, line)
                reads.append((needed.reader(), first - low))
                covered += needed.width
        required = width if mask is None else min(width, mask.bit_count())
        if covered < required:
            end = low + width - 1
            raise refusal(
                line, f"the field '{field}' has no place for all of its bits {low}..{end}"
            )
        return joined(reads)


def joined(reads: list[tuple[Read, int]]) -> Read:
    """Return a function that reads several slices into one number, each at its own bit."""
    if not reads:
        return lambda _vector: 0
    # Most keys have one slice or two: these need no loop.
    if len(reads) == 1:
        read, shift = reads[0]
        if shift == 0:
            return read
        return lambda vector: read(vector) << shift
    if len(reads) == 2:
        (first, first_bit), (second, second_bit) = reads
        return lambda vector: first(vector) << first_bit | second(vector) << second_bit
    parts = tuple(reads)

    def read_all(vector: Vector) -> int:
        value = 0
        for part, shift in parts:
            value |= part(vector) << shift
        return value

    return read_all
