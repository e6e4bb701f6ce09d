"""Write what the compiled TNA programs take of a Tofino into docs/tofino.md, with a picture:
`python tofino_report.py [DOCS]`.

The numbers are those of `resources.json` in `build/tna`, `build/t2na` and the plug-in of
aggregation, which `make p4-tofino` keeps of the compiler's reports. DOCS is the folder with `tofino.md` and
`images`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from echelon_lab.plots import Style

_P4SRC = Path(__file__).parent
_CHIPS = (("tna", "Tofino 1"), ("t2na", "Tofino 2"))
_AGGREGATION = "Tofino 1, aggregation"
_AGGREGATION_BUILD = (
    _P4SRC.parent / "plugins" / "aggregation" / "echelon_aggregation" / "p4src" / "build" / "tna"
)
_BEGIN, _END = "<!-- make p4-report: begin -->", "<!-- make p4-report: end -->"
_RESOURCES = {
    "logical_tables": "logical tables",
    "gateways": "gateways",
    "sram_blocks": "SRAM blocks",
    "tcam_blocks": "TCAM blocks",
    "map_rams": "map RAMs",
    "hash_bits": "hash bits",
    "hash_distribution_units": "hash units",
    "stateful_and_meter_alus": "stateful ALUs",
    "counter_alus": "counter ALUs",
    "vliw_instructions": "VLIW instructions",
    "crossbar_bytes": "crossbar bytes",
}
"""The resources of a stage and their names in the page."""


@dataclass(frozen=True, slots=True)
class Containers:
    """Containers of the packet header vector that have one kind and width."""

    kind: str
    width_bits: int
    available: int
    used: int
    used_bits: int
    """Bits that hold a field in any stage, or in the parser or deparser."""


@dataclass(frozen=True, slots=True)
class Chip:
    """The resources of one chip that the program takes."""

    name: str
    stages: int
    """The number of stages of the chip, used or not."""
    per_stage: Mapping[str, int]
    """The amount of each resource that a stage has."""
    used: Sequence[Mapping[str, int]]
    """The amount of each resource that every stage uses, to the last that has a table."""
    tables: Sequence[Sequence[str]]
    """The tables of the program in every stage, without those that the compiler adds."""
    containers: Sequence[Containers]
    parser_rows: Mapping[str, int]
    """The TCAM rows that the parser of each direction uses."""
    parser_rows_available: int

    def total(self, resource: str) -> int:
        """Return how much of a resource all stages use together."""
        return sum(stage[resource] for stage in self.used)

    def full(self, resource: str) -> Sequence[int]:
        """Return the stages in which nothing is left of a resource."""
        return [
            number
            for number, stage in enumerate(self.used)
            if stage[resource] == self.per_stage[resource]
        ]


def read(name: str, content: str) -> Chip:
    """Return the resources of a chip from the content of its `resources.json`."""
    report: Mapping[str, Any] = json.loads(content)
    available = report["available"]
    return Chip(
        name=name,
        stages=available["stages"],
        per_stage={resource: available["per_stage"][resource] for resource in _RESOURCES},
        used=[{resource: stage[resource] for resource in _RESOURCES} for stage in report["stages"]],
        tables=[list(_tables(stage["tables"])) for stage in report["stages"]],
        containers=[
            Containers(
                group["kind"], group["bits"], group["available"], group["used"], group["bits_used"]
            )
            for group in report["phv"]
        ],
        parser_rows=report["parser_rows"],
        parser_rows_available=available["parser_rows"],
    )


def _tables(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that the P4 program gives to tables, without the controls around them."""
    for name in names:
        if name.startswith(("EchelonIngress.", "EchelonEgress.")):
            yield name.rpartition(".")[2]


def tables(chips: Sequence[Chip], aggregation: Chip) -> str:
    """Return the tables of the page: the whole chips, their stages, their header vectors, and their
    parsers; then the program for aggregation."""
    parts = [_overview(chips)]
    for chip in chips:
        parts += [f"### Stages of {chip.name}", _stages(chip)]
    parts += ["### Packet header vector and parsers", _header_vector(chips), _parsers(chips)]
    alone = [aggregation]
    parts += [
        "### The program for aggregation",
        _overview(alone),
        _stages(aggregation),
        _header_vector(alone, "program"),
    ]
    return "\n\n".join(parts)


def _overview(chips: Sequence[Chip]) -> str:
    head = [
        "resource",
        "in a stage",
        *(title for chip in chips for title in (chip.name, "used up in stages")),
    ]
    stages = [cell for chip in chips for cell in (_share(len(chip.used), chip.stages), "")]
    rows = [["stages", "", *stages]]
    for resource, name in _RESOURCES.items():
        row = [name, f"{chips[0].per_stage[resource]:,}"]
        for chip in chips:
            row += [
                _share(chip.total(resource), chip.stages * chip.per_stage[resource]),
                _ranges(chip.full(resource)),
            ]
        rows.append(row)
    return _markdown(head, rows, left=(0, 3, 5))


def _stages(chip: Chip) -> str:
    head = ["stage", *_RESOURCES.values(), "tables of the P4 program"]
    rows = [
        [
            str(number),
            *(str(used[resource]) for resource in _RESOURCES),
            ", ".join(f"`{name}`" for name in named),
        ]
        for number, (used, named) in enumerate(zip(chip.used, chip.tables, strict=True))
    ]
    return _markdown(head, rows, left=(len(head) - 1,))


def _header_vector(chips: Sequence[Chip], of: str = "chip") -> str:
    head = [of, "containers", "width in bits", "used", "bits in use"]
    rows = [
        [
            chip.name,
            group.kind,
            str(group.width_bits),
            _share(group.used, group.available),
            _share(group.used_bits, group.available * group.width_bits),
        ]
        for chip in chips
        for group in chip.containers
    ]
    return _markdown(head, rows, left=(0, 1))


def _parsers(chips: Sequence[Chip]) -> str:
    head = ["chip", "parser", "TCAM rows"]
    rows = [
        [chip.name, direction, _share(chip.parser_rows[direction], chip.parser_rows_available)]
        for chip in chips
        for direction in ("ingress", "egress")
    ]
    return _markdown(head, rows, left=(0, 1))


def _share(used: int, available: int) -> str:
    return f"{used:,} of {available:,} ({100 * used / available:.0f} %)"


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, those that follow each other as a range: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int]) -> str:
    rule = ["---" if column in left else "---:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, rule, *rows))


def with_tables(page: str, content: str) -> str:
    """Return the page with `content` between its two marks.

    Raise ValueError if it does not have them.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(
            f"the page needs the lines {_BEGIN} and {_END}, between which the tables go"
        )
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def draw(chips: Sequence[Chip], path: Path, source: str) -> None:
    """Draw what each stage uses, and the header vector beside it.

    The picture carries `source`, so that a test can tell from which numbers it was drawn.
    """
    from echelon_lab.plots import write

    write(lambda style: [_figure(chips, style)], path.with_suffix(""), Source=source)


def _figure(chips: Sequence[Chip], style: Style) -> Figure:
    """Return a row for the stages of each chip, and one for the containers of all."""
    rows = [0.155 * len(chip.per_stage) for chip in chips]
    figure = style.figure(sum(rows) + 1.9)
    grid = figure.add_gridspec(len(chips) + 1, len(chips), height_ratios=[*rows, 1.1])
    for place, chip in enumerate(chips):
        _draw_stages(chip, figure.add_subplot(grid[place, :]))
        _draw_containers(chip, figure.add_subplot(grid[-1, place]))
    return figure


def _draw_stages(chip: Chip, axis: Axes) -> None:
    from echelon_lab.plots.style import FAINT, INK

    shares = [
        [
            chip.used[stage][resource] / most if stage < len(chip.used) else 0.0
            for stage in range(chip.stages)
        ]
        for resource, most in chip.per_stage.items()
    ]
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if len(chip.used) < chip.stages:
        axis.axvspan(len(chip.used) - 0.5, chip.stages - 0.5, color=FAINT)
        middle = (len(chip.used) + chip.stages - 1) / 2
        axis.text(
            middle, len(chip.per_stage) / 2 - 0.5, "not used", ha="center", va="center", color=INK
        )
    for row, resource in enumerate(chip.per_stage):
        for stage, used in enumerate(chip.used):
            is_full = used[resource] == chip.per_stage[resource]
            if used[resource]:
                axis.text(
                    stage,
                    row,
                    str(used[resource]),
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    fontweight="bold" if is_full else "normal",
                    color="white" if shares[row][stage] > 0.55 else INK,
                )
    axis.set_xticks(range(chip.stages))
    axis.set_yticks(range(len(chip.per_stage)))
    axis.set_yticklabels(
        [f"{_RESOURCES[resource]}, of {most}" for resource, most in chip.per_stage.items()]
    )
    axis.set_xticks([stage - 0.5 for stage in range(1, chip.stages)], minor=True)
    axis.set_yticks([row - 0.5 for row in range(1, len(chip.per_stage))], minor=True)
    axis.grid(visible=False)
    axis.grid(which="minor")
    axis.tick_params(which="both", length=0)
    axis.spines[:].set_color(FAINT)
    axis.set_xlabel("stage")
    title = (
        f"{chip.name}: {len(chip.used)} of {chip.stages} stages, and what each uses (bold: nothing"
        " is left)"
    )
    axis.set_title(title)


def _draw_containers(chip: Chip, axis: Axes) -> None:
    from echelon_lab.plots.style import FAINT, PALETTE

    places = range(len(chip.containers))
    axis.barh(
        places, [group.available for group in chip.containers], color=FAINT, label="available"
    )
    axis.barh(places, [group.used for group in chip.containers], color=PALETTE[0], label="used")
    axis.set_yticks(places)
    axis.set_yticklabels([f"{group.kind}, {group.width_bits} bits" for group in chip.containers])
    axis.invert_yaxis()
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("containers")
    axis.set_title(f"{chip.name}: packet header vector")
    axis.legend(loc="lower right")


def main(docs: Path) -> None:
    """Write the tables into `docs/tofino.md` and draw `docs/images/tofino_resources.png`."""
    builds = [*(_P4SRC / "build" / arch for arch, _ in _CHIPS), _AGGREGATION_BUILD]
    contents = [(build / "resources.json").read_text() for build in builds]
    chips = [read(name, content) for (_, name), content in zip(_CHIPS, contents, strict=False)]
    aggregation = read(_AGGREGATION, contents.pop())
    page = docs / "tofino.md"
    page.write_text(
        with_tables(page.read_text(encoding="utf-8"), tables(chips, aggregation)), encoding="utf-8"
    )
    source = hashlib.sha256("".join(contents).encode()).hexdigest()
    draw(chips, docs / "images" / "tofino_resources.png", source)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _P4SRC.parent / "docs")
