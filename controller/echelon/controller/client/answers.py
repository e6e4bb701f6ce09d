"""The answers of controllers: resources, refusals, and the name of the controller that leads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar, cast
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from echelon.controller.client.endpoints import ServiceEndpoint, parse_endpoint
from echelon.controller.client.errors import ClientError
from echelon.model.errors import Code
from echelon.model.quantities import one_line

MAX_ANSWER_BYTES = 1 << 28
MAX_REASON = 1000
"""The most characters of an error that are passed on. The service's own are shorter."""
MAX_FOREIGN_TEXT = 2000
MAX_FOREIGN_REASON = 200
"""The most characters that are read, and passed on, of an answer that is no controller's."""
KEPT_HEADERS = ("location", "retry-after", "link")

R = TypeVar("R", bound=BaseModel)


class AnswerContent:
    """The content of an answer as it arrives.

    Whoever answers may not be a controller, and may never stop sending.
    """

    def __init__(self, longest_s: float) -> None:
        self._give_up_at = time.monotonic() + longest_s
        self._content = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add what has arrived. Raise `httpx.HTTPError` if it is too much, or takes too long."""
        self._content += chunk
        if len(self._content) > MAX_ANSWER_BYTES:
            raise httpx.RemoteProtocolError(
                f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB"
            )
        if time.monotonic() > self._give_up_at:
            raise httpx.ReadTimeout("the answer has no end")

    def response(self, answer: httpx.Response) -> httpx.Response:
        """Return the answer with its content."""
        headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
        return httpx.Response(
            answer.status_code,
            headers=headers,
            content=bytes(self._content),
            request=answer.request,
        )


def read_resource(resource: type[R], response: httpx.Response) -> R:
    """Return the resource in an answer. Raise `ClientError` if it is not one."""
    try:
        return resource.model_validate_json(response.content)
    except ValidationError as error:
        raise _not_understood(response, error) from None


def read_list(resource: type[R], response: httpx.Response) -> Sequence[R]:
    """Return the resources in an answer. Raise `ClientError` if it has no list of them."""
    try:
        return TypeAdapter(list[resource]).validate_json(response.content)  # type: ignore[valid-type]
    except ValidationError as error:
        raise _not_understood(response, error) from None


def _not_understood(response: httpx.Response, error: ValidationError) -> ClientError:
    first = error.errors(
        include_url=False,
        include_input=False,
    )[0]
    place = ".".join(map(str, first["loc"]))
    fault = f"{place}: {first['msg']}".strip(": ")
    reason = (
        f"the answer is not understood: {fault} (check that a controller of this version runs"
        " there)"
    )
    return ClientError(response.status_code, reason)


def read_refusal(response: httpx.Response) -> ClientError:
    """Return the error in the service's own form, or what a proxy in between said."""
    status = response.status_code
    try:
        error = response.json()["error"]
        reason = _shortened(error["reason"])
        path = _shortened(error["path"])
        code = _shortened(error.get("code", "failed"))
    except (ValueError, KeyError, TypeError, RecursionError):
        text = one_line(response.text[:MAX_FOREIGN_TEXT])[:MAX_FOREIGN_REASON]
        base = f"{response.url.scheme}://{response.url.netloc.decode()}"
        return ClientError(status, f"{base} answers {status}: {text or response.reason_phrase}")
    return ClientError(status, reason, path, code=cast(Code, code))


def _shortened(value: object) -> str:
    return one_line(str(value)[:MAX_REASON])


def read_leader(response: httpx.Response) -> ServiceEndpoint | None:
    """Return the leader that a standby names."""
    location = response.headers.get("location")
    if response.status_code != 503 or not location:
        return None
    try:
        parts = urlsplit(location)
        return parse_endpoint(f"{parts.scheme}://{parts.netloc}")
    except (ValueError, ClientError):
        return None
