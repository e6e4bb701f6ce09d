"""The number of examples that property tests draw."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """Return `count` in `make test-properties`, which sets ECHELON_EXAMPLES=all, and a quarter of
    it elsewhere.
    """
    return count if os.environ.get("ECHELON_EXAMPLES") == "all" else (count + 3) // 4
