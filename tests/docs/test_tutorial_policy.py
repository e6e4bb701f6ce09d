"""The policy of the tutorial, as the page shows it, with strict types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import echelon
from tests.docs import newcomer
from tests.docs.pages import ROOT, blocks

PAGE = newcomer.PAGES[1]


@pytest.mark.io
@pytest.mark.wide
def test_the_policy_passes_mypy(tmp_path: Path) -> None:
    [shown] = [
        block for block in blocks(PAGE) if block.title and block.title.endswith("smallest_first.py")
    ]
    (tmp_path / "smallest_first.py").write_text(shown.text, encoding="utf-8")
    use = (
        "from echelon.planning.policies.base import Policy\n"
        "from smallest_first import SmallestFirst\npolicy: Policy = {}\n"
    )
    checked = {"used.py": use.format("SmallestFirst()"), "misused.py": use.format("SmallestFirst")}
    for name, text in checked.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'controller'}\nfollow_imports = silent\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            settings,
            "--cache-dir",
            ROOT / ".mypy_cache",
            *checked,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "misused.py:3: error" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("error:") == 1, done.stdout


def test_help_lists_what_a_job_takes() -> None:
    text = echelon.job.__doc__ or ""
    for key in echelon.JobSpec.model_fields:
        assert f"\n    {key}" in text, key
    assert "micro_batches: how many micro-batches, e.g. 4" in text
