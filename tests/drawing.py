"""The number of examples that property tests draw, and the mark of the longest tests."""

from __future__ import annotations

import os

import pytest


def examples(count: int) -> int:
    """Return `count` in `make test-properties`, which sets ECHELON_EXAMPLES=all, and a quarter of it elsewhere."""
    return count if os.environ.get("ECHELON_EXAMPLES") == "all" else (count + 3) // 4


longest = pytest.mark.skipif(
    os.environ.get("ECHELON_EXAMPLES") != "all", reason="takes minutes of a processor (ECHELON_EXAMPLES=all runs it)"
)
"""The mark of tests that even `make test-long` leaves out by default. They have the mark `long`, too."""
