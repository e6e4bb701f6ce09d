"""`address`: all packets to a host go one way from a switch, as where switches know no flows."""

from __future__ import annotations

from echelon.model.fabric.choices.hashed import Hashed
from echelon.model.fabric.model import Fabric, Path
from echelon.model.jobs.graph import Ends


def next_hop(
    fabric: Fabric,
    switch: str,
    host: str,
) -> str | None:
    """Return the next hop from a switch to a host by its address; None: there is no way.

    Hosts take the shortest ways in turn.
    """
    hops = fabric.next_hops[switch, host]
    if hops:
        return hops[fabric.host_numbers[host] % len(hops)]
    return None


class Addressed(Hashed):
    """A chooser of paths that depend on the destination.

    It is an `echelon.model.fabric.routing.PathChooser`.
    """

    def path(
        self,
        fabric: Fabric,
        ends: Ends,
        number: int,
    ) -> Path:
        """Return the path between two hosts.

        `number` chooses among the links of a host that has several. Trees have theirs by hash.
        """
        if len(ends) != 2:
            return super().path(fabric, ends, number)
        first = sorted({inner[0] for inner in fabric.shortest_paths.switches(*ends)})
        nodes = [ends[0], first[number % len(first)]]
        while nodes[-1] != ends[-1]:
            following = next_hop(fabric, nodes[-1], ends[-1])
            assert following is not None, "there is a path from the first switch"
            nodes.append(following)
        return tuple(nodes)
