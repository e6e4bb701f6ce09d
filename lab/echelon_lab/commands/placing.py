"""`echelon place`: the ranks of jobs on hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.tables import AsJson, Column, show, show_json
from echelon.cli.usage import BAD_INPUT, FAILED, fail

if TYPE_CHECKING:
    from echelon_lab.placement.choose import PlacedScenario
    from echelon_lab.scenarios.scenario import PolicyChoice


ScenarioArgument = Annotated[
    Path,
    typer.Argument(
        help="The scenario file.",
        metavar="SCENARIO.yaml",
    ),
]
CandidatesOption = Annotated[
    int,
    typer.Option(
        help="Number of drawn placements among which the best is sought, too.",
        min=0,
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        help="Also run each placement under this policy on the fluid engine.",
        metavar="POLICY",
    ),
]
ChooseOption = Annotated[
    str,
    typer.Option(help="The placement for --out: given, packed, spread, rail-aligned or best."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write the scenario with this placement, next to the scenario's file.",
    ),
]


def place(
    scenario: ScenarioArgument,
    candidates: CandidatesOption = 10,
    run: RunOption = None,
    choose: ChooseOption = "best",
    out: OutOption = None,
    as_json: AsJson = False,
) -> None:
    """Show what each placement of the jobs' ranks on hosts would cost each job.

    Example: echelon place scenario.yaml --run echelon -o placed.yaml
    """
    from echelon.model.documents import DocumentError
    from echelon.model.errors import RunError
    from echelon.planning.policies import PlanError
    from echelon_lab.commands.runs import policy_choice

    try:
        choice = None
        if run is not None:
            choice = policy_choice(run)
        _place(scenario, candidates, choice, choose, out, as_json)
    except (DocumentError, PlanError) as error:
        fail(str(error), BAD_INPUT)
    except RunError as error:
        fail(f"{scenario}: {error}", FAILED)
    except OSError as error:
        fail(
            f"--out: {error.filename or out}: {error.strerror or error} (name a file to write)",
            BAD_INPUT,
        )


def _place(
    file: Path,
    candidates: int,
    choice: PolicyChoice | None,
    chosen: str,
    out: Path | None,
    as_json: bool,
) -> None:
    from echelon.model.documents import DocumentError, suggestion
    from echelon_lab.placement.choose import place_jobs
    from echelon_lab.scenarios.scenario import load_scenario

    progress = ShownProgress()
    with progress:
        progress.stage(f"reading {file.name}")
        placed = {}
        for candidate in place_jobs(load_scenario(file), candidates, progress):
            placed[candidate.name] = candidate
    if chosen not in placed:
        reason = f"unknown placement '{chosen}' ({suggestion(chosen, placed)})"
        raise DocumentError("--choose", "", reason)
    measured_s = None
    if choice is not None:
        with progress:
            measured_s = _measured_s(placed, choice, progress)
    if out is not None:
        _write(file, out, placed[chosen])
    if as_json:
        show_json([_plain(candidate, measured_s) for candidate in placed.values()])
        return
    _show(placed, None if choice is None else choice.label, measured_s or {})
    if out is not None:
        typer.echo(out)


def _measured_s(
    placed: Mapping[str, PlacedScenario],
    choice: PolicyChoice,
    progress: ShownProgress,
) -> dict[tuple[str, str], float]:
    """Return the mean seconds of an iteration, by placement and job."""
    from echelon_lab.run import simulate

    progress.stage("running the placements", len(placed), "placements")
    measured_s = {}
    for name, candidate in placed.items():
        progress.doing(f"running {choice.label} on placement {name}")
        for outcome in simulate(candidate.scenario, [choice]):
            measured_s[name, outcome.job] = outcome.mean_iteration_s
        progress.done()
    return measured_s


def _show(
    placed: Mapping[str, PlacedScenario],
    policy: str | None,
    measured_s: Mapping[tuple[str, str], float],
) -> None:
    from echelon_lab.placement.choose import rows

    titles = ("racks", "alone", "slowdown", "iteration", "change")
    columns = [Column("placement"), Column("job")]
    columns += [Column(title, right=True) for title in titles]
    if policy is not None:
        columns.append(Column(policy, right=True))
    texts = []
    for name, job, racks, alone_s, slowdown, iteration_s, change in rows([*placed.values()]):
        cells = [
            name,
            job,
            str(racks),
            f"{alone_s:.4g} s",
            f"{slowdown:.3f}",
            f"{iteration_s:.4g} s",
            f"{change:+.1f} %",
        ]
        if policy is not None:
            cells.append(f"{measured_s[name, job]:.4g} s")
        texts.append(cells)
    show(columns, texts, "")
    for name, candidate in placed.items():
        utilisation = candidate.predicted.utilisation
        typer.echo(f"{name}: {utilisation:.4g} workers computing, on average, as predicted")


def _plain(
    placed: PlacedScenario, measured_s: Mapping[tuple[str, str], float] | None
) -> dict[str, object]:
    """Return a placement with its costs, as `--json` prints it."""
    jobs = []
    for name, cost in placed.predicted.jobs.items():
        workers = placed.scenario.specs[name].workers
        job = {"job": name, "workers": workers, **asdict(cost)}
        if measured_s is not None:
            job["measured_iteration_s"] = measured_s[placed.name, name]
        jobs.append(job)
    return {"placement": placed.name, "utilisation": placed.predicted.utilisation, "jobs": jobs}


def _write(
    scenario: Path,
    out: Path,
    placed: PlacedScenario,
) -> None:
    """Write the scenario's document with other workers.

    Files that it names are relative to it, so it stays where it is. Raise `DocumentError` for
    another directory.
    """
    import yaml

    from echelon.model.documents import DocumentError, read_document

    if out.resolve().parent != scenario.resolve().parent:
        reason = (
            "is in another directory than the scenario, whose files are relative to it (write it"
            " next to that)"
        )
        raise DocumentError("--out", str(out), reason)
    document = read_document(scenario)
    listed = document["jobs"]
    jobs = []
    for job in listed if isinstance(listed, list) else []:
        if isinstance(job, str):
            section = read_document(scenario.parent / job)
        else:
            section = dict(job)
        workers = placed.scenario.specs[str(section["job"])].workers
        jobs.append({**section, "workers": list(workers)})
    document["jobs"] = jobs
    out.write_text(
        yaml.safe_dump(
            document,
            sort_keys=False,
            width=110,
        ),
        encoding="utf-8",
    )
