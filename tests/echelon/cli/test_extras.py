"""Commands without the extras: those that need none run, and others say which they need."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from echelon.model.extras import EXTRAS

ROOT = Path(__file__).parents[3]
LAB = {"echelon_lab", "softswitch"}
"""The packages of `echelon run`."""
WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted({*EXTRAS} - LAB)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from echelon.cli import main
commands = sys.argv[1:]
for command in commands:
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as ended:
        if ended.code or command == commands[-1]:
            raise
"""


def echelon(directory: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands in one process, up to the first that fails."""
    words = [command.replace("ROOT", str(ROOT)) for command in commands]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_needs_no_extra(tmp_path: Path) -> None:
    done = echelon(
        tmp_path,
        "run ROOT/topologies/scenarios/fig2.yaml --policy echelon -o packets",
        "run ROOT/topologies/scenarios/fig2.yaml --target fluid --json -o fluid",
        "check ROOT/topologies/scenarios/fig2.yaml ROOT/deploy/echelon.yaml"
        " ROOT/deploy/tokens.yaml",
        "place ROOT/topologies/scenarios/fig2.yaml --candidates 0",
        "show ROOT/examples/start/vision.yaml",
        "token alice --role operator",
        "init mine",
        "serve --config ROOT/deploy/echelon.yaml --check",
        "traffic generate long --load 1Mbit/s --duration 1s --src a --dst b -o flows.csv",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pip install 'echelon-p4[plot]'") == 2
    for made in ("packets/report.md", "fluid/report.md", "mine", "flows.csv"):
        assert (tmp_path / made).exists()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("show ROOT/examples/start/vision.yaml -o job.png", "plot"),
    ],
)
def test_what_needs_one_says_which(command: str, extra: str, tmp_path: Path) -> None:
    done = echelon(tmp_path, command)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert f"pip install 'echelon-p4[{extra}]'" in line


def test_every_extra_exists() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(EXTRAS.values()) <= set(declared)
