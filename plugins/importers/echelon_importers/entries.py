"""Classes that distributions register by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from echelon.model.documents import DocumentError


def load_class(entry: EntryPoint) -> Any:
    """Return the class that an entry point names. Raises `DocumentError`."""
    try:
        return entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        reason = f"'{entry.name}' ({entry.value}) cannot be imported: {error} (repair or remove it)"
        raise DocumentError("FORMAT", "", reason, code="not-allowed") from error
