"""A limit on log records that repeat, so that neither a client nor a switch can fill the disk with them."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

WINDOW_S = 10.0
MOST = 20
"""Number of like records that a window of `WINDOW_S` seconds may hold."""
MOST_KINDS = 1000
"""Number of kinds of record that are remembered; the one that began first is forgotten."""


@dataclass(slots=True)
class _Window:
    began_at: float
    records: int = 0


class RepetitionLimit(logging.Filter):
    """A filter that drops warnings and errors which repeat.

    Records are alike if they have the same logger, level and event, and name the same switch, job and client. The first
    record after a window in which some were dropped has their number in its field `dropped`. Records below `warning`
    always pass: the audit trail is among them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: OrderedDict[Hashable, _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind, now = _kind(record), self._clock()
        window = self._windows.get(kind)
        if window is None or now - window.began_at >= WINDOW_S:
            if window is not None and window.records > MOST:
                _add(record, "dropped", window.records - MOST)
            window = self._windows[kind] = _Window(now)
            self._windows.move_to_end(kind)
            if len(self._windows) > MOST_KINDS:
                self._windows.popitem(last=False)
        window.records += 1
        return window.records <= MOST


def _kind(record: logging.LogRecord) -> Hashable:
    fields: Mapping[str, object] = record.msg if isinstance(record.msg, dict) else {"event": record.msg}
    # Libraries put addresses of objects into later lines.
    event = str(fields["event"]).partition("\n")[0]
    return record.name, record.levelno, event, fields.get("switch"), fields.get("job"), fields.get("client")


def _add(record: logging.LogRecord, field: str, value: object) -> None:
    """Add a field to a record of structlog, whose message is a mapping, or of the standard library."""
    if isinstance(record.msg, dict):
        record.msg[field] = value
    else:
        setattr(record, field, value)
