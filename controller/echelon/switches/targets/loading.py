"""Objects that distributions register by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from echelon.model.documents import DocumentError


def load_entry(entry: EntryPoint, file: str) -> Any:
    """Return what an entry point names.

    Raise `DocumentError` about `file` if it cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:  # a distribution's module may raise anything
        reason = (
            f"{entry.value} cannot be imported: {error} (repair or remove the distribution that"
            " registers it)"
        )
        raise DocumentError(file, "", reason) from error
