"""Names of interfaces. The kernel allows 15 characters; a fabric's names may have 32."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.fabric.model import Fabric

MAX_NAME = 15
_LONGEST_END = len("-eth509")


def interface_names(fabric: Fabric) -> Mapping[tuple[str, int], str]:
    """Return the name of each interface by (node, port), such as `s1-eth3`. Names are unique in the fabric.

    Where a node's name is too long, its beginning and a number stand for it: `aggregation-pod1-1` becomes `aggreg.5`.
    Names of nodes have no dot, so no other node has such a name.
    """
    names: dict[tuple[str, int], str] = {}
    for number, (node, ports) in enumerate(fabric.ports.items(), start=1):
        stem = node
        if len(node) + _LONGEST_END > MAX_NAME:
            end = f".{number}"
            stem = node[: MAX_NAME - _LONGEST_END - len(end)] + end
        names.update(((node, port), f"{stem}-eth{port}") for port in ports)
    return names
