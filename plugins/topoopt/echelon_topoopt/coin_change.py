"""CoinChangeMod: routes over rings that all hosts have (TopoOpt, W. Wang et al., NSDI '23, section
4.3 and appendix).

The way from host i to host j is a sum of strides that makes j - i modulo the number of hosts: the
change for that amount, in as few coins as possible. The coins are the same for all pairs of the
same distance, so all links of a stride carry the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection


def coin_change_mod(members: int, strides: Collection[int]) -> tuple[tuple[int, ...] | None, ...]:
    """Return the strides to go, the largest first, for each distance from 0 to `members` - 1; None:
    there is no way.

    The number of strides is the least. Among equals, the first of the smallest stride wins, so that
    the result depends on nothing else.
    """
    coins = sorted(set(strides))
    ways: dict[int, tuple[int, ...]] = {0: ()}
    waiting = deque([0])
    while waiting:
        distance = waiting.popleft()
        for coin in coins:
            farther = (distance + coin) % members
            if farther in ways:
                continue
            strides_to_go = [*ways[distance], coin]
            strides_to_go.sort(reverse=True)
            ways[farther] = tuple(strides_to_go)
            waiting.append(farther)
    distances = range(members)
    return tuple(map(ways.get, distances))
