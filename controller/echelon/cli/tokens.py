"""`echelon token`: tokens for the API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, cast

import typer

from echelon.cli.tables import AsJson, show_json
from echelon.cli.usage import fail


def token(
    name: Annotated[str, typer.Argument(help="The token's name in the access log.", metavar="NAME")],
    role: Annotated[
        str,
        typer.Option(
            help="operator may change things; read-only may only read; agent may only report.",
            metavar="operator|read-only|agent",
        ),
    ],
    job: Annotated[
        list[str] | None,
        typer.Option(help="A job of which an agent's token may report; may be repeated. Default: all.", metavar="JOB"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the token to this new file, which only you can read, instead of printing it."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for the API.

    The token is for its owner, in a file that ECHELON_TOKEN_FILE names; it is shown once and stored nowhere. The entry
    is for the tokens file of the service, below 'tokens:'; it does not reveal the token.

    Example: echelon token h1-agent --role agent --job bert
    """
    from echelon.documents import DocumentError
    from echelon.service.api.tokens import Role, new_token

    try:
        made = new_token(name, cast(Role, role), job or ())
    except DocumentError as error:
        fail(str(error))
    if out is not None:
        _write_privately(out, made.token)
    if as_json:
        show_json({"entry": made.entry, **({"token": made.token} if out is None else {"file": out})})
        return
    if out is None:
        typer.echo(f"token:\n{made.token}\nentry for the tokens file:")
    typer.echo(made.entry, nl=False)


def _write_privately(file: Path, text: str) -> None:
    try:
        # Never overwrite a file: the token in it would be lost.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        fail(f"--out: {file}: {error.strerror or error} (name a new file)")
