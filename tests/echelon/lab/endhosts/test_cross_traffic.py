"""Cross traffic of an emulation: begun when it is due whatever became of it before, counted flow by
flow.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import number_shims
from echelon_lab.endhosts import cross_traffic
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.endhosts.tcp.frames import ECE, SYN, parse
from echelon_lab.scenarios import results
from echelon_lab.scenarios.results import PolicyRun, common_end_s, compared
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.outcome import summary
from echelon_lab.traffic.schedule import PacedFlow, Schedule, ScheduledFlow
from echelon_lab.virtual import run as virtual_run
from tests.echelon.lab.endhosts.conftest import fabric_of

MS = Fraction(1, 1000)
RATE_BPS = 10_000_000
MSS = 1184


def job_of(compute_s: Fraction) -> Job:
    """Return a job whose computing time sets the length of the run."""
    return Job(
        "job",
        (ComputeUnit("produce", "h1", compute_s),),
        (Flow("transfer", "h1", "h2", 100, ("produce",)),),
        (EchelonFlow("formation", ("transfer",), (Fraction(0),)),),
    )


class Rig:
    def __init__(
        self, clock: Any, hub: Any, sources: list[TrafficSource], lasts_s: Fraction
    ) -> None:
        self.clock, self.hub = clock, hub
        fabric = fabric_of(4)
        jobs = [job_of(lasts_s)]
        self.emulator = TrainingEmulator(
            clock,
            dict.fromkeys(fabric.hosts, hub),
            fabric,
            jobs,
            number_shims(jobs),
            iterations=1,
            traffic=sources,
        )
        for name, host in fabric.hosts.items():
            hub.attach(host.mac, self.emulator.hosts[name].deliver)

    def run(self) -> TrainingEmulator:
        self.emulator.start()
        self.clock.run(lambda: self.emulator.done)
        return self.emulator

    def sent(self) -> list[tuple[int, bytes]]:
        """Return the frames of TCP's data and SYNs, without answers."""
        return [
            (at, frame)
            for at, frame in self.hub.link.frames
            if frame[23] == 6 and frame[36:38] == b"\0\x09"
        ]


@pytest.fixture
def hub(clock: Any, toy_hub: Any) -> Any:
    return toy_hub(clock, RATE_BPS, 1000)


def scheduled(*flows: ScheduledFlow) -> Schedule:
    return Schedule(flows, flows[-1].start_us)


def test_every_flow_has_its_connection_time_and_bytes(clock: Any, hub: Any) -> None:
    flows = (
        ScheduledFlow(1000, "h3", "h4", 10 * MSS),
        ScheduledFlow(1000, "h4", "h3", 1),
        ScheduledFlow(50_000, "h3", "h4", 7),
    )
    rig = Rig(clock, hub, [TrafficSource("web", scheduled(*flows), ecn=True)], Fraction(1))
    outcomes = rig.run().traffic.outcomes["web"]
    assert tuple(outcome.flow for outcome in outcomes) == flows
    assert [outcome.started_s for outcome in outcomes] == [0.001, 0.001, 0.05]
    assert all(outcome.finished_s is not None and outcome.failed is None for outcome in outcomes)
    # SYN, its answer (62 bytes with their options), and ten packets of 1 ms; other frames are on
    # the line as well.
    assert 0.011 < outcomes[0].finished_s < 0.0115  # type: ignore[operator]
    assert outcomes[2].completion_s == pytest.approx(0.0002, abs=1e-4)
    syns = [
        (round(at / 1000), frame[26:38]) for at, frame in rig.sent() if parse(frame).flags & SYN
    ]
    assert [at for at, _ in syns] == [1000, 1000, 50_000]
    assert len({key for _, key in syns}) == 3
    assert all(parse(frame).flags & ECE for _, frame in rig.sent() if parse(frame).flags & SYN)
    assert sum(parse(frame).length_bytes for _, frame in rig.sent()) == 10 * MSS + 1 + 7
    found = summary(outcomes, 0.0, 1.0)
    assert (found.flows, found.unfinished, found.failed) == (3, 0, 0)
    assert found.offered_bps == pytest.approx((10 * MSS + 8) * 8, rel=1e-3)
    assert found.achieved_bps == pytest.approx(found.offered_bps)


def test_starts_do_not_wait_for_flows_before(clock: Any, hub: Any) -> None:
    """Half of twice a link's capacity has not arrived when the run ends, and is not lost from the
    books.
    """
    flows = [ScheduledFlow(number * 10_000, "h3", "h4", 25_000) for number in range(100)]
    emulator = Rig(clock, hub, [TrafficSource("web", scheduled(*flows))], Fraction(1)).run()
    outcomes = emulator.traffic.outcomes["web"]
    assert [outcome.started_s for outcome in outcomes] == [number / 100 for number in range(100)]
    found = summary(outcomes, 0.0, clock.now_ns / 1e9)
    assert found.flows == 100
    assert found.achieved_bps == pytest.approx(RATE_BPS * 1184 / 1250, rel=0.05)
    assert 20 < found.unfinished < 70
    assert all(
        outcome.received is not None and 0 <= outcome.received[1] < 25_000
        for outcome in outcomes
        if outcome.finished_s is None
    )


def test_nothing_begins_or_counts_after_the_end(clock: Any, hub: Any) -> None:
    flows = [ScheduledFlow(number * 1000, "h3", "h4", 1000) for number in range(200)]
    rig = Rig(clock, hub, [TrafficSource("web", scheduled(*flows))], Fraction(1, 10))
    emulator = rig.run()
    end_ns, frames = clock.now_ns, len(hub.link.frames)
    before = emulator.traffic.outcomes["web"]
    clock.run()
    assert emulator.traffic.outcomes["web"] == before
    assert len(hub.link.frames) == frames
    assert len(before) == end_ns // 1_000_000 + 1


def pieces(count: int, rate_bps: int, connection: int = 0, src: str = "h3") -> list[PacedFlow]:
    """Return flows of 100 ms each."""
    return [
        PacedFlow(n * 100_000, src, "h4", rate_bps // 80, rate_bps, connection)
        for n in range(count)
    ]


def test_long_flows_keep_their_rate_on_one_connection(clock: Any, hub: Any) -> None:
    flows = sorted(
        [*pieces(10, 800_000), *pieces(10, 1_600_000, 1)], key=lambda flow: flow.start_us
    )
    rig = Rig(clock, hub, [TrafficSource("long", scheduled(*flows))], Fraction(1) + 50 * MS)
    outcomes = rig.run().traffic.outcomes["long"]
    assert len({frame[26:38] for _, frame in rig.sent()}) == 2
    for outcome in outcomes:
        # The first segment of a piece goes when it is due, the last a segment's time before the
        # next piece's first.
        assert outcome.started_s == pytest.approx(outcome.flow.start_us / 1e6, abs=0.013)
        assert outcome.completion_s == pytest.approx(0.1, abs=0.013)
    of_first = [
        at
        for at, frame in rig.sent()
        if frame[26:38] == rig.sent()[0][1][26:38] and parse(frame).length_bytes
    ]
    spaces = {later - sooner for sooner, later in pairwise(of_first)}
    # 1184 bytes at 800 kbit/s, less where a piece's last segment is shorter.
    assert max(spaces) <= 11_960_000 + 2_000_000


def test_a_long_flow_that_was_held_up_catches_up(clock: Any, hub: Any) -> None:
    def held(_number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [(max(0, 300_000_000 - clock.now_ns) if frame[23] == 6 else 0, frame)]

    hub.link.fate = held
    flows = pieces(10, 800_000)
    emulator = Rig(
        clock, hub, [TrafficSource("long", scheduled(*flows))], Fraction(1) + 50 * MS
    ).run()
    outcomes = emulator.traffic.outcomes["long"]
    assert outcomes[0].finished_s is not None
    assert outcomes[0].finished_s > 0.3
    # By its end it is where it would have been.
    assert outcomes[-1].finished_s == pytest.approx(1.0, abs=0.02)


def test_a_flow_without_a_way_fails_and_nothing_else_does(clock: Any, hub: Any) -> None:
    def island(_number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [] if frame[30:34] == bytes([10, 0, 0, 2]) and frame[23] == 6 else [(0, frame)]

    hub.link.fate = island
    flows = (
        ScheduledFlow(0, "h3", "h2", 100),
        ScheduledFlow(10, "h3", "h4", 100),
        PacedFlow(20, "h4", "h2", 1000, 8000, 0),
        PacedFlow(2_000_000_000, "h4", "h2", 1000, 8000, 0),
    )
    emulator = Rig(clock, hub, [TrafficSource("web", scheduled(*flows))], Fraction(3000)).run()
    lost, fine, paced, later = emulator.traffic.outcomes["web"]
    assert (lost.finished_s, fine.failed) == (None, None)
    assert (
        lost.failed
        == paced.failed
        == later.failed
        == "nothing was acknowledged through 15 time-outs"
    )
    assert summary(emulator.traffic.outcomes["web"], 0.0, 3000.0).failed == 3


def test_a_host_has_only_so_many_ports(
    clock: Any, hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_traffic, "_PORTS", range(40000, 40003))
    flows = [ScheduledFlow(number, "h3", "h4", 100_000) for number in range(5)]
    flows.append(ScheduledFlow(900_000, "h3", "h4", 10))
    emulator = Rig(clock, hub, [TrafficSource("web", scheduled(*flows))], Fraction(1)).run()
    outcomes = emulator.traffic.outcomes["web"]
    assert [outcome.failed for outcome in outcomes] == [None] * 3 + [
        "host h3 has no port left"
    ] * 2 + [None]
    assert [outcome.finished_s is None for outcome in outcomes] == [False] * 3 + [True] * 2 + [
        False
    ]


# -- through a switch, with a controller -----------------------------------------------------------

MADE = """\
scenario: made
fabric:
  fabric: one
  hosts: [h1, h2, h3, h4]
  switches: [s1]
  links:
    - {{between: [h1, s1], rate: 20 Mbit/s}}
    - {{between: [h2, s1], rate: 20 Mbit/s}}
    - {{between: [h3, s1], rate: 20 Mbit/s}}
    - {{between: [h4, s1], rate: 20 Mbit/s}}
jobs:
  - {{job: job, parallelism: data, workers: [h1, h2], data: {{compute: {compute}, gradient: 100 kB}}}}
policies: [fifo, echelon]
iterations: {iterations}
transport: {{packet: 9000 B}}
queue: 300 kB
traffic:
  - {{name: web, model: consistent, src: [h3, h1], dst: h2, load: {load}, size_scale: 0.01}}
"""


def made(folder: Path, **values: object) -> Scenario:
    file = folder / "made.yaml"
    file.write_text(MADE.format(**values))
    return load_scenario(file)


def run(scenario: Scenario, policy: str) -> PolicyRun:
    return virtual_run.run(
        scenario, policy, lambda: make_policy(policy), lambda _job, _iteration: None
    )


@pytest.mark.parametrize("per_cent", [10, pytest.param(50, marks=pytest.mark.long), 90])
def test_the_load_is_what_was_asked_for(tmp_path: Path, per_cent: int) -> None:
    """The load is that of the link to h2, headers included; unfinished flows count as far as they
    have come.
    """
    payload_bps = round(20_000_000 * per_cent / 100 * 8934 / 9000)
    scenario = made(tmp_path, compute="40 s", iterations=1, load=f"{payload_bps} bit/s")
    result = run(scenario, "fifo")
    found = compared(scenario, {"fifo": result.traffic_flows}, common_end_s(scenario, [result]))[
        "fifo"
    ]["web"]
    assert found.offered_bps == pytest.approx(payload_bps, rel=0.01)
    assert found.achieved_bps == pytest.approx(payload_bps, rel=0.01)
    assert found.failed == 0
    assert len(result.traffic_flows["web"]) == found.flows


def test_jobs_come_before_cross_traffic_under_echelon(tmp_path: Path) -> None:
    scenario = made(tmp_path, compute="20 ms", iterations=60, load="12 Mbit/s")
    fifo, echelon = run(scenario, "fifo"), run(scenario, "echelon")

    def mean_s(result: PolicyRun) -> float:
        times = [
            float(i.finish - i.start)
            for i in result.records["job"].finished
            if i.finish is not None
        ]
        return sum(times) / len(times)

    assert mean_s(echelon) < 0.9 * mean_s(fifo)
    assert echelon.reordered == fifo.reordered == {"job": 0}
    # What it costs the others is counted on their side.
    flows = {"fifo": fifo.traffic_flows, "echelon": echelon.traffic_flows}
    of = compared(scenario, flows, common_end_s(scenario, [fifo, echelon]))
    (theirs, first), (ours, second) = (
        (of[name]["web"], of[name]["web"].mean_completion_s) for name in of
    )
    assert theirs.flows == ours.flows
    assert first is not None
    assert second is not None
    assert second > first


def test_the_same_seed_gives_the_same_results(tmp_path: Path) -> None:
    scenario = made(tmp_path, compute="20 ms", iterations=10, load="12 Mbit/s")

    def text(seed: int) -> str:
        seeded = replace(scenario, seed=seed)
        return results.to_text(
            results.assemble(seeded, "softswitch", {"fifo": run(seeded, "fifo")})
        )

    first = text(1)
    assert '"achieved_bps"' in first
    assert text(1) == first
    assert text(2) != first


def test_a_queue_is_as_deep_as_the_scenario_says(tmp_path: Path) -> None:
    flows = tuple(ScheduledFlow(0, src, "h4", 1_000_000) for src in ("h1", "h3"))
    scenario = made(tmp_path, compute="1 s", iterations=1, load="1 Mbit/s")
    scenario = replace(scenario, traffic=(TrafficSource("bulk", scheduled(*flows)),))
    peaks = {}
    for queue_bytes in (None, 60_000):

        def observe(testbed: Any, _emulator: Any, queue_bytes: int | None = queue_bytes) -> None:
            ports = testbed.switches["s1"].ports.values()
            peaks[queue_bytes] = max(stats.peak_bytes for port in ports for stats in port.stats)

        virtual_run.run(
            replace(scenario, queue_bytes=queue_bytes),
            "fifo",
            lambda: make_policy("fifo"),
            lambda _job, _iteration: None,
            observe,
        )
    assert peaks[60_000] <= 60_000 < peaks[None]
