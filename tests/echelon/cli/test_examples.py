"""Files to begin with: what is listed is what can be copied, and copies work where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app

ROOT = Path(__file__).parents[3]


def good(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def bad(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    return line


def test_every_scenario_and_fabric_of_the_repository_is_listed_with_a_sentence() -> None:
    listed = dict(
        line.split(maxsplit=1) for line in good("examples", "topologies").splitlines()[1:]
    )
    assert {Path(path) for path in listed} == {
        path.relative_to(ROOT)
        for kind in ("*.yaml", "*.py")
        for path in (ROOT / "topologies").rglob(kind)
    }
    assert all(len(sentence) > 20 for sentence in listed.values())


def test_what_is_copied_is_complete(tmp_path: Path) -> None:
    """Scenarios name their fabrics by relative paths."""
    good("examples", "scenarios", "-o", tmp_path)
    scenarios = sorted(tmp_path.rglob("scenarios/*.yaml"))
    assert [path.name for path in scenarios] == sorted(
        path.name for path in (ROOT / "topologies" / "scenarios").glob("*.yaml")
    )
    assert good("check", *scenarios).count("is good") == len(scenarios)


def test_what_init_writes_runs(tmp_path: Path) -> None:
    said = good("init", tmp_path / "mine")
    files = sorted((tmp_path / "mine").iterdir())
    assert all(str(file) in said for file in files)
    assert good("check", *files).count("is good") == len(files)
    good(
        "run", tmp_path / "mine" / "scenario.yaml", "--target", "fluid", "-o", tmp_path / "results"
    )
    assert (tmp_path / "results" / "report.md").is_file()


@pytest.mark.parametrize("command", [("init",), ("examples", "start", "-o")], ids=" ".join)
def test_nothing_is_overwritten(command: tuple[str, ...], tmp_path: Path) -> None:
    good(*command, tmp_path)
    changed = next(tmp_path.rglob("scenario.yaml"))
    changed.write_text("mine")
    assert str(tmp_path) in bad(*command, tmp_path)
    assert changed.read_text() == "mine"


def test_a_name_that_no_file_has() -> None:
    line = bad("examples", "nosuch")
    assert line.startswith("echelon examples: ")
    assert "'nosuch'" in line
