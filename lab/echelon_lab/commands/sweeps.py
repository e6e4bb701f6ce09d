"""`echelon sweep`: variants of a scenario under several policies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, show, show_json
from echelon_lab.commands.errors import one_line_errors

FileArgument = Annotated[
    Path,
    typer.Argument(
        help="The sweep's file.",
        metavar="FILE",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="The directory for results and tables. Existing results are kept.",
        metavar="DIRECTORY",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that run. Default: one for each processor.",
        min=1,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        help="Run on the Dask cluster whose scheduler is here (extra 'cluster').",
        metavar="tcp://HOST:PORT",
    ),
]


def sweep(
    file: FileArgument,
    out: OutOption,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    as_json: AsJson = False,
) -> None:
    """Run every variant of a scenario under every policy. The same command continues an interrupted sweep.

    Example: echelon sweep sweep.yaml -o results --workers 2
    """
    with one_line_errors(out):
        from echelon_lab.points.cluster import DaskCluster
        from echelon_lab.sweeps.run import sweep_into
        from echelon_lab.sweeps.spec import load_sweep

        machines: int | DaskCluster
        if cluster is None:
            machines = workers or os.cpu_count() or 1
        else:
            machines = DaskCluster(cluster)
        with ShownProgress() as progress:
            progress.stage(f"reading {file.name}")
            spec = load_sweep(file)
            report = sweep_into(out, spec, machines, progress)
        shown_tables = (report.overview, report.steady)
        if as_json:
            show_json({"tables": shown_tables, "files": report.files})
            return
        varied = len(report.overview.columns) - len(spec.policies)
        for table in shown_tables:
            typer.echo(table.title)
            columns = []
            for index, title in enumerate(table.columns):
                columns.append(Column(title, right=index >= varied))
            show(columns, table.texts(), "")
        for path in report.files:
            typer.echo(path)
