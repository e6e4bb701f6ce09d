"""Log records with fields: text for people on a terminal, JSON lines for everything else.

Secrets are `pydantic.SecretStr` wherever the program holds them, so that a record shows asterisks
in their place.

The daemon calls `configure` once. `get` returns a logger, and `context` adds fields to every record
made inside it:

    log = logs.get(__name__)
    with logs.context(switch="s1", term=7):
        log.info("session opened", entries=12)

Every record has `time` (UTC), `level`, `logger` and `event`. By convention a record also has
`switch`, `job`, `term`, `plan` and `client` (the name of an API token, never the token) where they
are known. Records of libraries that use the standard `logging` module have the same format.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]
Logger = structlog.stdlib.BoundLogger

WINDOW_S = 10.0
MOST = 20
"""Number of like records that a window of `WINDOW_S` seconds may hold."""
MOST_KINDS = 1000
"""Number of kinds of record that are remembered; the one that began first is forgotten."""
_MAX_FRAMES = 30
"""The most frames of a traceback that a JSON record holds."""

_FIRST = ("time", "level", "logger", "event", "switch", "job", "term", "plan")
_NOISY = {
    # It prints a traceback for an answer that cannot be read; the call fails as well.
    "grpc._common": "CRITICAL",
    "asyncio": "WARNING",
    "grpc": "WARNING",
    "hpack": "WARNING",
    "httpcore": "WARNING",
    "httpx": "WARNING",
    "uvicorn.error": "WARNING",
}
"""The lowest level at which a library may log.

The service logs the same events itself; level debug shows both.
"""
_OWN_HANDLERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "grpc")
"""Libraries that may install handlers of their own.

`configure` removes these, so that each record appears once.
"""


@dataclass(slots=True)
class _Window:
    began_at: float
    records: int = 0


class RepetitionLimit(logging.Filter):
    """A filter that drops warnings and errors which repeat.

    Records are alike if they have the same logger, level and event, and name the same switch, job
    and client. The first record after a window in which some were dropped has their number in its
    field `dropped`. Records below `warning` always pass: the audit trail is among them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: OrderedDict[Hashable, _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind = _kind(record)
        now = self._clock()
        window = self._windows.get(kind)
        if window is None or now - window.began_at >= WINDOW_S:
            if window is not None and window.records > MOST:
                _add(record, "dropped", window.records - MOST)
            window = _Window(now)
            self._begin(kind, window)
        window.records += 1
        return window.records <= MOST

    def _begin(self, kind: Hashable, window: _Window) -> None:
        self._windows[kind] = window
        self._windows.move_to_end(kind)
        if len(self._windows) > MOST_KINDS:
            self._windows.popitem(last=False)


def _kind(record: logging.LogRecord) -> Hashable:
    if isinstance(record.msg, dict):
        fields: Mapping[str, object] = record.msg
    else:
        fields = {"event": record.msg}
    # Libraries put addresses of objects into later lines.
    event = str(fields["event"]).partition("\n")[0]
    return (
        record.name,
        record.levelno,
        event,
        fields.get("switch"),
        fields.get("job"),
        fields.get("client"),
    )


def _add(
    record: logging.LogRecord,
    field: str,
    value: object,
) -> None:
    """Add a field to a record of structlog or of the standard library."""
    if isinstance(record.msg, dict):
        record.msg[field] = value
    else:
        setattr(record, field, value)


def get(name: str) -> Logger:
    """Return the logger of the module `name`. It may be created before `configure` is called."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=_OWN_RECORDS,
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return cast(Logger, logger)


def context(**fields: object) -> AbstractContextManager[None]:
    """Add `fields` to every record made inside the context.

    Records of tasks that start inside it have them, too.
    """
    return structlog.contextvars.bound_contextvars(**fields)


def configure(
    style: Format | None = None,
    level: Level = "info",
    stream: TextIO | None = None,
    limit: RepetitionLimit | None = None,
) -> None:
    """Send every log record of this process to `stream`, by default standard error.

    `style` None means text on a terminal and JSON elsewhere. `limit` drops problems that repeat. A
    second call replaces the configuration of the first.
    """
    out = sys.stderr if stream is None else stream
    is_terminal = out.isatty()
    if style is None:
        style = "text" if is_terminal else "json"
    handler = _Handler(_unbuffered(out))
    handler.addFilter(limit or RepetitionLimit())
    handler.setFormatter(_formatter(style, is_terminal))

    root = logging.getLogger()
    for former in list(root.handlers):
        if isinstance(former, _Handler):
            root.removeHandler(former)
            former.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    _quieten_libraries(level)
    logging.captureWarnings(True)


def _formatter(style: Format, is_terminal: bool) -> logging.Formatter:
    render = _text(is_terminal) if style == "text" else _json()
    return structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *render,
        ],
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            _TIME,
        ],
    )


def _quieten_libraries(level: Level) -> None:
    """Take away the libraries' own handlers, and set the levels at which they log."""
    for name in _OWN_HANDLERS:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    for name, lowest in _NOISY.items():
        library_level = "DEBUG"
        if level != "debug":
            library_level = max(lowest, level.upper(), key=_severity)
        logging.getLogger(name).setLevel(library_level)
    # The API writes its own access record, which has the token's name.
    logging.getLogger("uvicorn.access").setLevel("CRITICAL")


class _Handler(logging.StreamHandler[TextIO]):
    """The handler that `configure` installs. It drops records that nobody can read any more.

    `configure` finds the handler of an earlier call by this type.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that logging calls
        error = sys.exc_info()[1]
        # A ValueError says that the stream is closed.
        if not isinstance(error, OSError | ValueError):
            super().handleError(record)


def _unbuffered(stream: TextIO) -> TextIO:
    """Return a stream to the same file that holds no text back.

    It is `stream` itself if that has no file descriptor. A buffer would keep a record whose write
    failed, for example because the reader of the pipe is gone. The interpreter flushes standard
    error once more when it exits, would fail again, and would end with status 120.
    """
    try:
        descriptor = stream.fileno()
    except OSError:  # io.UnsupportedOperation: a stream in memory
        return stream
    # It owns no descriptor, so nothing closes it.
    opened = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115
    raw = cast(BinaryIO, opened)
    return io.TextIOWrapper(
        raw,
        encoding=stream.encoding,
        errors=stream.errors,
        write_through=True,
    )


def _first_things_first(
    _: WrappedLogger,
    __: str,
    record: EventDict,
) -> EventDict:
    first = {key: record[key] for key in _FIRST if key in record}
    return {**first, **record}


def _one_line(
    _: WrappedLogger,
    __: str,
    record: EventDict,
) -> EventDict:
    """Escape what would look like another record or control the terminal.

    Tracebacks keep their line breaks.
    """
    escaped = dict(record)
    for key, value in record.items():
        if isinstance(value, str) and key != "exception":
            escaped[key] = _escape(value)
    return escaped


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _severity(level: str) -> int:
    return logging.getLevelNamesMapping()[level]


_TIME: Processor = structlog.processors.TimeStamper(
    fmt="iso",
    utc=True,
    key="time",
)
_OWN_RECORDS: list[Processor] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    _TIME,
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]


def _json() -> list[Processor]:
    # Leave local variables out: they may hold secrets under any name.
    frames = structlog.tracebacks.ExceptionDictTransformer(
        show_locals=False,
        max_frames=_MAX_FRAMES,
    )
    return [
        structlog.processors.ExceptionRenderer(frames),
        structlog.processors.StackInfoRenderer(),
        _first_things_first,
        structlog.processors.JSONRenderer(sort_keys=False),
    ]


def _text(colours: bool) -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        structlog.processors.StackInfoRenderer(),
        _one_line,
        structlog.dev.ConsoleRenderer(
            colors=colours,
            timestamp_key="time",
            pad_event_to=0,
            pad_level=True,
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]
