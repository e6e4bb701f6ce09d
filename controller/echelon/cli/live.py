"""The service that runs beside a run, below its progress on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echelon.cli.progress import ShownProgress

_INTERVAL_S = 0.5
"""Time between two queries of the service."""


@contextmanager
def shown_below(progress: ShownProgress, url: str) -> Iterator[None]:
    """Show the service at `url` below `progress`, on a terminal."""
    if not progress.on_terminal:
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(progress, url, over), name="live view", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress.below = None


def _watch(progress: ShownProgress, url: str, over: threading.Event) -> None:
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
            progress.below = frame(view, *progress.room)
            over.wait(_INTERVAL_S)
