"""Windows that fit paths: one transfer on fabrics from slow to fast and from near to far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import parse_document
from echelon.planning.policies import make_policy
from echelon.planning.windows import Windows
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario, ScenarioSpec, build_scenario
from echelon_lab.virtual import fluid_run
from echelon_lab.virtual import run as virtual_run

PACKET_BYTES = 1250
SIZE_BYTES = 800 * PACKET_BYTES
PATH = ("h1", "s1", "s2", "h2")
LINKS = [("h1", "s1"), ("s1", "s2"), ("s2", "h2")]


def scenario(rates: tuple[str, str, str], delay: str, **transport: object) -> Scenario:
    """Return one flow of 1 MB over three links."""
    recognition = transport.pop("recognition", {})
    links = [
        {"between": list(ends), "rate": rate, "delay": delay}
        for ends, rate in zip(LINKS, rates, strict=True)
    ]
    send = {"name": "go", "send": [0, 1], "bytes": f"{SIZE_BYTES} B"}
    job: dict[str, object] = {
        "job": "a",
        "workers": ["h1", "h2"],
        "parallelism": "graph",
        "graph": {"nodes": [send]},
    }
    if recognition:
        data = {"compute": "1 ms", "gradient": f"{SIZE_BYTES} B"}
        job = {"job": "a", "workers": ["h1", "h2"], "parallelism": "data", "data": data}
        job["recognition"] = recognition
    document = {
        "scenario": "transfer",
        "fabric": {"fabric": "f", "hosts": ["h1", "h2"], "switches": ["s1", "s2"], "links": links},
        "jobs": [job],
        "policies": ["fair"],
        "until": "exactly",
        "transport": transport,
    }
    return build_scenario(parse_document(ScenarioSpec, document, "x"), Path("x"))


def arithmetic_s(rates_bps: tuple[float, float, float], delay_s: float) -> float:
    """Return when the last of the packets, which are all full, has passed the last link."""
    packets_s = [8 * PACKET_BYTES / rate_bps for rate_bps in rates_bps]
    packets = SIZE_BYTES // PACKET_BYTES
    return sum(packets_s) + (packets - 1) * max(packets_s) + 3 * delay_s


def took_s(run: PolicyRun) -> float:
    [iteration] = run.records["a"].iterations
    assert iteration.finish is not None
    return float(iteration.finish - iteration.start)


def in_both(of: Scenario, policy: str) -> tuple[float, float]:
    """Return the time of the transfer as a fluid and from packets."""

    def make() -> Any:
        return make_policy(policy, **({"order": "left"} if policy == "echelon" else {}))

    def progress(_job: str, _iteration: int) -> None:
        pass

    fluid = fluid_run.run(of, policy, make, progress)
    return took_s(fluid), took_s(virtual_run.run(of, policy, make, progress))


@pytest.mark.io
@pytest.mark.parametrize("policy", ["fair", "echelon"])
@pytest.mark.parametrize(
    ("rates", "rates_bps", "delay", "delay_s"),
    [
        (("10 Mbit/s",) * 3, (1e7,) * 3, "1 us", 1e-6),
        (("10 Mbit/s",) * 3, (1e7,) * 3, "30 ms", 0.03),
        (("400 Gbit/s",) * 3, (4e11,) * 3, "1 us", 1e-6),
        (("400 Gbit/s",) * 3, (4e11,) * 3, "50 ms", 0.05),
        (("1 Gbit/s", "100 Mbit/s", "400 Mbit/s"), (1e9, 1e8, 4e8), "1 ms", 1e-3),
    ],
)
def test_a_transfer_takes_what_arithmetic_says(
    policy: str,
    rates: tuple[str, str, str],
    rates_bps: tuple[float, float, float],
    delay: str,
    delay_s: float,
) -> None:
    of = scenario(rates, delay)
    expected_s = arithmetic_s(rates_bps, delay_s)
    fluid_s, packets_s = in_both(of, policy)
    assert fluid_s == pytest.approx(expected_s, rel=1e-3)
    assert packets_s == pytest.approx(expected_s, rel=1e-3)
    assert float(alone_iterations_s(of)["a"]) == pytest.approx(expected_s, rel=1e-3)


@pytest.mark.io
def test_a_window_that_is_given_is_kept() -> None:
    """Eight packets in a round trip of 60 ms and more, whatever the rate of the links."""
    rates = ("100 Mbit/s",) * 3
    _, packets_s = in_both(scenario(rates, "10 ms", window=8, initial_window=8), "echelon")
    assert packets_s > SIZE_BYTES / PACKET_BYTES / 8 * 0.06


@pytest.mark.parametrize(("delay", "held"), [("0 s", 6), ("10 ms", 6 + 48)])
def test_a_window_is_what_its_path_holds_and_four_more(delay: str, held: int) -> None:
    """Three links there and back hold a packet each. A packet takes 1.25 ms, and 60 ms of delay
    hold 48 of them.
    """
    fabric = scenario(("8 Mbit/s",) * 3, delay).fabric
    windows = Windows(PACKET_BYTES, None, None)
    assert windows.on_path(PATH, fabric).shared == held + 4
    assert windows.over([PATH], fabric).on_path(PATH, fabric).single == held + 4


def test_flows_without_deadlines_have_equal_windows_up_to_four_times_their_own() -> None:
    fabric = scenario(("8 Mbit/s",) * 3, "0 s").fabric
    windows = Windows(PACKET_BYTES, None, None)
    assert replace(windows, longest=25).on_path(PATH, fabric).single == 25
    assert replace(windows, longest=1000).on_path(PATH, fabric).single == 40


def test_a_window_that_cannot_fill_a_path_is_named_with_what_it_can() -> None:
    """Eight of 6 + 48 packets are 15 % of the rate."""
    rates = ("8 Mbit/s",) * 3
    [note] = scenario(rates, "10 ms", window=8).notes
    assert "8 packets" in note
    assert "holds 54" in note
    assert "15 %" in note
    assert "58" in note
    assert scenario(rates, "10 ms", window=54).notes == ()
    assert scenario(rates, "10 ms").notes == ()


def test_a_receive_window_that_cannot_fill_a_path_is_named_too() -> None:
    """A gigabit for 60 ms and more is 7.5 MB."""
    by_bytes = {
        "by": "bytes",
        "protocol": "tcp",
        "source_port": 5000,
        "destination_port": 6000,
        "idle_gap": "50 ms",
    }
    [note] = scenario(("1 Gbit/s",) * 3, "10 ms", recognition=by_bytes).notes
    assert "transport.receive_window: 1000000 B" in note
    assert "13 %" in note
    assert scenario(("10 Mbit/s",) * 3, "10 ms", recognition=by_bytes, window=1).notes == ()
