"""A parser of JSON bodies as strict as that of files: it refuses a key given twice and a number that is not finite."""

from __future__ import annotations

import json
import math
import re

from pydantic_core import from_json

from echelon.documents import Key, path_text
from echelon.errors import Code, CodedError
from echelon.quantities import shown

_POSITION = re.compile(r"(.*) at line (\d+) column (\d+)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonError(CodedError):
    """The text is not JSON. `path` is a line and column or a key; `reason` ends with what to do."""

    code: Code = "bad-syntax"

    def __init__(self, reason: str, path: str = "", *, code: Code | None = None) -> None:
        super().__init__(reason, code=code)
        self.reason = reason
        self.path = path


def parse_json(raw: bytes) -> object:
    """Return the value in the UTF-8 text `raw`. Raise `JsonError` if it is not JSON."""
    text = raw.removeprefix(_BYTE_ORDER_MARK)
    if not text.strip():
        raise JsonError("is empty (a mapping of keys to values is expected)", code="empty-document")
    try:
        from_json(text)
    except ValueError as error:
        found = _POSITION.fullmatch(str(error))
        reason, path = (found[1], f"line {found[2]}, column {found[3]}") if found else (str(error), "")
        raise JsonError(f"{reason[0].lower()}{reason[1:]} (correct the JSON)", path) from None
    # pydantic's parser keeps the last of two equal keys and reads 1e999 as infinity. It has bounded depth and digits.
    return json.loads(text, object_pairs_hook=_mapping, parse_float=_finite, parse_constant=_finite)


def _mapping(pairs: list[tuple[Key, object]]) -> dict[Key, object]:
    mapping: dict[Key, object] = {}
    for key, value in pairs:
        if key in mapping:
            raise JsonError(f"duplicate key {shown(key)} (keep one of them)", path_text([key]), code="duplicate-key")
        mapping[key] = value
    return mapping


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(
            f"{shown(text)} is not a finite number (write one between -1.8e308 and 1.8e308)", code="not-a-number"
        )
    return value
