"""The part of `echelon import` that writes fabric files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from echelon.cli.pictures import draw_picture
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import show_json
from echelon.cli.usage import fail
from echelon.model.fabric.load import build_fabric
from echelon_importers.importer import Source
from echelon_importers.tallies import listed, print_tally
from echelon_importers.topologies.conversion import ImportedFabric, import_fabric


@dataclass(frozen=True, slots=True)
class FabricTarget:
    """The name of a fabric, the file to write, and its picture if one is wanted."""

    name: str
    file: Path
    picture: Path | None


def import_topology(
    kind: str,
    sources: Sequence[Source],
    settings: Mapping[str, object],
    target: FabricTarget,
    *,
    as_json: bool,
) -> None:
    """Write the fabric file of a topology, and its picture. Raises `DocumentError`."""
    if len(sources) > 1:
        reason = "is one file too many: a topology has one (import them one by one)"
        raise sources[1].refusal(reason, code="wrong-length")
    [source] = sources
    file = target.file
    with ShownProgress() as progress:
        progress.stage(f"translating {source.name}")
        fabric = import_fabric(kind, source, target.name, settings)
        try:
            file.write_text(fabric.text, encoding="utf-8")
        except OSError as error:
            fail(f"{file}: {error.strerror or error} (choose another file for --out)")
        if target.picture is not None:
            progress.stage(f"drawing {target.picture.name}")
            draw_picture("fabric", target.picture, build_fabric(fabric.spec))
    _summarise(file, fabric, as_json=as_json)


def _summarise(
    out: Path,
    fabric: ImportedFabric,
    *,
    as_json: bool,
) -> None:
    """Print what the fabric file has, and what was read, derived and ignored."""
    spec = fabric.spec
    tally = fabric.tally
    counts = {
        "hosts": len(spec.hosts),
        "switches": len(spec.switches),
        "links": len(spec.links),
    }
    if as_json:
        show_json(
            {
                "file": out,
                **counts,
                "read": +tally.read,
                "derived": +tally.derived,
                "ignored": +tally.ignored,
                "notes": tally.notes,
            }
        )
        return
    typer.echo(f"{out}: {listed(counts)}")
    print_tally(tally)
