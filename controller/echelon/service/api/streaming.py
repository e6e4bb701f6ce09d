"""Long answers in pieces, so that writing one does not block the event loop: a plan may have a hundred thousand flows,
and the sessions to the switches live on the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

PIECE = 500
"""Number of items at a time: some milliseconds."""


def answer(resource: BaseModel, field: str) -> Response:
    """Return `resource` as JSON; `field` is its sequence of resources, which may be long."""
    return StreamingResponse(_pieces(resource, field), media_type="application/json")


async def _pieces(resource: BaseModel, field: str) -> AsyncIterator[str]:
    items: tuple[BaseModel, ...] = getattr(resource, field)
    # Inside a text quotes are escaped, so this is the field itself.
    before, empty, after = resource.model_copy(update={field: ()}).model_dump_json().partition(f'"{field}":[]')
    assert empty
    yield f'{before}"{field}":['
    for start in range(0, len(items), PIECE):
        piece = ",".join(item.model_dump_json() for item in items[start : start + PIECE])
        yield f",{piece}" if start else piece
        await asyncio.sleep(0)
    yield f"]{after}"
