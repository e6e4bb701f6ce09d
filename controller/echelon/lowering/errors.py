"""The error of a plan that cannot be lowered."""

from __future__ import annotations


class LoweringError(ValueError):
    """The plan asks for something that the target cannot carry. The text says what, and what would fit."""

    def __init__(self, reason: str, job: str | None = None) -> None:
        super().__init__(reason)
        self.job = job
        """The job without which the rest may fit; None: no single job is at fault."""
