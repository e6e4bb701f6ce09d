"""`python -m bench mixes`: write scenarios as clusters have them, and measure policies on them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.mixes.clusters import (
    CLUSTERS,
    ITERATIONS,
    POLICIES,
    find_scenario,
    random_scenario,
    scenario_text,
)
from bench.mixes.measure import Measured

ROOT = Path(__file__).parents[2]
HEADS = (
    "scenario",
    "policy",
    "hosts",
    "jobs",
    "flows",
    "started",
    "settings",
    "links near",
    "us each",
    "load s",
    "plan s",
    "run s",
    "results s",
    "MB",
    "mean",
    "worst",
    "run / first",
)


def main(words: Sequence[str]) -> None:
    arguments = _parser().parse_args(words)
    if arguments.command == "write":
        _write(arguments.name, arguments.seed, arguments.out)
    else:
        _measure(arguments.names, arguments.policies, arguments.iterations, arguments.limit)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench mixes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    write = commands.add_parser("write", help="write a scenario file")
    scenario = write.add_mutually_exclusive_group(required=True)
    names = ", ".join(CLUSTERS)
    scenario.add_argument("name", nargs="?", help=f"{names}, or mix01, mix02... by seed")
    scenario.add_argument("--seed", type=int, help="of a random mix")
    write.add_argument("-o", "--out", type=Path, required=True, help="the file to write")

    measure = commands.add_parser("measure", help="print what policies take on scenarios")
    measure.add_argument("names", nargs="+", metavar="NAME", help="as above, or a scenario file")
    measure.add_argument("--policies", default=",".join(POLICIES), help="separated by commas")
    measure.add_argument("--iterations", type=int, default=ITERATIONS)
    measure.add_argument("--limit", type=float, default=600, help="seconds of each run")
    return parser


def _write(
    name: str | None,
    seed: int | None,
    out: Path,
) -> None:
    if name is not None:
        text = _named_text(name)
    else:
        assert seed is not None
        text = scenario_text(random_scenario(seed))
    out.write_text(text, encoding="utf-8")


def _named_text(name: str) -> str:
    try:
        return scenario_text(find_scenario(name))
    except KeyError:
        names = ", ".join(CLUSTERS)
        raise SystemExit(f"unknown mix '{name}' (known: {names}, mix01, mix02...)") from None


def _measure(
    names: Sequence[str],
    policies: str,
    iterations: int,
    limit_s: float,
) -> None:
    table = Table(*HEADS)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            file = Path(name)
            if file.suffix != ".yaml":
                file = Path(folder, f"{name}.yaml")
                file.write_text(_named_text(name), encoding="utf-8")
            _add_rows(table, file, policies.split(","), iterations, limit_s)
    Console(width=200).print(table)


def _add_rows(
    table: Table,
    file: Path,
    policies: Sequence[str],
    iterations: int,
    limit_s: float,
) -> None:
    """Add a row for each policy, and print it at once: a table of hours may be interrupted."""
    first: Measured | None = None
    for policy in policies:
        try:
            measured = _measure_apart(file, policy, iterations, limit_s)
        except subprocess.TimeoutExpired:
            cells = [f"not done in {limit_s:.0f} s"]
        else:
            first = first or measured
            cells = [*_cells(measured), f"{measured.run_s / first.run_s:.2f}"]
        table.add_row(file.stem, policy, *cells)
        print(file.stem, policy, *cells, file=sys.stderr, flush=True)


def _measure_apart(
    file: Path,
    policy: str,
    iterations: int,
    limit_s: float,
) -> Measured:
    """Return what a process of its own measures, whose memory is that of this run alone."""
    program = (sys.executable, "-m", "bench.mixes.measure")
    process = subprocess.run(
        (*program, str(file.resolve()), policy, str(iterations)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=limit_s,
    )
    return Measured(**json.loads(process.stdout))


def _cells(measured: Measured) -> list[str]:
    seconds = (measured.load_s, measured.plan_s, measured.run_s, measured.results_s)
    return [
        f"{measured.hosts:,}",
        f"{measured.jobs:,}",
        f"{measured.flows:,}",
        f"{measured.started:,}",
        f"{measured.settings:,}",
        f"{measured.links_near:.1f}",
        f"{measured.setting_us:.1f}",
        *(f"{length_s:.1f}" for length_s in seconds),
        f"{measured.peak_mb:.0f}",
        f"{measured.mean_slowdown:.3f}",
        f"{measured.worst_slowdown:.3f}",
    ]
