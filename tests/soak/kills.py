"""SIGKILLs of a real service at random moments, while an operator changes jobs (tests/echelon/service/operators).

After every kill the service has all that it acknowledged, and the switches hold exactly the entries of its plan. Each
run has a store of its own; one process has all switches.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.echelon.service.forked import TRIANGLE, Site, site
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import settle
from tests.echelon.service.operators import LONGEST_LIFE_S, Operator

KILLED_EARLY = 0.25
"""Part of the kills that come at any moment of the start, which takes about as long as `START_S`."""
START_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="how many runs (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs in each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    failed: list[int] = []
    operators = []
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as one:
        for seed in range(options.seed, options.seed + options.runs):
            operator = Operator(random.Random(seed))
            operators.append(operator)
            try:
                kill(one, operator, options.kills, random.Random(seed), f"{seed}.db")
            except Exception:
                failed.append(seed)
                print(f"seed {seed}:\n{traceback.format_exc(limit=-4)}", file=sys.stderr)
            acknowledged = sum(operator.acknowledged for operator in operators)
            print(f"{len(operators)} of {options.runs} runs, {acknowledged} changes acknowledged", file=sys.stderr)
        tracebacks = sum("exception" in record for record in one.records())
    print(
        f"{options.runs} runs of {options.kills} kills in {time.monotonic() - began_s:.0f} s: {acknowledged} changes "
        f"acknowledged, {sum(operator.unanswered for operator in operators)} unanswered; {len(failed)} runs failed, "
        f"{tracebacks} tracebacks in the log"
    )
    if failed:
        print("failed:", *(f"--seed {seed} --runs 1" for seed in failed), sep="\n  ")
    return 1 if failed or tracebacks else 0


def kill(one: Site, operator: Operator, kills: int, rng: random.Random, store: str) -> None:
    """Kill the service so often, and check after each time. Raises AssertionError."""
    daemon = one.daemon(store)
    try:
        for number in range(kills):
            if rng.random() < KILLED_EARLY:
                daemon.kill()
                daemon = one.daemon(store)
                time.sleep(rng.uniform(0, START_S))
            else:
                daemon.wait_leading()
                operator.work_until_it_dies(daemon, threading.Timer(rng.uniform(0, LONGEST_LIFE_S), daemon.kill))
            daemon.kill()
            daemon = one.daemon(store)
            with one.client(daemon) as client:
                settle(client)
                operator.check(client, number)
                assert_exactly(one, client)
                for switch in one.switches:
                    found = client.difference(switch)
                    assert found.reachable
                    assert (found.inserts, found.modifies, found.deletes, found.foreign) == ((), (), (), 0)
    finally:
        daemon.kill()
