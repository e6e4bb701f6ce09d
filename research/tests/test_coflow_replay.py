"""Coflow traces: reading them, and their replay on one big switch against the fluid engine of
networks.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.documents import DocumentError
from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from echelon_lab.traffic.coflow_trace import CoflowTrace, TracedCoflow, load_trace, parse_trace
from research.coflow_replay import replay
from research.tests.coflow_traces import made_trace

RATE_BPS = 10**9
POLICIES = ["fair", "varys", "aalo", "aalo-weighted", "sincronia"]


def policy_of(label: str):  # type: ignore[no-untyped-def]
    """Return a policy; the first queue of Aalo takes 2.5 MB, so that most coflows leave it."""
    name, _, share = label.partition("-")
    return make_policy(
        name, **({"first_ms": 20, "share": share or "strict"} if name == "aalo" else {})
    )


def parsed(text: str) -> CoflowTrace:
    return parse_trace("trace.txt", text.splitlines())


def as_job(coflow: TracedCoflow) -> Job:
    """Return the coflow as a job of one iteration: a unit on one host waits for its arrival, then
    all flows start.
    """
    start = ComputeUnit("arrival", "h1", Fraction(coflow.arrival_s).limit_denominator(1000))
    flows = tuple(
        Flow(
            f"{src}-{dst}",
            f"h{src + 1}",
            f"h{dst + 1}",
            round(size / len(coflow.mappers)),
            ("arrival",),
        )
        for dst, size in coflow.reducers
        for src in coflow.mappers
    )
    return Job(
        coflow.name, (start,), flows, (EchelonFlow.coflow("coflow", [flow.name for flow in flows]),)
    )


def remote(trace: CoflowTrace) -> CoflowTrace:
    """Return the trace without flows that stay in a port, for which a fabric has no path, in whole
    bytes.
    """
    coflows = []
    for of in trace.coflows:
        ports = {port for port, _ in of.reducers}
        mappers = (
            tuple(port for port in of.mappers if port not in ports)
            or tuple(port for port in range(trace.ports) if port not in ports)[:1]
        )
        if mappers:
            whole = tuple(
                (port, len(mappers) * round(size / len(mappers))) for port, size in of.reducers
            )
            coflows.append(TracedCoflow(of.name, of.arrival_s, mappers, whole))
    return CoflowTrace(trace.ports, tuple(coflows))


@pytest.mark.parametrize("label", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_is_the_fluid_run_of_the_same_coflows(label: str, seed: int) -> None:
    """Every coflow takes as long flow by flow on a fabric, in the engine of scenarios, as in
    arrays.
    """
    trace = remote(parsed(made_trace(seed, 5, 10)))
    ours = replay(trace, policy_of(label), RATE_BPS)
    fabric = build_fabric(one_tor(5, RATE_BPS))
    jobs = [as_job(coflow) for coflow in trace.coflows]
    theirs = simulate(jobs, fabric, policy_of(label), 1, until="exactly", ideal=True)
    for coflow in trace.coflows:
        took_s = theirs.iteration_times_s(coflow.name)[0] - Fraction(
            coflow.arrival_s
        ).limit_denominator(1000)
        assert ours.completion_s[coflow.name] == pytest.approx(float(took_s), abs=1e-6)


@pytest.mark.parametrize("label", POLICIES)
def test_a_lone_coflow_takes_its_bottleneck(label: str) -> None:
    """A lone coflow takes its bottleneck time exactly under Varys, and at most twice as long under
    others.
    """
    trace = parsed(made_trace(7, 20, 40))
    result = replay(trace, policy_of(label), RATE_BPS)
    assert len(result.completion_s) == 40
    for of in trace.coflows:
        sends = sum(size for _, size in of.reducers) / len(of.mappers)
        gamma_s = max(sends, *(size for _, size in of.reducers)) * 8 / RATE_BPS
        assert result.completion_s[of.name] >= gamma_s * (1 - 1e-9)
        alone = replay(CoflowTrace(trace.ports, (of,)), policy_of(label), RATE_BPS).completion_s[
            of.name
        ]
        if label == "varys":
            assert alone == pytest.approx(gamma_s)
        assert gamma_s * (1 - 1e-9) <= alone <= 2 * gamma_s * (1 + 1e-9)


def test_on_the_made_traces_coflow_scheduling_pays() -> None:
    """Clairvoyant policies beat the fair shares of flows in mean completion time, as published."""
    trace = parsed(made_trace(11, 20, 60, gap_ms=100))
    mean = {
        label: sum(replay(trace, policy_of(label), RATE_BPS).completion_s.values())
        for label in ("fair", "varys", "sincronia")
    }
    assert max(mean["varys"], mean["sincronia"]) < mean["fair"]


def test_a_longer_interval_costs_little_and_saves_decisions() -> None:
    trace = parsed(made_trace(3, 20, 40))
    exact = replay(trace, policy_of("sincronia"), RATE_BPS)
    coarse = replay(trace, policy_of("sincronia"), RATE_BPS, 0.5)
    assert coarse.decisions < exact.decisions
    assert sum(coarse.completion_s.values()) >= sum(exact.completion_s.values())


def test_a_trace_is_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text("4 2\n7 1500 2 0 3 1 2:3.0\n1 20 1 1 2 0:1.5 3:0\n")
    trace = load_trace(file)
    assert trace.ports == 4
    assert trace.coflows == (
        TracedCoflow("1", 0.02, (1,), ((0, 1.5 * 2**20), (3, 0.0))),
        TracedCoflow("7", 1.5, (0, 3), ((2, 3 * 2**20),)),
    )


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", "line 1", "number of ports"),
        ("4 2\n1 0 1 0 1 1:1\n", "line 1", "2 coflows"),
        ("4 1\n1 0 1 4 1 1:1\n", "line 2", "0 to 3"),
        ("4 1\n1 0 1 0 1 9:1\n", "line 2", "0 to 3"),
        ("4 1\n1 0 1 0 2 1:1\n", "line 2", "ends before"),
        ("4 1\n1 0 1 0 1 1:1 2:1\n", "line 2", "'2:1'"),
        ("4 1\n1 0 1 0 1 1:x\n", "line 2", "'x'"),
        ("4 1\n1 0 1 0 1 1:-1\n", "line 2", "at least 0"),
        ("4 1\n1 0 1 0 1 1:nan\n", "line 2", "at least 0"),
        ("4 1\n1 0 1 0 1 1\n", "line 2", "12:3.5"),
        ("4 1\n1 soon 1 0 1 1:1\n", "line 2", "'soon'"),
        ("4 1\n1 0 0 1 1:1\n", "line 2", "number of mappers"),
        ("0 0\n", "line 1", "1 to 4096"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: str, word: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parsed(text)
    assert caught.value.path == line
    assert word in caught.value.reason
    assert str(caught.value).startswith("trace.txt: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DocumentError):
        load_trace(tmp_path / "gone.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DocumentError):
        load_trace(tmp_path / "binary")
