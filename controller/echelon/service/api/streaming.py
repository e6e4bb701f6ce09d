"""Long answers in pieces, so that writing one does not block the event loop: a plan may have a hundred thousand flows,
and the sessions to the switches live on the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice

from pydantic import BaseModel
from starlette.responses import StreamingResponse

PIECE = 500
"""Number of items at a time: some milliseconds."""


def answer(resource: BaseModel, field: str, items: Iterable[BaseModel] | None = None) -> StreamingResponse:
    """Return `resource` as JSON. Its `field` is a sequence of resources: `items` if given, else the resource's own."""
    given: Iterable[BaseModel] = getattr(resource, field) if items is None else items
    return StreamingResponse(_pieces(resource, field, given), media_type="application/json")


async def _pieces(resource: BaseModel, field: str, items: Iterable[BaseModel]) -> AsyncIterator[str]:
    # Inside a text quotes are escaped, so this is the field itself.
    before, empty, after = resource.model_copy(update={field: ()}).model_dump_json().partition(f'"{field}":[]')
    assert empty
    yield f'{before}"{field}":['
    comma = ""
    rest = iter(items)
    while piece := ",".join(item.model_dump_json() for item in islice(rest, PIECE)):
        yield f"{comma}{piece}"
        comma = ","
        await asyncio.sleep(0)
    yield f"]{after}"
