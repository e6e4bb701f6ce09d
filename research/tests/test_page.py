"""docs/study.md: what it shows of experiments exists."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from research.__main__ import app
from research.registry import EXPERIMENTS

WHOLE = (Path(__file__).parents[2] / "docs" / "study.md").read_text(encoding="utf-8")
PAGE = WHOLE.split("\n## Published experiments\n")[1]


def test_every_experiment_is_there_and_every_command_exists() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)) == set(EXPERIMENTS)
    group = typer.main.get_command(app).commands["experiment"]  # type: ignore[attr-defined]
    shown = re.findall(r"^python -m research experiment (\S+)(.*?)(?:#.*)?$", PAGE, re.MULTILINE)
    assert {name for name, _ in shown} == {*EXPERIMENTS, "report", "--list"}
    for name, options in shown:
        command = group if name == "--list" else group.commands[name]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {name, *re.findall(r"--[a-z-]+", options)} - {*EXPERIMENTS, "report"} <= known


def test_files_that_it_names_are_there() -> None:
    root = Path(__file__).parents[2]
    for name in re.findall(r"\]\(([^\s)#]+)", PAGE):
        assert (root / "docs" / name).is_file(), name
    assert (root / "topologies" / "thesis_a.yaml").is_file()
    assert (root / "research" / "processor_sharing.py").is_file()
