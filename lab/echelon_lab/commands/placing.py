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


def place(
    scenario: Annotated[Path, typer.Argument(help="The scenario file.", metavar="SCENARIO.yaml")],
    candidates: Annotated[
        int,
        typer.Option(help="Number of drawn placements among which the best is sought, too.", min=0),
    ] = 10,
    run: Annotated[
        str | None,
        typer.Option(
            help="Also run each placement under this policy on the fluid engine.", metavar="POLICY"
        ),
    ] = None,
    choose: Annotated[
        str,
        typer.Option(help="The placement for --out: given, packed, spread, rail-aligned or best."),
    ] = "best",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write the scenario with this placement, next to the scenario's file.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what each placement of the jobs' ranks on hosts would cost each job.

    Example: echelon place scenario.yaml --run echelon -o placed.yaml
    """
    from echelon.model.documents import DocumentError, suggestion
    from echelon.model.errors import RunError
    from echelon.planning.policies import PlanError
    from echelon_lab.commands.runs import policy_choice
    from echelon_lab.placement.choose import place_jobs, rows
    from echelon_lab.run import simulate
    from echelon_lab.scenarios.scenario import load_scenario

    try:
        choice = None if run is None else policy_choice(run)
        progress = ShownProgress()
        with progress:
            progress.stage(f"reading {scenario.name}")
            placed = place_jobs(load_scenario(scenario), candidates, progress)
        names = [of.name for of in placed]
        if choose not in names:
            raise DocumentError(
                "--choose", "", f"unknown placement '{choose}' ({suggestion(choose, names)})"
            )
        measured: dict[tuple[str, str], float] = {}
        if choice is not None:
            with progress:
                progress.stage("running the placements", len(placed), "placements")
                for of in placed:
                    progress.doing(f"running {choice.label} on placement {of.name}")
                    for outcome in simulate(of.scenario, [choice]):
                        measured[of.name, outcome.job] = outcome.mean_iteration_s
                    progress.done()
        if out is not None:
            _write(scenario, out, next(of for of in placed if of.name == choose))
        if as_json:
            show_json([_plain(of, None if choice is None else measured) for of in placed])
            return
        titles = ("racks", "alone", "slowdown", "iteration", "change")
        columns = [
            Column("placement"),
            Column("job"),
            *(Column(title, right=True) for title in titles),
        ]
        if choice is not None:
            columns.append(Column(choice.label, right=True))
        texts = []
        for name, job, racks, alone_s, slowdown, iteration_s, change in rows(placed):
            cells = (
                str(racks),
                f"{alone_s:.4g} s",
                f"{slowdown:.3f}",
                f"{iteration_s:.4g} s",
                f"{change:+.1f} %",
            )
            ran = (f"{measured[name, job]:.4g} s",) if choice is not None else ()
            texts.append((name, job, *cells, *ran))
        show(columns, texts, "")
        for of in placed:
            typer.echo(
                f"{of.name}: {of.predicted.utilisation:.4g} workers computing, on average, as"
                " predicted"
            )
        if out is not None:
            typer.echo(out)
    except (DocumentError, PlanError) as error:
        fail(str(error), BAD_INPUT)
    except RunError as error:
        fail(f"{scenario}: {error}", FAILED)
    except OSError as error:
        fail(
            f"--out: {error.filename or out}: {error.strerror or error} (name a file to write)",
            BAD_INPUT,
        )


def _plain(
    placed: PlacedScenario, measured: Mapping[tuple[str, str], float] | None
) -> dict[str, object]:
    """Return a placement with its costs, as `--json` prints it."""
    jobs = []
    for name, cost in placed.predicted.jobs.items():
        if measured is None:
            ran = {}
        else:
            ran = {"measured_iteration_s": measured[placed.name, name]}
        jobs.append(
            {"job": name, "workers": placed.scenario.specs[name].workers, **asdict(cost), **ran}
        )
    return {"placement": placed.name, "utilisation": placed.predicted.utilisation, "jobs": jobs}


def _write(scenario: Path, out: Path, placed: PlacedScenario) -> None:
    """Write the scenario's document with other workers. Files that it names are relative to it, so
    it stays where it is. Raise `DocumentError` for another directory."""
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
        jobs.append(
            {**section, "workers": list(placed.scenario.specs[str(section["job"])].workers)}
        )
    document["jobs"] = jobs
    out.write_text(yaml.safe_dump(document, sort_keys=False, width=110), encoding="utf-8")
