"""Crux beside brute force, as its paper measures it: 97.69, 97.24 and 97.12 % for paths, order and
levels.

All 1,500 cases: `python -m bench.bench_crux 1500 [path|priority|compression|together]`. A case
takes a tenth of a second for order and levels, and half a second for paths and for all together.
"""

from __future__ import annotations

import statistics
import sys

from tests.echelon.policies.crux.microbenchmark import Bench

MECHANISMS = ("compression", "priority", "path", "together")
CASES = 40


Row = tuple[str, float, str]


def measure(mechanism: str, cases: int) -> list[Row]:
    parts = []
    for seed in range(cases):
        measured_part = getattr(Bench(seed), mechanism)
        parts.append(measured_part())
    mean = 100 * statistics.mean(parts)
    worst = 100 * min(parts)
    return [
        (f"{mechanism}, mean of {cases} cases", mean, "% of the best"),
        (f"{mechanism}, worst of {cases} cases", worst, "% of the best"),
    ]


def bench() -> list[Row]:
    rows = []
    for mechanism in MECHANISMS:
        rows += measure(mechanism, CASES)
    return rows


if __name__ == "__main__":
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    for mechanism in sys.argv[2:] or MECHANISMS:
        for label, value, unit in measure(mechanism, cases):
            print(f"{label}: {value:.2f} {unit}", flush=True)
