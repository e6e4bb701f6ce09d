"""Jobs over RoCE v2, from the hosts' frames to the switches' ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import Data
from echelon.model.jobs.spec import JobSpec, RecognitionSpec
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import Identity, identities_of
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.endhosts.roce.frames import ACKNOWLEDGE, parse
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario, Transport, load_scenario
from echelon_lab.virtual import run as virtual_run
from tests.echelon.lab.endhosts.conftest import fabric_of
from tests.faults import coded

TOPOLOGIES = Path(__file__).parents[5] / "topologies"
RECOGNITION: Any = {
    "by": "bytes",
    "protocol": "roce",
    "queue_pair": 0x100,
    "mtu": "1024 B",
    "idle_gap": "125 ms",
}
MESSAGE_BYTES = 16 * 1024
WINDOW_PACKETS = 8
SHORT_QUEUE_BYTES = (WINDOW_PACKETS - 1) * 1100
SLOW_HOSTS_BPS = 20_000_000
"""Twice the rate of the link that the jobs share."""


def ring(workers: int, gradient: int) -> JobSpec:
    names = tuple(f"h{number}" for number in range(1, workers + 1))
    data = Data(compute="20 ms", gradient=f"{gradient} B")  # type: ignore[arg-type]
    recognition = RecognitionSpec.model_validate(RECOGNITION)
    return JobSpec(
        job="ring", parallelism="data", workers=names, data=data, recognition=recognition
    )


class Rig:
    def __init__(self, clock: Any, hub: Any, spec: JobSpec, **settings: Any) -> None:
        self.clock, self.hub, self.job = clock, hub, build_job(spec)
        self.fabric = fabric_of(len(spec.workers))
        of_job: Mapping[str, Identity] = identities_of(self.job, 1, spec, self.fabric)
        identities = {(self.job.name, flow): identity for flow, identity in of_job.items()}
        nics = dict.fromkeys(self.fabric.hosts, hub)
        self.emulator = TrainingEmulator(
            clock, nics, self.fabric, [self.job], identities, **settings
        )
        for name, host in self.fabric.hosts.items():
            hub.attach(host.mac, self.emulator.hosts[name].deliver)

    def run(self) -> TrainingEmulator:
        self.emulator.start()
        self.clock.run(lambda: self.emulator.done)
        return self.emulator


def carried(rig: Rig) -> dict[tuple[str, int], int]:
    """Return the bytes of payload that went to each queue pair of each host."""
    names = {host.mac: name for name, host in rig.fabric.hosts.items()}
    out: dict[tuple[str, int], int] = {}
    for _, frame in rig.hub.link.frames:
        packet = parse(frame)
        assert packet is not None
        if packet.opcode != ACKNOWLEDGE:
            end = names[frame[:6].hex(":")], packet.dst_pair
            out[end] = out.get(end, 0) + packet.payload_bytes
    return out


def test_queue_pairs_carry_the_flows_of_every_iteration_in_full(clock: Any, toy_hub: Any) -> None:
    rig = Rig(clock, toy_hub(clock, 10**9), ring(3, 100_001), iterations=4, until="exactly")
    emulator = rig.run()
    assert len(emulator.records["ring"].finished) == 4
    pairs = {f"h{number}": 0x100 + number - 1 for number in (1, 2, 3)}
    assert carried(rig) == {
        (dst, pairs[src]): 4 * sum(flow.size_bytes for flow in flows)
        for (src, dst), flows in connections(rig.job).items()
    }
    assert emulator.reordered_packets == emulator.retransmitted_packets == {"ring": 0}


def test_losses_are_made_good(clock: Any, toy_hub: Any) -> None:
    rig = Rig(
        clock,
        toy_hub(clock, 10**8),
        ring(2, 300_000),
        iterations=5,
        until="exactly",
        transport=Transport(retransmit_after_s=Data(compute="100 ms", gradient="1 B").compute),  # type: ignore[arg-type]
    )
    rig.hub.link.fate = lambda number, frame: [] if number % 97 == 50 else [(0, frame)]
    emulator = rig.run()
    assert len(emulator.records["ring"].finished) == 5
    assert emulator.retransmitted_packets["ring"] > 5


def test_a_queue_pair_without_a_way_ends_the_run_with_its_name(clock: Any, toy_hub: Any) -> None:
    rig = Rig(clock, toy_hub(clock, 10**9), ring(2, 10_000), iterations=1)
    rig.hub.link.fate = lambda _number, _frame: []
    with pytest.raises(RunError, check=coded("run-failed", "job ring", "h1", "h2")):
        rig.run()


# -- through switches, with a controller -----------------------------------------------------------


def pair(**changes: Any) -> Scenario:
    """Return the committed scenario `roce_pair` at a quarter of its sizes and times."""
    made = load_scenario(TOPOLOGIES / "scenarios" / "roce_pair.yaml")
    specs = {}
    for name, spec in made.specs.items():
        data = Data(compute="500 ms", gradient="500 kB")  # type: ignore[arg-type]
        recognition = RecognitionSpec.model_validate(RECOGNITION)
        specs[name] = spec.model_copy(
            update={"data": data, "recognition": recognition, "start": spec.start / 4}
        )
    jobs: tuple[Job, ...] = tuple(build_job(spec) for spec in specs.values())
    transport = replace(made.transport, message_bytes=MESSAGE_BYTES)
    return replace(made, jobs=jobs, specs=specs, iterations=5, transport=transport, **changes)


@cache
def run(
    policy: str,
    queue_bytes: int | None = None,
    hosts_bps: int | None = None,
) -> tuple[PolicyRun, list[list[int]]]:
    """Return a run, and how many bytes the connections at each switch have brought at its end.

    `hosts_bps` is the rate of the hosts' links; None: that of the fabric's file.
    """
    scenario = pair(queue_bytes=queue_bytes)
    transport = replace(scenario.transport, window_packets=WINDOW_PACKETS)
    scenario = replace(scenario, transport=transport)
    if hosts_bps is not None:
        cables = []
        for cable in scenario.fabric.cables:
            cables.append(replace(cable, rate_bps=min(cable.rate_bps, hosts_bps)))
        scenario = replace(scenario, fabric=replace(scenario.fabric, cables=tuple(cables)))
    positions: list[list[int]] = []

    def observe(testbed: Any, _emulator: TrainingEmulator) -> None:
        for node in testbed.switches.values():
            cells = node.switch.registers["EchelonIngress.classifier.connection_bytes"].cells
            positions.append([bytes_ for bytes_ in cells if bytes_])

    result = virtual_run.run(
        scenario, policy, lambda: make_policy(policy), lambda _job, _iteration: None, observe
    )
    return result, positions


def iterations_s(result: PolicyRun) -> list[float]:
    """Return how long the iterations were after the second one of each job."""
    return [
        float(iteration.finish - iteration.start)
        for record in result.records.values()
        for iteration in record.finished[2:]
        if iteration.finish is not None
    ]


def mean_iteration_s(result: PolicyRun) -> float:
    return fmean(iterations_s(result))


def events_of_iterations(result: PolicyRun) -> list[float]:
    """Return how many digests each switch sent in an iteration of a job: of four flows, the start
    and the end.
    """
    finished = sum(len(record.finished) for record in result.records.values())
    return [switch.digests / finished for switch in result.switches.values()]


def test_two_jobs_fall_into_step_under_echelon_and_not_under_fair() -> None:
    (fair, _), (echelon, _) = run("fair"), run("echelon")
    for result in (fair, echelon):
        assert events_of_iterations(result) == pytest.approx([8, 8], rel=0.05)
        assert result.retransmitted == result.reordered == {"first": 0, "second": 0}
    # Alone 0.9 s, and headers of 7 % of 0.4 s; two in step do not meet. In each other's way: 1.3 s.
    assert mean_iteration_s(echelon) < 0.98
    assert mean_iteration_s(fair) > 1.25


def test_lost_packets_are_sent_again_and_inflate_no_position() -> None:
    """A window of eight packets overflows a queue of seven: one is lost each time, and sent again.

    Under echelon the jobs soon find their step, and both are ranked as if nothing had been lost:
    the switches count the same bytes as without losses.
    """
    (fair, _), (burst, _) = (run(policy, SHORT_QUEUE_BYTES) for policy in ("fair", "echelon"))
    echelon, positions = run("echelon", SHORT_QUEUE_BYTES, SLOW_HOSTS_BPS)
    lossless, expected = run("echelon", None, SLOW_HOSTS_BPS)
    assert all(count > 100 for count in fair.retransmitted.values())
    assert sum(burst.retransmitted.values()) > 0
    for result in (fair, burst, echelon):
        assert all(len(record.finished) >= 5 for record in result.records.values())
        # The last packet of a flow ends it again where it is sent again.
        assert all(7.6 < count < 9 for count in events_of_iterations(result))

    # The hosts of the fabric's file send a window again a hundred times as fast as it leaves. It
    # finds the queue half full of what it repeats, and loses packets once more, often until a
    # time-out of 2 s: acknowledgements go before all data, so the queue has no time to run empty.
    # Slower hosts lose packets, too, and no time.
    assert sum(echelon.retransmitted.values()) > 0
    assert sum(lossless.retransmitted.values()) == 0
    assert positions == expected
    assert mean_iteration_s(echelon) < min(0.98, 1.01 * mean_iteration_s(lossless))
    # Most iterations of the others have no time-out, and are as long as without losses.
    assert median(iterations_s(burst)) < 0.98
