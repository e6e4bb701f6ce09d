"""The policies that chapter 3 is run with."""

from __future__ import annotations

BASELINE = "fifo"
"""The policy of the thesis's switch."""
SCHEDULED = "echelon"
"""The policy that is compared with it."""
POLICIES = (BASELINE, SCHEDULED)
TRAINING_FIRST = frozenset({SCHEDULED})
"""The policies under which cross traffic only gets what training leaves."""
