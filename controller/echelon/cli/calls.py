"""Commands that talk to a running service: its address, the caller's token, and how refusals are
reported.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec, get_type_hints

import typer

from echelon.cli import tables
from echelon.cli.usage import BAD_INPUT, FAILED, INTERRUPTED, fail

if TYPE_CHECKING:
    from echelon.controller.client import Client, ClientError

DEFAULT_URL = "http://127.0.0.1:8080"

_PANEL = "Where the service is"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ECHELON_URL",
        help=(
            "URL of the controller, or of several, separated by commas: http://..., https://... or"
            " unix:/PATH."
        ),
        rich_help_panel=_PANEL,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="ECHELON_TOKEN_FILE",
        help="The file with your token, if the service asks for one.",
        rich_help_panel=_PANEL,
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="ECHELON_CA",
        help=(
            "The authority that signed the service's certificate, if this machine does not know it."
        ),
        rich_help_panel=_PANEL,
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        envvar="ECHELON_CERTIFICATE",
        help="Your certificate with its key in one PEM file, if the service asks for one.",
        rich_help_panel=_PANEL,
    ),
]

P = ParamSpec("P")
Answer = tuple[Any, Callable[[Any], None]]
"""What the service answers, and the function that shows it to people."""


def on_service(
    command: Callable[Concatenate[Client, P], None], timeout_s: float = 30.0
) -> Callable[..., None]:
    """Return a command like `command`, with options for the service's address in the place of the
    client, its first argument."""

    @wraps(command)
    def run(
        *args: Any,
        url: str,
        token_file: Path | None,
        ca: Path | None,
        certificate: Path | None,
        **own: Any,
    ) -> None:
        with service(
            url, token_file, ca, certificate, timeout_s=timeout_s, as_json=own.get("as_json", False)
        ) as client:
            command(client, *args, **own)

    first, *own = inspect.signature(command).parameters.values()
    # Only type checkers import the client's own type.
    kinds = get_type_hints(command, localns={str(first.annotation): object}, include_extras=True)
    where: tuple[tuple[str, object, str | None], ...] = (
        ("url", Url, DEFAULT_URL),
        ("token_file", TokenFile, None),
        ("ca", Authority, None),
        ("certificate", Certificate, None),
    )
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in where
    ]
    parameters = [
        *(parameter.replace(annotation=kinds[parameter.name]) for parameter in own),
        *options,
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def answers(command: Callable[Concatenate[Client, P], Answer]) -> Callable[..., None]:
    """Return a command with the options of `on_service` and --json, which prints the answer."""

    def run(client: Any, *args: Any, as_json: bool = False, **own: Any) -> None:
        answer, show = command(client, *args, **own)
        (tables.show_json if as_json else show)(answer)

    made: Any = wraps(command)(run)
    signature = inspect.signature(command)
    last = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=tables.AsJson
    )
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values(), last])
    made.__annotations__ = {**command.__annotations__, "as_json": tables.AsJson}
    return on_service(made)


@contextmanager
def service(
    url: str,
    token_file: Path | None,
    ca: Path | None,
    certificate: Path | None,
    *,
    timeout_s: float,
    as_json: bool = False,
) -> Iterator[Client]:
    """Yield a client of the service; an error inside ends the command with one line.

    With `as_json`, the line for an answer that is not a success, or for no answer, is the JSON of
    the API.
    """
    from echelon.controller.client import Client, ClientError, read_token
    from echelon.controller.service.hazards import readable_by_others
    from echelon.model.documents import DocumentError

    try:
        token = None if token_file is None else read_token(token_file)
        if token_file is not None and (hazard := readable_by_others(token_file)) is not None:
            typer.echo(f"warning: {hazard}", err=True)
        client = Client(url, token=token, ca=ca, certificate=certificate, timeout_s=timeout_s)
    except ClientError as error:
        _fail(error, BAD_INPUT, as_json)
    try:
        with client:
            yield client
    except ClientError as error:
        _fail(
            error,
            BAD_INPUT if error.status is not None and 400 <= error.status < 500 else FAILED,
            as_json,
        )
    except DocumentError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


def _fail(error: ClientError, status: int, as_json: bool) -> NoReturn:
    """End the command with the error on standard error, as text or in the form of the API."""
    if not as_json and error.code == "unauthenticated":
        fail(
            "the service does not know your token (name its file with --token-file or"
            " ECHELON_TOKEN_FILE)",
            status,
        )
    if not as_json:
        fail(str(error), status)
    detail = {
        "status": error.status,
        "code": error.code,
        "reason": error.reason,
        "path": error.path,
    }
    fail(json.dumps({"error": detail}, ensure_ascii=False), status)
