"""Port rate, strict levels and weights of the real switch in real time, by the kernel's clock at
the far end.

A short version of `python -m bench.switch --shares`, in a network namespace of its own. Rates are
taken between two frames that left, and a switch that wakes up late sends what was due meanwhile, so
that a busy machine widens the result by milliseconds in seconds, not by its load.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from bench.switch import network
from bench.switch.shares import CASES
from tests.needs import needs

ROOT = Path(__file__).parents[2]
SECONDS = 2
USUAL = ("strict, both overloaded", "weights 1 : 1 : 3, unequal packets")
MORE = ("port rate, 1500 bytes", "port rate, 64 bytes", "strict, rest for the lowest")
"""Cases of `make test-long`: one queue alone and a third level."""


@cache
def outcomes(names: tuple[str, ...]) -> dict[str, list[dict[str, float]]]:
    """Return what each class got, by case. One run measures all cases, one after the other."""
    cases = [part for name in names for part in ("--case", name)]
    command = [
        sys.executable,
        "-m",
        "bench.switch",
        "--shares",
        "--json",
        "--seconds",
        str(SECONDS),
        *cases,
    ]
    done = subprocess.run(
        network.inside(command), cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for outcome in json.loads(done.stdout):
        found[outcome["case"]].append(outcome)
    return found


@needs("the laboratory's sandbox")
@pytest.mark.xdist_group("veth")
@pytest.mark.parametrize(
    ("name", "names"),
    [
        *(pytest.param(name, USUAL, id=name) for name in USUAL),
        *(pytest.param(name, MORE, id=name, marks=pytest.mark.long) for name in MORE),
    ],
)
def test_every_class_gets_what_is_configured(name: str, names: tuple[str, ...]) -> None:
    [case] = [case for case in CASES if case.name == name]
    mine = outcomes(names)[name]
    assert [o["queue"] for o in mine] == [c.queue for c in case.classes]
    got = {o["queue"]: (o["expected_bps"], o["measured_bps"]) for o in mine}
    assert all(abs(o["error"]) <= case.limit for o in mine), f"queue: (expected, measured) {got}"
