"""`echelon plan`: the plan in force, and what writing it would change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli import completion, figures, tables
from echelon.cli.calls import on_service
from echelon.cli.usage import BAD_INPUT, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from echelon.client import Client
    from echelon.service.api.plan import ChoiceResource, RankingResource
    from echelon.service.api.switches import EntryResource, SwitchDifference

app = typer.Typer(help="The plan: show, diff.", no_args_is_help=True)

DIFFERENT = FAILED
TROUBLE = BAD_INPUT
"""Exit statuses as those of diff: 0 no differences, 1 some, 2 trouble."""


@app.command()
@on_service
def show(
    client: Client,
    job: Annotated[
        str | None, typer.Option(help="Show only flows of this job.", metavar="NAME", autocompletion=completion.jobs)
    ] = None,
    switch: Annotated[
        str | None,
        typer.Option(help="Show only flows through this switch.", metavar="NAME", autocompletion=completion.switches),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Show so many flows at most. Default: all.", min=1)] = None,
    after: Annotated[
        str | None, typer.Option(help="Show only flows that come after this one.", metavar="JOB/FLOW")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Show instead of flows what was simulated, and what was chosen.")
    ] = False,
    as_json: tables.AsJson = False,
) -> None:
    """Show path and ranking of every flow.

    Example: echelon plan show
    """
    plan = client.plan(job, switch, limit, after, why=why)
    if as_json:
        tables.show_json(plan)
        return
    tables.pairs(
        [
            ("plan", f"{plan.number}, made {figures.age(time.time() - plan.made_at)} ago"),
            ("policy", plan.policy),
            ("jobs", str(plan.jobs)),
            ("problem", plan.problem or ""),
        ]
    )
    if why:
        for choice in plan.why:
            _show_choice(choice)
        if not plan.why:
            typer.echo(f"policy {plan.policy} simulates nothing, or there are no jobs")
        return
    columns = [
        tables.Column("job"),
        tables.Column("flow"),
        tables.Column("path", wraps=True),
        tables.Column("ranking", wraps=True),
    ]
    rows = [(flow.job, flow.flow, " > ".join(flow.path), _ranking(flow.ranking)) for flow in plan.flows]
    tables.show(columns, rows, "no flows")


@app.command()
@on_service
def diff(
    client: Client,
    switches: Annotated[
        list[str] | None, typer.Argument(help="Default: all.", metavar="SWITCH", autocompletion=completion.switches)
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Read the switches and show what would be written to them; nothing is written.

    Status 0: no differences; 1: differences; 2: a switch could not be read.

    Example: echelon plan diff
    """
    found = [client.difference(name) for name in switches or [switch.name for switch in client.switches()]]
    if as_json:
        tables.show_json(found)
    else:
        for difference in found:
            _show_difference(difference)
    if not all(difference.reachable for difference in found):
        raise typer.Exit(TROUBLE)
    if any(difference.inserts or difference.modifies or difference.deletes for difference in found):
        raise typer.Exit(DIFFERENT)


def _show_choice(choice: ChoiceResource) -> None:
    typer.echo()
    searched = "not searched for yet" if len(choice.jobs) > 1 else "shares no links"
    if choice.searched_at is not None and choice.search_s is not None:
        age, took = figures.age(time.time() - choice.searched_at), figures.duration(choice.search_s, 2)
        searched = f"{age} ago, took {took}, instead of {choice.before}"
    slowdowns = ", ".join(f"{job} {slowdown:.3f}" for job, slowdown in sorted(choice.slowdowns.items()))
    tables.pairs(
        [
            ("jobs", ", ".join(choice.jobs)),
            ("planned by", choice.plan),
            ("searched", searched),
            ("predicted", slowdowns),
            ("problem", choice.problem or ""),
        ]
    )
    columns = [
        tables.Column("plan"),
        *(tables.Column(title, right=True) for title in ("mean", "worst", "score", "draws")),
        tables.Column(""),
    ]
    rows = [
        (
            one.plan,
            *("-" if figure is None else f"{figure:.3f}" for figure in (one.mean, one.worst, one.score)),
            str(one.draws),
            one.problem or ("in force" if one.plan == choice.plan else ""),
        )
        for one in choice.tried
    ]
    if rows:
        tables.show(columns, rows, "")


def _ranking(ranking: RankingResource) -> str:
    return ", ".join([ranking.kind, *_facts(ranking.parameters)])


def _facts(parameters: Mapping[str, Any]) -> Iterator[str]:
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            yield from (f"{name} {fact}" for fact in _facts(value))
        elif value not in (None, []):
            label = name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
            yield f"{label} {_value(name, value)}"


def _value(name: str, value: Any) -> str:
    if isinstance(value, list):
        ends = dict.fromkeys((value[0], value[-1]))
        return " to ".join(_value(name, end) for end in ends)
    if name.endswith("_s"):
        return figures.duration(value, 3)
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _show_difference(difference: SwitchDifference) -> None:
    if not difference.reachable:
        typer.echo(f"{difference.switch}: {difference.problem or 'cannot be read now (echelon switch list)'}", err=True)
        return
    lines = [
        *_lines("+", "green", difference.inserts),
        *_lines("~", "yellow", difference.modifies),
        *_lines("-", "red", difference.deletes),
    ]
    foreign = f", {difference.foreign} of others left alone" if difference.foreign else ""
    typer.echo(f"{difference.switch}: {len(lines) or 'no'} difference{'' if len(lines) == 1 else 's'}{foreign}")
    for text, colour in lines:
        typer.secho(text, fg=colour)


def _lines(sign: str, colour: str, entries: Iterable[EntryResource]) -> list[tuple[str, str]]:
    out = []
    for entry in entries:
        priority = f" priority {entry.priority}" if entry.priority else ""
        owner = f"  [{entry.owner}]" if entry.owner else ""
        out.append((f"  {sign} {entry.table} {figures.fields(entry.match)}{priority} -> {entry.action}{owner}", colour))
    return out
