"""The API's error answers: one shape for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from echelon.controller.machine.errors import ServiceError, UnavailableError, one_line
from echelon.model.documents import DocumentError
from echelon.model.errors import Code, CodedError
from echelon.model.quantities import shown

RETRY_AFTER_S = 1


class ErrorDetail(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    status: int
    """The HTTP status."""
    code: str
    """The kind of fault, for programs. docs/errors.md explains each code."""
    reason: str
    """One line: what, why, and what to do."""
    path: str
    """The key of the request that is at fault, like `pipeline.activation[0]`, or a line and column;
    empty: none.
    """


class ErrorResource(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


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


class RequestError(CodedError):
    """A request that is refused before the service sees it."""

    def __init__(
        self,
        status: int,
        reason: str,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code or _CODES[status])
        self.status = status
        self.reason = reason
        self.path = path
        self.headers = headers


def error_answer(
    status: int,
    reason: str,
    path: str = "",
    headers: Mapping[str, str] | None = None,
    *,
    code: Code | None = None,
    close: bool = False,
) -> JSONResponse:
    """Return an error answer. Without a `code` it has that of its status.

    With `close` the connection ends with the answer, because the rest of the request will not be
    read.
    """
    code = code or _CODES.get(status, "failed")
    detail = {"status": status, "code": code, "reason": one_line(reason), "path": one_line(path)}
    answer = JSONResponse({"error": detail}, status, headers)
    if close:
        answer.headers["Connection"] = "close"
    return answer


async def answer_request_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    close = error.status in (408, 413)
    return error_answer(
        error.status, error.reason, error.path, error.headers, code=error.code, close=close
    )


async def answer_service_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    headers: dict[str, str] = {}
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(RETRY_AFTER_S)
        if error.leader is not None:
            query = f"?{request.url.query}" if request.url.query else ""
            headers["Location"] = (
                f"{error.leader.rstrip('/')}{request.scope['raw_path'].decode('latin-1')}{query}"
            )
    return error_answer(error.status, error.reason, error.path, headers, code=error.code)


async def answer_document_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DocumentError)
    return error_answer(422, error.reason, error.path, code=error.code)


async def answer_validation_error(_: Request, error: Exception) -> JSONResponse:
    """Answer for parameters of the query; our own models check bodies."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    message = str(first["msg"])
    reason = (
        f"{shown(first.get('input'))} is not allowed: {message[0].lower()}{message[1:]} (correct"
        " the query)"
    )
    return error_answer(422, reason, str(first["loc"][-1]))


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer for routing's errors: no such path, or a method that it does not have."""
    assert isinstance(error, HTTPException)
    reason = {
        404: f"there is no {shown(request.url.path)} (the paths are in /openapi.json)",
        405: f"{request.method} is not allowed here (the header Allow lists the methods)",
    }.get(error.status_code, f"{error.detail} (correct the request)")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # The router names only the methods of the first route of that path.
        headers["Allow"] = ", ".join(sorted(request.app.state.methods_of(request.url.path)))
    return error_answer(error.status_code, reason, headers=headers)


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
"""Statuses of every path that needs a token. 422: an unknown parameter of the query, for
example.
"""
WITH_BODY = (400, 408, 413, 415)


def errors(*statuses: int, common: Iterable[int] = ALWAYS) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of a path for OpenAPI: the common ones and `statuses`."""
    return {
        status: {"description": _MEANING[status], "model": ErrorResource}
        for status in sorted({*common, *statuses})
    }
