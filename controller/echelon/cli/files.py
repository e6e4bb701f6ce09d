"""The commands about files: `examples`, `init`, `fabric`, `check` and `show`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt, prod
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from echelon.cli import figures, tables
from echelon.cli.pictures import draw_picture
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, OutFile, show_json, write_text
from echelon.cli.usage import BAD_INPUT, FAILED, fail
from echelon.model.extras import plug_in, shipped

if TYPE_CHECKING:
    from echelon.model.fabric.load import FabricSpec
    from echelon.model.jobs.graph import EchelonFlow, Job

_FOLDERS = ("topologies", "examples", "p4src")
_START = Path("examples") / "start"
_SENTENCE_END = re.compile(r"(?<=[.?])(?<!Fig\.) ")
_SUFFIXES = (".yaml", ".py", ".p4", ".h", ".toml", ".md")

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="A part of the path of those wanted, e.g. fig2; default: all.", metavar="NAME"
    ),
]


def examples(
    names: Names = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Copy them into this directory.", metavar="DIRECTORY"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios, fabrics, files for `mn`, plug-ins and P4 sources that come with Echelon, or copy them.

    Example: echelon examples scenarios/ -o examples
    """
    found = [
        path for path in _files() if not names or any(name in path.as_posix() for name in names)
    ]
    if not found:
        fail(
            f"echelon examples: no file has {' or '.join(map(repr, names or []))} in its path (see"
            " echelon examples)"
        )
    if out is None:
        rows = [(path.as_posix(), _first_sentence(shipped() / path)) for path in found]
        if as_json:
            show_json([{"file": file, "about": about} for file, about in rows])
            return
        tables.show((Column("file"), Column("what it is", wraps=True)), rows, "no examples")
        return
    # Files name others by relative paths, so these are copied, too.
    needed = dict.fromkeys(found)
    if any(path.parts[0] == "topologies" for path in found):
        shared = [
            path
            for path in _files()
            if path.parts[0] == "topologies" and path.parts[1] != "scenarios"
        ]
        needed |= dict.fromkeys(shared)
    _copy({path: out / path for path in needed})
    if as_json:
        show_json({"files": [out / path for path in needed]})
        return
    typer.echo(f"{out}: {len(needed)} files")


def init(
    directory: Annotated[
        Path, typer.Argument(help="The directory; it is made.", metavar="DIRECTORY")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a scenario, a fabric and two jobs with comments, to be changed.

    Example: echelon init mine && echelon run mine/scenario.yaml -o mine/results
    """
    files = [path for path in _files() if path.parent == _START]
    _copy({path: directory / path.name for path in files})
    if as_json:
        show_json({"files": sorted(directory / path.name for path in files)})
        return
    for path in sorted(files):
        typer.echo(f"{directory / path.name}: {_first_sentence(shipped() / path)}")
    scenario = directory / "scenario.yaml"
    typer.echo(
        f"\nNext: echelon check {scenario}\n      echelon run {scenario} -o {directory / 'results'}"
    )


def _copy(copies: dict[Path, Path]) -> None:
    """Copy shipped files, none of them over a file that is there."""
    for target in copies.values():
        if target.exists():
            fail(f"{target}: exists already (move it away, or name another directory)")
    try:
        for path, target in copies.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((shipped() / path).read_bytes())
    except OSError as error:
        fail(
            f"{error.filename}: {error.strerror} (name a directory that can be written to)", FAILED
        )


def _files() -> Iterator[Path]:
    """Yield the shipped files, relative to where they are shipped, without what p4c has made."""
    for folder in _FOLDERS:
        for path in sorted((shipped() / folder).rglob("*")):
            relative = path.relative_to(shipped())
            if path.suffix in _SUFFIXES and not {"build", "__pycache__"}.intersection(
                relative.parts
            ):
                yield relative


def _first_sentence(file: Path) -> str:
    """Return the first sentence of the comment at the beginning of a file."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.strip().strip('"').removeprefix("/*").removesuffix("*/").lstrip("#/* ").strip()
        if words and (not text or line[:1].isalnum()):
            break
        if text.startswith("SPDX") or not text or (not words and line[:1].isalpha()):
            if line[:1].isalpha():
                break
            continue
        words += text.split()
    return _SENTENCE_END.split(" ".join(words), maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape: the function of its name in `echelon.model.fabric.builders` builds it."""

    about: str
    """The comment in the file, with options in braces."""
    options: Mapping[str, object]
    """The options that the shape has besides --delay, with their defaults."""


_RATE = {"rate": "10 Mbit/s"}
_THESIS = {"rate": "250 Mbit/s"}
_RATES = {**_RATE, "nic_rate": "1 Gbit/s"}

SHAPES = {
    "one-tor": Shape("{servers} servers at one top-of-rack switch.", {"servers": 4, **_RATE}),
    "thesis-a": Shape(
        "Salamy's configuration A (SM thesis, MIT 2022, Fig. 3-1a): a ring of s0 to s3 and cross"
        " traffic from s0. The bottleneck, the outbound queue of the NIC of s0, is the switch nic0;"
        " before it, s0 has a link four times as fast.",
        _THESIS,
    ),
    "thesis-b": Shape(
        "Salamy's configuration B (SM thesis, MIT 2022, Fig. 3-1b): a ring of s0, s1 and s3, cross"
        " traffic from s2 to s0; the bottleneck is the switch's port to s0.",
        _THESIS,
    ),
    "dumbbell": Shape(
        "{pairs} pairs of hosts, a1-b1, a2-b2..., on either side of one link, the bottleneck.",
        {"pairs": 2, **_RATES},
    ),
    "line": Shape(
        "A host at each of {switches} switches in a line; the links between switches are the"
        " bottlenecks.",
        {"switches": 3, **_RATES},
    ),
    "leaf-spine": Shape(
        "{leaves} leaves with {hosts_per_leaf} hosts each and {spines} spines; the uplinks are"
        " oversubscribed {oversubscription} to 1.",
        {"leaves": 4, "spines": 2, "hosts_per_leaf": 4, "oversubscription": "1", **_RATE},
    ),
    "fat-tree": Shape(
        "The fat-tree of switches with {k} ports, with the addresses of Al-Fares et al. (SIGCOMM"
        " 2008).",
        {"k": 4, **_RATE},
    ),
    "clos": Shape(
        "{pods} pods of {leaves} leaves, with {hosts_per_leaf} hosts each, and {spines} spines;"
        " {spines} cores above each spine of a pod; the uplinks of leaves are oversubscribed"
        " {oversubscription} to 1.",
        {
            "pods": 2,
            "leaves": 2,
            "spines": 2,
            "hosts_per_leaf": 4,
            "oversubscription": "1",
            **_RATE,
        },
    ),
    "dragonfly": Shape(
        "A dragonfly (Kim et al., ISCA '08): {groups} groups of {switches} switches,"
        " {hosts_per_switch} hosts at each.",
        {"groups": 5, "switches": 4, "hosts_per_switch": 2, **_RATE},
    ),
    "torus": Shape(
        "A torus of {sides} switches, each linked to both neighbours of a dimension and to"
        " {hosts_per_switch} hosts.",
        {"sides": "4x4", "hosts_per_switch": 1, **_RATE},
    ),
    "rail-optimised": Shape(
        "{servers} servers with {rails} NICs each, at {rails} rails, and {spines} spines; n2r1 is"
        " the NIC of server 2 at rail 1, a host of its own. The uplinks are oversubscribed"
        " {oversubscription} to 1.",
        {"servers": 4, "rails": 4, "spines": 2, "oversubscription": "1", **_RATE},
    ),
    "multi-rail": Shape(
        "{servers} servers with a link to each of {rails} rails, and {spines} spines. The uplinks"
        " are oversubscribed {oversubscription} to 1.",
        {"servers": 4, "rails": 4, "spines": 2, "oversubscription": "1", **_RATE},
    ),
}


def fabric(
    context: typer.Context,
    shape: Annotated[str, typer.Argument(help=f"The shape: {', '.join(SHAPES)}.", metavar="SHAPE")],
    servers: Annotated[int | None, typer.Option(help="How many servers. Default: 4.")] = None,
    pairs: Annotated[int | None, typer.Option(help="Number of pairs of hosts. Default: 2.")] = None,
    switches: Annotated[
        int | None,
        typer.Option(help="How many switches, of a dragonfly in each group. Default: 3, there 4."),
    ] = None,
    pods: Annotated[
        int | None, typer.Option(help="How many pods of a Clos network. Default: 2.")
    ] = None,
    leaves: Annotated[
        int | None,
        typer.Option(help="How many leaves, of a Clos network in each pod. Default: 4, there 2."),
    ] = None,
    spines: Annotated[int | None, typer.Option(help="How many spines. Default: 2.")] = None,
    hosts_per_leaf: Annotated[
        int | None, typer.Option(help="Number of hosts at each leaf. Default: 4.")
    ] = None,
    hosts_per_switch: Annotated[
        int | None,
        typer.Option(
            help="Number of hosts at each switch of a dragonfly (default: 2) or torus (1)."
        ),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="How many groups of a dragonfly. Default: 5.")
    ] = None,
    sides: Annotated[
        str | None,
        typer.Option(
            help="The sides of a torus, in switches: 4x4, or 4x4x2. Default: 4x4.", metavar="AxB"
        ),
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(
            help=(
                "How many hosts in all, instead of the number of leaves, pods, groups, rails or"
                " sides."
            ),
            min=2,
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k", help="Number of ports of a switch of a fat tree, which is even. Default: 4."
        ),
    ] = None,
    rails: Annotated[
        int | None,
        typer.Option(help="Number of rails, each with one NIC of every server. Default: 4."),
    ] = None,
    oversubscription: Annotated[
        str | None,
        typer.Option(
            help=(
                "Rate at which the hosts of a switch can send, divided by the rate of its uplinks."
                " Default: 1."
            ),
            metavar="RATIO",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help=(
                "Rate of the links of hosts; of a dumbbell or line, between switches; of a fat"
                " tree, of every link. "
                "Default: 10 Mbit/s, of the thesis 250 Mbit/s."
            ),
            metavar="RATE",
        ),
    ] = None,
    nic_rate: Annotated[
        str | None,
        typer.Option(
            help="Rate of the links of hosts of a dumbbell or line. Default: 1 Gbit/s.",
            metavar="RATE",
        ),
    ] = None,
    delay: Annotated[
        str, typer.Option(help="Propagation delay of every link.", metavar="TIME")
    ] = "1 us",
    draw: Annotated[
        Path | None,
        typer.Option(help="Draw the fabric into this file, PNG, SVG or PDF.", metavar="PICTURE"),
    ] = None,
    out: OutFile = None,
) -> None:
    """Write a fabric file of a well-known shape: leaf-spine, fat-tree and others.

    A shape has the options for what it consists of; an option of another shape is a mistake.
    thesis-a and thesis-b are the configurations of Salamy (2022); a rail-optimised fabric has each
    NIC of a server at the switch of its rank, as a host of its own; in a multi-rail fabric, servers
    are hosts of several links.

    Example: echelon fabric leaf-spine --hosts 16 --oversubscription 2 --draw fabric.png -o fabric.yaml
    """
    from echelon.model.fabric.load import fabric_text

    own = {
        name: value
        for name, value in context.params.items()
        if name not in ("shape", "delay", "out", "draw")
    }
    spec, about = _shaped(
        shape, {name: value for name, value in own.items() if value is not None}, delay
    )
    write_text(fabric_text(spec, about), out)
    if draw is not None:
        from echelon.model.fabric.load import build_fabric

        draw_picture("fabric", draw, build_fabric(spec))


def _shaped(name: str, given: Mapping[str, object], delay: str) -> tuple[FabricSpec, str]:
    """Return the fabric and the comment in its file."""
    from echelon.model.documents import suggestion
    from echelon.model.fabric import builders
    from echelon.model.quantities import QuantityError, duration_s, number, rate_bps

    name = next((shape for shape in SHAPES if shape.startswith(f"{name}-")), name)
    if name not in SHAPES:
        fail(f"echelon fabric: unknown shape '{name}' ({suggestion(name, SHAPES)})")
    shape = SHAPES[name]
    count = given.get("hosts")
    given = {option: value for option, value in given.items() if option != "hosts"}
    for option in given:
        if option not in shape.options:
            known = ", ".join(map(_written, (*shape.options, "delay")))
            fail(f"{_written(option)}: fabric {name} has no such option (it has {known})")
    options = {**shape.options, **given}
    if isinstance(count, int):
        options |= _sized(name, options, given, count)
    about = re.sub(r"\b1 (\w+s)\b", _singular, shape.about.format_map(options))
    arguments: dict[str, object] = {}
    for option, value in {**options, "delay": delay}.items():
        argument, parse = {
            "rate": ("rate_bps", rate_bps),
            "nic_rate": ("nic_bps", rate_bps),
            "delay": ("delay_s", duration_s),
            "oversubscription": (option, number),
            "sides": (option, _sides),
        }.get(option, (option, lambda value: value))
        try:
            arguments[argument] = parse(value)
        except QuantityError as error:
            fail(f"{_written(option)}: {error}")
    try:
        return getattr(builders, name.replace("-", "_"))(**arguments), about
    except ValueError as error:
        fail(str(error))


_COUNTED = {
    "one-tor": ("servers",),
    "dumbbell": ("pairs",),
    "line": ("switches",),
    "leaf-spine": ("leaves", "hosts_per_leaf"),
    "clos": ("pods", "leaves", "hosts_per_leaf"),
    "dragonfly": ("groups", "switches", "hosts_per_switch"),
    "torus": ("sides", "hosts_per_switch"),
    "rail-optimised": ("servers", "rails"),
    "multi-rail": ("servers",),
}
"""The options whose product is the number of hosts (of a dumbbell, half of it): the first follows
from --hosts.
"""


def _sized(
    name: str, options: Mapping[str, Any], given: Mapping[str, object], hosts: int
) -> dict[str, object]:
    """Return the option that gives the shape so many hosts."""
    if name == "fat-tree":
        sizes = {k**3 // 4: k for k in range(2, 66, 2)}
        if hosts not in sizes or "k" in given:
            fail(
                f"--hosts: a fat tree has {', '.join(map(str, [*sizes][:8]))}... hosts (give one of"
                " them, or --k)"
            )
        return {"k": sizes[hosts]}
    if name not in _COUNTED:
        fail(f"--hosts: fabric {name} has four hosts (leave it out)")
    first, *others = _COUNTED[name]
    if first in given:
        fail(f"--hosts: does not go with {_written(first)} (give one of them)")
    each = prod(int(options[option]) for option in others) * (2 if name == "dumbbell" else 1)
    count, rest = divmod(hosts, each)
    if count < 2 and name != "torus" and others and others[-1] not in given:
        # One leaf, pod, group or server alone has nothing to share: fewer hosts at each make it two
        # at least.
        places = each // int(options[others[-1]])
        fewer = next(
            (
                number
                for number in range(hosts // places // 2, 0, -1)
                if hosts % (number * places) == 0
            ),
            0,
        )
        if fewer:
            return {first: hosts // (fewer * places), others[-1]: fewer}
    if rest:
        settings = " and ".join(_written(option) for option in others)
        fail(
            f"--hosts: {hosts} is not a multiple of {each} (give {(count + 1) * each}, or change"
            f" {settings})"
        )
    if name == "torus":
        side = next(side for side in range(isqrt(count), 0, -1) if count % side == 0)
        return {"sides": f"{side}x{count // side}"}
    return {first: count}


def _singular(found: re.Match[str]) -> str:
    word = found[1]
    return f"1 {({'leaves': 'leaf', 'switches': 'switch'}).get(word, word.removesuffix('s'))}"


def _sides(text: object) -> tuple[int, ...]:
    from echelon.model.quantities import QuantityError

    words = str(text).split("x")
    if not all(word.isdecimal() and len(word) < 6 for word in words):
        raise QuantityError(f"'{text}' are not sides (write 4x4, or 4x4x2)")
    return tuple(map(int, words))


def _written(option: str) -> str:
    return f"--{option.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file, and what it is or what is wrong with it."""

    file: Path
    good: bool
    what: str | None
    """The kind and name of a good file."""
    mistakes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What switches can and cannot do for jobs that they recognise by bytes."""


GROUP = "echelon.files"
"""The entry-point group of the functions that load files of plug-ins, by the key or the name of the
kind.
"""

KINDS = {
    "job": "echelon.model.jobs:load_job",
    "fabric": "echelon.model.fabric.load:load_fabric",
    "scenario": "",
    "service": "echelon.controller.service.config:load_service_config",
    "tokens": "echelon.controller.service.api.tokens:load_tokens",
    "sweep": "",
    "results": "",
    "rows": "",
}
"""The kinds of files, by a key that all files of a kind have, and the functions that load them;
nothing: a plug-in has it. A file of a kind may also have the keys of the kinds before it: scenarios
and configurations name a fabric."""

TABLES = ("start_us", "started_s")
"""The kinds of tables with commas, by a column."""
_NAMES = {
    "results": "results of a run",
    "rows": "results of a sweep",
    "start_us": "schedule of traffic",
    "started_s": "flows of cross traffic",
    "coflows": "trace of coflows",
    "sizes": "distribution of sizes",
}
"""What people call a kind, where that is not its key."""


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help=(
                "Files of jobs, fabrics, scenarios, sweeps, services and tokens; results;"
                " schedules, sizes and traces "
                "of traffic."
            ),
            metavar="FILE",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check files without running anything.

    Ends with status 2 if any file is bad, after one line about each mistake on standard error.

    Example: echelon check *.yaml
    """
    checked = []
    with ShownProgress() as progress:
        progress.stage("checking", len(files), "files")
        for file in files:
            progress.doing(f"checking {file.name}")
            checked.append(_checked(file))
            progress.done()
    for found in checked:
        for mistake in found.mistakes:
            typer.echo(mistake, err=True)
        if found.good and not as_json:
            for line in (f"{found.what} is good", *(f"note: {note}" for note in found.notes)):
                typer.echo(f"{found.file}: {line}")
    if as_json:
        show_json(checked)
    if not all(found.good for found in checked):
        raise typer.Exit(BAD_INPUT)


def _checked(file: Path) -> CheckedFile:
    from echelon.model.documents import DocumentError

    try:
        kind = _kind_of(file)
        loaded = _loader(file, kind)(file)
        of = loaded.tokens if kind == "tokens" else [loaded]
        names = ", ".join(f"'{one.name}'" for one in of if hasattr(one, "name"))
        notes = tuple(_notes(kind, file, loaded))
        return CheckedFile(file, True, f"{_NAMES.get(kind, kind)} {names}".rstrip(), notes=notes)
    except DocumentError as error:
        return CheckedFile(
            file, False, None, tuple(str(mistake) for mistake in (error, *error.others))
        )


def _notes(kind: str, file: Path, loaded: Any) -> Iterator[str]:
    """Yield what is to be said of jobs whose senders do not mark packets."""
    from echelon.model.jobs.spec import load_job_spec
    from echelon.switches.lowering.limits import limits

    if kind == "job":
        yield from limits(loaded, load_job_spec(file).recognition)
    elif kind == "scenario":
        for job in loaded.jobs:
            if job.name in loaded.specs:
                yield from limits(job, loaded.specs[job.name].recognition)


def _loader(file: Path, kind: str) -> Callable[[Path], Any]:
    """Return the function that loads a file of a kind.

    Raise `DocumentError` if its plug-in is missing.
    """
    from importlib.metadata import entry_points

    from echelon.model.documents import DocumentError

    if place := KINDS.get(kind):
        return cast("Callable[[Path], Any]", resolve_name(place))
    for entry in entry_points(group=GROUP, name=kind):
        return cast("Callable[[Path], Any]", entry.load())
    raise DocumentError(str(file), "", f"{plug_in(GROUP, kind)}")


def _kind_of(file: Path) -> str:
    """Return the kind of a file: of JSON and YAML by its keys, of other text by its first line that
    is no comment.
    """
    from echelon.model.documents import DocumentError, read_document

    if file.suffix in (".csv", ".txt"):
        return _kind_of_text(file)
    if file.suffix == ".json":
        # Results may be larger than what people write.
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise DocumentError(
                str(file), "", f"{error.strerror or error} (check the path)"
            ) from None
        except (ValueError, RecursionError):
            raise DocumentError(
                str(file), "", "is not JSON (correct it, or write it anew)"
            ) from None
    else:
        data = read_document(file)
    for kind in reversed(KINDS):
        if isinstance(data, dict) and kind in data:
            return kind
    raise DocumentError(
        str(file), "", f"is neither {' nor '.join(KINDS)} (it has none of these keys)"
    )


def _kind_of_text(file: Path) -> str:
    from echelon.model.documents import DocumentError

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DocumentError(str(file), "", f"{error.strerror or error} (check the path)") from None
    except UnicodeDecodeError as error:
        raise DocumentError(
            str(file), "", f"byte {error.start} is not UTF-8 text (save it as UTF-8)"
        ) from None
    rows = [line for line in lines if line.strip() and not line.startswith("#")]
    if file.suffix == ".csv":
        columns = rows[0].split(",") if rows else []
        return next((kind for kind in reversed(TABLES) if kind in columns), "start_us")
    # A trace begins with the numbers of ports and coflows; a coflow has at least six words, a point
    # of sizes two.
    if all(len(row.partition("#")[0].split()) == 2 for row in rows):
        return "sizes"
    return "coflows"


_SHOWN = 30


def show(
    file: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB")],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out", "-o", help="Draw one iteration into this file, PNG or SVG; may be repeated."
        ),
    ] = None,
    as_json: tables.AsJson = False,
) -> None:
    """Show what a job computes and sends in an iteration, and its EchelonFlows; draw it.

    Times are those of an infinitely fast network: ideal finish times.

    Example: echelon show job.yaml -o job.png
    """
    from echelon.model.documents import DocumentError
    from echelon.model.jobs import build_job
    from echelon.model.jobs.spec import load_job_spec

    with ShownProgress() as progress:
        progress.stage(f"reading {file.name}")
        try:
            spec = load_job_spec(file)
        except DocumentError as error:
            fail(str(error))
        job = build_job(spec)
        for path in out or ():
            progress.stage(f"drawing {path.name}")
            draw_picture("job", path, job, tuple(spec.hosts))
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
