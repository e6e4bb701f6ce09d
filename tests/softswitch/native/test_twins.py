"""Every compiled program of this repository does natively what it does in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ctoolchain import compilers
from softswitch.native import compile_native
from tests.needs import needs
from tests.soak.specimens import Specimen, specimens
from tests.softswitch.native.twins import compare

FAST = compilers()[-1:]
"""The compiler that takes the least time."""


@needs("a C compiler")
@pytest.mark.parametrize("specimen", specimens(), ids=lambda specimen: specimen.name)
def test_both_engines_do_the_same(specimen: Specimen) -> None:
    native = compile_native(specimen.load().ir, FAST)
    assert compare(specimen, 150, 7, native) > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(["1000000"], id="many", marks=needs("a C compiler")),
        pytest.param(
            ["60000", "--sanitize"],
            id="sanitized",
            marks=needs("gcc's sanitizers of memory"),
        ),
    ],
)
def test_many_packets(more: list[str]) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "tests.softswitch.native.twins", "--seed", "11", "--packets", *more],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
