"""Times of collectives beside ASTRA-sim's: `python -m research.astra_sim` prints the table of
research/notebook/workloads.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import echelon
from tests.reference.astra_sim import RATE_BPS, Kind, Operation, time_s

OPERATIONS: tuple[tuple[Kind, Operation], ...] = (
    ("ring", "all-reduce"),
    ("ring", "all-to-all by ring"),
    ("ring", "all-to-all"),
    ("switch", "all-reduce"),
    ("switch", "all-to-all"),
)
RANKS = (4, 8, 16)
SIZE_BYTES = 2**28

Document = Mapping[str, object]


class Times(NamedTuple):
    """Seconds of an iteration."""

    executed_s: Fraction
    """The time with acknowledgements of packets of 9000 bytes."""
    ideal_s: Fraction
    """The time without acknowledgements, as ASTRA-sim has it."""


def fabric(kind: Kind, ranks: int) -> Document:
    """Return a ring of switches with a host at each, or one switch; links that matter have
    ASTRA-sim's rate.
    """
    hosts = [f"h{number}" for number in range(ranks)]
    if kind == "switch":
        switches = ["s"]
        links = [link(host, "s", RATE_BPS) for host in hosts]
    else:
        switches = [f"s{number}" for number in range(ranks)]
        links = []
        for host, switch in zip(hosts, switches, strict=True):
            # In ASTRA-sim ranks are on the ring themselves, so a host's own link must not be a
            # bottleneck.
            links.append(link(host, switch, ranks * RATE_BPS))
        for switch, following in pairwise([*switches, switches[0]]):
            links.append(link(switch, following, RATE_BPS))
    return {"fabric": kind, "hosts": hosts, "switches": switches, "links": links}


def link(start: str, end: str, rate_bps: int) -> Document:
    return {"between": [start, end], "rate": f"{rate_bps} bit/s"}


def job(
    operation: Operation,
    ranks: int,
    size_bytes: int,
) -> Document:
    """Return a job whose iteration is this collective and nothing else."""
    return {
        "job": "collective",
        "parallelism": "graph",
        "workers": [f"h{number}" for number in range(ranks)],
        "graph": {"nodes": list(_nodes(operation, ranks, size_bytes))},
    }


def _nodes(
    operation: Operation,
    ranks: int,
    size_bytes: int,
) -> Iterator[Document]:
    everyone = list(range(ranks))
    if operation != "all-to-all by ring":
        yield {
            "name": "collective",
            "collective": operation,
            "group": everyone,
            "bytes": f"{size_bytes} B",
        }
        return
    for number in range(ranks * (ranks - 1) // 2):
        for rank in everyone:
            following = (rank + 1) % ranks
            before = []
            if number:
                preceding = (rank - 1) % ranks
                before.append(f"m{number - 1}-{preceding}")
            yield {
                "name": f"m{number}-{rank}",
                "send": [rank, following],
                "bytes": f"{size_bytes // ranks} B",
                "after": before,
            }


def simulated_s(
    kind: Kind,
    operation: Operation,
    ranks: int,
    size_bytes: int,
) -> Times:
    """Return how long an iteration of that job takes on that fabric under fair sharing."""
    scenario = {
        "fabric": fabric(kind, ranks),
        "jobs": [job(operation, ranks, size_bytes)],
        "iterations": 1,
        "transport": {"packet": "9000 B"},
    }
    compared = echelon.simulate(
        scenario,
        policies=["fair"],
        ideal=True,
    )
    executed, ideal = compared.runs.values()
    return Times(_finish_s(executed), _finish_s(ideal))


def _finish_s(run: echelon.PolicyRun) -> Fraction:
    record = run.records["collective"]
    finish_s = record.iterations[0].finish
    assert finish_s is not None
    return Fraction(finish_s)


def main() -> None:
    out = sys.stdout
    heads = ("fabric", "collective", "ranks", "ASTRA-sim", "Echelon", "difference")
    out.write(
        f"| {' | '.join(heads)} | without latency | without acknowledgements |\n{'|---' * 8}|\n"
    )
    for kind, operation in OPERATIONS:
        for ranks in RANKS:
            ours = simulated_s(kind, operation, ranks, SIZE_BYTES)
            theirs_s = time_s(kind, operation, ranks, SIZE_BYTES)
            plain_s = time_s(kind, operation, ranks, SIZE_BYTES, latency_s=Fraction(0))
            difference = ours.executed_s / theirs_s - 1
            out.write(
                f"| {kind} | {operation} | {ranks} | {_ms(theirs_s)} | {_ms(ours.executed_s)} |"
                f" {float(100 * difference):+.2f} % | {_ms(plain_s)} | {_ms(ours.ideal_s)} |\n"
            )


def _ms(time_s: Fraction) -> str:
    return f"{float(1000 * time_s):.3f}"


if __name__ == "__main__":
    main()
