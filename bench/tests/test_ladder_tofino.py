"""Tests of the ladder's rungs with limits of Tofino's program.

What the limits should be comes from the target `tofino`, which lowers for the program itself, and
from that program, where p4c is there to compile its sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.ladder.command import main
from bench.ladder.measure import Case, measure
from bench.ladder.rungs import AS_IT_IS, RUNGS, TOFINO_RUNGS, Limit, Rung, rung_named
from bench.ladder.tables import Measurement, tables
from bench.ladder.tofino import LimitedSwitch, in_switches, limited_plan
from bench.tests.test_ladder import (
    FIXED,
    ITERATIONS,
    PACKET_BYTES,
    RANKED,
    SCENARIO,
    Port,
    Ranked,
    on_rung,
    outcome,
)
from echelon.planning.plan import FlowPlan, Plan, QueuePlan
from echelon.planning.policies.base import FixedPlan
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.rankings.in_switches import LevelProfile, SwitchNumbers, Units
from echelon.planning.rankings.window import Window
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.lower import lower
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario
from echelon_lab.virtual.run import run as run_packets
from echelon_tofino.target.capabilities import tofino
from plugins.tofino_model.tests.virtual.test_virtual import from_sources
from tests.needs import needs

TCP = SCENARIO.with_name("dp_pair_tcp.yaml")
RANK_UNIT = 65536
TICK_S = Fraction(1024, 1_000_000_000)
SEQUENCE: Sequence[Limit] = ("sequence",)
UNITS: Sequence[Limit] = ("units",)
TOFINO = tofino().units

# -- ports -----------------------------------------------------------------------------------------


def by_steps(*flows: Ranked, register: bool = False, alone: bool = False) -> Port:
    limits: list[Limit] = ["steps"]
    if register:
        limits.append("top")
    if alone:
        limits.append("alone")
    return Port(Rung("steps", "steps", limits=limits), flows)


def test_a_flow_is_a_queue_lower_for_each_step_behind_the_most_urgent() -> None:
    behind = (0.0, 0.0005, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7)
    port = by_steps(*(Ranked(1.0 - by) for by in behind))
    for flow, by in enumerate(behind):
        # Acknowledgements mark the queues: whose packet comes before them is in a higher one.
        port.enqueue(str(by), flow, queue=3)
    for queue in range(7):
        port.enqueue_ack(f"queue {queue}", 0, queue)
    served = port.served()
    assert served == [
        "0.0",
        "0.0005",
        "queue 6",
        "0.02",
        "queue 5",
        "0.05",
        "queue 4",
        "0.1",
        "queue 3",
        "0.2",
        "queue 2",
        "0.5",
        "queue 1",
        "0.7",
        "queue 0",
    ]


def test_no_flow_is_below_the_lowest_queue_of_its_profile() -> None:
    port = by_steps(Ranked(1.0), Ranked(0.0, lowest=5))
    port.enqueue("urgent", 0, queue=0)
    port.enqueue("late", 1, queue=0)
    port.enqueue_ack("queue 5", 0, 5)
    assert port.served() == ["urgent", "late", "queue 5"]


def test_a_flow_that_waits_keeps_its_queue_and_is_to_drain() -> None:
    # It is behind by a half, and ahead two seconds later.
    port = by_steps(Ranked(0.5, slope=0.0), Ranked(0.0, slope=1.0))
    port.enqueue("first", 0, queue=0)
    port.enqueue("low", 1, queue=0, left_bytes=3 * PACKET_BYTES)
    assert not port.flows[1].drains_from
    late_ns = 2_000_000_000
    port.enqueue("still low", 1, queue=0, now_ns=late_ns, left_bytes=2 * PACKET_BYTES)
    assert port.flows[1].drains_from == 2 * PACKET_BYTES
    port.enqueue_ack("queue 3", 0, 3)
    assert port.served(late_ns) == ["first", "queue 3", "low", "still low"]
    # None of it waits.
    later_ns = 3_000_000_000
    port.enqueue("high", 1, queue=0, now_ns=later_ns)
    port.enqueue_ack("queue 5", 0, 5)
    assert port.served(later_ns) == ["high", "queue 5"]


def test_a_flow_may_have_to_wait_until_its_sender_says_that_it_is_alone() -> None:
    port = by_steps(Ranked(0.5, slope=0.0), Ranked(0.0, slope=1.0), alone=True)
    port.enqueue("first", 0, queue=0)
    port.enqueue("low", 1, queue=0)
    port.served()
    late_ns = 2_000_000_000
    port.enqueue("still low", 1, queue=0, now_ns=late_ns)
    port.enqueue_ack("queue 3", 0, 3)
    assert port.served(late_ns) == ["queue 3", "still low"]
    later_ns = 3_000_000_000
    port.enqueue("high", 1, queue=0, now_ns=later_ns, is_alone=True)
    port.enqueue_ack("queue 5", 0, 5)
    assert port.served(later_ns) == ["high", "queue 5"]


def test_a_new_iteration_of_a_flow_moves_it() -> None:
    port = by_steps(Ranked(0.5, slope=0.0), Ranked(0.0, slope=1.0), alone=True)
    port.enqueue("first", 0, queue=0)
    port.enqueue("low", 1, queue=0)
    port.served()
    late_ns = 2_000_000_000
    port.flows[1].epoch = 1
    port.enqueue("high", 1, queue=0, now_ns=late_ns, epoch=1)
    port.enqueue_ack("queue 5", 0, 5)
    assert port.served(late_ns) == ["high", "queue 5"]


@pytest.mark.parametrize("register", [False, True])
def test_a_register_remembers_whoever_has_left(register: bool) -> None:
    port = by_steps(Ranked(1.0, slope=0.0), Ranked(0.9, slope=0.0), register=register)
    port.enqueue("urgent", 0, queue=0)
    assert port.served() == ["urgent"]
    port.enqueue("next", 1, queue=0)
    port.enqueue_ack("queue 4", 0, 4)
    expected = ["next", "queue 4"]
    if register:
        expected = ["queue 4", "next"]
    assert port.served(now_ns=1_000_000_000) == expected


def test_a_register_forgets_a_unit_with_1024_packets_of_others() -> None:
    port = by_steps(Ranked(1.0, slope=0.0), Ranked(0.9, slope=0.0), register=True)
    port.enqueue("urgent", 0, queue=0)
    port.served()
    # It is three levels behind until the register has lost 0.02.
    needed = int(0.02 * 1024)
    for number in range(needed + 2):
        port.enqueue_ack("queue 3", 0, 3)
        now_ns = (1 + number) * 1_000_000_000
        port.enqueue("next", 1, queue=0)
        is_above = port.served(now_ns) == ["next", "queue 3"]
        assert is_above == (number > needed)


# -- rankings --------------------------------------------------------------------------------------


class Numbers:
    """A switch that has a number for everything, and keeps the profile that it is asked for."""

    whole_bytes = None

    def __init__(self, units: Units) -> None:
        self.units = units
        self.made: LevelProfile | None = None

    def echelonflow(self, name: str) -> int:
        return 0

    def group(self, name: str) -> int:
        return 0

    def once(self, ranking: object, make: Any) -> Any:
        return make()

    def profile(self, content: object, make: Any) -> int:
        self.made = make()
        return 0


def profile_of(ranking: Ranking, units: Units) -> LevelProfile:
    numbers = Numbers(units)
    switch: SwitchNumbers = numbers
    ranking.action(switch)
    assert numbers.made is not None
    return numbers.made


def limited(ranking: Ranking, limit: Limit) -> Ranking:
    """Return what switches with a limit get of a ranking, of which hosts keep theirs."""
    plan = Plan("plan", (FlowPlan("job", "flow", ranking, ("a", "s", "b")),), (QueuePlan(0),) * 8)
    (flow,) = limited_plan(plan, (limit,)).flows
    assert flow.ranking.at_host() == ranking.at_host()
    return in_switches(flow.ranking)


@pytest.mark.parametrize("unit_ms", [70, 95, 133, 200, 1000, 1400, 30_000])
def test_units_are_those_that_a_tofino_has(unit_ms: int) -> None:
    unit_s = Fraction(unit_ms, 1000)
    steps = (Fraction(1, 1000), Fraction(3, 10))
    relative = Relative(unit_s, Fraction(1, 4), Fraction(1, 10), Fraction(1), steps)
    ranking = Deadline("grads", Fraction(1), (), 1, 7, relative, left_shift=3)
    coarse = limited(ranking, "units")
    assert isinstance(coarse, Deadline)
    assert coarse.relative is not None

    numbers = dict(profile_of(ranking, TOFINO).period)
    right = numbers["right"]
    if right >= 16:
        right = 16 - right
    assert coarse.relative.unit_s == RANK_UNIT * Fraction(2) ** right * TICK_S
    # The head start keeps its time, and so do the steps.
    head_start = round(coarse.relative.head_start * RANK_UNIT)
    assert (1 << 32) - numbers["head_start"] == head_start
    edges = [lowest for lowest, _, _ in profile_of(ranking, TOFINO).steps[1:]]
    assert edges == [int(step * RANK_UNIT) + 1 for step in coarse.relative.steps]
    # Neither is left to what is due.
    assert (coarse.offset_s, coarse.left_s) == (ranking.offset_s, ranking.left_s)


def test_a_ranking_differs_for_switches_only() -> None:
    relative = Relative(Fraction(1), Fraction(0), Fraction(0), Fraction(1), ())
    ranking = Deadline("grads", Fraction(1), (), 1, 7, relative)
    plan = Plan("plan", (FlowPlan("job", "flow", ranking, ("a", "s", "b")),), (QueuePlan(0),) * 8)
    (flow,) = limited_plan(plan, UNITS).flows
    units = LimitedSwitch(()).capabilities(LimitedSwitch.options()).units
    assert profile_of(flow.ranking, units) != profile_of(ranking, units)
    assert flow.ranking.at_host() == ranking.at_host()
    assert flow.ranking.queues == ranking.queues


@pytest.mark.parametrize("longest_s", [Fraction(3, 10), Fraction(7, 3), Fraction(400)])
def test_thresholds_are_those_of_keys_of_20_bits(longest_s: Fraction) -> None:
    ranking = Deadline("grads", Fraction(1), (longest_s / 7, longest_s), 5, 7)
    coarse = limited(ranking, "keys")
    assert isinstance(coarse, Deadline)
    profile = profile_of(ranking, TOFINO)
    right = dict(profile.period)["right"]
    # A slack of 0 has this key, and the thresholds are ends of ranges below.
    zero = 1 << 19
    edges = [(zero + 1 - lowest << right) * TICK_S for lowest, _, _ in profile.steps[1:]]
    assert list(coarse.thresholds_s) == sorted(edges)
    assert max(coarse.thresholds_s) - longest_s <= (2 << right) * TICK_S


def test_bytes_attained_count_by_4_kib() -> None:
    ranking = Attained("job", (1, 4096, 1_000_000), (7, 6, 5, 4))
    coarse = limited(ranking, "keys")
    assert isinstance(coarse, Attained)
    edges = [lowest for lowest, _, _ in profile_of(Attained("job", (5000,), (7, 6)), TOFINO).steps]
    assert edges == [0, 2]
    assert coarse.thresholds_bytes == (4096, 4096, 245 * 4096)


def test_windows_begin_and_end_with_keys_of_20_bits() -> None:
    ranking = Window(Fraction(10), Fraction(2), Fraction(5), 7, 3)
    coarse = limited(ranking, "keys")
    assert isinstance(coarse, Window)
    profile = profile_of(ranking, TOFINO)
    right = dict(profile.period)["right"]
    assert right == 4
    ends = sorted((10 - coarse.begin_s, 10 - coarse.end_s))
    edges = [(lowest << right) * TICK_S for lowest, _, _ in profile.steps[1:]]
    assert [float(end) for end in ends] == pytest.approx(list(map(float, edges)), abs=2e-5)


# -- switches --------------------------------------------------------------------------------------


def capabilities(*limits: Limit) -> Capabilities:
    return LimitedSwitch(limits).capabilities(LimitedSwitch.options())


def test_capabilities_are_those_of_a_tofino() -> None:
    able = capabilities("streams", "hold", "left")
    assert able.max_pairs == tofino().max_pairs == 0
    assert able.left_by_position == tofino().left_by_position
    outer = tofino().outer_queues
    assert outer is not None
    # They have hold times by port, the table of v1model by queue.
    assert able.outer_queues == replace(outer, by_port=False)
    assert capabilities() == capabilities("steps", "top", "units")


def test_a_plan_with_relative_ranks_gives_a_tofino_no_hold_time(scenario: Scenario) -> None:
    """The ports of the ladder have none, so that a pause moves no flow."""
    plan = Case(scenario, RANKED, ITERATIONS).plan
    intents = lower(plan, scenario.fabric, scenario.described.identities, tofino())
    waits = [
        dict(action.arguments)["ticks"]
        for intent in intents.values()
        for part in intent.parts
        for entry in part.entries
        if entry.table == "promotion_hold"
        for action in entry.actions
    ]
    assert waits
    assert set(waits) == {0xFFFFFFFF}


def statements(program: object) -> Iterator[dict[str, Any]]:
    """Yield all statements of a program in BMv2's JSON."""
    if isinstance(program, dict):
        if "op" in program or "expression" in program:
            yield program
            return
        program = list(program.values())
    if isinstance(program, list):
        for part in program:
            yield from statements(part)


def differing(*limits: Limit) -> list[tuple[str, str]]:
    """Return the source of statements that a limit changes, and what they are then."""
    before = json.loads(LimitedSwitch(()).program().binary.read_text())
    after = json.loads(LimitedSwitch(limits).program().binary.read_text())
    changed = []
    for old, new in zip(statements(before), statements(after), strict=True):
        if old != new:
            changed.append((new["source_info"]["source_fragment"], json.dumps(new)))
    return changed


def test_a_delay_is_seen_when_the_last_packet_arrives() -> None:
    differences = differing("late")
    assert len(differences) == 3
    for source, changed in differences:
        assert "late >" in source
        assert "ingress_global_timestamp" in changed
        assert "egress_global_timestamp" not in changed.replace("ingress_global_timestamp", "")


@pytest.mark.parametrize(
    ("limit", "field", "value"),
    [
        ("expiry", "rank_holds_us", "0xffffffff"),
        ("last", "last", "0x00"),
        ("sequence", "in_sequence", "0x00"),
        ("gaps", "whole_bytes", "0x00000000"),
    ],
)
def test_a_program_without_a_feature_sets_a_field_to_a_constant(
    limit: Limit, field: str, value: str
) -> None:
    differences = differing(limit)
    assert differences
    for _, changed in differences:
        target, constant = json.loads(changed)["parameters"]
        assert target["value"] == ["scalars", f"metadata_t.{field}"]
        assert constant == {"type": "hexstr", "value": value}


def test_queue_pairs_keep_their_numbers_without_sequence_numbers_of_tcp() -> None:
    program = json.loads(LimitedSwitch(SEQUENCE).program().binary.read_text())
    constants = set()
    for action in program["actions"]:
        if "set_queue_pair" not in action["name"]:
            continue
        for primitive in action["primitives"]:
            target, *rest = primitive["parameters"]
            if target["value"] == ["scalars", "metadata_t.in_sequence"]:
                constants.add(rest[0]["value"])
    assert constants == {"0x01"}


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(SCENARIO)


@pytest.fixture(scope="module")
def ranked(scenario: Scenario) -> Case:
    return Case(scenario, RANKED, ITERATIONS)


@pytest.mark.parametrize("rung", TOFINO_RUNGS[1:], ids=lambda rung: rung.name)
def test_nothing_is_reordered_on_any_rung(ranked: Case, rung: Rung) -> None:
    measured = ranked.on_rung(rung)
    assert measured.counts.total > 0
    assert measured.reordered == 0


def test_limits_that_concern_no_flow_change_nothing(scenario: Scenario) -> None:
    fixed = Case(scenario, FIXED, ITERATIONS)
    product = outcome(on_rung(fixed, scenario, AS_IT_IS))
    for rung in TOFINO_RUNGS[1:]:
        assert not fixed.concerns(rung)
    everything = rung_named("tofino")
    case = Case(scenario, FIXED, ITERATIONS)
    assert case.on_rung(everything).mean == case.on_rung(AS_IT_IS).mean
    assert outcome(on_rung(fixed, scenario, everything)) == product


@pytest.mark.parametrize(
    ("name", "limits"),
    [("served", ()), ("levels", ()), ("tofino", ("hold", "keys"))],
)
def test_ports_leave_flows_of_other_rankings_as_they_are(
    scenario: Scenario, name: str, limits: Sequence[Limit]
) -> None:
    """Those of `aalo` change their queue often, and are asked to drain for that."""
    case = Case(scenario, PolicyChoice("aalo"), ITERATIONS)
    alike = Rung("limits", "", limits=limits)
    assert case.on_rung(rung_named(name)) == case.on_rung(alike)


@pytest.mark.parametrize(
    ("file", "policy", "names"),
    [
        (SCENARIO, "echelon(plan=rule)", "streams steps top alone units late"),
        (SCENARIO, "echelon(order=normalised)", "hold keys expiry"),
        (SCENARIO, "aalo", "hold keys"),
        (TCP, "echelon(plan=rule)", "units late left last sequence"),
    ],
)
def test_limits_concern_flows_by_ranking_and_recognition(
    file: Path, policy: str, names: str
) -> None:
    case = Case(load_scenario(file), PolicyChoice.parse(policy), ITERATIONS)
    concerning = [rung.name for rung in TOFINO_RUNGS[1:-1] if case.concerns(rung)]
    assert concerning == [f"tofino-{name}" for name in names.split()]


def test_senders_of_tcp_need_no_fluid_model() -> None:
    names = ["as-is", "tofino-left", "tofino-sequence"]
    rungs = [*map(rung_named, names), rung_named("tofino")]
    rows = measure(str(TCP), 0, RANKED, rungs, 2)["rungs"]
    # Ports do not know their flows.
    assert list(rows) == names
    assert all(1 <= row["mean"] < 1.5 for row in rows.values())


@needs("p4c", "cpp")
@pytest.mark.p4c
@pytest.mark.long
def test_all_limits_together_are_the_program_itself(
    scenario: Scenario, ranked: Case, tmp_path: Path
) -> None:
    """The ports of the ladder know references and memories; a Tofino has to find out."""
    run = run_packets(
        scenario,
        "plan",
        partial(FixedPlan, ranked.plan),
        lambda _job, _iteration: None,
        target=from_sources(tmp_path),
        end_s=ranked.end_s,
    )
    limited = ranked.on_rung(rung_named("tofino"))
    assert limited.mean == pytest.approx(ranked.mean(run), rel=0.015)


# -- the command -----------------------------------------------------------------------------------


def test_each_limit_has_a_rung_and_a_name_of_its_own() -> None:
    names = [rung.name for rung in (*RUNGS, *TOFINO_RUNGS[1:])]
    assert len(set(names)) == len(names)
    assert [rung_named(rung.name) for rung in TOFINO_RUNGS] == list(TOFINO_RUNGS)
    *single, everything = TOFINO_RUNGS
    assert {limit for rung in single for limit in rung.limits} == set(everything.limits)


def measurement(scenario: str, draw_number: int, means: dict[str, float]) -> Measurement:
    rows = {name: {"mean": mean} for name, mean in means.items()}
    result = {"one_link": True, "fluid": 1.0, "rungs": rows}
    return Measurement(scenario, draw_number, "echelon", result)


def test_costs_are_of_scenarios_that_a_limit_concerns() -> None:
    measurements = [
        measurement("a", 0, {"as-is": 1.0, "tofino-steps": 1.1}),
        measurement("a", 1, {"as-is": 1.2, "tofino-steps": 1.2}),
        measurement("b", 0, {"as-is": 2.0, "tofino-steps": 1.9, "tofino-gaps": 2.5}),
    ]
    rungs = [rung_named(name) for name in ("as-is", "tofino-steps", "tofino-gaps", "tofino-keys")]
    (costs,) = tables(measurements, rungs)
    assert costs.head == ("limit", "scenarios", "without", "with", "cost, %", "largest, %")
    steps, gaps, keys = (row[1:] for row in costs.rows)
    assert steps == ["2", "1.550", "1.525", "+0.0", "+5.0"]
    assert gaps == ["1", "2.000", "2.500", "+25.0", "+25.0"]
    assert keys == ["0", "", "", "", ""]


def test_the_command_prints_one_table_of_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ladder.json"
    words = [str(SCENARIO), "--draws", "1", "--policy", RANKED.label, "--iterations", "2"]
    main([*words, "--rungs", "tofino-units", "-o", str(out)])
    printed = capsys.readouterr().out
    assert "with a limit of Tofino's program" in printed
    assert "above that on the fluid model" not in printed
    document = json.loads(out.read_text())
    assert [rung["name"] for rung in document["rungs"]] == ["as-is", "tofino-units"]
    (row,) = document["measurements"]
    assert set(row["result"]["rungs"]) == {"as-is", "tofino-units"}
    assert row["result"]["fluid"] is None


def test_a_rung_that_concerns_nothing_is_not_run() -> None:
    result = measure(str(SCENARIO), 0, FIXED, TOFINO_RUNGS, 2)
    assert set(result["rungs"]) == {"as-is"}
