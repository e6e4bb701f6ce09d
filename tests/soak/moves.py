"""Moves of links in a running fabric while four jobs send: packets lost, and the time until all is
installed.

Six leaves in a ring have links of an emulated optical switch between them besides
(`tests.echelon.service.moving`); two of its three links move to and fro. In the first half of the
rounds all jobs have other paths meanwhile. In the second half two links of the ring are drained, so
that two jobs have none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

from echelon.controller.client import Client
from tests.echelon.service.conftest import building
from tests.echelon.service.lab import Lab, settle, until
from tests.echelon.service.moving import (
    OPPOSITE,
    TURNED,
    Traffic,
    fabric,
    lost_in_the_dark,
    optical,
    register,
    traffic,
)

PHASES = ("routing", "draining", "moving", "installing")
APART = {"across", "near"}
"""The jobs that have no other path where two links are drained."""
PAUSE_S = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rounds", type=int, default=20, help="moves of each kind (default: %(default)s)"
    )
    parser.add_argument(
        "--time", type=float, default=20.0, help="milliseconds of the optical switch (%(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    faults = list[str]()
    with building() as build:
        lab = optical(build, fabric(*OPPOSITE), time_ms=options.time)
        daemon = lab.daemon("echelon", "--check-invariants")
        with lab.client(daemon) as client:
            register(client)
            settle(client)
            heads = (
                "other paths",
                "moves",
                "packets sent",
                "lost",
                "of which while dark",
                *PHASES,
                "all",
            )
            rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
            for apart in ((), ("l2", "l6")):
                for other in apart:
                    client.set_link("l1", other, "drained", force=True)
                settle(client)
                dark = lost_in_the_dark(lab) if (lab.directory / "optical.jsonl").exists() else 0
                with traffic(lab, client) as stream:
                    times_s = _rounds(lab, client, stream, options.rounds)
                lost, dark = stream.lost, lost_in_the_dark(lab) - dark
                rows.append(_row("for all" if not apart else "none for two", stream, times_s, dark))
                if lost.keys() - (APART if apart else set()):
                    faults.append(f"packets of jobs with other paths are lost: {lost}")
        faults += [
            record["exception"]
            for record in map(dict, daemon.events("an event could not be handled"))
        ]
    print(*rows, sep="\n")
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


def _rounds(
    lab: Lab, client: Client, stream: Traffic, rounds: int
) -> Sequence[Mapping[str, float]]:
    """Move links to and fro while packets pass. Return how long each phase of each move took."""
    before = _seconds(client)
    times_s = []
    stream.start()
    for number in range(rounds):
        time.sleep(PAUSE_S)
        chords = TURNED if number % 2 == 0 else OPPOSITE
        client.move_links(fabric(*chords))
        until(lambda: client.move().stage == "standing", "the links do not stand")
        settle(client)
        now = _seconds(client)
        times_s.append({phase: now[phase] - before[phase] for phase in PHASES})
        before = now
        print(f"{number + 1} of {rounds}: {sum(times_s[-1].values()):.3f} s", file=sys.stderr)
    stream.stop()
    return times_s


def _seconds(client: Client) -> Mapping[str, float]:
    """Return the seconds that each phase took in all moves so far, by the service's metrics."""
    lines = [
        line.split()
        for line in client.metrics().splitlines()
        if line.startswith("echelon_link_move_seconds_sum")
    ]
    return {name.split('"')[1]: float(value) for name, value in lines}


def _row(paths: str, stream: Traffic, times_s: Sequence[Mapping[str, float]], dark: int) -> str:
    each = [f"{median(one[phase] for one in times_s):.3f} s" for phase in PHASES]
    whole = [sum(one.values()) for one in times_s]
    return (
        f"| {paths} | {len(times_s)} | {sum(stream.sent.values())} | {sum(stream.lost.values())} |"
        f" {dark} | {' | '.join(each)} | {median(whole):.3f} s, at most {max(whole):.3f} s |"
    )
