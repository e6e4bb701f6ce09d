"""Services, switches and a browser that the tests of a folder share.

They take processors as long as they are there.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Generic, TypeVar

import pytest

T = TypeVar("T")


class Shared(Generic[T]):
    """Something that is made when a test wants it first, and ends when a test of another folder
    follows.

    The `pytest_runtest_teardown` of the folder's conftest.py calls `end_unless`. A fixture of the
    whole session would last until the last test of all folders.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make = make
        self._there: list[T] = []
        self._stack = ExitStack()
        atexit.register(self._stack.close)

    def __call__(self) -> T:
        if not self._there:
            self._there.append(self._stack.enter_context(self._make()))
        return self._there[0]

    def end_unless(self, nextitem: pytest.Item | None, folder: Path) -> None:
        """End it, unless the next test is below the folder."""
        if nextitem is None or folder not in nextitem.path.parents:
            self._there.clear()
            self._stack.close()
