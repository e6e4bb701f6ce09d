"""What tests share: services, switches and a browser of a folder, and the check of an error.

The former take processors as long as they are there.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from echelon.model.errors import Code, CodedError

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


@contextmanager
def refused(
    code: Code,
    path: str | None = None,
    error: type[CodedError] = CodedError,
) -> Iterator[pytest.ExceptionInfo[CodedError]]:
    """Expect an error with the code and, unless it is None, with the path of the key at fault.

    `coded` of `tests.faults` also compares other attributes and the names in the text.
    """
    with pytest.raises(error) as caught:
        yield caught
    assert caught.value.code == code
    if path is not None:
        assert getattr(caught.value, "path", None) == path
