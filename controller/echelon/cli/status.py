"""`echelon status`: the service on one screen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from echelon.cli import figures, tables
from echelon.cli.calls import on_service
from echelon.cli.usage import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from echelon.client import Client
    from echelon.control.progress import JobState
    from echelon.service.api.links import LinkResource
    from echelon.service.api.status import EventResource, StatusResource
    from echelon.southbound.lifecycle import State

_UNPLANNED = 3
"""The most unplanned jobs whose problems are printed."""
_CHANGES = 3


@on_service
def status(
    client: Client,
    as_json: tables.AsJson = False,
) -> None:
    """Show the service on one screen: leader, plan, switches, jobs, drained links, problems, latest changes.

    Status 0: no problems; 1: there are some.

    Example: echelon status
    """
    found = client.status()
    if as_json:
        tables.show_json(found)
    elif found.role == "standby":
        tables.pairs(_service(found))
        _list("problems", found.problems)
    else:
        unplanned = client.jobs(state="unplanned", limit=_UNPLANNED)
        problems = [*found.problems, *(f"job {job.name}: {job.problem}" for job in unplanned if job.problem)]
        left = found.jobs_by_state.get("unplanned", 0) - len(unplanned)
        if left:
            problems.append(f"and {left} more unplanned jobs (echelon job list --state unplanned)")
        drained = [link for link in client.links() if link.state == "drained"]
        tables.pairs([*_service(found), *_work(found, drained)])
        _list("problems", problems)
        _list("latest changes", [_change(one) for one in client.events(limit=_CHANGES)])
    if found.problems or found.jobs_by_state.get("unplanned"):
        raise typer.Exit(FAILED)


def _service(found: StatusResource) -> list[tuple[str, str]]:
    leads = found.leader or "nobody"
    return [
        (
            "service",
            f"echelon {found.version}, fabric {found.fabric}, up {figures.age(time.time() - found.started_at)}",
        ),
        ("leader", f"{leads}, term {found.term}" if found.term is not None else f"{leads} (this one stands by)"),
    ]


def _work(found: StatusResource, drained: Sequence[LinkResource]) -> list[tuple[str, str]]:
    return [
        ("policy", found.policy),
        ("plan", ", ".join([f"{found.plan or 'none yet'}", *_under_way(found)])),
        ("switches", _counted(found.switches)),
        ("jobs", _counted(found.jobs_by_state)),
        ("drained", ", ".join(f"{link.a} - {link.b}" for link in drained)),
    ]


def _under_way(found: StatusResource) -> Iterator[str]:
    if not found.settled:
        yield "being written"
    if found.searching:
        yield "a better one is searched for"


def _counted(states: Mapping[State, int] | Mapping[JobState, int]) -> str:
    """Return how many are in each state, the most first: ``3 ready, 1 away``."""
    return ", ".join(f"{count} {state}" for state, count in Counter[str](states).most_common() if count) or "none"


def _change(of: EventResource) -> str:
    return f"{figures.age(time.time() - of.at)} ago: {of.action} {of.object}" + (
        f", by {of.client}" if of.client else ""
    )


def _list(title: str, lines: Sequence[str]) -> None:
    if lines:
        typer.echo(f"\n{title}")
        for line in lines:
            typer.echo(f"  {line}")
