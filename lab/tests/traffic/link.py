"""A link of 50 Mbit/s between two network namespaces, and the load that replayed schedules achieve
on it.

Run as root: ``python -m lab.tests.traffic.link`` prints a table for loads from 10 to 90 % of the
link. The work is done by a second process in a sandbox, in which the namespaces are and with which
they end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from echelon_lab.hosts import sandbox

LINK_BPS = 50_000_000
ECHELON = (sys.executable, "-m", "echelon", "traffic")
SENDER, RECEIVER = ("ip", "netns", "exec", "sender"), ("ip", "netns", "exec", "receiver")

LINK = f"""\
ip netns add sender
ip netns add receiver
ip link add vs netns sender type veth peer name vr netns receiver
ip -n sender addr add 10.0.0.1/24 dev vs
ip -n receiver addr add 10.0.0.2/24 dev vr
ip -n sender link set lo up
ip -n sender link set vs up
ip -n receiver link set vr up
tc -n sender qdisc add dev vs root tbf rate {LINK_BPS}bit burst 32kb limit 200kb
"""


@dataclass(frozen=True)
class Case:
    model: str
    load_bps: int
    seconds: int
    options: Sequence[str] = ()
    """The options of `echelon traffic send`."""
    before: str = ""
    """A command to run in the sender's namespace."""


def measured(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return the reports of `echelon traffic send --json` on each case, from a sandbox."""
    with TemporaryDirectory() as directory:
        plan, out = Path(directory, "cases.json"), Path(directory, "out.json")
        plan.write_text(json.dumps([asdict(case) for case in cases]))
        status = sandbox.run_inside(
            [sys.executable, str(Path(__file__)), "--inside", str(plan), str(out)]
        )
        if status:
            raise RuntimeError(f"the replay ended with status {status}")
        reports: list[dict[str, Any]] = json.loads(out.read_text())
        return reports


def _inside(plan: Path, out: Path) -> None:
    for line in LINK.splitlines():
        subprocess.run(line.split(), check=True)
    cases = [Case(**case) for case in json.loads(plan.read_text())]
    with _receiving():
        out.write_text(json.dumps([_report(case, plan.parent) for case in cases]))


def _report(case: Case, directory: Path) -> dict[str, Any]:
    if case.before:
        subprocess.run([*SENDER, "sh", "-c", case.before], check=True)
    file = str(directory / "schedule.csv")
    scale = [] if case.model == "long" else ["--size-scale", "0.01"]
    about = [
        "--load",
        f"{case.load_bps}bit/s",
        "--duration",
        f"{case.seconds}s",
        "--src",
        "a",
        "--dst",
        "b",
    ]
    subprocess.run(
        [*ECHELON, "generate", case.model, *about, *scale, "-o", file],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    send = [
        "send",
        file,
        "--from",
        "a",
        "--host",
        "a=10.0.0.1",
        "--host",
        "b=10.0.0.2",
        "--json",
        *case.options,
    ]
    done = subprocess.run([*SENDER, *ECHELON, *send], check=True, stdout=subprocess.PIPE)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def _receiving() -> Iterator[None]:
    command = [*RECEIVER, *ECHELON, "receive", "--listen", "10.0.0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            assert receiver.stdout.readline().startswith("receiving at"), (
                "the receiver has not started"
            )
            yield
        finally:
            receiver.terminate()


def _table(models: Sequence[str], seconds: int) -> None:
    print(
        f"link {LINK_BPS / 1e6:g} Mbit/s; loads in Mbit/s of payload, {seconds} s each; times in ms"
    )
    heads = {
        "requested": 9,
        "offered": 9,
        "achieved": 9,
        "error": 7,
        "mean": 8,
        "99 %": 8,
        "late 99 %": 9,
    }
    print(f"{'model':>10}", *(f"{head:>{width}}" for head, width in heads.items()))
    cases = [
        Case(model, LINK_BPS * tenths // 10, seconds) for model in models for tenths in range(1, 10)
    ]
    for case, report in zip(cases, measured(cases), strict=True):
        achieved, late = report["achieved_bps"], report["lateness_s"]["p99"]
        numbers = (case.load_bps / 1e6, report["offered_bps"] / 1e6, achieved / 1e6)
        times = (report["mean_completion_s"] * 1e3, report["p99_completion_s"] * 1e3)
        print(
            f"{case.model:>10}",
            *(f"{number:9.2f}" for number in numbers),
            f"{achieved / case.load_bps - 1:+7.2%}",
            *(f"{time:8.2f}" for time in times),
            f"{'-' if late is None else format(late * 1e3, '.2f'):>9}",
            flush=True,
        )


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "models", nargs="*", default=["consistent"], help="of traffic; default: consistent"
    )
    parser.add_argument("--seconds", type=int, default=6, help="length of each schedule")
    parser.add_argument("--inside", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        _inside(*arguments.inside)
    else:
        _table(arguments.models, arguments.seconds)


if __name__ == "__main__":
    _main()
