"""The needs of tests stand in tests/needs.py alone, and who lacks one learns what to do."""

from __future__ import annotations

import ast
import ctypes
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import ctoolchain
from tests import needs
from tests.needs import NEEDS

ROOT = Path(__file__).parents[1]
HOUSES = ("tests", "lab/tests", "research/tests", "bench/tests", "plugins/*/tests")
FOLDERS = [folder for house in HOUSES for folder in sorted(ROOT.glob(house))]
HERE = (Path(needs.__file__), Path(__file__))
FILES = [path for folder in FOLDERS for path in folder.rglob("*.py") if path not in HERE]

SKIPPING = {
    "importorskip",
    "mark.skip",
    "pytest.skip",
    "shutil.which",
    "skipif",
    "unittest.skip",
}
ADVICE = re.compile(r".+ \(.+\).*")
"""A reason is one line, with what to do in parentheses."""


def skipping(tree: ast.AST) -> set[str]:
    """Return the ways in `tree` to skip a test, or to look for a command, beside tests/needs.py."""
    written: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            written.append(ast.unparse(node))
        if isinstance(node, ast.ImportFrom):
            written += [f"{node.module}.{alias.name}" for alias in node.names]
    return {way for way in SKIPPING for name in written if f".{name}".endswith(f".{way}")}


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the needs that `tree` states. Raises `ValueError` for a name that is no literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("needs", "require"):
                yield from map(ast.literal_eval, node.args)
            if node.func.id == "skip":
                yield ast.literal_eval(node.args[0])


def parsed(*words: str) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the files that have one of the words, and their trees, which take long to make."""
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            yield path, ast.parse(text, str(path))


def test_nothing_else_skips_tests() -> None:
    assert len(FILES) > 300
    trees = parsed("skip", "shutil")
    found = {str(path.relative_to(ROOT)): skipping(tree) for path, tree in trees}
    assert {path: ways for path, ways in found.items() if ways} == {}, "say it with tests/needs.py"


@pytest.mark.parametrize(
    ("code", "way"),
    [
        ("pytest.mark.skipif(True, reason='')", "skipif"),
        ("mark.skipif(True, reason='')", "skipif"),
        ("@pytest.mark.skip\ndef test(): pass", "mark.skip"),
        ("def test(): pytest.skip('')", "pytest.skip"),
        ("torch = pytest.importorskip('torch')", "importorskip"),
        ("from pytest import importorskip", "importorskip"),
        ("from pytest import skip as leave_out", "pytest.skip"),
        ("HAS = shutil.which('p4c')", "shutil.which"),
        ("from shutil import which", "shutil.which"),
        ("@unittest.skip\ndef test(): pass", "unittest.skip"),
    ],
)
def test_each_way_to_skip_is_seen(code: str, way: str) -> None:
    assert skipping(ast.parse(code)) == {way}


def test_every_need_is_known_and_used() -> None:
    used = {name for _, tree in parsed("needs", "require", "skip") for name in names(tree)}
    assert used == set(NEEDS)


def test_names_are_seen_wherever_they_stand() -> None:
    code = "@needs('a', 'b')\ndef f():\n  require('c')\n  skip('d', 'why')\nx(marks=[needs('e')])"
    assert set(names(ast.parse(code))) == set("abcde")
    with pytest.raises(ValueError):
        list(names(ast.parse("needs(name)")))


# --- reasons -------------------------------------------------------------------------------------


def refuse(*_: object, **__: object) -> Any:
    raise OSError("there is none")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide from this process all that tests may need, and return the one folder of its commands."""
    for name in list(os.environ):
        if name.startswith(("ECHELON_", "P4C_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(needs, "__file__", "/tmp/clone/tests/needs.py")
    monkeypatch.setattr(needs, "find_spec", lambda _name: None)
    monkeypatch.setattr(needs, "simple_switch_client", lambda: None)
    monkeypatch.setattr(ctoolchain, "compilers", list)
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    offer(tmp_path, "python")
    return tmp_path


def offer(folder: Path, *names: str) -> None:
    """Put commands into a folder that fail, whatever they are asked."""
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho it is not permitted >&2\nexit 1\n")
        (folder / name).chmod(0o755)


def reasons() -> dict[str, str]:
    """Return why each need is missing that is missing. Nothing is remembered."""
    found = {name: check() for name, check in NEEDS.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def silent(found: Mapping[str, str]) -> list[str]:
    """Return the reasons that are not one line, or do not say what to do."""
    return [reason for reason in found.values() if ADVICE.fullmatch(reason) is None]


def test_who_has_nothing_reads_what_to_do(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    found = reasons()
    monkeypatch.undo()
    assert set(NEEDS) - set(found) == {"an ordinary user"}
    assert silent(found) == []


def test_root_who_may_do_nothing_reads_why(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(commands, "unshare", "nsenter", "setpriv", "ip", "tc")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = reasons()
    monkeypatch.undo()
    refused = {name for name, reason in found.items() if "it is not permitted" in reason}
    probed = {"network namespaces", "veth interfaces", "HTB trees", "mounts"}
    assert refused >= probed | {"the laboratory's sandbox"}
    assert "an ordinary user" in found
    assert silent(found) == []


def test_what_is_missing_here_is_said_in_one_line() -> None:
    # A package index is not asked: its only reason is in the tests above.
    found = {name: needs.missing(name) for name in NEEDS if name != "a package index"}
    assert silent({name: reason for name, reason in found.items() if reason is not None}) == []


@pytest.mark.parametrize("reason", ["needs ip", "two lines\n(apt-get install ip)", ""])
def test_what_says_too_little_is_seen(reason: str) -> None:
    assert silent({"a need": reason}) == [reason]
