"""Why a plan cannot be lowered."""

from __future__ import annotations


class LoweringError(ValueError):
    """The plan asks for what the target cannot carry; the text says what, and what would fit."""

    def __init__(self, reason: str, job: str | None = None) -> None:
        super().__init__(reason)
        self.job = job
        """Without this job the rest may fit; None: it is not one job that is at fault."""
