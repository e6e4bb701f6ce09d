"""Tables, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from echelon.cli import tables
from tests.drawing import examples

COLUMNS = [
    tables.Column("name", wraps=True),
    tables.Column("size", right=True),
    tables.Column("text", wraps=True),
]
CELL = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=5))
def test_plain_columns_are_read_back_by_their_place(rows: list[tuple[str, str, str]]) -> None:
    head, *lines = tables.plain(COLUMNS, rows).splitlines()
    assert head.split() == ["NAME", "SIZE", "TEXT"]
    assert [tuple(line.split()) for line in lines] == rows
    ends = {
        line.index(row[1], len(row[0])) + len(row[1]) for line, row in zip(lines, rows, strict=True)
    }
    assert len(ends) <= 1


def picture(rows: list[tuple[str, ...]], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(tables.table(COLUMNS, rows))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    assert "[red]a[/red] :smile:" in picture([("x", "1", "[red]a[/red] :smile:")], 80)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(CELL, st.just("1"), CELL), min_size=1, max_size=4), st.integers(30, 120))
def test_a_narrow_terminal_folds_and_loses_nothing(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    text = picture(rows, width)
    assert max(map(len, text.splitlines())) <= width
    letters = sorted("".join("".join(row) for row in rows))
    shown = sorted(text.split("─\n")[-1].replace(" ", "").replace("\n", ""))
    assert shown == letters


def test_facts_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    tables.pairs([("a", "1"), ("problem", ""), ("longer", "2")])
    assert capsys.readouterr().out == "a       1\nlonger  2\n"


def test_a_problem_is_a_column_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show([tables.Column("job")], [("a",), ("b",)], "none", {"b": "too big"})
    assert capsys.readouterr().out == "JOB  PROBLEM\na\nb    too big\n"
