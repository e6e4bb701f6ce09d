"""Every command follows the conventions of clig.dev, and docs/command-line.md says so: its tables
are made here.

`python -m tests.echelon.cli.test_conventions` prints the table of commands.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from echelon.cli import app
from echelon.cli.progress import EVERY

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "command-line.md"
YES, NO = "yes", "**no**"
COLUMNS = ("command", "help", "mistakes", "missing", "`--json`", "`-o`", "asks", "pipes", "colours")

NO_RESULT = {
    "serve": "runs on",
    "lab": "the command's",
    "view": "runs on",
    "agent run": "the command's",
    "agent watch": "runs on",
    "run-job": "the command's",
    "slurm prolog": "for Slurm",
    "slurm epilog": "for Slurm",
    "slurm env": "for Slurm",
    "slurm sync": "a log",
    "shell": "interactive",
    "job new": "a file",
    "fabric": "a file",
    "aggregation group": "a file",
}
"""The commands that print no result, and what they do instead."""

WITHOUT = {
    "serve": "",
    "traffic receive": "--listen nowhere",
    "traffic send": "nowhere.csv --from h1",
    "evaluate": "--half neither -o out",
    "aggregation compare": "nothing",
    "capture": "",
}
"""Arguments that lack something, of commands whose example would run for long."""

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[(\d+;)*([349][0-7]|10[0-7]|[34]8)(;\d+)*m")


@cache
def leaves() -> Mapping[str, Any]:
    """Return all commands that are no groups, by name."""
    found: dict[str, Any] = {}

    def walk(path: str, command: Any) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found[path] = command
        for name in inner or ():
            walk(f"{path} {name}".strip(), inner[name])

    walk("", typer.main.get_command(app))
    return found


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command."""

    status: int
    out: str
    err: str

    @property
    def is_one_line_about_a_mistake(self) -> bool:
        return self.status in (1, 2) and self.out == "" and self.err.count("\n") == 1


def run_all(
    arguments: Sequence[Sequence[str]], *, closed: bool = False, **environment: str
) -> list[Ended]:
    """Run `echelon` with each list of arguments, in an empty directory, off a terminal, without a
    service.
    """
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [
                sys.executable,
                str(Path(__file__).with_name("every_command.py")),
                "closed" if closed else "open",
            ],
            cwd=directory,
            env={
                **{
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith("ECHELON_")
                },
                "PYTHONPATH": str(ROOT / "controller"),
                "ECHELON_URL": f"unix:{directory}/nobody",
                EVERY: "inf",
                **environment,
            },
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            check=True,
        )
    return [Ended(*ended) for ended in json.loads(done.stdout)]


def example_of(name: str) -> list[str]:
    """Return the arguments of the first command of the example in the help."""
    [example] = [line for line in leaves()[name].help.splitlines() if line.startswith("Example: ")]
    return shlex.split(example.removeprefix("Example: ").split(" && ")[0])[1:]


def options(name: str) -> dict[str, Any]:
    return {option: parameter for parameter in leaves()[name].params for option in parameter.opts}


def misspelt(name: str) -> str:
    """Return an option that does not exist, and is like one that does."""
    return (
        max((option for option in (*options(name), "--help") if option.startswith("--")), key=len)[
            :-1
        ]
        + "z"
    )


@cache
def table() -> tuple[tuple[str, ...], ...]:
    """Return a row for each command: what it does, as measured."""
    names = list(leaves())
    words = [name.split() for name in names]
    plain = run_all([[*path, "--help"] for path in words], FORCE_COLOR="1", TERM="dumb")
    short = run_all([[*path, "-h"] for path in words], FORCE_COLOR="1", NO_COLOR="1")
    wrong = run_all([[*path, misspelt(name)] for path, name in zip(words, names, strict=True)])
    lacking = run_all(
        [
            [*path, *WITHOUT[name].split()] if name in WITHOUT else example_of(name)
            for path, name in zip(words, names, strict=True)
        ]
    )
    piped = run_all([[*path, "--help"] for path in words], closed=True)
    rows = []
    for at, name in enumerate(names):
        same = plain[at].out == ESCAPE.sub("", short[at].out)
        helped = (
            plain[at].status == 0 and plain[at].err == "" and same and "Example:" in plain[at].out
        )
        mistaken = wrong[at].status == 2 and wrong[at].is_one_line_about_a_mistake
        near = "Did you mean '--" in wrong[at].err
        quiet = (piped[at].status, piped[at].err) == (0, "")
        colourless = not COLOUR.search(short[at].out) and "\x1b" not in plain[at].out
        rows.append(
            (
                f"`{name}`",
                YES if helped else NO,
                YES if mistaken and near else NO,
                _lacking(lacking[at]),
                _json(name),
                _out(name),
                _asks(name),
                YES if quiet else NO,
                YES if colourless else NO,
            )
        )
    return tuple(rows)


def _lacking(ended: Ended) -> str:
    if ended.status == 0:
        return "nothing" if "Traceback" not in ended.err else NO
    return f"status {ended.status}" if ended.is_one_line_about_a_mistake else NO


def _json(name: str) -> str:
    if "--json" in options(name):
        return YES if name not in NO_RESULT else NO
    return NO_RESULT.get(name, NO)


def _out(name: str) -> str:
    """Return what -o names."""
    both = {"-o", "--out"} & set(options(name))
    if not both:
        return ""
    what = options(name)["--out"]
    return (what.metavar or "FILE").partition(".")[0].upper() if len(both) == 2 else NO


def _asks(name: str) -> str:
    """Return the option that answers the questions of a command, if it has any."""
    callback = inspect.unwrap(leaves()[name].callback)
    asks = re.search(
        r"\b(confirm|prompt|input|getpass)\(", inspect.getsource(inspect.getmodule(callback))
    )  # type: ignore[arg-type]
    if asks is None:
        return "never"
    return "`--yes`" if "--yes" in options(name) else NO


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return (
        "\n".join("| " + " | ".join(row) + " |" for row in [columns, ["---"] * len(columns), *rows])
        + "\n"
    )


# In one process, since all of them need the table, which takes half a minute.
@pytest.mark.long
@pytest.mark.xdist_group("conventions")
@pytest.mark.parametrize("name", leaves())
def test_a_command_follows_the_conventions(name: str) -> None:
    [row] = [row for row in table() if row[0] == f"`{name}`"]
    assert NO not in row, dict(zip(COLUMNS, row, strict=True))


@pytest.mark.long
@pytest.mark.xdist_group("conventions")
def test_the_page_has_the_table() -> None:
    assert markdown(COLUMNS, table()) in PAGE.read_text(encoding="utf-8"), (
        "make it anew (see the top of this file)"
    )


def test_what_prints_no_result_is_known() -> None:
    assert set(NO_RESULT) | set(WITHOUT) <= set(leaves())


SCENARIO = str(ROOT / "topologies/scenarios/fig2.yaml")
JOB = str(ROOT / "examples/start/vision.yaml")

OFFLINE = {
    "run": f"run {SCENARIO} --target fluid -o results",
    "plot": "plot results --kind bars -o pictures",
    "check": f"check {SCENARIO}",
    "place": f"place {SCENARIO} --candidates 0",
    "show": f"show {JOB}",
    "examples": "examples fig2",
    "init": "init mine",
    "import": (
        f"import pipedream {ROOT}/plugins/importers/tests/workloads/vgg16.graph.txt --hosts 2 "
        "--bandwidth 1Gbit/s -o job.yaml"
    ),
    "traffic generate": (
        "traffic generate long --load 20Mbit/s --duration 1s --src a --dst b -o flows.csv"
    ),
    "traffic show": "traffic show flows.csv",
    "traffic sizes": "traffic sizes web_search",
    "token": "token alice --role operator",
}
"""A command that runs without a service for each row of the page's table of documents."""


def documented() -> dict[str, set[str]]:
    """Return the fields of each document, by command, as the page has them: those before any
    bracket.
    """
    part = PAGE.read_text(encoding="utf-8").partition("## Documents")[2]
    rows = re.findall(r"^\| (`[^|]*) \| (.*?) \|$", part, re.MULTILINE)
    fields: dict[str, set[str]] = {}
    for of, text in rows:
        for name in re.findall(r"`(.*?)`", of):
            fields.setdefault(name, set()).update(
                re.findall(r"`([a-z_0-9]+)`", re.sub(r"\(.*?\)", "", text))
            )
    return fields


def test_documents_have_the_fields_that_the_page_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fields = documented()
    for name, command in OFFLINE.items():
        result = CliRunner().invoke(app, [*shlex.split(command), "--json"])
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert set(document[0] if isinstance(document, list) else document) == fields[name], name


def test_every_command_with_a_document_is_in_the_table_of_documents() -> None:
    rows = documented()
    for name in leaves():
        if "--json" in options(name):
            assert name in rows or name.rpartition(" ")[0] in rows, name


def test_notes_and_mistakes_are_not_in_the_document(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("job: [")
    result = CliRunner().invoke(app, ["check", str(file), JOB, "--json"])
    assert result.exit_code == 2
    bad, good = json.loads(result.stdout)
    assert (bad["good"], good["good"]) == (False, True)
    assert result.stderr.splitlines() == bad["mistakes"]


if __name__ == "__main__":
    print(markdown(COLUMNS, table()))
