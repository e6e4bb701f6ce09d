"""The doors: for each kind of feature, one real addition as a patch, and how many files it touches.

`doors/README.md` says what each patch adds, and how to renew it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("doors")
MOST_FILES = 6
"""The most files of an addition, with its tests and its documentation."""

_HEADER = re.compile(r"^diff --git a/(.+) b/(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Exemption:
    """A door that takes more files than it should."""

    files: int
    reason: str


EXEMPTIONS: Mapping[str, Exemption] = {
    "paradigm": Exemption(
        7,
        "docs/jobs.md lists the paradigms beside the keys in docs/reference/jobs.md, and the test of"
        " the shapes of random scenarios lists those that it does not draw",
    ),
}
"""The exemptions by door. They are exact, so that a door that has become smaller loses its own."""


@dataclass(frozen=True)
class Door:
    """A way to add a feature, shown by the patch that adds one."""

    name: str
    files: Sequence[str]
    """The files that the patch touches, new ones included."""

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.patch"

    @property
    def summary(self) -> str:
        """One line that says how many files the door takes."""
        text = f"door {self.name}: {len(self.files)} files"
        exemption = EXEMPTIONS.get(self.name)
        if exemption is not None:
            text += f", more than {MOST_FILES}: {exemption.reason}"
        return text


def read_doors() -> list[Door]:
    """Return all doors by name."""
    doors = []
    for path in sorted(FOLDER.glob("*.patch")):
        files = touched_files(path.read_text(encoding="utf-8"))
        doors.append(Door(path.stem, files))
    return doors


def touched_files(patch: str) -> list[str]:
    """Return the files in a patch of git by name. A file that moves counts under both names."""
    names: set[str] = set()
    for before, after in _HEADER.findall(patch):
        names |= {before, after}
    return sorted(names)
