"""Tests of the ladder: whom ports serve, what they count, and that a rung changes one limit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from bench.ladder.command import main, read
from bench.ladder.fabric import Counts, Ladder, counted, load_ladder, rung_in_c
from bench.ladder.flows import ShimFlow, Truth, shim_flows
from bench.ladder.measure import Case
from bench.ladder.rungs import RUNGS, Rung, rung_named, window_rung
from bench.ladder.scenarios import FABRICS, ONE_LINK, drawn, scenario_in_draw, seeds
from bench.ladder.tables import Measurement, tables
from echelon.planning.policies.base import FixedPlan
from echelon.planning.rankings.deadline import Deadline, Relative, deadline_rank
from echelon.switches.lowering.identity import ShimIdentity
from echelon_lab.endhosts.shim import (
    MEMORY_UNIT,
    UNSTAMPED,
    AckSegment,
    DataSegment,
    FlowAddress,
    ShimFrames,
)
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario
from echelon_lab.virtual.run import run as run_packets
from softswitch.native.scheduler import PortScheduler
from softswitch.tm import STRICT_QUEUES

SCENARIO = Path(__file__).parents[2] / "topologies" / "scenarios" / "mix_dp4.yaml"
RANKED = PolicyChoice("echelon", (("plan", "rule"),))
FIXED = PolicyChoice("fair")
ITERATIONS = 3

# -- ports -----------------------------------------------------------------------------------------

RATE_BPS = 8_000_000
PACKET_BYTES = 1000
PACKET_NS = 1_000_000
"""The time of a packet on the line of a port."""


@dataclass(frozen=True)
class Ranked:
    """A flow as a port ranks it: how it ranks at time 0, and by how much more each second."""

    rank: float
    slope: float = 1.0
    lowest: int = 0
    highest: int = 6


class Port:
    """A port of the ladder with some flows, by number from 0."""

    def __init__(
        self,
        rung: Rung,
        flows: Sequence[Ranked],
        min_rates_bps: Mapping[int, int] | None = None,
    ) -> None:
        native = load_ladder()
        self._ffi, self._library, _ = native
        self.flows = self._ffi.new("ladder_flow[]", len(flows))
        for number, flow in enumerate(flows):
            row = self.flows[number]
            row.key = 1 << 16 | number
            row.is_ranked = 1
            row.lowest = flow.lowest
            row.highest = flow.highest
            row.slope = flow.slope
            row.head_start = -flow.rank
        null = self._ffi.NULL
        assert not self._library.ladder_begin(rung_in_c(rung), self.flows, len(flows), null, null)
        queues = list(STRICT_QUEUES)
        for queue, rate_bps in (min_rates_bps or {}).items():
            queues[queue] = replace(queues[queue], min_rate_bps=rate_bps)
        self._scheduler = PortScheduler(native, RATE_BPS, queues)
        self._packets: list[Any] = []
        self._names: dict[int, str] = {}

    def enqueue(
        self,
        name: str,
        flow: int,
        queue: int,
        now_ns: int = 0,
        left_bytes: int = PACKET_BYTES,
        is_alone: bool = False,
        epoch: int = 0,
    ) -> None:
        segment = DataSegment(left_bytes, PACKET_BYTES, alone=is_alone)
        self._enqueue(name, frames(flow, epoch).data(segment, UNSTAMPED), queue, now_ns)

    def enqueue_ack(self, name: str, flow: int, queue: int) -> None:
        self._enqueue(name, frames(flow).ack(AckSegment(0), UNSTAMPED), queue, 0)

    def _enqueue(
        self,
        name: str,
        frame: bytes,
        queue: int,
        now_ns: int,
    ) -> None:
        data = self._ffi.from_buffer("uint8_t[]", frame)
        packet = self._ffi.new("ss_packet *", {"length_bytes": len(frame), "data": data})
        self._packets += [data, packet]
        self._names[int(self._ffi.cast("uintptr_t", packet))] = name
        assert self._library.tm_enqueue(self._scheduler.port, queue, packet, now_ns)

    def served(self, now_ns: int = 0) -> list[str]:
        """Return the packets that leave from a time on."""
        names: list[str] = []
        leaving = self._ffi.new("tm_leaving *")
        while True:
            self._library.tm_dequeue(self._scheduler.port, now_ns, leaving)
            if not leaving.packet:
                return names
            names.append(self._names[int(self._ffi.cast("uintptr_t", leaving.packet))])
            now_ns += PACKET_NS


def frames(flow: int, epoch: int = 0) -> ShimFrames:
    address = FlowAddress(
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="10.0.0.1",
        dst_ip="10.0.0.2",
        src_port=1,
        job=1,
        flow=flow,
    )
    return ShimFrames(address, epoch, PACKET_BYTES)


def test_what_leaves_before_somebody_more_urgent_is_counted_by_where_that_waits() -> None:
    port = Port(rung_named("as-is"), [Ranked(0.0), Ranked(1.0)])
    port.enqueue("late", 0, queue=6)
    port.enqueue("urgent", 1, queue=5)
    assert port.served() == ["late", "urgent"]
    assert counted() == Counts(2 * PACKET_BYTES, PACKET_BYTES, 0, 0)

    port = Port(rung_named("as-is"), [Ranked(0.0), Ranked(1.0)])
    port.enqueue("late", 0, queue=6)
    port.enqueue("urgent", 1, queue=6)
    assert port.served() == ["late", "urgent"]
    assert counted() == Counts(2 * PACKET_BYTES, 0, PACKET_BYTES, 0)

    port = Port(rung_named("as-is"), [Ranked(0.0), Ranked(1.0)], {5: RATE_BPS // 2})
    port.enqueue("late", 0, queue=5)
    port.enqueue("urgent", 1, queue=6)
    assert port.served() == ["late", "urgent"]
    assert counted() == Counts(2 * PACKET_BYTES, 0, 0, PACKET_BYTES)


def test_nobody_more_urgent_is_waited_for_where_ranks_are_in_order() -> None:
    port = Port(rung_named("as-is"), [Ranked(0.0), Ranked(0.0005), Ranked(-1.0)])
    port.enqueue("other", 2, queue=4)
    port.enqueue("next to equal", 0, queue=6)
    port.enqueue("a little more urgent", 1, queue=6)
    port.served()
    assert counted() == Counts(3 * PACKET_BYTES, 0, 0, 0)


def test_exact_order_serves_who_is_most_urgent_at_that_moment() -> None:
    # The second one overtakes the first after a second, which is half a packet away.
    port = Port(rung_named("served"), [Ranked(1.0, slope=0.0), Ranked(0.0, slope=1.0)])
    for name in ("a1", "a2"):
        port.enqueue(name, 0, queue=6)
    for name in ("b1", "b2"):
        port.enqueue(name, 1, queue=5)
    assert port.served(now_ns=999_500_000) == ["a1", "b1", "b2", "a2"]
    assert counted() == Counts(4 * PACKET_BYTES, 0, 0, 0)


def test_exact_order_of_arrival_keeps_the_rank_of_then() -> None:
    flows = [Ranked(1.0, slope=0.0), Ranked(0.0, slope=1.0)]
    late_ns = 5_000_000_000
    by_rung = {}
    for name in ("served", "arrival"):
        port = Port(rung_named(name), flows)
        port.enqueue("a1", 0, queue=6)
        port.enqueue("a2", 0, queue=6)
        port.enqueue("b1", 1, queue=6)
        by_rung[name] = port.served(late_ns)
    assert by_rung == {"served": ["b1", "a1", "a2"], "arrival": ["a1", "a2", "b1"]}


def test_levels_serve_who_came_first_of_those_that_are_near() -> None:
    port = Port(rung_named("levels"), [Ranked(0.0), Ranked(0.01), Ranked(0.4995), Ranked(0.5)])
    for number in range(4):
        port.enqueue(str(number), number, queue=6)
    # The last two share the highest level. Without them, the first two have one each.
    assert port.served() == ["2", "3", "1", "0"]


def test_a_flow_keeps_its_order_whatever_its_packets_rank() -> None:
    port = Port(rung_named("served"), [Ranked(0.0), Ranked(-1.0)])
    port.flows[0].left_s = 0.001
    port.enqueue("first", 0, queue=6, left_bytes=3 * PACKET_BYTES)
    port.enqueue("second", 0, queue=6, left_bytes=2 * PACKET_BYTES)
    port.enqueue("other", 1, queue=6)
    port.enqueue("third", 0, queue=6)
    assert port.served() == ["other", "first", "second", "third"]


def test_acknowledgements_go_before_data_in_order() -> None:
    port = Port(rung_named("served"), [Ranked(0.0), Ranked(1.0)])
    port.enqueue("a", 0, queue=6)
    port.enqueue("b", 1, queue=6)
    port.enqueue_ack("ack", 0, queue=6)
    assert port.served() == ["ack", "b", "a"]
    assert counted().total == 2 * PACKET_BYTES


# -- the truth -------------------------------------------------------------------------------------


class Clock:
    now_ns = 0

    def read(self) -> int:
        return self.now_ns


def ranking(offset_s: str, due_s: str | None = None) -> Deadline:
    unit_s = Fraction(1, 2)
    relative = Relative(unit_s, Fraction(1, 4), Fraction(1, 10), Fraction(1), ())
    due = None
    if due_s is not None:
        due = Fraction(due_s)
    return Deadline("grads", Fraction(offset_s), (), relative=relative, due=due)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def truth(clock: Clock) -> Truth:
    ffi, _, _ = load_ladder()
    flows = [
        ShimFlow("job", ShimIdentity(1, 0), ranking("0.2")),
        ShimFlow("job", ShimIdentity(1, 1), ranking("0.5", "0.8")),
    ]
    return Truth(ffi, flows, clock.read)


def test_a_reference_is_the_start_of_the_first_flow_less_its_offset(
    truth: Truth, clock: Clock
) -> None:
    clock.now_ns = 3_000_000_000
    truth.started(0)
    clock.now_ns = 3_700_000_000
    truth.started(1)
    assert [row.due_s for row in truth.in_c] == pytest.approx([3.0, 3.6])
    assert [row.reference_ns for row in truth.in_c] == [2_800_000_000] * 2


def test_of_flows_that_start_together_the_one_of_the_least_offset_gives_it(
    truth: Truth, clock: Clock
) -> None:
    clock.now_ns = 3_000_000_000
    truth.started(1)
    truth.started(0)
    assert [row.reference_ns for row in truth.in_c] == [2_800_000_000] * 2


def test_memory_is_three_quarters_of_what_the_network_delayed(truth: Truth, clock: Clock) -> None:
    truth.started(0)
    # Its deadline was now, and alone it would have finished 0.1 s after it.
    clock.now_ns = 500_000_000
    truth.finished(0)
    truth.in_c[0].epoch = 1
    truth.started(0)
    assert truth.in_c[0].memory_s == pytest.approx(0.75 * (0.5 - 0.1))
    # Stamps count it in the job's unit of half a second.
    assert truth.in_c[0].memory == pytest.approx(0.75 * 0.4 / 0.5 * MEMORY_UNIT, abs=1)


def test_ranks_are_those_of_the_planning() -> None:
    ffi, library, _ = load_ladder()
    numbers = {"due_s": 3.5, "memory_s": 0.25, "left_s": 2e-6, "slope": 0.5, "head_start": 0.125}
    flow = ffi.new("ladder_flow *", numbers)
    rank = library.ladder_rank(flow, 4_250_000_000, 30_000)
    expected = deadline_rank(4.25, 3.5, 0.25, left_s=2e-6 * 30_000, slope=0.5, head_start=0.125)
    assert rank == pytest.approx(expected)


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(SCENARIO)


@pytest.fixture(scope="module")
def ranked(scenario: Scenario) -> Case:
    return Case(scenario, RANKED, ITERATIONS)


@pytest.fixture(scope="module")
def fixed(scenario: Scenario) -> Case:
    return Case(scenario, FIXED, ITERATIONS)


def ignore(_job: str, _iteration: int) -> None:
    return


def run(case: Case, scenario: Scenario, ladder: Ladder | None) -> PolicyRun:
    """Return what the product makes of a plan, or a rung."""
    scenario = replace(scenario, iterations=ITERATIONS)
    build = None
    if ladder is not None:
        build = ladder.build
    return run_packets(scenario, "plan", lambda: FixedPlan(case.plan), ignore, build=build)


def outcome(run: PolicyRun) -> object:
    """Return all that the senders and the switches did."""
    return run.records, run.switches, run.retransmitted


def packets_in(run: PolicyRun) -> int:
    return sum(switch.packets_in for switch in run.switches.values())


def on_rung(case: Case, scenario: Scenario, rung: Rung) -> PolicyRun:
    flows = shim_flows(case.plan, scenario.described.identities)
    return run(case, rung.scenario(scenario), Ladder(rung, flows))


def test_the_lowest_rung_is_the_product(ranked: Case, scenario: Scenario) -> None:
    lowest = on_rung(ranked, scenario, rung_named("as-is"))
    assert outcome(lowest) == outcome(run(ranked, scenario, None))
    assert counted().total > 0


def test_exact_order_leaves_nothing_out_of_order(ranked: Case) -> None:
    for name in ("served", "all"):
        measured = ranked.on_rung(rung_named(name))
        assert measured.counts.total > 0
        counts = measured.counts
        assert (counts.lower_queue, counts.same_queue, counts.min_share) == (0, 0, 0)
        assert measured.reordered == 0


@pytest.mark.parametrize("name", ["served", "levels", "arrival", "truth"])
def test_orders_and_knowledge_change_nothing_where_no_flow_ranks_relative_to_others(
    fixed: Case, scenario: Scenario, name: str
) -> None:
    changed = on_rung(fixed, scenario, rung_named(name))
    assert outcome(changed) == outcome(run(fixed, scenario, None))
    assert counted().total == 0


def test_the_truth_is_what_one_switch_knows(ranked: Case, scenario: Scenario) -> None:
    as_it_is = ranked.on_rung(rung_named("as-is"))
    assert ranked.on_rung(rung_named("truth")).mean == pytest.approx(as_it_is.mean, rel=0.02)


def test_a_window_is_that_of_the_scenario_file(fixed: Case, scenario: Scenario) -> None:
    transport = replace(scenario.transport, window_packets=5)
    narrow = run(fixed, replace(scenario, transport=transport), None)
    assert outcome(on_rung(fixed, scenario, window_rung(5))) == outcome(narrow)


def test_more_acknowledgements_are_more_packets_and_free_ones_none(
    fixed: Case, scenario: Scenario
) -> None:
    seldom = packets_in(on_rung(fixed, scenario, window_rung(16)))
    often = packets_in(on_rung(fixed, scenario, window_rung(16, ack_every=1)))
    none = packets_in(on_rung(fixed, scenario, rung_named("free-acks")))
    data = often / 2
    assert none == pytest.approx(data, rel=0.02)
    assert data < seldom < often


# -- the command -----------------------------------------------------------------------------------


def test_halves_have_other_seeds_and_two_fabrics_for_each_link() -> None:
    tune = seeds("tune", 3)
    report = seeds("report", 1)
    assert not set(tune) & set(report)
    kinds = [drawn(seed).kind.fabric for seed in tune]
    assert kinds.count(ONE_LINK) == 1
    assert set(kinds[:2]) <= set(FABRICS)


def test_draws_move_the_starts_of_jobs_a_little_and_always_alike() -> None:
    origin = str(SCENARIO)
    first, second = (scenario_in_draw(origin, draw_number) for draw_number in (0, 1))
    moved = [
        later.start_s - job.start_s for job, later in zip(first.jobs, second.jobs, strict=True)
    ]
    assert all(0 <= seconds <= Fraction(40, 1000) for seconds in moved)
    assert any(moved)
    assert scenario_in_draw(origin, 1).jobs == second.jobs
    assert scenario_in_draw(origin, 2).jobs != second.jobs


def test_names_of_rungs() -> None:
    assert [rung_named(rung.name) for rung in RUNGS] == list(RUNGS)
    assert rung_named("window-12-ack-3") == window_rung(12, 3)
    with pytest.raises(KeyError, match="window-x"):
        rung_named("window-x")


def measurement(scenario: str, draw_number: int, above: float, is_one_link: bool) -> Measurement:
    order = {"total": 1000, "lower_queue": 100, "same_queue": 30, "min_share": 20}
    row = {"mean": 1.0, "above": above, "bytes": order, "reordered": 2}
    result = {"one_link": is_one_link, "fluid": 1.0, "rungs": {"as-is": row}}
    return Measurement(scenario, draw_number, "echelon", result)


def test_tables_have_means_over_draws_and_over_scenarios() -> None:
    measurements = [
        measurement("link", 0, 0.01, True),
        measurement("link", 1, 0.03, True),
        measurement("fabric", 0, 0.10, False),
        measurement("fabric", 1, -0.02, False),
    ]
    slowdowns, order = tables(measurements, [rung_named("as-is")])
    head = ("rung", "link", "fabric", "one link (1)", "fabrics (1)", "all (2)", "largest")
    assert tuple(slowdowns.head) == head
    assert slowdowns.rows == [["as it is", "+2.0", "+4.0", "+2.0", "+4.0", "+3.0", "+4.0"]]
    assert order.rows == [["as it is", "15.00", "10.00", "3.00", "2.00", "8"]]
    assert order.markdown().splitlines()[2] == "| as it is | 15.00 | 10.00 | 3.00 | 2.00 | 8 |"


def test_the_command_prints_tables_and_goes_on_from_what_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ladder.json"
    words = [str(SCENARIO), "--draws", "2", "--policy", RANKED.label, "--iterations", "2"]
    words += ["--rungs", "as-is,served", "-o", str(out)]
    main(words)
    printed = capsys.readouterr().out
    assert "above that on the fluid model" in printed
    assert "exact order, ranked when served" in printed

    document = json.loads(out.read_text())
    assert [row["draw"] for row in document["measurements"]] == [0, 1]
    kept = out.with_suffix(".jsonl").read_text()
    main(words)
    assert out.with_suffix(".jsonl").read_text() == kept
    assert capsys.readouterr().out == printed
    first, second = read(out)
    assert first.rows[1][0] == second.rows[1][0] == "exact order, ranked when served"
    assert second.rows[1][1] == "0.00"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--rungs", "served,wrong"], "unknown rung 'wrong'"), (["--policy", "x"], "x")],
)
def test_bad_words_are_said(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(SCENARIO), *words])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_policy_without_a_plan_has_no_ladder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="decides during a run"):
        main([str(SCENARIO), "--policy", "varys", "-o", str(tmp_path / "ladder.json")])
