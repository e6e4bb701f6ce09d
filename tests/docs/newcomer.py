"""A newcomer who does what the tutorial says, in a clean clone: `python -m tests.docs.newcomer
[--quick]`.

Files are those that the pages show with a title; commands are the blocks that name no language.
Each step's output and time are printed. With `--quick`, the newcomer has Echelon already: pages
that make the environment are left out, and packages come from this environment.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks

FIRST = ROOT / "docs" / "tutorial" / "index.md"
PAGES = (ROOT / "docs" / "tutorial" / "two-jobs.md", ROOT / "docs" / "tutorial" / "your-own.md")
PATIENCE_S = 600


def follow(pages: Sequence[Path], home: Path, environment: Mapping[str, str]) -> None:
    """Write the files of the pages and run their commands in `home`.

    Raises `CalledProcessError` at the first failure.

    An activated environment stays active, as in a terminal.
    """
    activate = ""
    for page in pages:
        for block in blocks(page):
            if block.title is not None:
                path = home / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                print(f"\n== {page.name}: {block.title} is written", flush=True)
            elif block.language == "":
                print(f"\n== {page.name}\n{block.text.rstrip()}", flush=True)
                began = time.monotonic()
                subprocess.run(
                    ["bash", "-ec", activate + block.text],
                    cwd=home,
                    env=environment,
                    check=True,
                    timeout=PATIENCE_S,
                )
                print(f"-- {time.monotonic() - began:.1f} s", flush=True)
                activate += "".join(
                    line + "\n" for line in block.text.splitlines() if line.startswith(". ")
                )


def compare(page: Path, results: Mapping[str, Any]) -> None:
    """Assert that the table of a run on the page shows the means of these results."""
    (shown,) = (block.text for block in blocks(page) if "per iteration" in block.text)
    found = results["results"]
    policies = re.findall(r"[\w]+", shown.splitlines()[2])[2:]
    assert set(policies) == set(found)
    rows = re.findall(r"^│ (\w+) +│ +([\d.]+) │(.*)│$", shown, re.MULTILINE)
    assert {name for name, *_ in rows} == set(found[policies[0]]["jobs"])
    for name, _, means in rows:
        for policy, mean in zip(policies, means.split("│"), strict=True):
            times = found[policy]["jobs"][name]["iteration_times_s"]
            assert float(mean) == pytest.approx(sum(times) / len(times), abs=5e-5)


def own_environment() -> Mapping[str, str]:
    """Return this process's environment without what leads to this Python's packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }


def clone(home: Path) -> None:
    """Make a clone of the repository, as it is committed."""
    subprocess.run(["git", "clone", "--quiet", ROOT, home], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as scratch:
        began, home = time.monotonic(), Path(scratch) / "echelon"
        clone(home)
        if quick:
            from tests.examples.installed import environment, install

            installed = install(Path(scratch) / "environment")
            path = f"{installed.home / 'bin'}{os.pathsep}{os.environ['PATH']}"
            offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1"}
            follow(PAGES, home, environment(PATH=path, **offline))
        else:
            follow((FIRST, *PAGES), home, own_environment())
        print(f"\n== all together: {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
