"""`python -m bench intervals`: how often the mean of a ten times longer run is in the interval."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import fmean, median

from bench.laboratory import PolicyChoice, slowdowns_under_plan

LONGER = 10
"""How many times as long the run is whose mean stands for the true one."""


def main(words: Sequence[str]) -> None:
    arguments = _parser().parse_args(words)
    choice = PolicyChoice.parse(arguments.policy)
    iterations = arguments.iterations
    seeds = range(arguments.first, arguments.first + arguments.count)
    covered = 0
    parts = []
    for seed in seeds:
        short = slowdowns_under_plan(seed, choice, iterations)
        long = slowdowns_under_plan(seed, choice, LONGER * iterations)
        error = short.get("error") or long.get("error")
        if error is not None:
            print(f"seed {seed}: {error}", file=sys.stderr)
            continue
        half_width = short["half_width"]
        if half_width is None:
            # Too few iterations to tell.
            continue
        mean = fmean(short["slowdowns"].values())
        true = fmean(long["slowdowns"].values())
        is_covered = abs(mean - true) <= half_width
        if not is_covered:
            print(f"seed {seed}: {mean:.4f} ± {half_width:.4f}, {true:.4f}", file=sys.stderr)
        covered += is_covered
        parts.append(half_width / mean)
    if not parts:
        raise SystemExit("no run had an interval (ask for more iterations)")
    print(
        f"{choice.label}, seeds {seeds[0]} to {seeds[-1]}, {iterations} iterations: the"
        f" mean of a run {LONGER} times as long is within the 95 % interval in {covered} of"
        f" {len(parts)} ({covered / len(parts):.1%}); {len(seeds) - len(parts)} have none; half"
        f" widths {median(parts):.2%} in the median"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench intervals", description=__doc__)
    parser.add_argument("--policy", default="fair", help="as echelon run has it")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="the number of seeds")
    parser.add_argument("--iterations", type=int, default=30, help="of the slowest job alone")
    return parser
