"""Every command that the pages print is run, or is in the list of those that need more than a test
has.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from echelon.cli import app
from tests.docs.pages import PAGES, RECORDS, ROOT, blocks

RUN_ELSEWHERE = {
    **{
        str(page.relative_to(ROOT)): "minutes to hours each; they are what measures"
        for page in RECORDS
    },
    "docs/results.md": "test_results.py runs it",
    "docs/upgrade.md": (
        "a running service and its installation; test_upgrade.py and test_backup.py do what they do"
    ),
    **{
        f"docs/start/{person}.md": "test_first_hour.py runs it"
        for person in ("engineer", "student", "network", "lecturer")
    },
    "docs/tutorial/index.md": "the newcomer of test_newcomer.py runs it",
    "docs/tutorial/two-jobs.md": "likewise, with its files",
    "docs/tutorial/your-own.md": "likewise, with its files",
}
"""Pages whose commands are not run here. Their options are checked."""
PROGRAMS = (
    "echelon",
    "echo",
    "softswitch",
    "make",
    "python",
    "python3",
    "pip",
    "mn",
    "sudo",
    "ptf",
    "curl",
    "systemctl",
)
PATIENCE_S = 300
EDGE = "plugins/tofino_model/tests/emulator/programs/edge"

ELSEWHERE = {
    r"^sudo |^mn |demo-(mininet|torch)|--on (mininet|namespaces)": "root",
    r"^ptf |^make ptf": "root",
    r"check\.py": "a change of the reader; tests/examples/test_exercises.py runs every check",
    r"systemctl|pip install|-m venv|^/opt/|by_weight": "an installation",
    r"tests\.soak": "hours",
    r"research\.torch_programs": "root, PyTorch, and minutes",
    r"aggregation\.tests\.training": "root, PyTorch, and minutes",
    r"aggregation\.tests\.sequences": (
        "minutes; plugins/aggregation/tests/test_tofino.py runs some of them"
    ),
    r"^echelon run-job": (
        "PyTorch and a running service; plugins/torch/tests/run_job runs it where both are"
    ),
    r"^echelon topology optimise": (
        "a minute; plugins/topoopt/tests/test_command.py runs it on fewer hosts"
    ),
    r" \[--": "a synopsis",
    r"^make ": "an environment of its own; .ci/run and `make lint test` run these",
    r"^echelon view": "a browser; plugins/web/tests runs it",
    r"^echelon (serve|lab|agent|job (?!new)|watch|token|status|switch|plan|policy|link|telemetry)": (
        "a running service, as the tests in tests/echelon/cli and tests/echelon/service have"
    ),
    r"^echelon aggregation group": (
        "a running service, as plugins/aggregation/tests/test_service.py has"
    ),
    r"\$SDE|ECHELON_BFRT_CLIENT": "a checkout of the open SDE",
    r"^curl": "a running service, as the tests in tests/echelon/service have",
    r"^softswitch (--no-p4|-i|PROGRAM|tofino .*-i )": (
        "a switch that runs on, as the tests in tests/softswitch/realtime have"
    ),
    r"^echelon traffic (send|receive)": "two hosts; lab/tests/traffic sends and receives on one",
    r"research experiment (thesis|pipelines|report)|^echelon evaluate |out/report/": (
        "hours, or what they measured"
    ),
    r"^echelon capture": "PyTorch; plugins/torch/tests/capture captures jobs where it is installed",
    r"^python -m research coflows FB2010": "a file that its authors publish",
    r"--scale 1/1000 .*--yes": "minutes, for packets",
    r"^echelon run .*--target tofino": (
        "minutes; plugins/tofino_model/tests/virtual runs scenarios so"
    ),
    r"--cluster tcp": "a cluster, as the tests in lab/tests/sweeps have",
}
"""The patterns of commands that are not run here, and what each needs."""

PLACEHOLDERS = {
    "SCENARIO.yaml": "topologies/scenarios/fig2.yaml",
    "FILE.yaml ...": "topologies/scenarios/fig2.yaml topologies/leaf_spine.yaml",
    "--out DIR": "--out out",
    "--duration 10s ... -o": "--duration 10s --src h1 --dst h2 -o",
    "PROGRAM.json HEXPACKET --entries ENTRIES.stf": f"p4src/build/v1model/echelon.json {'00' * 64}",
    "[NAME ...]": "",
    "PROGRAM.bfa TEST.stf": f"{EDGE}.bfa {EDGE}.stf",
    "PROGRAM.bfa": f"{EDGE}.bfa",
}
"""The replacements of words that stand for something of the reader's."""


def commands(page: Path) -> Iterator[str]:
    """Yield the commands in the fenced blocks of a page that name no language, without prompts and
    comments.
    """
    for block in blocks(page):
        if block.language == "":
            yield from _in_block(block.text)


def _in_block(block: str) -> Iterator[str]:
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    # Where there are prompts, the rest is output.
    prompted = [line for line in lines if line.startswith("$ ")]
    for line in prompted or lines:
        command = re.sub(r"\s+#.*$", "", line.removeprefix("$ ")).strip()
        words = command.split()
        if words and words[0].rpartition("/")[2] in PROGRAMS:
            yield command


def reason_not_to_run(command: str) -> str | None:
    return next(
        (reason for pattern, reason in ELSEWHERE.items() if re.search(pattern, command)), None
    )


def to_run(page: Path) -> list[str]:
    found: list[str] = []
    if str(page.relative_to(ROOT)) in RUN_ELSEWHERE:
        return found
    for command in commands(page):
        if reason_not_to_run(command) is None:
            for word, value in PLACEHOLDERS.items():
                command = command.replace(word, value)
            found.append(command)
    return found


FIRST_PAGE = ROOT / "README.md"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            marks=() if page == FIRST_PAGE else pytest.mark.wide,
            id=str(page.relative_to(ROOT)),
        )
        for page in PAGES
        if to_run(page)
    ],
)
def test_the_commands_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    for name in (
        "topologies",
        "p4src",
        "ptf",
        "controller",
        "ctoolchain",
        "lab",
        "softswitch",
        "plugins",
        "bench",
        "research",
        "tests",
        "examples",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for command in to_run(page):
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{page.name}: {command}\n{done.stdout}{done.stderr}"


def test_the_pages_have_commands() -> None:
    """This module would test nothing if a change of the pages' form hid the commands."""
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) > 40
    assert len([command for page in PAGES for command in to_run(page)]) >= 8
    assert all(any(re.search(pattern, command) for command in found) for pattern in ELSEWHERE)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(part, id=part[:60])
        for page in PAGES
        for command in commands(page)
        for part in re.split(r" && | & ?", command)
        if part.startswith("echelon ")
    ],
)
def test_every_option_that_is_printed_exists(command: str) -> None:
    """The commands that are not run are checked, too."""
    # What follows a lone -- is the command of another program.
    here, words = typer.main.get_command(app), shlex.split(command.partition(" -- ")[0])[1:]
    while words and words[0] in getattr(here, "commands", {}):
        here = here.commands[words.pop(0)]  # type: ignore[attr-defined]
    # What comes after -- is another program's.
    words = words[: words.index("--")] if "--" in words else words
    known = {
        name for parameter in here.params for name in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known
