"""The reader of bodies beside Python's own: the same values, and a refusal wherever that one is
lax.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.service.api.body import JsonError, parse_json
from echelon.model.errors import Code
from tests.faults import coded

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_reads_what_python_writes(value: object, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_json(text.encode()) == value


def strict(text: str) -> tuple[bool, object]:
    """Return whether Python's parser takes it as JSON without a key given twice and without
    infinity, and its value.
    """

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(items)) != len(items):
            raise ValueError
        return dict(items)

    def constant(name: str) -> object:
        raise ValueError

    def real(digits: str) -> float:
        if math.isinf(float(digits)):
            raise ValueError
        return float(digits)

    try:
        return True, json.loads(
            text, object_pairs_hook=pairs, parse_constant=constant, parse_float=real
        )
    except ValueError:
        return False, None


@given(
    st.lists(
        st.sampled_from([*'{}[]:,"\\ a1-.e\n', "null", '"a":', "NaN", '"b"']), max_size=12
    ).map("".join)
)
def test_agrees_with_python_on_any_text(text: str) -> None:
    good, value = strict(text)
    if good:
        assert parse_json(text.encode()) == value
    else:
        with pytest.raises(JsonError) as caught:
            parse_json(text.encode())
        assert caught.value.reason.endswith(")")
        assert "\n" not in caught.value.reason + caught.value.path


@pytest.mark.parametrize(
    ("raw", "code", "path"),
    [
        (b"", "empty-document", ""),
        (b" \n", "empty-document", ""),
        (b"{", "bad-syntax", "line 1, column 1"),
        (b'{"a":\n 1,}', "bad-syntax", "line 2, column 4"),
        (b'{"a": "\n"}', "bad-syntax", "line 2, column"),
        (b'{"a": "x', "bad-syntax", "line 1, column 8"),
        (b"{} {}", "bad-syntax", "line 1, column 4"),
        (b'{"a": 1, "a": 2}', "duplicate-key", "a"),
        (b'{"x": [0, {"y": {"a": 1, "b": 0, "a": 2}}]}', "duplicate-key", "a"),
        (b'{"x": {"a": 1, "a": 2}, "x": 0}', "duplicate-key", "a"),
        (b'{"a": NaN}', "not-a-number", ""),
        (b"[-Infinity]", "not-a-number", ""),
        (b"[1e999]", "not-a-number", ""),
        (b"[" + b"9" * 5000 + b"]", "bad-syntax", "line 1, column 4"),
        (b'"\xff"', "bad-syntax", "line 1, column"),
        (b'{"a": "\\ud800"}', "bad-syntax", "line 1, column"),
        (b'{"\\udfff": 1}', "bad-syntax", "line 1, column"),
        (b"[" * 100_000, "bad-syntax", "line 1, column"),
        (b'{"a":' * 100_000, "bad-syntax", "line 1, column"),
    ],
)
def test_refusals_name_the_place_and_what_to_do(raw: bytes, code: Code, path: str) -> None:
    with pytest.raises(JsonError, check=coded(code)) as caught:
        parse_json(raw)
    assert caught.value.reason.endswith(")")
    assert caught.value.path.startswith(path)
    assert bool(caught.value.path) == bool(path)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_that_of_lists_and_mappings_not_their_number() -> None:
    assert parse_json(json.dumps(nested(64)).encode()) == nested(64)
    assert parse_json(b"[" + b"[]," * 1000 + b"{}]") == [[]] * 1000 + [{}]
    assert parse_json(json.dumps(["[" * 1000, '"[{' * 100, "\\" * 99]).encode()) == [
        "[" * 1000,
        '"[{' * 100,
        "\\" * 99,
    ]


def test_both_halves_of_a_character_are_one() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]') == ["\N{GRINNING FACE}"]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_an_open_text_of_many_quotes_is_read_once() -> None:
    """Each of its escaped quotes could be taken for a new start; a megabyte would take hours."""
    raw = b"[" * 60 + b"{}" * 10 + b'"' + b'\\"' * 500_000
    with pytest.raises(JsonError):
        parse_json(raw)
