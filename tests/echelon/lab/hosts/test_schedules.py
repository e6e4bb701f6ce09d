"""Scheduling gains on real sockets what it gains in the model: real time, so these want a quiet
machine.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.echelon.lab.hosts.conftest import Start, fig2
from tests.needs import needs

pytestmark = pytest.mark.quiet

UNIT_S = 0.4


def finish_units(document: dict[str, Any], policy: str) -> float:
    """Return the time at which the second worker has computed on the last micro-batch, in units of
    Fig. 2.
    """
    finish: float = document["results"]["results"][policy]["jobs"]["pipeline"]["compute_finish_s"]
    return finish / UNIT_S


@pytest.mark.parametrize("attempt", range(10))
def test_fig2_in_the_order_of_the_paper(start: Start, attempt: int) -> None:
    document = start(fig2(UNIT_S), "fair", "varys", "echelon").document()
    fair, varys, echelon = (
        finish_units(document, policy) for policy in ("fair", "varys", "echelon")
    )
    print(
        f"fair {fair:.3f}, varys {varys:.3f}, echelon {echelon:.3f} units; by the paper 8.5, 10, 8"
    )
    assert echelon < fair < varys
    assert abs(echelon - 8) <= 0.05 * 8


@pytest.mark.bmv2
@needs("bmv2")
@pytest.mark.parametrize("attempt", range(3))
def test_fig2_on_bmv2(start: Start, attempt: int) -> None:
    document = start(fig2(UNIT_S), "--target", "bmv2", "fair", "varys", "echelon").document()
    fair, varys, echelon = (
        finish_units(document, policy) for policy in ("fair", "varys", "echelon")
    )
    print(
        f"fair {fair:.3f}, varys {varys:.3f}, echelon {echelon:.3f} units; by the paper 8.5, 10, 8"
    )
    assert echelon < fair < varys
    assert abs(echelon - 8) <= 0.05 * 8


@needs("mininet")
def test_fig2_on_mininet(start: Start) -> None:
    document = start(fig2(UNIT_S), "--backend", "mininet", "fair", "echelon").document()
    fair, echelon = (finish_units(document, policy) for policy in ("fair", "echelon"))
    print(f"fair {fair:.3f}, echelon {echelon:.3f} units; by the paper 8.5, 8")
    assert echelon < fair
    assert abs(echelon - 8) <= 0.05 * 8


def test_unmodified_tcp_is_recognised_by_its_bytes(start: Start) -> None:
    """One connection is one stream of bytes: whatever the policy, it carries the flows one after
    the other, which for Fig. 2 is the best order. Switches tell them apart all the same: every
    start and end is reported by both of them."""
    iterations = 3
    scenario = fig2(UNIT_S, iterations=iterations, transport={"receive_window": "32 kB"})
    (job,) = scenario["jobs"]
    # 1250 bytes on the wire have 1184 of payload, with time stamps.
    job["pipeline"]["activation"] = f"{round(2.5e6 * UNIT_S * 1184 / 1250)} B"
    job["recognition"] = {
        "by": "bytes",
        "source_port": 5001,
        "destination_port": 5002,
        "idle_gap": "150 ms",
    }
    document = start(scenario, "fair", "echelon").document()
    for policy in ("fair", "echelon"):
        measured = document["results"]["results"][policy]
        of_job = measured["jobs"]["pipeline"]
        print(policy, of_job["iteration_times_s"], document["retransmitted"][policy])
        assert all(
            abs(time_s - 8 * UNIT_S) <= 0.05 * 8 * UNIT_S for time_s in of_job["iteration_times_s"]
        )
        flows = len(of_job["flows"])
        assert flows == 3 * iterations
        assert [switch["digests"] for switch in measured["switches"].values()] == [2 * flows] * 2
