"""`echelon policies`: the policies that are installed, without a service."""

from __future__ import annotations

import typer

from echelon.cli.tables import AsJson, Column, show, show_json


def policies(as_json: AsJson = False) -> None:
    """List the installed policies: what each does and needs, and where it was published.

    Example: echelon policies
    """
    from echelon.planning.policies.registry import described, unusable

    for reason in unusable():
        typer.echo(reason, err=True)
    installed = described()
    if as_json:
        show_json({"policies": installed})
        return
    columns = [
        Column("policy"),
        Column("what it does", wraps=True),
        Column("needs", wraps=True),
        Column("source"),
    ]
    rows = []
    for policy in installed:
        rows.append([policy.name, policy.about, policy.needs or "-", policy.source or "-"])
    show(columns, rows, "")
