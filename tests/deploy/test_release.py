"""The checks and files of `make release`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from deploy import release
from tests.docs.pages import ROOT
from tests.needs import NO_INDEX, require, skip

CHANGELOG = """# Changelog

## 1.10.0, 2026-02-03

### Fixed

- This.

## 1.1.0, 2026-01-02

- Something else.
"""


def wheel(path: Path, **files: str) -> Path:
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_the_notes_are_the_changelogs_section() -> None:
    assert (
        release.notes(CHANGELOG, "1.10.0")
        == "# Echelon 1.10.0, 2026-02-03\n\n### Fixed\n\n- This.\n"
    )
    assert release.notes(CHANGELOG, "1.1.0") == "# Echelon 1.1.0, 2026-01-02\n\n- Something else.\n"


@pytest.mark.parametrize("version", ["1.1", "1.1.0.0", "11100", "2.0.0"])
def test_a_version_without_a_section_is_refused(version: str) -> None:
    with pytest.raises(
        release.ReleaseError, match=re.escape(f'has no section "## {version}, DATE"')
    ):
        release.notes(CHANGELOG, version)


def test_wheels_are_compared_by_name_and_contents(tmp_path: Path) -> None:
    one = wheel(tmp_path / "one.whl", same="1", changed="1", gone="1")
    other = wheel(tmp_path / "other.whl", same="1", changed="2", new="1")
    assert release.differences(one, other) == {"changed", "gone", "new"}
    assert release.differences(one, one) == set()


def test_packages_of_two_versions_are_refused(tmp_path: Path) -> None:
    for name, version in (("a", "1.0"), ("b", "2.0")):
        place = tmp_path / "wheels" / f"{name}.whl"
        place.parent.mkdir(exist_ok=True)
        wheel(
            place, **{f"{name}-{version}.dist-info/METADATA": f"Name: {name}\nVersion: {version}\n"}
        )
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "release.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "{'a': '1.0', 'b': '2.0'}: one is expected" in done.stderr


@pytest.mark.long
def test_a_release_is_made() -> None:
    """It takes `.venv` as it is, writes into `out`, and needs an index of packages."""
    # Without one, Make would clear a `.venv` that is older than pyproject.toml, and could not fill
    # it again.
    require("a package index")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        ["make", "release"],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    if re.search(r"Could not find a version|Max retries|Network is unrea", done.stderr):
        skip("a package index", NO_INDEX)
    assert done.returncode == 0, done.stderr
    # The published times of the demo, by the installed wheels (README.md).
    times = dict(re.findall(r"^pipeline +(\w+) +([\d.]+)", done.stdout, re.MULTILINE))
    assert {name: round(float(time), 2) for name, time in times.items()} == {
        "fair": 8.5,
        "varys": 10,
        "echelon": 8,
    }
    out = ROOT / "out" / "release"
    folders = [
        ROOT,
        ROOT / "ctoolchain",
        ROOT / "lab",
        ROOT / "softswitch",
        *(file.parent for file in ROOT.glob("plugins/*/pyproject.toml")),
    ]
    assert (
        len(list(out.glob("wheels/*.whl")))
        == len(list(out.glob("wheels/*.tar.gz")))
        == len(folders)
    )
    assert done.stdout.count("PASSED") == 2 * len(folders)
    for source in out.glob("wheels/*.tar.gz"):
        with tarfile.open(source) as files:
            assert any(name.endswith("/PKG-INFO") for name in files.getnames())
    assert (out / "notes.md").read_text().startswith("# Echelon ")
