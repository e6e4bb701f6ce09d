"""Python expressions together with the bounds of their values."""

from __future__ import annotations

from dataclasses import dataclass

INLINE_SHIFT_MAX = 256
"""The largest shift that is written inline. Larger left shifts call a function that yields 0 beyond every field's
width."""


@dataclass(frozen=True, slots=True)
class Int:
    """A Python expression for an integer in ``low``..``high`` (None: unknown); ``masked`` is (x, m) if it is ``x & m``.

    ``atom`` tells that it needs no parentheses.
    """

    code: str
    low: int | None
    high: int | None
    atom: bool = False
    masked: tuple[Int, int] | None = None
    truth: Bool | None = None

    @property
    def value(self) -> int | None:
        return self.low if self.low is not None and self.low == self.high else None

    @property
    def wrapped(self) -> str:
        return self.code if self.atom else f"({self.code})"


@dataclass(frozen=True, slots=True)
class Bool:
    """A Python expression used for its truth value; ``number`` is the 0-or-1 integer that it tests, if it tests one.

    ``inverse`` is the expression that it negates, if it is a negation.
    """

    code: str
    atom: bool = False
    value: bool | None = None
    number: Int | None = None
    inverse: Bool | None = None

    @property
    def wrapped(self) -> str:
        return self.code if self.atom else f"({self.code})"


def const(value: int) -> Int:
    code = str(value) if abs(value) < 10 else f"{value:#x}"
    return Int(code if value >= 0 else f"({code})", value, value, True)


TRUE = Bool("True", True, True)
FALSE = Bool("False", True, False)


def unsigned(code: str, width: int) -> Int:
    """Return a variable known to hold ``width`` bits."""
    return Int(code, 0, (1 << width) - 1, code.isidentifier())


def signed(code: str, width: int) -> Int:
    return Int(code, -(1 << (width - 1)), (1 << (width - 1)) - 1, code.isidentifier())


def mask(a: Int, bits: int) -> Int:
    """Return ``a & bits``, simplified; ``bits`` is not negative."""
    if a.value is not None:
        return const(a.value & bits)
    if a.low is not None and a.low >= 0 and a.high is not None:
        possible = (1 << a.high.bit_length()) - 1
        if possible & bits == possible:
            return a
        if not possible & bits:
            return const(0)
    if a.masked is not None:
        inner, earlier = a.masked
        return mask(inner, earlier & bits)
    high = bits if a.low is None or a.low < 0 or a.high is None else min(bits, a.high)
    return Int(f"{a.wrapped} & {bits:#x}", 0, high, masked=(a, bits))


def wrap(a: Int, width: int, is_signed: bool) -> Int:
    """Return ``a`` cut to a field of ``width`` bits."""
    if not is_signed:
        return mask(a, (1 << width) - 1)
    half = 1 << (width - 1)
    if a.low is not None and a.high is not None and -half <= a.low and a.high < half:
        return a
    while a.masked is not None and a.masked[1] & (2 * half - 1) == 2 * half - 1:
        a = a.masked[0]
    if a.value is not None:
        return const(((a.value + half) & (2 * half - 1)) - half)
    if a.low is not None and a.low >= 0 and a.high is not None and a.high < 2 * half:
        return Int(f"({a.wrapped} ^ {half:#x}) - {half:#x}", -half, half - 1)
    return Int(f"({a.wrapped} + {half:#x} & {2 * half - 1:#x}) - {half:#x}", -half, half - 1)


def as_int(b: Bool) -> Int:
    if b.number is not None:
        return b.number
    if b.value is not None:
        return const(int(b.value))
    return Int(f"1 if {b.code} else 0", 0, 1, truth=b)


def as_bool(a: Int) -> Bool:
    """Return ``a != 0``."""
    if a.value is not None:
        return TRUE if a.value else FALSE
    if a.truth is not None:
        return a.truth
    return Bool(a.code, a.atom, number=a if a.low == 0 and a.high == 1 else None)


def arithmetic(op: str, a: Int, b: Int) -> Int:
    """Return ``a op b``. Raise ValueError with the reason if that is not supported or has no value."""
    if a.value is not None and b.value is not None:
        return _folded(op, a.value, b.value)
    match op:
        case "+" | "-":
            if b.value == 0:
                return a
            if op == "+":
                return Int(f"{a.wrapped} + {b.wrapped}", _plus(a.low, b.low), _plus(a.high, b.high))
            return Int(f"{a.wrapped} - {b.wrapped}", _minus(a.low, b.high), _minus(a.high, b.low))
        case "*":
            low, high = _product(a, b)
            return Int(f"{a.wrapped} * {b.wrapped}", low, high)
        case "&":
            if b.value is not None and b.value >= 0:
                return mask(a, b.value)
            if a.value is not None and a.value >= 0:
                return mask(b, a.value)
            if _natural(a) or _natural(b):
                return Int(f"{a.wrapped} & {b.wrapped}", 0, _least(a, b))
            return Int(f"{a.wrapped} & {b.wrapped}", None, None)
        case "|" | "^":
            if b.value == 0:
                return a
            if a.value == 0:
                return b
            code = f"{a.wrapped} {op} {b.wrapped}"
            if _natural(a) and _natural(b) and a.high is not None and b.high is not None:
                return Int(code, 0, (1 << max(a.high.bit_length(), b.high.bit_length())) - 1)
            return Int(code, None, None)
        case "<<":
            return _left_shift(a, b)
        case ">>":
            if b.value == 0:
                return a
            if b.low is None or b.low < 0:
                return Int(f"_right({a.code}, {b.code})", None, None)
            low = None if a.low is None else (0 if a.low >= 0 and b.value is None else a.low >> (b.value or 0))
            high = None if a.high is None else (max(a.high, 0) if b.value is None else a.high >> b.value)
            return Int(f"{a.wrapped} >> {b.wrapped}", low, high)
        case "/" | "%":
            name = {"/": "//", "%": "%"}[op]
            if _natural(a) and b.low is not None and b.low > 0:
                high = a.high if op == "/" else (None if b.high is None else b.high - 1)
                if op == "/" and a.high is not None:
                    high = a.high // b.low
                return Int(f"{a.wrapped} {name} {b.wrapped}", 0, high)
            return Int(f"_{'divide' if op == '/' else 'modulo'}({a.code}, {b.code})", None, None)
    raise ValueError(f"operator '{op}' is not supported here")


def _folded(op: str, a: int, b: int) -> Int:
    match op:
        case "+":
            return const(a + b)
        case "-":
            return const(a - b)
        case "*":
            return const(a * b)
        case "&":
            return const(a & b)
        case "|":
            return const(a | b)
        case "^":
            return const(a ^ b)
        case "<<" if 0 <= b <= INLINE_SHIFT_MAX:
            return const(a << b)
        case ">>" if b >= 0:
            return const(a >> b)
        case "/" if a >= 0 and b > 0:
            return const(a // b)
        case "%" if a >= 0 and b > 0:
            return const(a % b)
    raise ValueError(f"{a} {op} {b} has no value")


def _natural(a: Int) -> bool:
    return a.low is not None and a.low >= 0


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _minus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _least(a: Int, b: Int) -> int | None:
    """Return an upper bound of the conjunction of two numbers, at least one of which is not negative."""
    highs = [x.high for x in (a, b) if _natural(x) and x.high is not None]
    return min(highs) if highs else None


def _product(a: Int, b: Int) -> tuple[int | None, int | None]:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return (0 if _natural(a) and _natural(b) else None), None
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(corners), max(corners)


def _left_shift(a: Int, b: Int) -> Int:
    if b.value == 0:
        return a
    if not _natural(b) or b.high is None or b.high > INLINE_SHIFT_MAX:
        return Int(f"_left({a.code}, {b.code})", 0 if _natural(a) else None, None)
    least = b.low or 0
    low = None if a.low is None else (a.low << least if a.low >= 0 else a.low << b.high)
    high = None if a.high is None else (a.high << b.high if a.high >= 0 else a.high << least)
    return Int(f"{a.wrapped} << {b.wrapped}", low, high)


def logical(op: str, a: Bool, b: Bool) -> Bool:
    neutral = op == "and"
    if a.value is not None:
        return b if a.value is neutral else a
    if b.value is neutral:
        return a
    return Bool(f"{a.wrapped} {op} {b.wrapped}")


def comparison(op: str, a: Int, b: Int) -> Bool:
    if a.value is not None and b.value is not None:
        x, y = a.value, b.value
        result = {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]
        return TRUE if result else FALSE
    if op in ("==", "!="):
        if a.value is not None:
            a, b = b, a
        of_bit = b.value == 1 and a.low == 0 and a.high == 1
        if b.value == 0 or of_bit:
            return as_bool(a) if of_bit == (op == "==") else negated(as_bool(a))
    return Bool(f"{a.wrapped} {op} {b.wrapped}")


def negated(a: Bool) -> Bool:
    if a.value is not None:
        return FALSE if a.value else TRUE
    return a.inverse if a.inverse is not None else Bool(f"not {a.wrapped}", inverse=a)
