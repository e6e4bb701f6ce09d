"""The progress of a command on standard error.

It is a bar on a terminal, and elsewhere a line every ten seconds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Self

from echelon.model.progress import LINE_EVERY_S, Account

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable, RenderableType

EVERY = "ECHELON_PROGRESS_S"
"""The environment variable with the time between two lines, instead of ten seconds.

0: there is a line for each change, at once; inf: there are none.
"""
_SHOWN_AFTER_S = 1.0
"""The time after which a command shows its progress on a terminal."""
_FRAME_S = 0.25
_BAR_COLUMNS = 24
_BAR_LINES = 4
"""The part of the terminal's height for the progress and what surrounds it."""


class ShownProgress(Account):
    """A progress that is shown while its context is entered, from the first stage on.

    The context may be entered again, for example after a question; the clock goes on. `if_long` is
    as for `Account`; `computes`: the command has work for this process at any time.
    """

    def __init__(self, if_long: str | None = None, *, computes: bool = False) -> None:
        super().__init__(time.monotonic, if_long, time.process_time if computes else None)
        self.below: ConsoleRenderable | None = None
        """The picture that a terminal shows below the bar."""
        self._is_visible = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._is_visible = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_visible = False
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._over.clear()

    def stage(
        self,
        doing: str,
        /,
        parts: float = 0,
        unit: str = "",
        kept: float = 0,
    ) -> None:
        super().stage(doing, parts, unit, kept)
        self._changed()
        if _every_s() in (0, inf) and not self.on_terminal:
            return
        # Not before there is something to say: until then a command may still fork.
        if self._is_visible and self._thread is None:
            show = self._draw if self.on_terminal else self._print
            self._thread = threading.Thread(
                target=show,
                name="progress",
                daemon=True,
            )
            self._thread.start()

    def doing(self, work: str, /) -> None:
        super().doing(work)
        self._changed()

    def done(self, parts: float = 1, /) -> None:
        super().done(parts)
        self._changed()

    def _changed(self) -> None:
        if self._is_visible and not _every_s() and not self.on_terminal:
            for line in (self.note_due(), self.how_far.line):
                if line is not None:
                    print(line, file=sys.stderr, flush=True)

    @property
    def on_terminal(self) -> bool:
        """Whether standard error can be drawn on."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines for what is below the bar."""
        size = _console().size
        return size.width, size.height - _BAR_LINES

    def _print(self) -> None:
        every_s = _every_s()
        while not self._over.wait(min(_FRAME_S, every_s)):
            for line in (self.note_due(), self.line_due(every_s)):
                if line is not None:
                    print(line, file=sys.stderr, flush=True)

    def _draw(self) -> None:
        from rich.live import Live

        if self._over.wait(_SHOWN_AFTER_S):
            return
        # Standard output is for the result alone, and may be a pipe.
        live = Live(
            console=_console(),
            get_renderable=self._picture,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        with live:
            while not self._over.wait(_FRAME_S):
                if (note := self.note_due()) is not None:
                    live.console.print(note, markup=False)
                live.refresh()

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        state = self.how_far
        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True)
        bar = ProgressBar(
            state.parts or None,
            state.done,
            width=_BAR_COLUMNS,
            pulse=not state.parts,
        )
        line.add_row(
            bar,
            Text(
                state.line,
                overflow="ellipsis",
                no_wrap=True,
            ),
        )
        return Group(line, *([] if self.below is None else [self.below]))


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _every_s() -> float:
    try:
        every_s = float(os.environ[EVERY])
    except (KeyError, ValueError):
        return LINE_EVERY_S
    if every_s >= 0:
        return every_s
    return LINE_EVERY_S
