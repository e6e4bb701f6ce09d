"""One name, one thing: no two public classes of a package have the same name."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("controller/echelon", "lab/echelon_lab", "softswitch")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_public_classes_share_a_name(package: str) -> None:
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            modules[name].append(str(path.relative_to(ROOT)))
    assert len(modules) > 100
    shared = {name: places for name, places in modules.items() if len(places) > 1}
    assert not shared
