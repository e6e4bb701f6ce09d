"""`echelon link`: take links out of use and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import completion, dryruns, figures, tables
from echelon.cli.calls import on_service

if TYPE_CHECKING:
    from echelon.client import Client

app = typer.Typer(help="Links: list, drain, restore.", no_args_is_help=True)

End = Annotated[str, typer.Argument(help="A switch at one end.", metavar="A", autocompletion=completion.switches)]
OtherEnd = Annotated[
    str, typer.Argument(help="The switch at the other end.", metavar="B", autocompletion=completion.switches)
]


@app.command("list")
@on_service
def list_links(client: Client, as_json: tables.AsJson = False) -> None:
    """List all links of the fabric.

    Example: echelon link list
    """
    links = client.links()
    if as_json:
        tables.show_json(links)
        return
    columns = [
        tables.Column("a"),
        tables.Column("b"),
        tables.Column("rate", right=True),
        tables.Column("delay", right=True),
        tables.Column("state"),
    ]
    rows = [(link.a, link.b, figures.rate(link.rate_bps), figures.duration(link.delay_s), link.state) for link in links]
    tables.show(columns, rows, "no links")


@app.command()
@on_service
def drain(
    client: Client,
    a: End,
    b: OtherEnd,
    force: Annotated[bool, typer.Option("--force", help="Drain it even if jobs have no other path.")] = False,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Route jobs around a link, so that it can be serviced.

    If jobs have no other path, they are named and the link stays up. With --force, they leave the plan until there is a
    path again.

    Example: echelon link drain leaf1 spine2
    """
    _set(client, a, b, "drained", force=force, dry_run=dry_run, as_json=as_json)


@app.command()
@on_service
def restore(
    client: Client, a: End, b: OtherEnd, dry_run: dryruns.DryRun = False, as_json: tables.AsJson = False
) -> None:
    """Let jobs use a drained link again.

    Example: echelon link restore leaf1 spine2
    """
    _set(client, a, b, "up", dry_run=dry_run, as_json=as_json)


def _set(client: Client, a: str, b: str, state: str, *, force: bool = False, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        dryruns.show(client.rehearse_link(a, b, state, force=force), as_json)
        return
    link = client.set_link(a, b, state, force=force)
    if as_json:
        tables.show_json(link)
        return
    typer.echo(f"link {link.a} - {link.b} is {link.state}")
