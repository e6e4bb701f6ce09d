"""Bodies of requests: read within their limits, then parsed as JSON."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from pydantic_core import from_json

from echelon.controller.service.api.answers import RequestError
from echelon.controller.service.api.settings import ApiSettings
from echelon.controller.service.api.tokens import Principal
from echelon.model.documents import Key, Section, parse_document, path_text
from echelon.model.errors import Code, CodedError
from echelon.model.quantities import excerpt

_POSITION = re.compile(r"(.*) at line (\d+) column (\d+)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonError(CodedError):
    """The text is not JSON. `path` is a line and column or a key; `reason` ends with what to do."""

    code: Code = "bad-syntax"

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


def parse_json(raw: bytes) -> object:
    """Return the value in the UTF-8 text `raw`. Raise `JsonError` if it is not JSON."""
    text = raw.removeprefix(_BYTE_ORDER_MARK)
    if not text.strip():
        raise JsonError("is empty (a mapping of keys to values is expected)", code="empty-document")
    try:
        from_json(text)
    except ValueError as error:
        reason = str(error)
        path = ""
        match = _POSITION.fullmatch(reason)
        if match is not None:
            reason, line, column = match.groups()
            path = f"line {line}, column {column}"
        reason = reason[0].lower() + reason[1:]
        raise JsonError(f"{reason} (correct the JSON)", path) from None
    # pydantic's parser keeps the last of two equal keys and reads 1e999 as infinity. It has bounded
    # depth and digits.
    return json.loads(
        text,
        object_pairs_hook=_mapping,
        parse_float=_finite,
        parse_constant=_finite,
    )


def _mapping(pairs: list[tuple[Key, object]]) -> dict[Key, object]:
    mapping = {}
    for key, value in pairs:
        if key in mapping:
            reason = f"duplicate key {excerpt(key)} (keep one of them)"
            raise JsonError(reason, path_text([key]), code="duplicate-key")
        mapping[key] = value
    return mapping


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        reason = f"{excerpt(text)} is not a finite number (write one between -1.8e308 and 1.8e308)"
        raise JsonError(reason, code="not-a-number")
    return value


DRAINED = 4
"""Multiple of the limit up to which a body that is too large is still read and dropped.

A sender that is still writing does not look for an answer.
"""

LARGE = 16 << 10
"""Size in bytes up to which any body is parsed within a few milliseconds."""

_KINDS = {
    list: "list",
    str: "text",
    bool: "truth value",
    type(None): "null",
}
_JSON_TYPE = re.compile(r'application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?', re.IGNORECASE)

S = TypeVar("S", bound=Section)
T = TypeVar("T")


async def _read_mapping(request: Request) -> dict[str, Any]:
    """Return the mapping in the request's body. Raise `RequestError`."""
    settings: ApiSettings = request.app.state.settings
    _check_content_type(request)
    limit, setting = _limit(request, settings)
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            raw = await _read(request, limit, setting)
    except TimeoutError:
        reason = f"the body took more than {settings.body_timeout_s:g} s to arrive (send it again)"
        raise RequestError(408, reason) from None

    request.state.body_bytes = len(raw)
    try:
        data = await _beside(request, lambda: parse_json(raw))
    except JsonError as error:
        raise RequestError(400, error.reason, error.path, code=error.code) from None
    if not isinstance(data, dict):
        kind = _KINDS.get(type(data), "number")
        reason = f"is a {kind} (a mapping of keys to values is expected)"
        raise RequestError(422, reason, code="not-a-mapping")
    return data


def _check_content_type(request: Request) -> None:
    content_types = request.headers.getlist("content-type")
    text = ", ".join(content_types)
    if _JSON_TYPE.fullmatch(text.strip()):
        return
    body = "a body without content type"
    if content_types:
        body = f"content type {excerpt(text)}"
    hint = "send JSON with 'Content-Type: application/json'"
    raise RequestError(415, f"{body} is not read here ({hint})")


def _limit(request: Request, settings: ApiSettings) -> tuple[int, str]:
    """Return the size of the largest body in bytes, and where it is set."""
    principal: Principal | None = request.scope.get("principal")
    if principal is not None:
        token_limit = principal.limits.body
        if token_limit is not None and token_limit < settings.body_bytes:
            return token_limit, f"limits.body of token '{principal.token}'"
    return settings.body_bytes, "limits.body"


async def _read(
    request: Request,
    limit: int,
    setting: str,
) -> bytes:
    chunks: list[bytes] = []
    size = 0
    reason = f"the body has more than {limit} bytes (send less, or raise {setting})"
    too_large = RequestError(413, reason)
    declared = request.headers.get("content-length", "0")
    # Refuse at once what is declared larger than what would be drained. Twenty digits are enough
    # to tell.
    if declared.isdecimal() and int(declared[:20]) > limit * DRAINED:
        raise too_large
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit * DRAINED:
            break
        if size > limit:
            chunks.clear()
        else:
            chunks.append(chunk)
    if size > limit:
        raise too_large
    return b"".join(chunks)


async def _beside(request: Request, work: Callable[[], T]) -> T:
    """Return the result of `work`, done in a thread if the body would hold up the event loop."""
    if request.state.body_bytes <= LARGE:
        return work()
    return await asyncio.to_thread(work)


Mapping = Annotated[dict[str, Any], Depends(_read_mapping)]
"""A parameter of an endpoint: the body as it was sent.

The endpoint's `openapi_extra` is `described(model)`.
"""


def parsed(model: type[S]) -> Callable[..., Awaitable[S]]:
    """Return a dependency that yields the body as a `model`. It raises `DocumentError`."""

    async def parse(data: Mapping, request: Request) -> S:
        return await _beside(request, lambda: parse_document(model, data, ""))

    return parse


def described(model: type[BaseModel], **examples: Any) -> dict[str, Any]:
    """Return the body's description for OpenAPI. `app.create_app` adds the models."""
    reference = f"#/components/schemas/{model.__name__}"
    content: dict[str, Any] = {"schema": {"$ref": reference}}
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    body = {"required": True, "content": {"application/json": content}}
    return {"requestBody": body}
