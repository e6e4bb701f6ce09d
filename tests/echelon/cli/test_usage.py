"""The command line itself: help for everything, one line about mistakes, nothing heavy imported
without need.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from echelon.cli import app

ROOT = Path(__file__).parents[3]
HEAVY = {
    "aetcd",
    "fastapi",
    "finsy",
    "grpc",
    "httpx",
    "matplotlib",
    "networkx",
    "numpy",
    "uvicorn",
    "yaml",
}


@cache
def root() -> Any:
    """Return the whole tree of commands, which takes a tenth of a second to build."""
    return typer.main.get_command(app)


def at(path: Sequence[str]) -> Any:
    """Return the command at a path of names."""
    command = root()
    for name in path:
        command = command.commands[name]
    return command


def below(path: Sequence[str]) -> Mapping[str, Any]:
    """Return the commands of a group, by name."""
    found: Mapping[str, Any] = getattr(at(path), "commands", {})
    return found


def commands() -> Iterator[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [()]
    for path in paths:  # the list grows
        paths += [(*path, name) for name in below(path)]
    return iter(paths)


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_says_what_every_option_is_for(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    command = at(path)
    assert command.help
    assert command.help.splitlines()[0] in result.stdout
    for parameter in command.params:
        assert getattr(parameter, "help", "x"), (path, parameter.name)


@pytest.mark.parametrize(
    ("arguments", "command", "names"),
    [
        (["job", "show"], "echelon job show", ["'NAME'", "echelon job show --help"]),
        (["job", "shw"], "echelon job", ["'shw'", "'show'", "echelon job --help"]),
        (["chek"], "echelon", ["'chek'", "'check'", "echelon --help"]),
        (["job", "list", "--jsn"], "echelon job list", ["--jsn"]),
        (["watch", "--interval", "soon"], "echelon watch", ["'--interval'"]),
        (["watch", "--interval", "0"], "echelon watch", ["'--interval'"]),
        (["link", "drain", "a"], "echelon link drain", ["'B'"]),
        (["job", "list", "x"], "echelon job list", ["x)"]),
        (["serve", "--config"], "echelon", ["'--config'"]),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], command: str, names: list[str]) -> None:
    result = CliRunner().invoke(app, arguments, prog_name="echelon")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"{command}: ")
    assert [name for name in names if name not in result.stderr] == []
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("group", [[], ["job"], ["switch"], ["plan"], ["policy"], ["link"]])
def test_a_group_alone_shows_its_help(group: list[str]) -> None:
    result = CliRunner().invoke(app, group, prog_name="echelon")
    assert result.exit_code == 2
    assert "Usage: echelon" in result.stdout
    assert "list" in result.stdout or "show" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "heavy"), [("--help", HEAVY | {"pydantic"}), ("serve --help", HEAVY)]
)
def test_help_imports_nothing_heavy(arguments: str, heavy: set[str]) -> None:
    program = (
        "import sys\nfrom echelon.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        f"heavy = {heavy} & set(sys.modules)\nsys.exit(f'imported: {{heavy}}' if heavy else 0)"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "controller")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_version_is_that_of_the_installed_package() -> None:
    for option in ("--version", "-V"):
        assert CliRunner().invoke(app, [option]).stdout == f"echelon {version('echelon-p4')}\n"


@pytest.mark.parametrize("path", [(), ("check",), ("job", "submit")], ids=" ".join)
def test_help_has_three_spellings(path: tuple[str, ...]) -> None:
    wanted = CliRunner().invoke(app, [*path, "--help"], prog_name="echelon").stdout
    assert CliRunner().invoke(app, [*path, "-h"], prog_name="echelon").stdout == wanted
    assert CliRunner().invoke(app, ["help", *path], prog_name="echelon").stdout == wanted


def test_help_about_an_unknown_command_is_a_mistake() -> None:
    result = CliRunner().invoke(app, ["help", "job", "sbmit"], prog_name="echelon")
    assert result.exit_code == 2
    assert result.stderr.startswith("echelon job: ")
    assert "'sbmit'" in result.stderr
    assert "'submit'" in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["check", "topologies/one_tor.yaml"]])
def test_a_reader_that_has_seen_enough_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = subprocess.Popen(
        [sys.executable, "-m", "echelon", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    os.close(writer)
    assert command.communicate()[1] == ""
    assert command.returncode == 0


def test_check_reports_every_mistake_of_a_scenario(tmp_path: Path) -> None:
    """The mistakes of form first, in one run; those of meaning in another."""
    file = tmp_path / "s.yaml"

    def mistakes() -> list[str]:
        result = CliRunner().invoke(app, ["check", str(file)])
        assert result.exit_code == 2
        return [line.removeprefix(f"{file}: ") for line in result.stderr.splitlines()]

    text = """\
scenario: s
fabric: {fabric: pair, hosts: [a, b], switches: [s], links: [{between: [a, s], rate: 1 Gbt/s},
  {betwen: [b, s], rate: 0}]}
jobs:
  - {job: one, parallelism: data, workers: [a, c], data: {compute: 10 m, gradient: 1 MB}}
  - {job: one, parallelism: data, workers: [a, b], data: {compute: 10 ms}, extra: 1}
iterations: none
policies: [fair, fare]
"""
    file.write_text(text)
    assert [line.split(": ")[0] for line in mistakes()] == [
        "fabric.links[0].rate",
        "fabric.links[1].betwen",
        "fabric.links[1].rate",
        "jobs[0].data.compute",
        "jobs[1].extra",
        "jobs[1].data.gradient",
        "iterations",
    ]
    for bad, good in (
        ("Gbt", "Gbit"),
        ("betwen", "between"),
        ("rate: 0", "rate: 1 Gbit/s"),
        ("10 m,", "10 ms,"),
        (", extra: 1", ""),
        ("compute: 10 ms}", "compute: 10 ms, gradient: 1 MB}"),
        ("none", "2"),
    ):
        text = text.replace(bad, good)
    file.write_text(text)
    assert [line.split(": ")[0] for line in mistakes()] == [
        "jobs[0].workers[1]",
        "jobs[1].job",
        "policies[1]",
    ]


@pytest.mark.parametrize("path", [path for path in commands() if not below(path)], ids=" ".join)
def test_every_help_has_an_example_that_the_command_line_takes(path: tuple[str, ...]) -> None:
    [example] = [line for line in at(path).help.splitlines() if line.startswith("Example: ")]
    for part in example.removeprefix("Example: ").split(" && "):
        words = shlex.split(part)
        assert words.pop(0) == "echelon"
        inner: tuple[str, ...] = ()
        while words and words[0] in below(inner):
            inner = (*inner, words.pop(0))
        assert not below(inner)
        at(inner).make_context(inner[-1], words)
