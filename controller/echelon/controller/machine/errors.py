"""The errors for requests that the controller does not carry out.

The text is for the client; `status` is the HTTP status.
"""

from __future__ import annotations

from echelon.model.errors import Code, CodedError


class ServiceError(CodedError):
    """A refusal in one line: what, why, and what to do.

    `path` is the key of the request at fault, if one is.
    """

    status = 500
    code: Code = "internal"

    def __init__(
        self,
        reason: str,
        path: str = "",
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code)
        self.reason = reason
        self.path = path


class UnknownError(ServiceError):
    """The error for an unknown job, switch or link."""

    status = 404
    code: Code = "unknown-name"


class ConflictError(ServiceError):
    """A different job has that name."""

    status = 409
    code: Code = "name-taken"


class RefusedError(ServiceError):
    """The request does not fit the fabric, a limit or a policy."""

    status = 422
    code: Code = "refused"


class UnavailableError(ServiceError):
    """The controller cannot serve the request now: it is a standby, or its store does not answer.

    Nothing was changed, unless the text says that this is not known; then asking the same again
    tells.
    """

    status = 503
    code: Code = "unavailable"

    def __init__(
        self,
        reason: str,
        leader: str | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code)
        self.leader = leader
        """URL of the controller that leads, where it is known."""
