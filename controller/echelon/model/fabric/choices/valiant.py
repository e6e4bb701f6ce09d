"""`valiant`: each connection goes to an intermediate switch first.

It takes shortest paths there and on from there (L. G. Valiant and G. J. Brebner, Universal Schemes
for Parallel Communication, STOC '81).

Any pattern of traffic then loads the links of a torus or dragonfly as an even one does, at the
price of longer paths (Kim et al., ISCA '08, section 4.1, where the intermediate is a group). The
switch is one with hosts that a hash says. A path visits no switch twice, because switches tell
flows apart, not their ways: the next switch is tried then.
"""

from __future__ import annotations

from echelon.model.fabric.choices.hashed import Hashed
from echelon.model.fabric.model import Fabric, Path
from echelon.model.jobs.graph import Ends


class Valiant(Hashed):
    """A chooser of paths over intermediate switches.

    Connections below one switch, and trees, have shortest paths.
    """

    def path(
        self,
        fabric: Fabric,
        ends: Ends,
        number: int,
    ) -> Path:
        """Return the path for a hash."""
        direct = super().path(fabric, ends, number)
        if len(ends) > 2 or len(direct) == 3:
            return direct
        shortest = fabric.shortest_paths
        first = direct[1]
        last = direct[-2]
        for step in range(len(shortest.edges)):
            middle = shortest.edges[(number + step) % len(shortest.edges)]
            first_half = shortest.between(first, middle)
            second_half = shortest.between(middle, last)
            if not first_half or not second_half:
                continue
            start = first_half[number % len(first_half)]
            rest = second_half[number % len(second_half)][1:]
            path = (*start, *rest)
            if len({*path}) == len(path) and middle not in (first, last):
                return (ends[0], *path, ends[-1])
        return direct
