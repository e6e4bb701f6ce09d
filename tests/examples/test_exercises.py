"""The exercises: the starting point fails as the README says, and the solution passes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXERCISES = Path(__file__).parents[2] / "examples" / "exercises"
NAMES = sorted(check.parent.name for check in EXERCISES.glob("*/check.py"))
HAS_P4C = shutil.which("p4c-bm2-ss") is not None


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    if not HAS_P4C and list(folder.glob("*.p4")):
        pytest.skip("p4c-bm2-ss is not installed")
    return subprocess.run(
        [sys.executable, folder.parent / "check.py", folder], capture_output=True, text=True, timeout=120, check=False
    )


def test_there_are_three() -> None:
    assert NAMES == ["job", "policy", "ranking"]
    readme = (EXERCISES / "README.md").read_text()
    assert all(f"]({name})" in readme for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_starting_point_fails_as_the_readme_says(name: str) -> None:
    done = check(EXERCISES / name / "start")
    (stated,) = re.findall(
        r"^```text\n(.*?)^```$", (EXERCISES / name / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert done.returncode == 1, done.stderr
    assert set(stated.splitlines()) <= set(done.stdout.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(name: str) -> None:
    done = check(EXERCISES / name / "solution")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done"), done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_has_the_files_of_the_starting_point(name: str) -> None:
    """What an exercise asks for is a change of its files, nothing else."""
    start, solution = ({one.name for one in (EXERCISES / name / part).iterdir()} for part in ("start", "solution"))
    assert start <= solution | {"__pycache__"}
