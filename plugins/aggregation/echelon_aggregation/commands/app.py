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
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from echelon.controller.client import Client
    from echelon_aggregation.memory import Grant
    from echelon_aggregation.planning import Gain
    from echelon_aggregation.virtual import Installer, Outcome

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Aggregation in the network: what jobs gain, and how it compares.",
)

_GAINS = (
    Column("job", wraps=True),
    Column("root", lambda job: ", ".join(job.roots), wraps=True),
    Column("places", lambda job: ", ".join(map(_places, job.grants))),
    Column("ring alone", lambda job: f"{job.ring_alone_s:.4g} s", right=True),
    Column("alone", lambda job: f"{job.alone_s:.4g} s", right=True),
    Column("ring together", lambda job: f"{job.ring_shared_s:.4g} s", right=True),
    Column("together", lambda job: f"{job.shared_s:.4g} s", right=True),
    Column("faster by", lambda job: f"{job.gain:.2f}", right=True),
)


def _places(grant: Grant | None) -> str:
    if grant is None:
        return "none"
    return str(grant.mask + 1)


@app.command()
def plan(
    scenario: Annotated[
        Path,
        typer.Argument(
            help="A scenario whose jobs aggregate in the network.",
            metavar="FILE",
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            help="Who gets memory, and how much there is.",
            metavar="NAME(KEY=VALUE,...)",
        ),
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
        chosen = make_policy(choice.name, **dict(choice.parameters))
        if not isinstance(chosen, Aggregation):
            fail(
                f"--policy: '{choice.name}' gives no memory of switches (use 'aggregation')",
                BAD_INPUT,
            )
        specs = [loaded.specs[job.name] for job in loaded.jobs]
        all_gains = gains(specs, loaded.fabric, chosen)
    except (DocumentError, PlanError) as error:
        fail(str(error), BAD_INPUT)
    except FluidError as error:
        fail(str(error), FAILED)
    if as_json:
        documents = [_document(gain) for gain in all_gains]
        tables.show_json(documents)
        return
    nothing = f"no job of {scenario} aggregates in the network ('collective: in-network' does)"
    tables.show_all(_GAINS, all_gains, nothing)


def _document(gain: Gain) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(gain), "gain": gain.gain}


@app.command()
def compare(
    topic: Annotated[
        Literal["rate", "memory", "shared"],
        typer.Argument(
            help=(
                "rate: the data per worker, by the number of workers. memory: several jobs with"
                " memory for half of "
                "them. shared: training times and short flows in one cluster."
            ),
            metavar="what",
        ),
    ],
    draws: Annotated[
        int,
        typer.Option(
            help="How many random sets of jobs.",
            min=1,
        ),
    ] = 10,
    as_json: tables.AsJson = False,
) -> None:
    """Compare aggregation in the network with rings and others, as fluids; print tables in Markdown.

    Example: echelon aggregation compare memory --draws 3
    """
    from echelon_aggregation import comparison

    progress = ShownProgress()
    with progress:
        match topic:
            case "rate":
                compared = comparison.rates()
            case "memory":
                compared = comparison.memory(draws, progress.stage)
            case "shared":
                compared = [comparison.shared_cluster(draws, progress.stage)]
    if as_json:
        tables.show_json(compared)
        return
    pages = [table.markdown() for table in compared]
    typer.echo("\n\n".join(pages))


@app.command()
@on_service
def group(
    client: Client,
    name: Annotated[
        str,
        typer.Argument(
            help="A registered job.",
            metavar="NAME",
            autocompletion=completion.jobs,
        ),
    ],
    tree: Annotated[
        int,
        typer.Option(
            help="Which of the job's trees, from 1.",
            min=1,
        ),
    ] = 1,
    wire: Annotated[
        str,
        typer.Option(
            help="The interface of the workers' hosts.",
            metavar="INTERFACE",
        ),
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
    document = dict(job.trees[tree - 1])
    document["workers"] = [_member(worker, wire) for worker in document["workers"]]
    text = yaml.safe_dump(
        document,
        sort_keys=False,
        default_flow_style=None,
    )
    typer.echo(text.rstrip())


def _member(worker: Mapping[str, object], wire: str) -> dict[str, object]:
    """Return a worker as the group's file lists it, with its wire instead of its host."""
    member = {"wire": wire, **worker}
    del member["host"]
    return member


_LOSSES = (0.0, 0.0001, 0.001, 0.01)
_LONGER = 8
"""The factor by which runs with lost packets have more values than the others."""
_OUTCOMES = (
    Column("way"),
    Column("workers", right=True),
    Column("values", lambda outcome: f"{outcome.values:,}", right=True),
    Column("loss", lambda outcome: f"{outcome.loss:.2%}", right=True),
    Column("time", lambda outcome: f"{float(outcome.seconds) * 1e6:,.0f} µs", right=True),
    Column("rate of each worker", lambda outcome: _gbps(outcome.rate_bps), right=True),
    Column("lost", right=True),
    Column("sent again", lambda outcome: outcome.sent_again, right=True),
    Column("sums", lambda outcome: "exact" if outcome.exact else "WRONG"),
)


def _gbps(rate_bps: Fraction) -> str:
    return f"{float(rate_bps) / 1e9:.2f} Gbit/s"


@app.command()
def demo(
    most: Annotated[
        int,
        typer.Option(
            "--workers",
            help="The largest number of workers.",
            min=2,
            max=32,
        ),
    ] = 16,
    values: Annotated[
        int,
        typer.Option(
            help="The number of values of each worker.",
            min=1024,
        ),
    ] = 4096,
    as_json: tables.AsJson = False,
) -> None:
    """Add up the values of 2, 4, 8... workers on one switch, in virtual time and without root.

    The switch runs the P4 program packet by packet. A parameter server and a ring add up the same
    values over the same links of 10 Gbit/s, with packets of the same size. The last rows show the
    switch with links that lose packets. The rate is a worker's values, without headers, over the
    time until all workers have the sums.

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
        tables.show_json([_fields(outcome) for outcome in outcomes])
    else:
        tables.show_all(_OUTCOMES, outcomes)
    if not all(outcome.exact for outcome in outcomes):
        fail("not all sums are exact", FAILED)


def _outcomes(
    most: int,
    values: int,
    progress: ShownProgress,
) -> Iterator[Outcome]:
    from echelon_aggregation.virtual import VALUES, Installer, in_network

    # Each of up to 32 workers of a ring has the same number of full packets.
    values -= values % (32 * VALUES)
    with Installer() as install:
        for workers in (2, 4, 8, 16, 32):
            if workers <= most:
                progress.doing(f"{workers} workers")
                yield from _three_ways(install, workers, values)
        few = min(most, 4)
        for loss in _LOSSES:
            progress.doing(f"links that lose {loss:.2%} of packets")
            yield in_network(install, few, _LONGER * values, loss)


def _three_ways(
    install: Installer,
    workers: int,
    values: int,
) -> Iterator[Outcome]:
    from echelon_aggregation.virtual import around_ring, in_network

    yield in_network(install, workers, values)
    yield in_network(install, workers, values, memory=False)
    yield around_ring(install, workers, values)


def _fields(outcome: Outcome) -> dict[str, object]:
    from dataclasses import asdict

    fields = asdict(outcome)
    fields["seconds"] = float(outcome.seconds)
    fields["rate_bps"] = float(outcome.rate_bps)
    return fields
