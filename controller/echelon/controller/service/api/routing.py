"""Common parts of the endpoints.

They are the service behind them, the check of queries, and long answers in pieces.
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


def answer_at_once(
    resource: BaseModel,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return `resource` as JSON in one piece, of which FastAPI would first make dictionaries."""
    return Response(resource.model_dump_json(), status, headers, "application/json")


def answer_in_pieces(
    resource: BaseModel,
    field: str,
    items: Iterable[BaseModel] | None = None,
) -> StreamingResponse:
    """Return `resource` as JSON, with resources in its `field`: `items`, or those that it has.

    A long answer goes in pieces, so that writing one does not block the event loop: a plan may have
    a hundred thousand flows, and the sessions to the switches live on the same loop.
    """
    if items is None:
        items = getattr(resource, field)
    return StreamingResponse(_pieces(resource, field, items), media_type="application/json")


async def _pieces(
    resource: BaseModel,
    field: str,
    items: Iterable[BaseModel],
) -> AsyncIterator[str]:
    names = list(type(resource).model_fields)
    place = names.index(field)
    before = _members(resource, names[:place])
    after = _members(resource, names[place + 1 :])
    if before:
        before += ","
    if after:
        after = "," + after

    yield f'{{{before}"{field}":['
    comma = ""
    remaining = iter(items)
    while True:
        texts = [item.model_dump_json() for item in islice(remaining, PIECE)]
        if not texts:
            break
        yield comma + ",".join(texts)
        comma = ","
        await asyncio.sleep(0)
    yield f"]{after}}}"


def _members(resource: BaseModel, names: Iterable[str]) -> str:
    """Return these fields as members of a JSON object, without its braces."""
    text = resource.model_dump_json(include=set(names))
    return text.removeprefix("{").removesuffix("}")


async def _service(request: Request) -> ControllerService:
    return cast(ControllerService, request.app.state.service)


TheService = Annotated[ControllerService, Depends(_service)]


async def _stopping(request: Request) -> asyncio.Event:
    return cast(asyncio.Event, request.app.state.stopping)


Stopping = Annotated[asyncio.Event, Depends(_stopping)]
"""Set when the server is asked to stop: requests that only wait answer then."""


async def _check_query(request: Request) -> None:
    """Refuse unknown parameters: a misspelt filter would be no filter."""
    parameters = request.scope["route"].dependant.query_params
    names = [parameter.alias for parameter in parameters]
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in names:
            reason = f"unknown parameter of the query ({suggestion(name, names)})"
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


def next_page(
    request: Request,
    response: Response,
    **last: str,
) -> None:
    """Name the next page in the header `Link` (RFC 8288).

    It is the same query, after the last item of this page.
    """
    query = urlencode({**request.query_params, **last})
    response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'


def router(tag: str) -> APIRouter:
    return APIRouter(
        tags=[tag],
        dependencies=[Depends(_check_query)],
    )
