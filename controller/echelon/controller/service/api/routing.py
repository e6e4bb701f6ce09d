"""Common parts of the routers: the service behind them, the check of queries, and long answers in
pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import islice
from typing import Annotated, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from echelon.controller.service.api.answers import RequestError
from echelon.controller.service.controller import ControllerService
from echelon.model.documents import path_text, suggestion

PIECE = 500
"""Number of items at a time: some milliseconds."""


def answer(
    resource: BaseModel, field: str, items: Iterable[BaseModel] | None = None
) -> StreamingResponse:
    """Return `resource` as JSON, with a sequence of resources in its `field`: `items`, or what it
    has.

    A long answer goes in pieces, so that writing one does not block the event loop: a plan may have
    a hundred thousand flows, and the sessions to the switches live on the same loop.
    """
    if items is None:
        given: Iterable[BaseModel] = getattr(resource, field)
    else:
        given = items
    return StreamingResponse(_pieces(resource, field, given), media_type="application/json")


def whole(
    resource: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return `resource` as JSON in one piece, of which FastAPI would first make dictionaries."""
    return Response(resource.model_dump_json(), status, headers, "application/json")


async def _pieces(
    resource: BaseModel, field: str, items: Iterable[BaseModel]
) -> AsyncIterator[str]:
    names = [*type(resource).model_fields]
    at = names.index(field)
    before, after = (
        resource.model_dump_json(include={*those})[1:-1] for those in (names[:at], names[at + 1 :])
    )
    yield f'{{{before}{"," * bool(before)}"{field}":['
    comma = ""
    rest = iter(items)
    while piece := ",".join(item.model_dump_json() for item in islice(rest, PIECE)):
        yield f"{comma}{piece}"
        comma = ","
        await asyncio.sleep(0)
    yield f"]{',' * bool(after)}{after}}}"


async def _service(request: Request) -> ControllerService:
    return cast(ControllerService, request.app.state.service)


TheService = Annotated[ControllerService, Depends(_service)]


async def _stopping(request: Request) -> asyncio.Event:
    return cast(asyncio.Event, request.app.state.stopping)


Stopping = Annotated[asyncio.Event, Depends(_stopping)]
"""Set when the server is asked to stop: requests that only wait answer then."""


async def _check_query(request: Request) -> None:
    """Refuse unknown parameters: a misspelt filter would be no filter."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            reason = f"unknown parameter of the query ({suggestion(name, known)})"
            raise RequestError(422, reason, path_text([name]), code="unknown-parameter")
        if name in seen:
            raise RequestError(422, "is given twice (keep one of them)", name, code="duplicate")
        seen.add(name)


Rehearse = Annotated[
    bool,
    Query(
        alias="dry_run",
        description="Return what the change would do (`DryRunResource`), and do not carry it out.",
    ),
]


def next_page(request: Request, response: Response, **last: str) -> None:
    """Name the next page in the header `Link` (RFC 8288): the same query, after the last item of
    this one.
    """
    query = urlencode({**request.query_params, **last})
    response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'


def router(tag: str) -> APIRouter:
    return APIRouter(tags=[tag], dependencies=[Depends(_check_query)])
