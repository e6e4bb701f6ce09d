"""What a running service answers, and what may be changed in it besides jobs: switches, plan, policy, links, events.

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
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli import completion, dryruns, figures, tables
from echelon.cli.calls import Answer, answers, on_service
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import Column
from echelon.cli.usage import BAD_INPUT, FAILED, fail

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon.controller.service.api.links import LinkResource, MoveResource
    from echelon.controller.service.api.plan import ChoiceResource, PlanResource, RankingResource
    from echelon.controller.service.api.policy import PolicyResource
    from echelon.controller.service.api.status import EventResource, StatusResource
    from echelon.controller.service.api.switches import (
        EntryResource,
        IntentResource,
        SwitchDifference,
        SwitchResource,
    )

switch = typer.Typer(help="Switches: list, show, take.", no_args_is_help=True)
plan = typer.Typer(help="The plan: show, diff.", no_args_is_help=True)
policy = typer.Typer(help="The policy: show, set.", no_args_is_help=True)
link = typer.Typer(help="Links: list, drain, restore, move.", no_args_is_help=True)


def _ago(at: float | None) -> str:
    if at is None:
        return "never"
    return f"{figures.age(time.time() - at)} ago"


# -- switches --------------------------------------------------------------------------------------

SWITCHES = (
    Column("switch", lambda of: of.name, wraps=True),
    Column("state"),
    Column("for", lambda of: figures.age(time.time() - of.since), right=True),
    Column("target"),
    Column("address", wraps=True),
    Column("entries", lambda of: figures.held(of.entries, of.wanted_entries), right=True),
    Column("foreign", lambda of: of.foreign_entries, right=True),
    Column("drift", lambda of: of.drift_found, right=True),
)
_ENTRIES = (
    Column("of", lambda of: of.owner or None),
    Column("table"),
    Column("match", lambda of: figures.fields(of.match), wraps=True),
    Column("priority", lambda of: of.priority or None, right=True),
    Column("action", wraps=True),
)
_QUEUES = (
    *(Column(title, right=True) for title in ("port", "queue", "level", "weight")),
    Column(
        "at least",
        lambda of: figures.rate(of.min_rate_bps) if of.min_rate_bps else None,
        right=True,
    ),
    Column(
        "at most",
        lambda of: None if of.max_rate_bps is None else figures.rate(of.max_rate_bps),
        right=True,
    ),
)


@switch.command("list")
@answers
def list_switches(client: Client) -> Answer:
    """List all switches, with their state and table entries.

    Example: echelon switch list --json
    """

    def show(found: Sequence[SwitchResource]) -> None:
        problems = {
            one.name: figures.problem(one.name, one.problem) for one in found if one.problem
        }
        tables.show_all(SWITCHES, found, "no switches", problems)

    return client.switches(), show


@switch.command("take")
@answers
def take_switch(
    client: Client,
    name: Annotated[
        str, typer.Argument(help="The switch.", metavar="NAME", autocompletion=completion.switches)
    ],
) -> Answer:
    """Take a switch back from another controller. Stop that one first, or it takes the switch again.

    Example: echelon switch take leaf1
    """
    return client.take_switch(name), lambda _: typer.echo(
        f"the service takes switch '{name}' back, if another has it"
    )


@switch.command("show")
@answers
def show_switch(
    client: Client,
    name: Annotated[
        str, typer.Argument(help="The switch.", metavar="NAME", autocompletion=completion.switches)
    ],
    intent: Annotated[
        bool,
        typer.Option(
            "--intent", help="Also show every entry and queue that the switch should have."
        ),
    ] = False,
) -> Answer:
    """Show one switch; with --intent, what it should hold.

    Example: echelon switch show leaf1 --intent
    """
    if not intent:
        return client.switch(name), _show_switch

    def show(held: IntentResource) -> None:
        _show_switch(client.switch(name))
        typer.echo()
        tables.show_all(_ENTRIES, held.entries, "no entries")
        typer.echo()
        tables.show_all(_QUEUES, held.queues, "no queue settings")

    return client.intent(name), show


def _show_switch(of: SwitchResource) -> None:
    held = "unknown how many" if of.entries is None else of.entries
    tables.pairs(
        [
            ("switch", of.name),
            ("state", of.state),
            ("problem", of.problem or ""),
            ("since", _ago(of.since)),
            ("target", of.target),
            ("address", of.address),
            ("device id", str(of.device_id)),
            ("election id", figures.NONE if of.election_id is None else str(of.election_id)),
            ("entries", f"{held} held, {of.wanted_entries} wanted, {of.foreign_entries} of others"),
            ("sessions", f"{of.sessions} opened so far"),
            *(
                [("ports", f"links of those that are down are not noticed: {of.unwatched}")]
                if of.unwatched
                else []
            ),
            ("drift", f"{of.drift_found} entries found changed and repaired"),
            ("last audit", _ago(of.last_audit_at)),
            ("last write", _ago(of.last_written_at)),
        ]
    )


# -- the plan --------------------------------------------------------------------------------------

_FLOWS = (
    Column("job"),
    Column("flow"),
    Column("path", lambda of: " > ".join(of.path), wraps=True),
    Column("ranking", lambda of: _ranking(of.ranking), wraps=True),
)


@plan.command("show")
@answers
def show_plan(
    client: Client,
    job: Annotated[
        str | None,
        typer.Option(
            help="Show only flows of this job.", metavar="NAME", autocompletion=completion.jobs
        ),
    ] = None,
    switch: Annotated[
        str | None,
        typer.Option(
            help="Show only flows through this switch.",
            metavar="NAME",
            autocompletion=completion.switches,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Show so many flows at most. Default: all.", min=1)
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(help="Show only flows that come after this one.", metavar="JOB/FLOW"),
    ] = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="Show instead of flows what was simulated, and what was chosen."
        ),
    ] = False,
) -> Answer:
    """Show path and ranking of every flow.

    Example: echelon plan show
    """
    return client.plan(job, switch, limit, after, why=why), partial(_show_plan, why=why)


def _show_plan(found: PlanResource, why: bool) -> None:
    tables.pairs(
        [
            ("plan", f"{found.number}, made {_ago(found.made_at)}"),
            ("policy", found.policy),
            ("jobs", str(found.jobs)),
            ("problem", found.problem or ""),
        ]
    )
    if not why:
        tables.show_all(_FLOWS, found.flows, "no flows")
        return
    for choice in found.why:
        _show_choice(choice)
    if not found.why:
        typer.echo(
            f"policy {found.policy} simulates nothing, there are no jobs, or the plan is only"
            " moments old"
        )


def _show_choice(choice: ChoiceResource) -> None:
    typer.echo()
    if len(choice.jobs) > 1:
        searched = "not searched for yet"
    else:
        searched = "shares no links"
    if choice.searched_at is not None and choice.search_s is not None:
        took = figures.duration(choice.search_s, 2)
        searched = f"{_ago(choice.searched_at)}, took {took}, instead of {choice.before}"
    tables.pairs(
        [
            ("jobs", ", ".join(choice.jobs)),
            ("planned by", choice.plan),
            ("searched", searched),
            (
                "predicted",
                ", ".join(
                    f"{job} {slowdown:.3f}" for job, slowdown in sorted(choice.slowdowns.items())
                ),
            ),
            ("problem", choice.problem or ""),
        ]
    )
    columns = (
        Column("plan"),
        Column("mean", lambda of: figures.ratio(of.mean), right=True),
        Column("worst", lambda of: figures.ratio(of.worst), right=True),
        Column("score", lambda of: figures.ratio(of.score), right=True),
        Column("draws", right=True),
        Column("", lambda of: of.problem or ("in force" if of.plan == choice.plan else "")),
    )
    if choice.tried:
        tables.show_all(columns, choice.tried)


def _ranking(of: RankingResource) -> str:
    return ", ".join([of.kind, *_facts(of.parameters)])


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


@plan.command()
@on_service
def diff(
    client: Client,
    switches: Annotated[
        list[str] | None,
        typer.Argument(help="Default: all.", metavar="SWITCH", autocompletion=completion.switches),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Read the switches and show what would be written to them; nothing is written.

    Status 0: no differences; 1: differences; 2: a switch could not be read.

    Example: echelon plan diff
    """
    found = [
        client.difference(name)
        for name in switches or [switch.name for switch in client.switches()]
    ]
    if as_json:
        tables.show_json(found)
    for difference in () if as_json else found:
        _show_difference(difference)
    # The statuses of diff.
    if not all(difference.reachable for difference in found):
        raise typer.Exit(BAD_INPUT)
    if any(difference.inserts or difference.modifies or difference.deletes for difference in found):
        raise typer.Exit(FAILED)


def _show_difference(of: SwitchDifference) -> None:
    if not of.reachable:
        typer.echo(
            f"{of.switch}: {of.problem or 'cannot be read now (echelon switch list)'}", err=True
        )
        return
    lines = [
        *_lines("+", "green", of.inserts),
        *_lines("~", "yellow", of.modifies),
        *_lines("-", "red", of.deletes),
    ]
    if of.foreign:
        foreign = f", {of.foreign} of others left alone"
    else:
        foreign = ""
    typer.echo(
        f"{of.switch}: {len(lines) or 'no'} difference{'' if len(lines) == 1 else 's'}{foreign}"
    )
    for text, colour in lines:
        typer.secho(text, fg=colour)


def _lines(sign: str, colour: str, entries: Iterable[EntryResource]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if entry.priority:
            priority = f" priority {entry.priority}"
        else:
            priority = ""
        owner = f"  [{entry.owner}]" if entry.owner else ""
        yield (
            (
                f"  {sign} {entry.table} {figures.fields(entry.match)}{priority} ->"
                f" {entry.action}{owner}"
            ),
            colour,
        )


# -- the policy ------------------------------------------------------------------------------------


@policy.command("show")
@answers
def show_policy(client: Client) -> Answer:
    """Show the policy in force, and all that can be chosen.

    Example: echelon policy show
    """

    def show(found: PolicyResource) -> None:
        tables.pairs([("policy", _policy(found))])
        rows = []
        for name, parameters in found.choices.items():
            texts = [
                (parameter, ", ".join(values) or "any") for parameter, values in parameters.items()
            ]
            rows += [("" if at else name, *text) for at, text in enumerate(texts or [("", "")])]
        columns = (
            Column("policies"),
            Column("parameter"),
            Column("values, the default first", wraps=True),
        )
        tables.show(columns, rows, "")

    return client.policy(), show


@policy.command("set")
@answers
def set_policy(
    client: Client,
    name: Annotated[
        str, typer.Argument(help="The policy.", metavar="NAME", autocompletion=completion.policies)
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Argument(
            help="Parameters of the policy; default: its own defaults.", metavar="PARAMETER=VALUE"
        ),
    ] = None,
    dry_run: dryruns.DryRun = False,
) -> Answer:
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
        return client.rehearse_policy(name, given), dryruns.show
    return client.set_policy(name, given), lambda found: typer.echo(
        f"the policy is {_policy(found)}"
    )


def _policy(of: PolicyResource) -> str:
    given = ", ".join(f"{name}={value}" for name, value in of.parameters.items())
    return f"{of.name}({given})" if given else of.name


# -- links -----------------------------------------------------------------------------------------

_LINKS = (
    Column("a"),
    Column("b"),
    Column("rate", lambda of: figures.rate(of.rate_bps), right=True),
    Column("delay", lambda of: figures.duration(of.delay_s), right=True),
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
    typer.Argument(help="A switch at one end.", metavar="A", autocompletion=completion.switches),
]
OtherEnd = Annotated[
    str,
    typer.Argument(
        help="The switch at the other end.", metavar="B", autocompletion=completion.switches
    ),
]


@link.command("list")
@answers
def list_links(client: Client) -> Answer:
    """List all links of the fabric.

    Example: echelon link list
    """
    return client.links(), lambda found: tables.show_all(_LINKS, found, "no links")


@link.command()
@answers
def drain(
    client: Client,
    a: End,
    b: OtherEnd,
    force: Annotated[
        bool, typer.Option("--force", help="Drain it even if jobs have no other path.")
    ] = False,
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
def restore(client: Client, a: End, b: OtherEnd, dry_run: dryruns.DryRun = False) -> Answer:
    """Let jobs use a drained link again.

    Example: echelon link restore leaf1 spine2
    """
    return _set_link(client, a, b, "up", False, dry_run)


def _set_link(client: Client, a: str, b: str, state: str, force: bool, dry_run: bool) -> Answer:
    if dry_run:
        return client.rehearse_link(a, b, state, force=force), dryruns.show

    def show(found: LinkResource) -> None:
        typer.echo(f"link {found.a} - {found.b} is {found.state}")

    return client.set_link(a, b, state, force=force), show


@link.command()
@on_service
def move(
    client: Client,
    fabric: Annotated[
        Path | None,
        typer.Argument(
            help="A fabric file with the same hosts and switches; default: show the move.",
            metavar="FILE",
        ),
    ] = None,
    moved: Annotated[
        bool, typer.Option("--moved", help="Say that the links have moved and stand.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the links stand and plans use them.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Longest wait in seconds, with --wait.", min=0)
    ] = 60.0,
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
        found = client.rehearse_move(fabric)
        (tables.show_json if as_json else dryruns.show)(found)
        return
    if moved and fabric is not None:
        fail("--moved takes no FILE (say first that links are to move, then that they have moved)")
    if fabric:
        shown = client.move_links(fabric)
    elif moved:
        shown = client.confirm_move()
    else:
        shown = client.move()
    over_s = time.monotonic() + timeout
    while wait and shown.stage != "standing" and time.monotonic() < over_s:
        if shown.stage == "moving" and shown.problem is not None:
            break
        time.sleep(_POLL_S)
        shown = client.move()
    (tables.show_json if as_json else _show_move)(shown)
    if wait and shown.stage != "standing":
        raise typer.Exit(FAILED)


def _show_move(found: MoveResource) -> None:
    tables.pairs(
        [("links", _STAGES[found.stage]), *([("problem", found.problem)] if found.problem else [])]
    )
    for title, cables in (("go", found.go), ("come", found.come)):
        ends = (
            [f"{end} port {of.ports[end]}" if end in of.ports else end for end in of.between]
            for of in cables
        )
        _list(title, [" - ".join(both) for both in ends])
    _list(
        "jobs over links that go",
        [f"{job}: {why}" if why else job for job, why in found.jobs.items()],
    )


# -- changes, and all at a glance ------------------------------------------------------------------

_EVENTS = (
    Column("time", lambda of: datetime.fromtimestamp(of.at).astimezone().isoformat(" ", "seconds")),
    Column("client", lambda of: of.client or None),
    Column("address", lambda of: of.address or None),
    Column("change", lambda of: of.action),
    Column("of", lambda of: of.object, wraps=True),
    Column("request"),
)
_UNPLANNED = 3
"""The most unplanned jobs whose problems are printed."""
_CHANGES = 3


@answers
def events(
    client: Client,
    last: Annotated[
        int, typer.Option("--last", help="How many of the latest to list.", min=1, max=1000)
    ] = 20,
    by: Annotated[
        str | None,
        typer.Option("--client", help="List only changes by this token.", metavar="NAME"),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", help="List only changes of this job, policy, link or switch.", metavar="OBJECT"
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", help="List only changes before this request's.", metavar="REQUEST"
        ),
    ] = None,
) -> Answer:
    """List who changed what. The request's id finds the change in the log.

    Example: echelon events --json
    """
    return client.events(last, by, of, before), lambda found: tables.show_all(
        _EVENTS, found, "no changes"
    )


@on_service
def status(client: Client, as_json: tables.AsJson = False) -> None:
    """Show the service on one screen: leader, plan, switches, jobs, drained links, problems, latest changes.

    Status 0: no problems; 1: there are some.

    Example: echelon status
    """
    found = client.status()
    if as_json:
        tables.show_json(found)
    elif found.role == "standby":
        tables.pairs(facts(found))
        _list("problems", found.problems)
    else:
        unplanned = client.jobs(state="unplanned", limit=_UNPLANNED)
        problems = [
            *found.problems,
            *(f"job {job.name}: {job.problem}" for job in unplanned if job.problem),
        ]
        if left := found.jobs_by_state.get("unplanned", 0) - len(unplanned):
            problems.append(f"and {left} more unplanned jobs (echelon job list --state unplanned)")
        drained = [f"{one.a} - {one.b}" for one in client.links() if one.state == "drained"]
        tables.pairs([*facts(found), ("drained", ", ".join(drained))])
        _list("problems", problems)
        _list("latest changes", [_change(one) for one in client.events(limit=_CHANGES)])
    if found.problems or found.jobs_by_state.get("unplanned"):
        raise typer.Exit(FAILED)


def facts(found: StatusResource) -> list[tuple[str, str]]:
    """Return the facts of a service, of a standby only those that it knows."""
    up = figures.age(time.time() - found.started_at)
    service = ("service", f"echelon {found.version}, fabric {found.fabric}, up {up}")
    leads = found.leader or "nobody"
    if found.role == "standby":
        return [service, ("leader", f"{leads} (this one stands by)")]
    under_way = (
        ", being written" * (not found.settled) + ", a better one is searched for" * found.searching
    )
    return [
        service,
        (
            "leader",
            (
                f"{leads}, term {found.term}"
                if found.term is not None
                else f"{leads} (this one stands by)"
            ),
        ),
        ("policy", found.policy),
        ("plan", f"{found.plan or 'none yet'}{under_way}"),
        ("switches", _counted(found.switches)),
        ("jobs", _counted(found.jobs_by_state)),
    ]


def _counted(states: Mapping[Any, int]) -> str:
    """Return how many are in each state, the most first: ``3 ready, 1 away``."""
    return (
        ", ".join(
            f"{count} {state}" for state, count in Counter[str](states).most_common() if count
        )
        or "none"
    )


def _change(of: EventResource) -> str:
    return f"{_ago(of.at)}: {of.action} {of.object}" + (f", by {of.client}" if of.client else "")


def _list(title: str, lines: Sequence[str]) -> None:
    if lines:
        typer.echo("\n".join([f"\n{title}", *(f"  {line}" for line in lines)]))


PINS = """p4runtime-shell==0.0.6 p4runtime==1.4.1 protobuf==3.20.3 googleapis-common-protos==1.73.0 grpcio==1.85.1
ipython==7.31.1 jedi==0.17.2"""
HIGHEST_BACKUP_ID = 10**6  # a controller's counts microseconds since 1970
_MAKE = """trap 'rm -rf "$1"' EXIT; "$0" -E -m venv "$1"; "$1/bin/python" -E -m pip -q install $3
"$1/bin/python" -E -c "import p4runtime_sh.shell"; mv -T "$1" "$2" || test -e "$2" """
_CANNOT = (
    "cannot make p4runtime-shell's environment (it needs python3-venv, a package index, a writable"
    " XDG_CACHE_HOME)"
)
_BANNER = """{of.name} at {of.address}, device id {of.device_id}, election id {id}: that of a backup.
You can read: table_entry["..."].read(lambda entry: print(entry)), tables, table_entry, counter_entry...
Writes are refused while the controller is connected; it reverts your other changes. Leave with Ctrl-D.
"""


@on_service
def shell(
    client: Client,
    switch: Annotated[str, typer.Argument(help="The switch.", metavar="SWITCH")],
    config: Annotated[
        Path | None,
        typer.Option(
            help="The configuration with the switch and its TLS files; default: ask the service."
        ),
    ] = None,
) -> None:
    """Inspect a switch with p4runtime-shell, as a backup controller: it can read and cannot take over.

    The first use makes an environment for it in the cache directory of your user (about 25 s and
    100 MB).

    Example: echelon shell leaf1 --config echelon.yaml
    """
    from echelon.controller.service.config import load_service_config as load
    from echelon.model.documents import suggestion

    if config is None:
        known: dict[str, Any] = {switch: client.switch(switch)}
    else:
        known = {**load(config).switches}
    if switch not in known:
        fail(f"{config}: switches: there is no '{switch}' ({suggestion(switch, known)})")
    with ShownProgress() as progress:
        progress.stage("making the environment of p4runtime-shell (once)")
        python = shell_python(
            Path.home() / ".cache" / os.environ.get("XDG_CACHE_HOME", "") / "echelon"
        )
    election_id = random.randint(1, HIGHEST_BACKUP_ID)  # two controllers must not have the same
    typer.echo(_BANNER.format(of=known[switch], id=election_id), err=True)
    os.execv(
        python, [str(python), "-E", "-m", "p4runtime_sh", *arguments(known[switch], election_id)]
    )


def arguments(switch: Any, election_id: int) -> list[str]:
    out = [
        "--grpc-addr",
        switch.address,
        "--device-id",
        str(switch.device_id),
        "--election-id",
        f"0,{election_id}",
    ]
    if tls := getattr(switch, "tls", None):
        files = (("--cacert", tls.ca), ("--cert", tls.certificate), ("--private-key", tls.key))
        out += ["--ssl", *(text for option, file in files if file for text in (option, str(file)))]
    return out


def shell_python(cache: Path) -> Path:
    """Return the Python of the shell's environment below `cache`.

    Make it if it is not there, or end the command.
    """
    home = (
        cache
        / f"p4runtime-shell-{hashlib.sha256(f'{PINS} {sys.version}'.encode()).hexdigest()[:12]}"
    )
    if not home.exists():
        command = ["sh", "-ec", _MAKE, sys.executable, f"{home}-{os.getpid()}", str(home), PINS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            fail(
                f"{_CANNOT}:"
                f" {(done.stderr or done.stdout or 'no message').strip().splitlines()[-1]}",
                FAILED,
            )
    return home / "bin" / "python"
