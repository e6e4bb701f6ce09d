"""The error of a plan that cannot be lowered."""

from __future__ import annotations

from echelon.errors import Code, CodedError


class LoweringError(CodedError, ValueError):
    """The plan asks for something that the target cannot carry. The text says what, and what would fit."""

    code: Code = "does-not-fit"

    def __init__(self, reason: str, job: str | None = None, *, code: Code | None = None) -> None:
        super().__init__(reason, code=code)
        self.job = job
        """The job without which the rest may fit; None: no single job is at fault."""
