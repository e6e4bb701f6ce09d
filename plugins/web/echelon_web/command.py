"""`echelon view`: the results of a finished run in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.usage import fail


def view(
    results: Annotated[
        Path,
        typer.Argument(
            help="The directory that `echelon run --out` wrote.",
            metavar="RESULTS",
        ),
    ],
    port: Annotated[
        int,
        typer.Option(
            help="The port of this machine; 0: any free one.",
            min=0,
            max=65535,
        ),
    ] = 0,
) -> None:
    """Show the results of a finished run as a web page: policies, timeline, waits, links.

    The page is for browsers on this machine only. Ctrl-C ends it.

    Example: echelon view out/fig2
    """
    import asyncio

    from echelon.controller.service.api.server import ListenError
    from echelon.model.documents import DocumentError
    from echelon_web.viewer.app import serve
    from echelon_web.viewer.results import load

    def show(url: str) -> None:
        typer.echo(f"{url}/ shows {run.measured.scenario} (Ctrl-C ends it)")

    try:
        with ShownProgress() as progress:
            progress.stage(f"reading {results}")
            run = load(results)
        asyncio.run(serve(run, port, show))
    except (DocumentError, ListenError) as error:
        fail(str(error))
