"""A thread for work that nobody waits for when the service ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Task = tuple[Future[Any], Callable[[], Any]]


class DaemonThread(Executor):
    """An executor with one thread, which does not keep the process from its end.

    The interpreter waits for the threads of a `ThreadPoolExecutor`, and a plan of thousands of jobs
    takes seconds.
    """

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let the thread call a function after those before it."""
        future: Future[T] = Future()
        self._tasks.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread behind what it does now, or behind all that waits."""
        if cancel_futures:
            self._cancel_waiting()
        self._tasks.put(None)
        if wait:
            self._thread.join()

    def _cancel_waiting(self) -> None:
        with suppress(Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    future, _ = task
                    future.cancel()

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            _do(task)
            # Otherwise the result would be kept until the next call.
            del task


def _do(task: _Task) -> None:
    future, call = task
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
