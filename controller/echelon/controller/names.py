"""Lists of names."""

from __future__ import annotations

from collections.abc import Sequence


def short_list(names: Sequence[str], most: int) -> str:
    """Return the first names on one line, and how many more there are."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text
