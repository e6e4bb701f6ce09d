"""Pictures that another package draws: the entry points `echelon.pictures`.

An entry's name is what it draws. Its object is called with the file and with what to draw.
"""

from __future__ import annotations

from pathlib import Path

from echelon.cli.usage import fail, load_plug_in

GROUP = "echelon.pictures"


def draw_picture(
    subject: str,
    file: Path,
    *drawn: object,
) -> None:
    """Write a picture of that kind to the file of `--out`, or fail with one line."""
    from importlib.metadata import entry_points

    from echelon.model.extras import plug_in

    for entry in entry_points(group=GROUP, name=subject):
        draw = load_plug_in(entry)
        draw(file, *drawn)
        return
    fail(f"--out: {file}: {plug_in(GROUP, subject)}")
