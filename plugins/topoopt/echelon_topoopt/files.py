"""The files of a result: its fabric, a job of parallelism `graph`, and a scenario."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from echelon.model.fabric.load import FabricSpec, fabric_text
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon.model.quantities import duration_text, size_text

_WIDTH = 118

StepsOnHosts = tuple[str, Sequence[str], Sequence[Step]]
"""The name of a job, its hosts by rank, and its steps."""


def write_files(
    out: Path,
    fabric: FabricSpec,
    jobs: Sequence[StepsOnHosts],
    about: str,
) -> list[Path]:
    """Write a result into the directory `out` and return the files.

    Raises `OSError`.
    """
    out.mkdir(parents=True, exist_ok=True)
    texts = {"fabric.yaml": fabric_text(fabric, about)}
    for name, hosts, steps in jobs:
        texts[f"{name}.yaml"] = job_text(name, hosts, steps, about)
    named = ", ".join(f"{name}.yaml" for name, _, _ in jobs)
    texts["scenario.yaml"] = (
        f"# {about}\nscenario: topology\nfabric: fabric.yaml\njobs: [{named}]\npolicies:"
        " [topoopt]\niterations: 3\ntransport: {packet: 9000 B}\n"
    )
    files = [out / name for name in texts]
    for file in files:
        file.write_text(texts[file.name], encoding="utf-8")
    return files


def job_text(
    name: str,
    hosts: Sequence[str],
    steps: Sequence[Step],
    about: str,
) -> str:
    """Return the job file with these steps, rank r on host r.

    Durations are rounded to picoseconds.
    """
    workers = textwrap.wrap(
        f"workers: [{', '.join(hosts)}]",
        _WIDTH,
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    lines = [f"# {about}", f"job: {name}", "parallelism: graph", *workers, "graph:", "  nodes:"]
    lines += [f"    - {_node(step)}" for step in steps]
    return "".join(f"{line}\n" for line in lines)


def _node(step: Step) -> str:
    match step:
        case ComputeUnit():
            keys = (
                f"rank: {step.worker}, compute: {duration_text(Fraction(step.duration_s))}, kind:"
                f" {step.kind}"
            )
        case Flow():
            keys = f"send: [{step.src}, {step.dst}], bytes: {size_text(step.size_bytes)}"
        case CollectiveStep():
            keys = f"collective: {step.operation}, group: [{', '.join(step.group)}]"
            if step.matrix is not None:
                rows = ", ".join(map(_matrix_row, step.matrix))
                keys += f", matrix: [{rows}]"
            elif step.operation != "barrier":
                keys += f", bytes: {size_text(step.size_bytes)}"
            if step.algorithm:
                keys += f", algorithm: {step.algorithm}"
            if step.rounds:
                keys += ", steps: rounds"
    if step.micro_batch is not None:
        keys += f", micro_batch: {step.micro_batch}"
    if step.after:
        keys += f", after: [{', '.join(step.after)}]"
    return f"{{name: {step.name}, {keys}}}"


def _matrix_row(row: Sequence[int]) -> str:
    sizes = [size_text(size) if size else "0" for size in row]
    return f"[{', '.join(sizes)}]"
