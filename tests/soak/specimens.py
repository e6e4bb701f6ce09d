"""The programs that are fuzzed: everything compiled that lies in this repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from softswitch import Program, load_program
from softswitch.stf import parse
from softswitch.stf.commands import Packet
from tests.reference.frames import ipv4, shim, tcp, udp

ROOT = Path(__file__).parents[2]
_FOLDERS = (
    "p4src/build/v1model",
    "tests/softswitch/programs",
    "tests/softswitch/stf/programs",
    "tests/softswitch/p4runtime",
    "tests/softswitch/virtual",
    "tests/differential/programs",
    "tests/soak/programs",
)


@dataclass(frozen=True)
class Specimen:
    """A compiled program, and the tests in STF that were written for it."""

    name: str
    path: Path
    tests: tuple[Path, ...]

    def load(self) -> Program:
        return load_program(self.path.read_bytes(), self.path.name)

    def packets(self) -> list[bytes]:
        """Return the packets of its tests, each of which was written for something that the program
        does.
        """
        found: list[bytes] = []
        for test in self.tests:
            commands = parse(test.read_text("utf-8"), test.name)
            found += [command.data for command in commands if isinstance(command, Packet)]
        return found + (list(_job_frames()) if self.name == "echelon" else [])


def _job_frames() -> Iterator[bytes]:
    """Yield frames of training jobs, as Echelon's program reads them: with its shim, and of plain
    TCP and UDP connections.
    """
    for job, flow in product(range(4), repeat=2):
        for epoch in (1, 1, 2, 129, 1):
            yield ipv4(
                job, flow, 17, shim(job, flow, epoch, 3000, flags=epoch & 1, payload=bytes(500))
            )
    for one, other in product(range(4), repeat=2):
        yield ipv4(one, other, 6, tcp(one, other, bytes(1000)))
        yield ipv4(one, other, 17, udp(one, other, bytes(100)))


@cache
def specimens() -> tuple[Specimen, ...]:
    """Return every program, in order of its name; names are unique."""
    found: dict[str, Specimen] = {}
    for path in _compiled():
        name = path.stem if path.stem not in found else f"{path.parent.parent.name}-{path.stem}"
        places = (
            path.with_suffix(".stf"),
            path.parent.parent / f"{path.stem}.stf",
            _STF / f"{path.stem}.stf",
        )
        tests = dict.fromkeys(place.resolve() for place in places if place.exists())
        found[name] = Specimen(name, path, tuple(tests))
    return tuple(found[name] for name in sorted(found))


_STF = ROOT / "tests" / "softswitch" / "stf"


def _compiled() -> Iterator[Path]:
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).glob("*.json")):
            if path.with_suffix(".p4").exists() or path.name == "echelon.json":
                yield path
