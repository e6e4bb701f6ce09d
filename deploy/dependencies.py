"""The dependencies of the distributions: the service's lock files, and bills of materials.

`lock` writes deploy/requirements.txt (what the container and the unit's environment install beside
our own wheels) and deploy/requirements-build.txt (what builds the wheels). `sbom` writes
NAME.cdx.json for each wheel of a folder into the folder `sbom` beside it, with the versions of the
lock. Both resolve with uv, for every platform, from the wheels that were built, so that nothing of
the environment at hand can get in.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

DEPLOY = Path(__file__).parent
LOCK = DEPLOY / "requirements.txt"
BUILD_LOCK = DEPLOY / "requirements-build.txt"
SERVICE = "echelon-p4[service,etcd]"
"""The distribution that the container and the unit's environment run."""
SWITCH = "softswitch-p4"
"""The distribution beside it: it makes certificates, and is the embedded switch."""
BUILDS = "hatchling>=1.26"
_HEAD = (
    "# Written by `make lock`, for pip install --require-hashes --requirement. Upgrade: make lock"
    " UPGRADE=--upgrade.\n"
)


@dataclass(frozen=True)
class Wheel:
    """A wheel of ours."""

    path: Path
    metadata: Message

    @classmethod
    def read(cls, path: Path) -> Wheel:
        """Return the wheel at `path`."""
        with ZipFile(path) as wheel:
            (name,) = [one for one in wheel.namelist() if one.endswith(".dist-info/METADATA")]
            return cls(path.resolve(), HeaderParser().parsestr(wheel.read(name).decode()))

    @property
    def name(self) -> str:
        return str(self.metadata["Name"])

    def vendored(self) -> Iterator[Component]:
        """Yield the scripts of others that the wheel contains."""
        with ZipFile(self.path) as wheel:
            for listing in (
                one for one in wheel.namelist() if one.endswith("/vendor/versions.json")
            ):
                for file, one in json.loads(wheel.read(listing)).items():
                    yield Component(
                        type=ComponentType.LIBRARY,
                        name=one["package"],
                        version=one["version"],
                        purl=PackageURL("npm", name=one["package"], version=one["version"]),
                        bom_ref=file,
                        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one["sha256"])],
                        licenses=[LicenseFactory().make_from_string(one["licence"])],
                    )


@dataclass(frozen=True)
class Locked:
    """A requirement of a lock file."""

    name: str
    version: str | None
    """None: a wheel of ours."""
    marker: str
    """The platforms that need it; empty: all."""
    hashes: tuple[str, ...]
    via: tuple[str, ...]
    """The distributions that require it."""


def compiled(requirements: Iterable[str], wheels: Iterable[Wheel], *options: str) -> str:
    """Return the lock of requirements, in which our distributions are the wheels."""
    ours = "".join(f"{one.name} @ {one.path.as_uri()}\n" for one in wheels)
    constraints = DEPLOY.parent / "out" / "wheels.constraints"
    constraints.parent.mkdir(exist_ok=True)
    constraints.write_text(ours)
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--universal", "--python-version", "3.11",
               "--generate-hashes", "--no-strip-extras", "--constraints", str(constraints), *options]  # fmt: skip
    given = "\n".join(requirements)
    return subprocess.run(
        command, input=given, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def write_locks(wheels: Iterable[Wheel], *options: str) -> None:
    """Write both lock files.

    Versions that they have stay where they fit, unless uv's `options` say otherwise.
    """
    ours = [option for one in wheels for option in ("--no-emit-package", one.name)]
    for lock, requirements in ((LOCK, (SERVICE, SWITCH)), (BUILD_LOCK, (BUILDS,))):
        compiled(
            requirements,
            wheels,
            "--no-annotate",
            "--no-header",
            "--output-file",
            str(lock),
            *ours,
            *options,
        )
        lock.write_text(_HEAD + lock.read_text())


def read(lock: str) -> Iterator[Locked]:
    """Yield the requirements of a lock, as uv writes it with annotations on lines of their own."""
    for block in re.split(r"^(?=[^\s#])", lock, flags=re.MULTILINE):
        head = re.match(r"([\w.-]+)(?:\[[^\]]*\])?(?:==(\S+)| @ \S+)(?: ; ([^\\\n]+))?", block)
        if head is not None:
            via = re.findall(r"^    # (?:via|  )(?: ?)([\w.-]+)", block, re.MULTILINE)
            hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
            yield Locked(head[1], head[2], (head[3] or "").strip(), hashes, tuple(via))


def component(one: Locked, wheel: Wheel | None) -> Component:
    """Return a dependency as a component."""
    version = one.version if wheel is None else str(wheel.metadata["Version"])
    hashes = one.hashes if wheel is None else (hashlib.sha256(wheel.path.read_bytes()).hexdigest(),)
    purl = PackageURL("pypi", name=one.name, version=version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(purl.to_string()),
        comment="SHA-256 of each file of this version",
        hashes=[
            HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in sorted(set(hashes))
        ],
    )
    needed = (
        [Property(name="cdx:python:environment-marker", value=one.marker)] if one.marker else []
    )
    licenses = (
        []
        if wheel is None
        else [LicenseFactory().make_from_string(str(wheel.metadata["License-Expression"]))]
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=one.name,
        version=version,
        purl=purl,
        bom_ref=f"{one.name}=={version}",
        external_references=[files],
        properties=needed,
        licenses=licenses,
    )


def bill(root: Wheel, ours: Mapping[str, Wheel]) -> str:
    """Return the bill of materials of a wheel, as JSON."""
    lock = compiled([root.name], ours.values(), "--no-header", "--constraints", str(LOCK))
    found = [(one, component(one, ours.get(one.name))) for one in read(lock)]
    bom = Bom()
    for one, it in found:
        if one.name == root.name:
            bom.metadata.component = it
        else:
            bom.components.add(it)
    for one, it in found:
        needs = [other for of, other in found if it.name in of.via]
        held = list(ours[one.name].vendored()) if one.name in ours else []
        bom.components.update(held)
        bom.register_dependency(it, [*needs, *held])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def main(command: str, folder: str, *options: str) -> None:
    """Run `lock` or `sbom` on the folder of the wheels. `options` are uv's."""
    wheels = {one.name: one for one in map(Wheel.read, sorted(Path(folder).glob("*.whl")))}
    if command == "lock":
        write_locks(wheels.values(), *options)
    else:
        out = Path(folder).parent / "sbom"
        out.mkdir(exist_ok=True)
        for name, wheel in wheels.items():
            (out / f"{name}.cdx.json").write_text(bill(wheel, wheels))


if __name__ == "__main__":
    main(*sys.argv[1:])
