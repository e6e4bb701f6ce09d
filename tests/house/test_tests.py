"""The tests of the core and of the switch run alone: they know no plug-in, bench or research.

What takes several houses is tested where the plug-in's tests are, or in tests/acceptance, interop,
differential, soak and deploy.
"""

from __future__ import annotations

import ast

import pytest

from tests.house.houses import ROOT, packages
from tests.house.measure import imported_packages

ALONE = ("tests/echelon", "tests/softswitch")
OTHERS = {"bench", "plugins", "research", "echelon_example_plugins"}


def foreign_packages() -> set[str]:
    """Return what these tests may not import."""
    plugins = {name for folder, name in packages().items() if folder.startswith("plugins/")}
    return plugins | OTHERS


@pytest.mark.parametrize("folder", ALONE)
def test_they_import_nothing_of_plugins_benches_or_research(folder: str) -> None:
    foreign = foreign_packages()
    faults = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        imported = imported_packages(ast.parse(path.read_text())) & foreign
        if imported:
            faults.append(f"{path.relative_to(ROOT)}: {', '.join(sorted(imported))}")
    assert not faults, "\n".join(faults)


def test_what_they_may_not_import_is_there() -> None:
    assert foreign_packages() > {"echelon_web", "echelon_etcd", "echelon_tofino", "bench"}
