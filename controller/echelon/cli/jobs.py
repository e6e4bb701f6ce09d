"""`echelon job`: describe, submit, show and remove jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from echelon.cli import completion, dryruns, figures, tables
from echelon.cli.calls import on_service
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import BAD_INPUT, FAILED, fail, fraction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from echelon.client import Client
    from echelon.service.api.jobs import EchelonFlowReport, JobResource

app = typer.Typer(help="Jobs: new, submit, list, show, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The job.", metavar="NAME", autocompletion=completion.jobs)]

NOT_FOUND = 404
REFUSALS = frozenset({409, 413, 422})
"""Statuses of an answer that says what is wrong with one job."""
_POLL_S = 30.0
"""Period after which a long poll is repeated."""
_SPARKS = 32
_FLOWS_SHOWN = 20


@app.command()
@on_service
def submit(
    client: Client,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Job files; a file may hold several jobs, with --- between them.", metavar="FILE"),
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="The same as FILE; - is standard input.", metavar="FILE"),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another job of the same name.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until every reachable switch has the plan with the job.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Longest wait in seconds, with --wait.", min=0)] = 60.0,
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Register jobs; each is on disk when the command says so.

    Nothing is sent if a document is faulty. A job that the service refuses does not keep the others; the status then is
    2. Submitting the same job again changes nothing. With --wait, status 1 means that a job was not installed.

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


@app.command()
def new(
    model: Annotated[str, typer.Argument(help="The model, e.g. llama-7b; a wrong name lists all.", metavar="MODEL")],
    gpus: Annotated[int, typer.Option(help="Number of GPUs.", min=1)],
    parallel: Annotated[
        str,
        typer.Option(
            help="Degrees of data, tensor and pipeline parallelism. Default: data parallelism of all GPUs.",
            metavar="dp=N,tp=N,pp=N",
        ),
    ] = "",
    gpu: Annotated[str, typer.Option(help="The GPU: V100, A100 or H100.")] = "A100",
    micro_batches: Annotated[int, typer.Option(help="Micro-batches of an iteration, for each replica.", min=1)] = 1,
    micro_batch_size: Annotated[int, typer.Option(help="Samples of a micro-batch.", min=1)] = 1,
    zero: Annotated[int, typer.Option(help="Stage of ZeRO: 0, 1 or 3.")] = 0,
    gpus_per_host: Annotated[int, typer.Option(help="GPUs of each host.", min=1)] = 8,
    hosts: Annotated[
        str | None, typer.Option(help="The hosts, as h1,h2,h3. Default: h1, h2... as many as are needed.")
    ] = None,
    efficiency: Annotated[
        str, typer.Option(help="Part of the GPU's peak that computing reaches.", metavar="FRACTION")
    ] = "45%",
    name: Annotated[str | None, typer.Option(help="The job's name. Default: that of the model.")] = None,
    out: tables.OutFile = None,
) -> None:
    """Write the job file of a model that is trained on so many GPUs.

    Example: echelon job new llama-7b --gpus 64 --parallel dp=8,tp=4,pp=2 --micro-batches 16 -o job.yaml
    """
    from echelon.documents import DocumentError
    from echelon.jobs.models.command import new_job_file

    try:
        text = new_job_file(
            model,
            gpus=gpus,
            parallel=parallel,
            gpu=gpu,
            micro_batches=micro_batches,
            micro_batch_samples=micro_batch_size,
            zero=zero,
            gpus_per_host=gpus_per_host,
            hosts=None if hosts is None else [host.strip() for host in hosts.split(",")],
            efficiency=fraction("--efficiency", efficiency),
            name=name,
        )
    except DocumentError as error:
        fail(str(error))
    tables.write_text(text, out)


@app.command("list")
@on_service
def list_jobs(
    client: Client,
    state: Annotated[
        Literal["accepted", "planned", "installed", "unplanned"] | None,
        typer.Option(help="List only jobs in this state."),
    ] = None,
    worker: Annotated[str | None, typer.Option(help="List only jobs with this host.", metavar="HOST")] = None,
    limit: Annotated[int | None, typer.Option(help="List so many at most. Default: all.", min=1)] = None,
    as_json: tables.AsJson = False,
) -> None:
    """List jobs by name, with what switches saw of their latest iteration.

    Example: echelon job list
    """
    jobs = client.jobs(state, worker, limit)
    if as_json:
        tables.show_json(jobs)
        return
    columns = [
        tables.Column("job", wraps=True),
        tables.Column("state"),
        tables.Column("parallelism"),
        tables.Column("workers", right=True),
        tables.Column("flows", right=True),
        tables.Column("iteration", right=True),
        tables.Column("tardiness", right=True),
    ]
    rows = [
        (
            job.name,
            job.state,
            job.parallelism,
            str(len(job.workers)),
            str(job.flow_count),
            figures.measured(job.last_iteration_s),
            figures.measured(job.last_tardiness_s),
        )
        for job in jobs
    ]
    problems = {job.name: job.problem for job in jobs if job.problem}
    tables.show(columns, rows, "no jobs (echelon job submit FILE)", problems)


@app.command()
@on_service
def show(
    client: Client,
    name: Name,
    flows: Annotated[
        bool, typer.Option("--flows", help="Also show the numbers that senders write into packets.")
    ] = False,
    as_json: tables.AsJson = False,
) -> None:
    """Show one job: its state, its iterations, its EchelonFlows.

    Example: echelon job show bert
    """
    job = client.job(name)
    if as_json:
        tables.show_json(job)
        return
    tables.pairs(_facts(job))
    if job.echelonflows:
        typer.echo()
        _show_echelonflows(job.echelonflows)
    if job.measurements:
        typer.echo()
        _show_measurements(job)
    if flows:
        typer.echo()
        _show_flows(job)


@app.command()
@on_service
def remove(
    client: Client,
    names: Annotated[list[str], typer.Argument(help="The jobs.", metavar="NAME", autocompletion=completion.jobs)],
    dry_run: dryruns.DryRun = False,
    as_json: tables.AsJson = False,
) -> None:
    """Remove jobs. A name that cannot be removed does not keep the others; the status then is 2.

    Example: echelon job remove bert
    """
    from echelon.client import ClientError

    if dry_run:
        rehearsals = {f"without job '{name}' alone:": client.rehearse_removal(name) for name in names}
        dryruns.show_all(rehearsals, as_json)
        return
    refused = 0
    removed = []
    for name in names:
        try:
            client.remove_job(name)
        except ClientError as error:
            if error.status != NOT_FOUND or len(names) == 1:
                raise
            refused += 1
            typer.echo(str(error), err=True)
        else:
            removed.append(name)
            if not as_json:
                typer.echo(f"job '{name}' is removed")
    if as_json:
        tables.show_json({"removed": removed})
    if refused:
        raise typer.Exit(BAD_INPUT)


@app.command()
@on_service
def distances(
    client: Client,
    name: Name,
    echelonflow: Annotated[
        str, typer.Argument(help="Name of the EchelonFlow, from 'echelon job show'.", metavar="ECHELONFLOW")
    ],
    offsets: Annotated[
        list[str],
        typer.Argument(
            help="Ideal finish time of each flow after the first's, ascending: '0 s' '12 ms'.", metavar="OFFSET"
        ),
    ],
    as_json: tables.AsJson = False,
) -> None:
    """Report a profiled arrangement function, to replace the one that the job's file implies.

    Example: echelon job distances bert h1 '0 ms' '10 ms' '20 ms'
    """
    job = client.report_distances(name, echelonflow, offsets)
    if as_json:
        tables.show_json(job)
        return
    typer.echo(f"job '{name}': {len(offsets)} offsets of {echelonflow} are in force")


def _specs(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the mappings of valid jobs, by where they are from. Raise `DocumentError`."""
    from echelon.documents import DocumentError, parse_document, read_documents
    from echelon.jobs.spec import JobSpec

    if not files:
        fail("no job is given (name a FILE, or - for standard input)")
    specs: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for file in dict.fromkeys(files):
        for source, data in read_documents(file).items():
            name = parse_document(JobSpec, data, source).job
            first = sources.setdefault(name, source)
            if first != source:
                raise DocumentError(source, "job", f"'{name}' is also in {first} (give each job its own name)")
            specs[source] = data
    return specs


def _register(client: Client, source: str, spec: dict[str, Any], replace: bool) -> JobResource | None:
    """Return the job, or say why the service refuses it, and return None."""
    from echelon.client import ClientError

    try:
        job = client.register_job(spec, replace=replace)
    except ClientError as error:
        if error.status not in REFUSALS:
            raise
        reason = str(error)
        if error.code == "name-taken":
            reason = f"there is another job '{spec['job']}' (take another name, or replace it with --replace)"
        typer.echo(f"{source}: {reason}", err=True)
        return None
    return job


def _rehearse(client: Client, specs: Mapping[str, dict[str, Any]], replace: bool, as_json: bool) -> None:
    rehearsals = {
        f"job '{spec['job']}' by itself:": client.rehearse_job(spec, replace=replace) for spec in specs.values()
    }
    dryruns.show_all(rehearsals, as_json)


def _waited_for(client: Client, jobs: Sequence[JobResource], deadline: float) -> list[JobResource]:
    """Return the jobs as soon as each is installed or cannot be, or the time is over."""
    out = []
    with ShownProgress() as progress:
        progress.stage("waiting", len(jobs), "jobs")
        for job in jobs:
            progress.doing(f"waiting until job '{job.name}' is on the switches")
            while job.state not in ("installed", "unplanned") and (left := deadline - time.monotonic()) > 0:
                job = client.job(job.name, wait_s=min(left, _POLL_S))
            out.append(job)
            progress.done()
    return out


def _say_what_became(job: JobResource, *, quiet: bool) -> None:
    if job.state == "installed":
        taken = f" in {figures.duration(job.timings.total_s)}" if job.timings else ""
        if not quiet:
            typer.echo(f"job '{job.name}' is installed{taken}")
        return
    reason = job.problem or "not every switch has acknowledged it yet (echelon switch list)"
    typer.echo(f"job '{job.name}' is {job.state}: {reason}", err=True)


def _facts(job: JobResource) -> list[tuple[str, str]]:
    now, times = time.time(), job.iteration_times_s
    iterations = ""
    if times:
        iterations = f"{figures.sparkline(times, _SPARKS)}  latest {figures.duration(times[-1])} of {len(times)}"
    took = ""
    if job.timings is not None:
        parts = (
            ("queued", job.timings.queued_s),
            ("policy", job.timings.policy_s),
            ("lowering", job.timings.lowering_s),
            ("encoding", job.timings.encoding_s),
            ("switches", job.timings.rpc_s),
        )
        took = (
            f"{figures.duration(job.timings.total_s)} ("
            + ", ".join(f"{name} {figures.duration(seconds, 3)}" for name, seconds in parts)
            + ")"
        )
    return [
        ("job", job.name),
        ("state", job.state),
        ("problem", job.problem or ""),
        ("number", str(job.number)),
        ("accepted", f"{figures.age(now - job.accepted_at)} ago"),
        ("installed", f"{figures.age(now - job.installed_at)} ago" if job.installed_at is not None else "not yet"),
        ("that took", took),
        ("workers", ", ".join(job.workers)),
        ("flows", str(job.flow_count)),
        ("alone", figures.duration(job.alone_iteration_s)),
        ("iterations", iterations or "none seen"),
    ]


def _show_measurements(job: JobResource) -> None:
    """Show what the agents on the job's hosts measured, and the file's sizes where they measured others."""
    from echelon.telemetry.sizes import SIZE_TOLERANCE

    columns = [
        tables.Column("host"),
        tables.Column("iteration", right=True),
        tables.Column("sent", right=True),
        tables.Column("sent again", right=True),
        tables.Column("stalled", right=True),
        tables.Column("latest", wraps=True),
    ]
    rows = [
        (
            one.host,
            figures.duration(one.iteration_times_s[-1]) if one.iteration_times_s else figures.duration(None),
            figures.size(sum(one.sent_bytes.values())),
            figures.size(one.retransmitted_bytes),
            figures.duration(one.stalled_s),
            figures.sparkline(one.iteration_times_s, _SPARKS),
        )
        for one in job.measurements
    ]
    tables.show(columns, rows, "")
    for size in job.sizes:
        if abs(size.measured_bytes - size.profiled_bytes) > SIZE_TOLERANCE * size.profiled_bytes:
            plans = "its file says" if size.used_bytes == size.profiled_bytes else "plans go by what it sends, not by"
            typer.echo(
                f"{size.src} sends {figures.size(size.measured_bytes)} to {size.dst} in an iteration; "
                f"{plans} {figures.size(size.profiled_bytes)}"
            )


def _show_echelonflows(reports: tuple[EchelonFlowReport, ...]) -> None:
    columns = [
        tables.Column("EchelonFlow"),
        tables.Column("flows", right=True),
        tables.Column("last offset", right=True),
        tables.Column("observed", right=True),
        tables.Column("tardiness", right=True),
        tables.Column("latest", wraps=True),
    ]
    rows = [
        (
            report.name,
            str(report.flows),
            figures.duration(max(report.offsets_s, default=None)),
            figures.duration(max(report.observed_distances_s or (), default=None)),
            figures.measured(report.tardiness_s[-1]) if report.tardiness_s else figures.NONE,
            figures.sparkline(report.tardiness_s, _SPARKS),
        )
        for report in reports
    ]
    tables.show(columns, rows, "")


def _show_flows(job: JobResource) -> None:
    columns = [
        tables.Column("flow"),
        tables.Column("from"),
        tables.Column("to"),
        tables.Column("bytes", right=True),
        tables.Column("number", right=True),
    ]
    rows = [(flow.name, flow.src, flow.dst, str(flow.size_bytes), str(flow.number)) for flow in job.flows]
    tables.show(columns, rows, "no flows")
