"""The backends: what hosts are given, what passes between them, and what is left.

Both are held to the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from echelon_lab.hosts.backends.base import BACKENDS
from tests.echelon.lab.hosts.backends.inside import look
from tests.needs import needs, require

pytestmark = needs("the laboratory's sandbox")


@pytest.fixture(scope="module", params=BACKENDS)
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the result of each look."""
    if request.param == "mininet":
        require("mininet")
    looks: dict[str, Any] = look(request.param, "left", "hosts", "frames")
    return looks


def test_a_host_has_the_fabrics_addresses_and_knows_all_others(seen: dict[str, Any]) -> None:
    hosts = seen["hosts"]
    routes = ["10.1.0.0/16", "10.77.0.0/16"]
    own = {"name": "accele.1-eth0", "mac": "02:aa:00:00:00:01", "addresses": ["10.1.2.3/16"]}
    other = {"name": "accele.2-eth0", "mac": "02:aa:00:00:00:02", "addresses": ["10.77.2.3/16"]}
    common = {"mtu": 9000, "state": "UP", "routes": routes}
    assert hosts["hosts"] == {
        "accelerator-of-rack-17-number-01": {
            **own,
            **common,
            "neighbours": {"10.77.2.3": ["02:aa:00:00:00:02", "PERMANENT"]},
        },
        "accelerator-of-rack-17-number-02": {
            **other,
            **common,
            "neighbours": {"10.1.2.3": ["02:aa:00:00:00:01", "PERMANENT"]},
        },
    }
    assert hosts["switch"] == {"40": "top-of.3-eth40", "41": "top-of.3-eth41"}
    assert hosts["mtus"] == [9000, 9000]


def test_frames_are_as_on_a_wire(seen: dict[str, Any]) -> None:
    """Frames are no longer than the MTU allows, have their checksums, and come only from the hosts'
    programs.
    """
    frames = seen["frames"]
    assert (frames["received"], frames["bad_checksums"], frames["other"]) == (1_000_000, 0, 0)
    assert frames["longest"] == 1514
    assert frames["frames"] >= 1_000_000 / 1448


def test_nothing_is_left_and_errors_are_one_line(seen: dict[str, Any]) -> None:
    left = seen["left"]
    assert left["during"]["interfaces"] == ["lo", "s1-eth1", "s1-eth2", "s2-eth1", "s2-eth2"]
    assert left["after"] == left["before"]
    assert left["at_last"] == left["before"]
    assert "s2-eth1" in left["message"]
    assert "File exists" in left["message"]
    assert "\n" not in left["message"]
