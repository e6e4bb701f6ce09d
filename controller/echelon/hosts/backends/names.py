"""Names of interfaces. The kernel takes 15 characters, a fabric's names may have 32."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.fabric.model import Fabric

MAX_NAME = 15
_LONGEST_END = len("-eth509")


def interface_names(fabric: Fabric) -> Mapping[tuple[str, int], str]:
    """By (node, port): `s1-eth3`, of a host `h1-eth0`; unique in the whole fabric.

    Where a node's name is too long its beginning and a number stand for it: `aggregation-pod1-1` is `aggreg.5`.
    Names in fabrics have no dot, so that these are no other node's.
    """
    names: dict[tuple[str, int], str] = {}
    for number, (node, ports) in enumerate(fabric.ports.items(), start=1):
        stem = node
        if len(node) + _LONGEST_END > MAX_NAME:
            end = f".{number}"
            stem = node[: MAX_NAME - _LONGEST_END - len(end)] + end
        names.update(((node, port), f"{stem}-eth{port}") for port in ports)
    return names
