"""`python -m bench ladder`: what each limit of the data plane costs.

A plan runs on the fluid model, and from packets on rung after rung: each takes one limit away, or
tells switches what they cannot know. The first table has the mean slowdown of the jobs from packets
above that on the fluid model: of each scenario, unless there are many, in the mean over those with
one link, those with fabrics and all, and of the worst. The second has the bytes that ports served
while a packet of a flow that was more urgent at that moment waited there. Only flows that the plan
ranks relative to others have such an urgency: under policies with fixed queues it is 0. Ports with
another order serve acknowledgements before data; their queues are one, so that all they serve too
early counts as of the same queue.

Rungs whose names begin with "tofino" go down instead: each adds limits of Tofino's program to the
data plane as it is. One table has the mean slowdown of the jobs with a limit and without it, in the
scenarios with flows that the limit can concern.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.ladder.laboratory import (
    HALVES,
    LineStore,
    Origin,
    PolicyChoice,
    SweepError,
    Task,
    code_digest,
    scenario_digest,
    sweep,
)
from bench.ladder.measure import measure
from bench.ladder.rungs import AS_IT_IS, RUNGS, TOFINO_RUNGS, Rung, rung_named
from bench.ladder.scenarios import name_of, scenario_in_draw, seeds
from bench.ladder.tables import Measurement, Text, tables
from echelon.cli.progress import ShownProgress
from echelon.model.documents import DocumentError
from echelon.planning.policies import PolicyChoiceError

_FOLDER = Path(__file__).parent
SCENARIOS = 6
DRAWS = 3
ITERATIONS = 20
_WIDTH = 200
_NAME_COLUMNS = 16


def main(words: Sequence[str]) -> None:
    parser = _parser()
    arguments = parser.parse_args(words)
    try:
        policies = [PolicyChoice.parse(text) for text in arguments.policy or ["echelon"]]
        rungs = _rungs(arguments.rungs, parser)
        if arguments.tofino:
            rungs = TOFINO_RUNGS
        origins: list[Origin] = [*map(str, arguments.files)]
        if not origins:
            origins += seeds(arguments.half, arguments.scenarios)
        cases = _cases(origins, arguments.draws, policies, rungs, arguments.iterations)
    except (DocumentError, PolicyChoiceError) as error:
        parser.error(str(error))

    kept = arguments.out.with_suffix(".jsonl")
    try:
        measurements = _measured(cases, kept, arguments.processes)
    except SweepError as error:
        sys.exit(str(error))
    _write(arguments.out, measurements, rungs)
    for table in tables(measurements, rungs):
        _print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench ladder",
        description=__doc__,
        epilog=_rungs_in_words(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="scenario files")
    parser.add_argument(
        "--scenarios",
        type=int,
        default=SCENARIOS,
        help="without files: how many are drawn, two with a fabric for each single link",
    )
    parser.add_argument(
        "--half",
        choices=HALVES,
        default="report",
        help="of the seeds: tune to change the data plane by, report for what it costs then",
    )
    parser.add_argument("--draws", type=int, default=DRAWS, help="of the starts of jobs")
    parser.add_argument("--policy", action="append", help="repeatable (default: echelon)")
    parser.add_argument(
        "--rungs",
        help='names, separated by commas (default: all that do not begin with "tofino")',
    )
    parser.add_argument(
        "--tofino",
        action="store_true",
        help="the same as --rungs with all that do",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS,
        help="the length of a run, in iterations of the slowest job alone",
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("out/ladder.json"),
        help="results; what is measured is kept beside it, so that the command can continue",
    )
    return parser


def _rungs_in_words() -> str:
    lines = ["rungs:"]
    _, *limited = TOFINO_RUNGS
    for rung in (*RUNGS, *limited):
        lines.append(f"  {rung.name:<{_NAME_COLUMNS}} {rung.title}")
    window = "window-N-ack-M"
    lines.append(f"  {window:<{_NAME_COLUMNS}} any window, and an ack for M packets at most")
    return "\n".join(lines)


def _rungs(names: str | None, parser: argparse.ArgumentParser) -> Sequence[Rung]:
    if names is None:
        return RUNGS
    try:
        rungs = [rung_named(name) for name in names.split(",")]
    except KeyError as error:
        parser.error(f"unknown rung {error} (--help names those that there are)")
    # A limit costs what the product does not.
    has_limits = any(rung.limits for rung in rungs)
    if has_limits and AS_IT_IS not in rungs:
        rungs.insert(0, AS_IT_IS)
    return rungs


_Case = tuple[Task, str, int, str]
"""A measurement, with the scenario, the draw and the policy."""


def _cases(
    origins: Sequence[Origin],
    draws: int,
    policies: Sequence[PolicyChoice],
    rungs: Sequence[Rung],
    iterations: int,
) -> list[_Case]:
    own_files = sorted(_FOLDER.glob("*.[chp]*"))
    # Figures of another data plane must not be taken for those of this one.
    code = code_digest(*own_files, packets=True)
    settings = {"rungs": [asdict(rung) for rung in rungs], "iterations": iterations, "code": code}
    cases = []
    for origin in origins:
        scenario = name_of(origin)
        for draw_number in range(draws):
            drawn = scenario_in_draw(origin, draw_number)
            digest = scenario_digest(drawn)
            for policy in policies:
                name = f"{scenario}, draw {draw_number}, {policy.label}"
                identity = {"scenario": digest, "policy": policy.label, **settings}
                work = partial(measure, origin, draw_number, policy, rungs, iterations)
                task = Task(name, identity, work)
                cases.append((task, scenario, draw_number, policy.label))
    return cases


def _measured(
    cases: Sequence[_Case],
    kept: Path,
    processes: int,
) -> list[Measurement]:
    """Return the measurements, of which those in the file `kept` are not made again."""
    tasks = [task for task, *_ in cases]
    store = LineStore(kept)
    # A process of its own takes a second to start, which a short ladder need not wait for.
    workers = 0
    if processes > 1:
        workers = processes
    with ShownProgress() as progress:
        points = sweep(tasks, store, workers, progress)
    measurements = []
    for task, scenario, draw_number, policy in cases:
        result = points[task.name].result
        measurement = Measurement(scenario, draw_number, policy, result)
        measurements.append(measurement)
    return measurements


def _write(
    out: Path,
    measurements: Sequence[Measurement],
    rungs: Sequence[Rung],
) -> None:
    document = {
        "rungs": [asdict(rung) for rung in rungs],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f"{json.dumps(document, indent=2)}\n", encoding="utf-8")


def read(out: Path) -> list[Text]:
    """Return the tables of results that the command has written."""
    document = json.loads(out.read_text(encoding="utf-8"))
    rungs = [Rung(**rung) for rung in document["rungs"]]
    measurements = [Measurement(**row) for row in document["measurements"]]
    return tables(measurements, rungs)


def _print(text: Text) -> None:
    table = Table(*text.head, title=text.title, title_justify="left")
    for row in text.rows:
        table.add_row(*row)
    Console(width=_WIDTH).print(table)
