"""`make demo`, as it is printed, and its next steps, as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.needs import needs

_MOST_LINES = 40


@pytest.mark.long
@needs("bash")
def test_the_demo_fits_a_page_and_its_next_steps_work(tmp_path: Path) -> None:
    """The packages are those of this environment, which Make takes for one just made."""
    home, environment = tmp_path / "clone", tmp_path / "clone" / ".venv"
    environment.mkdir(parents=True)
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("out", "mine"):
            (home / path.name).symlink_to(path)
    (environment / "bin").symlink_to(Path(sys.executable).parent)
    for stamp in (".runs", ".hosts"):
        (environment / stamp).touch()
    without_picture = _in(home, f"{_NO_MATPLOTLIB} make demo")
    steps = re.findall(r"^    (.+)$", without_picture, re.MULTILINE)
    assert len(without_picture.splitlines()) <= _MOST_LINES
    assert "h2 computes" in without_picture
    assert len(steps) == 3
    printed = [_in(home, step) for step in steps]
    assert "sincronia" in printed[0]
    assert (home / "mine" / "results" / "results.json").is_file()
    assert "Take " in printed[2]
    assert (home / "mine" / "advice.png").is_file()


_NO_MATPLOTLIB = "PYTHONPATH=absent"


def _in(home: Path, command: str) -> str:
    (home / "absent").mkdir(exist_ok=True)
    (home / "absent" / "matplotlib.py").write_text(
        "raise ModuleNotFoundError(name='matplotlib')\n", encoding="utf-8"
    )
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTEST"))
    }
    return subprocess.run(
        ["bash", "-ec", command],
        cwd=home,
        env=kept,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        timeout=300,
    ).stdout
