"""`echelon job`: submit, show and remove jobs."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from echelon.cli import completion, dryruns, figures, tables
from echelon.cli.calls import Answer, answers, on_service
from echelon.cli.doors import GroupWithDoors
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import Column
from echelon.cli.usage import BAD_INPUT, FAILED, fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from echelon.controller.client import Client
    from echelon.controller.service.api.jobs import JobResource, JobSummary
    from echelon.controller.service.api.plan import ClassesResource
    from echelon.controller.service.api.story import StoryResource

app = typer.Typer(
    help="Jobs: new, submit, list, show, env, remove.", cls=GroupWithDoors, no_args_is_help=True
)

Name = Annotated[
    str, typer.Argument(help="The job.", metavar="NAME", autocompletion=completion.jobs)
]

NOT_FOUND = 404
REFUSALS = frozenset({409, 413, 422})
"""Statuses of an answer that says what is wrong with one job."""
_POLL_S = 30.0
"""Period after which a long poll is repeated."""
_SPARKS = 32
_NAMED = 3
"""The most switches that are named in one line."""
_NAMED = 3
"""The most switches that are named in one line."""

_JOBS = (
    Column("job", lambda of: of.name, wraps=True),
    Column("state"),
    Column("parallelism"),
    Column("workers", lambda of: len(of.workers), right=True),
    Column("flows", lambda of: of.flow_count, right=True),
    Column("iteration", lambda of: figures.measured(of.last_iteration_s), right=True),
    Column("tardiness", lambda of: figures.measured(of.last_tardiness_s), right=True),
)
_ECHELONFLOWS = (
    Column("EchelonFlow", lambda of: of.name),
    Column("flows", right=True),
    Column("last offset", lambda of: figures.duration(max(of.offsets_s, default=None)), right=True),
    Column(
        "observed",
        lambda of: figures.duration(max(of.observed_distances_s or (), default=None)),
        right=True,
    ),
    Column(
        "tardiness",
        lambda of: figures.measured(of.tardiness_s[-1]) if of.tardiness_s else None,
        right=True,
    ),
    Column("latest", lambda of: figures.sparkline(of.tardiness_s, _SPARKS), wraps=True),
)
_MEASUREMENTS = (
    Column("host"),
    Column(
        "iteration",
        lambda of: figures.duration(next(reversed(of.iteration_times_s), None)),
        right=True,
    ),
    Column("sent", lambda of: figures.size(sum(of.sent_bytes.values())), right=True),
    Column("sent again", lambda of: figures.size(of.retransmitted_bytes), right=True),
    Column("stalled", lambda of: figures.duration(of.stalled_s), right=True),
    Column("latest", lambda of: figures.sparkline(of.iteration_times_s, _SPARKS), wraps=True),
)
_STORY = (
    Column("time", lambda record: _local_time(record.time_s)),
    Column("times", right=True),
    Column("kind"),
    Column("what happened", lambda record: record.text, wraps=True),
)
_FLOWS = (
    Column("flow", lambda of: of.name),
    Column("from", lambda of: of.src),
    Column("to", lambda of: of.dst),
    Column("bytes", lambda of: of.size_bytes, right=True),
    Column("number", right=True),
)


@app.command()
@on_service
def submit(
    client: Client,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Job files; a file may hold several jobs, with --- between them.", metavar="FILE"
        ),
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="The same as FILE; - is standard input.", metavar="FILE"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace another job of the same name.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until every reachable switch has the plan with the job."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Longest wait in seconds, with --wait.", min=0)
    ] = 60.0,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Register jobs; each is on disk when the command says so.

    Nothing is sent if a document is faulty. A job that the service refuses does not keep the
    others; the status then is
    2. Submitting the same job again changes nothing. With --wait, status 1 means that a job was not
       installed.

    Example: echelon job submit job.yaml --wait
    """
    specs = _specs([*(files or ()), *(more or ())])
    if dry_run:
        _rehearse(client, specs, replace, as_json)
        return
    jobs = []
    for source, spec in specs.items():
        if (job := _register(client, source, spec, replace)) is not None:
            jobs.append(job)
            if not as_json:
                typer.echo(f"job '{job.name}' is {job.state}")
    if wait:
        jobs = _waited_for(client, jobs, time.monotonic() + timeout)
        for job in jobs:
            _say_what_became(job, quiet=as_json)
    if as_json:
        tables.show_json(jobs)
    if len(jobs) < len(specs):
        raise typer.Exit(BAD_INPUT)
    if wait and any(job.state != "installed" for job in jobs):
        raise typer.Exit(FAILED)


@app.command("list")
@answers
def list_jobs(
    client: Client,
    state: Annotated[
        Literal["accepted", "planned", "installed", "unplanned"] | None,
        typer.Option(help="List only jobs in this state."),
    ] = None,
    worker: Annotated[
        str | None, typer.Option(help="List only jobs with this host.", metavar="HOST")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="List so many at most. Default: all.", min=1)
    ] = None,
) -> Answer:
    """List jobs by name, with what switches saw of their latest iteration.

    Example: echelon job list
    """

    def show(found: Sequence[JobSummary]) -> None:
        problems = {
            job.name: why for job in found if (why := job.problem or _waits(job.waiting_for))
        }
        tables.show_all(_JOBS, found, "no jobs (echelon job submit FILE)", problems)

    return client.jobs(state, worker, limit), show


def _waits(switches: Sequence[str]) -> str:
    """Return what a planned job waits for; empty: for nothing."""
    if len(switches) > _NAMED:
        more = f" and {len(switches) - _NAMED} more"
    else:
        more = ""
    if switches:
        return f"not on {', '.join(switches[:_NAMED])}{more} yet (echelon switch list)"
    return ""


@app.command()
@answers
def show(
    client: Client,
    name: Name,
    flows: Annotated[
        bool, typer.Option("--flows", help="Also show the numbers that senders write into packets.")
    ] = False,
    story: Annotated[
        bool, typer.Option("--story", help="Show what happened to the job lately, instead.")
    ] = False,
) -> Answer:
    """Show one job: its state, its iterations, its EchelonFlows.

    Example: echelon job show bert
    """
    if story:
        return client.story(name), _show_story
    return client.job(name), partial(_show, flows=flows)


@app.command()
@answers
def env(client: Client, name: Name) -> Answer:
    """Print what to export so that NCCL marks the packets of a job as the plan says.

    The classes are those of the plan in force. Where switches recognise the job's packets, nothing
    of it is needed. Status 1 means that the policy gives the job's flows no class that lasts.

    Example: echelon job env bert
    """
    return client.classes(name), _show_environment


def _show_environment(found: ClassesResource) -> None:
    lasting = {
        (one.queue, one.dscp, one.traffic_class) for one in found.classes if one.queue is not None
    }
    if not lasting:
        fail(
            f"policy {found.policy} ranks the flows of job '{found.job}' packet by packet, and NCCL"
            " marks all packets of a communicator alike (let switches recognise its queue pairs,"
            " or take a policy with classes: echelon policy set crux)",
            FAILED,
        )
    if len(lasting) == 1 and all(one.queue is not None for one in found.classes):
        ((queue, dscp, byte),) = lasting
        typer.echo(f"# job {found.job}, policy {found.policy}: queue {queue}, DSCP {dscp}")
        typer.echo(f"export NCCL_IB_TC={byte}")
        typer.echo(f"export NCCL_IB_SL={queue}")
        return
    typer.echo(
        f"# job {found.job}, policy {found.policy}: set ncclConfig_t.trafficClass of each"
        " communicator"
    )
    for one in found.classes:
        if one.queue is None:
            said = "ranked packet by packet"
        else:
            said = f"trafficClass = {one.traffic_class}"
        typer.echo(f"# {one.echelonflow}: {said}")
    typer.echo("unset NCCL_IB_TC")


@app.command()
@on_service
def remove(
    client: Client,
    names: Annotated[
        list[str], typer.Argument(help="The jobs.", metavar="NAME", autocompletion=completion.jobs)
    ],
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Remove jobs. A name that cannot be removed does not keep the others; the status then is 2.

    Example: echelon job remove bert
    """
    from echelon.controller.client import ClientError

    if dry_run:
        rehearsals = {
            f"without job '{name}' alone:": client.rehearse_removal(name) for name in names
        }
        dryruns.show_all(rehearsals, as_json)
        return
    removed = []
    for name in names:
        try:
            client.remove_job(name)
        except ClientError as error:
            if error.status != NOT_FOUND or len(names) == 1:
                raise
            typer.echo(str(error), err=True)
        else:
            removed.append(name)
            if not as_json:
                typer.echo(f"job '{name}' is removed")
    if as_json:
        tables.show_json({"removed": removed})
    if len(removed) < len(names):
        raise typer.Exit(BAD_INPUT)


@app.command()
@answers
def distances(
    client: Client,
    name: Name,
    echelonflow: Annotated[
        str,
        typer.Argument(
            help="Name of the EchelonFlow, from 'echelon job show'.", metavar="ECHELONFLOW"
        ),
    ],
    offsets: Annotated[
        list[str],
        typer.Argument(
            help="Ideal finish time of each flow after the first's, ascending: '0 s' '12 ms'.",
            metavar="OFFSET",
        ),
    ],
) -> Answer:
    """Report a profiled arrangement function, to replace the one that the job's file implies.

    Example: echelon job distances bert h1 '0 ms' '10 ms' '20 ms'
    """
    said = f"job '{name}': {len(offsets)} offsets of {echelonflow} are in force"
    return client.report_distances(name, echelonflow, offsets), lambda _: typer.echo(said)


def _specs(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the mappings of valid jobs, by where they are from. Raise `DocumentError`."""
    from echelon.model.documents import DocumentError, parse_document, read_documents
    from echelon.model.jobs.spec import JobSpec

    if not files:
        fail("no job is given (name a FILE, or - for standard input)")
    specs: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for file in dict.fromkeys(files):
        for source, data in read_documents(file).items():
            name = parse_document(JobSpec, data, source).job
            first = sources.setdefault(name, source)
            if first != source:
                raise DocumentError(
                    source, "job", f"'{name}' is also in {first} (give each job its own name)"
                )
            specs[source] = data
    return specs


def _register(
    client: Client, source: str, spec: dict[str, Any], replace: bool
) -> JobResource | None:
    """Return the job, or say why the service refuses it, and return None."""
    from echelon.controller.client import ClientError

    try:
        job = client.register_job(spec, replace=replace)
    except ClientError as error:
        if error.status not in REFUSALS:
            raise
        reason = str(error)
        if error.code == "name-taken":
            reason = (
                f"there is another job '{spec['job']}' (take another name, or replace it with"
                " --replace)"
            )
        typer.echo(f"{source}: {reason}", err=True)
        return None
    return job


def _rehearse(
    client: Client, specs: Mapping[str, dict[str, Any]], replace: bool, as_json: bool
) -> None:
    rehearsals = {
        f"job '{spec['job']}' by itself:": client.rehearse_job(spec, replace=replace)
        for spec in specs.values()
    }
    dryruns.show_all(rehearsals, as_json)


def _waited_for(client: Client, jobs: Sequence[JobResource], deadline: float) -> list[JobResource]:
    """Wait until each job is installed or cannot be, or until the time is over, and return the
    jobs.
    """
    out = []
    with ShownProgress() as progress:
        progress.stage("waiting", len(jobs), "jobs")
        for job in jobs:
            progress.doing(f"waiting until job '{job.name}' is on the switches")
            while (
                job.state not in ("installed", "unplanned")
                and (left := deadline - time.monotonic()) > 0
            ):
                job = client.job(job.name, wait_s=min(left, _POLL_S))
            out.append(job)
            progress.done()
    return out


def _say_what_became(job: JobResource, *, quiet: bool) -> None:
    if job.state == "installed":
        if job.timings:
            taken = f" in {figures.duration(job.timings.total_s)}"
        else:
            taken = ""
        if not quiet:
            typer.echo(f"job '{job.name}' is installed{taken}")
        return
    reason = job.problem or "not every switch has acknowledged it yet (echelon switch list)"
    typer.echo(f"job '{job.name}' is {job.state}: {reason}", err=True)


def _local_time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().isoformat(" ", "milliseconds")


def _show_story(story: StoryResource) -> None:
    tables.show_all(_STORY, story.records, "nothing is remembered")


def _show(job: JobResource, flows: bool) -> None:
    tables.pairs(_facts(job))
    if job.echelonflows:
        typer.echo()
        tables.show_all(_ECHELONFLOWS, job.echelonflows)
    if job.measurements:
        typer.echo()
        tables.show_all(_MEASUREMENTS, job.measurements)
        _show_sizes(job)
    if job.trees:
        typer.echo()
        shown = [key for key, value in job.trees[0].items() if not isinstance(value, list)]
        tables.show_all([Column(key, itemgetter(key)) for key in shown], job.trees)
    if flows:
        typer.echo()
        tables.show_all(_FLOWS, job.flows, "no flows")


def _facts(job: JobResource) -> list[tuple[str, str]]:
    now = time.time()
    times = job.iteration_times_s
    iterations = "none seen"
    if times:
        iterations = (
            f"{figures.sparkline(times, _SPARKS)}  latest {figures.duration(times[-1])} of"
            f" {len(times)}"
        )
    took = ""
    if (of := job.timings) is not None:
        parts = {
            "queued": of.queued_s,
            "policy": of.policy_s,
            "lowering": of.lowering_s,
            "encoding": of.encoding_s,
            "switches": of.rpc_s,
        }
        each = ", ".join(
            f"{name} {figures.duration(seconds, 3)}" for name, seconds in parts.items()
        )
        took = f"{figures.duration(of.total_s)} ({each})"
    return [
        ("job", job.name),
        ("state", job.state),
        ("problem", job.problem or ""),
        ("number", str(job.number)),
        ("accepted", f"{figures.age(now - job.accepted_at)} ago"),
        (
            "installed",
            "not yet" if job.installed_at is None else f"{figures.age(now - job.installed_at)} ago",
        ),
        ("that took", took),
        ("workers", ", ".join(job.workers)),
        ("flows", str(job.flow_count)),
        ("alone", figures.duration(job.alone_iteration_s)),
        ("iterations", iterations),
    ]


def _show_sizes(job: JobResource) -> None:
    """Show the file's sizes where the agents on the job's hosts measured others."""
    from echelon.switches.telemetry.sizes import SIZE_TOLERANCE

    for size in job.sizes:
        if abs(size.measured_bytes - size.profiled_bytes) > SIZE_TOLERANCE * size.profiled_bytes:
            if size.used_bytes == size.profiled_bytes:
                plans = "its file says"
            else:
                plans = "plans go by what it sends, not by"
            typer.echo(
                f"{size.src} sends {figures.size(size.measured_bytes)} to {size.dst} in an"
                f" iteration; {plans} {figures.size(size.profiled_bytes)}"
            )
