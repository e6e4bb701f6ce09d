"""Counts of Python sources: how dense the code is, what comments it has, and how its names read.

Tokens are names, operators, numbers and strings, but for docstrings. A statement is a logical line,
whatever its width. An f-string is one token, as Python 3.11 reads it, so that each version of
Python counts the same.

Lines depend on the width at which the code is laid out. `count_folders` therefore counts a copy
that ruff has formatted, and not the lines as they stand.
"""

from __future__ import annotations

import ast
import io
import keyword
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 100


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Bare prepositions, pronouns, participles and number words, which no identifier may be.
BARRED_WORDS = words(
    "of at one found known made told given shown whole own anew again others there what",
)
# With those that are sometimes the right name, as `to` of a message.
FUNCTION_WORDS = BARRED_WORDS | words(
    "in by to ones come gone said here which who whose anyhow than beside behind",
)

TOKENS = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}

# Only later versions of Python have these kinds of tokens.
TEMPLATE_STARTS = {"FSTRING_START", "TSTRING_START"}
TEMPLATE_ENDS = {"FSTRING_END", "TSTRING_END"}


@dataclass(frozen=True)
class Module:
    """The counts of one source file, and the packages that it imports."""

    lines: int
    statements: int
    tokens: int
    comments: int
    words: Counter[str]
    packages: frozenset[str]


def count_folders(folders: Sequence[Path], columns: int = COLUMNS) -> list[list[Module]]:
    """Return the modules of each of `folders`, formatted for lines of `columns`."""
    with tempfile.TemporaryDirectory(prefix="house-") as directory:
        root = Path(directory)
        copies = []
        for number, folder in enumerate(folders):
            copy = root / str(number)
            copy_sources(folder, copy)
            copies.append(copy)
        format_sources(root, columns)
        return [count_folder(copy) for copy in copies]


def count_folder(folder: Path) -> list[Module]:
    """Return the modules below `folder` as they stand."""
    return [count_source(path.read_text()) for path in sources(folder)]


def sources(folder: Path) -> list[Path]:
    """Return the source files below `folder`, without tests and generated messages."""
    paths = sorted(folder.rglob("*.py"))
    return [path for path in paths if is_product(path.relative_to(folder))]


def is_product(path: Path) -> bool:
    if "tests" in path.parts:
        return False
    if path.name.startswith("test_"):
        return False
    return not path.name.endswith("_pb2.py")


def copy_sources(folder: Path, copy: Path) -> None:
    copy.mkdir()
    for path in sources(folder):
        target = copy / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def format_sources(folder: Path, columns: int) -> None:
    """Lay out what is below `folder` as the project's code is, whatever settings lie above it."""
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache", "--isolated"]
    # Ruff would pass over folders with names such as `dist`.
    settings = ["--config", "exclude = []", "--target-version", "py311"]
    width = ["--line-length", str(columns)]
    subprocess.run([*command, *settings, *width, str(folder)], check=True)


def count_source(text: str) -> Module:
    """Return the counts of the source file `text`."""
    tree = ast.parse(text)
    docstrings = docstring_lines(tree)
    lines: set[int] = set()
    words: Counter[str] = Counter()
    statements = tokens = comments = 0
    in_statement = False
    for token in tokens_with_whole_strings(text):
        if token.type == tokenize.COMMENT:
            comments += 1
        elif token.type == tokenize.NEWLINE:
            statements += in_statement
            in_statement = False
        elif token.type in TOKENS and token.start[0] not in docstrings:
            lines.add(token.start[0])
            tokens += 1
            in_statement = True
            if is_function_word(token):
                words[token.string] += 1
    return Module(len(lines), statements, tokens, comments, words, imported_packages(tree))


def is_function_word(token: tokenize.TokenInfo) -> bool:
    if token.type != tokenize.NAME:
        return False
    # Of the list, `in` is a keyword.
    return token.string in FUNCTION_WORDS and not keyword.iskeyword(token.string)


def tokens_with_whole_strings(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of `text`, an f-string as one string.

    From Python 3.12 on, tokenize takes f-strings apart, and they may hold others.
    """
    depth = 0
    stream = io.StringIO(text)
    for token in tokenize.generate_tokens(stream.readline):
        kind = tokenize.tok_name[token.type]
        if kind in TEMPLATE_STARTS:
            depth += 1
            if depth == 1:
                yield token._replace(type=tokenize.STRING)
        elif kind in TEMPLATE_ENDS:
            depth -= 1
        elif depth == 0:
            yield token


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of strings that are statements: docstrings, also those of attributes."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and is_text(node.value):
            last = node.end_lineno or node.lineno
            lines.update(range(node.lineno, last + 1))
    return lines


def is_text(node: ast.expr) -> bool:
    if not isinstance(node, ast.Constant):
        return False
    return isinstance(node.value, str)


def imported_packages(tree: ast.Module) -> frozenset[str]:
    """Return the packages that a module imports anywhere, also for types alone.

    What is loaded by an entry point or by a name in a string is not seen.
    """
    packages: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages.update(package(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            packages.add(package(node.module or ""))
    return frozenset(packages)


def package(module: str) -> str:
    return module.partition(".")[0]
