"""The error that every call raises."""

from __future__ import annotations

from echelon.model.errors import Code, CodedError


class ClientError(CodedError):
    """The service refused, or did not answer. One line, without any token."""

    def __init__(
        self,
        status: int | None,
        reason: str,
        path: str = "",
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(status, reason, path, code=code)
        self.status = status
        """The HTTP status; None: there was no answer."""
        self.reason = reason
        self.path = path
        """The key of the request that is at fault; empty: none."""

    def __str__(self) -> str:
        parts = [part for part in (self.path, self.reason) if part]
        return " ".join(": ".join(parts).split())
