"""SIGKILLs of a real service at random moments, while an operator changes jobs (tests/killing.py).

Each run has a store of its own; one process has all switches. With `--deaths`,
switches and links die meanwhile, too (tests/soak/deaths).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.echelon.service.site import TRIANGLE, site
from tests.killing import Operator, kill_often
from tests.soak.deaths import Deaths, mortal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="how many runs (default: %(default)s)")
    parser.add_argument(
        "--kills", type=int, default=100, help="SIGKILLs in each (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first run (default: %(default)s)"
    )
    parser.add_argument(
        "--deaths",
        type=float,
        default=0.0,
        help="part of the kills beside which a switch or a link dies (default: 0)",
    )


def run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    failed: list[int] = []
    operators = []
    with TemporaryDirectory(prefix="soak-") as directory, ExitStack() as stack:
        deaths: Deaths | None = None
        if options.deaths:
            one, deaths = stack.enter_context(mortal(Path(directory), options.deaths))
        else:
            one = stack.enter_context(site(Path(directory), TRIANGLE))
        for seed in range(options.seed, options.seed + options.runs):
            operator = Operator(random.Random(seed))
            operators.append(operator)
            try:
                start = partial(one.daemon, f"{seed}.db")
                rng = random.Random(seed)
                kill_often(one, start(), start, operator, options.kills, rng, deaths)
            except Exception:
                failed.append(seed)
                print(f"seed {seed}:\n{traceback.format_exc(limit=-4)}", file=sys.stderr)
            acknowledged = sum(operator.acknowledged for operator in operators)
            print(
                f"{len(operators)} of {options.runs} runs, {acknowledged} changes acknowledged",
                file=sys.stderr,
            )
        tracebacks = sum("exception" in record for record in one.records())
    print(
        f"{options.runs} runs of {options.kills} kills in {time.monotonic() - began_s:.0f} s:"
        f" {acknowledged} changes acknowledged,"
        f" {sum(operator.unanswered for operator in operators)} unanswered; {len(failed)} runs"
        f" failed, {tracebacks} tracebacks in the log"
    )
    if deaths is not None:
        print(f"{deaths.switches} switches and {deaths.links} links died")
    if failed:
        print("failed:", *(f"--seed {seed} --runs 1" for seed in failed), sep="\n  ")
    return 1 if failed or tracebacks else 0
