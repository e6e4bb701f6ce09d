"""`python -m research experiment`: the list, mistakes in one line, and a small sweep from the
command line, twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from research.__main__ import app
from research.registry import EXPERIMENTS


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["experiment", *map(str, arguments)])


def bad(*arguments: str | Path) -> str:
    """Return the one line on standard error of a command that fails."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line


def test_the_list_has_all_experiments_and_loads_them() -> None:
    listed = run("--list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)
    for entry in EXPERIMENTS.values():
        assert callable(entry.load().stages)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--model", "bert"), "--model: the experiment has no 'bert' (known: bert-large, "),
        (("--policy", "fare"), "--policy: the experiment has no 'fare'"),
        (("--load", "1.5"), "--load: 3/2 is not a share of the link"),
        (("--load", "much"), "--load: 'much' is not a number"),
        (("--scale", "2"), "--scale: 2 is not between 1/10000 and 1"),
        (("--scale", "1/0"), "--scale: '1/0' is not a number"),
        (("--scale", "1e999999999"), "--scale: '1e999999999' is not a number"),
        (("--on", "cloud"), "--on: unknown fabric 'cloud'"),
        (("--target", "bmv2"), "--target: bmv2 does not run on the virtual fabric"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in bad("thesis-iperf", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_directory_without_an_experiment_has_no_report(tmp_path: Path) -> None:
    assert "holds no experiment" in bad("report", tmp_path)
    (tmp_path / "machine.json").write_text("[]")
    assert "was not written by an experiment" in bad("report", tmp_path)
    (tmp_path / "machine.json").write_text('{"thesis-iperf": {"settings": {"scale": "x"}}}')
    assert "are not those of a sweep" in bad("report", tmp_path)


def test_a_file_is_no_directory_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "name a directory to write to" in bad("thesis-iperf", "--out", tmp_path / "file")


THESIS = ("thesis-iperf", "thesis-burst", "thesis.md", ("--model", "resnet-50", "--load", "30%"), 3)
"""The arguments of a command with three measurements: without load, with load, and a calibration
before them.
"""
PIPELINES = ("pipelines", "", "pipelines.md", (), 1)


@pytest.mark.parametrize(
    ("name", "of_the_same_report", "report", "options", "expected"),
    [
        pytest.param(*THESIS, marks=pytest.mark.long, id="thesis"),
        pytest.param(*PIPELINES, id="pipelines"),
    ],
)
def test_a_small_sweep_and_its_report_again(
    tmp_path: Path,
    name: str,
    of_the_same_report: str,
    report: str,
    options: tuple[str, ...],
    expected: int,
) -> None:
    shared = (
        "--quick",
        "--load",
        "0",
        "--scale",
        "1/1000",
        "--policy",
        "fifo",
        "--out",
        str(tmp_path),
    )
    first = run(name, *options, *shared, "--workers", "1")
    assert first.exit_code == 0, first.output
    files = [Path(line) for line in first.stdout.splitlines()]
    assert files[0].name == report
    record = json.loads((tmp_path / "machine.json").read_text())[name]
    assert record["settings"]["scale"] == "1/1000"
    assert record["took_s"] > 0
    texts = {file: file.read_bytes() for file in files}
    points = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    assert len(points) == expected
    again = run("report", tmp_path)
    assert again.stdout == first.stdout
    assert {file: file.read_bytes() for file in files} == texts
    assert run(name, *options, *shared).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()} == points
    if of_the_same_report:
        other = bad(of_the_same_report, *shared, "--seed", "1")
        assert f"holds {name} with other settings" in other
