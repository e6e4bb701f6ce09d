"""Memory of switches: parts never overlap, nobody has more than there is, and who is due first has
what it asks.
"""

from __future__ import annotations

from itertools import combinations
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_aggregation.atp import came_first
from echelon_aggregation.memory import Claim, bit_reversed, due_first, parts, together
from echelon_aggregation.switchml import of_its_own
from echelon_aggregation.trees import Tree
from tests.drawing import examples

SWITCHES = ("a", "b", "c", "d")


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Claim], dict[str, int]]:
    room = {switch: draw(st.integers(0, 40)) for switch in SWITCHES}
    claims = []
    for number in range(draw(st.integers(1, 7))):
        of = draw(st.lists(st.sampled_from(SWITCHES), min_size=1, unique=True))
        parents = {f"host-{switch}": switch for switch in of} | dict.fromkeys(of[1:], of[0])
        tree = Tree(of[0], (), MappingProxyType(parents))
        claims.append(
            Claim(f"j{number}", tree, 2 ** draw(st.integers(1, 5)), draw(st.integers(0, 3)))
        )
    return claims, room


@settings(max_examples=examples(200))
@given(situations())
def test_parts_are_inside_their_switches_and_apart(
    situation: tuple[list[Claim], dict[str, int]],
) -> None:
    claims, room = situation
    found = parts(claims, room)
    held = [
        (claim, range(grant.first, grant.first + grant.mask + 1))
        for claim, grant in zip(claims, found, strict=True)
        if grant is not None
    ]
    for claim, places in held:
        assert len(places) == claim.places
        assert places.start % claim.places == 0
        assert all(places.stop <= room[switch] for switch in claim.tree.switches)
    for (one, mine), (other, theirs) in combinations(held, 2):
        if set(one.tree.switches) & set(other.tree.switches):
            assert not set(mine) & set(theirs)
    # Who gets nothing did not fit beside those before.
    for number, (claim, grant) in enumerate(zip(claims, found, strict=True)):
        if grant is None:
            free = set(range(min(room[switch] for switch in claim.tree.switches)))
            for before, places in held:
                if claims.index(before) < number and set(before.tree.switches) & set(
                    claim.tree.switches
                ):
                    free -= set(places)
            starts = range(0, 40, claim.places)
            assert not any(set(range(at, at + claim.places)) <= free for at in starts)
    assert of_its_own(claims, room) == [float(grant is not None) for grant in found]


@settings(max_examples=examples(200))
@given(situations())
def test_nobody_is_served_with_more_than_there_is(
    situation: tuple[list[Claim], dict[str, int]],
) -> None:
    claims, room = situation
    for served in (came_first(claims, room), due_first(claims, room)):
        assert all(0 <= part <= 1 for part in served)
        for switch in SWITCHES:
            held = sum(
                part * claim.places
                for claim, part in zip(claims, served, strict=True)
                if switch in claim.tree.switches
            )
            assert held <= room[switch] + 1e-9


@settings(max_examples=examples(200))
@given(situations())
def test_who_is_due_first_is_served_as_if_the_others_were_not_there(
    situation: tuple[list[Claim], dict[str, int]],
) -> None:
    claims, room = situation
    order = sorted(claims, key=lambda claim: claim.due_s)
    served = dict(zip(claims, due_first(claims, room), strict=True))
    for number in range(1, len(order) + 1):
        alone = due_first(order[:number], room)
        assert alone == [served[claim] for claim in order[:number]]


def test_first_come_gives_all_the_same_part() -> None:
    tree, other = Tree("a", (), {}), Tree("b", (), {"h": "a", "a": "b"})
    claims = [Claim("x", tree, 8), Claim("y", tree, 16), Claim("z", other, 8)]
    assert came_first(claims, {"a": 16, "b": 100}) == [0.5, 0.5, 0.5]
    assert due_first(claims, {"a": 16, "b": 100}) == [1, 0.5, 0]


def test_who_shares_places_begins_at_different_ones() -> None:
    tree = Tree("a", (), {})
    found = together([Claim("x", tree, 8), Claim("y", tree, 8)], {"a": 20}, "deadline")
    assert [(grant.first, grant.mask, grant.take) for grant in found if grant] == [(0, 15, 2)] * 2
    assert [bit_reversed(number, 15) for number in range(1, 6)] == [8, 4, 12, 2, 10]
    assert bit_reversed(7, 0) == 0
    assert together([Claim("x", tree, 8)], {"a": 0}, "first") == [None]
