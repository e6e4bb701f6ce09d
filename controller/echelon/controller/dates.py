"""Dates as people read them, the same at every place."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(epoch_s: float) -> str:
    """Return seconds since the epoch as a date and a time of day: ``2026-11-30 08:10:58 UTC``."""
    date = datetime.fromtimestamp(epoch_s, UTC)
    return f"{date:%Y-%m-%d %H:%M:%S} UTC"
