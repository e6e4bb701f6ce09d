"""``python -m tests.house``: the figures of each house, and which are worse than their limits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.house.doors import read_doors
from tests.house.houses import (
    CORE,
    DOCS,
    LIMITS_FILE,
    MEASURES,
    ROOT,
    Figures,
    complaints,
    measure_beside,
    measure_houses,
    read_limits,
    tightened_limits,
    write_limits,
)
from tests.house.measure import COLUMNS

HEADINGS = {
    "files": ("files", 0),
    "lines": ("lines", 0),
    "size": ("tokens", 0),
    "tokens_per_line": ("tok/line", 2),
    "tokens_per_statement": ("tok/stmt", 2),
    "comments": ("comments", 1),
    "function_words": ("words", 0),
    "barred_words": ("barred", 0),
    "importers": ("imports", 0),
    "beyond_core": ("beyond", 0),
}
"""The heading and the decimals of each column."""

LEGEND = """\
lines: code lines, formatted for {columns} columns; tok/stmt: tokens a logical line; comments: per 1,000 code lines
words: function words as identifiers; barred: those of them that no name may be
imports: modules that import another house; beyond: another one than the core"""


def main(arguments: Sequence[str] | None = None, limits_path: Path = LIMITS_FILE) -> int:
    """Print the table, and return 1 if a figure is worse than its limit."""
    options = parse(arguments)
    figures = measure_houses(options.root, options.columns)
    comparison = measure_beside(options.folders, options.columns)
    print(table({**figures, **comparison}))
    print(LEGEND.format(columns=options.columns))
    limits = read_limits(limits_path)
    print_sizes(figures, limits)
    for door in read_doors():
        print(door.summary)

    # Limits are this tree's, at its width.
    if options.columns != COLUMNS or options.root != ROOT:
        return 0
    tightened = tightened_limits(figures, limits)
    if options.write:
        write_limits(tightened, limits_path)
        limits = tightened
    elif tightened != limits:
        print("Better than the limits, or without: python -m tests.house --write writes these.")
    sentences = complaints(figures, limits)
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    return 1 if sentences else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument(
        "--write",
        action="store_true",
        help="lower the limits to figures that are better",
    )
    parser.add_argument(
        "--beside",
        dest="folders",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="measure the package in this folder too, for comparison; may be repeated",
    )
    parser.add_argument(
        "--columns",
        type=int,
        default=COLUMNS,
        help="format for this width, and check no limits",
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=ROOT,
        help="measure this tree, and check no limits",
    )
    options = parser.parse_args(arguments)
    for folder in options.folders:
        if not folder.is_dir():
            parser.error(f"--beside {folder}: no such folder")
    return options


def table(rows: Mapping[str, Figures]) -> str:
    """Return the figures of houses and other packages as a table."""
    heading = [f"{name:>8}" for name, _ in HEADINGS.values()]
    lines = [f"{'house':24}{' '.join(heading)}"]
    for name, figures in rows.items():
        if name != DOCS:
            cells = [f"{figures[key]:8.{decimals}f}" for key, (_, decimals) in HEADINGS.items()]
            lines.append(f"{name:24}{' '.join(cells)}")
    return "\n".join(lines)


def print_sizes(figures: Mapping[str, Figures], limits: Mapping[str, Figures]) -> None:
    """Print the two figures that belong to one house only, with their limits."""
    for house, key in ((CORE, "size"), (DOCS, "doc_lines")):
        measure = MEASURES[key]
        limit = limits.get(house, {}).get(key, measure.budget)
        print(f"{house}: {measure.text(figures[house][key])} {measure.name}, limit {limit:,.0f}")


if __name__ == "__main__":
    sys.exit(main())
