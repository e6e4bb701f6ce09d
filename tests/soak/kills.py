"""SIGKILLs of a real service at random moments, while an operator changes jobs
(tests/echelon/service/operators).

After every kill the service has all that it acknowledged, and the switches hold exactly the entries
of its plan. Each run has a store of its own; one process has all switches. With `--deaths`,
switches and links die meanwhile, too (tests/soak/deaths).
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.echelon.service.forked import TRIANGLE, Site, site
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import settle
from tests.echelon.service.operators import LONGEST_LIFE_S, Operator
from tests.soak.deaths import Deaths, mortal, wait_links

KILLED_EARLY = 0.25
"""Part of the kills that come at any moment of the start, which takes about as long as `START_S`.
"""
START_S = 0.5


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
            one, deaths = stack.enter_context(mortal(Path(directory)))
        else:
            one = stack.enter_context(site(Path(directory), TRIANGLE))
        for seed in range(options.seed, options.seed + options.runs):
            operator = Operator(random.Random(seed))
            operators.append(operator)
            try:
                kill(
                    one,
                    operator,
                    options.kills,
                    random.Random(seed),
                    f"{seed}.db",
                    deaths,
                    options.deaths,
                )
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


def kill(
    one: Site,
    operator: Operator,
    kills: int,
    rng: random.Random,
    store: str,
    deaths: Deaths | None = None,
    likely: float = 0.0,
) -> None:
    """Kill the service so often, and check after each time. Raises AssertionError.

    Beside a kill, one of `deaths` is as `likely`. What dies comes back before or after the service
    does.
    """
    daemon = one.daemon(store)
    try:
        for number in range(kills):
            if deaths is not None and rng.random() < likely:
                deaths.strike(rng)
            if rng.random() < KILLED_EARLY:
                daemon.kill()
                daemon = one.daemon(store)
                time.sleep(rng.uniform(0, START_S))
            else:
                daemon.wait_leading()
                operator.work_until_it_dies(
                    daemon, threading.Timer(rng.uniform(0, LONGEST_LIFE_S), daemon.kill)
                )
            daemon.kill()
            if deaths is not None and rng.random() < 0.5:
                deaths.mend()
            daemon = one.daemon(store)
            with one.client(daemon) as client:
                if deaths is not None:
                    deaths.mend()
                    wait_links(client)
                settle(client)
                operator.check(client, number)
                assert_exactly(one, client)
                for switch in one.switches:
                    found = client.difference(switch)
                    assert found.reachable
                    assert (found.inserts, found.modifies, found.deletes, found.foreign) == (
                        (),
                        (),
                        (),
                        0,
                    )
    finally:
        daemon.kill()
