"""Measured runs of vTrain: the reader, and statistics against counts by hand.

The files of vTrain are not here: rows are made up.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon_lab.models.layers import Model
from echelon_lab.models.training import Training
from echelon_lab.models.transformers import transformer
from research.__main__ import app
from research.published_runs import A100
from research.vtrain import COLUMNS, TIME, Measured, choices, errors, inside, ratios, read_runs

LAYOUTS = ((1, 8, 8), (2, 8, 4), (4, 8, 2), (8, 8, 1), (2, 16, 2), (1, 16, 4))
"""Degrees of tensor, data and pipeline parallelism on 64 GPUs."""


def rows(times_ms: tuple[float, ...]) -> str:
    lines = [",".join(("Parameters (billion)", *COLUMNS, TIME))]
    for (tensor, data, pipeline), time_ms in zip(LAYOUTS, times_ms, strict=True):
        sizes = (3.6, 64, 512, 4, 3072, 32, 30, 2048, tensor, data, pipeline, time_ms)
        lines.append(",".join(str(size) for size in sizes))
    # As in the published file: a byte order mark, and an empty row.
    return "\ufeff" + "\n".join(lines) + "\n" + "," * len(COLUMNS) + ",\n"


def measured(measured_s: float, predicted_s: float, subject: int = 0) -> Measured:
    layers = tuple(transformer(1, 8, 1, 8, 8))
    return Measured(
        0, Training(Model("", "", layers, ""), A100), (subject,), measured_s, predicted_s
    )


def test_rows_are_trainings(tmp_path: Path) -> None:
    path = tmp_path / "multi.csv"
    path.write_text(rows((4000, 4100, 4200, 4300, 4400, 4500)), encoding="utf-8")
    runs = read_runs(path)
    assert [run.measured_s for run in runs] == [4, 4.1, 4.2, 4.3, 4.4, 4.5]
    first = runs[0].training
    assert (first.gpus, first.data, first.pipeline, first.micro_batches) == (64, 8, 8, 16)
    assert (first.recompute, first.flash, first.overlap) == ("full", False, False)
    # 3.6 billion parameters, as the file says.
    assert first.model.parameters == pytest.approx(3.6e9, rel=0.02)
    result = CliRunner().invoke(app, ["vtrain", str(path)])
    assert result.exit_code == 0
    assert "multi.csv: 6 runs" in result.stdout


def test_another_file_is_refused_by_the_column_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    result = CliRunner().invoke(app, ["vtrain", str(path)])
    assert result.exit_code == 2
    assert "has no column '# GPUs'" in result.output


def test_errors_by_hand() -> None:
    """Of 90, 110, 120 and 60 beside 100: 10, 10, 20 and 40 %, 5 % too short in the mean."""
    runs = [measured(100, predicted) for predicted in (90, 110, 120, 60)]
    sizes = errors(runs)
    assert sizes.count == 4
    assert sizes.mean == pytest.approx(0.2)
    assert sizes.median == pytest.approx(0.1)
    assert sizes.ninetieth == pytest.approx(0.4)
    assert sizes.bias == pytest.approx(-0.05)
    assert 0.1 <= sizes.low < sizes.mean < sizes.high <= 0.4
    assert errors(runs) == sizes
    assert inside(runs, (0.9, 1.2)) == 0.5
    assert ratios(runs, 1) == (pytest.approx(100 / 120), pytest.approx(100 / 60))


def test_the_choice_of_a_layout_by_hand() -> None:
    """The third is chosen, which takes 12 instead of 10; 1, 2, 3, 4, 5 are ranked 2, 3, 1, 4, 5:
    1 - 6 (1 + 1 + 4) / (5 x 24) = 0.7. The second model has too few layouts.
    """
    predicted = (6, 7, 5, 8, 9)
    group = [measured(10 + index, predicted_s) for index, predicted_s in enumerate(predicted)]
    few = [measured(1, 1, subject=1), measured(2, 1, subject=1)]
    chosen = choices(group + few)
    assert (chosen.groups, chosen.fastest) == (1, 0)
    assert chosen.lost == pytest.approx(0.2)
    assert chosen.rank_correlation == pytest.approx(0.7)
    assert choices(few).groups == 0
