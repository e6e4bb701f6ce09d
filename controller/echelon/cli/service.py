"""The commands that look at a running service, and change what is not a job.

That is switches, the plan, the policy, links and events.

A command returns the answer, which `--json` prints, and the function that shows it to people.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli import completion, dryruns, figures, tables
from echelon.cli.calls import Answer, answers, on_service
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import Column, number_column
from echelon.cli.usage import BAD_INPUT, FAILED, fail
from echelon.model.extras import cached

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon.controller.resources.links import CableResource, LinkResource, MoveResource
    from echelon.controller.resources.plan import (
        CandidateResource,
        ChoiceResource,
        PlanResource,
        RankingResource,
    )
    from echelon.controller.resources.policy import PolicyResource
    from echelon.controller.resources.status import EventResource, StatusResource
    from echelon.controller.resources.switches import (
        EntryResource,
        IntentResource,
        SwitchDifference,
        SwitchResource,
    )

switch = typer.Typer(
    help="Switches: list, show, take.",
    no_args_is_help=True,
)
plan = typer.Typer(
    help="The plan: show, diff.",
    no_args_is_help=True,
)
policy = typer.Typer(
    help="The policy: show, set.",
    no_args_is_help=True,
)
link = typer.Typer(
    help="Links: list, drain, restore, move.",
    no_args_is_help=True,
)


def _age(time_s: float) -> str:
    return figures.age(time.time() - time_s)


def _ago(time_s: float | None) -> str:
    if time_s is None:
        return "never"
    return f"{_age(time_s)} ago"


def _or_dash(value: object) -> object:
    """Return what a cell shows of a value that may be empty."""
    return value or figures.NONE


# -- switches --------------------------------------------------------------------------------------


def _held(switch: SwitchResource) -> str:
    return figures.held(switch.entries, switch.wanted_entries)


def _bound(rate_bps: int) -> str:
    if rate_bps:
        return figures.rate(rate_bps)
    return figures.NONE


def _limit(rate_bps: int | None) -> str:
    if rate_bps is None:
        return figures.NONE
    return figures.rate(rate_bps)


SWITCHES = (
    Column("switch", "name", wraps=True),
    Column("state"),
    number_column("for", "since", _age),
    Column("target"),
    Column("address", wraps=True),
    number_column("entries", _held),
    number_column("foreign", "foreign_entries"),
    number_column("drift", "drift_found"),
)
_ENTRIES = (
    Column("of", "owner", _or_dash),
    Column("table"),
    Column("match", "match", figures.fields, wraps=True),
    number_column("priority", "priority", _or_dash),
    Column("action", wraps=True),
)
_QUEUES = (
    *map(number_column, ("port", "queue", "level", "weight")),
    number_column("at least", "min_rate_bps", _bound),
    number_column("at most", "max_rate_bps", _limit),
)

SwitchName = Annotated[
    str,
    typer.Argument(
        help="The switch.",
        metavar="NAME",
        autocompletion=completion.switches,
    ),
]
WithIntent = Annotated[
    bool,
    typer.Option("--intent", help="Also show every entry and queue that the switch should have."),
]


@switch.command("list")
@answers
def list_switches(client: Client) -> Answer:
    """List all switches, with their state and table entries.

    Example: echelon switch list --json
    """

    def show(switches: Sequence[SwitchResource]) -> None:
        problems = {}
        for switch in switches:
            if switch.problem:
                problems[switch.name] = figures.problem(switch.name, switch.problem)
        tables.show_all(SWITCHES, switches, "no switches", problems)

    return client.switches(), show


@switch.command("take")
@answers
def take_switch(client: Client, name: SwitchName) -> Answer:
    """Take a switch back from another controller.

    Stop that one first, or it takes the switch again.

    Example: echelon switch take leaf1
    """
    message = f"the service takes switch '{name}' back, if another has it"
    return client.take_switch(name), lambda _: typer.echo(message)


@switch.command("show")
@answers
def show_switch(
    client: Client,
    name: SwitchName,
    intent: WithIntent = False,
) -> Answer:
    """Show one switch; with --intent, what it should hold.

    Example: echelon switch show leaf1 --intent
    """
    if not intent:
        return client.switch(name), _show_switch

    def show(wanted: IntentResource) -> None:
        _show_switch(client.switch(name))
        typer.echo()
        tables.show_all(_ENTRIES, wanted.entries, "no entries")
        typer.echo()
        tables.show_all(_QUEUES, wanted.queues, "no queue settings")

    return client.intent(name), show


def _show_switch(switch: SwitchResource) -> None:
    held = "unknown how many" if switch.entries is None else switch.entries
    entries = f"{held} held, {switch.wanted_entries} wanted, {switch.foreign_entries} of others"
    ports = ""
    if switch.unwatched:
        ports = f"links of those that are down are not noticed: {switch.unwatched}"
    facts = {
        "switch": switch.name,
        "state": switch.state,
        "problem": switch.problem,
        "since": _ago(switch.since),
        "target": switch.target,
        "address": switch.address,
        "device id": switch.device_id,
        "election id": figures.NONE if switch.election_id is None else switch.election_id,
        "entries": entries,
        "sessions": f"{switch.sessions} opened so far",
        "ports": ports,
        "drift": f"{switch.drift_found} entries found changed and repaired",
        "last audit": _ago(switch.last_audit_at),
        "last write": _ago(switch.last_written_at),
    }
    # Facts without a value are left out.
    tables.pairs(facts.items())


# -- the plan --------------------------------------------------------------------------------------

OfJob = Annotated[
    str | None,
    typer.Option(
        help="Show only flows of this job.",
        metavar="NAME",
        autocompletion=completion.jobs,
    ),
]
ThroughSwitch = Annotated[
    str | None,
    typer.Option(
        help="Show only flows through this switch.",
        metavar="NAME",
        autocompletion=completion.switches,
    ),
]
FlowLimit = Annotated[
    int | None,
    typer.Option(
        help="Show at most this many flows. Default: all.",
        min=1,
    ),
]
AfterFlow = Annotated[
    str | None,
    typer.Option(
        help="Show only flows that come after this one.",
        metavar="JOB/FLOW",
    ),
]
Why = Annotated[
    bool,
    typer.Option("--why", help="Show instead of flows what was simulated, and what was chosen."),
]


@plan.command("show")
@answers
def show_plan(
    client: Client,
    job: OfJob = None,
    switch: ThroughSwitch = None,
    limit: FlowLimit = None,
    after: AfterFlow = None,
    why: Why = False,
) -> Answer:
    """Show path and ranking of every flow.

    Example: echelon plan show
    """
    answer = client.plan(job, switch, limit, after, why=why)
    return answer, partial(_show_plan, why=why)


def _show_plan(plan: PlanResource, why: bool) -> None:
    facts = {
        "plan": f"{plan.number}, made {_ago(plan.made_at)}",
        "policy": plan.policy,
        "jobs": plan.jobs,
        "problem": plan.problem,
    }
    tables.pairs(facts.items())
    if not why:
        tables.show_all(_FLOWS, plan.flows, "no flows")
        return
    for choice in plan.why:
        _show_choice(choice)
    if not plan.why:
        typer.echo(
            f"policy {plan.policy} simulates nothing, there are no jobs, or the plan is only"
            " moments old"
        )


def _show_choice(choice: ChoiceResource) -> None:
    from echelon.planning.policies.judges import MODEL

    typer.echo()
    judge = choice.judge
    columns = [*_CANDIDATES]
    if any(candidate.by_model for candidate in choice.tried):
        columns.append(number_column("by the model", "by_model", figures.ratio))
    if judge == MODEL:
        judge = ""
    facts = {
        "jobs": ", ".join(choice.jobs),
        "planned by": choice.plan,
        "searched": _search(choice),
        "predicted": _predicted(choice.slowdowns),
        "judged by": judge,
        "by the model": _predicted(choice.by_model),
        "not judged": choice.unjudged,
        "problem": choice.problem,
    }
    tables.pairs(facts.items())
    if choice.tried:
        verdict = Column("", partial(_verdict, choice))
        tables.show_all([*columns, verdict], choice.tried)


def _predicted(slowdowns: Mapping[str, float]) -> str:
    return ", ".join(f"{job} {slowdown:.3f}" for job, slowdown in sorted(slowdowns.items()))


def _search(choice: ChoiceResource) -> str:
    """Return when a plan was searched for, or why it was not."""
    if choice.searched_at is not None and choice.search_s is not None:
        duration = figures.duration(choice.search_s, 2)
        return f"{_ago(choice.searched_at)}, took {duration}, instead of {choice.before}"
    if len(choice.jobs) > 1:
        return "not searched for yet"
    return "shares no links"


_RATIOS = ("mean", "worst", "score")
_CANDIDATES = (
    Column("plan"),
    *(number_column(ratio, ratio, figures.ratio) for ratio in _RATIOS),
    number_column("draws"),
)


def _verdict(choice: ChoiceResource, candidate: CandidateResource) -> str:
    if candidate.problem:
        return candidate.problem
    if candidate.plan == choice.plan:
        return "in force"
    return ""


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
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value}"


_FLOWS = (
    Column("job"),
    Column("flow"),
    Column("path", "path", " > ".join, wraps=True),
    Column("ranking", "ranking", _ranking, wraps=True),
)

Switches = Annotated[
    list[str] | None,
    typer.Argument(
        help="Default: all.",
        metavar="SWITCH",
        autocompletion=completion.switches,
    ),
]


@plan.command()
@on_service
def diff(
    client: Client,
    switches: Switches = None,
    as_json: tables.AsJson = False,
) -> None:
    """Read the switches and show what would be written to them; nothing is written.

    Status 0: no differences; 1: differences; 2: a switch could not be read.

    Example: echelon plan diff
    """
    names = switches or [switch.name for switch in client.switches()]
    differences = [client.difference(name) for name in names]
    if as_json:
        tables.show_json(differences)
    else:
        for difference in differences:
            _show_difference(difference)
    # The statuses of diff.
    if not all(difference.reachable for difference in differences):
        raise typer.Exit(BAD_INPUT)
    if any(_has_entries(difference) for difference in differences):
        raise typer.Exit(FAILED)


def _has_entries(difference: SwitchDifference) -> bool:
    return bool(difference.inserts or difference.modifies or difference.deletes)


def _show_difference(difference: SwitchDifference) -> None:
    switch = difference.switch
    if not difference.reachable:
        problem = difference.problem or "cannot be read now (echelon switch list)"
        typer.echo(f"{switch}: {problem}", err=True)
        return
    lines = [*_lines("+", "green", difference.inserts)]
    lines += _lines("~", "yellow", difference.modifies)
    lines += _lines("-", "red", difference.deletes)
    foreign = f", {difference.foreign} of others left alone" if difference.foreign else ""
    plural = "" if len(lines) == 1 else "s"
    typer.echo(f"{switch}: {len(lines) or 'no'} difference{plural}{foreign}")
    for text, colour in lines:
        typer.secho(text, fg=colour)


def _lines(
    sign: str,
    colour: str,
    entries: Iterable[EntryResource],
) -> Iterator[tuple[str, str]]:
    for entry in entries:
        match = figures.fields(entry.match)
        priority = f" priority {entry.priority}" if entry.priority else ""
        owner = f"  [{entry.owner}]" if entry.owner else ""
        yield f"  {sign} {entry.table} {match}{priority} -> {entry.action}{owner}", colour


# -- the policy ------------------------------------------------------------------------------------


@policy.command("show")
@answers
def show_policy(client: Client) -> Answer:
    """Show the policy in force, and all that can be chosen.

    Example: echelon policy show
    """

    def show(policy: PolicyResource) -> None:
        tables.pairs([("policy", _policy(policy))])
        rows = []
        for name, parameters in policy.choices.items():
            if not parameters:
                rows.append((name, "", ""))
            # A policy is named in the first of its rows.
            first = name
            for parameter, values in parameters.items():
                rows.append((first, parameter, ", ".join(values) or "any"))
                first = ""
        values_column = Column("values, the default first", wraps=True)
        columns = [Column("policies"), Column("parameter"), values_column]
        tables.show(columns, rows, "")

    return client.policy(), show


PolicyName = Annotated[
    str,
    typer.Argument(
        help="The policy.",
        metavar="NAME",
        autocompletion=completion.policies,
    ),
]
PolicyParameters = Annotated[
    list[str] | None,
    typer.Argument(
        help="Parameters of the policy; default: its own defaults.",
        metavar="PARAMETER=VALUE",
    ),
]


@policy.command("set")
@answers
def set_policy(
    client: Client,
    name: PolicyName,
    parameters: PolicyParameters = None,
    dry_run: dryruns.DryRun = False,
) -> Answer:
    """Change the policy: all jobs are planned anew.

    The service remembers it; the policy in its configuration file only applies to its first start.

    Example: echelon policy set echelon order=setf
    """
    choices = _choices(parameters or ())
    if dry_run:
        return client.rehearse_policy(name, choices), dryruns.show

    def show(policy: PolicyResource) -> None:
        typer.echo(f"the policy is {_policy(policy)}")

    return client.set_policy(name, choices), show


def _choices(parameters: Sequence[str]) -> dict[str, str]:
    """Return the values by parameter, or end the command if one is not written as it should be."""
    choices: dict[str, str] = {}
    for text in parameters:
        parameter, equals, value = text.partition("=")
        if not equals or not parameter:
            fail(f"'{text}' is not a parameter (write it as order=setf)")
        if parameter in choices:
            fail(f"parameter '{parameter}' is given twice (keep one of them)")
        choices[parameter] = value
    return choices


def _policy(policy: PolicyResource) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in policy.parameters.items())
    if parameters:
        return f"{policy.name}({parameters})"
    return policy.name


# -- links -----------------------------------------------------------------------------------------

_LINKS = (
    Column("a"),
    Column("b"),
    number_column("rate", "rate_bps", figures.rate),
    number_column("delay", "delay_s", figures.duration),
    Column("state"),
    Column("problem", wraps=True),
)

_STAGES = {
    "standing": "stand",
    "routing": "are to move: flows take other paths",
    "draining": "are to move: packets on their way pass",
    "moving": "move",
    "installing": "have moved: switches get the plan for them",
}
_POLL_S = 0.1

End = Annotated[
    str,
    typer.Argument(
        help="A switch at one end.",
        metavar="A",
        autocompletion=completion.switches,
    ),
]
OtherEnd = Annotated[
    str,
    typer.Argument(
        help="The switch at the other end.",
        metavar="B",
        autocompletion=completion.switches,
    ),
]


Force = Annotated[bool, typer.Option("--force", help="Drain it even if jobs have no other path.")]
FabricFile = Annotated[
    Path | None,
    typer.Argument(
        help="A fabric file with the same hosts and switches; default: show the move.",
        metavar="FILE",
    ),
]
HaveMoved = Annotated[
    bool, typer.Option("--moved", help="Say that the links have moved and stand.")
]
UntilTheyStand = Annotated[
    bool, typer.Option("--wait", help="Wait until the links stand and plans use them.")
]
LongestWait = Annotated[
    float,
    typer.Option(
        help="Longest wait in seconds, with --wait.",
        min=0,
    ),
]


@link.command("list")
@answers
def list_links(client: Client) -> Answer:
    """List all links of the fabric.

    Example: echelon link list
    """
    return client.links(), lambda links: tables.show_all(_LINKS, links, "no links")


@link.command()
@answers
def drain(
    client: Client,
    a: End,
    b: OtherEnd,
    force: Force = False,
    dry_run: dryruns.DryRun = False,
) -> Answer:
    """Route jobs around a link, so that it can be serviced.

    If jobs have no other path, they are named and the link stays up. With --force, they leave the
    plan until there is a path again.

    Example: echelon link drain leaf1 spine2
    """
    return _set_link(client, a, b, "drained", force, dry_run)


@link.command()
@answers
def restore(
    client: Client,
    a: End,
    b: OtherEnd,
    dry_run: dryruns.DryRun = False,
) -> Answer:
    """Let jobs use a drained link again.

    Example: echelon link restore leaf1 spine2
    """
    return _set_link(client, a, b, "up", False, dry_run)


def _set_link(
    client: Client,
    a: str,
    b: str,
    state: str,
    force: bool,
    dry_run: bool,
) -> Answer:
    if dry_run:
        return client.rehearse_link(a, b, state, force=force), dryruns.show

    def show(link: LinkResource) -> None:
        typer.echo(f"link {link.a} - {link.b} is {link.state}")

    return client.set_link(a, b, state, force=force), show


@link.command()
@on_service
def move(
    client: Client,
    fabric: FabricFile = None,
    moved: HaveMoved = False,
    wait: UntilTheyStand = False,
    timeout: LongestWait = 60.0,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Move links from port to port while jobs run, so that the fabric has those of a file.

    Flows first take other paths, and packets on their way pass. Then an optical switch moves the
    links, or you do, and say so with --moved. The file with the links that there are ends a move
    that has not begun. With --wait, status 1 means that the links do not stand yet.

    Example: echelon link move new.yaml --wait
    """
    if fabric is not None and dry_run:
        rehearsal = client.rehearse_move(fabric)
        show_rehearsal = tables.show_json if as_json else dryruns.show
        show_rehearsal(rehearsal)
        return
    if moved and dry_run:
        fail("--moved takes no --dry-run (leave one of them out)")
    if moved and fabric is not None:
        fail("--moved takes no FILE (say first that links are to move, then that they have moved)")
    if fabric:
        state = client.move_links(fabric)
    elif moved:
        state = client.confirm_move()
    else:
        state = client.move()
    if wait:
        state = _wait_for_links(client, state, timeout)
    show_state = tables.show_json if as_json else _show_move
    show_state(state)
    if wait and state.stage != "standing":
        raise typer.Exit(FAILED)


def _wait_for_links(
    client: Client,
    move: MoveResource,
    timeout_s: float,
) -> MoveResource:
    """Wait until the links stand, or cannot move, and return the move then."""
    give_up_s = time.monotonic() + timeout_s
    while move.stage != "standing" and time.monotonic() < give_up_s:
        if move.stage == "moving" and move.problem is not None:
            break
        time.sleep(_POLL_S)
        move = client.move()
    return move


def _show_move(move: MoveResource) -> None:
    facts = {"links": _STAGES[move.stage], "problem": move.problem}
    tables.pairs(facts.items())
    _list("go", [_cable(cable) for cable in move.go])
    _list("come", [_cable(cable) for cable in move.come])
    jobs = []
    for job, reason in move.jobs.items():
        jobs.append(f"{job}: {reason}" if reason else job)
    _list("jobs over links that go", jobs)


def _cable(cable: CableResource) -> str:
    first, second = cable.between
    return f"{_cable_end(first, cable)} - {_cable_end(second, cable)}"


def _cable_end(node: str, cable: CableResource) -> str:
    if node in cable.ports:
        return f"{node} port {cable.ports[node]}"
    return node


# -- changes, and all at a glance ------------------------------------------------------------------


_EVENTS = (
    Column("time", "at", figures.local_time),
    Column("client", "client", _or_dash),
    Column("address", "address", _or_dash),
    Column("change", "action"),
    Column("of", "object", wraps=True),
    Column("request"),
)
_UNPLANNED = 3
"""The most unplanned jobs whose problems are printed."""
_CHANGES = 3
"""The latest changes that are printed."""

Last = Annotated[
    int,
    typer.Option(
        "--last",
        help="Number of the latest changes to list.",
        min=1,
        max=1000,
    ),
]
ByClient = Annotated[
    str | None,
    typer.Option(
        "--client",
        help="List only changes by this token.",
        metavar="NAME",
    ),
]
Subject = Annotated[
    str | None,
    typer.Option(
        "--of",
        help="List only changes of this job, policy, link or switch.",
        metavar="OBJECT",
    ),
]
BeforeRequest = Annotated[
    str | None,
    typer.Option(
        "--before",
        help="List only changes before this request's.",
        metavar="REQUEST",
    ),
]


@answers
def events(
    client: Client,
    last: Last = 20,
    by_client: ByClient = None,
    subject: Subject = None,
    before: BeforeRequest = None,
) -> Answer:
    """List who changed what. The request's id finds the change in the log.

    Example: echelon events --json
    """
    events = client.events(last, by_client, subject, before)
    return events, lambda changes: tables.show_all(_EVENTS, changes, "no changes")


@on_service
def status(client: Client, as_json: tables.AsJson = False) -> None:
    """Show the service on one screen, with its problems and the latest changes.

    Status 0: no problems; 1: there are some.

    Example: echelon status
    """
    service = client.status()
    if as_json:
        tables.show_json(service)
    elif service.role == "standby":
        tables.pairs(facts(service).items())
        _list("problems", service.problems)
    else:
        links = client.links()
        drained = [f"{link.a} - {link.b}" for link in links if link.state == "drained"]
        service_facts = facts(service)
        service_facts["drained"] = ", ".join(drained)
        tables.pairs(service_facts.items())
        _list("problems", [*service.problems, *_job_problems(client, service)])
        changes = client.events(limit=_CHANGES)
        _list("latest changes", [_change(event) for event in changes])
    if service.problems or service.jobs_by_state.get("unplanned"):
        raise typer.Exit(FAILED)


def _job_problems(client: Client, service: StatusResource) -> Iterator[str]:
    """Yield why jobs are in no plan, for the first of them."""
    unplanned = client.jobs(state="unplanned", limit=_UNPLANNED)
    for job in unplanned:
        if job.problem:
            yield f"job {job.name}: {job.problem}"
    left = service.jobs_by_state.get("unplanned", 0) - len(unplanned)
    if left:
        yield f"and {left} more unplanned jobs (echelon job list --state unplanned)"


def facts(service: StatusResource) -> dict[str, str]:
    """Return the facts of a service, of a standby only those that it knows."""
    up = _age(service.started_at)
    name = f"echelon {service.version}, fabric {service.fabric}, up {up}"
    leader = service.leader or "nobody"
    if service.role == "standby":
        return {"service": name, "leader": f"{leader} (this one stands by)"}
    plan = str(service.plan or "none yet")
    if not service.settled:
        plan += ", being written"
    if service.searching:
        plan += ", a better one is searched for"
    return {
        "service": name,
        "leader": f"{leader}, term {service.term}",
        "policy": service.policy,
        "plan": plan,
        "switches": _counts(service.switches),
        "jobs": _counts(service.jobs_by_state),
    }


def _counts(states: Mapping[Any, int]) -> str:
    """Return how many are in each state, the most first: ``3 ready, 1 away``."""
    ranked = Counter[str](states).most_common()
    return ", ".join(f"{count} {state}" for state, count in ranked if count) or "none"


def _change(event: EventResource) -> str:
    client = f", by {event.client}" if event.client else ""
    return f"{_ago(event.at)}: {event.action} {event.object}{client}"


def _list(title: str, lines: Sequence[str]) -> None:
    if lines:
        typer.echo(f"\n{title}")
    for line in lines:
        typer.echo(f"  {line}")


PINS = """p4runtime-shell==0.0.6 p4runtime==1.4.1 protobuf==3.20.3 googleapis-common-protos==1.73.0 grpcio==1.85.1
ipython==7.31.1 jedi==0.17.2"""
HIGHEST_BACKUP_ID = 10**6  # a controller's counts microseconds since 1970
_MAKE = """trap 'rm -rf "$1"' EXIT; "$0" -E -m venv "$1"; "$1/bin/python" -E -m pip -q install $3
"$1/bin/python" -E -c "import p4runtime_sh.shell"; mv -T "$1" "$2" || test -e "$2" """
_CANNOT = (
    "cannot make p4runtime-shell's environment (it needs python3-venv, a package index, a writable"
    " XDG_CACHE_HOME)"
)
_BANNER = """{switch.name} at {switch.address}, device id {switch.device_id}, election id {id}: that of a backup.
You can read: table_entry["..."].read(lambda entry: print(entry)), tables, table_entry, counter_entry...
Writes are refused while the controller is connected; it reverts your other changes. Leave with Ctrl-D.
"""


InspectedSwitch = Annotated[
    str,
    typer.Argument(
        help="The switch.",
        metavar="SWITCH",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="The configuration with the switch and its TLS files; default: ask the service."
    ),
]


@on_service
def shell(
    client: Client,
    switch: InspectedSwitch,
    config: ConfigFile = None,
) -> None:
    """Inspect a switch with p4runtime-shell, as a backup controller.

    It can read and cannot take over. The first use makes an environment for it in the cache
    directory of your user (about 25 s and 100 MB).

    Example: echelon shell leaf1 --config echelon.yaml
    """
    from echelon.controller.service.config import load_service_config as load
    from echelon.model.documents import suggestion

    if config is None:
        switches: dict[str, Any] = {switch: client.switch(switch)}
    else:
        switches = {**load(config).switches}
    if switch not in switches:
        fail(f"{config}: switches: there is no '{switch}' ({suggestion(switch, switches)})")
    inspected = switches[switch]
    if not inspected.address:
        fail(f"switch {switch}: has no address in the configuration, so nobody can ask it")
    with ShownProgress() as progress:
        progress.stage("making the environment of p4runtime-shell (once)")
        python = shell_python(cached())
    # Two controllers must not have the same id.
    election_id = random.randint(1, HIGHEST_BACKUP_ID)
    typer.echo(_BANNER.format(switch=inspected, id=election_id), err=True)
    command = [str(python), "-E", "-m", "p4runtime_sh"]
    command += arguments(inspected, election_id)
    os.execv(python, command)


def arguments(switch: Any, election_id: int) -> list[str]:
    """Return the arguments of p4runtime-shell for a switch of the configuration or the API."""
    words = ["--grpc-addr", switch.address, "--device-id", str(switch.device_id)]
    words += ["--election-id", f"0,{election_id}"]
    tls = getattr(switch, "tls", None)
    if tls:
        words.append("--ssl")
        files = {"--cacert": tls.ca, "--cert": tls.certificate, "--private-key": tls.key}
        for option, file in files.items():
            if file:
                words += [option, str(file)]
    return words


def shell_python(cache: Path) -> Path:
    """Return the Python of the shell's environment below `cache`.

    Make it if it is not there, or end the command.
    """
    version = hashlib.sha256(f"{PINS} {sys.version}".encode()).hexdigest()[:12]
    home = cache / f"p4runtime-shell-{version}"
    if not home.exists():
        command = ["sh", "-ec", _MAKE, sys.executable, f"{home}-{os.getpid()}", str(home), PINS]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            message = done.stderr or done.stdout or "no message"
            fail(f"{_CANNOT}: {message.strip().splitlines()[-1]}", FAILED)
    return home / "bin" / "python"
