"""The traffic manager, the interfaces and TCP in C, under gcc's sanitizers of memory, behaviour and
threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs

ROOT = Path(__file__).parents[1]
TESTED = (
    "softswitch/tm/test_in_c.py",
    "softswitch/realtime/test_core.py",
    "softswitch/realtime/test_wires.py",
    "echelon/lab/endhosts/tcp/test_twins.py",
)


@pytest.mark.long
@needs("setarch")
@pytest.mark.parametrize(
    ("names", "libraries"),
    [
        pytest.param(
            "address,undefined",
            ("asan", "ubsan"),
            marks=needs("gcc's sanitizers of memory"),
        ),
        pytest.param("thread", ("tsan",), marks=needs("gcc's sanitizer of threads")),
    ],
)
def test_no_sanitizer_finds_anything(
    names: str, libraries: tuple[str, ...], tmp_path: Path
) -> None:
    asked = [["gcc", f"-print-file-name=lib{name}.so"] for name in libraries]
    paths = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        for command in asked
    ]
    command = [
        *("setarch", "-R", sys.executable, "-m", "pytest", "-p", "tests.sanitized", "-n", "0", "-s")
    ]
    done = subprocess.run(
        [*command, "-x", *(f"tests/{path}" for path in TESTED)],
        cwd=ROOT,
        env={
            **os.environ,
            "SANITIZE": names,
            "LD_PRELOAD": " ".join(paths),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has to the end
            "TSAN_OPTIONS": "report_signal_unsafe=0",
            "XDG_CACHE_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert not done.returncode, said[-4000:]
    assert "Sanitizer" not in said, said[-4000:]
