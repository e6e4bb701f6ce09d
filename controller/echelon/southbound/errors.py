"""Errors between a controller and a switch, in one line for the person who meets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from echelon.errors import Code, CodedError


class SouthboundError(CodedError):
    """The error for a switch that cannot be reached or refuses a request; the text names switch, table, match and
    reason.
    """

    code: Code = "switch-failed"


class NotPrimaryError(SouthboundError):
    """The error when another controller is the switch's primary, so that this one must not write any more.

    `primary_id` is that controller's election id, or 0 if the switch did not tell it.
    """

    code: Code = "not-primary"

    def __init__(self, text: str, primary_id: int) -> None:
        super().__init__(text)
        self.primary_id = primary_id


@asynccontextmanager
async def deadline(timeout_s: float, switch: str, what: str) -> AsyncIterator[None]:
    """Give the block `timeout_s` seconds. Raise `SouthboundError`, which says that `what` had no answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise SouthboundError(
            f"switch {switch}: {what}: no answer within {timeout_s:g} s; the switch may be stuck (restart it)"
        ) from None
