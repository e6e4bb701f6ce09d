"""``python -m bench.topoopt``: processor time for 128 and 1,024 hosts of 4 ports."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import permutations

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


def choose_strides(hosts: int) -> tuple[int, ...]:
    strides = totient_perms(hosts, duplex=True)
    return select_permutations(strides, 2, hosts)


if __name__ == "__main__":
    print(
        "| hosts | strides and rings | coin change | one all-reduce | half all-to-all | all-to-all"
        " alone |"
    )
    print("|---|---|---|---|---|---|")
    for hosts in (128, 1024):
        every = tuple(range(hosts))
        sent = dict.fromkeys(permutations(every, 2), 1.0)
        rings = Traffic(hosts, {every: 1e9})
        both = Traffic(hosts, {every: float(len(sent))}, sent)
        pairs_alone = Traffic(hosts, {}, sent)
        strides = (1, 31, hosts - 1, hosts - 31)
        calls: list[Callable[[], object]] = [
            partial(choose_strides, hosts),
            partial(coin_change_mod, hosts, strides),
            partial(find_topology, rings, 4),
            partial(find_topology, both, 4),
            partial(find_topology, pairs_alone, 4, 0),
        ]
        cells = map(took_ms, calls)
        print(f"| {hosts:,} | {' | '.join(cells)} |", flush=True)
