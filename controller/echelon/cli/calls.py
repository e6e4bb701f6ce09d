"""The common part of commands that talk to a running service.

It has the service's address, the caller's token, and the form in which refusals are reported.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    NoReturn,
    ParamSpec,
    cast,
    get_type_hints,
)

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
"""The answer of the service, and the function that shows it to people."""


def on_service(
    command: Callable[Concatenate[Client, P], None], timeout_s: float = 30.0
) -> Callable[..., None]:
    """Return a command with options that say where the service is.

    They take the place of its first argument, the client of that service.
    """

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        as_json = options.get("as_json", False)
        place = [options.pop(parameter.name) for parameter in _WHERE]
        with service(
            *place,
            timeout_s=timeout_s,
            as_json=as_json,
        ) as client:
            command(client, *arguments, **options)

    client, *parameters = inspect.signature(command).parameters.values()
    # Only type checkers import the client's own type.
    local_names = {str(client.annotation): object}
    types = get_type_hints(
        command,
        localns=local_names,
        include_extras=True,
    )
    parameters = [parameter.replace(annotation=types[parameter.name]) for parameter in parameters]
    _set_signature(run, [*parameters, *_WHERE])
    return run


def _option(
    name: str,
    annotation: object,
    default: object,
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(
        name,
        kind,
        default=default,
        annotation=annotation,
    )


_WHERE = (
    _option("url", Url, DEFAULT_URL),
    _option("token_file", TokenFile, None),
    _option("ca", Authority, None),
    _option("certificate", Certificate, None),
)
"""The options that say where the service is."""


def _set_signature(command: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Make typer see these parameters of a command."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def answers(command: Callable[Concatenate[Client, P], Answer]) -> Callable[..., None]:
    """Return a command with the options of `on_service` and --json, which prints the answer."""

    @wraps(command)
    def run(
        client: Any,
        *arguments: Any,
        as_json: bool = False,
        **options: Any,
    ) -> None:
        answer, show = command(client, *arguments, **options)
        (tables.show_json if as_json else show)(answer)

    parameters = inspect.signature(command).parameters.values()
    _set_signature(run, [*parameters, _option("as_json", tables.AsJson, False)])
    return on_service(cast("Callable[..., None]", run))


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

    token = None
    try:
        if token_file is not None:
            token = read_token(token_file)
            hazard = readable_by_others(token_file)
            if hazard is not None:
                typer.echo(f"warning: {hazard}", err=True)
        client = Client(
            url,
            token=token,
            ca=ca,
            certificate=certificate,
            timeout_s=timeout_s,
        )
    except ClientError as error:
        _fail(error, BAD_INPUT, as_json)
    try:
        with client:
            yield client
    except ClientError as error:
        is_refused = error.status is not None and 400 <= error.status < 500
        _fail(error, BAD_INPUT if is_refused else FAILED, as_json)
    except DocumentError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


def _fail(
    error: ClientError,
    status: int,
    as_json: bool,
) -> NoReturn:
    """End the command with the error on standard error, as text or in the form of the API."""
    if as_json:
        keys = ("status", "code", "reason", "path")
        detail = {key: getattr(error, key) for key in keys}
        message = json.dumps({"error": detail}, ensure_ascii=False)
    elif error.code == "unauthenticated":
        message = (
            "the service does not know your token (name its file with --token-file or"
            " ECHELON_TOKEN_FILE)"
        )
    else:
        message = str(error)
    fail(message, status)
