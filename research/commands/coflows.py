"""`python -m research coflows`: a trace of coflows under several policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import tables
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import BAD_INPUT, fail
from echelon_lab.commands.runs import policy_choice

if TYPE_CHECKING:
    from echelon.planning.policies.coflows import CoflowPolicy
    from echelon_lab.scenarios.scenario import PolicyChoice
    from research.coflow_replay import CoflowReplay

POLICIES = ["varys", "aalo", "sincronia", "fair"]


def coflows(
    trace: Annotated[
        Path,
        typer.Argument(
            help="A file in the format of coflow-benchmark.",
            metavar="TRACE.txt",
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Run this policy, e.g. varys or 'aalo(share=weighted)'; repeatable. Default:"
                f" {', '.join(POLICIES)}."
            )
        ),
    ] = None,
    rate: Annotated[
        str,
        typer.Option(
            help="Rate of each port of the switch, in each direction.",
            metavar="RATE",
        ),
    ] = "1 Gbit/s",
    interval: Annotated[
        str,
        typer.Option(
            help=(
                "Time from one decision to the next, unless a coflow arrives, is finished or"
                " changes its queue. "
                "0 s: decide whenever a flow is finished."
            ),
            metavar="TIME",
        ),
    ] = "0 s",
    as_json: tables.AsJson = False,
) -> None:
    """Replay a trace of coflows on one big switch, and print how long coflows take under each policy.

    Example: python -m research coflows FB2010-1Hr-150-0.txt --policy varys --policy fair
    """
    from echelon.model.documents import DocumentError
    from echelon.model.quantities import QuantityError, duration_s, rate_bps
    from echelon_lab.traffic.coflow_trace import load_trace

    progress = ShownProgress()
    try:
        with progress:
            progress.stage(f"reading {trace.name}")
            read = load_trace(trace)
        choices = list(dict.fromkeys(policy_choice(text) for text in policy or POLICIES))
        policies = [(choice.label, _policy(choice)) for choice in choices]
    except DocumentError as error:
        fail(str(error), BAD_INPUT)
    try:
        port_bps = rate_bps(rate)
        interval_s = float(duration_s(interval))
    except QuantityError as error:
        fail(f"--rate, --interval: {error}", BAD_INPUT)
    from research.coflow_replay import replay

    replays = {}
    with progress:
        progress.stage("replaying", len(read.coflows) * len(policies), "coflows")
        for label, coflow_policy in policies:
            progress.doing(label)
            replays[label] = replay(read, coflow_policy, port_bps, interval_s, progress)
    if as_json:
        tables.show_json(replays)
        return
    columns = [tables.Column("policy")]
    columns += (tables.Column(title, right=True) for title in _TITLES)
    rows = [(label, *_row(result)) for label, result in replays.items()]
    tables.show(columns, rows, "")


def _policy(choice: PolicyChoice) -> CoflowPolicy:
    from echelon.model.documents import DocumentError
    from echelon.planning.policies import make_policy
    from echelon.planning.policies.coflows import CoflowPolicy

    policy = make_policy(choice.name, **dict(choice.parameters))
    if not isinstance(policy, CoflowPolicy):
        raise DocumentError(
            "--policy",
            "",
            f"policy '{choice.name}' is not one of coflows (try {', '.join(POLICIES)})",
        )
    return policy


_TITLES = ("coflows", "mean", "median", "95 %", "99 %", "longest", "all done after", "decisions")


def _row(result: CoflowReplay) -> tuple[str, ...]:
    took_s = sorted(result.completion_s.values())

    def least_of(part: float) -> str:
        """Return the time within which that part of the coflows is finished."""
        if not took_s:
            return "-"
        count = -int(-part * len(took_s) // 1)
        time_s = took_s[max(0, count - 1)]
        return f"{time_s:.3f} s"

    mean = f"{sum(took_s) / len(took_s):.3f} s" if took_s else "-"
    parts = [least_of(part) for part in (0.5, 0.95, 0.99, 1.0)]
    return (str(len(took_s)), mean, *parts, f"{result.end_s:.3f} s", str(result.decisions))
