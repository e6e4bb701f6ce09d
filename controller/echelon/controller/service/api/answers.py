"""The API's error answers: one shape for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from echelon.controller.machine.errors import ServiceError, UnavailableError
from echelon.controller.resources.errors import ErrorResource
from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError
from echelon.model.quantities import excerpt, one_line

Headers = Mapping[str, str]

RETRY_AFTER_S = 1

_CODES: Mapping[int, Code] = {
    400: "bad-syntax",
    401: "unauthenticated",
    403: "forbidden",
    404: "unknown-path",
    405: "method-not-allowed",
    408: "timeout",
    413: "too-large",
    415: "unsupported-media-type",
    422: "invalid-value",
    429: "too-many-requests",
    500: "internal",
    503: "unavailable",
}
"""The code of an error that has no other one, by its HTTP status."""
_UNREAD = (408, 413)
"""Statuses with which the connection ends, because the rest of the request will not be read."""


class RequestError(CodedError):
    """A request that is refused before the service sees it."""

    def __init__(
        self,
        status: int,
        reason: str,
        path: str = "",
        headers: Headers | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code or _CODES[status])
        self.status = status
        self.reason = reason
        self.path = path
        self.headers = headers


def _answer(
    status: int,
    code: Code,
    reason: str,
    path: str,
    headers: Headers | None = None,
) -> JSONResponse:
    detail = {
        "status": status,
        "code": code,
        "reason": one_line(reason),
        "path": one_line(path),
    }
    return JSONResponse({"error": detail}, status, headers)


def refusal(error: RequestError) -> JSONResponse:
    """Return the answer to a request that is refused."""
    answer = _answer(error.status, error.code, error.reason, error.path, error.headers)
    if error.status in _UNREAD:
        answer.headers["Connection"] = "close"
    return answer


async def answer_request_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    return refusal(error)


async def answer_service_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    headers: dict[str, str] = {}
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(RETRY_AFTER_S)
        if error.leader is not None:
            headers["Location"] = error.leader.rstrip("/") + _path_and_query(request)
    return _answer(error.status, error.code, error.reason, error.path, headers)


def _path_and_query(request: Request) -> str:
    # The path as it was sent, with its escapes.
    path: str = request.scope["raw_path"].decode("latin-1")
    if request.url.query:
        path += f"?{request.url.query}"
    return path


async def answer_document_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DocumentError)
    return _answer(422, error.code, error.reason, error.path)


async def answer_validation_error(_: Request, error: Exception) -> JSONResponse:
    """Answer for parameters of the query; our own models check bodies."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    value = excerpt(first.get("input"))
    message = str(first["msg"])
    fault = message[0].lower() + message[1:]
    reason = f"{value} is not allowed: {fault} (correct the query)"
    parameter = str(first["loc"][-1])
    return _answer(422, _CODES[422], reason, parameter)


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer for routing's errors: no such path, or a method that it does not have."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    path = request.url.path
    headers = dict(error.headers or {})
    if status == 404:
        reason = f"there is no {excerpt(path)} (the paths are in /openapi.json)"
    elif status == 405:
        reason = f"{request.method} is not allowed here (the header Allow lists the methods)"
        # The router names only the methods of the first route of that path.
        methods = request.app.state.methods_of(path)
        headers["Allow"] = ", ".join(sorted(methods))
    else:
        reason = f"{error.detail} (correct the request)"
    code = _CODES.get(status, "failed")
    return _answer(status, code, reason, "", headers)


HANDLERS: Mapping[Any, Any] = {
    RequestError: answer_request_error,
    ServiceError: answer_service_error,
    DocumentError: answer_document_error,
    RequestValidationError: answer_validation_error,
    HTTPException: answer_http_error,
}

_MEANING = {
    400: "The body is not JSON.",
    401: "No token, or an unknown one.",
    403: "The token's role does not allow it, or a request from a foreign web page.",
    404: "Nothing has that name.",
    408: "The body took too long to arrive.",
    409: "Another job has that name.",
    413: "The body is too large.",
    415: "The body is not declared as application/json.",
    422: "The request cannot be met; `path` names the wrong key.",
    429: "Too many requests at a time; `Retry-After` says when to come back.",
    500: (
        "An unexpected error in the controller; its log has the details under the id in the answer."
    ),
    503: (
        "Not now: this controller is a standby (`Location` has the leader, where known), or has no"
        " plan or store yet."
    ),
}
ALWAYS = (401, 403, 422, 429, 500, 503)
"""Statuses of every path that needs a token; 422, for example, for an unknown query parameter."""
WITH_BODY = (400, 408, 413, 415)


Responses = dict[int | str, dict[str, Any]]
"""The answers of a path for OpenAPI, by status."""


def errors(*statuses: int, common: Iterable[int] = ALWAYS) -> Responses:
    """Return the error answers of a path: the common ones and `statuses`."""
    responses: Responses = {}
    for status in sorted({*common, *statuses}):
        description = _MEANING[status]
        responses[status] = {"description": description, "model": ErrorResource}
    return responses
