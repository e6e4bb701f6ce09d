"""The first hour of four people: the commands of their pages as printed, in a clone that has
nothing but its files.

`pytest -s -m long tests/docs/test_first_hour.py` prints the seconds of each.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import newcomer
from tests.docs.pages import ROOT, blocks
from tests.needs import needs, require

MOST = {"engineer": 5, "student": 6, "network": 3, "lecturer": 2}
"""The number of commands that bring each person to what the page is about, at most."""
PATIENCE_S = 1200
SANDBOXED = (
    "import sys; from echelon_lab.hosts.sandbox import run_inside;"
    " sys.exit(run_inside(sys.argv[1:], ['/tmp']))"
)


def page_of(person: str) -> Path:
    return ROOT / "docs" / "start" / f"{person}.md"


def commands(person: str) -> list[str]:
    shown = "".join(block.text for block in blocks(page_of(person)) if block.language == "")
    return re.sub(r"\\\n\s*", "", shown).splitlines()


@pytest.mark.parametrize("person", MOST)
def test_a_page_has_few_commands(person: str) -> None:
    found = commands(person)
    assert found[0] == "make hosts"
    assert 2 <= len(found) <= MOST[person]
    assert not [command for command in found if re.search(r"&&|;|\|", command)], (
        "each line is one command"
    )


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """Return a copy of the repository in which nothing is installed; not below /tmp, of which `mn`
    deletes files.
    """
    require("a package index")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        home = Path(scratch) / "echelon"
        made_here = (".*_cache", ".git", ".hypothesis", ".venv", "*.egg-info", "__pycache__", "out")
        shutil.copytree(ROOT, home, ignore=shutil.ignore_patterns(*made_here))
        yield home


@pytest.mark.long
@needs("bash")
@pytest.mark.xdist_group("first_hour")
@pytest.mark.parametrize(
    "person",
    [
        "engineer",
        "student",
        "network",
        pytest.param("lecturer", marks=needs("mn")),
    ],
)
def test_the_commands_of_a_page_do_what_it_says(person: str, clone: Path) -> None:
    shown = list(blocks(page_of(person)))
    for block in shown:
        if block.title is not None:
            (clone / block.title).parent.mkdir(parents=True, exist_ok=True)
            (clone / block.title).write_text(block.text, encoding="utf-8")
    typed = "".join(block.text for block in shown if block.language == "console")
    said = ""
    for command in commands(person):
        began = time.monotonic()
        said += run(command, clone, typed if command == commands(person)[-1] else "")
        print(f"\n{person}: {time.monotonic() - began:.1f} s  {command}")
    for file in re.findall(r"[\w/]+\.(?:png|yaml)", "\n".join(commands(person))):
        content = (clone / file).read_bytes()
        assert content[:4] == b"\x89PNG" or not file.endswith("png"), file
    printed = iter(said.splitlines())  # what the page shows comes in the same order
    for block in shown:
        if block.language == "text" and "┃" not in block.text:
            for line in block.text.replace("\n...\n", "\n").splitlines():
                assert any(same_figures(line, other) for other in printed), f"{line}\n\n{said}"
    if person == "student":
        results = json.loads((clone / "idea" / "results" / "results.json").read_text())
        newcomer.compare(page_of(person), results)
        for of in results["results"].values():
            slowdowns = [job["mean_slowdown"] for job in of["jobs"].values()]
            assert (
                f"{sum(slowdowns) / len(slowdowns):.2f}"
                in page_of(person).read_text(encoding="utf-8").split()
            )


def run(command: str, home: Path, typed: str) -> str:
    """Run a command, and return what it prints. What needs root runs in namespaces of its own."""
    argv = ["bash", "-ec", command.removeprefix("sudo ")]
    if command.startswith("sudo "):
        argv = [sys.executable, "-c", SANDBOXED, *argv]
    done = subprocess.run(
        argv,
        cwd=home,
        env=newcomer.own_environment(),
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def same_figures(shown: str, printed: str) -> bool:
    """Return whether a printed line begins with the same word, and has the shown numbers in their
    order.
    """
    if shown.split()[:1] != printed.split()[:1]:
        return False
    numbers = iter(re.findall(r"\d[\d.,]*", printed))
    return all(number in numbers for number in re.findall(r"\d[\d.,]*", shown))
