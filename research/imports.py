"""A count of the workloads and topologies in other tools' repositories that import.

`python -m research.imports DIRECTORY...` looks in checkouts for files that `echelon check` names as
another tool's, tries each with the options of docs/importing.md (fewest first), and prints a row
for each group of files of one kind. A row for each refusal follows, with its reason.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from echelon.model.documents import DocumentError
from echelon.model.foreign import HEAD_BYTES, foreign_kind
from echelon_importers import Source
from echelon_importers.convert import convert
from echelon_importers.topologies.conversion import import_fabric

HOSTS = tuple(f"h{number}" for number in range(1, 385))
Attempt = dict[str, object]
"""Arguments of an import."""


def on_hosts(*counts: int, **more: object) -> list[Attempt]:
    """Return an attempt on each number of hosts."""
    return [{"hosts": HOSTS[:count], **more} for count in counts]


ATTEMPTS: dict[str, list[Attempt]] = {
    "pipedream": on_hosts(4, options={"bandwidth": "10 Gbit/s"}),
    "chakra": [*on_hosts(0, 2, 4, 8), *on_hosts(0, options={"gpu": "A100"})],
    "pytorch": on_hosts(0, 2, 4, 8),
    "aicb": [
        *on_hosts(16, 32, 8, 128, 384, 4),
        *on_hosts(16, 32, 8, 128, 384, 4, merge=True),
        *on_hosts(16, 32, 8, 128, 384, 4, options={"ep": 1}),
    ],
    "simai": [
        *on_hosts(0, 16, 32, 8),
        *on_hosts(16, 32, 8, merge=True),
        *on_hosts(16, 32, 8, options={"layers": "1:100"}),
        # The stages of a pipeline need hosts for each; one of them does not.
        *on_hosts(384, options={"layers": "1:10"}),
        *on_hosts(32, options={"pp": 1, "layers": "1:100"}),
        *on_hosts(8, options={"model": 4}),
    ],
}
SETTINGS: list[Attempt] = [{}, {"rate": "100 Gbit/s"}]
"""Options of topologies."""
_PROSE = {".md", ".rst", ".py", ".sh", ".c", ".cc", ".cpp", ".h", ".hh", ".hpp", ".go", ".rs"}
"""Suffixes of files that show formats, and are not in them."""
_RANK = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Group:
    """The files of one workload, or the file of a topology."""

    kind: str
    format_name: str
    sources: tuple[Source, ...]
    group_files: tuple[Source, ...] = ()
    """Files of process groups that stand beside it."""


def groups(root: Path) -> Iterator[Group]:
    """Yield what looks like a workload or topology below a directory."""
    ranks: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(root.rglob("*")):
        if not path.is_file() or ".git" in path.parts or path.suffix in _PROSE:
            continue
        if path.name.endswith((".tar.gz", ".tgz")) and "test" in str(path):
            yield from packed(path)
            continue
        format_name = _format(path)
        if format_name in {"chakra", "pytorch"}:
            # The files of ranks differ in their numbers.
            ranks[format_name, _RANK.sub("#", str(path))].append(path)
        elif format_name:
            yield Group(format_name, format_name, (_source(path),))
    for (format_name, _), files in ranks.items():
        files.sort(key=_rank)
        sources = tuple(map(_source, files))
        yield Group(format_name, format_name, sources, _process_groups(files[0].parent))


def _format(path: Path) -> str:
    """Return the format of a file, or an empty text if nothing reads it."""
    with path.open("rb") as stream:
        kind = foreign_kind(stream.read(HEAD_BYTES))
    if kind is None or not kind.readers:
        return ""
    # Lists and texts of AICB are read by importers of two names.
    if path.suffix == ".txt" and "simai" in kind.readers:
        return "simai"
    return kind.readers[0]


def _process_groups(directory: Path) -> tuple[Source, ...]:
    files = []
    for path in sorted(directory.glob("*.json")):
        source = _source(path)
        kind = foreign_kind(source.data[:HEAD_BYTES])
        if kind is not None and "process groups" in kind.description:
            files.append(source)
    return tuple(files)


def _source(path: Path) -> Source:
    return Source(str(path), path.read_bytes())


def _rank(file: Path) -> list[int]:
    """Return the numbers in the name of a trace, of which one is its rank."""
    return [int(number) for number in _RANK.findall(file.name)]


def packed(path: Path) -> Iterator[Group]:
    """Yield the traces in an archive, each alone: none of them has several ranks."""
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            # macOS keeps what its file system knows of a file in another one beside it.
            if not member.isfile() or name.startswith("._"):
                continue
            stream = archive.extractfile(member) or io.BytesIO()
            source = Source(f"{path}/{member.name}", stream.read())
            kind = foreign_kind(source.data[:HEAD_BYTES])
            if kind is not None and kind.readers:
                yield Group("in an archive", kind.readers[0], (source,))


def reason(group: Group) -> str:
    """Return why a file does not import, or an empty text: one line for each reason."""
    if group.format_name not in ATTEMPTS:
        return _reason_of_topology(group)
    reasons: dict[str, None] = {}
    attempts = ATTEMPTS[group.format_name]
    # Those that do not say what they compute are lists of communication alone.
    alone = [_without_computing(attempt) for attempt in attempts]
    first_name = group.sources[0].name
    for sources in _sets(group):
        for attempt in (*attempts, *alone):
            try:
                convert(group.format_name, sources, "job", **attempt)  # type: ignore[arg-type]
            except DocumentError as error:
                reasons[_sentence(error, first_name)] = None
            else:
                return ""
    return "; ".join(reasons)


def _sets(group: Group) -> Iterator[tuple[Source, ...]]:
    """Yield the files of a workload, with each file of groups and without."""
    for groups_file in group.group_files:
        yield (*group.sources, groups_file)
    yield group.sources


def _reason_of_topology(group: Group) -> str:
    [source] = group.sources
    reasons: dict[str, None] = {}
    for settings in SETTINGS:
        try:
            import_fabric(group.format_name, source, "fabric", settings)
        except DocumentError as error:
            reasons[_sentence(error, source.name)] = None
        else:
            return ""
    return "; ".join(reasons)


def _sentence(error: DocumentError, file: str) -> str:
    return str(error).removeprefix(file).removeprefix(": ")


def _without_computing(attempt: Attempt) -> Attempt:
    options = {**_options(attempt), "computing": "0 s"}
    return {**attempt, "options": options}


def _options(attempt: Attempt) -> dict[str, object]:
    options = attempt.get("options", {})
    assert isinstance(options, dict)
    return options


def main(roots: Sequence[str]) -> None:
    """Print the table of the directories."""
    table = Table("directory", "kind", "inputs", "files", "import")
    refused: list[tuple[str, str]] = []
    with Console(stderr=True).status("importing") as status:
        for root in map(Path, roots):
            counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for group in groups(root):
                name = group.sources[0].name
                status.update(f"importing {name}")
                why = reason(group)
                counts[group.kind].update(
                    inputs=1,
                    files=len(group.sources),
                    imported=int(not why),
                )
                if why:
                    refused.append((name.removeprefix(f"{root}/"), why))
            for kind, count in sorted(counts.items()):
                figures = [str(count[key]) for key in ("inputs", "files", "imported")]
                table.add_row(root.name, kind, *figures)
    console = Console()
    console.print(table)
    for name, why in refused:
        console.print(f"{name}: {why}", highlight=False)


if __name__ == "__main__":
    main(sys.argv[1:])
