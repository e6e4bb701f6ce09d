"""Errors between a controller and a switch, in one line for the person who meets them."""

from __future__ import annotations

from echelon.model.errors import Code, CodedError


class SouthboundError(CodedError):
    """The error for a switch that cannot be reached or refuses a request.

    The text names switch, table, match and reason.
    """

    code: Code = "switch-failed"


class ProgramRefusedError(SouthboundError):
    """The error for a switch that does not take the P4 program, so that it can hold no intent."""


class UnansweredError(SouthboundError):
    """The error for a call that has no answer in time."""


class NotPrimaryError(SouthboundError):
    """The error when another controller is the switch's primary: this one must not write.

    `primary_id` is that controller's election id, or 0 if the switch did not tell it.
    """

    code: Code = "not-primary"

    def __init__(self, text: str, primary_id: int) -> None:
        super().__init__(text)
        self.primary_id = primary_id
