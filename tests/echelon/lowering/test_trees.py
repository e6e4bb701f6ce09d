"""The demands of plug-ins on switches for trees, as far as lowering itself counts them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echelon.switches.lowering.capabilities import LoweringError, TreeMemory
from echelon.switches.lowering.intent import FIRST_GROUP, MulticastGroup
from echelon.switches.lowering.lower import all_limits
from echelon.switches.lowering.numbering import ExhaustedError, Numbering, NumberKind
from echelon.switches.lowering.trees import EVERYWHERE, check_groups
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.faults import coded

LAST_GROUP = 0xFFFF
"""Numbers of multicast groups have 16 bits."""


def groups(count: int) -> tuple[MulticastGroup, ...]:
    return tuple(MulticastGroup(FIRST_GROUP + number, ((1, 0),)) for number in range(1, count + 1))


def test_a_switch_holds_as_many_groups_as_its_program_has_and_no_more() -> None:
    able = replace(softswitch(), trees=TreeMemory(places=16, trees=2))
    assert check_groups("s1", groups(2), able) == groups(2)
    with pytest.raises(LoweringError, check=coded("does-not-fit", "switch s1", "3", "2")):
        check_groups("s1", groups(3), able)


def test_a_switch_whose_program_has_no_groups_is_asked_for_none() -> None:
    assert check_groups("s1", (), softswitch()) is None


def test_each_tree_of_the_fabric_has_a_multicast_group() -> None:
    limits = all_limits({"s1": softswitch()})
    few = {EVERYWHERE: {NumberKind.TREE: 2}}
    assert FIRST_GROUP + limits[EVERYWHERE][NumberKind.TREE] == LAST_GROUP
    with Numbering(few).attempt(1) as attempt:
        numbers = attempt.numbers(EVERYWHERE, "a")
        assert [numbers.tree(ends) for ends in ("x", "y", "x")] == [1, 2, 1]
        with pytest.raises(ExhaustedError):
            numbers.tree("z")
