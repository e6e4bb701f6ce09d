"""`echelon job`: submit, show and remove jobs."""

from __future__ import annotations

import time
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from echelon.cli import completion, dryruns, figures, tables
from echelon.cli.calls import Answer, answers, on_service
from echelon.cli.doors import GroupWithDoors
from echelon.cli.nccl import nccl_environment
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import Column, number_column
from echelon.cli.usage import BAD_INPUT, FAILED, fail
from echelon.controller.names import short_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from echelon.controller.client import Client
    from echelon.controller.resources.jobs import JobResource, JobSummary, Timings
    from echelon.controller.resources.plan import ClassesResource
    from echelon.controller.resources.story import StoryResource

app = typer.Typer(
    help="Jobs: new, submit, list, show, env, remove.",
    cls=GroupWithDoors,
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Argument(
        help="The job.",
        metavar="NAME",
        autocompletion=completion.jobs,
    ),
]

NOT_FOUND = 404
REFUSALS = frozenset({409, 413, 422})
"""Statuses of an answer that says what is wrong with one job."""
_POLL_S = 30.0
"""Period after which a long poll is repeated."""
_SPARKS = 32
_NAMED = 3
"""The most switches that are named in one line."""


def _longest(durations_s: Sequence[float] | None) -> str:
    return figures.duration(max(durations_s or (), default=None))


def _last(durations_s: Sequence[float]) -> float | None:
    if durations_s:
        return durations_s[-1]
    return None


def _last_measured(durations_s: Sequence[float]) -> str:
    return figures.measured(_last(durations_s))


def _last_duration(durations_s: Sequence[float]) -> str:
    return figures.duration(_last(durations_s))


def _sparkline(durations_s: Sequence[float]) -> str:
    return figures.sparkline(durations_s, _SPARKS)


def _total_size(sizes_bytes: Mapping[str, int]) -> str:
    return figures.size(sum(sizes_bytes.values()))


_JOBS = (
    Column("job", "name", wraps=True),
    Column("state"),
    Column("parallelism"),
    number_column("workers", "workers", len),
    number_column("flows", "flow_count"),
    number_column("iteration", "last_iteration_s", figures.measured),
    number_column("tardiness", "last_tardiness_s", figures.measured),
)
_ECHELONFLOWS = (
    Column("EchelonFlow", "name"),
    number_column("flows"),
    number_column("last offset", "offsets_s", _longest),
    number_column("observed", "observed_distances_s", _longest),
    number_column("tardiness", "tardiness_s", _last_measured),
    Column("latest", "tardiness_s", _sparkline, wraps=True),
)
_MEASUREMENTS = (
    Column("host"),
    number_column("iteration", "iteration_times_s", _last_duration),
    number_column("sent", "sent_bytes", _total_size),
    number_column("sent again", "retransmitted_bytes", figures.size),
    number_column("stalled", "stalled_s", figures.duration),
    Column("latest", "iteration_times_s", _sparkline, wraps=True),
)
_STORY = (
    Column("time", "time_s", partial(figures.local_time, timespec="milliseconds")),
    number_column("times"),
    Column("kind"),
    Column("what happened", "text", wraps=True),
)
_FLOWS = (
    Column("flow", "name"),
    Column("from", "src"),
    Column("to", "dst"),
    number_column("bytes", "size_bytes"),
    number_column("number"),
)


JobFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Job files; a file may hold several jobs, with --- between them.",
        metavar="FILE",
    ),
]
MoreFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        help="The same as FILE; - is standard input.",
        metavar="FILE",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace another job of the same name.")]
UntilInstalled = Annotated[
    bool,
    typer.Option("--wait", help="Wait until every reachable switch has the plan with the job."),
]
LongestWait = Annotated[
    float,
    typer.Option(
        help="Longest wait in seconds, with --wait.",
        min=0,
    ),
]


@app.command()
@on_service
def submit(
    client: Client,
    files: JobFiles = None,
    more: MoreFiles = None,
    replace: Replace = False,
    wait: UntilInstalled = False,
    timeout: LongestWait = 60.0,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Register jobs; each is on disk when the command says so.

    Nothing is sent if a document is faulty. A job that the service refuses does not hold up
    the others; the status then is 2. Submitting the same job again changes nothing. With --wait,
    status 1 means that a job was not installed.

    Example: echelon job submit job.yaml --wait
    """
    specs = _specs([*(files or ()), *(more or ())])
    if dry_run:
        _rehearse(client, specs, replace, as_json)
        return
    jobs = []
    for source, spec in specs.items():
        job = _register(client, source, spec, replace)
        if job is None:
            continue
        jobs.append(job)
        if not as_json:
            typer.echo(f"job '{job.name}' is {job.state}")
    if wait:
        jobs = _wait_for_jobs(client, jobs, time.monotonic() + timeout)
        for job in jobs:
            _report(job, quiet=as_json)
    if as_json:
        tables.show_json(jobs)
    if len(jobs) < len(specs):
        raise typer.Exit(BAD_INPUT)
    if wait and any(job.state != "installed" for job in jobs):
        raise typer.Exit(FAILED)


InState = Annotated[
    Literal["accepted", "planned", "installed", "unplanned"] | None,
    typer.Option(help="List only jobs in this state."),
]
OnHost = Annotated[
    str | None,
    typer.Option(
        help="List only jobs with this host.",
        metavar="HOST",
    ),
]
JobLimit = Annotated[
    int | None,
    typer.Option(
        help="List at most this many jobs. Default: all.",
        min=1,
    ),
]


@app.command("list")
@answers
def list_jobs(
    client: Client,
    state: InState = None,
    worker: OnHost = None,
    limit: JobLimit = None,
) -> Answer:
    """List jobs by name, with what switches saw of their latest iteration.

    Example: echelon job list
    """

    def show(jobs: Sequence[JobSummary]) -> None:
        problems = {}
        for job in jobs:
            problem = job.problem or _missing_switches(job.waiting_for)
            if problem:
                problems[job.name] = problem
        tables.show_all(_JOBS, jobs, "no jobs (echelon job submit FILE)", problems)

    return client.jobs(state, worker, limit), show


def _missing_switches(switches: Sequence[str]) -> str:
    """Return what a planned job waits for; empty: for nothing."""
    if not switches:
        return ""
    return f"not on {short_list(switches, _NAMED)} yet (echelon switch list)"


WithFlows = Annotated[
    bool, typer.Option("--flows", help="Also show the numbers that senders write into packets.")
]
Story = Annotated[
    bool, typer.Option("--story", help="Show what happened to the job lately, instead.")
]


@app.command()
@answers
def show(
    client: Client,
    name: Name,
    flows: WithFlows = False,
    story: Story = False,
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


def _show_environment(job: ClassesResource) -> None:
    try:
        environment = nccl_environment(job)
    except ValueError as error:
        fail(str(error), FAILED)
    for line in environment.lines():
        typer.echo(line)


Names = Annotated[
    list[str],
    typer.Argument(
        help="The jobs.",
        metavar="NAME",
        autocompletion=completion.jobs,
    ),
]


@app.command()
@on_service
def remove(
    client: Client,
    names: Names,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Remove jobs.

    A job that cannot be removed does not hold up the others; the status then is 2.

    Example: echelon job remove bert
    """
    from echelon.controller.client import ClientError

    if dry_run:
        rehearsals = {}
        for name in names:
            rehearsals[f"without job '{name}' alone:"] = client.rehearse_removal(name)
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


EchelonFlowName = Annotated[
    str,
    typer.Argument(
        help="Name of the EchelonFlow, from 'echelon job show'.",
        metavar="ECHELONFLOW",
    ),
]
Offsets = Annotated[
    list[str],
    typer.Argument(
        help="Ideal finish time of each flow after the first's, ascending: '0 s' '12 ms'.",
        metavar="OFFSET",
    ),
]


@app.command()
@answers
def distances(
    client: Client,
    name: Name,
    echelonflow: EchelonFlowName,
    offsets: Offsets,
) -> Answer:
    """Report a profiled arrangement function, to replace the one that the job's file implies.

    Example: echelon job distances bert h1 '0 ms' '10 ms' '20 ms'
    """
    message = f"job '{name}': {len(offsets)} offsets of {echelonflow} are in force"
    return client.report_distances(name, echelonflow, offsets), lambda _: typer.echo(message)


def _specs(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the mappings of valid jobs, by where they are from. Raise `DocumentError`."""
    from echelon.model.documents import DocumentError, parse_document, read_documents
    from echelon.model.foreign import foreign_files_named
    from echelon.model.jobs.spec import JobSpec

    if not files:
        fail("no job is given (name a FILE, or - for standard input)")
    specs: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for file in dict.fromkeys(files):
        with foreign_files_named(file):
            for source, data in read_documents(file).items():
                name = parse_document(JobSpec, data, source).job
                first = sources.setdefault(name, source)
                if first != source:
                    reason = f"'{name}' is also in {first} (give each job its own name)"
                    raise DocumentError(source, "job", reason)
                specs[source] = data
    return specs


def _register(
    client: Client,
    source: str,
    spec: dict[str, Any],
    replace: bool,
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
            remedy = "take another name, or replace it with --replace"
            reason = f"there is another job '{spec['job']}' ({remedy})"
        typer.echo(f"{source}: {reason}", err=True)
        return None
    return job


def _rehearse(
    client: Client,
    specs: Mapping[str, dict[str, Any]],
    replace: bool,
    as_json: bool,
) -> None:
    rehearsals = {}
    for spec in specs.values():
        title = f"job '{spec['job']}' by itself:"
        rehearsals[title] = client.rehearse_job(spec, replace=replace)
    dryruns.show_all(rehearsals, as_json)


def _wait_for_jobs(
    client: Client,
    jobs: Sequence[JobResource],
    deadline: float,
) -> list[JobResource]:
    """Wait until each job is installed or cannot be, or time is over, and return the jobs then."""
    waited = []
    with ShownProgress() as progress:
        progress.stage("waiting", len(jobs), "jobs")
        for job in jobs:
            progress.doing(f"waiting until job '{job.name}' is on the switches")
            # Services before 0.2.0 do not say `settled`.
            while not job.settled and job.state not in ("installed", "unplanned"):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                job = client.job(job.name, wait_s=min(left_s, _POLL_S))
            waited.append(job)
            progress.done()
    return waited


def _report(job: JobResource, *, quiet: bool) -> None:
    """Say whether a job is installed; `quiet` leaves out that it is."""
    if job.state != "installed":
        reason = job.problem or "not every switch has acknowledged it yet (echelon switch list)"
        typer.echo(f"job '{job.name}' is {job.state}: {reason}", err=True)
    elif not quiet:
        duration = f" in {figures.duration(job.timings.total_s)}" if job.timings else ""
        typer.echo(f"job '{job.name}' is installed{duration}")


def _show_story(story: StoryResource) -> None:
    tables.show_all(_STORY, story.records, "nothing is remembered")


def _show(job: JobResource, flows: bool) -> None:
    tables.pairs(_facts(job).items())
    if job.echelonflows:
        typer.echo()
        tables.show_all(_ECHELONFLOWS, job.echelonflows)
    if job.measurements:
        typer.echo()
        tables.show_all(_MEASUREMENTS, job.measurements)
        _show_sizes(job)
    if job.trees:
        typer.echo()
        columns = []
        for key, value in job.trees[0].items():
            if not isinstance(value, list):
                columns.append(Column(key, itemgetter(key)))
        tables.show_all(columns, job.trees)
    if flows:
        typer.echo()
        tables.show_all(_FLOWS, job.flows, "no flows")


def _facts(job: JobResource) -> dict[str, object]:
    now_s = time.time()
    times_s = job.iteration_times_s
    iterations = "none seen"
    if times_s:
        latest = figures.duration(times_s[-1])
        iterations = f"{_sparkline(times_s)}  latest {latest} of {len(times_s)}"
    installed = "not yet"
    if job.installed_at is not None:
        installed = f"{figures.age(now_s - job.installed_at)} ago"
    return {
        "job": job.name,
        "state": job.state,
        "problem": job.problem,
        "number": job.number,
        "accepted": f"{figures.age(now_s - job.accepted_at)} ago",
        "installed": installed,
        "that took": job.timings and _phases(job.timings),
        "workers": ", ".join(job.workers),
        "flows": job.flow_count,
        "alone": figures.duration(job.alone_iteration_s),
        "iterations": iterations,
    }


def _phases(timings: Timings) -> str:
    """Return how long a change took, and each of its phases."""
    phases_s = {
        "queued": timings.queued_s,
        "policy": timings.policy_s,
        "lowering": timings.lowering_s,
        "encoding": timings.encoding_s,
        "switches": timings.rpc_s,
    }
    phases = [f"{name} {figures.duration(phase_s, 3)}" for name, phase_s in phases_s.items()]
    return f"{figures.duration(timings.total_s)} ({', '.join(phases)})"


def _show_sizes(job: JobResource) -> None:
    """Show the file's sizes where the agents on the job's hosts measured others."""
    from echelon.switches.telemetry.sizes import SIZE_TOLERANCE

    for size in job.sizes:
        difference_bytes = abs(size.measured_bytes - size.profiled_bytes)
        if difference_bytes <= SIZE_TOLERANCE * size.profiled_bytes:
            continue
        plans = "plans go by what it sends, not by"
        if size.used_bytes == size.profiled_bytes:
            plans = "its file says"
        measured = figures.size(size.measured_bytes)
        profiled = figures.size(size.profiled_bytes)
        typer.echo(f"{size.src} sends {measured} to {size.dst} in an iteration; {plans} {profiled}")
