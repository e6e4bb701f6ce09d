"""`echelon import`: a job file of another tool's workload, or a fabric file of its topology."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, show_json
from echelon.cli.usage import fail
from echelon_importers.tallies import print_tally

if TYPE_CHECKING:
    from echelon_importers import Source, Workload

_MOST_BYTES = 1 << 30
_MANY_NODES = 10_000
"""The number of nodes from which planning and running the job take long."""


def _names(entries: Iterable[EntryPoint]) -> str:
    """Return the names of entry points, as the help lists them."""
    return ", ".join(sorted(entry.name for entry in entries))


_FORMATS = _names(entry_points(group="echelon.importers"))
_TOPOLOGIES = _names(entry_points(group="echelon.topologies"))

Format = Annotated[
    str,
    typer.Argument(
        help=(f"A format of workloads ({_FORMATS}), or a kind of topology ({_TOPOLOGIES})."),
        metavar="FORMAT",
    ),
]
Files = Annotated[
    list[Path], typer.Argument(help="The files; one of each rank where ranks have their own.")
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="The job or fabric file to write.",
        metavar="FILE.yaml",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="The name of the job or fabric. Default: that of its file.",
        metavar="NAME",
    ),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        help=(
            "The hosts, as h1,h2,h3, or how many there are, which are then called h1, h2..."
            " Default: as many as the ranks of the file need."
        ),
        metavar="HOSTS",
    ),
]
RanksPerHost = Annotated[
    int,
    typer.Option(
        help="How many consecutive ranks each host has.",
        min=1,
    ),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(help="The rate between hosts, e.g. '10 Gbit/s', where the import depends on it."),
]
LocalBandwidth = Annotated[
    str | None,
    typer.Option(
        help="The rate between two ranks of a host. Default: such transfers take no time."
    ),
]
Iterations = Annotated[
    str | None,
    typer.Option(help="The iterations to take, as 2 or 2:4, counted from 1. Default: 1."),
]
Layers = Annotated[
    str | None,
    typer.Option(help="The layers to take, as 2 or 2:40, counted from 1. Default: all."),
]
Computing = Annotated[
    str | None,
    typer.Option(
        help=(
            "What each rank computes in all, e.g. '300 ms', where the file does not say it; '0 s':"
            " communication alone is meant."
        ),
        metavar="TIME",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        help="The GPU that does operations for which the file has no times: A100 (aicb, chakra)."
    ),
]
LinkRate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        help="The rate of links for which a topology has none, e.g. '100 Gbit/s'.",
        metavar="RATE",
    ),
]
LinkDelay = Annotated[
    str | None,
    typer.Option(
        "--delay",
        help="The delay of links for which a topology has none. Default: 0 s.",
        metavar="TIME",
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        help="Draw the fabric of a topology into this file, PNG, SVG or PDF.",
        metavar="PICTURE",
    ),
]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge", help="Join runs of the same collective that have nothing between them."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Another option of the format; repeatable. docs/importing.md lists them.",
        metavar="KEY=VALUE",
    ),
]


def import_workload(
    format_name: Format,
    files: Files,
    out: Out,
    name: Name = None,
    hosts: Hosts = None,
    ranks_per_host: RanksPerHost = 1,
    bandwidth: Bandwidth = None,
    local_bandwidth: LocalBandwidth = None,
    iterations: Iterations = None,
    layers: Layers = None,
    computing: Computing = None,
    gpu: Gpu = None,
    merge: Merge = False,
    rate: LinkRate = None,
    delay: LinkDelay = None,
    draw: Picture = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Write a job file of another tool's workload, or a fabric file of its topology.

    Says what was read, derived and ignored. A topology takes --name, --rate, --delay, --draw and
    --set alone.

    Example: echelon import chakra rank*.et --hosts 8 -o job.yaml
    """
    from echelon.model.documents import DocumentError
    from echelon.model.foreign import as_foreign
    from echelon_importers.topologies.topology import topology_kinds

    values: dict[str, object] = {
        "bandwidth": bandwidth,
        "local_bandwidth": local_bandwidth,
        "iterations": iterations,
        "layers": layers,
        "computing": computing,
        "gpu": gpu,
        "rate": rate,
        "delay": delay,
    }
    options = _settings(settings or ())
    for key, value in values.items():
        if value is not None:
            options.setdefault(key, value)
    try:
        if format_name in topology_kinds():
            from echelon_importers.topology_command import FabricTarget, import_topology

            options |= _of_jobs(hosts, ranks_per_host, merge)
            sources = [_source(file) for file in files]
            target = FabricTarget(name or job_name(out), out, draw)
            import_topology(format_name, sources, options, target, as_json=as_json)
            return
        if draw is not None:
            fail(f"--draw: {format_name} is a workload, not a topology (run: echelon show)")
        _import(format_name, files, out, name, hosts, ranks_per_host, merge, options, as_json)
    except DocumentError as error:
        fail(str(as_foreign(error, format_name)))


def _of_jobs(
    hosts: str | None,
    ranks_per_host: int,
    merge: bool,
) -> dict[str, object]:
    """Return the options that were given although only workloads have them."""
    chosen = {"hosts": hosts is not None, "ranks_per_host": ranks_per_host > 1, "merge": merge}
    return {option: True for option, is_chosen in chosen.items() if is_chosen}


def _import(
    format_name: str,
    files: Sequence[Path],
    out: Path,
    name: str | None,
    hosts: str | None,
    ranks_per_host: int,
    merge: bool,
    options: Mapping[str, object],
    as_json: bool,
) -> None:
    from echelon_importers.convert import convert

    with ShownProgress() as progress:
        progress.stage("reading", len(files), "files")
        sources = []
        for file in files:
            progress.doing(f"reading {file.name}")
            sources.append(_source(file))
            progress.done()
        converted = convert(
            format_name,
            sources,
            name or job_name(out),
            hosts=_hosts(hosts),
            ranks_per_host=ranks_per_host,
            merge=merge,
            options=options,
            progress=progress,
        )
        try:
            out.write_text(converted.text, encoding="utf-8")
        except OSError as error:
            fail(f"{out}: {error.strerror or error} (choose another file for --out)")
    _summarise(out, converted.workload, as_json)


def _source(file: Path) -> Source:
    from echelon.model.documents import DocumentError
    from echelon_importers import Source

    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        reason = f"{error.strerror or error} (check the path)"
        raise DocumentError(str(file), "", reason, code="unreadable-file") from None
    if len(data) > _MOST_BYTES:
        reason = f"is larger than {_MOST_BYTES >> 30} GiB (import a part of it)"
        raise DocumentError(str(file), "", reason, code="too-large")
    return Source(str(file), data)


def _settings(texts: Sequence[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"--set: '{text}' is not KEY=VALUE (write for example batches=8)")
        settings[key.strip()] = value.strip()
    return settings


def _hosts(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    if re.fullmatch(r"[1-9][0-9]{0,5}", text):
        count = int(text)
        return tuple(f"h{number}" for number in range(1, count + 1))
    return tuple(word.strip() for word in text.split(","))


def job_name(out: Path) -> str:
    """Return a job name that is close to the name of its file."""
    stem, _, _ = out.name.partition(".")
    letters = re.sub(r"[^A-Za-z0-9_-]+", "-", stem)
    words = letters.strip("-")[:32]
    if re.match(r"[A-Za-z]", words):
        return words
    return f"job-{words}"[:32].rstrip("-")


def _summarise(
    out: Path,
    workload: Workload,
    as_json: bool,
) -> None:
    tally = workload.tally
    if as_json:
        show_json(
            {
                "file": out,
                "nodes": len(workload.nodes),
                "ranks": workload.ranks,
                "read": tally.read,
                "derived": tally.derived,
                "ignored": tally.ignored,
                "notes": tally.notes,
            }
        )
    else:
        typer.echo(f"{out}: {len(workload.nodes)} nodes on {workload.ranks} ranks")
        print_tally(tally)
    if len(workload.nodes) > _MANY_NODES:
        typer.echo(
            f"{out}: {len(workload.nodes)} nodes make planning slow (take a part with --iterations"
            " or --layers, fewer hosts, or --merge)",
            err=True,
        )
