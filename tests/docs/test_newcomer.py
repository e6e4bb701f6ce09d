"""The tutorial, followed to the letter: files of its own, and results of its own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.docs import newcomer
from tests.docs.pages import ROOT, blocks
from tests.examples.installed import environment, install
from tests.needs import needs, require


@pytest.mark.long
@needs("bash")
def test_a_newcomer_gets_the_results_that_the_tutorial_shows(tmp_path: Path) -> None:
    installed = install(tmp_path / "environment")
    home = tmp_path / "home"
    home.mkdir()
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1"}
    path = f"{installed.home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    newcomer.follow(newcomer.PAGES, home, environment(PATH=path, **offline))
    for page, results in zip(newcomer.PAGES, ("step/results", "own/results"), strict=True):
        newcomer.compare(page, json.loads((home / results / "results.json").read_text()))


@pytest.mark.long
@needs("bash")
def test_the_tutorial_starts_from_nothing(tmp_path: Path) -> None:
    """The pages install what they need: nothing of this environment is used."""
    require("a package index")
    home = tmp_path / "echelon"
    made_here = (".*_cache", ".git", ".hypothesis", ".venv", "*.egg-info", "__pycache__", "out")
    shutil.copytree(ROOT, home, ignore=shutil.ignore_patterns(*made_here))
    newcomer.follow((newcomer.FIRST, *newcomer.PAGES), home, newcomer.own_environment())
    assert (home / "own" / "results" / "results.json").exists()


def test_the_newcomer_finds_files_and_commands() -> None:
    """The test above would test nothing if a change of the pages' form hid them."""
    for page in newcomer.PAGES:
        found = list(blocks(page))
        assert len([block for block in found if block.title]) >= 4
        assert any("echelon run" in block.text for block in found if block.language == "")
    assert any("make demo" in block.text for block in blocks(newcomer.FIRST))
    assert newcomer.FIRST.is_relative_to(ROOT)
