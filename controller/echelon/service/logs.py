"""Log records with fields: text for people on a terminal, JSON lines for everything else.

Secrets are `pydantic.SecretStr` wherever the program holds them, so that a record shows asterisks in their place.

`configure` once, in the daemon; `get` for a logger; `context` for fields that a stretch of work has in common:

    log = logs.get(__name__)
    with logs.context(switch="s1", term=7):
        log.info("session opened", entries=12)

Every record has `time` (UTC), `level`, `logger` and `event`; by convention `switch`, `job`, `term`, `plan` and `client`
(the name of an API token, never the token) wherever they are known. Libraries that use the standard `logging` come out
the same way.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]
Logger = structlog.stdlib.BoundLogger

_MAX_FRAMES = 30
"""Of a traceback in JSON."""

_FIRST = ("time", "level", "logger", "event", "switch", "job", "term", "plan")
_NOISY = {
    # It warns at every session of a switch without gNMI or ports; what matters the connection says.
    "finsy": "ERROR",
    **dict.fromkeys(("asyncio", "grpc", "hpack", "httpcore", "httpx", "uvicorn.error"), "WARNING"),
}
"""Libraries that tell what the service says in its own words: from these levels on, except at level debug."""
_OWN_HANDLERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "finsy", "grpc")
"""Libraries that may have brought handlers: everything goes through ours, once."""


def get(name: str) -> Logger:
    """A logger by module name; may be made before `configure` is called."""
    return cast(
        Logger,
        structlog.wrap_logger(
            logging.getLogger(name),
            processors=_OWN_RECORDS,
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
        ),
    )


def context(**fields: object) -> AbstractContextManager[None]:
    """Fields of every record made inside, also in tasks that are started inside."""
    return structlog.contextvars.bound_contextvars(**fields)


def configure(style: Format | None = None, level: Level = "info", stream: TextIO | None = None) -> None:
    """Send everything that is logged in this process to `stream` (standard error).

    `style` None: text where the stream is a terminal, JSON elsewhere. Calling it again replaces what was set before.
    """
    out = sys.stderr if stream is None else stream
    terminal = out.isatty()
    chosen: Format = style or ("text" if terminal else "json")
    handler = _Handler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_RENDERERS[chosen](terminal),
            ],
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                _TIME,
            ],
        )
    )
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _OWN_HANDLERS:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    for name, lowest in _NOISY.items():
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else max(lowest, level.upper(), key=_severity))
    # The API writes an access record of its own, with the token's name.
    logging.getLogger("uvicorn.access").setLevel("CRITICAL")
    logging.captureWarnings(True)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours: known by its type when `configure` is called again. A reader that went away is no reason to fail."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that logging calls
        if not isinstance(sys.exc_info()[1], OSError | ValueError):  # ValueError: the stream was closed
            super().handleError(record)


def _first_things_first(_: WrappedLogger, __: str, record: EventDict) -> EventDict:
    return {key: record[key] for key in _FIRST if key in record} | dict(record)


def _one_line(_: WrappedLogger, __: str, record: EventDict) -> EventDict:
    """Nothing in a record may pass for another record, or be obeyed by the terminal. Tracebacks keep their lines."""
    return {
        key: value if key == "exception" else _escaped(value) if isinstance(value, str) else value
        for key, value in record.items()
    }


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _severity(level: str) -> int:
    return logging.getLevelNamesMapping()[level]


_TIME: Processor = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
_OWN_RECORDS: list[Processor] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    _TIME,
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]


def _json(_: bool) -> list[Processor]:
    # Without local variables: there may be secrets in them, under any name.
    frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=_MAX_FRAMES)
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


_RENDERERS = {"json": _json, "text": _text}
