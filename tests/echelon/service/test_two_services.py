"""Two services that were given the same switch."""

from __future__ import annotations

import pytest
from finsy.proto import p4r

from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import LINE, Switch, ring, settle

pytestmark = pytest.mark.long


def entries(switch: Switch, service: str) -> list[bytes]:
    """Return the entries that a service has on the switch, in some fixed order."""
    mark = f"echelon:{service}".encode()
    held: list[p4r.TableEntry] = switch.entries()
    return sorted(
        entry.SerializeToString(deterministic=True) for entry in held if entry.metadata == mark
    )


def test_neither_changes_the_others_entries_and_both_slow_down(build: Build) -> None:
    lab = build(LINE)
    switch = lab.switches["s1"]
    first = lab.daemon()
    with lab.client(first) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
    before = entries(switch, "lab")
    assert before
    second = lab.daemon("second", service="second", store="sqlite:second.db")
    second.wait_event("leading")
    for daemon in (first, second):
        daemon.wait_event("a switch obeys a controller of a higher election id", takeovers=5)
        assert entries(switch, "lab") == before
    pauses = [
        one["taken_back_in_s"]
        for one in first.events("a switch obeys a controller of a higher election id")
    ]
    assert pauses[:5] == [0.0, 0.0, 0.0, 5.0, 10.0]
