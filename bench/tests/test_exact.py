"""`python -m bench exact`: the engine without its short cuts, and the command on few scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.exact.command import main, tables
from bench.exact.engines import (
    JOINT_ACKNOWLEDGEMENTS,
    MAIN,
    WHOLE_NEIGHBOURHOODS,
    Edit,
    edited_engine,
)
from bench.exact.measure import Case
from bench.exact.short_cuts import FOLDING, SHORT_CUTS, ShortCut
from bench.ladder.laboratory import CSource, PolicyChoice
from tests.needs import needs

SEED = 9
FAIR = PolicyChoice("fair")
ITERATIONS = 2


@needs("a C compiler")
def test_two_exact_engines_agree() -> None:
    """Changes that spread, and neighbourhoods that are filled, come to the same rates."""
    usual = Case(SEED, FAIR, ITERATIONS, 0).usual
    together = (*JOINT_ACKNOWLEDGEMENTS, *WHOLE_NEIGHBOURHOODS)
    runs = []
    for edits in (JOINT_ACKNOWLEDGEMENTS, together):
        with edited_engine(edits):
            runs.append(Case(SEED, FAIR, ITERATIONS, 0).usual)
    spread, filled = runs
    assert spread.mean == pytest.approx(filled.mean, rel=1e-4)
    # They are other engines than the usual one.
    assert spread.mean != usual.mean


@needs("a C compiler")
def test_only_what_changes_jobs_runs_others() -> None:
    case = Case(SEED, FAIR, ITERATIONS, 0)
    unchanged = ShortCut("none", simplified=lambda jobs, _: (jobs, {}))
    assert case.pair(unchanged) is None
    pair = case.pair(FOLDING)
    assert pair is not None
    assert pair.short.spans == pair.exact.spans


def test_edits_need_their_passage() -> None:
    source = CSource("some", "int a;\nint a;\n", {"some.h": "int b;\n"})
    with pytest.raises(LookupError, match="int c"):
        Edit("some.h", "int c;", "").edited(source)
    with pytest.raises(LookupError, match="int a"):
        Edit(MAIN, "int a;", "").edited(source)
    edited = Edit("some.h", "int b;", "long b;").edited(source)
    assert edited.includes["some.h"] == "long b;\n"


def test_tables_have_a_row_for_each_short_cut() -> None:
    name = SHORT_CUTS[0].name
    same = {"short": 2.0, "exact": 2.0, "iterations": [0.0, 0.0]}
    other = {"short": 1.9, "exact": 2.0, "iterations": [0.04, 0.08]}
    chaotic = {**other, "draws": [2.01, 2.0]}
    differences, over_draws = tables([{name: same}, {name: other}, {name: chaotic}, {}])
    cells = [next(iter(column.cells)) for column in differences.columns]
    assert cells == [name, "3", "2", "-5", "5", "5", "2.7", "8"]
    cells = [next(iter(column.cells)) for column in over_draws.columns]
    assert cells == [name, "1", "+0.5", "0.5", "0.5"]
    assert differences.row_count == over_draws.row_count == len(SHORT_CUTS)


@needs("a C compiler")
def test_the_command_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "exact.jsonl"
    root = Path(__file__).parents[2]
    words = [str(root / "topologies/scenarios/dp_pair.yaml"), "--policy", "fifo", "-o", str(out)]
    words += ["--iterations", "2"]
    main(words)
    printed = capsys.readouterr().out
    assert "acknowledgements lazily" in printed
    first = out.read_text()
    main(words)
    assert out.read_text() == first
