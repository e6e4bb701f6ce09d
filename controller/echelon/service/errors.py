"""Why the service does not do what it was asked. The text is for the caller; `status` is the HTTP status."""

from __future__ import annotations


class ServiceError(Exception):
    """One line: what, why, and what to do. `path` is that of the key in the request, if one is at fault."""

    status = 500

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


class UnknownError(ServiceError):
    """There is no job, switch or link of that name."""

    status = 404


class ConflictError(ServiceError):
    """A different job has that name."""

    status = 409


class RefusedError(ServiceError):
    """The request cannot be met: it does not fit the fabric, a limit, or a policy."""

    status = 422


class UnavailableError(ServiceError):
    """Not now: this controller is a standby, or its store does not answer.

    Nothing was changed, unless the text says that this is not known: asking the same again tells.
    """

    status = 503

    def __init__(self, reason: str, leader: str | None = None) -> None:
        super().__init__(reason)
        self.leader = leader
        """URL of the controller that leads, where it is known."""


def one_line(text: str) -> str:
    """Return `text` as it may be shown to anybody: on one line, without anything that a terminal would obey."""
    text = " ".join(text.split())
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
