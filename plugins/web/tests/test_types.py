"""The types of the page's modules, and names that they leave unused, by TypeScript's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.needs import needs

HERE = Path(__file__).parent
MODULES = Path("echelon_web/assets/js")

pytestmark = needs("tsc")


def faults(project: Path) -> list[str]:
    """Return what the compiler says of the modules beside the folder of a project."""
    done = subprocess.run(
        ["tsc", "--project", project], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


def test_the_modules_have_no_fault_that_the_compiler_sees() -> None:
    assert faults(HERE) == []


def test_the_compiler_sees_a_wrong_name_and_an_unused_one(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("tsconfig.json", "vendored.d.ts"):
        shutil.copy(HERE / name, tests)
    shutil.copytree(HERE.parent / MODULES, tmp_path / MODULES)
    dom = tmp_path / MODULES / "dom.js"
    line = len(dom.read_text().splitlines()) + 1
    with dom.open("a") as file:
        file.write('document.titel = "";\nconst unused = 1;\n')
    places = [fault.partition(": error")[0] for fault in faults(tests)]
    assert [place.rpartition("/")[2] for place in places] == [
        f"dom.js({line},10)",
        f"dom.js({line + 1},7)",
    ]
