"""Measured runs of vTrain beside what `echelon job new` says of them.

J. Bang et al., vTrain, MICRO '24 (arXiv:2312.12391): 109 runs of Megatron-DeepSpeed on 64 to 512
A100s, and 1,440 on a host, with 1F1B, full recomputation, sums of gradients behind the last pass
and 800 Gbit/s a host (VIA-Research/vTrain, data/ground_truth_multi.csv and
ground_truth_single.csv at f8dda84, and data/README.md). Attention is without FlashAttention
(src/model). The files are not in this repository.

Terms of the model were chosen on even rows, counted from 0; odd rows are for the report. Rows are
near copies of each other, so that odd rows are no independent sample: the published runs are
(`research.published_runs`).
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import correlation, fmean

from echelon.model.documents import DocumentError
from echelon_lab.models.hosts import Host
from echelon_lab.models.iteration import iteration
from echelon_lab.models.layers import Model
from echelon_lab.models.training import Training
from echelon_lab.models.transformers import transformer
from research.published_runs import A100, FULL, PER_HOST, training

VOCABULARY = 51200
HOST_BPS = 800 * 10**9
COLUMNS = (
    "# GPUs",
    "global batch",
    "micro batch",
    "hidden size",
    "attention heads",
    "# layers",
    "sequence length",
    "tensor parallelism",
    "data parallelism",
    "pipeline parallelism",
)
TIME = "iteration time (ms)"
RESAMPLED = 2000
SEED = 1
FEWEST = 5
"""Layouts of one model on the same GPUs that are worth a choice."""


@dataclass(frozen=True)
class Measured:
    """A measured run: its place in the file, what was trained, and seconds of an iteration."""

    row: int
    training: Training
    subject: tuple[int, ...]
    """What is trained on how many GPUs, whatever the layout."""
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Return how far the prediction is off, as a part of the measured time."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Errors:
    """The sizes of errors, as parts, with a 95 % interval of the mean by bootstrap."""

    count: int
    mean: float
    median: float
    ninetieth: float
    low: float
    high: float
    bias: float


@dataclass(frozen=True)
class Choices:
    """The cost of taking the layout that is predicted to be fastest."""

    groups: int
    lost: float
    """The mean time lost against the fastest measured layout, as a part of it."""
    rank_correlation: float
    """The mean of the groups' rank correlations by Spearman."""
    fastest: int
    """Groups of which the fastest layout was chosen."""


def read_runs(path: Path) -> list[Measured]:
    """Return the runs of a file of vTrain. Raises `DocumentError`."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = {*COLUMNS, TIME} - set(reader.fieldnames or ())
        if missing:
            reason = f"has no column '{min(missing)}' (give data/ground_truth_multi.csv of vTrain)"
            raise DocumentError(str(path), "", reason)
        rows = [row for row in reader if row[TIME]]
    runs = []
    for number, row in enumerate(rows):
        sizes = [int(row[column]) for column in COLUMNS]
        runs.append(_run(number, sizes, float(row[TIME]) / 1000))
    return runs


def _run(number: int, sizes: Sequence[int], measured_s: float) -> Measured:
    gpus, batch, samples, hidden, heads, layers, sequence, tensor, data, pipeline = sizes
    model_layers = transformer(layers, hidden, heads, VOCABULARY, sequence, positions=sequence)
    model = Model("gpt", "", tuple(model_layers), f"a sequence of {sequence} tokens")
    trained = training(
        model,
        A100,
        batch,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        micro_batch_samples=samples,
        overlap=False,
        **FULL,
    )
    host_gpus = min(PER_HOST, gpus)
    host = Host(host_gpus, HOST_BPS * host_gpus // PER_HOST)
    predicted_s = float(iteration(trained, host).total_s)
    subject = (gpus, batch, hidden, heads, layers, sequence)
    return Measured(number, trained, subject, measured_s, predicted_s)


def errors(runs: Sequence[Measured]) -> Errors:
    """Return how far predictions of these runs are off."""
    sizes = sorted(abs(run.error) for run in runs)
    draws = random.Random(SEED)
    means = []
    for _ in range(RESAMPLED):
        drawn = draws.choices(sizes, k=len(sizes))
        means.append(fmean(drawn))
    means.sort()
    median = quantile(sizes, 0.5)
    ninetieth = quantile(sizes, 0.9)
    low = quantile(means, 0.025)
    high = quantile(means, 0.975)
    bias = fmean(run.error for run in runs)
    return Errors(
        len(sizes),
        fmean(sizes),
        median,
        ninetieth,
        low,
        high,
        bias,
    )


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that is not below that part of sorted values."""
    index = ceil(part * len(values)) - 1
    return values[max(0, index)]


def ratios(runs: Sequence[Measured], part: float) -> tuple[float, float]:
    """Return the bounds of measured over predicted times within which that part of runs lies."""
    measured = sorted(run.measured_s / run.predicted_s for run in runs)
    outside = (1 - part) / 2
    return quantile(measured, outside), quantile(measured, 1 - outside)


def inside(runs: Sequence[Measured], bounds: tuple[float, float]) -> float:
    """Return the part of runs that took between these parts of their predictions."""
    low, high = bounds
    ratio = [run.measured_s / run.predicted_s for run in runs]
    return sum(low <= part <= high for part in ratio) / len(ratio)


def choices(runs: Sequence[Measured]) -> Choices:
    """Return what layouts chosen by prediction lose, for each model, batch and number of GPUs."""
    groups: dict[tuple[int, ...], list[Measured]] = {}
    for run in runs:
        groups.setdefault(run.subject, []).append(run)
    lost = []
    correlations = []
    for group in groups.values():
        if len(group) < FEWEST:
            continue
        fastest_s = min(run.measured_s for run in group)
        chosen = min(group, key=lambda run: run.predicted_s)
        lost.append(chosen.measured_s / fastest_s - 1)
        correlations.append(_rank_correlation(group))
    if not lost:
        return Choices(0, 0.0, 0.0, 0)
    return Choices(len(lost), fmean(lost), fmean(correlations), lost.count(0))


def _rank_correlation(group: Sequence[Measured]) -> float:
    measured = _ranks([run.measured_s for run in group])
    predicted = _ranks([run.predicted_s for run in group])
    return correlation(measured, predicted)


def _ranks(values: Sequence[float]) -> list[int]:
    """Return the rank of each value, from 0. Measured times have no ties."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0] * len(values)
    for rank, index in enumerate(order):
        ranks[index] = rank
    return ranks
