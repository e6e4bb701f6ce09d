"""Random sequences of changes to a real service that is killed after each of them
(tests/echelon/service/restarts).

One process has all switches; each sequence has a store of its own. Sequences depend on the seed and
their number alone.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.echelon.service.restarts import play
from tests.echelon.service.site import TRIANGLE, site


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sequences", type=int, default=500, help="how many sequences (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=5, help="changes, and kills, in each (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first sequence (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    failed: list[int] = []
    kills = 0
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as one:
        for number, seed in enumerate(
            range(options.seed, options.seed + options.sequences), start=1
        ):
            try:
                kills += play(one, seed, options.steps, f"{seed}.db")
            except Exception:
                failed.append(seed)
                print(f"seed {seed}:\n{traceback.format_exc(limit=-4)}", file=sys.stderr)
            if number % 20 == 0:
                print(f"{number} of {options.sequences} sequences, {kills} kills", file=sys.stderr)
        tracebacks = sum("exception" in record for record in one.records())
    elapsed_s = time.monotonic() - began_s
    print(
        f"{options.sequences} sequences in {elapsed_s:.0f} s, {kills} kills: {len(failed)}"
        f" sequences failed, {tracebacks} tracebacks in the log"
    )
    if failed:
        print("failed:", *(f"--seed {seed} --sequences 1" for seed in failed[:10]), sep="\n  ")
    return 1 if failed or tracebacks else 0
