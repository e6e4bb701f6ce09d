"""`echelon events`: who changed what."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import tables
from echelon.cli.calls import on_service

if TYPE_CHECKING:
    from echelon.client import Client


@on_service
def events(
    client: Client,
    last: Annotated[int, typer.Option("--last", help="How many of the latest to list.", min=1, max=1000)] = 20,
    by: Annotated[str | None, typer.Option("--client", help="List only changes by this token.", metavar="NAME")] = None,
    of: Annotated[
        str | None, typer.Option("--of", help="List only changes of this job, link or policy.", metavar="OBJECT")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", help="List only changes before this request's.", metavar="REQUEST")
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """List who changed what. The request's id finds the change in the log.

    Example: echelon events --json
    """
    found = client.events(last, by, of, before)
    if as_json:
        tables.show_json(found)
        return
    columns = [
        tables.Column("time"),
        tables.Column("client"),
        tables.Column("address"),
        tables.Column("change"),
        tables.Column("of", wraps=True),
        tables.Column("request"),
    ]
    rows = [
        (
            datetime.fromtimestamp(one.at).astimezone().isoformat(" ", "seconds"),
            one.client or "-",
            one.address or "-",
            one.action,
            one.object,
            one.request,
        )
        for one in found
    ]
    tables.show(columns, rows, "no changes")
