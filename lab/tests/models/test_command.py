"""`echelon job new` for models of 2026 in several layouts, checked by `echelon check`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.model.documents import parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.spec import JobSpec

MODELS = (
    "deepseek-v3",
    "deepseek-r1",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "qwen3-next-80b-a3b",
    "llama3.1-405b",
    "llama4-scout",
    "llama4-maverick",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "mixtral-8x22b",
)
LAYOUTS = {
    "zero1": "--gpus 64 --gpu H100 --zero 1",
    "fsdp2": "--gpus 64 --gpu B200 --zero 3",
    "hsdp": "--gpus 64 --gpu H200 --zero 3 --parallel shard=16",
    "3d": "--gpus 128 --gpu H100 --parallel tp=8,pp=4 --sequence-parallel --zero 1",
    "context": "--gpus 64 --gpu H200 --parallel tp=2,cp=8 --sequence 131072 --zero 1",
    "gb200": "--gpus 144 --gpu GB200 --parallel tp=8 --zero 1",
    "tpu": "--gpus 512 --gpu TPU-v6e --gpus-per-host 256 --zero 3",
}
EXPERT_LAYOUTS = {
    "inside": "--gpus 64 --gpu H200 --parallel ep=8 --zero 3",
    "across": "--gpus 128 --gpu H100 --parallel ep=16,pp=4 --micro-batches 4 --zero 1",
    "folded": "--gpus 64 --gpu MI300X --parallel tp=8,ep=16,etp=1 --sequence-parallel --zero 1",
}
DENSE = ("qwen3-8b", "llama3.1-405b")
NO_CONTEXT = ("qwen3-next-80b-a3b",)


def commands() -> list[str]:
    written = []
    for model in MODELS:
        layouts = dict(LAYOUTS)
        if model in NO_CONTEXT:
            del layouts["context"]
        if model not in (*DENSE, "mixtral-8x22b"):
            layouts |= EXPERT_LAYOUTS
        written += [f"{model} {layout}" for layout in layouts.values()]
    for model in ("dlrm", "dlrm-dcnv2"):
        written.append(f"{model} --gpus 64 --gpu A100 --micro-batch-size 1024")
    return written


@pytest.mark.parametrize("arguments", commands())
def test_what_is_written_is_good(arguments: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    result = CliRunner().invoke(app, ["job", "new", *arguments.split(), "-o", str(file)])
    assert result.exit_code == 0, result.output
    checked = CliRunner().invoke(app, ["check", str(file)])
    assert checked.exit_code == 0, checked.output
    assert "is good" in checked.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            "llama4-scout --gpus 64 --parallel tp=16 --gpus-per-host 16",
            ["tp", "40 heads", "divisor"],
        ),
        ("mixtral-8x7b --gpus 128 --parallel ep=16", ["--parallel: ep", "8 experts", "a divisor"]),
        (
            "qwen3-30b-a3b --gpus 64 --parallel tp=8,ep=16",
            ["ep", "16 does not divide dp=8", "etp=1", "dp x cp x tp = 64"],
        ),
        ("qwen3-30b-a3b --gpus 64 --parallel tp=8,dp=8,ep=128,etp=1", ["ep", "= 64", "a divisor"]),
        ("qwen3-30b-a3b --gpus 64 --parallel tp=8,ep=8,etp=2", ["etp", "is 2", "give 1 or tp"]),
        ("qwen3-30b-a3b --gpus 64 --parallel tp=8,etp=1", ["etp", "give ep=2 or more"]),
        ("qwen3-8b --gpus 64 --parallel shard=8", ["shard", "--zero 2 or 3", "--zero 3"]),
        ("qwen3-8b --gpus 64 --parallel shard=24 --zero 3", ["shard", "dp x cp = 64", "divisor"]),
        ("qwen3-30b-a3b --gpus 64 --parallel ep=8,shard=8 --zero 3", ["shard", "leave out one"]),
        ("qwen3-8b --gpus 48 --parallel shard=12 --zero 3", ["--gpus-per-host", "shard", "12"]),
        ("qwen3-30b-a3b --gpus 64 --parallel ep=16 --zero 3", ["--zero", "inside a host of 8"]),
        ("qwen3-8b --gpus 64 --parallel cp=16 --zero 3", ["--zero", "cp inside a host of 8"]),
        ("qwen3-next-80b-a3b --gpus 64 --parallel cp=4", ["cp", "a state", "cp=1"]),
        ("dlrm --gpus 64 --zero 3", ["--zero", "tables", "give 0"]),
        ("dlrm --gpus 64 --parallel pp=2", ["pp", "tables", "pp=1"]),
        ("dlrm --gpus 64 --parallel tp=2", ["tp", "tp=1"]),
        ("dlrm --gpus 64 --global-batch 65536", ["--micro-batches", "--micro-batch-size 1024"]),
        ("dlrm --gpus 4096", ["--gpus", "3328 columns"]),
        ("dlrm --gpus 64 --sequence 128", ["--sequence", "leave it out"]),
        ("gpt-6.7b --gpus 64 --sequence 4096", ["--sequence", "2048 positions"]),
        ("qwen3-8b --gpus 64 --gpu TPU-v5p", ["--gpus-per-host", "a slice", "e.g. 64"]),
        ("qwen3-8b --gpus 64 --gpu GB200", ["--gpus", "one host", "--gpus-per-host"]),
        ("qwen3-8b --gpus 64 --gpu H300", ["--gpu", "unknown GPU", "H200"]),
        ("deepseek-v4 --gpus 64", ["MODEL", "deepseek-v3"]),
        ("deepseek-v3 --gpus 64 --parallel ep=8 --dispatch hots", ["--dispatch", "host"]),
        (
            "deepseek-v3 --gpus 2048 --parallel pp=16,ep=64 --zero 1 --global-batch 15360",
            ["--micro-batches", "120 are too many", "smaller --global-batch"],
        ),
    ],
)
def test_what_does_not_go_is_one_line_that_says_what_to_do(
    arguments: str, words: list[str]
) -> None:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 2, result.output
    assert len(result.output.splitlines()) == 1
    for word in words:
        assert word in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        "qwen3-0.6b --gpus 32 --gpu H100 --zero 3 --parallel shard=16",
        "qwen3-0.6b --gpus 32 --gpu H100 --zero 3 --parallel shard=8",
        "gpt-oss-20b --gpus 32 --gpu H100 --parallel tp=8,ep=16,etp=1 --zero 1",
        "dlrm-dcnv2 --gpus 32 --gpu A100 --micro-batch-size 2048",
    ],
)
def test_an_iteration_takes_at_least_what_hosts_compute_and_links_carry(arguments: str) -> None:
    text = CliRunner().invoke(app, ["job", "new", *arguments.split()]).stdout
    spec = parse_document(JobSpec, yaml.safe_load(text), "printed")
    rate_bps = 400 * 10**9
    fabric = echelon.fabrics.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2, rate_bps=rate_bps)
    compared = echelon.simulate({"fabric": fabric, "jobs": [spec]}, ["echelon"])
    took_s = compared.outcome("echelon", spec.job).mean_iteration_s
    job = build_job(spec)
    least_s = []
    for host in job.workers:
        least_s.append(sum(unit.duration_s for unit in job.computes if unit.worker == host))
        sent = sum(flow.size_bytes for flow in job.flows if flow.src == host)
        least_s.append(Fraction(8 * sent, rate_bps))
    assert max(least_s) <= took_s <= 1.01 * sum(least_s)
