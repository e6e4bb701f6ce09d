"""Runs of folded jobs against runs of the same jobs flow by flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from echelon.model.documents import parse_document
from echelon.model.fabric.builders import leaf_spine
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import with_profile_error
from echelon.model.jobs.folding import FoldedJob
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.fluid import FluidResult, Windows, folds, simulate, simulator
from echelon.planning.fluid.folds import folded_jobs
from echelon.planning.policies import make_policy

WINDOWS = Windows(packet_bytes=1000, full=16, initial=4)
ACKNOWLEDGED = replace(WINDOWS, acknowledgement_bytes=40)
FITTING = replace(WINDOWS, full=None, initial=None, passes=True, streams=True)
POLICIES: Mapping[str, Mapping[str, str]] = {
    "fifo": {},
    "fair": {},
    "crux": {},
    "srpt": {},
    "mfs": {},
    "mltcp": {},
    "cassini": {"enforce": "windows"},
    "unfair": {},
    "echelon": {"plan": "rule"},
    "sincronia": {},
    "varys": {},
    "aalo": {},
}
RANKS = 4
"""The ranks of a host."""


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    """Return four leaves of four hosts, and two spines that carry half of what hosts send."""
    return build_fabric(leaf_spine(4, 2, oversubscription=2, rate_bps=10**10))


def exchange(workers: Sequence[str], ranks: int, layers: int = 1) -> Job:
    """Return a job whose ranks all exchange tokens with each other."""
    return _built(
        "expert",
        workers,
        ranks_per_worker=ranks,
        group=ranks * len(workers),
        layers=layers,
        attention="2 ms",
        expert="3 ms",
        tokens="8 MB",
    )


def mesh(workers: Sequence[str]) -> Job:
    """Return a job of two replicas of a pipeline, of whose stages each is a host."""
    return _built(
        "mesh",
        workers,
        ranks_per_worker=8,
        data=2,
        pipeline=len(workers) // 2,
        tensor=8,
        micro_batches=4,
        forward="1 ms",
        backward="2 ms",
        activation="4 MB",
        gradient="20 MB",
    )


def _built(paradigm: str, workers: Sequence[str], **section: Any) -> Job:
    document = {
        "job": paradigm,
        "parallelism": paradigm,
        "workers": list(workers),
        paradigm: section,
    }
    return build_job(parse_document(JobSpec, document, "job"))


def random_job(seed: int, hosts: int) -> Job:
    """Return a job of ranks that send to each other in one phase after another.

    Between two hosts there are one to sixteen flows of a phase, of which now and then one is larger
    than the others, or a rank computes for longer.
    """
    random = Random(seed)
    workers = [f"h{number + 1}" for number in random.sample(range(16), hosts)]
    ranks = [(worker, rank) for worker in workers for rank in range(RANKS)]
    computes: list[ComputeUnit] = []
    flows: list[Flow] = []
    echelonflows: list[EchelonFlow] = []
    waits: dict[tuple[str, int], list[str]] = {rank: [] for rank in ranks}
    for phase in range(random.randint(2, 4)):
        longer = random.choice(ranks) if random.random() < 0.3 else None
        duration_s = Fraction(random.randint(1, 20), 1000)
        for worker, rank in ranks:
            factor = 2 if (worker, rank) == longer else 1
            unit = f"c{phase}-{worker}-{rank}"
            before = tuple(waits[worker, rank])
            computes.append(ComputeUnit(unit, worker, duration_s * factor, before))
            waits[worker, rank] = [unit]
        sent = _phase(random, phase, workers, waits)
        flows += sent
        if random.random() < 0.5:
            echelonflows.append(EchelonFlow.coflow(f"e{phase}", [flow.name for flow in sent]))
        else:
            for rank in range(RANKS):
                names = [flow.name for flow in sent if flow.name.split("-")[2] == str(rank)]
                if names:
                    echelonflows.append(EchelonFlow.coflow(f"e{phase}-{rank}", names))
    return Job(f"j{seed}", tuple(computes), tuple(flows), tuple(echelonflows))


def _phase(
    random: Random,
    phase: int,
    workers: Sequence[str],
    waits: Mapping[tuple[str, int], list[str]],
) -> list[Flow]:
    """Return the flows of a phase, and let the ranks that receive them wait for them."""
    kind = random.choice(["exchange", "ring", "some"])
    size_bytes = random.randint(1, 40) * 100_000
    flows = []
    for place, src in enumerate(workers):
        for distance in range(1, len(workers)):
            if kind == "ring" and distance > 1:
                continue
            dst = workers[(place + distance) % len(workers)]
            pairs = [(rank, rank) for rank in range(RANKS)]
            if kind == "exchange":
                pairs = [(rank, other) for rank in range(RANKS) for other in range(RANKS)]
            elif kind == "some":
                pairs = pairs[: random.randint(1, RANKS)]
            for rank, other in pairs:
                larger = 2 if random.random() < 0.005 else 1
                name = f"f{phase}-{src}-{rank}-{dst}-{other}"
                started = (f"c{phase}-{src}-{rank}",)
                flows.append(Flow(name, src, dst, size_bytes * larger, started))
    for flow in flows:
        *_, other = flow.name.split("-")
        waits[flow.dst, int(other)].append(flow.name)
    return flows


def run_both(
    monkeypatch: pytest.MonkeyPatch,
    jobs: Sequence[Job],
    fabric: Fabric,
    policy: str,
    iterations: int,
    **options: Any,
) -> tuple[FluidResult, FluidResult]:
    """Return the result with jobs folded, and the one without."""
    parameters = POLICIES[policy]
    folded = simulate(jobs, fabric, make_policy(policy, **parameters), iterations, **options)
    with monkeypatch.context() as patch:
        patch.setattr(simulator, "folded_jobs", lambda jobs, *_, **__: jobs)
        plain = simulate(jobs, fabric, make_policy(policy, **parameters), iterations, **options)
    return folded, plain


def check_equal(folded: FluidResult, plain: FluidResult, precision: float = 1e-9) -> None:
    """Check that both have the same iterations, flows, units and reference times."""

    def equal(number: float | None) -> Any:
        return number if number is None else pytest.approx(number, rel=precision, abs=precision)

    assert folded.jobs.keys() == plain.jobs.keys()
    for name, record in plain.jobs.items():
        assert len(folded.jobs[name].iterations) == len(record.iterations)
        for ours, theirs in zip(folded.jobs[name].iterations, record.iterations, strict=True):
            assert (ours.start, ours.finish) == (equal(theirs.start), equal(theirs.finish))
            assert {*ours.flows} == {*theirs.flows}
            assert {*ours.computes} == {*theirs.computes}
            for spans, others in ((ours.flows, theirs.flows), (ours.computes, theirs.computes)):
                for step, span in others.items():
                    assert spans[step].start == equal(span.start), step
                    assert spans[step].finish == equal(span.finish), step
            assert dict(ours.references) == {
                key: equal(time_s) for key, time_s in theirs.references.items()
            }


HOSTS = [f"h{number}" for number in range(1, 17)]


@pytest.mark.parametrize("policy", POLICIES)
def test_ranks_of_two_jobs_run_as_flow_by_flow(
    policy: str, fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [exchange(HOSTS[::4], RANKS), mesh(HOSTS[1::2])]
    for windows in (Windows(), WINDOWS, FITTING):
        check_equal(*run_both(monkeypatch, jobs, fabric, policy, 2, windows=windows))


@pytest.mark.parametrize("policy", ["fifo", "crux"])
def test_an_exchange_of_64_gpus_takes_a_64th_of_the_work(
    policy: str, fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = exchange(HOSTS[::2], 8)
    plan = make_policy(policy).plan([job], fabric)

    [folded] = folded_jobs([job], plan)
    both = run_both(monkeypatch, [job], fabric, policy, 1, windows=WINDOWS)

    assert (len(job.flows), len(folded.flows)) == (14_336, 224)
    assert {flow.count for flow in folded.flows} == {64}
    check_equal(*both)
    assert both[1].work > 40 * both[0].work


@pytest.mark.parametrize("policy", ["fifo", "fair", "crux", "echelon"])
def test_acknowledgements_of_all_flows_count(
    policy: str, fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [exchange(HOSTS[::4], RANKS), mesh(HOSTS[1::2])]
    both = run_both(monkeypatch, jobs, fabric, policy, 1, windows=ACKNOWLEDGED)
    check_equal(*both, precision=1e-6)


@pytest.mark.parametrize("policy", ["fifo", "fair", "crux", "mfs", "echelon"])
@pytest.mark.parametrize("seed", range(20))
def test_random_jobs_of_ranks_run_as_flow_by_flow(
    policy: str, seed: int, fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    jobs = [random_job(2 * seed, random.randint(3, 6)), random_job(2 * seed + 1, 4)]
    check_equal(*run_both(monkeypatch, jobs, fabric, policy, 3))


@pytest.mark.parametrize("policy", ["fifo", "crux"])
def test_both_engines_run_folded_jobs(
    policy: str, engine: str, fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [random_job(4, 3), random_job(5, 3)]
    check_equal(*run_both(monkeypatch, jobs, fabric, policy, 1, windows=WINDOWS))


def test_a_wrong_profile_changes_plans_and_no_flow(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [exchange(HOSTS[::4], RANKS), mesh(HOSTS[1::2])]
    believed = [with_profile_error(job, Fraction(1, 5)) for job in jobs]
    check_equal(*run_both(monkeypatch, jobs, fabric, "echelon", 2, believed=believed))


def test_equal_flows_in_queues_of_one_level_stay_apart(fabric: Fabric) -> None:
    job = exchange(HOSTS[::4], RANKS)
    assert folded_jobs([job], make_policy("fair").plan([job], fabric)) == [job]
    [fifo] = folded_jobs([job], make_policy("fifo").plan([job], fabric))
    assert isinstance(fifo, FoldedJob)
    assert len(fifo.flows) == len(job.flows) // RANKS**2


def test_flows_that_share_a_window_stay_apart(fabric: Fabric) -> None:
    job = exchange(HOSTS[::4], RANKS)
    plan = make_policy("echelon", **POLICIES["echelon"]).plan([job], fabric)
    [alone] = folded_jobs([job], plan)
    [in_streams] = folded_jobs([job], plan, streams=True)
    assert isinstance(alone, FoldedJob)
    assert in_streams is job


@pytest.mark.parametrize("policy", ["mltcp", "srpt"])
def test_flows_ranked_by_bytes_stay_apart(policy: str, fabric: Fabric) -> None:
    job = exchange(HOSTS[::4], RANKS)
    [same] = folded_jobs([job], make_policy(policy).plan([job], fabric))
    assert same is job


def test_a_delay_concerns_one_unit(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    job = exchange(HOSTS[::4], RANKS)
    delays = {(job.name, HOSTS[0], 1): Fraction(1, 100)}
    both = run_both(monkeypatch, [job], fabric, "fifo", 1, delays=delays)
    check_equal(*both)
    assert both[0].work == both[1].work
    assert folds.folded_jobs([job], both[0].plan) != [job]
