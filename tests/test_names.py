"""One name, one thing: no two public classes of a package have the same name."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = {
    "controller/echelon": set[str](),
    # The program as it was compiled (`softswitch.ir`), what runs of it, and what a trace or an STF test says of it.
    "softswitch": {
        "Action",
        "ActionProfile",
        "Checksum",
        "Drop",
        "Match",
        "Pipeline",
        "Port",
        "Queued",
        "Run",
        "Scope",
        "State",
        "Table",
        "ValueSet",
    },
}
"""Names that several classes of a package have, by package. Nothing is to be added."""


@pytest.mark.parametrize("package", SHARED)
def test_no_two_public_classes_share_a_name(package: str) -> None:
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            modules[name].append(str(path.relative_to(ROOT)))
    assert len(modules) > 100
    shared = {name: places for name, places in modules.items() if len(places) > 1}
    assert set(shared) == SHARED[package], shared
