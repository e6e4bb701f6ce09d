"""Random sequences of everything that can happen to the controller, crashes included
(tests/echelon/control).

Sequences depend on the seed and their number alone, whatever the number of processes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.echelon.control.adversary import play

_CHUNK = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sequences", type=int, default=10_000, help="how many sequences (default: %(default)s)"
    )
    parser.add_argument(
        "--events", type=int, default=50, help="events in each (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first sequence (default: %(default)s)"
    )
    parser.add_argument("--moves", action="store_true", help="let links move, too")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="default: one for each processor"
    )


def run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    failures = {}
    seeds = range(options.seed, options.seed + options.sequences)
    with ProcessPoolExecutor(options.processes) as pool:
        for number, (seed, failure) in enumerate(
            zip(
                seeds,
                pool.map(partial(_fault, options.events, options.moves), seeds, chunksize=_CHUNK),
                strict=True,
            ),
            start=1,
        ):
            if failure is not None:
                failures[seed] = failure
                print(f"seed {seed}:\n{failure}", file=sys.stderr)
            if number % 500 == 0:
                print(f"{number} of {options.sequences} sequences", file=sys.stderr)
    elapsed_s = time.monotonic() - began_s
    print(
        f"{options.sequences} sequences of {options.events} events in {elapsed_s:.0f} s:"
        f" {len(failures)} failed"
    )
    if failures:
        print(
            "failed:", *(f"--seed {seed} --sequences 1" for seed in list(failures)[:10]), sep="\n  "
        )
    return 1 if failures else 0


def _fault(events: int, moves: bool, seed: int) -> str | None:
    """Return the fault of one sequence; None: there is none."""
    try:
        play(seed, events, moves=moves)
    except Exception:
        return traceback.format_exc(limit=-4)
    return None
