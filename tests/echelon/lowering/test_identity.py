"""The recognition of flows, from the job file to the entries of a switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import parse_document
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Flow, Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import (
    SegmentIdentity,
    ShimIdentity,
    identities_of,
    number_shims,
)
from echelon.switches.lowering.lower import Lowering, LoweringError
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.drawing import examples
from tests.faults import coded

HOSTS = [f"h{i}" for i in range(1, 5)]
FABRIC = Fabric(
    "star",
    {h: Host(h, f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i, h in enumerate(HOSTS, start=1)},
    {"s1": Switch("s1", 1)},
    tuple(
        CableLink(LinkEnd(h, 0), LinkEnd("s1", i), 8_000_000, Fraction(0))
        for i, h in enumerate(HOSTS, start=1)
    ),
)
BYTES = {"by": "bytes", "source_port": 5001, "destination_port": 5002, "idle_gap": "50 ms"}


def spec_of(**changes: object) -> JobSpec:
    document = {
        "job": "a",
        "parallelism": "pipeline",
        "workers": HOSTS[:3],
        "pipeline": {
            "micro_batches": 3,
            "forward": "1 s",
            "backward": "1 s",
            "activation": ["10 kB", "20 kB"],
        },
    }
    return parse_document(JobSpec, document | changes, "job")


def test_by_shim_is_the_default_and_as_testbed_senders_number() -> None:
    job = build_job(spec_of())
    identities = identities_of(job, 1, spec_of(), FABRIC)
    assert {("a", flow): identity for flow, identity in identities.items()} == number_shims([job])
    assert identities_of(job, 77, spec_of(), FABRIC)["activation-s1-m2"] == ShimIdentity(77, 1)


def test_by_bytes_a_flow_is_a_stretch_of_its_connection() -> None:
    spec = spec_of(recognition=BYTES)
    identities = identities_of(build_job(spec), 1, spec, FABRIC)
    gap_s = Fraction(1, 20)
    assert [identities[f"activation-s2-m{m}"] for m in (1, 2, 3)] == [
        SegmentIdentity("10.0.0.2", "10.0.0.3", "tcp", 5001, 5002, at, at + 20_000, 60_000, gap_s)
        for at in (0, 20_000, 40_000)
    ]
    # Gradients are sent in the reverse order of micro-batches, on the connection the other way.
    assert identities["gradient-s2-m3"] == SegmentIdentity(
        "10.0.0.2", "10.0.0.1", "tcp", 5001, 5002, 0, 10_000, 30_000, gap_s
    )


@given(
    st.integers(2, 4),
    st.integers(4, 10_000),
    st.sampled_from(["tcp", "udp"]),
)
@settings(max_examples=examples(40), deadline=None)
def test_every_byte_of_a_connection_is_of_one_flow(n: int, gradient: int, protocol: str) -> None:
    data = {"compute": "1 s", "gradient": f"{gradient} B"}
    recognition = {**BYTES, "protocol": protocol}
    spec = spec_of(
        parallelism="data", pipeline=None, data=data, workers=HOSTS[:n], recognition=recognition
    )
    job = build_job(spec)
    identities = identities_of(job, 1, spec, FABRIC)
    assert set(identities) == {flow.name for flow in job.flows}
    for (src, dst), flows in connections(job).items():
        stretches = [identities[flow.name] for flow in flows]
        assert all(isinstance(each, SegmentIdentity) for each in stretches)
        assert {each.five_tuple for each in stretches} == {  # type: ignore[union-attr]
            (protocol, FABRIC.hosts[src].ipv4, FABRIC.hosts[dst].ipv4, 5001, 5002)
        }
        edges = [(each.start_bytes, each.end_bytes) for each in stretches]  # type: ignore[union-attr]
        assert edges[0][0] == 0
        assert all(a[1] == b[0] for a, b in pairwise(edges))
        assert edges[-1][1] == sum(flow.size_bytes for flow in flows)
        assert {each.iteration_bytes for each in stretches} == {edges[-1][1]}  # type: ignore[union-attr]


def test_more_flows_than_the_shim_numbers_are_refused() -> None:
    flows = tuple(Flow(f"f{i}", "h1", "h2", 1) for i in range((1 << 16) + 1))
    with pytest.raises(LoweringError, check=coded("does-not-fit", "65537", "65536", job="big")):
        identities_of(Job("big", (), flows, ()), 1, spec_of(), FABRIC)
    assert len(identities_of(Job("big", (), flows[1:], ()), 0xFFFF, spec_of(), FABRIC)) == 1 << 16
    with pytest.raises(LoweringError, check=coded("does-not-fit", "65536", job="late")):
        identities_of(Job("late", (), flows[:1], ()), 1 << 16, spec_of(), FABRIC)


def test_the_connection_that_starts_first_may_open_an_iteration() -> None:
    spec = spec_of(recognition=BYTES)
    job = build_job(spec)
    plan = make_policy("echelon").plan([job], FABRIC)
    intent = Lowering(FABRIC, {"s1": softswitch()}).lower(
        plan, {"a": identities_of(job, 1, spec, FABRIC)}
    )["s1"]
    arguments = [
        dict(e.actions[0].arguments) for e in intent.entries if e.table == "tcp_connection"
    ]
    assert [(a["connection"], a["is_head"], a["head_bytes"]) for a in arguments] == [
        (0, 1, 28_500), (1, 0, 57_000), (2, 0, 57_000), (3, 0, 28_500),
    ]  # fmt: skip
    assert {a["gap_us"] for a in arguments} == {50_000}
    assert {a["job"] for a in arguments} == {0}


def test_all_connections_that_a_collective_begins_with_may_open_an_iteration() -> None:
    """The place of a switch says which of them comes to it first."""
    data = {"compute": "1 s", "gradient": "10 kB"}
    spec = spec_of(recognition=BYTES, parallelism="data", data=data, pipeline=None)
    job = build_job(spec)
    identities = identities_of(job, 1, spec, FABRIC)
    assert all(each.leads for each in identities.values())  # type: ignore[union-attr]
    plan = make_policy("echelon").plan([job], FABRIC)
    intent = Lowering(FABRIC, {"s1": softswitch()}).lower(plan, {"a": identities})["s1"]
    heads = [
        dict(e.actions[0].arguments)["is_head"]
        for e in intent.entries
        if e.table == "tcp_connection"
    ]
    assert heads == [1] * len(connections(job))


ROCE = {"by": "bytes", "protocol": "roce", "queue_pair": 0x100, "mtu": "4 KiB", "idle_gap": "50 ms"}


def test_over_roce_a_flow_is_whole_packets_to_a_queue_pair_for_each_host() -> None:
    spec = spec_of(recognition=ROCE)
    identities = identities_of(build_job(spec), 1, spec, FABRIC)
    gap_s, packets = Fraction(1, 20), 5 * 4096
    assert [identities[f"activation-s2-m{m}"] for m in (1, 2, 3)] == [
        SegmentIdentity(
            "10.0.0.2", "10.0.0.3", "roce", 0x102, 0x101, at, at + packets, 3 * packets, gap_s, mtu=4096
        )
        for at in (0, packets, 2 * packets)
    ]  # fmt: skip
    # The other way, the same two queue pairs.
    assert identities["gradient-s3-m3"].five_tuple == ("roce", "10.0.0.3", "10.0.0.2", 0x101, 0x102)  # type: ignore[union-attr]


def test_more_packets_than_positions_count_are_refused() -> None:
    sizes = {
        "pipeline": {
            "micro_batches": 3,
            "forward": "1 s",
            "backward": "1 s",
            "activation": f"{(1 << 32) // 3} B",
        }
    }
    spec = spec_of(recognition=ROCE, **sizes)
    with pytest.raises(
        LoweringError, check=coded("does-not-fit", "from h1 to h2", str(1 << 32), job="a")
    ):
        identities_of(build_job(spec), 1, spec, FABRIC)


@pytest.mark.parametrize(("activation", "fits"), [((1 << 30) - 4096, True), ((1 << 30) - 1, False)])
def test_packets_may_count_as_less_than_all_positions_but_not_as_all(
    activation: int, fits: bool
) -> None:
    """Four activations of the second size are less than 4 GiB, but as whole packets just that."""
    pipeline = {"micro_batches": 4, "forward": "1 s", "backward": "1 s"}
    spec = spec_of(recognition=ROCE, pipeline={**pipeline, "activation": f"{activation} B"})
    job = build_job(spec)
    if fits:
        assert len(identities_of(job, 1, spec, FABRIC)) == len(job.flows)
    else:
        with pytest.raises(LoweringError, check=coded("does-not-fit", "from h1 to h2", job="a")):
            identities_of(job, 1, spec, FABRIC)


@pytest.mark.parametrize(
    ("start", "end", "iteration", "ranges"),
    [
        (0, 1000, 2000, [(0, 1000)]),  # another flow comes behind it
        (1000, 2000, 2000, [(1000, 2000), (2000, 2000 + 8192)]),
        (2000, 2000, 2000, [(2000, 2000)]),  # no bytes, so nothing belongs to it
        (0, 1 << 20, 1 << 20, [(0, 1 << 20), (1 << 20, (1 << 20) + (1 << 20) // 20)]),
        # Switches count 32 bits, and the end of a range has to fit them.
        (0, (1 << 32) - 9, (1 << 32) - 9, [(0, (1 << 32) - 9), ((1 << 32) - 9, (1 << 32) - 1)]),
    ],
)
def test_what_a_plan_does_not_know_belongs_to_the_last_flow(
    start: int, end: int, iteration: int, ranges: list[tuple[int, int]]
) -> None:
    identity = SegmentIdentity(
        "10.0.0.1", "10.0.0.2", "tcp", 1, 2, start, end, iteration, Fraction(1, 20)
    )
    assert list(identity.ranges) == ranges
    assert list(replace(identity, by_bytes=True).ranges) == ranges[:1]


def test_queue_pairs_get_entries_of_their_own() -> None:
    spec = spec_of(recognition=ROCE)
    job = build_job(spec)
    plan = make_policy("echelon").plan([job], FABRIC)
    intent = Lowering(FABRIC, {"s1": softswitch()}).lower(
        plan, {"a": identities_of(job, 1, spec, FABRIC)}
    )["s1"]
    found = [entry for entry in intent.entries if entry.table == "roce_connection"]
    assert [dict(entry.match)["queue_pair"] for entry in found] == [0x100, 0x101, 0x102, 0x101]
    assert {entry.actions[0].name for entry in found} == {"set_queue_pair_4096"}
    arguments = [dict(entry.actions[0].arguments) for entry in found]
    assert [(a["connection"], a["queue_pair"], a["is_head"]) for a in arguments] == [
        (0, 0, 1), (1, 1, 0), (2, 2, 0), (3, 3, 0),
    ]  # fmt: skip
    assert arguments[0]["head_bytes"] == 9 * 4096 * 95 // 100


def test_another_jobs_queue_pair_is_refused_whoever_sends_to_it() -> None:
    one = spec_of(recognition=ROCE)
    # What h1 gets from h2 goes to queue pair 0x101, and so does what it gets from h4.
    data = {"compute": "1 s", "gradient": "10 kB"}
    other = spec_of(
        job="b",
        workers=["h1", "h4"],
        recognition=ROCE,
        parallelism="data",
        data=data,
        pipeline=None,
    )
    jobs = [build_job(spec) for spec in (one, other)]
    plan = make_policy("echelon").plan(jobs, FABRIC)
    identities = {
        job.name: identities_of(job, 1, spec, FABRIC)
        for job, spec in zip(jobs, (one, other), strict=True)
    }
    with pytest.raises(
        LoweringError, check=coded("duplicate", "queue pair 257 of 10.0.0.1", "job a", job="b")
    ):
        Lowering(FABRIC, {"s1": softswitch()}).lower(plan, identities)
