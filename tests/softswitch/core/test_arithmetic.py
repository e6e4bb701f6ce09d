"""The code that p4c makes of P4's operators, against their definitions (P4-16 specification,
sections 8.5 to 8.9).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import Switch
from tests.drawing import examples

# name, width in bits, signed: the header results_t of arithmetic.p4.
RESULTS = [
    *((name, 48, False) for name in ("add", "sub", "mul", "shl", "shr", "xor", "inv")),
    *(
        (name, 32, True)
        for name in ("slack", "sadd", "ssub", "smul", "sshr", "sneg", "sat_add", "sat_sub")
    ),
    *((name, 8, False) for name in ("usat_add", "usat_sub", "less", "sless")),
    ("concat", 16, False),
    ("slice", 8, False),
    ("narrow", 8, True),
    ("widen", 48, False),
    ("choice", 8, False),
]


def edges(bits: int) -> st.SearchStrategy[int]:
    """Return a strategy for numbers of ``bits`` bits, often those at the ends and in the middle."""
    top = 1 << bits
    special = [x % top for x in (0, 1, -1, -2, top // 2, top // 2 - 1, top // 2 + 1)]
    return st.sampled_from(special) | st.integers(0, top - 1)


def signed(value: int, bits: int) -> int:
    """Return the value of a number in two's complement."""
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def expected(a: int, b: int, s: int, t: int, n: int, m: int) -> dict[str, int]:
    low, high = -(2**31), 2**31 - 1
    return {
        "add": (a + b) % 2**48,
        "sub": (a - b) % 2**48,
        "mul": (a * b) % 2**48,
        "shl": (a * 2**n) % 2**48,
        "shr": a // 2**n,
        "xor": a | b,
        "inv": 2**48 - 1 - a,
        "slack": signed(a - b, 32),
        "sadd": signed(s + t, 32),
        "ssub": signed(s - t, 32),
        "smul": signed(s * t, 32),
        "sshr": s // 2**n,
        "sneg": signed(-s, 32),
        "sat_add": clamp(s + t, low, high),
        "sat_sub": clamp(s - t, low, high),
        "usat_add": min(n + m, 255),
        "usat_sub": max(n - m, 0),
        "less": int(a < b),
        "sless": int(s < t),
        "concat": n * 256 + m,
        "slice": a // 2**20 % 256,
        "narrow": signed(s, 8),
        "widen": s % 2**48,
        "choice": n if s < 0 and n > m else m,
    }


def run(switch: Switch, a: int, b: int, s: int, t: int, n: int, m: int) -> dict[str, int]:
    operands = b"".join(
        (value % (1 << bits)).to_bytes(bits // 8, "big")
        for value, bits in ((a, 48), (b, 48), (s, 32), (t, 32), (n, 8), (m, 8))
    )
    ((port, packet),) = switch.process(0, operands + b"payload", 0)
    assert port == 1
    assert packet[: len(operands)] == operands
    assert packet.endswith(b"payload")
    at = len(operands)
    found = {}
    for name, bits, is_signed in RESULTS:
        found[name] = int.from_bytes(packet[at : at + bits // 8], "big", signed=is_signed)
        at += bits // 8
    assert at == len(packet) - len(b"payload")
    return found


@pytest.fixture(scope="module")
def switch(new_switch: Callable[[str], Switch]) -> Switch:
    return new_switch("arithmetic")


@settings(max_examples=examples(300))
@given(
    edges(48),
    edges(48),
    edges(32).map(lambda x: signed(x, 32)),
    edges(32).map(lambda x: signed(x, 32)),
    edges(8),
    edges(8),
)
def test_operators(switch: Switch, a: int, b: int, s: int, t: int, n: int, m: int) -> None:
    assert run(switch, a, b, s, t, n, m) == expected(a, b, s, t, n, m)


@settings(max_examples=examples(200))
@given(edges(48), st.integers(-(2**31), 2**31 - 1))
def test_slack_is_the_distance_of_two_times_across_the_wrap(
    switch: Switch, now: int, distance: int
) -> None:
    deadline = (now + distance) % 2**48
    assert run(switch, deadline, now, 0, 0, 0, 0)["slack"] == distance
