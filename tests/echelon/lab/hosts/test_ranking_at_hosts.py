"""Hosts that rank, on real sockets, and switches that serve by code point."""

from __future__ import annotations

import pytest

from tests.echelon.lab.hosts.conftest import Start, fig2
from tests.faults import mentions

pytestmark = [pytest.mark.wide, pytest.mark.xdist_group("hosts")]


def test_switches_hold_routes_alone_and_tell_nothing(start: Start) -> None:
    document = start(fig2(0.05, iterations=2), "--target", "dscp", "echelon").document()
    measured = document["results"]["results"]["echelon"]
    assert len(measured["jobs"]["pipeline"]["iteration_times_s"]) == 2
    for switch in measured["switches"].values():
        # Two hosts by address and by station, and thresholds of eight queues at two ports.
        assert (switch["entries"], switch["digests"]) == (2 + 2 + 16, 0)


def test_a_job_that_emulated_hosts_cannot_rank_is_refused(start: Start) -> None:
    scenario = fig2(0.05)
    (job,) = scenario["jobs"]
    job["recognition"] = {
        "by": "bytes",
        "source_port": 5001,
        "destination_port": 5002,
        "idle_gap": "150 ms",
    }
    status, _, errors = start(scenario, "--target", "dscp", "echelon").end()
    assert status != 0
    assert mentions(errors, "job pipeline", "bytes", "shim")
