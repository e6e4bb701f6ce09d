"""Bills of materials of the distributions, as `make sbom` makes them of built wheels."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.needs import require

ROOT = Path(__file__).parents[2]
FOLDERS = (
    ROOT,
    ROOT / "ctoolchain",
    ROOT / "lab",
    ROOT / "softswitch",
    *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml")),
)
CLEAN = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
TOOLS = {
    "cyclonedx-python-lib",
    "hatchling",
    "hypothesis",
    "mypy",
    "pytest",
    "ruff",
    "schemathesis",
    "scipy",
    "uv",
}
"""Parts of a development environment that no distribution depends on."""

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("sbom")]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build all distributions and their bills, and return the folder of the wheels."""
    require("cyclonedx")
    out = tmp_path_factory.mktemp("out") / "wheels"
    for folder in FOLDERS:
        build = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(out),
        ]
        subprocess.run(build, cwd=folder, check=True, capture_output=True, timeout=300)
    made = [sys.executable, "deploy/dependencies.py", "sbom", str(out)]
    subprocess.run(made, cwd=ROOT, check=True, timeout=600, env=CLEAN)
    return out


def bills(wheels: Path) -> dict[str, dict[str, Any]]:
    """Return the bills by the name of the distribution."""
    return {
        path.name.removesuffix(".cdx.json"): json.loads(path.read_text())
        for path in wheels.parent.glob("sbom/*")
    }


def test_bills_are_valid(wheels: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = list(wheels.parent.glob("sbom/*.cdx.json"))
    assert len(found) == len(FOLDERS)
    for path in found:
        problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text())
        assert problem is None, (path.name, problem)


def closure(requires: Mapping[str, Sequence[Requirement]], root: str) -> set[str]:
    """Return what a distribution needs here, by the metadata of all."""
    found: set[tuple[str, str]] = set()
    waiting = [(root, "")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) not in found:
            found.add((name, extra))
            for one in requires[name]:
                if one.marker is None or one.marker.evaluate({"extra": extra}):
                    waiting += [(canonicalize_name(one.name), of) for of in ("", *one.extras)]
    return {name for name, _ in found} - {root}


def test_a_bill_names_what_its_distribution_installs_and_no_more(wheels: Path) -> None:
    """The bill has all that pip would install in an empty environment, in allowed versions."""
    require("a package index")
    dry = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--report",
        "-",
    ]
    dry += ["--disable-pip-version-check", *map(str, wheels.glob("*.whl"))]
    report = json.loads(
        subprocess.run(dry, check=True, stdout=subprocess.PIPE, timeout=600, env=CLEAN).stdout
    )
    requires = {
        canonicalize_name(one["metadata"]["name"]): [
            *map(Requirement, one["metadata"].get("requires_dist", ()))
        ]
        for one in report["install"]
    }
    for name, bill in bills(wheels).items():
        installed = closure(requires, name)
        names = {one["name"] for one in bill["components"]}
        assert installed <= names, (name, installed - names)
        # What other platforms need besides has a marker; scripts of others are in the wheel.
        more = {
            one["name"]
            for one in bill["components"]
            if "properties" in one or one["purl"].startswith("pkg:npm/")
        }
        assert names - installed <= more, (name, names - installed - more)
        assert not names & TOOLS
        for one in (one for of in (name, *installed) for one in requires[of] if one.marker is None):
            versions = [
                it["version"]
                for it in bill["components"]
                if it["name"] == canonicalize_name(one.name)
            ]
            assert all(one.specifier.contains(version) for version in versions), (name, one)


def test_each_component_has_hashes_and_is_reached_from_its_distribution(wheels: Path) -> None:
    for name, bill in bills(wheels).items():
        root = bill["metadata"]["component"]
        (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
        for one in (root, *bill["components"]):
            hashes = [
                digest["content"]
                for of in one.get("externalReferences", ())
                for digest in of["hashes"]
            ]
            hashes += [digest["content"] for digest in one.get("hashes", ())]
            assert hashes, (name, one["name"])
            if one is root:
                assert hashes == [hashlib.sha256(wheel.read_bytes()).hexdigest()]
        needs = {one["ref"]: one.get("dependsOn", ()) for one in bill["dependencies"]}
        reached, waiting = set(), [root["bom-ref"]]
        while waiting:
            if (ref := waiting.pop()) not in reached:
                reached.add(ref)
                waiting += needs[ref]
        assert reached == {root["bom-ref"], *(one["bom-ref"] for one in bill["components"])}


def test_scripts_of_others_are_named_with_the_hash_that_the_wheel_has(wheels: Path) -> None:
    parts = {one["bom-ref"]: one for one in bills(wheels)["echelon-web"]["components"]}
    (path,) = wheels.glob("echelon_web-*.whl")
    with zipfile.ZipFile(path) as wheel:
        scripts = [name for name in wheel.namelist() if "/vendor/" in name and name.endswith(".js")]
        assert scripts
        for script in scripts:
            (digest,) = parts[script.rpartition("/")[2]]["hashes"]
            assert digest["content"] == hashlib.sha256(wheel.read(script)).hexdigest()
