"""A text workload as it is written: its header, and the layers that are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.model.quantities import excerpt
from echelon_importers.astra_sim.header import Header, check_header, parse_header
from echelon_importers.astra_sim.layers import Layer, parse_layer
from echelon_importers.astra_sim.options import AstraSimOptions
from echelon_importers.importer import Source

_Line = tuple[int, list[str]]
"""A line's number, and its words."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text workload."""

    header: Header
    layers: Sequence[Layer]
    taken: Sequence[Layer]
    """The layers that `--layers` has chosen."""


def parse_text(source: Source, options: AstraSimOptions) -> Text:
    """Return the text workload in a file. Raises `DocumentError`, which names the line."""
    lines = [(number, line.split()) for number, line in source.lines()]
    if len(lines) < 3:
        raise source.refusal("has no layers (check the format)", code="empty-document")
    first, second, *rows = lines

    header = parse_header(source, *first)
    if options.pp is not None:
        header = header.of_one_stage()
    check_header(source, first[0], header)

    _check_number(source, second, len(rows), options.layers)
    layers = []
    for number, (line, words) in enumerate(rows, start=1):
        layer = parse_layer(source, line, number, words, header)
        layers.append(layer)
    taken = _taken(source, layers, options.layers)
    return Text(header, layers, taken)


def _check_number(
    source: Source,
    line: _Line,
    present: int,
    wanted: range | None,
) -> None:
    """Raise `DocumentError` unless as many layers follow as the second line says.

    Those that are wanted are enough.
    """
    number, words = line
    declared = source.integer(number, words[0], "a number of layers", most=10**6)
    if len(words) > 1:
        reason = f"{excerpt(' '.join(words))} is not a number of layers"
        raise source.fault(number, reason, "write one number")
    if present == declared:
        return
    if wanted is None or wanted.stop - 1 > min(declared, present):
        reason = f"says {declared} layers, but {present} follow"
        remedy = "correct it, or take those that are right with --layers"
        raise source.fault(number, reason, remedy)


def _taken(
    source: Source,
    layers: Sequence[Layer],
    wanted: range | None,
) -> Sequence[Layer]:
    if wanted is None:
        return layers
    if wanted.stop - 1 > len(layers):
        reason = f"has {len(layers)} layers (choose among them with --layers)"
        raise source.refusal(reason, code="out-of-range")
    return [layer for layer in layers if layer.number in wanted]
