"""`echelon show`: a job and its picture, without a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import figures, tables
from echelon.cli.plots import draw_file
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from echelon.jobs.graph import EchelonFlow, Job

_SHOWN = 30


def show(
    file: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB")],
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="Draw one iteration into this file, PNG or SVG; may be repeated."),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Show what a job computes and sends in an iteration, and its EchelonFlows; draw it.

    Times are those of an infinitely fast network: ideal finish times.

    Example: echelon show job.yaml -o job.png
    """
    from echelon.documents import DocumentError
    from echelon.jobs import build_job
    from echelon.jobs.spec import load_job_spec

    with ShownProgress() as progress:
        progress.stage(f"reading {file.name}")
        try:
            spec = load_job_spec(file)
        except DocumentError as error:
            fail(str(error))
        job = build_job(spec)
        for path in out or ():
            from echelon.lab.plots import job as picture

            progress.stage(f"drawing {path.name}")
            draw_file(lambda style: [picture.draw(job, tuple(spec.hosts), style)], path)
    if as_json:
        tables.show_json(_plain(job))
        return
    _describe(job)
    for path in out or ():
        typer.echo(path)


def _plain(job: Job) -> dict[str, object]:
    """Return the job as `--json` prints it."""
    sizes = {flow.name: flow.size_bytes for flow in job.flows}
    return {
        "job": job.name,
        "workers": job.workers,
        "computes": len(job.computes),
        "flows": len(job.flows),
        "bytes": sum(sizes.values()),
        "echelonflows": [
            {
                "name": h.name,
                "flows": h.flows,
                "bytes": sum(sizes[name] for name in h.flows),
                "offsets_s": h.offsets_s,
                "coflow": h.is_coflow,
            }
            for h in job.echelonflows
        ],
    }


def _describe(job: Job) -> None:
    sizes = {flow.name: flow.size_bytes for flow in job.flows}
    tables.pairs(
        [
            ("job", job.name),
            ("hosts", str(len(job.workers))),
            ("compute units", str(len(job.computes))),
            ("flows", f"{len(job.flows)}, {sum(sizes.values())} B"),
            ("EchelonFlows", str(len(job.echelonflows))),
        ]
    )
    typer.echo()
    columns = [
        tables.Column("EchelonFlow", wraps=True),
        tables.Column("flows", right=True),
        tables.Column("bytes", right=True),
        tables.Column("last ideal finish", right=True),
        tables.Column("kind"),
    ]
    tables.show(columns, [_row(h, sizes) for h in job.echelonflows[:_SHOWN]], "no flows")
    if len(job.echelonflows) > _SHOWN:
        typer.echo(f"and {len(job.echelonflows) - _SHOWN} EchelonFlows more")


def _row(echelonflow: EchelonFlow, sizes: dict[str, int]) -> tuple[str, ...]:
    return (
        echelonflow.name,
        str(len(echelonflow.flows)),
        str(sum(sizes[name] for name in echelonflow.flows)),
        figures.duration(float(echelonflow.offsets_s[-1])),
        "coflow" if echelonflow.is_coflow else "staggered",
    )
