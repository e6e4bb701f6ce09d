"""`python -m tests.differential`: softswitch against BMv2, as a table of programs.

Prints, per program, how many packets and entries both switches were given, what left, and how many
differences there were. Each case with a difference is made small and written to `--save` (a
directory), ready to be kept beside the others in `counterexamples`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from zlib import crc32

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "controller")]

from rich.console import Console  # noqa: E402
from rich.progress import (  # noqa: E402
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table  # noqa: E402

from tests.differential.bmv2 import COMMAND, Bmv2Target, installed  # noqa: E402
from tests.differential.campaign import Verdict, campaign, judge  # noqa: E402
from tests.differential.case import dump  # noqa: E402
from tests.differential.catalogue import Subject, names, subject  # noqa: E402
from tests.differential.command import CommandTarget  # noqa: E402
from tests.differential.deviations import DEVIATIONS  # noqa: E402
from tests.differential.shrink import shrink  # noqa: E402
from tests.differential.soft import DeviceTarget, FabricTarget  # noqa: E402
from tests.differential.target import Target  # noqa: E402


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--packets", type=int, default=10_000, help="packets, over all programs (default 10000)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of everything that is random (default 1)"
    )
    parser.add_argument(
        "--program", action="append", choices=names(), help="only this program; repeatable"
    )
    parser.add_argument(
        "--against", choices=("bmv2", "fabric"), default="bmv2", help="the other switch"
    )
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="our side is the command softswitch, with Unix sockets for ports",
    )
    parser.add_argument(
        "--save", type=Path, metavar="DIR", help="write a small form of each failing case there"
    )
    parser.add_argument(
        "--show", type=int, default=3, help="differences shown per program (default 3)"
    )
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.against == "bmv2" and not installed():
        print(
            f"{COMMAND} is not on the PATH: install BMv2, or compare with the virtual fabric"
            " (--against fabric)"
        )
        return 2
    chosen = [subject(name) for name in options.program or names()]
    share = -(-options.packets // len(chosen))
    table = Table(
        "program", "packets", "updates", "out", "differences", "s", title=f"seed {options.seed}"
    )
    failures: list[tuple[Subject, Verdict]] = []
    totals = [0, 0, 0, 0]
    # A packet takes some time from thread to thread in BMv2, and programs can see whether it took
    # any.
    device = DeviceTarget(wait_ns=20_000 if options.against == "bmv2" else 0)
    command = CommandTarget()
    ours: Target = command if options.real_time else device
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    bmv2 = Bmv2Target()
    theirs: Target = bmv2 if options.against == "bmv2" else FabricTarget()
    with (
        bmv2,
        command,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        task = progress.add_task("", total=share * len(chosen))
        for program in chosen:
            progress.update(task, description=program.name)
            row = [0, 0, 0, 0]
            began = time.monotonic()
            for verdict in campaign(program, options.seed, share, ours, theirs):
                counts = verdict.case.packet_count, verdict.case.update_count, verdict.packets_out
                for i, count in enumerate((*counts, len(verdict.differences))):
                    row[i] += count
                    totals[i] += count
                if verdict.differences:
                    failures.append((program, verdict))
                progress.advance(task, verdict.case.packet_count)
            table.add_row(program.name, *(f"{n:,}" for n in row), f"{time.monotonic() - began:.1f}")
        table.add_section()
        table.add_row(f"{len(chosen)} programs", *(f"{n:,}" for n in totals), "")
        Console().print(table)
        for program, verdict in failures[: None if options.save else 20]:
            for line in verdict.differences[: options.show]:
                print(f"{program.name}: {line}")
            if options.save:
                _save(options.save, program, verdict, ours, theirs)
    print("Meant to differ, and not counted:")
    for deviation in DEVIATIONS:
        print(f"  {deviation.what}: {deviation.why}")
    return 1 if failures else 0


def _save(
    directory: Path, program: Subject, verdict: Verdict, ours: Target, theirs: Target
) -> None:
    small = shrink(verdict.case, lambda case: bool(judge(program, case, ours, theirs).differences))
    result = judge(program, small, ours, theirs)
    if result.theirs is None:
        print(f"{program.name}: not saved, one switch fails: {result.differences[:1]}")
        return
    directory.mkdir(parents=True, exist_ok=True)
    text = dump(small, result.theirs, result.differences[0])
    path = directory / f"{program.name}_{crc32(text.encode()):08x}.json"
    path.write_text(text)
    print(f"{program.name}: {path}: {result.differences[0]}")


if __name__ == "__main__":
    sys.exit(main())
