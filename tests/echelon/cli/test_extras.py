"""Without the extras: what needs none runs, and what needs one says which."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from echelon.extras import EXTRAS

ROOT = Path(__file__).parents[3]
WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from echelon.cli import main
main()
"""


def echelon(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    words = [word.replace("ROOT", str(ROOT)) for word in command.split()]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        "run ROOT/topologies/scenarios/fig2.yaml --policy echelon -o out",
        "run ROOT/topologies/scenarios/fig2.yaml --target fluid --json -o out",
        "check ROOT/topologies/scenarios/fig2.yaml ROOT/deploy/echelon.yaml ROOT/deploy/tokens.yaml",
        "place ROOT/topologies/scenarios/fig2.yaml --candidates 0",
        "show ROOT/examples/start/vision.yaml",
        "token alice --role operator",
        "init mine",
        "serve --config ROOT/deploy/echelon.yaml --check",
        "traffic generate long --load 1Mbit/s --duration 1s --src a --dst b -o flows.csv",
    ],
)
def test_what_needs_no_extra(command: str, tmp_path: Path) -> None:
    done = echelon(command, tmp_path)
    assert done.returncode == 0, done.stderr
    if command.startswith("run"):
        assert "pip install 'echelon-p4[plot]'" in done.stderr
        assert (tmp_path / "out" / "report.md").is_file()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("job list", "service"),
        ("serve --config ROOT/deploy/echelon.yaml", "service"),
        ("show ROOT/examples/start/vision.yaml -o job.png", "plot"),
    ],
)
def test_what_needs_one_says_which(command: str, extra: str, tmp_path: Path) -> None:
    done = echelon(command, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.endswith(f" is not installed (run: pip install 'echelon-p4[{extra}]')")


def test_every_extra_exists() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(declared)
