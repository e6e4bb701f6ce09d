"""`echelon switch-config`: queues of switches that do not rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import tables
from echelon.cli.calls import on_service
from echelon.cli.tables import Column
from echelon.cli.usage import FAILED

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon_site.switch_config.differences import Difference
    from echelon_site.switch_config.queues import PortQueues, QueueServices

_DIFFERENCES = tuple(map(Column, ("switch", "table", "key", "field", "now", "then")))


@on_service
def switch_config(
    client: Client,
    fabric: Annotated[
        Path,
        typer.Argument(
            help="The fabric file.",
            metavar="FABRIC",
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--for",
            help="The kind of switches.",
            metavar="KIND",
        ),
    ] = "sonic",
    against: Annotated[
        Path | None,
        typer.Option(
            help="The configuration of the switches, or a directory with SWITCH.json for each.",
            metavar="PATH",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The directory for a file for each switch; without it, nothing is written.",
            metavar="DIRECTORY",
        ),
    ] = None,
    pfc: Annotated[
        str | None,
        typer.Option(
            help="The lossless queues, as 3,4, or none. Default: as the switches have it.",
            metavar="QUEUES",
        ),
    ] = None,
    ecn: Annotated[
        str | None,
        typer.Option(
            help=(
                "From which depth to which, and up to which part, queues of jobs mark packets."
                " Default: as the switches have it."
            ),
            metavar="MIN,MAX,PART",
        ),
    ] = None,
    from_service: Annotated[
        bool,
        typer.Option(
            "--from-service",
            help="Take levels and weights of queues from the plan of a running service.",
        ),
    ] = False,
    lanes: Annotated[
        int,
        typer.Option(
            help="The lanes of a port, which give ports their names where --against does not.",
            min=1,
            max=8,
        ),
    ] = 4,
    as_json: tables.AsJson = False,
) -> None:
    """Write the queues of a fabric's switches as configurations of SONiC, or show what differs.

    Each code point gets the queue that the plan means by it, and a higher queue is served first
    unless the plan of a service says otherwise. Without --out, the status is 1 if a switch of
    --against has to be changed.

    Example: echelon switch-config fabric.yaml --for sonic --pfc 3,4 -o switches
    """
    from echelon.model.fabric.load import load_fabric
    from echelon_site.switch_config.configs import Switches
    from echelon_site.switch_config.dialects import load_dialect
    from echelon_site.switch_config.differences import differences
    from echelon_site.switch_config.files import write_configs
    from echelon_site.switch_config.plan_queues import services_of

    def planned(switch: str) -> QueueServices:
        return services_of(client.intent(switch))

    dialect = load_dialect(kind)
    model = load_fabric(fabric)
    switches = Switches(model, dialect, against, lanes)
    queues = _queues(fabric, model.roce_marks, pfc, ecn)
    configs = list(switches.configured(queues, planned if from_service else None))

    # All files are made before one is written, so that a mistake leaves nothing behind.
    changes: list[Difference] = []
    wanted = {}
    for config in configs:
        changes += differences(config.switch, config.current, config.wanted)
        wanted[config.switch] = config.wanted
    files = []
    if out is not None:
        files = write_configs(out, wanted, dialect)
    _show(changes, files, as_json=as_json)
    if against is not None and out is None and changes:
        raise typer.Exit(FAILED)


def _queues(
    fabric: Path,
    roce_marks: Sequence[int],
    pfc: str | None,
    ecn: str | None,
) -> PortQueues:
    """Return strict queues for the code points of a fabric file."""
    from echelon.model.documents import DocumentError
    from echelon_site.switch_config.options import ecn_marking, lossless_queues
    from echelon_site.switch_config.queues import (
        STRICT,
        PortQueues,
        QueueError,
        queues_by_code_point,
    )

    try:
        by_code_point = queues_by_code_point(roce_marks)
    except QueueError as error:
        raise DocumentError(str(fabric), "roce_marks", str(error), code="duplicate") from None
    return PortQueues(
        by_code_point,
        STRICT,
        lossless_queues(pfc),
        ecn_marking(ecn),
    )


def _show(
    changes: Sequence[Difference],
    files: Sequence[Path],
    *,
    as_json: bool,
) -> None:
    """Print what differs, or the files if there are any."""
    from echelon_site.switch_config.differences import rows

    if as_json:
        documents = [asdict(change) for change in changes]
        tables.show_json({"differences": documents, "files": files})
    elif files:
        for file in files:
            typer.echo(file)
    else:
        tables.show(_DIFFERENCES, rows(changes), "nothing differs")
