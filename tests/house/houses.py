"""The houses (distributions), their figures, and the limits of `limits.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house.measure import BARRED_WORDS, COLUMNS, Module, count_folders

ROOT = Path(__file__).parents[2]
LIMITS_FILE = Path(__file__).with_name("limits.toml")
LIMITS_NAME = "tests/house/limits.toml"

CORE = "controller/echelon"
DOCS = "docs"

Figures = dict[str, float]
"""Value by the key of its measure."""

Limits = dict[str, Figures]
"""Limits by house."""


@dataclass(frozen=True)
class Measure:
    """A figure with a limit: how it is called, rounded and made better."""

    name: str
    advice: str
    decimals: int = 0
    more_is_better: bool = False
    # Figures better than this lower no limit further.
    budget: float = 0

    def rounded(self, value: float) -> float:
        """Return `value` with the measure's decimals, and no better than it is."""
        scale = 10.0**self.decimals
        # Without the small part, a float just above 8.41 would become 8.42.
        if self.more_is_better:
            return math.floor(value * scale + 1e-6) / scale
        return math.ceil(value * scale - 1e-6) / scale

    def is_worse(self, value: float, limit: float) -> bool:
        """Say whether `value` breaks `limit`."""
        if self.more_is_better:
            return self.rounded(value) < limit
        return self.rounded(value) > limit

    def tightened(self, value: float, limit: float) -> float:
        """Return the limit that holds from now on: `limit`, or `value` where it is better."""
        if self.more_is_better:
            return max(self.rounded(value), limit)
        return min(max(self.rounded(value), self.budget), limit)

    def text(self, value: float) -> str:
        return f"{self.rounded(value):,.{self.decimals}f}"


MEASURES = {
    "tokens_per_line": Measure(
        "tokens a code line",
        "take long expressions apart and name their parts",
        decimals=2,
    ),
    "tokens_per_statement": Measure(
        "tokens a statement",
        "give each thought a statement of its own",
        decimals=2,
    ),
    "comments": Measure(
        "comments per 1,000 code lines",
        "say why at decisions, races, formulas and tuned constants",
        more_is_better=True,
    ),
    "function_words": Measure(
        "function words as identifiers",
        "name the thing or the action instead (`by_job` for `of`)",
    ),
    "barred_words": Measure(
        "barred words as identifiers",
        f"replace {', '.join(sorted(BARRED_WORDS))} by nouns or verbs",
    ),
    "beyond_core": Measure(
        "modules that import another house than the core",
        "pass in what the module needs, or find it by an entry point",
    ),
    "size": Measure(
        "tokens",
        "take out what nothing calls, and move what only the laboratory or a plug-in uses there",
        budget=300_000,
    ),
    "doc_lines": Measure(
        "lines",
        "shorten the page, or move what was measured to research",
        budget=6_000,
    ),
}

LIMITED = (
    "tokens_per_line",
    "tokens_per_statement",
    "comments",
    "function_words",
    "barred_words",
    "beyond_core",
)
"""The measures of every house. The core has `size` besides, and docs/ has `doc_lines` alone."""

OUTDATED = "does not list what it should list for this house: run python -m tests.house --write"

HEADER = """\
# The limits of each house (distribution), which tests/house checks. Lines are those at 100 columns.
# Comments may only become more, all else only less. `make house` prints today's figures.
# `python -m tests.house --write` writes better figures here, and none that are worse.
# Whoever raises a limit by hand says why in the commit.

"""


def packages(root: Path = ROOT) -> dict[str, str]:
    """Return the package of each house, by the house's folder."""
    plugins = [path.parent.name for path in sorted(root.glob("plugins/*/pyproject.toml"))]
    return {
        CORE: "echelon",
        "lab/echelon_lab": "echelon_lab",
        "softswitch/softswitch": "softswitch",
        "ctoolchain": "ctoolchain",
        **{f"plugins/{name}": f"echelon_{name}" for name in plugins},
        "research": "research",
        "bench": "bench",
    }


def measure_houses(root: Path = ROOT, columns: int = COLUMNS) -> dict[str, Figures]:
    """Return the figures of each house below `root`, and of its documentation."""
    houses = packages(root)
    counted = count_folders([root / folder for folder in houses], columns)
    figures = {}
    for folder, modules in zip(houses, counted, strict=True):
        package = houses[folder]
        figures[folder] = figures_of_modules(modules, package, houses.values())
    figures[DOCS] = figures_of_docs(root / DOCS)
    return figures


def measure_beside(folders: Sequence[Path], columns: int = COLUMNS) -> dict[str, Figures]:
    """Return the figures of other projects' packages, which import no house."""
    counted = count_folders(folders, columns)
    figures = {}
    for folder, modules in zip(folders, counted, strict=True):
        name = folder.resolve().name
        figures[name] = figures_of_modules(modules, "", ())
    return figures


def figures_of_modules(
    modules: Sequence[Module],
    package: str,
    all_packages: Iterable[str],
) -> Figures:
    """Return what the modules of the house `package` come to."""
    lines = sum(module.lines for module in modules)
    statements = sum(module.statements for module in modules)
    tokens = sum(module.tokens for module in modules)
    comments = sum(module.comments for module in modules)
    words = [word for module in modules for word in module.words.elements()]
    foreign = set(all_packages) - {package}
    return {
        "files": len(modules),
        "lines": lines,
        "size": tokens,
        "tokens_per_line": tokens / max(lines, 1),
        "tokens_per_statement": tokens / max(statements, 1),
        "comments": 1000 * comments / max(lines, 1),
        "function_words": len(words),
        "barred_words": sum(word in BARRED_WORDS for word in words),
        "importers": importers(modules, foreign),
        "beyond_core": importers(modules, foreign - {"echelon"}),
    }


def importers(modules: Iterable[Module], foreign: set[str]) -> int:
    """Return how many of `modules` import any package of `foreign`."""
    return sum(not foreign.isdisjoint(module.packages) for module in modules)


def figures_of_docs(folder: Path) -> Figures:
    """Return how many pages and lines the documentation has."""
    pages = [path.read_text() for path in folder.rglob("*.md")]
    return {"files": len(pages), "doc_lines": sum(page.count("\n") for page in pages)}


def limited_measures(house: str) -> tuple[str, ...]:
    """Return the keys of the measures that have a limit for `house`."""
    if house == DOCS:
        return ("doc_lines",)
    return (*LIMITED, "size") if house == CORE else LIMITED


def complaints(figures: Mapping[str, Figures], limits: Mapping[str, Figures]) -> list[str]:
    """Return a sentence for each figure worse than its limit, and for what has no limits."""
    sentences = []
    for house, key in limited_figures(figures):
        limit = limits.get(house, {}).get(key)
        value = figures[house][key]
        if limit is not None and MEASURES[key].is_worse(value, limit):
            sentences.append(complaint(house, key, value, limit))
    for house in sorted(set(figures) | set(limits)):
        expected = set(limited_measures(house)) if house in figures else set()
        if expected != set(limits.get(house, {})):
            sentences.append(f"{house}: {LIMITS_NAME} {OUTDATED}")
    return sentences


def complaint(house: str, key: str, value: float, limit: float) -> str:
    """Return the sentence for one figure that is worse than its limit, which says what to do."""
    measure = MEASURES[key]
    bound = "at least" if measure.more_is_better else "at most"
    return (
        f"{house}: {measure.text(value)} {measure.name}, {bound} {measure.text(limit)} allowed: "
        f"{measure.advice}; or raise {key} in {LIMITS_NAME} by hand and say why in the commit"
    )


def tightened_limits(figures: Mapping[str, Figures], limits: Mapping[str, Figures]) -> Limits:
    """Return the limits of today's houses, lowered to figures that are better."""
    tightened: Limits = {house: {} for house in figures}
    for house, key in limited_figures(figures):
        measure = MEASURES[key]
        without_limit = -math.inf if measure.more_is_better else math.inf
        limit = limits.get(house, {}).get(key, without_limit)
        value = figures[house][key]
        tightened[house][key] = measure.tightened(value, limit)
    return tightened


def limited_figures(figures: Mapping[str, Figures]) -> list[tuple[str, str]]:
    return [(house, key) for house in figures for key in limited_measures(house)]


def read_limits(path: Path = LIMITS_FILE) -> Limits:
    """Return the limits in the file `path`; none where there is no file."""
    return tomllib.loads(path.read_text()) if path.exists() else {}


def write_limits(limits: Limits, path: Path = LIMITS_FILE) -> None:
    """Write `limits` into the file `path`."""
    lines = [HEADER]
    for house, figures in limits.items():
        lines.append(f'["{house}"]\n')
        for key, value in figures.items():
            decimals = MEASURES[key].decimals
            lines.append(f"{key} = {value:.{decimals}f}\n")
        lines.append("\n")
    path.write_text("".join(lines).rstrip("\n") + "\n")
