"""SelectPermutations: few strides of which any distance is a short sum (TopoOpt, NSDI '23, section
4.3).

The strides chosen are about 1, x, x^2... with x the d-th root of k. So a packet for any other
member has at most about d x hops, as a number of d digits to the base x has a digit sum below d x.
"""

from __future__ import annotations

from collections.abc import Sequence

_DIGITS = 6
"""The digits to which a root is rounded, so that a whole one is whole.

Of two strides that are equally near, the smaller is taken.
"""


def select_permutations(
    strides: Sequence[int],
    count: int,
    members: int,
) -> tuple[int, ...]:
    """Return `count` of the strides, as near as possible to a geometric sequence, in ascending
    order.

    Where there are fewer strides than `count`, all are taken again and again: such rings have
    parallel cables.
    """
    times, rest = divmod(count, len(strides))
    chosen = [*strides] * times
    left = [*strides]
    for power in range(rest):
        root = members ** (power / rest)
        wanted = round(strides[0] * root, _DIGITS)
        _, nearest = min((abs(stride - wanted), stride) for stride in left)
        left.remove(nearest)
        chosen.append(nearest)
    return tuple(sorted(chosen))
