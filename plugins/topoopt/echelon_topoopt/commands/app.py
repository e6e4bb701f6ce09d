"""`echelon topology`: topology and parallelisation together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from echelon.cli import tables
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import Column
from echelon.cli.usage import BAD_INPUT, FAILED, CommandGroup, fail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from echelon_lab.plots.style import Style
    from echelon_topoopt.optimised import Result

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Topologies of direct connections, and parallelisations for them.",
)

_RESULTS = (
    Column("job"),
    Column("network"),
    Column("of a host", lambda row: f"{row.host_bps / 1e9:.4g} Gbit/s", right=True),
    Column("parallelisation", wraps=True),
    Column("iteration", lambda row: f"{row.iteration_s * 1e3:.5g} ms", right=True),
    Column("relative", lambda row: f"{row.relative:.2f}", right=True),
)


@app.command()
def optimise(
    jobs: Annotated[
        list[Path],
        typer.Argument(
            help="Job files; each job gets a part of the panel.",
            metavar="JOB",
        ),
    ],
    degree: Annotated[
        int,
        typer.Option(
            help="The ports of each host.",
            min=2,
            max=64,
        ),
    ] = 4,
    hosts: Annotated[
        int | None,
        typer.Option(
            help="How many hosts the panel has. Default: as many as the jobs have workers.",
            min=2,
        ),
    ] = None,
    rate: Annotated[
        str,
        typer.Option(
            help="The rate of a port.",
            metavar="RATE",
        ),
    ] = "100 Gbit/s",
    criterion: Annotated[
        Literal["bytes", "tardiness"],
        typer.Option(
            "--by",
            help="What ports go to: most bytes, as published, or, after that, what finishes late.",
        ),
    ] = "bytes",
    starts: Annotated[
        int,
        typer.Option(
            help="From how many parallelisations the search begins.",
            min=1,
        ),
    ] = 6,
    seed: Annotated[int, typer.Option(help="The seed of their order, and of the expander.")] = 0,
    panel_price: Annotated[
        str,
        typer.Option(
            help="The price of a port of the panel, as a part of that of a switch's port."
        ),
    ] = "1",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The directory for fabric, jobs, scenario and picture.",
            metavar="DIRECTORY",
        ),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Choose cables between hosts and the parallelisation of each job together, and compare with other networks.

    The others cost as much, but for the ideal switch; each has the best parallelisation for it.
    Times are those of an iteration as a fluid; relative is to that of the topology found.

    Example: echelon topology optimise job.yaml --degree 4 --hosts 16 -o topology
    """
    from echelon.cli.usage import fraction
    from echelon.model.documents import DocumentError
    from echelon.model.quantities import QuantityError, rate_bps
    from echelon.planning.fluid import FluidError
    from echelon.planning.plan import PlanError
    from echelon_topoopt.optimised import Settings, optimise_jobs

    progress = ShownProgress()
    try:
        port_bps = rate_bps(rate)
        price = fraction("--panel-price", panel_price)
        by_tardiness = criterion == "tardiness"
        settings = Settings(degree, port_bps, by_tardiness, starts, seed, price)
        with progress:
            result = optimise_jobs(jobs, settings, hosts, progress)
        files = [] if out is None else _write(result, out)
    except QuantityError as error:
        fail(f"--rate: {error}", BAD_INPUT)
    except (DocumentError, PlanError) as error:
        fail(str(error), BAD_INPUT)
    except FluidError as error:
        fail(str(error), FAILED)
    except ValueError as error:
        fail(f"--degree: {error}", BAD_INPUT)
    if as_json:
        tables.show_json({"networks": result.rows, "searches": result.searches, "files": files})
        return
    tables.show_all(_RESULTS, result.rows)
    for file in files:
        typer.echo(file)


def _write(result: Result, out: Path) -> list[Path]:
    from echelon_lab.plots import write_file
    from echelon_topoopt.files import write_files
    from echelon_topoopt.picture import draw

    def picture(style: Style) -> list[Figure]:
        return draw(result.parts, result.about, style)

    try:
        files = write_files(out, result.fabric, result.jobs, result.about)
        pages = write_file(picture, out / "topology.png")
    except OSError as error:
        path = error.filename or out
        reason = error.strerror or error
        fail(f"--out: {path}: {reason} (name a directory to write to)", BAD_INPUT)
    return [*files, *pages]
