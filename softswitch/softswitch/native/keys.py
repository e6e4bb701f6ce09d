"""The 64-bit words that the fields of a table's key share.

Entries are written, and looked up, by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softswitch import ir
from softswitch.errors import ProgramError

from .text import words


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """``places`` has (word, shift) of each field, None for a range; ``size`` is in words."""

    places: tuple[tuple[int, int] | None, ...]
    size: int
    ranges: tuple[int, ...]
    """The positions of the fields that are ranges."""
    kind: str
    """exact, longest or best, after the entry that a look-up finds."""


def key_layout(spec: ir.TableSpec) -> KeyLayout:
    """Put a table's fields into words, in order.

    A field that has not more than 64 bits is in one word.
    """
    places: list[tuple[int, int] | None] = []
    ranges: list[int] = []
    word = 0
    used = 0
    for i, key in enumerate(spec.keys):
        if key.match == "range":
            if key.width > 64:
                fault = f"a range of {key.width} bits is not one that the native engine has"
                raise ProgramError(spec.place, fault)
            ranges.append(i)
            places.append(None)
            continue
        if used and used + key.width > 64:
            word = word + 1
            used = 0
        places.append((word, used))
        if key.width > 64:
            word += words(key.width)
        else:
            used += key.width
    kinds = {key.match for key in spec.keys}
    if ranges or spec.match in ("ternary", "range"):
        kind = "best"
    elif "lpm" in kinds:
        kind = "longest"
    else:
        kind = "exact"
    return KeyLayout(tuple(places), word + (used > 0), tuple(ranges), kind)


_WORD = (1 << 64) - 1


def split(number: int, count: int) -> list[int]:
    """Return the ``count`` lowest words of a number."""
    return [number >> 64 * i & _WORD for i in range(count)]


def joined(words: Iterable[int]) -> int:
    """Return the number of which these are the words, the lowest first."""
    number = 0
    for index, word in enumerate(words):
        number |= word << 64 * index
    return number


@dataclass(frozen=True, slots=True)
class KeyCode:
    """Python code that takes a key apart.

    It has the target of an assignment, and the words of mask, value and ranges.
    """

    target: str
    mask: Sequence[str]
    value: Sequence[str]
    ranges: Sequence[str]


def key_code(spec: ir.TableSpec) -> KeyCode:
    """Return the code for a table's keys, with numbers for all that is known beforehand."""
    layout = key_layout(spec)
    targets: list[str] = []
    ranges: list[str] = []
    mask: list[list[str]] = [[] for _ in range(layout.size)]
    value: list[list[str]] = [[] for _ in range(layout.size)]
    always = [0] * layout.size
    for i, (key, place) in enumerate(zip(spec.keys, layout.places, strict=True)):
        full = (1 << key.width) - 1
        targets.append(f"k{i}" if key.match == "exact" else f"(k{i}, m{i})")
        if place is None:
            ranges += (f"k{i}", f"m{i}")
            continue
        word, shift = place
        count = words(key.width)
        for index in range(count):
            value[word + index].append(_word(f"k{i}", index, count, shift))
            if key.match == "exact":
                always[word + index] |= split(full, count)[index] << shift
            elif key.match == "lpm":
                prefix = f"({full} ^ {full} >> m{i})"
                mask[word + index].append(_word(prefix, index, count, shift))
            else:
                mask[word + index].append(_word(f"m{i}", index, count, shift))
    target = "".join(f"{name}, " for name in targets)
    masks = []
    for parts, constant in zip(mask, always, strict=True):
        masks.append(" | ".join((*parts, str(constant))))
    values = [" | ".join(parts) for parts in value]
    return KeyCode(f"({target})", masks, values, ranges)


def _word(
    name: str,
    index: int,
    count: int,
    shift: int,
) -> str:
    if count > 1:
        if index:
            return f"{name} >> {64 * index} & {_WORD}"
        return f"{name} & {_WORD}"
    return f"{name} << {shift}" if shift else name
