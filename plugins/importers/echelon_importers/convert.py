"""The conversion of files in another tool's format to a job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import yaml

from echelon.model.documents import MAX_DOCUMENT_BYTES, DocumentError, parse_document
from echelon.model.jobs.graph import ComputeUnit
from echelon.model.jobs.spec import JobSpec
from echelon.model.progress import UNSEEN, CommandProgress, counted
from echelon_importers.importer import Source
from echelon_importers.job_file import Placement, job_text
from echelon_importers.registry import make_importer
from echelon_importers.workload import (
    MOST_NODES,
    SPREAD,
    TooLargeError,
    Workload,
    contracted,
    merged,
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A job file, and the workload that it describes."""

    text: str
    workload: Workload


def convert(
    format_name: str,
    sources: Sequence[Source],
    job: str,
    *,
    hosts: Sequence[str] = (),
    ranks_per_host: int = 1,
    merge: bool = False,
    measured: bool = False,
    options: Mapping[str, object] | None = None,
    progress: CommandProgress = UNSEEN,
) -> Conversion:
    """Return the job file of a workload in the format of that name.

    Without `hosts`, they are h1, h2, ...: as many as the ranks need. `merge` joins runs of the same
    collective. `measured` says that times of computing were measured, so that none means none;
    otherwise a file without is refused. `options` are those of the format, as values of YAML.
    `progress` is told of the steps. Raises `DocumentError`.
    """
    settings = {"ranks_per_host": ranks_per_host, **(options or {})}
    if hosts:
        settings["ranks"] = len(hosts) * ranks_per_host
    importer = make_importer(format_name, settings)
    source = sources[0].name
    progress.stage(f"translating {counted(len(sources), 'file')} of {format_name}")
    try:
        workload = contracted(importer.read(sources))
    except TooLargeError:
        raise _too_large(source, f"makes a job of more than {MOST_NODES} nodes") from None
    if not measured:
        _check_computing(source, importer.options.computing, workload)
    _note_silence(workload)
    if merge:
        workload = merged(workload)
    if workload.ranks % ranks_per_host:
        reason = (
            f"has {workload.ranks} ranks, not a multiple of {ranks_per_host} (change"
            " --ranks-per-host)"
        )
        raise DocumentError(source, "", reason, code="wrong-length")
    names = list(hosts)
    if not names:
        count = workload.ranks // ranks_per_host
        names = [f"h{number}" for number in range(1, count + 1)]
    if len(names) < 2:
        reason = "needs a job of at least two hosts (give fewer ranks per host)"
        raise DocumentError(source, "", reason, code="wrong-length")
    if not workload.nodes:
        reason = "has nothing to compute or send in what was chosen (choose another part)"
        raise DocumentError(source, "", reason)
    placement = Placement(names, ranks_per_host, importer.options.local_bandwidth)
    files = ", ".join(each.name for each in sources)
    about = [f"Imported from {files} ({format_name}).", *workload.tally.notes]
    progress.stage(f"writing {counted(len(workload.nodes), 'node')} as a job")
    text = job_text(workload, job, placement, about)
    if len(text) > MAX_DOCUMENT_BYTES:
        raise _too_large(source, f"makes a job file of more than {MAX_DOCUMENT_BYTES >> 20} MiB")
    progress.stage("checking the job")
    # Names of the job and the hosts come from the caller. What remains is a check of the importer
    # itself.
    parse_document(JobSpec, yaml.load(text, yaml.CSafeLoader), source)
    return Conversion(text, workload)


def _note_silence(workload: Workload) -> None:
    """Say that a job sends nothing, as one of a trace of a single GPU."""
    if all(isinstance(node, ComputeUnit) for node in workload.nodes):
        workload.tally.notes.append("Nothing is sent: this job needs no network.")


def _check_computing(
    source: str,
    given_s: Fraction | None,
    workload: Workload,
) -> None:
    """Raise `DocumentError` for a job that computes nothing although nobody has said so."""
    computing = [node for node in workload.nodes if isinstance(node, ComputeUnit)]
    computes = any(node.duration_s > 0 for node in computing)
    if given_s is None:
        if computes:
            return
        reason = (
            "has no times of computing, and no job computes nothing (give --computing '300 ms',"
            " what a rank computes in all, if the format is aicb, simai or astra-sim; the profile"
            " of each rank, too, if it is pytorch; or --computing '0 s': communication alone is"
            " meant)"
        )
        raise DocumentError(source, "", reason, code="missing-key")
    is_spread = workload.tally.derived[SPREAD] > 0
    is_given = given_s > 0
    if is_spread != is_given or computes != is_given:
        fault = "cannot be completed"
        remedy = "give '0 s', if communication alone is meant"
        if computes:
            fault = "has times of computing"
            remedy = "leave it out"
        reason = f"the file {fault} ({remedy})"
        raise DocumentError(source, "--computing", reason, code="conflicting-key")


def _too_large(source: str, reason: str) -> DocumentError:
    remedy = "take a part with --iterations or --layers, give fewer hosts, or --merge"
    return DocumentError(source, "", f"{reason} ({remedy})", code="too-large")
