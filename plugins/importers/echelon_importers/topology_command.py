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
from echelon_importers.topologies.conversion import ImportedFabric, import_fabric


@dataclass(frozen=True, slots=True)
class FabricTarget:
    """What is written: the fabric's name, its file, and its picture if there shall be one."""

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
    tally = fabric.tally
    counts = {"hosts": len(fabric.spec.hosts), "switches": len(fabric.spec.switches)}
    counts["links"] = len(fabric.spec.links)
    parts = {"read": tally.read, "derived": tally.derived, "ignored": tally.ignored}
    if as_json:
        kept = {part: _positive(values) for part, values in parts.items()}
        show_json({"file": out, **counts, **kept, "notes": tally.notes})
        return
    typer.echo(f"{out}: {_listed(counts)}")
    for part, values in parts.items():
        typer.echo(f"  {part}: {_listed(_positive(values)) or 'nothing'}")
    for note in tally.notes:
        typer.echo(f"  {note}")


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {noun: count for noun, count in counts.items() if count}


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {noun}" for noun, count in counts.items())
