"""A file of lines keeps what was put in it, whatever happened to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon_lab.points.lines import LineStore
from echelon_lab.points.store import Stored


def point(number: int, version: int = 1) -> Stored:
    return Stored({"number": number, "version": version}, {"square": number * number}, 0.5)


def test_points_are_read_back(tmp_path: Path) -> None:
    store = LineStore(tmp_path / "new" / "points.jsonl")
    for number in range(3):
        store.put("", point(number))
    again = LineStore(tmp_path / "new" / "points.jsonl")
    assert [again.get("", point(number).identity) for number in range(4)] == [
        *map(point, range(3)),
        None,
    ]
    assert again.get("", point(0, version=2).identity) is None


def test_the_last_of_several_counts(tmp_path: Path) -> None:
    store = LineStore(tmp_path / "points.jsonl")
    store.put("", point(2))
    corrected = Stored(point(2).identity, {"square": 5}, 1.0)
    store.put("", corrected)
    assert store.get("", corrected.identity) == corrected
    assert LineStore(tmp_path / "points.jsonl").get("", corrected.identity) == corrected


@pytest.mark.parametrize("kept", [0, 1, 10, 40])
def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "points.jsonl"
    store = LineStore(file)
    store.put("", point(1))
    whole = file.read_bytes()
    store.put("", point(2))
    file.write_bytes(whole + file.read_bytes()[len(whole) :][:kept])
    torn = LineStore(file)
    assert torn.get("", point(1).identity) == point(1)
    assert torn.get("", point(2).identity) is None
    torn.put("", point(2))
    torn.put("", point(3))
    assert [LineStore(file).get("", point(n).identity) for n in (1, 2, 3)] == [
        point(1),
        point(2),
        point(3),
    ]


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "null", '{"identity": 1, "result": {}, "wall_s": 0}', "\ufffd"]
)
def test_other_lines_do_no_harm(tmp_path: Path, line: str) -> None:
    file = tmp_path / "points.jsonl"
    LineStore(file).put("", point(1))
    file.write_text(line + "\n" + file.read_text())
    assert LineStore(file).get("", point(1).identity) == point(1)
