"""The page of the documentation with the table of requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

# Each import adds its part to the list, in this order.
from tests.conformance import arbitration, entries, pipelines, resources, routing  # noqa: F401
from tests.conformance.requirement import REQUIREMENTS, Requirement
from tests.conformance.routing import SAI
from tests.conformance.switches import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"

Verdicts = Mapping[tuple[str, str], bool]
"""Whether a switch (second) meets a requirement (first, its number)."""

_HEAD = """\
# P4Runtime requirements

What a P4Runtime server has to do, asked of softswitch (with `--role '*'`) and of BMv2 1.15 (`simple_switch_grpc`) over
gRPC. Numbers and choice are those of a
[public list](https://github.com/smolkaj/4ward/blob/main/docs/P4RUNTIME_COMPLIANCE.md), that of 4ward
(April 2026); words and checks are ours. Where the list differs from the
[specification 1.5](https://p4lang.github.io/p4runtime/spec/main/P4Runtime-Spec.html), the specification is asked for
(marked *). `r` marks a second requirement of the same number, for registers, and `S` ours of a router in the spirit of
SAI P4. `python -m tests.conformance --write` writes this page, and tests compare it with what both switches do.

"""
_SUMS = """\
| | requirements | softswitch | BMv2 |
|---|---|---|---|
"""
_TABLE = """
| number | part | requirement | softswitch | BMv2 |
|---|---|---|---|---|
"""
_TAIL = """
`@refers_to` and p4-constraints are annotations that 4ward enforces and the specification does not have: both switches
serve such programs and do not enforce them. The programs are `tests/softswitch/p4runtime/everything.p4` and, for
packets through several tables and translated types, `tests/conformance/programs/next_hops.p4`, in the spirit of SAI P4.
"""
_ROW = re.compile(
    r"\| (?P<number>\S+) \| [^|]+ \| [^|]+ \| (?P<softswitch>yes|no) \| (?P<bmv2>yes|no) \|"
)


def _is_main(requirement: Requirement) -> bool:
    return not (requirement.extension or requirement.extra or requirement.part == SAI)


def kinds() -> dict[str, list[Requirement]]:
    """Return the requirements by what 4ward's list counts them as."""
    return {
        "of the specification": [r for r in REQUIREMENTS if _is_main(r)],
        "that 4ward refuses or leaves out": [r for r in REQUIREMENTS if r.extra],
        "beyond the specification": [r for r in REQUIREMENTS if r.extension],
        "of a router like SAI P4, end to end": [r for r in REQUIREMENTS if r.part == SAI],
    }


def written(verdicts: Verdicts) -> str:
    """Return the page."""
    return "".join(_lines(verdicts))


def _lines(verdicts: Verdicts) -> Iterator[str]:
    yield _HEAD
    yield _SUMS
    for kind, requirements in kinds().items():
        met = [sum(verdicts[r.number, name] for r in requirements) for name in NAMES]
        yield f"| {kind} | {len(requirements)} | {met[0]} | {met[1]} |\n"
    yield _TABLE
    for requirement in REQUIREMENTS:
        marks = ["yes" if verdicts[requirement.number, name] else "no" for name in NAMES]
        cells = (requirement.number, requirement.part, requirement.words, *marks)
        yield f"| {' | '.join(cells)} |\n"
    yield _TAIL


def read() -> dict[tuple[str, str], bool]:
    """Return what the page says."""
    verdicts: dict[tuple[str, str], bool] = {}
    for match in _ROW.finditer(PAGE.read_text()):
        for name in NAMES:
            verdicts[match["number"], name] = match[name] == "yes"
    return verdicts
