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
ATTEMPTS: dict[str, tuple[dict[str, object], ...]] = {
    "pipedream": ({"hosts": HOSTS[:4], "options": {"bandwidth": "10 Gbit/s"}},),
    "chakra": tuple({"hosts": HOSTS[:count]} for count in (0, 2, 4, 8)),
    "pytorch": tuple({"hosts": HOSTS[:count]} for count in (0, 2, 4, 8)),
    "aicb": tuple(
        {"hosts": HOSTS[:count], **more}
        for more in ({}, {"merge": True}, {"options": {"ep": 1}})
        for count in (16, 32, 8, 128, 384, 4)
    ),
    "simai": tuple(
        {"hosts": HOSTS[:count], **more}
        for more in ({}, {"merge": True}, {"options": {"layers": "1:100"}})
        for count in (16, 32, 8)
    ),
}


@dataclass(frozen=True, slots=True)
class Group:
    """The files of one workload."""

    kind: str
    format_name: str
    sources: tuple[Source, ...]


def groups(root: Path) -> Iterator[Group]:
    """Yield what looks like a workload below a directory."""
    ranks: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(
        path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts
    ):
        if match := re.fullmatch(r"(.*)\.\d+\.et", str(path)):
            ranks[match[1]].append(path)
        elif path.name.endswith((".tar.gz", ".tgz")) and "test" in str(path):
            yield from packed(path)
        elif path.name.endswith("graph.txt"):
            yield Group("PipeDream graph.txt", "pipedream", (Source(str(path), path.read_bytes()),))
        elif path.suffix in {".csv", ".txt"}:
            data = path.read_bytes()
            if re.match(rb"(\[rank[^\n]*\n)?comm_type,", data):
                yield Group("AICB .csv", "aicb", (Source(str(path), data),))
            elif data.startswith((b"HYBRID_", b"MICRO", b"MODEL", b"DATA\n")):
                yield Group("SimAI .txt", "simai", (Source(str(path), data),))
    for files in ranks.values():
        files.sort(key=lambda file: int(file.name.split(".")[-2]))
        yield Group(
            "Chakra .et", "chakra", tuple(Source(str(file), file.read_bytes()) for file in files)
        )


def packed(path: Path) -> Iterator[Group]:
    """Yield the traces in an archive, each alone: none of them has several ranks."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and not Path(member.name).name.startswith("._"):
                stream = archive.extractfile(member) or io.BytesIO()
                source = Source(f"{path}/{member.name}", stream.read())
                made_by_pytorch = re.match(rb"{\s*\"schema\": \"[^\"]*-chakra", source.data)
                yield Group("in an archive", "pytorch" if made_by_pytorch else "chakra", (source,))


def reason(group: Group) -> str:
    """Return why a workload does not import, or an empty text: one line for each reason."""
    reasons: dict[str, None] = {}
    attempts = ATTEMPTS[group.format_name]
    # Those that do not say what they compute are lists of communication alone.
    alone = (
        {**attempt, "options": {**_options(attempt), "computing": "0 s"}} for attempt in attempts
    )
    for attempt in (*attempts, *alone):
        try:
            convert(group.format_name, group.sources, "job", **attempt)  # type: ignore[arg-type]
        except DocumentError as error:
            reasons[str(error).removeprefix(group.sources[0].name).removeprefix(": ")] = None
        else:
            return ""
    return "; ".join(reasons)


def _options(attempt: dict[str, object]) -> dict[str, object]:
    options = attempt.get("options", {})
    assert isinstance(options, dict)
    return options


def main(roots: Sequence[str]) -> None:
    """Print the table of the directories."""
    table = Table("directory", "kind", "workloads", "files", "import")
    refused: list[tuple[str, str]] = []
    with Console(stderr=True).status("importing") as status:
        for root in map(Path, roots):
            counts: dict[str, Counter[str]] = defaultdict(Counter)
            for group in groups(root):
                status.update(f"importing {group.sources[0].name}")
                why = reason(group)
                counts[group.kind].update(
                    workloads=1,
                    files=len(group.sources),
                    imported=int(not why),
                )
                if why:
                    refused.append((group.sources[0].name.removeprefix(f"{root}/"), why))
            for kind, count in sorted(counts.items()):
                table.add_row(
                    root.name,
                    kind,
                    *(str(count[key]) for key in ("workloads", "files", "imported")),
                )
    console = Console()
    console.print(table)
    for name, why in refused:
        console.print(f"{name}: {why}", highlight=False)


if __name__ == "__main__":
    main(sys.argv[1:])
