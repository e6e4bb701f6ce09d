"""Predictions of iterations: by hand, beside the job file that runs, and in words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.model.documents import parse_document
from echelon.model.jobs.spec import JobSpec
from echelon_lab.models.catalogue import find_model
from echelon_lab.models.execution import execution
from echelon_lab.models.gpus import GPUS, find_gpu
from echelon_lab.models.hosts import NIC_SHARE, Host
from echelon_lab.models.iteration import SEND_S, iteration
from echelon_lab.models.job_file import job_file
from echelon_lab.models.predictions import RANGE
from echelon_lab.models.times import pass_s
from echelon_lab.models.training import Training
from tests.faults import mentions

A100 = GPUS["A100"]


def trained(model: str, **shape: Any) -> Training:
    return Training(find_model(model), A100, **shape)


def test_an_iteration_of_a_pipeline_by_hand() -> None:
    """4 stages, 16 micro-batches: 16 times the slowest stage, once the others, and 2 sends for
    each micro-batch and boundary. If they do not block, a micro-batch waits for a quarter of a way
    over 3 boundaries and back.
    """
    training = trained("gpt-6.7b", tensor=8, pipeline=4, micro_batches=16, blocking=True)
    host = Host(8, 800 * 10**9)
    both = [sum(pass_s(training, layers, host)) for layers in training.stages]
    taken = iteration(training, host)
    assert taken.computed_s == 15 * max(both) + sum(both)
    send_s = Fraction(8 * 2 * 2048 * 4096, 91 * 10**9) + SEND_S
    assert taken.sent_s == (2 * 16 + 2 * 3) * send_s
    chunked = replace(training, chunks=2)
    assert iteration(chunked, host).sent_s == (2 * 2 * 16 + 2 * 3) * send_s
    passing = replace(training, blocking=False)
    assert iteration(passing, host).sent_s == (16 // 4 * 2 * 3 + 2 * 3) * send_s
    assert taken.summed_s == 0
    # Stages of one host send over its own links.
    assert iteration(replace(training, tensor=1), host).sent_s == 0


def test_sums_of_replicas_by_hand() -> None:
    """16 hosts of 8 whole replicas: 2 x 15/16 of FP32 at 91 GB/s, or FP32 and 16 bits."""
    training = trained("gpt-6.7b", data=128, overlap=False)
    parameters = training.model.parameters
    host = Host(8, 800 * 10**9)
    around_s = Fraction(15 * parameters, 16 * 91 * 10**9)
    assert iteration(training, host).summed_s == 8 * around_s
    assert iteration(replace(training, zero=1), host).summed_s == 6 * around_s


def test_sums_of_shards_by_hand() -> None:
    """Layers on 4 hosts in 16 bits, slow enough that nothing is hidden: two gathers and a scatter
    over 2 hosts, and the half of each host all-reduced with its copy.
    """
    training = trained("gpt2-small", data=32, zero=3, shard=16, host_time=Fraction(0))
    slow = Host(8, 10**6)
    size = 2 * training.model.parameters
    ring_s = Fraction(size, 2) / slow.bytes_per_s
    copied_s = Fraction(size, 2) / slow.bytes_per_s
    taken = iteration(training, slow)
    assert taken.total_s == ring_s + ring_s + copied_s
    assert iteration(replace(training, shard=None), slow).total_s == 2 * Fraction(3, 2) * ring_s


@pytest.mark.parametrize(
    "shape",
    [
        {"tensor": 8, "pipeline": 4, "micro_batches": 16, "blocking": True},
        {"tensor": 8, "pipeline": 4, "micro_batches": 8, "data": 2, "blocking": True},
        {"tensor": 8, "pipeline": 4, "micro_batches": 16, "data": 2, "chunks": 2, "blocking": True},
        {"tensor": 8, "pipeline": 2, "micro_batches": 16, "data": 2},
        {"tensor": 8, "pipeline": 4, "micro_batches": 16, "data": 2, "chunks": 2},
        {"data": 32},
    ],
)
def test_the_schedule_of_the_job_file_exposes_sends_and_sums(shape: dict[str, Any]) -> None:
    """The job file runs as a fluid, on links with 91 % of the line rate, in the computed time."""
    efficiency = A100.efficiency
    assert efficiency is not None
    training = trained("gpt-6.7b", efficiency=efficiency, overlap=False, **shape)
    # Slow NICs: communication takes a good part.
    line_bps = 200 * 10**9
    document = yaml.safe_load(job_file(training, "run", Host(8)))
    fabric = echelon.fabrics.leaf_spine(
        leaves=1,
        spines=1,
        hosts_per_leaf=training.gpus // 8,
        rate_bps=int(NIC_SHARE * line_bps),
        oversubscription=training.gpus // 8,
    )
    spec = parse_document(JobSpec, document, "run")
    scenario = {"fabric": fabric, "jobs": [spec], "iterations": 1}
    ran_s = echelon.simulate(scenario, ["fair"]).outcome("fair", "run").mean_iteration_s
    taken = iteration(training, Host(8, line_bps))
    assert float(taken.sent_s + taken.summed_s) > 0.1 * ran_s
    assert ran_s == pytest.approx(float(taken.total_s), rel=0.04)


def test_gpus_that_are_not_known_execute_what_products_need() -> None:
    described = find_gpu("peak=275,local=300,memory=1200")
    assert execution(described).multiprocessors is None
    assert execution(described).ring_bytes_per_s(described) == 230 * 10**9
    assert {name for name in GPUS if execution(GPUS[name]).multiprocessors is None} == {
        name for name in GPUS if name.startswith("TPU")
    }


def commented(arguments: str) -> str:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 0, result.output
    lines = [line[1:] for line in result.stdout.splitlines() if line.startswith("#")]
    return " ".join(" ".join(lines).split())


def test_comments_say_what_is_carried_over_and_how_sure_an_iteration_is() -> None:
    layout = "gpt-6.7b --gpus 64 --parallel tp=8,pp=2 --nic 200Gbit/s"
    text = commented(layout)
    low, high = RANGE
    assert mentions(
        text, "108 multiprocessors", "230 GB/s", "1.03 ms", "1600 Gbit/s", "1456 Gbit/s"
    )
    training = trained("gpt-6.7b", data=4, tensor=8, pipeline=2, micro_batches=8)
    training = replace(training, efficiency=A100.efficiency or Fraction(1))
    seconds = float(iteration(training, Host(8, 1600 * 10**9)).total_s)
    assert f"An iteration alone takes about {seconds:.3g} s" in text
    assert f"Range: {seconds * low:.3g} s to {seconds * high:.3g} s" in text
    assert "carried over" not in text

    on_h100 = commented(f"{layout} --gpu H100")
    assert mentions(on_h100, "132 multiprocessors", "370 GB/s", "tile carried over from A100")
    assert "carried over to H100" in on_h100
    captured = commented(f"{layout} --host-time 0")
    assert "no host launches kernels one by one" in captured
    assert "0.51 ms" in commented(f"{layout} --host-time 50%")


def test_a_pipeline_that_blocks_is_a_mesh_that_says_so() -> None:
    arguments = ["gpt-6.7b", "--gpus", "32", "--parallel", "tp=8,pp=4", "--blocking"]
    text = CliRunner().invoke(app, ["job", "new", *arguments]).stdout
    assert yaml.safe_load(text)["mesh"]["blocking"] is True
    assert "stages wait for what they send" in " ".join(text.replace("#", "").split())
    assert "pipeline" in yaml.safe_load(
        CliRunner().invoke(app, ["job", "new", *arguments[:-1]]).stdout
    )


def test_without_a_rate_of_nics_only_computing_is_predicted() -> None:
    text = commented("gpt-6.7b --gpus 64 --parallel tp=8,pp=2")
    assert mentions(text, "The slowest stage computes", "--nic", "Range")
    images = commented("resnet-50 --gpus 64 --nic 200Gbit/s")
    assert mentions(images, "An iteration alone", "No measured run", "left out")
    exchanging = commented("llama3-8b --gpus 64 --parallel tp=4,cp=4,pp=2 --nic 200Gbit/s")
    assert mentions(exchanging, "The slowest stage computes", "the network adds")


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--nic 200", "--nic"),
        ("--host-time=-1", "--host-time"),
        ("--host-time x", "--host-time"),
        ("--blocking", "--blocking"),
    ],
)
def test_a_wrong_option_of_times_is_one_line(option: str, named: str) -> None:
    result = CliRunner().invoke(app, ["job", "new", "gpt-6.7b", "--gpus", "64", *option.split()])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert mentions(result.output, named)
