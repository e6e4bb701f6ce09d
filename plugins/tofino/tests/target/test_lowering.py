"""A plan lowered to a fabric of several kinds of switches."""

from __future__ import annotations

from fractions import Fraction

import pytest

from echelon.planning.plan import FlowPlan, Plan
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.switches.lowering.identity import SegmentIdentity, ShimIdentity
from echelon.switches.lowering.intent import Interval, Prefix, TableEntry
from echelon.switches.lowering.lower import Lowering
from echelon.switches.targets import TARGETS
from echelon_tofino.target.options import TofinoOptions
from tests.echelon.lowering import test_lower
from tests.echelon.southbound.conftest import DEADLINES, STRICT, diamond

TOFINO = TARGETS["tofino"].capabilities(TofinoOptions())


def _entries(entries: tuple[TableEntry, ...], table: str) -> list[TableEntry]:
    return [entry for entry in entries if entry.table == table]


def test_each_kind_of_switch_gets_the_plan_in_its_own_units_and_widths() -> None:
    fabric = diamond()
    softswitch = TARGETS["softswitch"].capabilities(TARGETS["softswitch"].options())
    kinds = {name: TOFINO if name in ("s1", "s3") else softswitch for name in fabric.switches}
    flows = (
        FlowPlan(
            "a",
            "first",
            Deadline("e", Fraction(1024, 1000), DEADLINES),
            ("h1", "s1", "s3", "s4", "h2"),
        ),
        FlowPlan(
            "a", "second", Deadline("e", Fraction(0), DEADLINES), ("h1", "s1", "s3", "s4", "h2")
        ),
    )
    identities = {
        name: SegmentIdentity(
            "10.0.0.1", "10.0.0.2", "tcp", 4000, 5000, start, end, 3000, Fraction(1024, 10**6)
        )
        for name, start, end in (("first", 0, 1000), ("second", 1000, 3000))
    }
    intents = Lowering(fabric, kinds).lower(Plan("test", flows, STRICT), {"a": identities})
    ours, tofinos = intents["s4"].entries, intents["s3"].entries

    offsets = [dict(entry.actions[0].arguments) for entry in _entries(tofinos, "flow")]
    assert [arguments["offset_ticks"] for arguments in offsets] == [1_000_000, 0]
    assert [dict(e.actions[0].arguments)["offset_us"] for e in _entries(ours, "flow")] == [
        1_024_000,
        0,
    ]
    assert dict(_entries(tofinos, "tcp_connection")[0].actions[0].arguments)["gap_ticks"] == 1000

    assert [dict(entry.match)["position"] for entry in _entries(ours, "segment")] == [
        Interval(0, 999),
        Interval(1000, 2999),
        Interval(3000, 3000 + (1 << 13) - 1),
    ]
    positions = [dict(entry.match)["position"] for entry in _entries(tofinos, "segment")]
    covered = [
        value
        for prefix in positions
        if isinstance(prefix, Prefix)
        for value in range(prefix.value, prefix.value + (1 << 32 - prefix.length))
    ]
    assert covered == list(range(3000 + (1 << 13)))

    keys = [dict(entry.match)["key"] for entry in _entries(tofinos, "level")]
    assert all(isinstance(key, Interval) and key.high < 1 << 20 for key in keys)
    # Each profile says how far times are shifted, and where keys go that are too large.
    (period,) = (dict(entry.actions[0].arguments) for entry in _entries(tofinos, "period"))
    assert (period["is_relative"], period["lowest"]) == (0, 0)
    assert DEADLINES[-1] * 10**9 / 1024 / 2 ** period["right"] < 1 << 19
    assert not _entries(ours, "period")
    assert {
        name for entry in _entries(tofinos, "level") for name, _ in entry.actions[0].arguments
    } == {"queue"}
    # A port has one hold time, in ticks, and queues that are never let out have none.
    assert {entry.match for entry in _entries(tofinos, "promotion_hold")} == {
        (("port", port),) for port in fabric.ports["s3"]
    }
    assert not _entries(ours, "promotion_hold")
    assert {"cells"} == {
        name for e in _entries(tofinos, "ecn_threshold") for name, _ in e.actions[0].arguments
    }


def test_all_bytes_of_a_flow_that_is_known_by_them_count_on_a_tofino() -> None:
    """The unit is 8 ticks for each of the 65,536 ranks, and two bytes are a microsecond."""
    fabric = diamond()
    softswitch = TARGETS["softswitch"].capabilities(TARGETS["softswitch"].options())
    kinds = {name: TOFINO if name == "s3" else softswitch for name in fabric.switches}
    relative = Relative(
        Fraction(8 * 65536 * 1024, 10**9), Fraction(0), Fraction(0), Fraction(1), (Fraction(1, 8),)
    )
    ranking = Deadline("e", Fraction(0), (), 1, 7, relative, Fraction(1024, 10**6), left_shift=1)
    flows = tuple(
        FlowPlan("a", name, ranking, ("h1", "s1", "s3", "s4", "h2")) for name in ("known", "marked")
    )
    known = SegmentIdentity(
        "10.0.0.1", "10.0.0.2", "tcp", 4000, 5000, 1000, 1000 + 2 * 8192, 1 << 20, Fraction(1)
    )
    identities = {"known": known, "marked": ShimIdentity(1, 0)}
    intents = Lowering(fabric, kinds).lower(Plan("test", flows, STRICT), {"a": identities})

    def arguments(switch: str) -> list[dict[str, int]]:
        return [
            dict(entry.actions[0].arguments) for entry in _entries(intents[switch].entries, "flow")
        ]

    known_there, marked_there = arguments("s3")
    # 1000 ticks later than the offset, and 8000 more for all of its bytes.
    assert -known_there["handicap"] % (1 << 32) == 9000 // 8
    assert -marked_there["handicap"] % (1 << 32) == 1000 // 8
    units = TOFINO.units
    assert (known_there["left_shift"], marked_there["left_shift"]) == (
        units.left_shift(None),
        units.left_shift(1 + 3),
    )
    # The others count what is left of both.
    for of_flow in arguments("s4"):
        assert (of_flow["due_us"], of_flow["left_shift"]) == (1024, softswitch.units.left_shift(1))


@pytest.mark.parametrize("pause", [True, False])
def test_a_connection_alone_between_its_hosts_does_not_go_by_sequence_numbers(pause: bool) -> None:
    test_lower.test_a_connection_goes_by_sequence_numbers_if_it_is_alone_between_its_hosts(
        None, "tcp", TOFINO, False, pause
    )


@pytest.mark.parametrize("by_bytes", [True, False])
def test_iterations_are_not_by_bytes(by_bytes: bool) -> None:
    test_lower.test_iterations_by_bytes_are_for_switches_that_can(TOFINO, by_bytes)
