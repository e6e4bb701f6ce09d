"""Files that a running server reads again after they have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ["ChangingFiles"]

_log = logging.getLogger("softswitch.tls")

_Content = TypeVar("_Content")


class ChangingFiles(Generic[_Content]):
    """Files and their content, which stays as it was while they cannot be used.

    Args:
        subject: the word for the files in the log.
        paths: the files.
        read: returns their content.

    Raises:
        ValueError, OSError: a file cannot be used.
    """

    def __init__(self, subject: str, paths: Sequence[Path], read: Callable[[], _Content]) -> None:
        self._subject = subject
        self._paths = paths
        self._read = read
        # A change while the files are read is seen afterwards.
        self._stamps = self._current_stamps()
        self.content = read()
        self._complaint = ""

    def renew(self) -> _Content | None:
        """Return the content if the files have changed since they were read, None otherwise.

        Threads that call it at a time get contents of their own.
        """
        try:
            stamps = self._current_stamps()
            if stamps == self._stamps:
                return None
            self._stamps = stamps
            content = self._read()
        except (OSError, ValueError) as error:
            complaint = str(error)
            # Strangers choose how often files are looked at, and must not fill the log.
            if complaint != self._complaint:
                self._complaint = complaint
                _log.warning("softswitch: %s stay as they were: %s", self._subject, complaint)
            return None
        self.content = content
        self._complaint = ""
        _log.warning("softswitch: %s were read again", self._subject)
        return content

    def _current_stamps(self) -> list[tuple[int, int, int]]:
        """Return what changes when a file is written or replaced."""
        stamps = []
        for path in self._paths:
            stat = path.stat()
            stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return stamps
