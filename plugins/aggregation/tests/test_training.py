"""Training with PyTorch through softswitch and BMv2, on real sockets in network namespaces."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from plugins.aggregation.tests.training import largest_difference, look
from tests.faults import mentions
from tests.needs import needs

pytestmark = [pytest.mark.long, needs("torch", "the laboratory's sandbox")]
bmv2 = pytest.param("bmv2", marks=[pytest.mark.bmv2, needs("bmv2")])
targets = pytest.mark.parametrize("target", ["softswitch", bmv2])


@cache
def compared(target: str) -> dict[str, Any]:
    return look("compare", target)


@targets
def test_a_model_learns_as_with_gloo(target: str) -> None:
    found = compared(target)
    gloo = found["gloo"]["losses"]
    assert len(gloo) == 200
    assert sum(gloo[-20:]) < sum(gloo[:20]) / 4, "it learns"
    for way in ("echelon", "hook"):
        print(f"{target}, {way}: the losses are {largest_difference(found, way):.1e} apart at most")
        assert largest_difference(found, way) < 1e-4


@targets
@pytest.mark.parametrize(
    ("whom", "causes"),
    [
        ("3", ["worker 3"]),
        ("0", ["rank 0", "worker 0"]),
        ("switch", ["no other worker", "store"]),
    ],
)
def test_the_others_end_with_the_cause(target: str, whom: str, causes: list[str]) -> None:
    killed = look("kill", target, whom, "10")
    print(f"{target}: {whom} is killed, and all others have ended after {killed['seconds']:.1f} s")
    assert set(killed["statuses"]) == {3}
    for said in killed["said"]:
        assert any(mentions(said, cause) for cause in causes), said


@targets
def test_training_goes_on_when_the_switch_comes_back(target: str) -> None:
    assert (
        look("kill", target, "switch for a moment", "60")["losses"]
        == compared(target)["echelon"]["losses"]
    )
