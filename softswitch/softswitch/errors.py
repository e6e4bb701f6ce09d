"""Errors that a user of the switch can meet. Each message names the object and the reason."""

from __future__ import annotations


class SoftswitchError(Exception):
    """The base of every error that this package raises."""


class ProgramError(SoftswitchError):
    """The program cannot be loaded.

    It is malformed, or uses a construct that the switch does not implement.

    ``place`` names the position in the program (for example ``parser 'parser' state 'start' op
    2``), ``reason`` the reason.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


class TooLarge(ProgramError):  # noqa: N818
    """A part of the program is larger than any program for this switch needs to be."""


class TableError(SoftswitchError):
    """The switch refused a control-plane request on a table or another stateful object."""


class DuplicateEntry(TableError):  # noqa: N818
    """An entry with the same match key (and priority) exists."""


class NoSuchEntry(TableError):  # noqa: N818
    """The request names an entry, member or group that does not exist."""


class TableFull(TableError):  # noqa: N818
    """The object already holds as many entries as the program allows."""


class BadEntry(TableError):  # noqa: N818
    """The request does not fit the object.

    It has a wrong key, action, argument or index, or the object is constant.
    """
