"""The number of examples that property tests draw."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """Return `count` in `make test-properties`, an eighth of it in `make test`, and a quarter of it
    elsewhere.

    They set ECHELON_EXAMPLES to "all" and "few".
    """
    parts = {"all": 1, "few": 8}.get(os.environ.get("ECHELON_EXAMPLES", ""), 4)
    return (count + parts - 1) // parts
