"""A window that a switch closes, on connections with data both ways: safe on one of the two ways,
never on both.

`tests/reference/linux_acks.py` has the kernel's rules. The last test is about what the controller
asks switches for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.linux_acks import WINDOW, Connection

from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.identity import Identity, SegmentIdentity
from echelon.switches.lowering.lower import lower
from tests.drawing import examples
from tests.echelon.lowering.test_lower import PATH, diamond, only, plan_of, softswitch
from tests.needs import needs

MOST_TIME_OUTS = 4 * WINDOW
"""More than one for each segment that can be lost on its way, both ways."""


def ends(choices: Sequence[int], closing: Sequence[bool]) -> int | None:
    """Return how many time-outs a connection needs after these events until all has arrived; None:
    it never does.
    """
    connection = Connection(closing)
    for choice in choices:
        connection.act(choice)
    return connection.finish(MOST_TIME_OUTS)


def drawn(count: int) -> Iterator[list[int]]:
    random = Random(34)
    for _ in range(count):
        yield random.choices(range(32), k=random.randrange(120))


def test_closed_both_ways_some_freeze() -> None:
    """The model knows what stalled: both ends acknowledge from the left edge, and take each other's
    for old.
    """
    frozen = [choices for choices in drawn(200) if ends(choices, (True, True)) is None]
    assert frozen
    for choices in frozen:
        connection = Connection((True, True))
        for choice in choices:
            connection.act(choice)
        assert connection.finish(1000) is None
        assert [end.snd_una < end.snd_nxt and end.snd_wnd == 0 for end in connection.ends] == [
            True,
            True,
        ]
        assert ends(choices, (True, False)) is not None


@pytest.mark.parametrize("closing", [(False, False), (True, False)])
def test_closed_one_way_all_arrives_after_few_time_outs(closing: tuple[bool, bool]) -> None:
    @given(
        st.lists(st.integers(0, 31), max_size=120), st.lists(st.booleans(), min_size=2, max_size=2)
    )
    @settings(max_examples=examples(300), deadline=None)
    def check(choices: list[int], stays: list[bool]) -> None:
        assert ends([*choices, *(12 + end for end in (0, 1) if stays[end])], closing) is not None

    check()


@needs("all examples")
@pytest.mark.long
def test_a_million_connections() -> None:
    for choices in drawn(10**6):
        assert ends(choices, (True, False)) is not None, choices


@given(
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.sampled_from([((4000, 5000),), ((4000, 5000), (4001, 5000))]),
)
@settings(max_examples=examples(100), deadline=None)
def test_no_plan_closes_both_ways(
    carries: list[bool], pauses: list[bool], ports: tuple[tuple[int, int], ...]
) -> None:
    """The flows of a job between three hosts, and what passes the switch, do not matter."""
    hosts = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    pairs = [(src, dst) for src in hosts for dst in hosts if src != dst]
    identities: dict[tuple[str, str], Identity] = {}
    for number, ((src, dst), sent) in enumerate(zip(pairs, carries, strict=True)):
        reported = ports if src < dst else tuple((theirs, ours) for ours, theirs in ports)
        if sent:
            one = SegmentIdentity(
                src,
                dst,
                "tcp",
                0,
                0,
                0,
                9,
                9,
                Fraction(1, 100),
                pauses[number % 2],
                reported=reported,
            )
            identities["a", f"f{number}"] = one
    plan = plan_of(*(FlowPlan("a", name, Fixed(3), PATH) for _, name in list(identities)[:3]))
    answers = (
        only(lower(plan, diamond(), identities, softswitch())["s1"], "tcp_answer")
        if identities
        else ()
    )
    closed = [dict(entry.match) for entry in answers if dict(entry.actions[0].arguments)["closes"]]
    back = [
        {"src": m["dst"], "dst": m["src"], "src_port": m["dst_port"], "dst_port": m["src_port"]}
        for m in closed
    ]
    assert not any(one in closed for one in back)
