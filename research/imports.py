"""Count the workloads of other tools' repositories that import, and say why others do not.

`python -m research.imports DIRECTORY...` looks in checkouts for files that begin as one of the
formats does, tries each with the options of docs/importing.md (fewest first), and prints a row for
each group of files of one kind. A row for each refusal follows, with its reason.
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
from echelon_importers import Source
from echelon_importers.convert import convert

HOSTS = tuple(f"h{number}" for number in range(1, 385))
Attempt = dict[str, object]
"""Arguments of an import."""


def on_hosts(*counts: int, **more: object) -> list[Attempt]:
    """Return an attempt on each number of hosts."""
    return [{"hosts": HOSTS[:count], **more} for count in counts]


ATTEMPTS: dict[str, list[Attempt]] = {
    "pipedream": on_hosts(4, options={"bandwidth": "10 Gbit/s"}),
    "chakra": on_hosts(0, 2, 4, 8),
    "pytorch": on_hosts(0, 2, 4, 8),
    "aicb": [
        *on_hosts(16, 32, 8, 128, 384, 4),
        *on_hosts(16, 32, 8, 128, 384, 4, merge=True),
        *on_hosts(16, 32, 8, 128, 384, 4, options={"ep": 1}),
    ],
    "simai": [
        *on_hosts(16, 32, 8),
        *on_hosts(16, 32, 8, merge=True),
        *on_hosts(16, 32, 8, options={"layers": "1:100"}),
    ],
}


@dataclass(frozen=True, slots=True)
class Group:
    """The files of one workload."""

    kind: str
    format_name: str
    sources: tuple[Source, ...]


def groups(root: Path) -> Iterator[Group]:
    """Yield what looks like a workload below a directory."""
    ranks: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(root.rglob("*")):
        if not path.is_file() or ".git" in path.parts:
            continue
        match = re.fullmatch(r"(.*)\.\d+\.et", str(path))
        if match:
            ranks[match[1]].append(path)
        elif path.name.endswith((".tar.gz", ".tgz")) and "test" in str(path):
            yield from packed(path)
        elif path.name.endswith("graph.txt"):
            yield Group("PipeDream graph.txt", "pipedream", (_source(path),))
        elif path.suffix in {".csv", ".txt"}:
            source = _source(path)
            if re.match(rb"(\[rank[^\n]*\n)?comm_type,", source.data):
                yield Group("AICB .csv", "aicb", (source,))
            elif source.data.startswith((b"HYBRID_", b"MICRO", b"MODEL", b"DATA\n")):
                yield Group("SimAI .txt", "simai", (source,))
    for files in ranks.values():
        files.sort(key=_rank)
        yield Group("Chakra .et", "chakra", tuple(map(_source, files)))


def _source(path: Path) -> Source:
    return Source(str(path), path.read_bytes())


def _rank(file: Path) -> int:
    """Return the rank in the name of a Chakra trace, NAME.RANK.et."""
    return int(file.name.split(".")[-2])


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
            made_by_pytorch = re.match(rb"{\s*\"schema\": \"[^\"]*-chakra", source.data)
            format_name = "pytorch" if made_by_pytorch else "chakra"
            yield Group("in an archive", format_name, (source,))


def reason(group: Group) -> str:
    """Return why a workload does not import, or an empty text: one line for each reason."""
    reasons: dict[str, None] = {}
    attempts = ATTEMPTS[group.format_name]
    # Those that do not say what they compute are lists of communication alone.
    alone = map(_without_computing, attempts)
    first_name = group.sources[0].name
    for attempt in (*attempts, *alone):
        try:
            convert(group.format_name, group.sources, "job", **attempt)  # type: ignore[arg-type]
        except DocumentError as error:
            message = str(error).removeprefix(first_name)
            reasons[message.removeprefix(": ")] = None
        else:
            return ""
    return "; ".join(reasons)


def _without_computing(attempt: Attempt) -> Attempt:
    options = {**_options(attempt), "computing": "0 s"}
    return {**attempt, "options": options}


def _options(attempt: Attempt) -> dict[str, object]:
    options = attempt.get("options", {})
    assert isinstance(options, dict)
    return options


def main(roots: Sequence[str]) -> None:
    """Print the table of the directories."""
    table = Table("directory", "kind", "workloads", "files", "import")
    refused: list[tuple[str, str]] = []
    with Console(stderr=True).status("importing") as status:
        for root in map(Path, roots):
            counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for group in groups(root):
                name = group.sources[0].name
                status.update(f"importing {name}")
                why = reason(group)
                counts[group.kind].update(
                    workloads=1,
                    files=len(group.sources),
                    imported=int(not why),
                )
                if why:
                    refused.append((name.removeprefix(f"{root}/"), why))
            for kind, count in sorted(counts.items()):
                figures = [str(count[key]) for key in ("workloads", "files", "imported")]
                table.add_row(root.name, kind, *figures)
    console = Console()
    console.print(table)
    for name, why in refused:
        console.print(f"{name}: {why}", highlight=False)


if __name__ == "__main__":
    main(sys.argv[1:])
