"""Random pairs of jobs over the kernel's TCP on one bottleneck, on real hosts: does a connection
ever stand still?

Half of the pairs ask switches to pause connections, windows are small or left alone, and data go
one way or both. A pair stands still if an iteration takes longer than a job whose communication
waits for all of the other job's, and two seconds besides, for a few retransmission timers of the
kernel. With `--gloo`, the pairs are the programs of `torch_programs.yaml`, which ask for the pause
(root; `--gloo` needs PyTorch).
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from research import torch_programs
from research.tcp_ranks import SENDING_US, Pair, iterations_s

ITERATIONS = 8
TIMERS_S = 2.0
WINDOWS = ("", "20 kB", "64 kB")
"""The largest windows that receivers announce; empty: the kernel chooses."""
PROGRAMS_TAKE_S = 2.0
"""The longest iteration of a program of `torch_programs.yaml` alone, and what the others send in
one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=120.0, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the pairs (default: %(default)s)")
    parser.add_argument("--target", default="softswitch", help="(default: %(default)s)")
    parser.add_argument(
        "--gloo", action="store_true", help="programs that use PyTorch, in place of emulated jobs"
    )


def run(options: argparse.Namespace) -> int:
    rng, until_s = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    seen = defaultdict[str, list[float]](list)
    """The iterations of all jobs over the longest that is right, by what the pair asks for."""
    faults = list[str]()
    while time.monotonic() < until_s and not faults:
        kind, document, longest_s = _programs(rng) if options.gloo else _pipelines(rng)
        try:
            of_jobs = iterations_s({**document, "iterations": ITERATIONS}, options.target)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            faults.append(f"{kind}: {error}\n{error.stderr!s}\n{yaml.safe_dump(document)}")
            continue
        found_s = [each_s for times_s in of_jobs for each_s in times_s]
        seen[kind] += [each_s / longest_s for each_s in found_s]
        if max(found_s) > longest_s + TIMERS_S:
            faults.append(
                f"{kind}: an iteration took {max(found_s):.3f} s, and should take {longest_s:.3f} s"
                f" at most\n{document}"
            )
        print(
            f"{sum(map(len, seen.values()))} iterations: {kind}, at most {max(found_s):.3f} s",
            file=sys.stderr,
        )
    print(
        "| pair | iterations | mean over the longest that is right | longest |\n|---|---|---|---|"
    )
    for kind, ratios in sorted(seen.items()):
        print(f"| {kind} | {len(ratios)} | {sum(ratios) / len(ratios):.2f} | {max(ratios):.2f} |")
    print("\n".join(faults) or "no connection stood still")
    return int(bool(faults))


def _pipelines(rng: random.Random) -> tuple[str, dict[str, Any], float]:
    """Return what a pair asks for, its scenario, and the longest iteration that is right, in
    seconds.
    """
    pair = Pair(
        rng.choice([1, 2, 3, 4, 6, 8]),
        rng.random() < 0.5,
        rng.choice([0.5, 1, 2]),
        f"{rng.randint(0, 300)} ms",
    )
    pause, window = rng.random() < 0.5, rng.choice(WINDOWS)
    document = pair.scenario(
        {"pause": True} if pause else {}, {"receive_window": window} if window else {}
    )
    document["policies"] = [rng.choice(["echelon", "echelon", "coflow", "fair"])]
    ways = 1 + pair.backward
    # Both workers compute, one after the other; both jobs send, with the headers of TCP.
    longest_s = ways * (2 / pair.ratio + 2 * 1.06) * SENDING_US / 1e6
    kind = (
        f"{'both ways' if pair.backward else 'one way'},"
        f" {window or 'any window'}{', pause' * pause}"
    )
    return kind, document, longest_s


def _programs(rng: random.Random) -> tuple[str, dict[str, Any], float]:
    """Return a pair of programs that ask for the pause, likewise."""
    found = torch_programs.scenario(torch_programs.SCENARIOS / "torch_programs.yaml")
    names = [rng.choice([job["job"] for job in found["jobs"]]) for _ in range(2)]
    document = torch_programs.with_jobs(found, names, polled=rng.random() < 0.5)
    for job in document["jobs"]:
        described = yaml.safe_load(Path(job["file"]).read_text())
        job["recognition"] = {**described["recognition"], "pause": True}
    return "+".join(names), {**document, "policies": ["echelon"]}, PROGRAMS_TAKE_S
