"""Try the packages of a folder before a release, and write its notes.

`python deploy/release.py FOLDER` expects source packages and wheels in FOLDER/wheels. Each source
package has to build the same wheel. All wheels are installed into an empty environment from a
folder that stands for the index, with what they depend on, and run the demo's scenario there,
outside the clone. FOLDER/notes.md is what the changelog says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
EXTRAS = "echelon-p4[lab,service,plot]"
"""The extras that are installed beside all wheels, so that what they name is there, too."""
DEMO = "topologies/scenarios/fig2.yaml"


class ReleaseError(Exception):
    """The reason why there can be no release."""


def metadata(wheel: Path) -> tuple[str, str]:
    """Return the name and the version of a wheel."""
    with ZipFile(wheel) as files:
        [place] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        told = HeaderParser().parsestr(files.read(place).decode())
    return str(told["Name"]), str(told["Version"])


def notes(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, as a text of its own."""
    found = re.search(
        rf"^## {re.escape(version)}, (.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE
    )
    if found is None:
        raise ReleaseError(f'CHANGELOG.md: has no section "## {version}, DATE" (write one)')
    return f"# Echelon {version}, {found[1]}\n\n{found[2].strip()}\n"


def differences(one: Path, other: Path) -> set[str]:
    """Return the names of the files in which two wheels differ, by presence or contents."""
    contents = []
    for wheel in (one, other):
        with ZipFile(wheel) as files:
            contents.append({(each.filename, each.CRC) for each in files.infolist()})
    return {name for name, _ in contents[0] ^ contents[1]}


def check_sources(sources: Iterable[Path], wheels: Path) -> None:
    """Build a wheel of each source package, and compare it with the one built beside it."""
    with tempfile.TemporaryDirectory() as built:
        for source in sources:
            pip(
                sys.executable,
                "wheel",
                "--no-deps",
                "--no-build-isolation",
                "--wheel-dir",
                built,
                source,
            )
        for wheel in Path(built).iterdir():
            if found := differences(wheel, wheels / wheel.name):
                raise ReleaseError(
                    f"{wheel.name}: the source package builds other files:"
                    f" {', '.join(sorted(found))}"
                )


def try_out(wheels: Path, names: Iterable[str], version: str) -> None:
    """Install all wheels into an empty environment and let them run the demo's scenario."""
    with tempfile.TemporaryDirectory() as place:
        home, index = Path(place, "environment"), Path(place, "index")
        pip(sys.executable, "download", "--dest", index, "--find-links", wheels, *names, EXTRAS)
        venv.create(home, with_pip=True)
        pip(home / "bin" / "python", "install", "--no-index", "--find-links", index, *names, EXTRAS)
        told = run(place, home / "bin" / "echelon", "--version")
        if told.split() != ["echelon", version]:
            raise ReleaseError(f"echelon --version prints {told.strip()!r}: {version} is expected")
        run(place, home / "bin" / "echelon", "examples", "-o", "files")
        print(
            run(
                place,
                home / "bin" / "echelon",
                "run",
                f"files/{DEMO}",
                "--target",
                "softswitch",
                "-o",
                "results",
            )
        )


def pip(python: str | Path, *arguments: str | Path) -> None:
    """Run pip quietly."""
    run(ROOT, python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(place: str | Path, *command: str | Path) -> str:
    """Run a command where no variable leads to the clone, and return what it prints."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(command, cwd=place, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(
            f"{' '.join(map(str, command))} ends with {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


def main(folder: str) -> None:
    """Try the packages of the folder, and write its notes."""
    out = Path(folder).resolve()
    wheels = out / "wheels"
    found = dict(metadata(wheel) for wheel in sorted(wheels.glob("*.whl")))
    if len(set(found.values())) != 1:
        raise ReleaseError(
            f"{wheels}: the wheels have the versions {found}: one is expected (run: make release)"
        )
    [version] = set(found.values())
    text = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    check_sources(sorted(wheels.glob("*.tar.gz")), wheels)
    try_out(wheels, found, version)
    (out / "notes.md").write_text(text, encoding="utf-8")
    print(
        f"{len(found)} distributions of {version} are in {wheels}, and the notes in"
        f" {out / 'notes.md'}."
    )
    if "unreleased" in text.splitlines()[0]:
        print(
            f"CHANGELOG.md calls {version} unreleased: write the date there before you publish it."
        )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ReleaseError as error:
        sys.exit(f"release: {error}")
