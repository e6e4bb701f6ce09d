"""Files of other tools, whose kind a reader names when it refuses them.

A package that knows such files says in the entry-point group `echelon.foreign` how they are
recognised: an entry is a kind, or several. That is looked up after a file was refused, so that good
files pay nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from echelon.model.documents import DocumentError

GROUP = "echelon.foreign"
HEAD_BYTES = 1 << 16
"""The number of bytes at the beginning of a file that a recogniser sees."""


@dataclass(frozen=True, slots=True)
class ForeignKind:
    """A kind of file that another tool reads or writes."""

    description: str
    """The words for a file of the kind, with an article: *an ns-3 topology*."""
    command: str
    """The command that reads it, with FILE in the place of its name; empty: nothing does."""
    recognises: Callable[[bytes], bool]
    """The test of the beginning of a file: whether it is of this kind."""
    readers: tuple[str, ...]
    """The names of its readers, such as formats, which say themselves what is wrong with it."""
    advice: str = ""
    """The remedy where nothing reads it."""


def foreign_kind(head: bytes) -> ForeignKind | None:
    """Return the kind of a file that begins so; None: no package knows it."""
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP)):
        try:
            loaded: ForeignKind | Sequence[ForeignKind] = entry.load()
            kinds = [loaded] if isinstance(loaded, ForeignKind) else loaded
            for kind in kinds:
                if kind.recognises(head):
                    return kind
        except Exception:
            # A broken package must not hide what is wrong with the file.
            continue
    return None


@contextmanager
def foreign_files_named(path: str | Path) -> Iterator[None]:
    """Refuse a file of another tool as such, instead of for what a reader of ours finds wrong."""
    try:
        yield
    except DocumentError as error:
        if error.file != str(path):
            raise
        foreign = as_foreign(error)
        if foreign is error:
            raise
        raise foreign from None


def as_foreign(error: DocumentError, reader: str = "") -> DocumentError:
    """Return an error that says of which kind the file is, for a reader of another kind.

    That is `error` itself if no package knows, or if the file is of a kind that `reader` reads.
    """
    path = Path(error.file)
    # A pipe has been read, and would be waited for.
    if not path.is_file():
        return error
    try:
        with path.open("rb") as stream:
            kind = foreign_kind(stream.read(HEAD_BYTES))
    except OSError:
        return error
    if kind is None or reader in kind.readers:
        return error
    command = kind.command.replace("FILE", shlex.quote(error.file))
    remedy = f"run: {command}" if command else kind.advice
    reason = f"is {kind.description} ({remedy})"
    return DocumentError(error.file, "", reason, code="not-allowed")
