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


def measure(mechanism: str, cases: int) -> list[tuple[str, float, str]]:
    parts = [getattr(Bench(seed), mechanism)() for seed in range(cases)]
    return [
        (f"{mechanism}, mean of {cases} cases", 100 * statistics.mean(parts), "% of the best"),
        (f"{mechanism}, worst of {cases} cases", 100 * min(parts), "% of the best"),
    ]


def bench() -> list[tuple[str, float, str]]:
    return [row for mechanism in MECHANISMS for row in measure(mechanism, CASES)]


if __name__ == "__main__":
    for mechanism in sys.argv[2:] or MECHANISMS:
        for label, value, unit in measure(
            mechanism, int(sys.argv[1]) if len(sys.argv) > 1 else CASES
        ):
            print(f"{label}: {value:.2f} {unit}", flush=True)
