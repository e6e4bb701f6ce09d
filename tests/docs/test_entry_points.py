"""The groups of entry points that the pages list are those that the code looks up."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "echelon-p4": "controller/echelon",
    "echelon-lab": "lab/echelon_lab",
    "softswitch-p4": "softswitch/softswitch",
    **{
        path.name.replace("_", "-"): str(path.relative_to(ROOT))
        for path in ROOT.glob("plugins/*/echelon_*")
        if path.is_dir()
    },
}
"""The folder of each distribution's package."""
PROJECTS = ("pyproject.toml", "*/pyproject.toml", "plugins/*/pyproject.toml")
GROUP = re.compile(r"`((?:echelon|softswitch)\.[a-z_]+)`")


def texts(tree: ast.Module) -> Mapping[str, str]:
    """Return the texts that a module gives names to."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def module(name: str) -> ast.Module:
    """Return the syntax tree of a module of ours, by its dotted name."""
    path = name.replace(".", "/")
    roots = [(ROOT / folder).parent for folder in PACKAGES.values()]
    files = [root / file for root in roots for file in (f"{path}.py", f"{path}/__init__.py")]
    return ast.parse(next(file for file in files if file.is_file()).read_text())


def text_of(name: str, tree: ast.Module) -> str:
    """Return the text that a module means by a name of its own, or by one that it imports."""
    own = texts(tree)
    if name in own:
        return own[name]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name in (alias.name, alias.asname):
                    return text_of(alias.name, module(node.module))
    raise KeyError(name)


def groups_of(tree: ast.Module) -> Iterator[str]:
    """Yield the groups whose entry points a module looks up. Raises for one that is no text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("entry_points"):
            (group,) = (keyword.value for keyword in node.keywords if keyword.arg == "group")
            if isinstance(group, ast.Name):
                yield text_of(group.id, tree)
            else:
                yield ast.literal_eval(group)


def looked_up() -> Mapping[str, set[str]]:
    """Return the distributions that look up each group."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for distribution, folder in PACKAGES.items():
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if "entry_points(" in text:
                for group in groups_of(ast.parse(text)):
                    found[group].add(distribution)
    return found


def registered() -> set[str]:
    """Return the groups in which our distributions register something."""
    files = (path for pattern in PROJECTS for path in ROOT.glob(pattern))
    projects = [tomllib.loads(path.read_text())["project"] for path in files]
    return {group for project in projects for group in project.get("entry-points", {})}


def test_contributing_lists_the_groups_that_are_looked_up() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    _, _, section = page.partition("These are the groups of entry points")
    section, _, _ = section.partition("\n\n`make wheels`")
    readers = looked_up()
    listed: list[str] = []
    for point in section.split("\n* ")[1:]:
        distribution = point.split("`")[1]
        groups = GROUP.findall(point)
        listed += groups
        for group in groups:
            assert distribution in readers[group], f"{distribution} does not look up {group}"
    assert sorted(listed) == sorted(readers)


def test_extending_says_of_each_group_what_it_takes() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| ")]
    groups = {group for row in rows if len(row) == 3 for group in GROUP.findall(row[1])}
    assert groups == set(looked_up())


def test_what_is_registered_is_looked_up() -> None:
    assert registered() <= set(looked_up())
