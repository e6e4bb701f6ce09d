"""Scenario files: what each key becomes, and that the committed scenarios are what they say."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import pytest
from reference import job_mix

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.model.fabric.routing import route
from echelon.model.jobs import load_job
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.planning.fluid import alone_iteration_s
from echelon.switches.lowering.identity import SegmentIdentity, ShimIdentity
from echelon_lab.scenarios.scenario import (
    Background,
    Delay,
    PolicyChoice,
    Scenario,
    Transport,
    load_scenario,
)
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.generators import Burst, Consistent, Long
from echelon_lab.traffic.schedule import ScheduledFlow
from echelon_lab.traffic.sizes import load_sizes
from tests.faults import coded

ROOT = Path(__file__).parents[3]
TOPOLOGIES = ROOT / "topologies"
SCENARIOS = sorted((TOPOLOGIES / "scenarios").glob("*.yaml"))

LINKS = "[{between: [h1, s], rate: 1 Gbit/s}, {between: [h2, s], rate: 1 Gbit/s}]"
FABRIC = f"{{fabric: f, hosts: [h1, h2], switches: [s], links: {LINKS}}}"
JOB = (
    "{job: d, parallelism: data, workers: [h1, h2], start: 10 ms, weight: 2.5, data: {compute: 1 s,"
    " gradient: 5 MB}}"
)


def scenario(folder: Path, more: str = "") -> Scenario:
    file = folder / "s.yaml"
    file.write_text(f"scenario: s\nfabric: {FABRIC}\njobs: [{JOB}]\npolicies: [fair]\n{more}")
    return load_scenario(file)


def test_defaults(tmp_path: Path) -> None:
    s = scenario(tmp_path)
    assert (s.name, s.description, s.file) == ("s", "", tmp_path / "s.yaml")
    assert (s.iterations, s.until, s.seed) == (1, "all-done", 0)
    assert s.transport == Transport(1250, None, Fraction(2), None)
    assert (s.control_latency_s, s.stop_controller_after_iteration, s.profile_error) == (0, None, 0)
    assert (s.delays, s.background, s.traffic) == ((), (), ())
    assert (s.compute, s.queue_bytes, s.ecn_threshold_packets) == ("timed", None, None)
    assert list(s.specs) == ["d"]
    assert s.policies == (PolicyChoice("fair"),)
    assert s.jobs[0].start_s == Fraction(1, 100)
    assert s.jobs[0].weight == Fraction(5, 2)
    assert s.believed_jobs == s.jobs


def test_every_key(tmp_path: Path) -> None:
    s = scenario(
        tmp_path,
        """\
description: what it is
iterations: 3
until: exactly
seed: 7
transport: {packet: 1 kB, window: 4, retransmit_after: 500 ms, host_rate: 100 Mbit/s}
control_latency: 20 ms
stop_controller_after_iteration: 2
profile_error: -0.2
delays: [{job: d, worker: h2, iteration: 2, delay: 1.5 s}]
background: [{name: bg, src: h1, dst: h2, rate: 1 Mbit/s}, {name: b2, src: h2, dst: h1, rate: 9 kbit/s, packet: 200 B}]
compute: cpu
queue: 200 kB
ecn_threshold: 20
""",
    )
    assert (s.compute, s.queue_bytes, s.ecn_threshold_packets) == ("cpu", 200_000, 20)
    assert (s.description, s.iterations, s.until, s.seed) == ("what it is", 3, "exactly", 7)
    assert s.transport == Transport(1000, 4, Fraction(1, 2), 100_000_000)
    assert (s.control_latency_s, s.stop_controller_after_iteration) == (Fraction(1, 50), 2)
    assert s.profile_error == Fraction(-1, 5)
    assert s.delays == (Delay("d", "h2", 2, Fraction(3, 2)),)
    assert s.background == (
        Background("bg", "h1", "h2", 10**6, 1250),
        Background("b2", "h2", "h1", 9000, 200),
    )


def test_tcp_settings(tmp_path: Path) -> None:
    s = scenario(
        tmp_path,
        "transport: {min_rto: 10 ms, receive_window: 64 KiB, initial_window: 4, ecn: true}\n",
    )
    assert s.transport == Transport(1250, None, Fraction(2), None, Fraction(1, 100), 65536, 4, True)
    plain = scenario(tmp_path).transport
    assert (
        plain.min_rto_s,
        plain.receive_window_bytes,
        plain.initial_window_packets,
        plain.ecn,
    ) == (
        Fraction(1, 5),
        1_000_000,
        None,
        False,
    )


def test_cross_traffic(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text(
        "# duration_us: 50\nstart_us,src,dst,bytes\n5,h1,h2,100\n9,h2,h1,7\n"
    )
    (tmp_path / "sizes.txt").write_text("100 0.5\n1000 1\n")
    web, burst, long, own, seen = scenario(
        tmp_path,
        """\
traffic:
  - {name: web, model: consistent, src: h1, dst: [h1, h2], load: 20 Mbit/s}
  - {name: burst, model: burst, src: h2, dst: h1, load: 9 Mbit/s, sizes: web_search, size_scale: 0.01, gaps: poisson}
  - {name: long, model: long, src: [h1, h2], dst: [h2, h1], load: 1 Mbit/s, parallel: 3, ecn: true}
  - {name: own, model: consistent, src: h1, dst: h2, load: 1 Mbit/s, sizes: sizes.txt}
  - {name: seen, schedule: seen.csv}
""",
    ).traffic
    sizes = load_sizes("web_search")
    assert web == TrafficSource("web", Consistent((("h1", "h2"),), 20_000_000, sizes))
    scaled = sizes.scaled(Fraction(1, 100))
    assert burst == TrafficSource(
        "burst", Burst((("h2", "h1"),), 9_000_000, scaled, gaps="poisson")
    )
    assert long == TrafficSource(
        "long", Long((("h1", "h2"), ("h2", "h1")), 1_000_000, parallel=3), ecn=True
    )
    assert isinstance(own.flows, Consistent)
    assert own.flows.sizes.mean_bytes == 550
    assert list(seen.stream(1)) == [
        ScheduledFlow(5, "h1", "h2", 100),
        ScheduledFlow(9, "h2", "h1", 7),
    ]
    assert seen.pairs == (("h1", "h2"), ("h2", "h1"))


def test_a_sources_flows_depend_on_seed_and_name_alone(tmp_path: Path) -> None:
    def flows(seed: int, *names: str) -> dict[str, list[ScheduledFlow]]:
        lines = [
            f"  - {{name: {name}, model: consistent, src: h1, dst: h2, load: 20 Mbit/s}}\n"
            for name in names
        ]
        return {
            source.name: list(islice(source.stream(seed), 50))
            for source in scenario(tmp_path, "traffic:\n" + "".join(lines)).traffic
        }

    both = flows(1, "a", "b")
    assert both["a"] != both["b"]
    assert flows(1, "b") == {"b": both["b"]}
    assert flows(2, "b") != {"b": both["b"]}


def test_jobs_that_are_recognised_by_bytes(tmp_path: Path) -> None:
    recognition = "recognition: {by: bytes, source_port: 1, destination_port: 2, idle_gap: 1 s}"
    file = tmp_path / "s.yaml"
    jobs = f"[{JOB}, {JOB.replace('job: d', 'job: e').replace('start', recognition + ', start')}]"
    file.write_text(f"scenario: s\nfabric: {FABRIC}\njobs: {jobs}\npolicies: [fair]\n")
    identities = load_scenario(file).identities
    assert {type(identity) for (job, _), identity in identities.items() if job == "d"} == {
        ShimIdentity
    }
    assert {type(identity) for (job, _), identity in identities.items() if job == "e"} == {
        SegmentIdentity
    }
    assert all(
        identity.job == 1 for identity in identities.values() if isinstance(identity, ShimIdentity)
    )


def test_a_wrong_profile_is_seen_by_the_controller_only(tmp_path: Path) -> None:
    pipeline = "{micro_batches: 3, forward: 1 s, activation: 1 MB}"
    job = f"{{job: p, parallelism: pipeline, workers: [h1, h2], pipeline: {pipeline}}}"
    file = tmp_path / "s.yaml"
    file.write_text(
        f"scenario: s\nfabric: {FABRIC}\njobs: [{job}]\npolicies: [fair]\nprofile_error: 0.2\n"
    )
    s = load_scenario(file)
    assert s.jobs[0].echelonflows[0].offsets_s == (0, 1, 2)
    assert s.believed_jobs[0].echelonflows[0].offsets_s == (0, Fraction(6, 5), Fraction(12, 5))
    assert {unit.duration_s for unit in s.believed_jobs[0].computes} == {Fraction(6, 5)}
    assert {unit.duration_s for unit in s.jobs[0].computes} == {1}
    assert s.believed_jobs[0].flows == s.jobs[0].flows


def test_labels_of_policies(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        f"scenario: s\nfabric: {FABRIC}\njobs: [{JOB}]\npolicies: [fair, {{policy: echelon, order:"
        " setf}]\n"
    )
    s = load_scenario(file)
    assert [policy.label for policy in s.policies] == ["fair", "echelon(order=setf)"]
    assert [parameter for policy in s.policies for parameter in policy.parameters] == [
        ("order", "setf")
    ]
    assert PolicyChoice("p", (("a", "1"), ("b", "x"))).label == "p(a=1, b=x)"


def test_files_that_it_names_are_looked_for_next_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "deep" / "job.yaml").write_text(JOB)
    file = tmp_path / "deep" / "s.yaml"
    file.write_text("scenario: s\nfabric: ../fabric.yaml\njobs: [job.yaml]\npolicies: [fair]\n")
    named = load_scenario(file)
    inline = scenario(tmp_path)
    assert (named.fabric, named.jobs) == (inline.fabric, inline.jobs)
    assert named.jobs == (load_job(tmp_path / "deep" / "job.yaml"),)
    monkeypatch.chdir(tmp_path / "deep")
    assert load_scenario("s.yaml").jobs == named.jobs


# -- the committed scenarios -----------------------------------------------------------------------


@pytest.fixture(params=SCENARIOS, ids=lambda path: path.stem)
def committed(request: pytest.FixtureRequest) -> Scenario:
    return load_scenario(request.param)


def named(name: str) -> Scenario:
    return load_scenario(TOPOLOGIES / "scenarios" / f"{name}.yaml")


def test_committed_scenarios_are_named_after_their_file_and_described(committed: Scenario) -> None:
    assert committed.name == committed.file.stem
    assert committed.description
    policies = {policy.name for policy in committed.policies}
    assert "echelon" in policies
    assert policies & {"fair", "fifo"}


def transfer_s(rate_bps: int, size_bytes: int) -> Fraction:
    return Fraction(size_bytes * 8, rate_bps)


def hops(s: Scenario, src: str, dst: str) -> list[tuple[str, str]]:
    return list(pairwise(route(s.fabric, src, dst, 0)))


def bottleneck_bps(s: Scenario, src: str, dst: str) -> int:
    return min(s.fabric.rate_bps[hop] for hop in hops(s, src, dst))


def sending_s(s: Scenario, job: Job, hop: tuple[str, str]) -> Fraction:
    """Return how long the link `hop` is busy with one iteration of `job`."""
    crossing = [
        flow
        for (src, dst), flows in connections(job).items()
        if hop in hops(s, src, dst)
        for flow in flows
    ]
    return transfer_s(s.fabric.rate_bps[hop], sum(flow.size_bytes for flow in crossing))


@pytest.mark.parametrize(
    ("name", "stages", "batches", "unit_s"),
    [
        ("fig2", 2, 3, Fraction(1)),
        *[(f"pipeline_{s}_{m}", s, m, Fraction(1, 2)) for s in (2, 3, 4) for m in (3, 4, 8)],
    ],
)
def test_pipelines_are_the_worked_example_and_its_continuation(
    name: str, stages: int, batches: int, unit_s: Fraction
) -> None:
    """V=2, T=1, B=1: sending takes two units where computing takes one, on a link of each
    boundary's own.
    """
    s = named(name)
    (job,) = s.jobs
    assert len(job.workers) == stages
    assert len(job.flows) == (stages - 1) * batches
    assert {unit.duration_s for unit in job.computes} == {unit_s}
    used: set[tuple[str, str]] = set()
    for (src, dst), flows in connections(job).items():
        assert {transfer_s(bottleneck_bps(s, src, dst), flow.size_bytes) for flow in flows} == {
            2 * unit_s
        }
        assert all(flow.size_bytes % s.transport.packet_bytes == 0 for flow in flows)
        (narrow,) = [hop for hop in hops(s, src, dst) if s.fabric.rate_bps[hop] == 10**7]
        assert narrow not in used
        used.add(narrow)


def test_dp_pair_computes_for_half_of_an_iteration() -> None:
    s = named("dp_pair")
    first, second = s.jobs
    for job in s.jobs:
        (compute_s,) = {unit.duration_s for unit in job.computes}
        assert sending_s(s, job, ("s1", "s2")) == sending_s(s, job, ("s2", "s1")) == compute_s
    assert second.start_s - first.start_s == 2 * compute_s * Fraction(2, 100)
    assert (first.computes[0].duration_s, s.iterations) == (second.computes[0].duration_s, 12)


MIXES = {  # kind, jobs, demanded load
    "mix_dp4": ("dp", 4, 1.0),
    "mix_dp6": ("dp", 6, 1.2),
    "mix_pp6": ("pp", 6, 1.2),
    "mix_mixed4": ("mix", 4, 1.0),
    "mix_mixed6": ("mix", 6, 1.2),
    "mix_dpsame4": ("dp-same", 4, 1.0),
}
SEEDS = {"mix_dp4": 2}  # 0 where nothing is said


def mix_job(s: Scenario, job: Job) -> tuple[str, int, Fraction, Fraction]:
    """Return the type, micro-batches, compute seconds of a unit, and bytes of the all-reduce or of
    an activation.
    """
    (unit_s,) = {unit.duration_s for unit in job.computes}
    if job.echelonflows[0].is_coflow:
        return "dp", 1, unit_s, Fraction(sum(flow.size_bytes for flow in job.flows), 2)
    return "pp", len(job.flows), unit_s, Fraction(job.flows[0].size_bytes)


@pytest.mark.parametrize("name", MIXES)
def test_mixes_demand_the_load_that_they_claim(name: str) -> None:
    """Each job's iteration would last one of five drawn times, with which its share of the link is
    reckoned.
    """
    s = named(name)
    kind, count, load = MIXES[name]
    share = Fraction(0)
    for job in s.jobs:
        paradigm, batches, unit_s, _ = mix_job(s, job)
        busy_s = sending_s(s, job, ("s1", "s2"))
        period_s = unit_s + busy_s if paradigm == "dp" else unit_s * batches
        assert round(period_s, 5) in {
            Fraction(slots * 4, 1000) for slots in (400, 600, 800, 1000, 1400)
        }
        share += busy_s / (period_s if paradigm == "dp" else unit_s * (batches + 1))
        assert kind == "mix" or kind.startswith(paradigm)
        assert job.start_s <= period_s
    assert len(s.jobs) == count
    assert float(share) == pytest.approx(load, abs=1e-5)
    assert len({worker for job in s.jobs for worker in job.workers}) == 2 * count
    assert s.iterations == 24


@pytest.mark.parametrize("name", MIXES)
def test_mixes_are_those_of_the_independent_model(name: str) -> None:
    """Slots of 4 ms carry 5000 bytes; times are exact to the microsecond, data to the byte."""
    s = named(name)
    jobs = job_mix.make(SEEDS.get(name, 0), *MIXES[name])
    assert len(jobs) == len(s.jobs)
    for job, drawn in zip(s.jobs, jobs, strict=True):
        paradigm, batches, unit_s, size_bytes = mix_job(s, job)
        assert (paradigm, batches) == (drawn.paradigm, drawn.micro_batches)
        assert unit_s == Fraction(round(drawn.compute * 4000), 10**6)
        assert job.start_s == Fraction(round(drawn.start * 4000), 10**6)
        assert size_bytes == round(drawn.size * 5000)


@pytest.mark.parametrize(
    "hop", [("leaf1", "spine"), ("leaf2", "spine"), ("spine", "leaf1"), ("spine", "leaf2")]
)
def test_shared_link_is_loaded_so_that_scheduling_matters(hop: tuple[str, str]) -> None:
    s = named("shared_link")
    # Alone: compute and all-reduce of the data-parallel jobs. The pipeline's own flows meet on the
    # uplinks.
    alone_s = {job.name: alone_iteration_s(job, s.fabric) for job in s.jobs}
    assert alone_s == {
        "gpipe": Fraction(1580, 1000),
        "data1": Fraction(600, 1000) + Fraction(320, 1000),
        "data2": Fraction(800, 1000) + Fraction(280, 1000),
    }
    shares = {job.name: sending_s(s, job, hop) / alone_s[job.name] for job in s.jobs}
    # Eight micro-batches of 40 ms over three boundaries forwards and three backwards, half of them
    # in each direction.
    assert shares["gpipe"] == Fraction(8 * 3 * 40, 1580)
    assert {name: round(share, 2) for name, share in shares.items()} == {
        "gpipe": Fraction("0.61"),
        "data1": Fraction("0.35"),
        "data2": Fraction("0.26"),
    }
    background_bps = sum(b.rate_bps for b in s.background if hop in hops(s, b.src, b.dst))
    background = Fraction(background_bps, s.fabric.rate_bps[hop])
    assert background == Fraction("0.06")
    assert round(sum(shares.values()) + background, 2) == Fraction("1.27")


def test_activations_of_shared_link_take_longer_to_send_than_to_compute() -> None:
    s = named("shared_link")
    gpipe = s.jobs[0]
    sending = {
        transfer_s(bottleneck_bps(s, flow.src, flow.dst), flow.size_bytes) for flow in gpipe.flows
    }
    assert sending == {Fraction(40, 1000)}
    assert {unit.duration_s for unit in gpipe.computes} == {Fraction(30, 1000), Fraction(60, 1000)}
    assert all(flow.size_bytes % s.transport.packet_bytes == 0 for flow in gpipe.flows)


def test_every_connection_of_shared_link_crosses_the_spine() -> None:
    s = named("shared_link")
    ways = [(src, dst) for job in s.jobs for src, dst in connections(job)]
    assert len(ways) == 6 + 2 + 2
    assert all("spine" in route(s.fabric, src, dst, 0) for src, dst in ways)


PROGRAM = (
    "{job: p, parallelism: data, workers: [h1, h2], data: {compute: 1 s, gradient: 5 MB},"
    " recognition: RECOGNITION}"
)


AGENT = "{by: agent, idle_gap: 50 ms}"


def with_program(folder: Path, more: str, recognition: str = AGENT) -> Scenario:
    file = folder / "s.yaml"
    program = PROGRAM.replace("RECOGNITION", recognition)
    file.write_text(
        f"scenario: s\nfabric: {FABRIC}\njobs: [{JOB}, {program}]\npolicies: [fair]\n{more}"
    )
    return load_scenario(file)


def test_a_command_is_split_as_in_a_shell_and_the_job_emulated_by_its_description(
    tmp_path: Path,
) -> None:
    s = with_program(tmp_path, "commands: {p: \"torchrun train.py --name 'a b'\"}")
    assert s.commands == {"p": ("torchrun", "train.py", "--name", "a b")}
    described = s.described
    assert described.commands == {}
    assert [described.specs[job].recognition.by for job in ("d", "p")] == ["shim", "shim"]
    assert described.jobs == s.jobs
    # Without a command, it can still be emulated.
    assert with_program(tmp_path, "").described.specs == described.specs
    assert all(isinstance(one, ShimIdentity) for one in described.identities.values())


@pytest.mark.parametrize(
    ("more", "recognition", "code", "path", "names"),
    [
        ("commands: {q: torchrun x.py}", AGENT, "unknown-job", "commands.q", ["'q'", "d, p"]),
        ("commands: {p: torchrun x.py}", "{by: shim}", "conflicting-key", "commands.p", ["shim"]),
        ("commands: {p: ''}", AGENT, "invalid-value", "commands.p", ["torchrun"]),
        ("commands: {p: [torchrun]}", AGENT, "invalid-value", "commands.p", ["['torchrun']"]),
        ('commands: {p: "torchrun \'x"}', AGENT, "invalid-value", "commands.p", ["torchrun 'x"]),
        (
            (
                "commands: {p: torchrun x.py}\ndelays: [{job: p, worker: h1, iteration: 1, delay:"
                " 1 s}]"
            ),
            AGENT,
            "conflicting-key",
            "delays[0].job",
            ["'p'"],
        ),
    ],
)
def test_a_command_that_no_job_can_have_is_refused(
    tmp_path: Path, more: str, recognition: str, code: Code, path: str, names: list[str]
) -> None:
    faulty = coded(code, *names, file=str(tmp_path / "s.yaml"), path=path)
    with pytest.raises(DocumentError, check=faulty):
        with_program(tmp_path, more, recognition)


def test_a_job_of_a_file_with_other_keys(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    file = tmp_path / "s.yaml"
    jobs = "[job.yaml, {file: job.yaml, job: e, workers: [h2, h1], start: 0}]"
    file.write_text(f"scenario: s\nfabric: {FABRIC}\njobs: {jobs}\npolicies: [fair]\n")
    first, second = load_scenario(file).jobs
    assert (second.name, second.workers, second.start_s) == ("e", ("h2", "h1"), 0)
    assert second.weight == first.weight
    file.write_text(
        f"scenario: s\nfabric: {FABRIC}\njobs: [{{file: none.yaml, job: e}}]\npolicies: [fair]\n"
    )
    absent = coded("unreadable-file", "'none.yaml'", file=str(file), path="jobs[0].file")
    with pytest.raises(DocumentError, check=absent):
        load_scenario(file)
