"""Files of other tools are named by the packages that know them, after a reader has refused them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.model.documents import DocumentError
from echelon.model.fabric.load import load_fabric
from echelon.model.foreign import ForeignKind, as_foreign, foreign_files_named
from echelon.model.jobs.spec import load_job_spec
from tests.faults import coded


class Entry:
    """An entry point whose object is made when it is loaded."""

    def __init__(self, load: Callable[[], object]) -> None:
        self.load = load

    def __lt__(self, other: Entry) -> bool:
        return False


def broken() -> object:
    raise ImportError("no such module")


def throws(head: bytes) -> bool:
    raise ValueError(head)


def is_recipe(head: bytes) -> bool:
    return b"salt" in head


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that cannot be imported, one that fails, and one that knows its files."""
    kinds = [
        broken,
        lambda: ForeignKind("anything", "nothing FILE", throws, ()),
        lambda: ForeignKind("a recipe", "cook soup FILE -o soup", is_recipe, ("soup", "stew")),
    ]
    entries = [Entry(load) for load in kinds]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)


@pytest.mark.parametrize("load", [load_fabric, load_job_spec])
def test_a_reader_names_a_file_that_it_refuses(
    load: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / "soup.yaml"
    file.write_text("salt: 1\n")
    expected = coded("not-allowed", str(file), "a recipe", f"cook soup {file} -o soup")
    with pytest.raises(DocumentError, check=expected):
        load(file)
    file.write_text("sugar: 1\n")
    with pytest.raises(DocumentError) as refused:
        load(file)
    assert "recipe" not in str(refused.value)


def test_readers_of_a_kind_say_what_is_wrong_with_its_files(tmp_path: Path) -> None:
    file = tmp_path / "soup"
    file.write_text("salt, salt\n")
    error = DocumentError(str(file), "line 1", "too much (take less)")
    assert as_foreign(error, "soup") is error
    assert as_foreign(error, "stew") is error
    assert as_foreign(error, "fish") is not error


def test_an_error_about_another_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "soup"
    file.write_text("salt\n")
    error = DocumentError(str(file), "", "is missing")
    with pytest.raises(DocumentError) as refused, foreign_files_named(tmp_path / "menu"):
        raise error
    assert refused.value is error


@pytest.mark.parametrize("name", ["", ".", "no such file", "a\0b"])
def test_what_is_no_file_has_no_kind(name: str) -> None:
    error = DocumentError(name, "", "is wrong")
    assert as_foreign(error) is error


def test_a_package_may_know_several_kinds_and_some_that_nothing_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = (
        ForeignKind("a menu", "read FILE", throws, ()),
        ForeignKind("a bill", "", is_recipe, (), advice="pay it"),
    )
    for known, refusal in ((kinds, None), (kinds[1:], "is a bill (pay it)")):
        entries = [Entry(lambda known=known: known)]  # type: ignore[misc]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group, e=entries: e)
        file = tmp_path / "bill"
        file.write_text("salt: 1\n")
        error = as_foreign(DocumentError(str(file), "", "is wrong"))
        assert error.reason == (refusal or "is wrong")
