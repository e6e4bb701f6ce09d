"""A feature has a door: to add one touches few files, tests and documentation included.

Each patch of `doors/` is such an addition, which was made and tested. `doors/README.md` says how to
renew one that no longer applies.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.house.doors import EXEMPTIONS, FOLDER, MOST_FILES, Door, read_doors, touched_files
from tests.house.houses import ROOT
from tests.needs import needs

pytestmark = pytest.mark.wide

DOORS = read_doors()
PATCH = """\
diff --git a/docs/a.md b/docs/a.md
index 6e4a7ad9..0e2b1c6b 100644
--- a/docs/a.md
+++ b/docs/a.md
@@ -1,1 +1,2 @@
 # Title
+diff --git a/x b/x
diff --git a/new.py b/new.py
new file mode 100644
"""


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_an_addition_touches_few_files(door: Door) -> None:
    exemption = EXEMPTIONS.get(door.name)
    if exemption is None:
        assert 1 < len(door.files) <= MOST_FILES
    else:
        assert len(door.files) == exemption.files > MOST_FILES


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_an_addition_has_a_test_and_documentation(door: Door) -> None:
    assert any(name.rpartition("/")[2].startswith("test_") for name in door.files)
    assert any(name.endswith(".md") for name in door.files)


@needs("git")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_an_addition_applies_to_this_tree(door: Door) -> None:
    asked = ["git", "-C", str(ROOT), "apply", "--check", str(door.path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    renewal = f"{FOLDER.name}/README.md says how to renew {door.path.name}"
    assert not done.returncode, f"{done.stderr}{renewal}"


def test_every_door_is_explained() -> None:
    rows = (FOLDER / "README.md").read_text(encoding="utf-8").split("\n| `")[1:]
    names = [row.partition("`")[0] for row in rows]
    assert names == [door.name for door in DOORS]
    assert set(EXEMPTIONS) <= set(names)


def test_the_files_of_a_patch_are_those_of_its_headers() -> None:
    assert touched_files(PATCH) == ["docs/a.md", "new.py"]
    assert touched_files("diff --git a/old.py b/new.py\nsimilarity index 90%\n") == [
        "new.py",
        "old.py",
    ]
