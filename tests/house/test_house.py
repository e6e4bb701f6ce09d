"""No house gets worse than `limits.toml` says; and the counts are those that a reader makes by
hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.__main__ import main
from tests.house.houses import (
    CORE,
    DOCS,
    MEASURES,
    ROOT,
    Figures,
    Limits,
    complaints,
    figures_of_docs,
    figures_of_modules,
    measure_houses,
    packages,
    read_limits,
    tightened_limits,
    write_limits,
)
from tests.house.measure import count_folders, count_source


@pytest.fixture(scope="module")
def figures() -> dict[str, Figures]:
    """Measure this tree, which takes seconds."""
    return measure_houses()


@pytest.mark.wide
def test_no_house_is_worse_than_its_limits(figures: dict[str, Figures]) -> None:
    worse = complaints(figures, read_limits())
    assert not worse, "\n".join(worse)


def test_every_distribution_is_a_house_with_limits() -> None:
    houses = packages()
    projects = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    assert len(projects) > 8
    for path in projects:
        folder = path.parent.relative_to(ROOT)
        assert any(Path(name).is_relative_to(folder) for name in houses)
    for name, package in houses.items():
        assert Path(name).name == package or (ROOT / name / package).is_dir()
    assert set(read_limits()) == {*houses, DOCS}


# --- counts by hand ------------------------------------------------------------------------------


EMPTY = '''"""A docstring, and nothing else."""
'''

# Lines: def, if, call over two lines, return: 5. Statements: 4.
# Tokens: def f ( a , b ) : are 8; if a : are 3; b = g ( a , are 6; "x y" ) are 2; return b are 2.
FUNCTION = '''def f(a, b):
    """Return b."""

    # Why.
    if a:  # And why here.
        b = g(a,
              "x y")
    return b
'''

# Two statements of one line: a = 1 ; are 4 tokens, b = 2 are 3. One logical line.
SEMICOLON = "a = 1; b = 2\n"

# x = f"..." are 3 tokens, whatever stands within: no word, no comment.
TEMPLATE = "x = f\"{at + f'{of}'} # no comment\"\n"

# Words: of, at, of, to; neither `in` and `from`, which are keywords, nor the text, nor `offer`.
# Tokens: from of import at are 4; for of in offer . to : are 7; print ( "of" ) are 4.
WORDS = """from of import at
for of in offer.to:
    print("of")
"""

# The docstring of an attribute is none of the code: x : int = 1 are 5 tokens.
ATTRIBUTE = '''x: int = 1
"""What x is.

In two paragraphs.
"""
'''


@pytest.mark.parametrize(
    ("text", "lines", "statements", "tokens", "comments", "words"),
    [
        pytest.param(EMPTY, 0, 0, 0, 0, {}, id="docstring"),
        pytest.param(FUNCTION, 5, 4, 21, 2, {}, id="function"),
        pytest.param(SEMICOLON, 1, 1, 7, 0, {}, id="semicolon"),
        pytest.param(TEMPLATE, 1, 1, 3, 0, {}, id="f-string"),
        pytest.param(WORDS, 3, 3, 15, 0, {"of": 2, "at": 1, "to": 1}, id="words"),
        pytest.param(ATTRIBUTE, 1, 1, 5, 0, {}, id="attribute"),
    ],
)
def test_counts_are_those_made_by_hand(
    text: str,
    lines: int,
    statements: int,
    tokens: int,
    comments: int,
    words: dict[str, int],
) -> None:
    module = count_source(text)
    counts = (module.lines, module.statements, module.tokens, module.comments)
    assert counts == (lines, statements, tokens, comments)
    assert module.words == words


def test_imports_are_those_of_other_packages_wherever_they_stand() -> None:
    text = """
import echelon.cli, os
from . import echelon_web
from .echelon_torch import agent
from echelon_lab.run import run
def f():
    from softswitch import switch
    return "import ctoolchain"
"""
    assert count_source(text).packages == {"echelon", "os", "echelon_lab", "softswitch"}


def test_layout_and_tests_change_no_count(tmp_path: Path) -> None:
    laid_out = tmp_path / "laid_out"
    wide = tmp_path / "wide"
    for folder in (laid_out, wide):
        (folder / "part" / "tests").mkdir(parents=True)
    call = "    result = compute(first_argument, second_argument)\n"
    (laid_out / "part" / "module.py").write_text(f"def f():\n{call}")
    one_line = "def f( ): result=compute(first_argument,second_argument)\n"
    (wide / "part" / "module.py").write_text(one_line)
    (wide / "part" / "tests" / "shared.py").write_text("x = 1\n")
    (wide / "part" / "test_module.py").write_text("x = 1\n")
    (wide / "part" / "messages_pb2.py").write_text("x = 1\n")

    first, second = count_folders([laid_out, wide])

    assert first == second
    assert [module.lines for module in first] == [2]


def test_a_statement_over_the_width_is_several_lines(tmp_path: Path) -> None:
    arguments = ", ".join(f"argument_{number}" for number in range(8))
    (tmp_path / "module.py").write_text(f"result = compute({arguments})\n")

    ((at_100,),) = count_folders([tmp_path], 100)
    ((at_120,),) = count_folders([tmp_path], 120)

    # The call has 112 columns: the arguments move to a line of their own.
    assert (at_100.lines, at_120.lines) == (3, 1)
    assert at_100.tokens == at_120.tokens == 20


def test_figures_of_a_house_are_sums_over_its_modules() -> None:
    imports = ("echelon", "softswitch, echelon_lab", "echelon_lab")
    texts = (FUNCTION, WORDS, *(f"import {names}\n" for names in imports))
    figures = figures_of_modules(
        [count_source(text) for text in texts],
        "echelon_lab",
        ("echelon", "echelon_lab", "softswitch"),
    )
    assert figures == {
        "files": 5,
        "lines": 11,
        "size": 44,
        "tokens_per_line": 44 / 11,
        "tokens_per_statement": 44 / 10,
        "comments": 2000 / 11,
        "function_words": 4,
        "barred_words": 3,
        "importers": 2,
        "beyond_core": 1,
    }


def test_lines_of_documentation_are_those_of_its_pages(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "index.md").write_text("# Title\n\nText.\n")
    (tmp_path / "reference" / "page.md").write_text("# Page\n")
    (tmp_path / "generate.py").write_text("x = 1\n")
    assert figures_of_docs(tmp_path) == {"files": 2, "doc_lines": 4}


# --- limits --------------------------------------------------------------------------------------


GOOD: Figures = {
    "tokens_per_line": 7.5,
    "tokens_per_statement": 10.0,
    "comments": 80.0,
    "function_words": 2,
    "barred_words": 0,
    "beyond_core": 1,
}


def house(**changes: float) -> dict[str, Figures]:
    """Return the figures of one house, which are `GOOD` but for `changes`."""
    return {"lab": {**GOOD, **changes}}


@pytest.mark.parametrize("key", GOOD)
def test_what_gets_worse_is_named_with_value_limit_and_advice(key: str) -> None:
    measure = MEASURES[key]
    change = -1 if measure.more_is_better else 1
    value = GOOD[key] + change

    (sentence,) = complaints(house(**{key: value}), house())

    parts = ("lab", measure.name, measure.text(value), measure.text(GOOD[key]), measure.advice)
    assert all(part in sentence for part in parts)
    assert "\n" not in sentence


def test_what_stays_or_gets_better_is_fine() -> None:
    assert not complaints(house(), house())
    assert not complaints(house(comments=81, tokens_per_line=7, function_words=0), house())
    # As good as the limit, which has two decimals.
    assert not complaints(house(tokens_per_line=7.4951), house())
    assert complaints(house(tokens_per_line=7.5001), house())


def test_limits_are_only_tightened() -> None:
    figures = house(comments=81.9, tokens_per_line=7.231, tokens_per_statement=11.0)
    assert tightened_limits(figures, house()) == house(comments=81, tokens_per_line=7.24)


def test_budgets_of_core_and_documentation_are_not_lowered_below_themselves() -> None:
    figures: Limits = {CORE: {**GOOD, "size": 250_000}, DOCS: {"doc_lines": 7_000}}
    limits: Limits = {CORE: {**GOOD, "size": 300_000}, DOCS: {"doc_lines": 10_000}}
    assert tightened_limits(figures, limits) == {
        CORE: {**GOOD, "size": 300_000},
        DOCS: {"doc_lines": 7_000},
    }
    figures[CORE]["size"] = 300_001
    assert len(complaints(figures, limits)) == 1


def test_houses_that_come_and_go_are_asked_for_and_written() -> None:
    figures = {"lab": GOOD, "plugins/new": GOOD}
    limits = {"lab": GOOD, "plugins/past": GOOD}

    new, past = complaints(figures, limits)

    assert "plugins/new" in new
    assert "plugins/past" in past
    assert tightened_limits(figures, limits) == figures


def test_written_limits_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    limits: Limits = {CORE: {**GOOD, "size": 300_000.0}, DOCS: {"doc_lines": 6_000.0}}
    write_limits(limits, path)
    assert read_limits(path) == limits
    assert not read_limits(tmp_path / "missing.toml")


@pytest.mark.wide
def test_the_command_lowers_limits_and_raises_none(
    figures: dict[str, Figures],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.house.__main__.measure_houses", lambda *_: figures)
    limits = read_limits()
    limits["bench"]["comments"] = 0
    limits["research"]["tokens_per_line"] = 1
    path = tmp_path / "limits.toml"
    write_limits(limits, path)

    assert main(["--write"], path) == 1

    written = read_limits(path)
    assert written["bench"]["comments"] > 0
    assert written["research"]["tokens_per_line"] == 1
    sentences = capsys.readouterr().err.splitlines()
    assert any(sentence.startswith("research: ") for sentence in sentences)
