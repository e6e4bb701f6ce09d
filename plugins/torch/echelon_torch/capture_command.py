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
from echelon_torch.injecting import with_hook

if TYPE_CHECKING:
    from echelon_torch.capture.record import RankRecord


Command = Annotated[
    list[str] | None,
    typer.Argument(
        help="The command that trains, unchanged, behind --.",
        metavar="-- COMMAND...",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="The directory for records, traces and the summary.",
        metavar="DIRECTORY",
    ),
]
JobFile = Annotated[
    Path | None,
    typer.Option(
        help="A job file to write as well, as echelon import does.",
        metavar="JOB.yaml",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        help="The iterations to record.",
        min=1,
        max=10_000,
    ),
]
Skip = Annotated[
    int,
    typer.Option(
        help="The iterations before those, which are not recorded.",
        min=0,
    ),
]
Records = Annotated[
    bool,
    typer.Option("--records", help="Run nothing: describe the records that are in the directory."),
]
ForAgent = Annotated[
    bool,
    typer.Option(
        "--for-agent",
        help="Have the job file ask for agents, with the idle gap between iterations.",
    ),
]
RanksPerHost = Annotated[
    int | None,
    typer.Option(
        help=(
            "How many consecutive ranks of the job file a host has (default: as they were"
            " recorded)."
        ),
        min=1,
        metavar="NUMBER",
    ),
]


def capture(
    command: Command = None,
    out: Out = Path("capture"),
    job: JobFile = None,
    iterations: Iterations = 10,
    skip: Skip = 3,
    records: Records = False,
    for_agent: ForAgent = False,
    ranks_per_host: RanksPerHost = None,
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
        is_partial = not records and error.code == "wrong-length"
        if not status and not is_partial:
            status = 2
        fail(str(error), status)
    if as_json:
        show_json(described)
    else:
        _say(out, described)
    raise typer.Exit(status)


def _run(
    command: Sequence[str],
    out: Path,
    iterations: int,
    skip: int,
) -> int:
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
    environment = {
        **with_hook(os.environ),
        "ECHELON_CAPTURE_OUT": str(out.resolve()),
        "ECHELON_CAPTURE_ITERATIONS": str(iterations),
        "ECHELON_CAPTURE_SKIP": str(skip),
    }
    arguments = [program, *command[1:]]
    try:
        # What the command prints is no part of the result.
        ended = subprocess.run(
            arguments,
            env=environment,
            stdout=2,
            check=False,
        )
    except OSError as error:
        fail(f"{program}: {error.strerror or error} (give a program that runs)")
    return ended.returncode % 256


def _describe(
    out: Path,
    job: Path | None,
    for_agent: bool,
    ranks_per_host: int | None,
) -> dict[str, Any]:
    from echelon_torch.capture import iterations
    from echelon_torch.capture.record import read_records
    from echelon_torch.capture.summary import summary
    from echelon_torch.capture.traces import trace_files

    records = read_records(out)
    profile = iterations.profile(records)
    files = trace_files(profile)
    described = summary(records, profile)
    recognition = ""
    if ranks_per_host is None:
        ranks_per_host = _ranks_per_host(records)
    if for_agent:
        recognition, described["iterations_told_by"] = _recognition(records, ranks_per_host)

    text = json.dumps(described, indent=1) + "\n"
    _write(out, {**files, "summary.json": text.encode()})
    if job is not None:
        _write_job(job, files, records, described, recognition, ranks_per_host)
    return {"directory": out, "job": job, **described}


def _ranks_per_host(records: Sequence[RankRecord]) -> int:
    """Return how many ranks each host had; 1 if all ranks were on one host, which stands for
    many.
    """
    hosts = [record.host for record in records]
    count = len(set(hosts))
    if count == 1:
        return 1
    per_host = len(hosts) // count
    for rank, host in enumerate(hosts):
        if host != hosts[rank // per_host * per_host]:
            return 1
    return per_host


def _recognition(records: Sequence[RankRecord], ranks_per_host: int) -> tuple[str, str]:
    """Return the line of a job file by which agents report the job's connections, and by what
    iterations are told.
    """
    from fractions import Fraction

    from echelon.model.quantities import duration_text
    from echelon_torch.capture import silences

    measured = silences.silences(records, ranks_per_host)
    if measured.gap_s is not None:
        gap = duration_text(Fraction(round(measured.gap_s * 10**5), 10**5))
        return f"recognition: {{by: agent, idle_gap: {gap}}}\n", f"silences of {gap}"
    # Silent for longer than any iteration lasts.
    gap = duration_text(Fraction(round(measured.iteration_s * 10**3) + 1, 10**3))
    between_ms = measured.between_s * 1e3
    within_ms = measured.within_s * 1e3
    why = (
        f"bytes, since no silence tells them apart (as little as {between_ms:.3g} ms between two,"
        f" and up to {within_ms:.3g} ms within one): what the program sends beyond its file moves"
        f" their borders until it is silent for {gap}, and a Tofino sees no iterations of it"
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
    from echelon_importers import Source
    from echelon_importers.command import job_name
    from echelon_importers.convert import convert

    backends: set[str] = set()
    for record in records:
        backends.update(group.backend for group in record.groups.values())
    # Gloo copies what it sends; others wait for the receiver.
    transfers = "buffered" if backends <= {"gloo"} else "rendezvous"
    conversion = convert(
        "chakra",
        [Source(name, data) for name, data in files.items()],
        job_name(job),
        ranks_per_host=ranks_per_host,
        measured=True,
        options={"transfers": transfers},
    )
    about = "".join(f"# {line}\n" for line in _about(described))
    text = about + conversion.text + recognition
    _write(job.parent, {job.name: text.encode()})


def _about(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paradigms, and how times and sizes vary."""
    for each in described["paradigms"]:
        yield f"{each['paradigm']}: {each['because']}"
    busy = _busy(described)
    if busy is not None:
        yield f"Note: {busy}."
    yield (
        f"Of {described['iterations']} iterations, the times are those of the median one. Medians"
        " (p10 to p90):"
    )
    for each in described["by_rank"]:
        iteration = _range(each["iteration_s"], 1000)
        computing = _range(each["compute_s"], 1000)
        yield f"  rank {each['rank']}: {iteration} ms, of which {computing} ms computing"
    for kind, ranks, times, size, took in _operation_rows(described["operations"]):
        duration = f", {took} ms" if took else ""
        yield f"  {kind} of ranks {ranks}, {times} times: {size} kB{duration}"


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
    late = []
    for each in described["by_rank"]:
        waited_s = each["without_processor_s"]["median"]
        iteration_s = each["iteration_s"]["median"]
        if waited_s > _BUSY * iteration_s:
            late.append(
                f"rank {each['rank']} {waited_s * 1e3:.4g} of {iteration_s * 1e3:.4g} ms"
                f" ({waited_s / iteration_s:.0%})"
            )
    if not late:
        return None
    ranks = "; ".join(late[:_NAMED])
    if len(late) > _NAMED:
        ranks += f" and {len(late) - _NAMED} more ranks"
    return (
        f"the machine was busy: of an iteration, ranks waited for a processor: {ranks}. The times"
        " are too long by about as much (capture where nothing else runs, or with a higher"
        " priority)"
    )


def _say(out: Path, described: Mapping[str, Any]) -> None:
    different = described["other_iterations"]
    left_out = f"; {different} others are left out" if different else ""
    typer.echo(
        f"{out}: {described['iterations']} iterations that are alike on {described['ranks']} ranks,"
        f" by {described['found_by']}{left_out}"
    )
    if "iterations_told_by" in described:
        typer.echo(f"  switches tell iterations apart by {described['iterations_told_by']}")
    for each in described["paradigms"]:
        typer.echo(f"  {each['paradigm']}: {each['because']}")
    if not described["paradigms"]:
        typer.echo("  no paradigm: the graph says all that is known")
    busy = _busy(described)
    if busy is not None:
        typer.echo(f"  {busy}")
    if described["devices"] != ["cpu"]:
        typer.echo(
            "  computing is that of the hosts, since devices compute on their own (record the"
            " profiler's trace, and import it: echelon import pytorch)"
        )
    rank_rows = list(map(_rank_row, described["by_rank"]))
    show(_RANK_COLUMNS, rank_rows, "no ranks")
    show(_OPERATION_COLUMNS, _operation_rows(described["operations"]), "no operations")


_RANK_COLUMNS = (
    Column("rank"),
    Column("iteration, ms", right=True),
    Column("computing, ms", right=True),
    Column("waiting, ms", right=True),
)
_OPERATION_COLUMNS = (
    Column("operation"),
    Column("ranks"),
    Column("times", right=True),
    Column("kB", right=True),
    Column("ms", right=True),
)


def _rank_row(times: Mapping[str, Any]) -> tuple[str, ...]:
    spreads = (times["iteration_s"], times["compute_s"], times["wait_s"])
    return str(times["rank"]), *(_range(spread, 1000) for spread in spreads)


def _operation_rows(operations: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for all operations of a kind, of the same ranks, with as many bytes."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in operations:
        key = (each["kind"], tuple(each["ranks"]), each["bytes"]["median"])
        groups.setdefault(key, []).append(each)

    rows: list[tuple[str, ...]] = []
    for (kind, ranks, _), group in groups.items():
        size = _widest([each["bytes"] for each in group])
        took_s = _widest([each["took_s"] for each in group if each["took_s"]])
        members = ", ".join(map(str, ranks))
        times = str(len(group))
        rows.append((kind, members, times, _range(size, 0.001), _range(took_s, 1000)))
    return rows


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
    scaled = [spread[key] * factor for key in ("median", "p10", "p90")]
    median, low, high = (f"{value:.4g}" for value in scaled)
    if low == high:
        return median
    return f"{median} ({low} to {high})"
