"""Published training runs beside what `echelon job new` says of them: `python -m
research.published_runs`.

Nothing is fitted to the runs: each constant was published or counted
(`echelon_lab.models.iteration` and what it imports). Runs on up to `HOSTS` hosts are also executed:
the job file, alone, as a fluid on one switch whose links have what NICs carry of their rate.

Sources: **Megatron-LM**, Narayanan et al., SC '21, table 1 (arXiv:2104.04473), whose TFLOP/s are
seconds by its equation 3; **MT-NLG**, Smith et al., arXiv:2201.11990, section 2.4; **BLOOM**, Le
Scao et al., arXiv:2211.05100, section 3.4, 150 TFLOP/s by the same equation; **selective**,
Korthikanti et al., MLSys '23, table 5 (arXiv:2205.05198); **Llama 3**, Grattafiori et al.,
arXiv:2407.21783, table 4, with 6 operations a parameter and token, and with as many chunks as put
one layer into each, which the paper does not say; **torchtitan**,
benchmarks/llama3_h100_202412_torchtitan.md, table 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

import echelon
from echelon.model.documents import parse_document
from echelon.model.jobs.spec import JobSpec
from echelon_lab.models.catalogue import find_model
from echelon_lab.models.gpus import GPUS, Gpu
from echelon_lab.models.hosts import NIC_SHARE, Host
from echelon_lab.models.iteration import iteration
from echelon_lab.models.job_file import job_file
from echelon_lab.models.layers import Model
from echelon_lab.models.training import Training
from echelon_lab.models.transformers import transformer

PER_HOST = 8
HOSTS = 64
STEPS = 60_000
"""Passes and flows of a job that is executed, at most."""


@dataclass(frozen=True)
class Run:
    """A run, its published time of an iteration, and the rate of each GPU's NIC."""

    name: str
    source: str
    training: Training
    published_s: float
    nic_bps: int = 200 * 10**9


def gpt(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int = 51200,
    positions: int = 2048,
) -> Model:
    """Return a GPT as in Megatron-LM's papers, with a padded vocabulary."""
    model_layers = transformer(layers, hidden, heads, vocabulary, 2048, positions=positions)
    return Model("gpt", "", tuple(model_layers), "a sequence of 2048 tokens")


def megatron_s(
    layers: int,
    hidden: int,
    batch: int,
    gpus: int,
    tflops: float,
    vocabulary: int = 51200,
) -> float:
    """Return the seconds of an iteration that reaches so many TFLOP/s on each GPU.

    The paper's formula counts recomputation (SC '21, equation 3).
    """
    inner = 1 + 2048 / (6 * hidden) + vocabulary / (16 * layers * hidden)
    operations = 96 * batch * 2048 * layers * hidden**2 * inner
    return operations / (tflops * 1e12 * gpus)


def training(
    model: Model,
    gpu: Gpu,
    batch: int,
    **shape: Any,
) -> Training:
    """Return a training with a global batch."""
    efficiency = shape.pop("efficiency", gpu.efficiency)
    samples = shape.get("data", 1) * shape.get("micro_batch_samples", 1)
    return Training(
        model,
        gpu,
        micro_batches=batch // samples,
        efficiency=efficiency,
        **shape,
    )


A100 = GPUS["A100"]
H100 = GPUS["H100"]
# Layers, hidden, heads, batch, GPUs, tp, pp, micro-batch, chunks and TFLOP/s: SC '21, table 1.
# Micro-batch, chunks and whether DDP overlaps sums are from examples/sc21/run_table_1.sh.
SC21 = {
    "GPT 1.7B": (24, 2304, 24, 512, 32, 1, 1, 16, 1, 137),
    "GPT 7.5B": (36, 4096, 32, 512, 128, 4, 1, 16, 1, 142),
    "GPT 18.4B": (40, 6144, 48, 1024, 256, 8, 1, 8, 1, 135),
    "GPT 39.1B": (48, 8192, 64, 1536, 512, 8, 2, 4, 1, 138),
    "GPT 145.6B": (80, 12288, 96, 2304, 1536, 8, 8, 2, 2, 148),
    "GPT 529.6B": (105, 20480, 128, 2520, 2520, 8, 35, 1, 3, 163),
    "GPT 1008B": (128, 25600, 160, 3072, 3072, 8, 64, 1, 1, 163),
}
# Layers, hidden, heads, batch (one sequence each), GPUs, pp, chunks, and seconds with full
# recomputation and with sequence parallelism and selective recomputation.
MLSYS23 = {
    "GPT 175B": (96, 12288, 96, 64, 64, 8, 3, 18.13, 13.75),
    "GPT 530B": (105, 20480, 128, 280, 280, 35, 3, 49.05, 37.83),
    "GPT 1T": (128, 25600, 160, 512, 512, 64, 1, 94.42, 71.49),
}

MEGATRON: dict[str, Any] = {"flash": False, "blocking": True}
FULL: dict[str, Any] = {**MEGATRON, "recompute": "full"}
SELECTIVE: dict[str, Any] = {**MEGATRON, "recompute": "selective", "sequence_parallel": True}
"""Megatron-LM's options with selective recomputation.

Stages wait for what they send, except in Llama 3's runs, which send asynchronously
(arXiv:2407.21783, section 3.3.2).
"""


def runs() -> list[Run]:
    """Return all runs."""
    return [
        *megatron_runs(),
        mt_nlg_run(),
        bloom_run(),
        *selective_runs(),
        *llama_runs(),
        *torchtitan_runs(),
    ]


def megatron_runs() -> Iterator[Run]:
    for name, row in SC21.items():
        layers, hidden, heads, batch, gpus, tensor, pipeline, samples, chunks, tflops = row
        model = gpt(layers, hidden, heads)
        trained = training(
            model,
            A100,
            batch,
            data=gpus // tensor // pipeline,
            tensor=tensor,
            pipeline=pipeline,
            chunks=chunks,
            micro_batch_samples=samples,
            overlap=pipeline == 1,
            **FULL,
        )
        published_s = megatron_s(layers, hidden, batch, gpus, tflops)
        yield Run(name, "Megatron-LM", trained, published_s)


def mt_nlg_run() -> Run:
    model = gpt(105, 20480, 128)
    trained = training(
        model,
        A100,
        1920,
        data=8,
        tensor=8,
        pipeline=35,
        overlap=False,
        **FULL,
    )
    return Run("GPT 530B", "MT-NLG", trained, 60.1)


def bloom_run() -> Run:
    model = gpt(70, 14336, 112, 250880, 0)
    trained = training(
        model,
        A100,
        2048,
        data=8,
        tensor=4,
        pipeline=12,
        micro_batch_samples=2,
        zero=1,
        overlap=False,
        **FULL,
    )
    published_s = megatron_s(70, 14336, 2048, 384, 150, 250880)
    return Run("BLOOM 176B", "BLOOM", trained, published_s, 50 * 10**9)


def selective_runs() -> Iterator[Run]:
    for name, row in MLSYS23.items():
        layers, hidden, heads, batch, _, pipeline, chunks, full_s, selective_s = row
        model = gpt(layers, hidden, heads)
        for way, recomputing, published_s in (
            ("full", FULL, full_s),
            ("selective", SELECTIVE, selective_s),
        ):
            trained = training(
                model,
                A100,
                batch,
                tensor=8,
                pipeline=pipeline,
                chunks=chunks,
                **recomputing,
            )
            yield Run(f"{name}, {way}", "selective", trained, published_s)


def llama_runs() -> Iterator[Run]:
    model = find_model("llama3-405b")
    # 6 operations a parameter and token, of 2048 sequences of 8192 tokens.
    operations = 6 * model.parameters * 2048 * 8192
    for data, tflops in ((64, 430), (128, 400)):
        trained = training(
            model,
            H100,
            2048,
            data=data,
            tensor=8,
            pipeline=16,
            chunks=8,
            zero=2,
            sequence_parallel=True,
        )
        published_s = operations / (tflops * 1e12 * trained.gpus)
        yield Run("Llama 3 405B", "Llama 3", trained, published_s, 400 * 10**9)


def torchtitan_runs() -> Iterator[Run]:
    slow = Gpu(
        "H100", H100.peak_flops, H100.local_bytes_per_s, 2400 * 10**9, 96 * 10**9, "torchtitan"
    )
    model = find_model("llama3-8b")
    for name, tokens_per_s, host_time in (
        ("Llama 3 8B", 5605, 1),
        ("Llama 3 8B, compiled", 6514, 0),
    ):
        trained = training(
            model,
            slow,
            256,
            data=128,
            micro_batch_samples=2,
            zero=3,
            efficiency=H100.efficiency,
            host_time=Fraction(host_time),
        )
        published_s = 2 * 8192 / tokens_per_s
        yield Run(name, "torchtitan", trained, published_s, 400 * 10**9)


def predicted_s(run: Run) -> float:
    """Return the seconds of an iteration: computing, and the communication that is exposed."""
    host = Host(PER_HOST, run.nic_bps * PER_HOST)
    return float(iteration(run.training, host).total_s)


def fluid_s(run: Run) -> float | None:
    """Return the seconds of an iteration of the job file as a fluid.

    None: the job is too large.
    """
    hosts = run.training.gpus // PER_HOST
    if hosts > HOSTS:
        return None
    text = job_file(run.training, "run", Host(PER_HOST))
    document = yaml.safe_load(text)
    spec = parse_document(JobSpec, document, run.name)
    if spec.paradigm.step_count(hosts) > STEPS:
        return None
    fabric = echelon.fabrics.leaf_spine(
        leaves=1,
        spines=1,
        hosts_per_leaf=hosts,
        rate_bps=int(NIC_SHARE * run.nic_bps * PER_HOST),
        oversubscription=hosts,
    )
    scenario = {"fabric": fabric, "jobs": [spec], "iterations": 1}
    compared = echelon.simulate(scenario, ["fair"])
    return compared.outcome("fair", "run").mean_iteration_s


def main() -> None:
    """Print the table."""
    print("| run | source | GPUs | dp x tp x pp | published | `job new` | error | as a fluid |")
    print("|---|---|---|---|---|---|---|---|")
    errors = []
    for run in runs():
        trained = run.training
        seconds = predicted_s(run)
        error = seconds / run.published_s - 1
        errors.append(error)
        fluid = fluid_s(run)
        fluid_text = "" if fluid is None else f"{fluid:.2f} s"
        gpus = f"{trained.gpus} {trained.gpu.name}"
        shape = f"{trained.data} x {trained.tensor} x {trained.pipeline}"
        print(
            f"| {run.name} | {run.source} | {gpus} | {shape} | {run.published_s:.2f} s |"
            f" {seconds:.2f} s | {error:+.0%} | {fluid_text} |"
        )
    mean = sum(map(abs, errors)) / len(errors)
    print(
        f"\n{len(errors)} runs: errors of {min(errors):+.0%} to {max(errors):+.0%}, {mean:.0%} in"
        " the mean of sizes."
    )


if __name__ == "__main__":
    main()
