"""The parts that commands with many measurements share: a progress bar, and errors in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from echelon.cli.usage import BAD_INPUT, FAILED, INTERRUPTED, fail

if TYPE_CHECKING:
    from rich.progress import TaskID

    from echelon.points.tasks import Task


class Bars:
    """A progress bar for each stage, on a terminal only; elsewhere it is noise."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
        )
        self._name = name
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stage(self, tasks: int, /) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        self._bar = self._progress.add_task(self._name, total=tasks)

    def done(self, task: Task, /) -> None:
        if self._bar is not None:
            self._progress.update(self._bar, advance=1, description=f"{self._name}  {task.name}")


@contextmanager
def one_line_errors(out: Path) -> Iterator[None]:
    """Turn errors that are not faults of the program into one line on standard error and an exit status."""
    from echelon.documents import DocumentError
    from echelon.points.tasks import SweepError
    from echelon.scenarios.results import RunError

    try:
        yield
    except DocumentError as error:
        fail(str(error), BAD_INPUT)
    except OSError as error:
        fail(f"--out: {error.filename or out}: {error.strerror or error} (name a directory to write to)", BAD_INPUT)
    except (RunError, SweepError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        fail("interrupted; measured points are kept, run the same command again to continue", INTERRUPTED)
