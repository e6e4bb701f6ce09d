"""Jobs over TCP: whose bytes are whose is told by their order on each connection."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.model.jobs.paradigms.data import Data
from echelon.model.jobs.paradigms.pipeline import Pipeline
from echelon.model.jobs.spec import JobSpec, RecognitionSpec
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import SegmentIdentity, identities_of
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.endhosts.tcp.frames import parse
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual import run as virtual_run
from tests.echelon.lab.endhosts.conftest import fabric_of
from tests.faults import coded

MS = Fraction(1, 1000)
TOPOLOGIES = Path(__file__).parents[4] / "topologies"
RECOGNITION = RecognitionSpec(
    by="bytes",
    source_port=5001,
    destination_port=5002,
    idle_gap="50 ms",  # type: ignore[arg-type]
)


def ring(workers: int, gradient: int) -> JobSpec:
    names = tuple(f"h{number}" for number in range(1, workers + 1))
    data = Data(compute="20 ms", gradient=f"{gradient} B")  # type: ignore[arg-type]
    return JobSpec(
        job="ring", parallelism="data", workers=names, data=data, recognition=RECOGNITION
    )


def segments(job: Job, fabric: Fabric) -> dict[tuple[str, str], SegmentIdentity]:
    spec = ring(2, 1000)
    of_job = identities_of(job, 1, spec, fabric)
    return {
        (job.name, flow): identity
        for flow, identity in of_job.items()
        if isinstance(identity, SegmentIdentity)
    }


class Rig:
    def __init__(self, clock: Any, hub: Any, job: Job, hosts: int, **settings: Any) -> None:
        self.clock, self.hub, self.job = clock, hub, job
        self.fabric = fabric_of(hosts)
        self.emulator = TrainingEmulator(
            clock,
            dict.fromkeys(self.fabric.hosts, hub),
            self.fabric,
            [job],
            segments(job, self.fabric),
            **settings,
        )
        for name, host in self.fabric.hosts.items():
            hub.attach(host.mac, self.emulator.hosts[name].deliver)

    def run(self) -> TrainingEmulator:
        self.emulator.start()
        self.clock.run(lambda: self.emulator.done)
        return self.emulator

    def carried(self) -> dict[tuple[str, str], int]:
        """Return the bytes of payload by connection, retransmissions included."""
        names = {host.ipv4: name for name, host in self.fabric.hosts.items()}
        out: dict[tuple[str, str], int] = defaultdict(int)
        for _, frame in self.hub.link.frames:
            if parse(frame).length_bytes:
                src, dst = (".".join(map(str, frame[at : at + 4])) for at in (26, 30))
                out[names[src], names[dst]] += parse(frame).length_bytes
        return dict(out)


def test_a_connection_carries_the_flows_of_every_iteration_in_full(
    clock: Any, toy_hub: Any
) -> None:
    job = build_job(ring(3, 100_001))
    rig = Rig(clock, toy_hub(clock, 10**9), job, 3, iterations=4, until="exactly")
    emulator = rig.run()
    assert len(emulator.records["ring"].finished) == 4
    assert rig.carried() == {
        ends: 4 * sum(flow.size_bytes for flow in flows) for ends, flows in connections(job).items()
    }
    assert emulator.reordered_packets == emulator.retransmitted_packets == {"ring": 0}
    # From the ports that the job's file names, and without a handshake: the job is there before the
    # run begins.
    for _, frame in rig.hub.link.frames:
        assert frame[34:38] in (bytes.fromhex("1389138a"), bytes.fromhex("138a1389"))
        assert not parse(frame).flags & 2


def test_flows_finish_when_their_last_byte_arrives(clock: Any, toy_hub: Any) -> None:
    job = Job(
        "one",
        (
            ComputeUnit("produce", "h1", 10 * MS),
            ComputeUnit("consume", "h2", 10 * MS, ("transfer",)),
        ),
        (Flow("transfer", "h1", "h2", 10 * 1184, ("produce",)),),
        (EchelonFlow("formation", ("transfer",), (Fraction(0),)),),
    )
    emulator = Rig(clock, toy_hub(clock, 10_000_000, 1000), job, 2, iterations=1).run()
    [iteration] = emulator.records["one"].iterations
    # Ten packets of 1 ms in the first window. Acknowledgements share the link, but wait behind all
    # ten.
    assert iteration.flows["transfer"].start == 10 * MS
    assert iteration.flows["transfer"].finish == 20 * MS + Fraction(1000, 10**9)
    assert iteration.finish == 30 * MS + Fraction(1000, 10**9)


def test_a_flow_waits_for_those_before_it_on_its_connection(clock: Any, toy_hub: Any) -> None:
    """`late` comes first on an infinitely fast network, where the way over h3 takes no time; here
    it takes longer than computing does, so that `early` is ready first, and has to wait."""
    job = Job(
        "crossed",
        (
            ComputeUnit("a", "h1", 1 * MS),
            ComputeUnit("b", "h1", 2 * MS),
        ),
        (
            Flow("there", "h1", "h3", 50_000, ("a",)),
            Flow("back", "h3", "h1", 50_000, ("there",)),
            Flow("late", "h1", "h2", 1000, ("back",)),
            Flow("early", "h1", "h2", 1000, ("b",)),
        ),
        (),
    )
    assert [flow.name for flow in connections(job)["h1", "h2"]] == ["late", "early"]
    emulator = Rig(clock, toy_hub(clock, 10_000_000), job, 3, iterations=3).run()
    for iteration in emulator.records["crossed"].finished:
        late, early = iteration.flows["late"], iteration.flows["early"]
        assert early.start < late.start
        assert late.finish is not None
        assert early.finish is not None
        assert late.start < late.finish <= early.finish


def test_a_connection_without_a_way_ends_the_run_with_its_name(clock: Any, toy_hub: Any) -> None:
    rig = Rig(clock, toy_hub(clock, 10**9), build_job(ring(2, 10_000)), 2, iterations=1)
    rig.hub.link.fate = lambda _number, _frame: []
    with pytest.raises(RunError, check=coded("run-failed", "job ring", "h1", "h2", "15")):
        rig.run()


def test_losses_are_made_good(clock: Any, toy_hub: Any) -> None:
    job = build_job(ring(2, 300_000))
    rig = Rig(clock, toy_hub(clock, 10**8), job, 2, iterations=5, until="exactly")
    rig.hub.link.fate = lambda number, frame: [] if number % 97 == 50 else [(0, frame)]
    emulator = rig.run()
    assert len(emulator.records["ring"].finished) == 5
    assert emulator.retransmitted_packets["ring"] > 5


# -- through switches, with a controller -----------------------------------------------------------


def pair(idle_gap_s: Fraction = Fraction(1, 4), iterations: str = "silence") -> Scenario:
    """Return the committed scenario `dp_pair` at a quarter of its sizes and times, over TCP."""
    made = load_scenario(TOPOLOGIES / "scenarios" / "dp_pair.yaml")
    specs = {}
    for name, spec in made.specs.items():
        data = Data(compute="500 ms", gradient="625 kB")  # type: ignore[arg-type]
        recognition = RECOGNITION.model_copy(
            update={"idle_gap": idle_gap_s, "iterations": iterations}
        )
        specs[name] = spec.model_copy(
            update={"data": data, "recognition": recognition, "start": spec.start / 4}
        )
    jobs = tuple(build_job(spec) for spec in specs.values())
    return replace(made, jobs=jobs, specs=specs, iterations=5)


def run(scenario: Scenario, policy: str) -> PolicyRun:
    return virtual_run.run(
        scenario, policy, lambda: make_policy(policy), lambda _job, _iteration: None
    )


def mean_iteration_s(result: PolicyRun) -> float:
    times = [
        float(iteration.finish - iteration.start)
        for record in result.records.values()
        for iteration in record.finished[2:]
        if iteration.finish is not None
    ]
    return sum(times) / len(times)


@pytest.mark.parametrize(
    ("idle_gap_s", "iterations"), [(Fraction(1, 4), "silence"), (Fraction(60), "bytes")]
)
def test_jobs_over_tcp_are_ranked_by_their_bytes(idle_gap_s: Fraction, iterations: str) -> None:
    """Ranking works as over the shim's transport: echelon lets two jobs fall into step, fair keeps
    them contending.

    By bytes, there is no silence of a minute anywhere.
    """
    scenario = pair(idle_gap_s, iterations)
    fair, echelon = run(scenario, "fair"), run(scenario, "echelon")
    # The switches saw the flows of every iteration begin and end: four of each.
    for result in (fair, echelon):
        finished = sum(len(record.finished) for record in result.records.values())
        for switch in result.switches.values():
            assert switch.digests > 0.95 * 2 * 4 * finished
    # Alone 1 s, and headers of 4.5 %; two in step do not meet. In each other's way: 1.5 s.
    assert mean_iteration_s(echelon) < 1.12
    assert mean_iteration_s(fair) > 1.4


def test_without_silence_and_bytes_no_second_iteration_is_seen() -> None:
    result = run(pair(Fraction(60)), "echelon")
    finished = sum(len(record.finished) for record in result.records.values())
    assert all(switch.digests < 0.6 * 2 * 4 * finished for switch in result.switches.values())


@pytest.mark.parametrize("policy", ["fair", "varys", "echelon"])
def test_flows_of_one_connection_stay_in_order(policy: str) -> None:
    """Fig. 2 at a quarter, over one TCP connection: whatever queues its flows get, none overtakes
    the one before, and they come one after another under every policy: 8 units of 250 ms, 6 of them
    with 5.6 % of headers."""
    made = load_scenario(TOPOLOGIES / "scenarios" / "fig2.yaml")
    [spec] = made.specs.values()
    pipeline = Pipeline(micro_batches=3, forward="250 ms", activation="625 kB")  # type: ignore[arg-type]
    recognition = RECOGNITION.model_copy(update={"idle_gap": Fraction(1, 10)})
    spec = spec.model_copy(update={"pipeline": pipeline, "recognition": recognition})
    result = run(
        replace(made, jobs=(build_job(spec),), specs={spec.job: spec}, iterations=2), policy
    )
    assert result.reordered == {"pipeline": 0}
    headers = 6 * (1250 / 1184 - 1)
    for iteration in result.records["pipeline"].finished:
        assert iteration.finish is not None
        assert float(iteration.finish - iteration.start) / 0.25 == pytest.approx(
            8 + headers, rel=0.02
        )
