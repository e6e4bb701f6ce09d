"""`python -m research vtrain`: measured runs of vTrain beside predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import tables
from echelon.cli.usage import BAD_INPUT, fail

if TYPE_CHECKING:
    from research.vtrain import Measured

TITLES = (
    "rows",
    "number",
    "mean",
    "95 % interval",
    "median",
    "90 %",
    "bias",
    "9 of 10 took",
    "in range",
)


def vtrain(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="data/ground_truth_multi.csv or _single.csv of VIA-Research/vTrain.",
            metavar="FILE.csv...",
        ),
    ],
) -> None:
    """Compare measured iterations of vTrain with what `echelon job new` predicts.

    Example: python -m research vtrain ground_truth_multi.csv ground_truth_single.csv
    """
    from echelon.model.documents import DocumentError
    from research.vtrain import choices, read_runs

    for path in files:
        try:
            runs = read_runs(path)
        except (OSError, DocumentError) as error:
            fail(str(error), BAD_INPUT)
        typer.echo(f"{path.name}: {len(runs)} runs")
        columns = [tables.Column(title, right=title != "rows") for title in TITLES]
        rows = [_row("even", runs[0::2]), _row("odd", runs[1::2]), _row("all", runs)]
        tables.show(columns, rows, "")
        chosen = choices(runs)
        typer.echo(
            f"Layouts chosen by prediction lose {chosen.lost:.1%} of the fastest one's time in the"
            f" mean of {chosen.groups} models and GPUs, and are the fastest in {chosen.fastest};"
            f" rank correlation {chosen.rank_correlation:.2f}.\n"
        )


def _row(name: str, runs: Sequence[Measured]) -> tuple[str, ...]:
    from echelon_lab.models.predictions import RANGE
    from research.vtrain import errors, inside, ratios

    sizes = errors(runs)
    low, high = ratios(runs, 0.9)
    return (
        name,
        str(sizes.count),
        f"{sizes.mean:.1%}",
        f"{sizes.low:.1%} to {sizes.high:.1%}",
        f"{sizes.median:.1%}",
        f"{sizes.ninetieth:.1%}",
        f"{sizes.bias:+.1%}",
        f"{low:.2f} to {high:.2f}",
        f"{inside(runs, RANGE):.0%}",
    )
