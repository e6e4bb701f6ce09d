"""Published training runs: their numbers agree with each other, and the page prints what the
formulas say.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from research.published_runs import MLSYS23, SC21, Run, fluid_s, gpt, megatron_s, predicted_s, runs

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
RUNS = runs()


@pytest.mark.parametrize("name", SC21)
def test_the_models_of_megatron_lm_have_the_parameters_of_their_names(name: str) -> None:
    layers, hidden, heads, *_ = SC21[name]
    assert round(gpt(layers, hidden, heads).parameters / 1e9, 1) == float(
        name.removeprefix("GPT ").removesuffix("B")
    )


@pytest.mark.parametrize(
    ("name", "utilisation"), [("GPT 175B", 0.514), ("GPT 530B", 0.560), ("GPT 1T", 0.563)]
)
def test_the_times_of_selective_recomputation_give_the_published_utilisation(
    name: str, utilisation: float
) -> None:
    """Korthikanti et al., table 5, by their equation 7: 72 B L s h^2 (1 + s / 6h + v / 12hL)
    operations.
    """
    layers, hidden, _, batch, gpus, *_, seconds = MLSYS23[name]
    inner = 1 + 2048 / (6 * hidden) + 51200 / (12 * hidden * layers)
    done = 72 * batch * layers * 2048 * hidden**2 * inner
    assert round(done / (seconds * gpus * 312e12), 3) == utilisation


def test_the_time_of_mt_nlg_gives_its_operations_a_second() -> None:
    """60.1 s are 126 TFLOP/s on each GPU (arXiv:2201.11990, section 2.4)."""
    assert 60.1 / megatron_s(105, 20480, 1920, 2240, 126) == pytest.approx(1, abs=0.004)


def test_bloom_has_the_parameters_of_its_paper() -> None:
    """176,247 million, with a norm behind the embedding that is left out here."""
    assert round((gpt(70, 14336, 112, 250880, 0).parameters + 2 * 14336) / 1e6) == 176_247


def test_micro_batches_make_the_global_batch() -> None:
    batches = {"GPT 145.6B": 2304, "BLOOM 176B": 2048, "Llama 3 405B": 2048}
    for run in RUNS:
        of = run.training
        if run.name in batches:
            assert of.data * of.micro_batches * of.micro_batch_samples == batches[run.name]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.name} {run.training.gpus}")
def test_the_page_prints_what_the_formulas_say(run: Run) -> None:
    of, seconds = run.training, predicted_s(run)
    shape = f"{of.gpus} {of.gpu.name} | {of.data} x {of.tensor} x {of.pipeline}"
    error = f"{seconds / run.published_s - 1:+.0%}"
    row = (
        f"| {run.name} | {run.source} | {shape} | {run.published_s:.2f} s | {seconds:.2f} s |"
        f" {error} |"
    )
    assert row in PAGE.read_text(encoding="utf-8")


def test_a_run_as_a_fluid_takes_what_the_page_prints() -> None:
    """The formula leaves out how stages differ, so the executed job is an independent number."""
    (run,) = (run for run in RUNS if run.name == "GPT 39.1B")
    (row,) = re.findall(r"^\| GPT 39\.1B .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{fluid_s(run):.2f} s" == row.split(" | ")[-1].removesuffix(" |")
