"""`echelon switch`: what the controller knows of the switches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import completion, figures, tables
from echelon.cli.calls import on_service

if TYPE_CHECKING:
    from echelon.client import Client

app = typer.Typer(help="Switches: list, show.", no_args_is_help=True)


@app.command("list")
@on_service
def list_switches(client: Client, as_json: tables.AsJson = False) -> None:
    """List all switches, with their state and table entries.

    Example: echelon switch list --json
    """
    switches = client.switches()
    if as_json:
        tables.show_json(switches)
        return
    now = time.time()
    columns = [
        tables.Column("switch", wraps=True),
        tables.Column("state"),
        tables.Column("for", right=True),
        tables.Column("target"),
        tables.Column("address", wraps=True),
        tables.Column("entries", right=True),
        tables.Column("foreign", right=True),
        tables.Column("drift", right=True),
    ]
    rows = [
        (
            switch.name,
            switch.state,
            figures.age(now - switch.since),
            switch.target,
            switch.address,
            figures.held(switch.entries, switch.wanted_entries),
            str(switch.foreign_entries),
            str(switch.drift_found),
        )
        for switch in switches
    ]
    problems = {switch.name: figures.problem(switch.name, switch.problem) for switch in switches if switch.problem}
    tables.show(columns, rows, "no switches", problems)


@app.command()
@on_service
def show(
    client: Client,
    name: Annotated[str, typer.Argument(help="The switch.", metavar="NAME", autocompletion=completion.switches)],
    intent: Annotated[
        bool, typer.Option("--intent", help="Also show every entry and queue that the switch should have.")
    ] = False,
    as_json: tables.AsJson = False,
) -> None:
    """Show one switch; with --intent, what it should hold.

    Example: echelon switch show leaf1 --intent
    """
    if as_json:
        tables.show_json(client.intent(name) if intent else client.switch(name))
        return
    switch, now = client.switch(name), time.time()

    def ago(at: float | None) -> str:
        return "never" if at is None else f"{figures.age(now - at)} ago"

    tables.pairs(
        [
            ("switch", switch.name),
            ("state", switch.state),
            ("problem", switch.problem or ""),
            ("since", ago(switch.since)),
            ("target", switch.target),
            ("address", switch.address),
            ("device id", str(switch.device_id)),
            ("election id", figures.NONE if switch.election_id is None else str(switch.election_id)),
            ("entries", f"{switch.entries} held, {switch.wanted_entries} wanted, {switch.foreign_entries} of others"),
            ("sessions", f"{switch.sessions} opened so far"),
            ("drift", f"{switch.drift_found} entries found changed and repaired"),
            ("last audit", ago(switch.last_audit_at)),
            ("last write", ago(switch.last_written_at)),
        ]
    )
    if intent:
        typer.echo()
        _show_intent(client, name)


def _show_intent(client: Client, name: str) -> None:
    held = client.intent(name)
    columns = [
        tables.Column("of"),
        tables.Column("table"),
        tables.Column("match", wraps=True),
        tables.Column("priority", right=True),
        tables.Column("action", wraps=True),
    ]
    rows = [
        (
            entry.owner or figures.NONE,
            entry.table,
            figures.fields(entry.match),
            str(entry.priority) if entry.priority else figures.NONE,
            entry.action,
        )
        for entry in held.entries
    ]
    tables.show(columns, rows, "no entries")
    typer.echo()
    columns = [
        tables.Column("port", right=True),
        tables.Column("queue", right=True),
        tables.Column("level", right=True),
        tables.Column("weight", right=True),
        tables.Column("at least", right=True),
        tables.Column("at most", right=True),
    ]
    settings = [
        (
            str(queue.port),
            str(queue.queue),
            str(queue.level),
            str(queue.weight),
            figures.rate(queue.min_rate_bps) if queue.min_rate_bps else figures.NONE,
            figures.rate(queue.max_rate_bps) if queue.max_rate_bps is not None else figures.NONE,
        )
        for queue in held.queues
    ]
    tables.show(columns, settings, "no queue settings")
