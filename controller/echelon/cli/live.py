"""The live view of a run: progress bars, and the frame of the service that runs beside it, if any."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable, Group
    from rich.progress import TaskID

_INTERVAL_S = 0.5
"""Time between two queries of the service."""
_REFRESHES_PER_S = 4
_BAR_LINES = 8
"""Part of the terminal's height for the bars and what surrounds them."""


class LiveView:
    """A context manager that shows bars inside, on a terminal only (elsewhere they are noise)."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=console, auto_refresh=False)
        self._frame: ConsoleRenderable | None = None
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            refresh_per_second=_REFRESHES_PER_S,
            transient=True,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def add(self, description: str, total: int) -> TaskID:
        """Add a bar."""
        return self._bars.add_task(description, total=total)

    def advance(self, bar: TaskID) -> None:
        self._bars.advance(bar)

    @contextmanager
    def watch(self, url: str) -> Iterator[None]:
        """Show the service at `url` below the bars."""
        if not self._console.is_terminal:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(url, over), name="live view", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            self._frame = None

    def _watch(self, url: str, over: threading.Event) -> None:
        from echelon.cli.frame import frame
        from echelon.cli.watch import Watcher
        from echelon.client import Client, ClientError

        with Client(url, timeout_s=5.0) as client:
            watcher = Watcher(client, url)
            while not over.is_set():
                try:
                    view = watcher.look_or_say_why_not()
                except ClientError:
                    return  # the run says what is wrong
                self._frame = frame(view, self._console.width, self._console.height - _BAR_LINES)
                over.wait(_INTERVAL_S)

    def _picture(self) -> Group:
        from rich.console import Group

        return Group(self._bars, *([] if self._frame is None else [self._frame]))
