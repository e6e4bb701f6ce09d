"""``python -m bench.topoopt``: processor time for 128 and 1,024 hosts of 4 ports."""

from __future__ import annotations

import time
from collections.abc import Callable

import networkx  # noqa: F401 - which is imported on first use otherwise

from echelon_topoopt.coin_change import coin_change_mod
from echelon_topoopt.select_permutations import select_permutations
from echelon_topoopt.topology_finder import find_topology
from echelon_topoopt.totient_perms import totient_perms
from echelon_topoopt.traffic import Traffic


def took_ms(call: Callable[[], object]) -> str:
    """Return the processor time of a call."""
    begin = time.process_time()
    call()
    return f"{(time.process_time() - begin) * 1e3:,.2f} ms"


if __name__ == "__main__":
    print(
        "| hosts | strides and rings | coin change | one all-reduce | half all-to-all | all-to-all"
        " alone |"
    )
    print("|---|---|---|---|---|---|")
    for hosts in (128, 1024):
        every = tuple(range(hosts))
        pairs = {(src, dst): 1.0 for src in every for dst in every if src != dst}
        rings = Traffic(hosts, {every: 1e9})
        both = Traffic(hosts, {every: float(len(pairs))}, pairs)
        calls: list[Callable[[], object]] = [
            lambda hosts=hosts: select_permutations(totient_perms(hosts, duplex=True), 2, hosts),
            lambda hosts=hosts: coin_change_mod(hosts, (1, 31, hosts - 1, hosts - 31)),
            lambda rings=rings: find_topology(rings, 4),
            lambda both=both: find_topology(both, 4),
            lambda both=both, hosts=hosts: find_topology(Traffic(hosts, {}, both.sent), 4, 0),
        ]
        print(f"| {hosts:,} | {' | '.join(map(took_ms, calls))} |", flush=True)
