"""The exercises: the starting point fails as the README says, and the solution passes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs, require

EXERCISES = Path(__file__).parents[2] / "examples" / "exercises"
NAMES = sorted(check.parent.name for check in EXERCISES.glob("*/check.py"))
NETWORKED = [
    pytest.mark.long,
    pytest.mark.xdist_group("queues"),
    needs("the laboratory's sandbox"),
]
BMV2 = [pytest.mark.bmv2, needs("bmv2")]
EACH = [pytest.param(name, marks=NETWORKED if name == "queues" else []) for name in NAMES]
QUEUES = EXERCISES / "queues"


def check(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if list(folder.glob("*.p4")) and not list(folder.glob("*.json")):
        require("p4c")
    command = [sys.executable, folder.parent / "check.py", folder, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_there_are_four() -> None:
    assert NAMES == ["job", "policy", "queues", "ranking"]
    readme = (EXERCISES / "README.md").read_text()
    assert all(f"]({name})" in readme for name in NAMES)


@pytest.mark.parametrize("name", EACH)
def test_the_starting_point_fails_as_the_readme_says(name: str) -> None:
    done = check(EXERCISES / name / "start")
    (stated,) = re.findall(
        r"^```text\n(.*?)^```$",
        (EXERCISES / name / "README.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert done.returncode == 1, done.stderr
    assert set(stated.splitlines()) <= set(done.stdout.splitlines())


@pytest.mark.parametrize("name", EACH)
def test_the_solution_passes(name: str) -> None:
    done = check(EXERCISES / name / "solution")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done"), done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_has_the_files_of_the_starting_point(name: str) -> None:
    """An exercise asks for changes of its files, and for nothing else."""
    start, solution = (
        {one.name for one in (EXERCISES / name / part).iterdir()} for part in ("start", "solution")
    )
    assert start <= solution | {"__pycache__"}


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[*NETWORKED, *BMV2]) for part in ("start", "solution")]
)
def test_queues_on_bmv2(part: str) -> None:
    """The starting point lacks what the page says, and the solution has what can be asked there."""
    done = check(QUEUES / part, "--target", "bmv2")
    page = (QUEUES / "README.md").read_text()
    (stated,) = re.findall(r'^```text title="on BMv2"\n(.*?)^```$', page, re.DOTALL | re.MULTILINE)
    wanted = set(stated.splitlines()) if part == "start" else {"done"}
    assert wanted <= set(done.stdout.splitlines()), done.stdout + done.stderr
    assert done.returncode == (part == "start")


@pytest.mark.parametrize("name", ["ecn", "monitor", "priority"])
@needs("p4c")
def test_the_programs_of_queues_are_what_p4c_makes_of_them(name: str, tmp_path: Path) -> None:
    options = ("--std", "p4-16", "--arch", "v1model", "--Wdisable=unused", "-I", "..")
    command = ["p4c-bm2-ss", *options, "-o", tmp_path / "made.json", f"{name}.p4"]
    subprocess.run(command, cwd=QUEUES / "solution", check=True)
    made, kept = (
        json.loads(one.read_text())
        for one in (tmp_path / "made.json", QUEUES / "solution" / f"{name}.json")
    )
    assert {**made, "__meta__": None} == {**kept, "__meta__": None}
