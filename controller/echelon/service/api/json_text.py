"""JSON, read as strictly as files are: a key given twice, a number that is none and bottomless nesting are refused."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator

from echelon.documents import MAX_DEPTH, Key, path_text
from echelon.quantities import shown

MAX_DIGITS = 400
"""Of a number. Longer ones mean nothing, and reading them takes time that grows with the square of their length."""


class JsonError(Exception):
    """The text is no JSON. `path` is a line and column or the path of a key; `reason` ends with what to do."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


def parse_json(raw: bytes) -> object:
    """The value in the UTF-8 text `raw`. Raises `JsonError`. Time grows with the length of the text, no faster."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8 text (send the JSON in UTF-8)") from None
    if not text.strip(" \t\r\n"):
        raise JsonError("is empty (a mapping of keys to values is expected)")
    _check_depth(text)
    reader = _Reader()
    try:
        data: object = json.loads(
            text,
            object_pairs_hook=reader.mapping,
            parse_constant=reader.constant,
            parse_int=reader.integer,
            parse_float=reader.real,
        )
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at").removesuffix(" starting")
        raise JsonError(f"{reason[0].lower()}{reason[1:]} (correct the JSON)", _position(text, error.pos)) from None
    if reader.duplicate is not None:
        mapping, key = reader.duplicate
        where = (*_path_to(mapping, data), key)
        raise JsonError(f"duplicate key {shown(key)} (keep one of them)", path_text(where))
    _check_characters(raw, data)
    return data


class _Reader:
    """The hooks of Python's parser, and what they remember."""

    def __init__(self) -> None:
        self.duplicate: tuple[dict[str, object], str] | None = None
        """The last mapping (so an outermost one) that has a key twice."""

    def mapping(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            self.duplicate = result, next(key for key in result if counts[key] > 1)
        return result

    @staticmethod
    def constant(text: str) -> object:
        raise JsonError(f"{text} is not a number of JSON (write a finite number)")

    @staticmethod
    def integer(text: str) -> int:
        if len(text) > MAX_DIGITS:
            raise JsonError(f"holds a number of {len(text.lstrip('-'))} digits (write at most {MAX_DIGITS})")
        return int(text)

    @staticmethod
    def real(text: str) -> float:
        value = float(text) if len(text) <= MAX_DIGITS else math.inf
        if math.isinf(value):
            raise JsonError(f"{shown(text)} is beyond the range of numbers (write a smaller one)")
        return value


_BRACKET_OR_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def _check_depth(text: str) -> None:
    """Before the parser sees it: its recursion is bounded by the interpreter's stack, not by what is reasonable."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKET_OR_TEXT.finditer(text):
        character = match[0]
        if character in ("[", "{"):
            depth += 1
            if depth > MAX_DEPTH:
                raise JsonError(f"is nested more than {MAX_DEPTH} deep (flatten it)", _position(text, match.start()))
        elif character in ("]", "}"):
            depth -= 1


def _check_characters(raw: bytes, data: object) -> None:
    """JSON can spell half of a character (``\\ud800``); no text that is to be sent or stored may have one."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise JsonError(f"{half} is half of a character (remove it, or write the other half as well)") from None


def _position(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _path_to(wanted: object, data: object) -> tuple[Key, ...]:
    """Of the very object `wanted` in `data`."""
    todo: list[tuple[tuple[Key, ...], object]] = [((), data)]
    while todo:
        path, value = todo.pop()
        if value is wanted:
            return path
        todo.extend(((*path, key), item) for key, item in _items(value))
    return ()


def _items(value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
