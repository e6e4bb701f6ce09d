"""`python -m tests.differential.corpus DIR`: p4c's own v1model programs on both switches.

DIR is `testdata/p4_16_samples` of a p4c checkout (default: `P4C_TESTDATA`). These programs were not
written for this: many read headers that are not valid or variables that nobody assigned, and there
BMv2 shows what an earlier packet left (see `catalogue`). So what is printed is a list to look
through, not a verdict. Each packet that makes a difference is tried again alone, in a BMv2 that has
seen none before: what remains then is worth a look.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from finsy.proto import p4i
from google.protobuf import text_format  # type: ignore[import-untyped]
from rich.console import Console
from rich.progress import track

from tests.differential.bmv2 import COMMAND, Bmv2Target, installed
from tests.differential.campaign import Verdict, campaign, judge
from tests.differential.case import Case, Packets, Step
from tests.differential.catalogue import Subject
from tests.differential.soft import DeviceTarget
from tests.differential.target import Target, TargetError, run

_FLAGS = ("--std", "p4-16", "--arch", "v1model")
_RETRIED = 6
"""Packets of a case that are tried again alone."""


def sources(directory: Path) -> list[Path]:
    """Return the v1model programs of a directory."""
    return [path for path in sorted(directory.glob("*.p4")) if "v1model.p4" in path.read_text()]


def compiled(source: Path, scratch: Path) -> Subject | None:
    """Return the program, or None if p4c-bm2-ss does not compile it."""
    json, p4info = scratch / "p.json", scratch / "p.p4info.txtpb"
    command = [
        "p4c-bm2-ss",
        *_FLAGS,
        "-o",
        str(json),
        "--p4runtime-files",
        str(p4info),
        str(source),
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    described = text_format.Parse(p4info.read_text(), p4i.P4Info())
    described.ClearField("value_sets")
    described.ClearField("digests")
    return Subject(source.stem, json.read_bytes(), described)


def refusal(subject: Subject, target: Target) -> str:
    """Return the reason why a switch does not run the program, empty if it does."""
    try:
        run(target, subject, Case(subject.name, ()))
    except TargetError as error:
        return str(error)
    return ""


def alone(subject: Subject, case: Case, ours: Target, theirs: Target) -> Iterator[str]:
    """Yield the differences that each packet makes after the entries and nothing else."""
    retried = 0
    for number, step in enumerate(case.steps):
        if not isinstance(step, Packets):
            continue
        before: tuple[Step, ...] = tuple(
            s for s in case.steps[:number] if not isinstance(s, Packets)
        )
        for packet in step.packets:
            single = replace(case, steps=(*before, Packets((packet,))))
            lines = judge(subject, single, ours, theirs).differences
            retried += 1
            yield from lines
            if lines or retried >= _RETRIED:
                return


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.corpus", description=__doc__.splitlines()[0]
    )
    parser.add_argument("directory", type=Path, nargs="?", default=os.environ.get("P4C_TESTDATA"))
    parser.add_argument("--packets", type=int, default=40, help="per program (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.directory is None or not installed():
        print(
            f"needs {COMMAND}, p4c-bm2-ss and testdata/p4_16_samples of p4c (name it, or set"
            " P4C_TESTDATA)"
        )
        return 2
    counts: Counter[str] = Counter()
    ours = DeviceTarget(wait_ns=20_000)
    with tempfile.TemporaryDirectory() as scratch, Bmv2Target() as theirs:
        for source in track(
            sources(options.directory), console=Console(stderr=True), transient=True
        ):
            subject = compiled(source, Path(scratch))
            if subject is None:
                counts["not compiled"] += 1
                continue
            our_reason, their_reason = refusal(subject, ours), refusal(subject, theirs)
            if our_reason or their_reason:
                who = (
                    "neither"
                    if our_reason and their_reason
                    else "BMv2 alone"
                    if our_reason
                    else "softswitch alone"
                )
                counts[f"runs on {who}"] += 1
                if our_reason:
                    print(f"{subject.name}: runs on {who}: {our_reason[:300]}")
                continue
            counts["compared"] += 1
            for verdict in campaign(subject, options.seed, options.packets, ours, theirs):
                counts["packets"] += verdict.case.packet_count
                _report(subject, verdict, ours, theirs, counts)
    for what, count in counts.items():
        print(f"{what}: {count:,}")
    return 0


def _report(
    subject: Subject, verdict: Verdict, ours: Target, theirs: Target, counts: Counter[str]
) -> None:
    if not verdict.differences:
        return
    lines = list(alone(subject, verdict.case, ours, theirs))
    counts["cases that differ"] += 1
    counts["cases that differ with a single packet"] += bool(lines)
    for line in lines or verdict.differences[:1]:
        print(f"{subject.name}: {'' if lines else '(not alone) '}{line[:600]}")


if __name__ == "__main__":
    sys.exit(main())
