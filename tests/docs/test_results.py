"""docs/results.md has the figures that today's program gives."""

from __future__ import annotations

import re

import pytest

from docs.generate import results
from docs.generate.text import tables

TEXT = results.PAGE.read_text(encoding="utf-8")


@pytest.mark.wide
def test_the_tables_are_those_of_the_program() -> None:
    """It takes about a minute of a processor. `python -m docs.generate.results` writes the page."""
    assert results.written(TEXT) == TEXT


def test_the_page_has_every_table_once() -> None:
    assert list(results.names(TEXT)) == list(results.TABLES)


def test_every_table_of_the_page_is_made() -> None:
    outside = results.PLACE.sub("", TEXT)
    assert list(tables(outside)) == []
    assert re.findall(r"<!-- results", outside) == []
