"""The table of all next hops against one look-up at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.fabric.load import load_fabric
from echelon.fabric.routing import next_hops

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


@pytest.mark.parametrize("name", sorted(path.name for path in TOPOLOGIES.glob("*.yaml")))
def test_every_next_hop(name: str) -> None:
    fabric = load_fabric(TOPOLOGIES / name)
    one_by_one = {(s, h): next_hops(fabric, s, h) for s in fabric.switches for h in fabric.hosts}
    assert fabric.next_hops == one_by_one
