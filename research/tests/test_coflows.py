"""`python -m research coflows`: a trace in, a row for each policy out."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from research.__main__ import app
from research.tests.coflow_traces import made_trace


def coflows(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["coflows", *map(str, arguments)])


def test_a_row_for_each_policy(tmp_path: Path) -> None:
    """Two coflows of 1 MB at one port of 8 Mbit/s and 2^20 bytes a megabyte: fair shares end both
    at 2.097 s, Varys the first at half of that, and Aalo the first when the second has sent the 84
    kB of its first queue, too."""
    file = tmp_path / "trace.txt"
    file.write_text("3 2\n1 0 1 0 1 2:1\n2 0 1 1 1 2:1\n")
    result = coflows(
        file,
        "--rate",
        "8 Mbit/s",
        "--policy",
        "fair",
        "--policy",
        "varys",
        "--policy",
        "aalo(queues=2)",
    )
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("fair", "2", "2.097"),
        ("varys", "2", "1.573"),
        ("aalo(queues=2)", "2", "1.615"),
    ]
    assert all(row[10] == "2.097" for row in rows)


def test_the_policies_of_coflows_are_the_default(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(made_trace(1, 6, 10))
    result = coflows(file, "--interval", "50 ms")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [
        "varys",
        "aalo",
        "sincronia",
        "fair",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone.txt"], "gone.txt"),
        (["--policy", "echelon"], "'echelon' is not one of coflows"),
        (["--policy", "varis"], "varys"),
        (["--rate", "3 x"], "--rate"),
        (["--interval", "3 x"], "--interval"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(made_trace(1, 4, 2))
    result = coflows(*(arguments if arguments[0].endswith(".txt") else [file, *arguments]))
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert words in line
