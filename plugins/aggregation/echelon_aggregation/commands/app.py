"""`echelon aggregation`: what the jobs of a scenario gain, and comparisons with other ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from echelon.cli import completion, tables
from echelon.cli.calls import on_service
from echelon.cli.progress import ShownProgress
from echelon.cli.tables import Column
from echelon.cli.usage import BAD_INPUT, FAILED, CommandGroup, fail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from echelon.controller.client import Client
    from echelon_aggregation.planning import Gain
    from echelon_aggregation.virtual import Outcome

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Aggregation in the network: what jobs gain, and how it compares.",
)

_GAINS = (
    Column("job", wraps=True),
    Column("root", lambda of: ", ".join(of.roots), wraps=True),
    Column(
        "places",
        lambda of: ", ".join("none" if one is None else str(one.mask + 1) for one in of.grants),
    ),
    Column("ring alone", lambda of: f"{of.ring_alone_s:.4g} s", right=True),
    Column("alone", lambda of: f"{of.alone_s:.4g} s", right=True),
    Column("ring together", lambda of: f"{of.ring_shared_s:.4g} s", right=True),
    Column("together", lambda of: f"{of.shared_s:.4g} s", right=True),
    Column("faster by", lambda of: f"{of.gain:.2f}", right=True),
)


@app.command()
def plan(
    scenario: Annotated[
        Path, typer.Argument(help="A scenario whose jobs aggregate in the network.", metavar="FILE")
    ],
    policy: Annotated[
        str,
        typer.Option(help="Who gets memory, and how much there is.", metavar="NAME(KEY=VALUE,...)"),
    ] = "aggregation",
    as_json: tables.AsJson = False,
) -> None:
    """Show what each job of a scenario gets and gains against rings; run and change nothing.

    Example: echelon aggregation plan jobs.yaml --policy 'aggregation(by=share,places=1024)'
    """
    from echelon.model.documents import DocumentError
    from echelon.planning.fluid import FluidError
    from echelon.planning.plan import PlanError
    from echelon.planning.policies.registry import make_policy
    from echelon_aggregation.planning import gains
    from echelon_aggregation.policy import Aggregation
    from echelon_lab.commands.runs import policy_choice
    from echelon_lab.scenarios.scenario import load_scenario

    try:
        loaded = load_scenario(scenario)
        choice = policy_choice(policy)
        made = make_policy(choice.name, **dict(choice.parameters))
        if not isinstance(made, Aggregation):
            fail(
                f"--policy: '{choice.name}' gives no memory of switches (use 'aggregation')",
                BAD_INPUT,
            )
        found = gains([loaded.specs[job.name] for job in loaded.jobs], loaded.fabric, made)
    except (DocumentError, PlanError) as error:
        fail(str(error), BAD_INPUT)
    except FluidError as error:
        fail(str(error), FAILED)
    if as_json:
        tables.show_json([_document(gain) for gain in found])
    else:
        tables.show_all(
            _GAINS,
            found,
            f"no job of {scenario} aggregates in the network ('collective: in-network' does)",
        )


def _document(of: Gain) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(of), "gain": of.gain}


@app.command()
def compare(
    what: Annotated[
        Literal["rate", "memory", "shared"],
        typer.Argument(
            help=(
                "rate: the data per worker, by the number of workers. memory: several jobs with"
                " memory for half of "
                "them. shared: training times and short flows in one cluster."
            )
        ),
    ],
    draws: Annotated[int, typer.Option(help="How many random sets of jobs.", min=1)] = 10,
    as_json: tables.AsJson = False,
) -> None:
    """Compare aggregation in the network with rings and others, as fluids; print tables in Markdown.

    Example: echelon aggregation compare memory --draws 3
    """
    from echelon_aggregation import comparison

    progress = ShownProgress()
    with progress:
        match what:
            case "rate":
                made = comparison.rates()
            case "memory":
                made = comparison.memory(draws, progress.stage)
            case "shared":
                made = [comparison.shared_cluster(draws, progress.stage)]
    if as_json:
        tables.show_json(made)
    else:
        typer.echo("\n\n".join(table.markdown() for table in made))


@app.command()
@on_service
def group(
    client: Client,
    name: Annotated[
        str,
        typer.Argument(help="A registered job.", metavar="NAME", autocompletion=completion.jobs),
    ],
    tree: Annotated[int, typer.Option(help="Which of the job's trees, from 1.", min=1)] = 1,
    wire: Annotated[
        str, typer.Option(help="The interface of the workers' hosts.", metavar="INTERFACE")
    ] = "eth0",
) -> None:
    """Print the file of a job's group, which ECHELON_AGGREGATION names to the job's workers.

    The numbers are those of this registration: to train again, remove the job and register it anew.

    Example: echelon aggregation group resnet --wire ens1
    """
    import yaml

    job = client.job(name)
    if tree > len(job.trees):
        reason = job.problem or f"it is {job.state}, and has {len(job.trees)} trees"
        fail(f"job {name} has no tree {tree}: {reason}", BAD_INPUT)
    told = dict(job.trees[tree - 1])
    told["workers"] = [
        {"wire": wire, **{key: of for key, of in worker.items() if key != "host"}}
        for worker in told["workers"]
    ]
    typer.echo(yaml.safe_dump(told, sort_keys=False, default_flow_style=None).rstrip())


_LOSSES = (0.0, 0.0001, 0.001, 0.01)
_LONGER = 8
"""The factor by which sums on links that lose packets are longer than the others."""
_OUTCOMES = (
    Column("way"),
    Column("workers", right=True),
    Column("values", lambda of: f"{of.values:,}", right=True),
    Column("loss", lambda of: f"{of.loss:.2%}", right=True),
    Column("time", lambda of: f"{float(of.seconds) * 1e6:,.0f} µs", right=True),
    Column("rate of each worker", lambda of: f"{float(of.rate_bps) / 1e9:.2f} Gbit/s", right=True),
    Column("lost", right=True),
    Column("sent again", lambda of: of.sent_again, right=True),
    Column("sums", lambda of: "exact" if of.exact else "WRONG"),
)


@app.command()
def demo(
    most: Annotated[
        int, typer.Option("--workers", help="The largest number of workers.", min=2, max=32)
    ] = 16,
    values: Annotated[
        int, typer.Option(help="The number of values of each worker.", min=1024)
    ] = 4096,
    as_json: tables.AsJson = False,
) -> None:
    """Add up the values of 2, 4, 8... workers on one switch, packet by packet in virtual time and without root.

    The switch runs the P4 program. A parameter server and a ring do the same on the same links of
    10 Gbit/s with packets of the same size; then the network does it on links that lose packets.
    The rate is that of a worker's values until all have the sums; headers are not counted.

    Example: echelon aggregation demo --workers 4
    """
    from echelon.model.errors import RunError

    progress = ShownProgress()
    try:
        with progress:
            outcomes = list(_outcomes(most, values, progress))
    except RunError as error:
        fail(str(error), FAILED)
    if as_json:
        tables.show_json([{**_fields(of), "rate_bps": float(of.rate_bps)} for of in outcomes])
    else:
        tables.show_all(_OUTCOMES, outcomes)
    if not all(outcome.exact for outcome in outcomes):
        fail("not all sums are exact", FAILED)


def _outcomes(most: int, values: int, progress: ShownProgress) -> Iterator[Outcome]:
    from echelon_aggregation.virtual import VALUES, Installer, around_ring, in_network

    values -= values % (32 * VALUES)
    with Installer() as install:
        for workers in (2, 4, 8, 16, 32):
            if workers <= most:
                progress.doing(f"{workers} workers")
                yield in_network(install, workers, values)
                yield in_network(install, workers, values, memory=False)
                yield around_ring(install, workers, values)
        for loss in _LOSSES:
            progress.doing(f"links that lose {loss:.2%} of packets")
            yield in_network(install, min(most, 4), _LONGER * values, loss)


def _fields(of: Outcome) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(of), "seconds": float(of.seconds)}
