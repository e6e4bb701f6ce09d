"""Scenarios on real hosts, each in a sandbox of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.needs import require

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 300.0
MARK = "ECHELON_TEST_RUN"
"""Environment variable by which the processes of a run are known."""


@dataclass
class Run:
    """The process of `tests.echelon.lab.hosts.inside`; `marked` finds all that it has started."""

    scenario: Path
    arguments: tuple[str, ...]
    temporary: Path
    """The directory in which programs put their temporary files."""
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: subprocess.Popen[str] = field(init=False)
    _ended: tuple[int, str, str] | None = None

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.echelon.lab.hosts.inside",
                str(self.scenario),
                *self.arguments,
            ],
            cwd=ROOT,
            env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_line(self, start: str) -> str:
        """Return the next line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line
        raise AssertionError(f"it ended without saying {start}: {self.end()}")

    def end(self) -> tuple[int, str, str]:
        """Return the status, output and errors."""
        if self._ended is None:
            out, errors = self.process.communicate(timeout=PATIENCE_S)
            self._ended = self.process.returncode, out, errors
        return self._ended

    def document(self) -> dict[str, Any]:
        """Return the document that a successful run prints at its end."""
        status, out, errors = self.end()
        assert status == 0, errors
        document: dict[str, Any] = json.loads(out.splitlines()[-1])
        return document

    def marked(self) -> list[int]:
        """Return the processes of the run, in whatever namespaces."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue  # it has just ended
                if wanted in environment.split(b"\0"):
                    found.append(int(entry.name))
        return found


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a run of a scenario (a mapping, or a file) with command-line
    arguments.
    """
    require("the laboratory's sandbox")

    def begin(scenario: Mapping[str, Any] | Path, *arguments: str) -> Run:
        path = scenario if isinstance(scenario, Path) else tmp_path / "scenario.yaml"
        if not isinstance(scenario, Path):
            path.write_text(yaml.safe_dump(dict(scenario)))
        temporary = tmp_path / "temporary"
        temporary.mkdir(exist_ok=True)
        runs.append(Run(path, arguments, temporary))
        return runs[-1]

    runs: list[Run] = []
    try:
        yield begin
    finally:
        for run in runs:
            run.process.kill()
            run.end()


def fig2(unit_s: float, **more: Any) -> dict[str, Any]:
    """Return Fig. 2 of HotNets '22 with `unit_s` seconds for its unit of time."""
    return {
        "scenario": "fig2",
        "fabric": {
            "fabric": "fig2",
            "hosts": ["h1", "h2"],
            "switches": ["s1", "s2"],
            "links": [
                {"between": ["h1", "s1"], "rate": "1 Gbit/s"},
                {"between": ["s1", "s2"], "rate": "10 Mbit/s"},
                {"between": ["s2", "h2"], "rate": "1 Gbit/s"},
            ],
        },
        "jobs": [
            {
                "job": "pipeline",
                "parallelism": "pipeline",
                "workers": ["h1", "h2"],
                "pipeline": {
                    "micro_batches": 3,
                    "forward": f"{unit_s:g} s",
                    "activation": f"{round(2.5e6 * unit_s)} B",
                },
            }
        ],
        "policies": ["fair", "varys", "echelon"],
        **more,
    }
