"""`echelon policy`: how jobs share the fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import completion, dryruns, tables
from echelon.cli.calls import on_service
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from echelon.client import Client
    from echelon.service.api.policy import PolicyResource

app = typer.Typer(help="The policy: show, set.", no_args_is_help=True)


@app.command()
@on_service
def show(client: Client, as_json: tables.AsJson = False) -> None:
    """Show the policy in force, and all that can be chosen.

    Example: echelon policy show
    """
    policy = client.policy()
    if as_json:
        tables.show_json(policy)
        return
    tables.pairs([("policy", _text(policy))])
    columns = [
        tables.Column("policies"),
        tables.Column("parameter"),
        tables.Column("values, the default first", wraps=True),
    ]
    rows = []
    for name, parameters in policy.choices.items():
        first = name
        for parameter, values in parameters.items():
            rows.append((first, parameter, ", ".join(values) or "any"))
            first = ""
        if not parameters:
            rows.append((name, "", ""))
    tables.show(columns, rows, "")


@app.command("set")
@on_service
def set_policy(
    client: Client,
    name: Annotated[str, typer.Argument(help="The policy.", metavar="NAME", autocompletion=completion.policies)],
    parameters: Annotated[
        list[str] | None,
        typer.Argument(help="Parameters of the policy; default: its own defaults.", metavar="PARAMETER=VALUE"),
    ] = None,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Change the policy: all jobs are planned anew.

    The service remembers it; the policy in its configuration file only applies to its first start.

    Example: echelon policy set echelon order=setf
    """
    given: dict[str, str] = {}
    for text in parameters or ():
        parameter, equals, value = text.partition("=")
        if not equals or not parameter:
            fail(f"'{text}' is not a parameter (write it as order=setf)")
        if parameter in given:
            fail(f"parameter '{parameter}' is given twice (keep one of them)")
        given[parameter] = value
    if dry_run:
        dryruns.show(client.rehearse_policy(name, given), as_json)
        return
    policy = client.set_policy(name, given)
    if as_json:
        tables.show_json(policy)
        return
    typer.echo(f"the policy is {_text(policy)}")


def _text(policy: PolicyResource) -> str:
    given = ", ".join(f"{name}={value}" for name, value in policy.parameters.items())
    return f"{policy.name}({given})" if given else policy.name
