"""Units are exact, and what is no quantity is refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.errors import Code
from echelon.model.quantities import (
    QuantityError,
    duration_s,
    duration_text,
    rate_bps,
    rate_text,
    size_bytes,
    size_text,
)
from tests.drawing import examples
from tests.faults import coded
from tests.shared import refused

SECONDS = {"s": "1", "ms": "1e-3", "us": "1e-6", "ns": "1e-9", "min": "60", "h": "3600"}
BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
BYTES |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
BITS = {"bit/s": 1, "kbit/s": 1000, "Mbit/s": 1000**2, "Gbit/s": 1000**3, "Tbit/s": 1000**4}


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (duration_s, "2 s", 2),
        (duration_s, "10 ms", Fraction(1, 100)),
        (duration_s, "5 us", Fraction(1, 200_000)),
        (duration_s, "5 \u00b5s", Fraction(1, 200_000)),
        (duration_s, "5 \u03bcs", Fraction(1, 200_000)),
        (duration_s, "5\u00a0\u03bcs", Fraction(1, 200_000)),
        (size_bytes, "2.5\u202fMB", 2_500_000),
        (duration_s, "0.1 s", Fraction(1, 10)),
        (duration_s, "1e-3 s", Fraction(1, 1000)),
        (duration_s, "1.5min", 90),
        (duration_s, "10000 h", 36_000_000),
        (size_bytes, "1000 TB", 10**15),
        (rate_bps, "10000 Gbit/s", 10**13),
        (size_bytes, "2.5 MB", 2_500_000),
        (size_bytes, "1250 B", 1250),
        (size_bytes, "64 KiB", 65_536),
        (size_bytes, "1.5 KiB", 1536),
        (rate_bps, "10 Mbit/s", 10_000_000),
        (rate_bps, "1 Gbit/s", 1_000_000_000),
        (rate_bps, "1.6 Tbit/s", 1_600_000_000_000),
        (rate_bps, "1.000001 Mbit/s", 1_000_001),
        (rate_bps, "  10   kbit/s ", 10_000),
        *[
            (parse, zero, 0)
            for parse in (duration_s, size_bytes, rate_bps)
            for zero in (0, 0.0, "0")
        ],
    ],
)
def test_known_values(
    parse: Callable[[object], Fraction | int], text: object, value: Fraction | int
) -> None:
    assert parse(text) == value


@given(st.decimals("0", "1000", places=12), st.sampled_from(sorted(SECONDS)))
@settings(max_examples=examples(100), deadline=None)
def test_durations_are_exact(number: Decimal, unit: str) -> None:
    assert duration_s(f"{number:f} {unit}") == Fraction(number) * Fraction(SECONDS[unit])


@given(st.integers(0, 10**6), st.sampled_from(sorted(BYTES)), st.sampled_from(sorted(BITS)))
@settings(max_examples=examples(100), deadline=None)
def test_sizes_and_rates_are_exact_integers(number: int, of_size: str, of_rate: str) -> None:
    if number * BYTES[of_size] <= 10**15:
        assert size_bytes(f"{number}{of_size}") == number * BYTES[of_size]
    if number * BITS[of_rate] <= 10**13:
        assert rate_bps(f"{number} {of_rate}") == number * BITS[of_rate]


@pytest.mark.parametrize(
    ("parse", "value", "code", "names"),
    [
        (size_bytes, "3 s", "unknown-unit", ["'s'", "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"]),
        (duration_s, "3 MB", "unknown-unit", ["'MB'", "s, ms, us, ns, min, h"]),
        (rate_bps, "3 Mbps", "unknown-unit", ["'Mbps'", "bit/s, kbit/s, Mbit/s, Gbit/s"]),
        (rate_bps, "3 mbit/s", "unknown-unit", ["'mbit/s'", "Mbit/s"]),
        (size_bytes, 3, "missing-unit", ["3 ", "2.5 MB", "B, kB"]),
        (duration_s, "3", "missing-unit", ["'3'", "10 ms", "s, ms"]),
        (duration_s, 0.5, "missing-unit", ["0.5", "10 ms"]),
        (size_bytes, "1.5 B", "not-a-quantity", ["'1.5 B'"]),
        (rate_bps, "0.1 bit/s", "not-a-quantity", ["'0.1 bit/s'"]),
        (duration_s, "-1 s", "too-small", ["'-1 s'"]),
        (duration_s, "1e99 s", "too-large", ["'1e99 s'", "10000 h"]),
        (duration_s, "36000000.001 s", "too-large", ["'36000000.001 s'", "10000 h"]),
        (size_bytes, "1000000000000001 B", "too-large", ["1000000000000001 B", "1000 TB"]),
        (rate_bps, "10001 Gbit/s", "too-large", ["'10001 Gbit/s'", "10000 Gbit/s"]),
        (duration_s, "1e999999999 s", "not-a-quantity", ["'1e999999999 s'", "10 ms"]),
        (duration_s, "9" * 5000 + " s", "not-a-quantity", ["999 s'"]),
        (duration_s, float("nan"), "not-a-quantity", ["nan"]),
        (duration_s, float("inf"), "not-a-quantity", ["inf"]),
        (duration_s, True, "not-a-quantity", ["true"]),
        (duration_s, None, "not-a-quantity", ["null"]),
        (duration_s, [1, 2], "not-a-quantity", ["[1, 2]"]),
        (duration_s, "", "not-a-quantity", ["''"]),
        (duration_s, "ten ms", "not-a-quantity", ["'ten ms'"]),
        (duration_s, "1 000 ms", "not-a-quantity", ["'1 000 ms'"]),
        (duration_s, "١ s", "not-a-quantity", ["'١ s'"]),
        (duration_s, "1,5 s", "not-a-quantity", ["'1,5 s'", "10 ms"]),
        (duration_s, "3 µ", "unknown-unit", ["'u'", "us"]),
        (size_bytes, "3 µs", "unknown-unit", ["'us'", "B, kB"]),
        (duration_s, "3 msec", "unknown-unit", ["'msec'", "write ms;", "s, ms"]),
        (duration_s, "3 Seconds", "unknown-unit", ["'Seconds'", "write s;"]),
        (duration_s, "1 d", "unknown-unit", ["'d'", "write 24 h for a day;"]),
        (duration_s, "3 MS", "unknown-unit", ["'MS'", "write ms;"]),
        (rate_bps, "100 Gbps", "unknown-unit", ["'Gbps'", "write Gbit/s;", "bit/s, kbit/s"]),
        (rate_bps, "100G", "unknown-unit", ["'G'", "write Gbit/s;"]),
        (rate_bps, "100 GBPS", "unknown-unit", ["'GBPS'", "write Gbit/s;"]),
        (rate_bps, "12.5 GB/s", "unknown-unit", ["'GB/s'", "write Gbit/s: a byte has 8 bits;"]),
        (size_bytes, "1 KB", "unknown-unit", ["'KB'", "write kB;"]),
        (size_bytes, "1 Mb", "unknown-unit", ["'Mb'", "write MB for bytes; bits are 8 to a byte;"]),
        (size_bytes, "1 mb", "unknown-unit", ["'mb'", "(use B, kB"]),
        (size_bytes, "1 Gi", "unknown-unit", ["'Gi'", "write GiB;"]),
        (size_bytes, "1 bytes", "unknown-unit", ["'bytes'", "write B;"]),
        (duration_s, "3.s", "not-a-quantity", ["'3.s'"]),
    ],
)
def test_what_is_no_quantity(
    parse: Callable[[object], object], value: object, code: Code, names: list[str]
) -> None:
    with pytest.raises(QuantityError, check=coded(code, *names)) as caught:
        parse(value)
    assert len(str(caught.value)) < 200


def test_a_number_that_python_does_not_print() -> None:
    with refused("missing-unit", error=QuantityError):
        size_bytes(10**5000)


def test_a_message_stays_short_for_lists_that_hold_each_other() -> None:
    bomb: list[object] = ["x" * 50] * 10
    for _ in range(12):  # 10^13 items when written out
        bomb = [bomb] * 10
    with refused("not-a-quantity", error=QuantityError) as caught:
        size_bytes(bomb)
    assert len(str(caught.value)) < 400


@given(st.integers(0, 10**16), st.integers(0, 12))
def test_what_is_written_is_read_again(number: int, digits: int) -> None:
    """Durations are exact to the picosecond."""
    seconds = Fraction(number, 10**digits) % 10**7
    assert duration_s(duration_text(seconds)) == seconds
    assert size_bytes(size_text(number % 10**15)) == number % 10**15
    assert rate_bps(rate_text(number % 10**13)) == number % 10**13


def test_finer_durations_are_rounded() -> None:
    assert duration_s(duration_text(Fraction(1, 3))) == Fraction(333_333_333_333, 10**12)
