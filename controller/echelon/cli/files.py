"""The commands about files: `examples`, `init`, `fabric`, `check` and `show`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from echelon.cli import figures, tables
from echelon.cli.pictures import draw_picture
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, OutFile, number_column, show_json, write_text
from echelon.cli.usage import BAD_INPUT, FAILED, fail, load_plug_in
from echelon.model.extras import plug_in, shipped

if TYPE_CHECKING:
    from echelon.model.fabric.load import FabricSpec
    from echelon.model.jobs.graph import EchelonFlow, Job

_FOLDERS = ("topologies", "examples", "p4src")
_START = Path("examples") / "start"
_SENTENCE_END = re.compile(r"(?<=[.?])(?<!Fig\.) ")
_GENERATED = {"build", "__pycache__"}
_SUFFIXES = (".yaml", ".py", ".p4", ".h", ".toml", ".md")

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="A part of the path of those wanted, e.g. fig2; default: all.",
        metavar="NAME",
    ),
]
CopyInto = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Copy them into this directory.",
        metavar="DIRECTORY",
    ),
]
NewDirectory = Annotated[
    Path,
    typer.Argument(
        help="The directory; it is made.",
        metavar="DIRECTORY",
    ),
]


def examples(
    names: Names = None,
    out: CopyInto = None,
    as_json: AsJson = False,
) -> None:
    """List the example files that come with Echelon, or copy them.

    They are scenarios, fabrics, files for `mn`, plug-ins and P4 sources.

    Example: echelon examples scenarios/ -o examples
    """
    wanted = [path for path in _files() if _is_wanted(path, names)]
    if not wanted:
        parts = " or ".join(map(repr, names or ()))
        fail(f"echelon examples: no file has {parts} in its path (see echelon examples)")
    if out is None:
        _list_examples(wanted, as_json)
        return
    # Files name others by relative paths, so these are copied, too.
    copied = dict.fromkeys(wanted)
    if any(path.parts[0] == "topologies" for path in wanted):
        copied |= dict.fromkeys(path for path in _files() if _is_shared(path))
    _copy({path: out / path for path in copied})
    if as_json:
        show_json({"files": [out / path for path in copied]})
        return
    typer.echo(f"{out}: {len(copied)} files")


def _is_wanted(path: Path, names: list[str] | None) -> bool:
    return not names or any(name in path.as_posix() for name in names)


def _is_shared(path: Path) -> bool:
    """Return whether scenarios name this file."""
    return path.parts[0] == "topologies" and path.parts[1] != "scenarios"


def _list_examples(paths: Sequence[Path], as_json: bool) -> None:
    rows = [(path.as_posix(), _first_sentence(shipped() / path)) for path in paths]
    if as_json:
        show_json([{"file": file, "about": about} for file, about in rows])
        return
    columns = [Column("file"), Column("what it is", wraps=True)]
    tables.show(columns, rows, "no examples")


def init(directory: NewDirectory = Path(), as_json: AsJson = False) -> None:
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
            is_source = _GENERATED.isdisjoint(relative.parts)
            if path.suffix in _SUFFIXES and is_source:
                yield relative


def _first_sentence(file: Path) -> str:
    """Return the first sentence of the comment at the beginning of a file."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.strip().strip('"')
        text = text.removeprefix("/*").removesuffix("*/")
        text = text.lstrip("#/* ").strip()
        if words and (not text or line[:1].isalnum()):
            break
        # Only code begins with a letter; before it there may be a licence and empty lines.
        is_code = not words and line[:1].isalpha()
        if is_code:
            break
        if text and not text.startswith("SPDX"):
            words += text.split()
    return _SENTENCE_END.split(" ".join(words), maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape: the function of its name in `echelon.model.fabric.builders` builds it."""

    about: str
    """The comment in the file, with options in braces."""
    options: Mapping[str, object]
    """The options that the shape has besides --delay, with their defaults."""


SHAPES: dict[str, Shape] = {}


def _shape(
    name: str,
    about: str,
    rate: str = "10 Mbit/s",
    nic_rate: str = "",
    **options: object,
) -> None:
    """Add a shape; an option is given with its default."""
    options["rate"] = rate
    if nic_rate:
        options["nic_rate"] = nic_rate
    SHAPES[name] = Shape(about, options)


_shape("one-tor", "{servers} servers at one top-of-rack switch.", servers=4)
_shape(
    "thesis-a",
    "Salamy's configuration A (SM thesis, MIT 2022, Fig. 3-1a): a ring of h1 to h4 and cross"
    " traffic from h1. The bottleneck, the outbound queue of the NIC of h1, is the switch nic0;"
    " before it, h1 has a link four times as fast.",
    rate="250 Mbit/s",
)
_shape(
    "thesis-b",
    "Salamy's configuration B (SM thesis, MIT 2022, Fig. 3-1b): a ring of h1, h2 and h4, cross"
    " traffic from h3 to h1; the bottleneck is the switch's port to h1.",
    rate="250 Mbit/s",
)
_shape(
    "dumbbell",
    "{pairs} pairs of hosts, a1-b1, a2-b2..., on either side of one link, the bottleneck.",
    pairs=2,
    nic_rate="1 Gbit/s",
)
_shape(
    "line",
    "A host at each of {switches} switches in a line; the links between switches are the"
    " bottlenecks.",
    switches=3,
    nic_rate="1 Gbit/s",
)
_shape(
    "leaf-spine",
    "{leaves} leaves with {hosts_per_leaf} hosts each and {spines} spines; the uplinks are"
    " oversubscribed {oversubscription} to 1.",
    leaves=4,
    spines=2,
    hosts_per_leaf=4,
    oversubscription="1",
)
_shape(
    "fat-tree",
    "The fat-tree of switches with {k} ports, with the addresses of Al-Fares et al. (SIGCOMM"
    " 2008).",
    k=4,
)
_shape(
    "clos",
    "{pods} pods of {leaves} leaves, with {hosts_per_leaf} hosts each, and {spines} spines;"
    " {spines} cores above each spine of a pod; the uplinks of leaves are oversubscribed"
    " {oversubscription} to 1.",
    pods=2,
    leaves=2,
    spines=2,
    hosts_per_leaf=4,
    oversubscription="1",
)
_shape(
    "dragonfly",
    "A dragonfly (Kim et al., ISCA '08): {groups} groups of {switches} switches,"
    " {hosts_per_switch} hosts at each.",
    groups=5,
    switches=4,
    hosts_per_switch=2,
)
_shape(
    "torus",
    "A torus of {sides} switches, each linked to both neighbours of a dimension and to"
    " {hosts_per_switch} hosts.",
    sides="4x4",
    hosts_per_switch=1,
)
_shape(
    "rail-optimised",
    "{servers} servers with {rails} NICs each, at {rails} rails, and {spines} spines; n2r1 is"
    " the NIC of server 2 at rail 1, a host of its own. The uplinks are oversubscribed"
    " {oversubscription} to 1.",
    servers=4,
    rails=4,
    spines=2,
    oversubscription="1",
)
_shape(
    "multi-rail",
    "{servers} servers with a link to each of {rails} rails, and {spines} spines. The uplinks"
    " are oversubscribed {oversubscription} to 1.",
    servers=4,
    rails=4,
    spines=2,
    oversubscription="1",
)


ShapeName = Annotated[
    str,
    typer.Argument(
        help=f"The shape: {', '.join(SHAPES)}.",
        metavar="SHAPE",
    ),
]
Servers = Annotated[int | None, typer.Option(help="Number of servers. Default: 4.")]
Pairs = Annotated[int | None, typer.Option(help="Number of pairs of hosts. Default: 2.")]
Switches = Annotated[
    int | None,
    typer.Option(help="Number of switches, of a dragonfly in each group. Default: 3, there 4."),
]
Pods = Annotated[int | None, typer.Option(help="Number of pods of a Clos network. Default: 2.")]
Leaves = Annotated[
    int | None,
    typer.Option(help="Number of leaves, of a Clos network in each pod. Default: 4, there 2."),
]
Spines = Annotated[int | None, typer.Option(help="Number of spines. Default: 2.")]
HostsPerLeaf = Annotated[int | None, typer.Option(help="Number of hosts at each leaf. Default: 4.")]
HostsPerSwitch = Annotated[
    int | None,
    typer.Option(help="Number of hosts at each switch of a dragonfly (default: 2) or torus (1)."),
]
Groups = Annotated[int | None, typer.Option(help="Number of groups of a dragonfly. Default: 5.")]
Sides = Annotated[
    str | None,
    typer.Option(
        help="The sides of a torus, in switches: 4x4, or 4x4x2. Default: 4x4.",
        metavar="AxB",
    ),
]
Hosts = Annotated[
    int | None,
    typer.Option(
        help=(
            "Number of hosts in all, instead of the number of leaves, pods, groups, rails or sides."
        ),
        min=2,
    ),
]
Ports = Annotated[
    int | None,
    typer.Option(
        "--k", help="Number of ports of a switch of a fat tree, which is even. Default: 4."
    ),
]
Rails = Annotated[
    int | None, typer.Option(help="Number of rails, each with one NIC of every server. Default: 4.")
]
Oversubscription = Annotated[
    str | None,
    typer.Option(
        help=(
            "Rate at which the hosts of a switch can send, divided by the rate of its uplinks."
            " Default: 1."
        ),
        metavar="RATIO",
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        help=(
            "Rate of the links of hosts; of a dumbbell or line, between switches; of a fat tree, of"
            " every link. Default: 10 Mbit/s, of the thesis 250 Mbit/s."
        ),
        metavar="RATE",
    ),
]
NicRate = Annotated[
    str | None,
    typer.Option(
        help="Rate of the links of hosts of a dumbbell or line. Default: 1 Gbit/s.",
        metavar="RATE",
    ),
]
Delay = Annotated[
    str,
    typer.Option(
        help="Propagation delay of every link.",
        metavar="TIME",
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        help="Draw the fabric into this file, PNG, SVG or PDF.",
        metavar="PICTURE",
    ),
]


def fabric(
    context: typer.Context,
    shape: ShapeName,
    servers: Servers = None,
    pairs: Pairs = None,
    switches: Switches = None,
    pods: Pods = None,
    leaves: Leaves = None,
    spines: Spines = None,
    hosts_per_leaf: HostsPerLeaf = None,
    hosts_per_switch: HostsPerSwitch = None,
    groups: Groups = None,
    sides: Sides = None,
    hosts: Hosts = None,
    k: Ports = None,
    rails: Rails = None,
    oversubscription: Oversubscription = None,
    rate: Rate = None,
    nic_rate: NicRate = None,
    delay: Delay = "1 us",
    draw: Picture = None,
    out: OutFile = None,
) -> None:
    """Write a fabric file of a well-known shape: leaf-spine, fat-tree and others.

    A shape has the options for what it consists of; an option of another shape is a mistake.
    thesis-a and thesis-b are the configurations of Salamy (2022); a rail-optimised fabric has each
    NIC of a server at the switch of its rank, as a host of its own; in a multi-rail fabric, servers
    are hosts of several links.

    Example: echelon fabric leaf-spine --hosts 16 --draw fabric.png -o fabric.yaml
    """
    from echelon.model.fabric.load import build_fabric, fabric_text

    options = {}
    for name, value in context.params.items():
        if name not in _FOR_EVERY_SHAPE and value is not None:
            options[name] = value
    spec, about = _shaped(shape, options, delay)
    write_text(fabric_text(spec, about), out)
    if draw is not None:
        draw_picture("fabric", draw, build_fabric(spec))


_FOR_EVERY_SHAPE = ("shape", "delay", "out", "draw")


def _shaped(
    name: str,
    options: Mapping[str, object],
    delay: str,
) -> tuple[FabricSpec, str]:
    """Return the fabric and the comment in its file."""
    from echelon.model.documents import suggestion
    from echelon.model.fabric import builders

    for full_name in SHAPES:
        if full_name.startswith(f"{name}-"):
            name = full_name
            break
    if name not in SHAPES:
        fail(f"echelon fabric: unknown shape '{name}' ({suggestion(name, SHAPES)})")
    shape = SHAPES[name]
    host_count = options.get("hosts")
    options = {option: value for option, value in options.items() if option != "hosts"}
    for option in options:
        if option not in shape.options:
            flags = [_flag(choice) for choice in shape.options]
            choices = ", ".join([*flags, "--delay"])
            fail(f"{_flag(option)}: fabric {name} has no such option (it has {choices})")
    settings = {**shape.options, **options}
    if isinstance(host_count, int):
        settings |= _sized(name, settings, options, host_count)

    about = shape.about.format_map(settings)
    about = re.sub(r"\b1 (\w+s)\b", _singular, about)
    arguments = _builder_arguments({**settings, "delay": delay})
    build = getattr(builders, name.replace("-", "_"))
    try:
        return build(**arguments), about
    except ValueError as error:
        fail(str(error))


def _builder_arguments(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of the function that builds a shape."""
    from echelon.model.quantities import QuantityError, duration_s, number, rate_bps

    parsers: Mapping[str, tuple[str, Callable[[Any], object]]] = {
        "rate": ("rate_bps", rate_bps),
        "nic_rate": ("nic_bps", rate_bps),
        "delay": ("delay_s", duration_s),
        "oversubscription": ("oversubscription", number),
        "sides": ("sides", _sides),
    }
    arguments: dict[str, object] = {}
    for option, value in settings.items():
        if option not in parsers:
            arguments[option] = value
            continue
        argument, parse = parsers[option]
        try:
            arguments[argument] = parse(value)
        except QuantityError as error:
            fail(f"{_flag(option)}: {error}")
    return arguments


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
"""The options whose product is the number of hosts; of a dumbbell, half of it.

The first follows from --hosts.
"""


def _sized(
    name: str,
    settings: Mapping[str, Any],
    options: Mapping[str, object],
    hosts: int,
) -> dict[str, object]:
    """Return the settings that give the shape that many hosts. The user has set the `options`."""
    if name == "fat-tree":
        return _sized_fat_tree(hosts, has_ports="k" in options)
    if name not in _COUNTED:
        fail(f"--hosts: fabric {name} has four hosts (leave it out)")
    first, *factors = _COUNTED[name]
    if first in options:
        fail(f"--hosts: does not go with {_flag(first)} (give one of them)")
    per_first = prod(int(settings[factor]) for factor in factors)
    if name == "dumbbell":
        per_first *= 2
    count, rest = divmod(hosts, per_first)
    is_alone = count < 2 and name != "torus"
    if is_alone and factors and factors[-1] not in options:
        # One leaf, pod, group or server alone has nothing to share: fewer hosts at each make it two
        # at least.
        last = factors[-1]
        places = per_first // int(settings[last])
        fewer = _most_at_each(hosts, places)
        if fewer:
            return {first: hosts // (fewer * places), last: fewer}
    if rest:
        flags = " and ".join(map(_flag, factors))
        remedy = f"give {(count + 1) * per_first}, or change {flags}"
        fail(f"--hosts: {hosts} is not a multiple of {per_first} ({remedy})")
    if name == "torus":
        side = isqrt(count)
        while count % side:
            side -= 1
        return {"sides": f"{side}x{count // side}"}
    return {first: count}


def _sized_fat_tree(hosts: int, *, has_ports: bool) -> dict[str, object]:
    # A fat-tree of switches with k ports has k ** 3 / 4 hosts.
    sizes = {k**3 // 4: k for k in range(2, 66, 2)}
    if hosts not in sizes or has_ports:
        first_sizes = ", ".join(map(str, [*sizes][:8]))
        fail(f"--hosts: a fat tree has {first_sizes}... hosts (give one of them, or --k)")
    return {"k": sizes[hosts]}


def _most_at_each(hosts: int, places: int) -> int:
    """Return how many hosts each of the places can have at most so that there are two; 0: none."""
    for number in range(hosts // places // 2, 0, -1):
        if hosts % (number * places) == 0:
            return number
    return 0


_SINGULARS = {"leaves": "leaf", "switches": "switch"}


def _singular(match: re.Match[str]) -> str:
    plural = match[1]
    return f"1 {_SINGULARS.get(plural, plural.removesuffix('s'))}"


def _sides(text: object) -> tuple[int, ...]:
    from echelon.model.quantities import QuantityError

    words = str(text).split("x")
    if not all(word.isdecimal() and len(word) < 6 for word in words):
        raise QuantityError(f"'{text}' are not sides (write 4x4, or 4x4x2)")
    return tuple(map(int, words))


def _flag(option: str) -> str:
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
    """Notes on what switches can and cannot do for jobs that they recognise by bytes, and on
    windows that cannot fill a path."""


GROUP = "echelon.files"
"""The entry points of the functions that load files of plug-ins, by the key or name of the kind."""

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
"""The functions that load files, by a key that all files of a kind have; empty: a plug-in has it.

A file of a kind may also have the keys of the kinds before it: scenarios and configurations name a
fabric.
"""

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
"""The names of kinds for people, where these are not their keys."""
_GUESSED = ("coflows", "sizes", TABLES[0])
"""The kinds that a text is taken for if it says nothing of its kind."""


CheckedFiles = Annotated[
    list[Path],
    typer.Argument(
        help=(
            "Files of jobs, fabrics, scenarios, sweeps, services and tokens; results; schedules,"
            " sizes and traces of traffic."
        ),
        metavar="FILE",
    ),
]


def check(files: CheckedFiles, as_json: AsJson = False) -> None:
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
    for result in checked:
        for mistake in result.mistakes:
            typer.echo(mistake, err=True)
        if result.good and not as_json:
            typer.echo(f"{result.file}: {result.what} is good")
            for note in result.notes:
                typer.echo(f"{result.file}: note: {note}")
    if as_json:
        show_json(checked)
    if not all(result.good for result in checked):
        raise typer.Exit(BAD_INPUT)


def _checked(file: Path) -> CheckedFile:
    from echelon.model.documents import DocumentError
    from echelon.model.foreign import as_foreign

    kind = ""
    try:
        kind = _kind_of(file)
        loaded = _loader(file, kind)(file)
        things = loaded.tokens if kind == "tokens" else [loaded]
        named = [f"'{thing.name}'" for thing in things if hasattr(thing, "name")]
        names = ", ".join(named)
        description = f"{_NAMES.get(kind, kind)} {names}".rstrip()
        notes = tuple(_notes(kind, file, loaded))
        return CheckedFile(file, True, description, notes=notes)
    except DocumentError as error:
        first = as_foreign(error)
        if first is error and kind in _GUESSED:
            # The person who wrote the file may have meant something else.
            reason = f"taken for a {_NAMES[kind]}: {error.reason}"
            first = DocumentError(error.file, error.path, reason, code=error.code)
        mistakes = (first, *first.other_faults)
        return CheckedFile(file, False, None, tuple(map(str, mistakes)))


def _notes(
    kind: str,
    file: Path,
    loaded: Any,
) -> Iterator[str]:
    """Yield remarks on a good file, such as on a job whose senders do not mark packets."""
    from echelon.model.jobs.spec import load_job_spec
    from echelon.switches.lowering.limits import limits

    if kind == "job":
        yield from limits(loaded, load_job_spec(file).recognition)
    elif kind == "scenario":
        for job in loaded.jobs:
            if job.name in loaded.specs:
                yield from limits(job, loaded.specs[job.name].recognition)
        yield from loaded.notes
    elif kind == "service":
        from echelon.controller.service.hazards import hazards

        yield from hazards(loaded)


def _loader(file: Path, kind: str) -> Callable[[Path], Any]:
    """Return the function that loads a file of a kind.

    Raises `DocumentError` if its plug-in is missing.
    """
    from importlib.metadata import entry_points

    from echelon.model.documents import DocumentError

    if place := KINDS.get(kind):
        return cast("Callable[[Path], Any]", resolve_name(place))
    for entry in entry_points(group=GROUP, name=kind):
        return cast("Callable[[Path], Any]", load_plug_in(entry))
    raise DocumentError(str(file), "", f"{plug_in(GROUP, kind)}")


def _kind_of(file: Path) -> str:
    """Return the kind of a file: of JSON and YAML by its keys, of other text by its lines."""
    from echelon.model.documents import DocumentError, read_document

    if file.suffix in (".csv", ".txt"):
        return _kind_of_text(file)
    # Results may be larger than what people write.
    data = _read_json(file) if file.suffix == ".json" else read_document(file)
    for kind in reversed(KINDS):
        if isinstance(data, dict) and kind in data:
            return kind
    kinds = " nor ".join(KINDS)
    raise DocumentError(str(file), "", f"is neither {kinds} (it has none of these keys)")


def _read_json(file: Path) -> object:
    from echelon.model.documents import DocumentError

    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(file, error) from None
    except (ValueError, RecursionError):
        raise DocumentError(str(file), "", "is not JSON (correct it, or write it anew)") from None


def _unreadable(file: Path, error: OSError) -> Exception:
    from echelon.model.documents import DocumentError

    return DocumentError(str(file), "", f"{error.strerror or error} (check the path)")


def _kind_of_text(file: Path) -> str:
    from echelon.model.documents import DocumentError

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _unreadable(file, error) from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8 text (save it as UTF-8)"
        raise DocumentError(str(file), "", reason) from None
    rows = [line for line in lines if line.strip() and not line.startswith("#")]
    if file.suffix == ".csv":
        columns = rows[0].split(",") if rows else []
        for kind in reversed(TABLES):
            if kind in columns:
                return kind
        return TABLES[0]
    # A trace begins with the numbers of ports and coflows; a coflow has at least six words, a point
    # of sizes two.
    texts = [row.partition("#")[0] for row in rows]
    word_counts = {len(text.split()) for text in texts}
    if word_counts <= {2}:
        return "sizes"
    return "coflows"


_SHOWN = 30


JobFile = Annotated[
    Path,
    typer.Argument(
        help="The job file.",
        metavar="JOB",
    ),
]
Pictures = Annotated[
    list[Path] | None,
    typer.Option(
        "--out", "-o", help="Draw one iteration into this file, PNG or SVG; may be repeated."
    ),
]


def show(
    file: JobFile,
    out: Pictures = None,
    as_json: AsJson = False,
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
        show_json(_plain(job))
        return
    _describe(job)
    for path in out or ():
        typer.echo(path)


def _plain(job: Job) -> dict[str, object]:
    """Return the job as `--json` prints it."""
    sizes = {flow.name: flow.size_bytes for flow in job.flows}
    echelonflows = [_plain_echelonflow(echelonflow, sizes) for echelonflow in job.echelonflows]
    return {
        "job": job.name,
        "workers": job.workers,
        "computes": len(job.computes),
        "flows": len(job.flows),
        "bytes": sum(sizes.values()),
        "echelonflows": echelonflows,
    }


def _total_bytes(echelonflow: EchelonFlow, sizes: Mapping[str, int]) -> int:
    return sum(sizes[name] for name in echelonflow.flows)


def _plain_echelonflow(echelonflow: EchelonFlow, sizes: Mapping[str, int]) -> dict[str, object]:
    return {
        "name": echelonflow.name,
        "flows": echelonflow.flows,
        "bytes": _total_bytes(echelonflow, sizes),
        "offsets_s": echelonflow.offsets_s,
        "coflow": echelonflow.is_coflow,
    }


def _describe(job: Job) -> None:
    sizes = {flow.name: flow.size_bytes for flow in job.flows}
    facts = {
        "job": job.name,
        "hosts": len(job.workers),
        "compute units": len(job.computes),
        "flows": f"{len(job.flows)}, {sum(sizes.values())} B",
        "EchelonFlows": len(job.echelonflows),
    }
    tables.pairs(facts.items())
    typer.echo()
    columns = [
        Column("EchelonFlow", wraps=True),
        *map(number_column, ("flows", "bytes", "last ideal finish")),
        Column("kind"),
    ]
    rows = [_row(echelonflow, sizes) for echelonflow in job.echelonflows[:_SHOWN]]
    tables.show(columns, rows, "no flows")
    if len(job.echelonflows) > _SHOWN:
        typer.echo(f"and {len(job.echelonflows) - _SHOWN} EchelonFlows more")


def _row(echelonflow: EchelonFlow, sizes: dict[str, int]) -> tuple[str, ...]:
    flows = str(len(echelonflow.flows))
    size = str(_total_bytes(echelonflow, sizes))
    last_offset = figures.duration(float(echelonflow.offsets_s[-1]))
    kind = "coflow" if echelonflow.is_coflow else "staggered"
    return echelonflow.name, flows, size, last_offset, kind
