"""`echelon capture`: what the ranks of a PyTorch job send and compute, as execution traces and a
job file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli.tables import AsJson, Column, show, show_json
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from echelon_torch.capture.record import RankRecord


def capture(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="The command that trains, unchanged, behind --.",
            metavar="-- COMMAND...",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The directory for records, traces and the summary.",
            metavar="DIRECTORY",
        ),
    ] = Path("capture"),
    job: Annotated[
        Path | None,
        typer.Option(
            help="A job file to write as well, as echelon import does.", metavar="JOB.yaml"
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(help="The iterations to record.", min=1, max=10_000)
    ] = 10,
    skip: Annotated[
        int, typer.Option(help="The iterations before those, which are not recorded.", min=0)
    ] = 3,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Run nothing: describe the records that are in the directory."
        ),
    ] = False,
    for_agent: Annotated[
        bool,
        typer.Option(
            "--for-agent",
            help="Have the job file ask for agents, with the idle gap between iterations.",
        ),
    ] = False,
    ranks_per_host: Annotated[
        int | None,
        typer.Option(
            help=(
                "How many consecutive ranks of the job file a host has (default: as they were"
                " recorded)."
            ),
            min=1,
            metavar="NUMBER",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a training command, and write what its ranks send and compute in an iteration as Chakra traces.

    The script needs no change. The status is that of the command if it fails.

    Example: echelon capture --job ddp.yaml -- torchrun --nproc-per-node 2 examples/torch/ddp.py
    """
    from echelon.model.documents import DocumentError

    if records == bool(command):
        fail(
            "echelon capture: give a command behind --, or --records (for example -- torchrun"
            " train.py)"
        )
    if for_agent and job is None:
        fail("echelon capture: --for-agent is for a job file (give --job, too)")
    if records:
        status = 0
    else:
        status = _run(command or [], out, iterations, skip)
    try:
        described = _describe(out, job, for_agent, ranks_per_host)
    except DocumentError as error:
        # Ranks on other hosts leave their records there.
        partial = not records and error.code == "wrong-length"
        fail(str(error), status if status or partial else 2)
    if as_json:
        show_json(described)
    else:
        _say(out, described)
    raise typer.Exit(status)


def _run(command: Sequence[str], out: Path, iterations: int, skip: int) -> int:
    """Return the status of the command, whose processes record themselves in `out`."""
    program = shutil.which(command[0])
    if program is None:
        fail(
            f"echelon capture: {command[0]} is not a program here (check the name, or give its"
            " path)"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("rank-*.json"):
            old.unlink()
    except OSError as error:
        fail(f"{out}: {error.strerror or error} (choose another directory for --out)")
    before = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_injected()), *([before] if before else [])]),
        "ECHELON_CAPTURE_OUT": str(out.resolve()),
        "ECHELON_CAPTURE_ITERATIONS": str(iterations),
        "ECHELON_CAPTURE_SKIP": str(skip),
    }
    try:
        # What the command prints is no part of the result.
        return (
            subprocess.run(
                [program, *command[1:]], env=environment, stdout=2, check=False
            ).returncode
            % 256
        )
    except OSError as error:
        fail(f"{program}: {error.strerror or error} (give a program that runs)")


def _injected() -> Path:
    """Return the directory whose `sitecustomize` observes Python processes."""
    return Path(__file__).parent / "injected"


def _describe(
    out: Path, job: Path | None, for_agent: bool, ranks_per_host: int | None
) -> dict[str, Any]:
    from echelon_torch.capture.iterations import profile
    from echelon_torch.capture.record import read_records
    from echelon_torch.capture.summary import summary
    from echelon_torch.capture.traces import trace_files

    records = read_records(out)
    found = profile(records)
    files = trace_files(found)
    described = summary(records, found)
    recognition = ""
    each = ranks_per_host or _ranks_per_host(records)
    if for_agent:
        recognition, described["iterations_told_by"] = _recognition(records, each)
    _write(out, {**files, "summary.json": (json.dumps(described, indent=1) + "\n").encode()})
    if job is not None:
        _write_job(job, files, records, described, recognition, each)
    return {"directory": out, "job": job, **described}


def _ranks_per_host(records: Sequence[RankRecord]) -> int:
    """Return how many ranks each host had; 1 if all ranks were on one host, which stands for
    many.
    """
    hosts = [record.host for record in records]
    each = len(hosts) // len(set(hosts))
    spread = len(set(hosts)) > 1 and all(
        hosts[at] == hosts[at // each * each] for at in range(len(hosts))
    )
    return each if spread else 1


def _recognition(records: Sequence[RankRecord], ranks_per_host: int) -> tuple[str, str]:
    """Return the line of a job file by which agents report the job's connections, and by what
    iterations are told.
    """
    from fractions import Fraction

    from echelon.model.quantities import duration_text
    from echelon_torch.capture.silences import silences

    found = silences(records, ranks_per_host)
    if found.gap_s is not None:
        gap = duration_text(Fraction(round(found.gap_s * 10**5), 10**5))
        return f"recognition: {{by: agent, idle_gap: {gap}}}\n", f"silences of {gap}"
    gap = duration_text(Fraction(round(found.iteration_s * 10**3) + 1, 10**3))
    why = (
        f"bytes, since no silence tells them apart (as little as {found.between_s * 1e3:.3g} ms"
        f" between two, and up to {found.within_s * 1e3:.3g} ms within one): what the program sends"
        f" beyond its file moves their borders until it is silent for {gap}, and a Tofino sees no"
        " iterations of it"
    )
    return f"recognition: {{by: agent, idle_gap: {gap}, iterations: bytes}}\n", why


def _write_job(
    job: Path,
    files: Mapping[str, bytes],
    records: Sequence[RankRecord],
    described: Mapping[str, Any],
    recognition: str,
    ranks_per_host: int,
) -> None:
    from dataclasses import replace

    from echelon_importers import Source
    from echelon_importers.command import job_name
    from echelon_importers.convert import convert

    gloo = all(group.backend == "gloo" for record in records for group in record.groups.values())
    made = convert(
        "chakra",
        [Source(name, data) for name, data in files.items()],
        job_name(job),
        ranks_per_host=ranks_per_host,
        measured=True,
        options={"transfers": "buffered" if gloo else "rendezvous"},
    )
    about = "".join(f"# {line}\n" for line in _about(described))
    made = replace(made, text=about + made.text + recognition)
    _write(job.parent, {job.name: made.text.encode()})


def _about(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paradigms, and how times and sizes vary."""
    for each in described["paradigms"]:
        yield f"{each['paradigm']}: {each['because']}"
    if (busy := _busy(described)) is not None:
        yield f"Note: {busy}."
    yield (
        f"Of {described['iterations']} iterations, the times are those of the median one. Medians"
        " (p10 to p90):"
    )
    for each in described["by_rank"]:
        iteration, computing = (_range(each[key], 1000) for key in ("iteration_s", "compute_s"))
        yield f"  rank {each['rank']}: {iteration} ms, of which {computing} ms computing"
    for kind, ranks, times, size, took in _operation_rows(described["operations"]):
        yield f"  {kind} of ranks {ranks}, {times} times: {size} kB" + (
            f", {took} ms" if took else ""
        )


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        try:
            (directory / name).write_bytes(data)
        except OSError as error:
            fail(f"{directory / name}: {error.strerror or error} (choose another place)")


_NAMED = 4
_BUSY = 0.05
"""The part of an iteration without a processor from which on a capture is called one on a busy
machine.
"""


def _busy(described: Mapping[str, Any]) -> str | None:
    """Return a warning, with figures, if ranks had to wait for processors."""
    by_rank = described["by_rank"]
    times = [
        (each["rank"], each["without_processor_s"]["median"], each["iteration_s"]["median"])
        for each in by_rank
    ]
    late = [(rank, waited_s, all_s) for rank, waited_s, all_s in times if waited_s > _BUSY * all_s]
    if not late:
        return None
    said = "; ".join(
        f"rank {rank} {waited_s * 1e3:.4g} of {all_s * 1e3:.4g} ms ({waited_s / all_s:.0%})"
        for rank, waited_s, all_s in late[:_NAMED]
    )
    if len(late) > _NAMED:
        more = f" and {len(late) - _NAMED} more ranks"
    else:
        more = ""
    return (
        f"the machine was busy: of an iteration, ranks waited for a processor: {said}{more}. The"
        " times are too long by about as much (capture where nothing else runs, or with a higher"
        " priority)"
    )


def _say(out: Path, described: Mapping[str, Any]) -> None:
    others = described["other_iterations"]
    typer.echo(
        f"{out}: {described['iterations']} iterations that are alike on {described['ranks']} ranks,"
        f" by {described['found_by']}" + (f"; {others} others are left out" if others else "")
    )
    if "iterations_told_by" in described:
        typer.echo(f"  switches tell iterations apart by {described['iterations_told_by']}")
    for each in described["paradigms"] or [
        {"paradigm": "no paradigm", "because": "the graph says all that is known"}
    ]:
        typer.echo(f"  {each['paradigm']}: {each['because']}")
    if (busy := _busy(described)) is not None:
        typer.echo(f"  {busy}")
    if described["devices"] != ["cpu"]:
        typer.echo(
            "  computing is that of the hosts, since devices compute on their own (record the"
            " profiler's trace, and import it: echelon import pytorch)"
        )
    show(
        (
            Column("rank"),
            *(Column(f"{what}, ms", right=True) for what in ("iteration", "computing", "waiting")),
        ),
        [
            (
                str(each["rank"]),
                *(_range(each[key], 1000) for key in ("iteration_s", "compute_s", "wait_s")),
            )
            for each in described["by_rank"]
        ],
        "no ranks",
    )
    show(
        (
            Column("operation"),
            Column("ranks"),
            Column("times", right=True),
            Column("kB", right=True),
            Column("ms", right=True),
        ),
        list(_operation_rows(described["operations"])),
        "no operations",
    )


def _operation_rows(operations: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for all operations of a kind, of the same ranks, with as many bytes."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in operations:
        groups.setdefault((each["kind"], tuple(each["ranks"]), each["bytes"]["median"]), []).append(
            each
        )
    return [
        (
            kind,
            ", ".join(map(str, ranks)),
            str(len(found)),
            _range(_widest([each["bytes"] for each in found]), 0.001),
            _range(_widest([each["took_s"] for each in found if each["took_s"]]), 1000),
        )
        for (kind, ranks, _), found in groups.items()
    ]


def _widest(spreads: Sequence[Mapping[str, float]]) -> Mapping[str, float] | None:
    """Return the mean of the medians, the lowest p10 and the highest p90."""
    if not spreads:
        return None
    return {
        "median": sum(each["median"] for each in spreads) / len(spreads),
        "p10": min(each["p10"] for each in spreads),
        "p90": max(each["p90"] for each in spreads),
    }


def _range(spread: Mapping[str, float] | None, factor: float) -> str:
    """Return the median, and p10 to p90 where they differ from it."""
    if spread is None:
        return ""
    median, low, high = (f"{spread[key] * factor:.4g}" for key in ("median", "p10", "p90"))
    if low == high:
        return median
    return f"{median} ({low} to {high})"
