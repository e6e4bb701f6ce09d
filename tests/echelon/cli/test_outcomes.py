"""The table of `echelon run`: nothing of it is cut, neither on a narrow terminal nor in a pipe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from echelon.cli import app

ROOT = Path(__file__).parents[3]
SEVEN = ("fair", "varys", "echelon", "aalo", "crux", "srpt", "fifo")


def printed(out: Path, policies: tuple[str, ...]) -> str:
    choices = [word for policy in policies for word in ("--policy", policy)]
    scenario = ROOT / "topologies/scenarios/dp_pair.yaml"
    done = CliRunner().invoke(
        app, ["run", str(scenario), "--target", "fluid", "-o", str(out), *choices]
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def means(out: Path) -> dict[tuple[str, str], float]:
    results = json.loads((out / "results.json").read_text())["results"]
    return {
        (job, policy): fmean(measured["iteration_times_s"])
        for policy, of in results.items()
        for job, measured in of["jobs"].items()
    }


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)


@pytest.mark.usefixtures("no_pictures")
def test_a_pipe_gets_all_digits_of_every_policy(tmp_path: Path) -> None:
    rows = [line.split() for line in printed(tmp_path, SEVEN).splitlines()]
    shown = {(row[0], row[1]): float(row[2]) for row in rows if len(row) >= 5 and row[1] in SEVEN}
    assert shown == pytest.approx(means(tmp_path), rel=1e-11)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("policies", [SEVEN[:3], SEVEN])
@pytest.mark.parametrize("columns", [30, 80])
def test_a_terminal_shows_every_number(
    policies: tuple[str, ...], columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(tmp_path, policies))
    assert "…" not in text
    table = [line for line in text.splitlines() if line.startswith(("│", "┃"))]
    assert max(map(len, table)) <= columns
    if columns == 80:
        for mean in means(tmp_path).values():
            assert f"{mean:.4f}" in text
        rows = [re.findall(r"[^│┃ ]+", line)[0] for line in table if not line.startswith("│  ")]
        assert rows[1:] == (["alone", *policies] if len(policies) > 4 else ["first", "second"])


@pytest.mark.usefixtures("no_pictures")
def test_without_matplotlib_there_is_a_picture_in_characters(tmp_path: Path) -> None:
    text = printed(tmp_path, ("fair", "echelon"))
    assert re.search(r"^  a1 sends +\.+#+", text, re.MULTILINE)
