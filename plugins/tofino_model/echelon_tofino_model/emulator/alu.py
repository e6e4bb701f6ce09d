"""The operations that the action units and the stateful ALUs have in common.

Operands are unsigned numbers of the container's width. A result may be negative or wider; whoever
stores it cuts it to the width.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

Operation = Callable[[int, int, int], int]
"""A function of two operands and the container's width in bits."""


def signed(value: int, width: int) -> int:
    """Return a number of ``width`` bits, read as two's complement."""
    value &= (1 << width) - 1
    if value >> width - 1:
        return value - (1 << width)
    return value


def _clamped(value: int, width: int) -> int:
    top = (1 << width - 1) - 1
    return max(-top - 1, min(top, value))


def _add(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a + b


def _sub(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a - b


def _saddu(
    a: int,
    b: int,
    width: int,
) -> int:
    return min(a + b, (1 << width) - 1)


def _ssubu(
    a: int,
    b: int,
    _width: int,
) -> int:
    return max(a - b, 0)


def _sadds(
    a: int,
    b: int,
    width: int,
) -> int:
    return _clamped(signed(a, width) + signed(b, width), width)


def _ssubs(
    a: int,
    b: int,
    width: int,
) -> int:
    return _clamped(signed(a, width) - signed(b, width), width)


def _minu(
    a: int,
    b: int,
    _width: int,
) -> int:
    return min(a, b)


def _mins(
    a: int,
    b: int,
    width: int,
) -> int:
    return min(signed(a, width), signed(b, width))


def _maxu(
    a: int,
    b: int,
    _width: int,
) -> int:
    return max(a, b)


def _maxs(
    a: int,
    b: int,
    width: int,
) -> int:
    return max(signed(a, width), signed(b, width))


def _nor(
    a: int,
    b: int,
    _width: int,
) -> int:
    return ~(a | b)


def _andca(
    a: int,
    b: int,
    _width: int,
) -> int:
    return ~a & b


def _andcb(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a & ~b


def _xor(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a ^ b


def _nand(
    a: int,
    b: int,
    _width: int,
) -> int:
    return ~(a & b)


def _and(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a & b


def _xnor(
    a: int,
    b: int,
    _width: int,
) -> int:
    return ~(a ^ b)


def _orca(
    a: int,
    b: int,
    _width: int,
) -> int:
    return ~a | b


def _orcb(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a | ~b


def _or(
    a: int,
    b: int,
    _width: int,
) -> int:
    return a | b


OPERATIONS: Mapping[str, Operation] = {
    "add": _add,
    "sub": _sub,
    "saddu": _saddu,
    "ssubu": _ssubu,
    "sadds": _sadds,
    "ssubs": _ssubs,
    "minu": _minu,
    "mins": _mins,
    "maxu": _maxu,
    "maxs": _maxs,
    "nor": _nor,
    "andca": _andca,
    "andcb": _andcb,
    "xor": _xor,
    "nand": _nand,
    "and": _and,
    "xnor": _xnor,
    "orca": _orca,
    "orcb": _orcb,
    "or": _or,
}
UNARY: Mapping[str, Callable[[int], int]] = {
    "alu_a": operator.pos,
    "alu_b": operator.pos,
    "not": operator.invert,
    "nota": operator.invert,
    "notb": operator.invert,
}
