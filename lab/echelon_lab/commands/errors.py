"""The ends of commands that measure many points."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from echelon.cli.usage import BAD_INPUT, FAILED, INTERRUPTED, fail
from echelon.model.documents import DocumentError
from echelon.model.errors import CodedError


@contextmanager
def one_line_errors(out: Path) -> Iterator[None]:
    """Turn errors that are no faults of the program into one line and an exit status.

    The line goes to standard error. End in order when the process is asked to.
    """
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    except DocumentError as error:
        fail(str(error), BAD_INPUT)
    except OSError as error:
        fail(
            f"--out: {error.filename or out}: {error.strerror or error}"
            " (name a directory to write to)",
            BAD_INPUT,
        )
    except CodedError as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        fail(
            "interrupted; measured points are kept, run the same command again to continue",
            INTERRUPTED,
        )
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
