"""The command line itself: help for everything, one line about mistakes, nothing heavy imported without need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from echelon.cli import app

ROOT = Path(__file__).parents[3]
HEAVY = {"aetcd", "fastapi", "finsy", "grpc", "httpx", "matplotlib", "networkx", "numpy", "uvicorn", "yaml"}


@cache
def root() -> Any:
    """Return the whole tree of commands, which takes a tenth of a second to build."""
    return typer.main.get_command(app)


def commands() -> Iterator[tuple[str, ...]]:
    def below(command: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, (*path, name))

    return below(root(), ())


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_says_what_every_option_is_for(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    command = root()
    for name in path:
        command = command.commands[name]
    assert command.help
    assert command.help.splitlines()[0] in result.stdout
    for parameter in command.params:
        assert getattr(parameter, "help", "x"), (path, parameter.name)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["job", "show"], "echelon job show: missing argument 'NAME' (see echelon job show --help)"),
        (["job", "shw"], "echelon job: no such command 'shw'. Did you mean 'show'? (see echelon job --help)"),
        (["chek"], "echelon: no such command 'chek'. Did you mean 'check'? (see echelon --help)"),
        (["job", "list", "--jsn"], "echelon job list: no such option: --jsn"),
        (["watch", "--interval", "soon"], "echelon watch: invalid value for '--interval': "),
        (["watch", "--interval", "0"], "echelon watch: invalid value for '--interval': "),
        (["link", "drain", "a"], "echelon link drain: missing argument 'B'"),
        (["job", "list", "x"], "echelon job list: got unexpected extra argument"),
        (["serve", "--config"], "echelon: option '--config' requires an argument"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(app, arguments, prog_name="echelon")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("group", [[], ["job"], ["switch"], ["plan"], ["policy"], ["link"]])
def test_a_group_alone_shows_its_help(group: list[str]) -> None:
    result = CliRunner().invoke(app, group, prog_name="echelon")
    assert result.exit_code == 2
    assert "Usage: echelon" in result.stdout
    assert "list" in result.stdout or "show" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", ["--help", "job submit --help", "shell --help", "serve --help"])
def test_help_imports_nothing_heavy(arguments: str) -> None:
    program = (
        "import sys\nfrom echelon.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        f"heavy = {HEAVY} & set(sys.modules)\nsys.exit(f'imported: {{heavy}}' if heavy else 0)"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "controller")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
