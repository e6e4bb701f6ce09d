"""Times of passes and iterations: against counts by hand and published values."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon_lab.models.catalogue import find_model
from echelon_lab.models.collectives import Bus, all_reduce_s, round_s
from echelon_lab.models.computing import backward_s, forward_s
from echelon_lab.models.execution import execution
from echelon_lab.models.gpus import GPUS
from echelon_lab.models.hosts import Host
from echelon_lab.models.launches import BACKWARD_HOST_S, FORWARD_HOST_S
from echelon_lab.models.layers import Layer, Model
from echelon_lab.models.products import Product
from echelon_lab.models.times import local_s, pass_s
from echelon_lab.models.training import Training

A100 = GPUS["A100"]
PEAK = 312 * 10**12
US = Fraction(1, 10**6)
TILE_FLOPS = 2 * 256 * 128


def trained(model: str, **shape: Any) -> Training:
    return Training(find_model(model), A100, **shape)


@pytest.mark.parametrize(
    ("rows", "columns", "batch", "tiles", "waves"),
    [
        (2304, 1536, 1, 9 * 12, 1),
        (2304, 1537, 1, 9 * 13, 2),
        # The longer side of a tile is along the longer side of the result.
        (1537, 2304, 1, 9 * 13, 2),
        # Values of attention, of heads of 64: half of each tile is outside.
        (1024, 64, 16, 16 * 4, 1),
        (8192, 3072, 1, 32 * 24, 8),
    ],
)
def test_products_run_in_whole_waves_of_108_tiles(
    rows: int,
    columns: int,
    batch: int,
    tiles: int,
    waves: int,
) -> None:
    product = Product(rows, columns, inner=512, batch=batch)
    assert product.tiles() == tiles
    assert product.waves(108) == waves
    assert product.executed_flops(108) == waves * 108 * TILE_FLOPS * 512
    assert product.executed_flops(None) == 2 * batch * rows * columns * 512


def test_gradients_have_the_operations_of_the_product() -> None:
    product = Product(2048, 768, 3072, batch=3)
    left, right = product.gradients()
    assert (left.rows, left.columns, left.inner) == (2048, 3072, 768)
    assert (right.rows, right.columns, right.inner) == (3072, 768, 2048)
    assert left.flops == right.flops == product.flops


def test_products_of_a_model_are_its_operations() -> None:
    """Experts round up, and have a router besides."""
    for name in ("gpt-13b", "llama3-70b", "bert-large"):
        for layer in find_model(name).layers[1:]:
            assert sum(product.flops for product in layer.products) == layer.forward_flops
    mixtral = find_model("mixtral-8x7b").layers[1]
    router = 2 * 4096 * 4096 * 8
    assert sum(product.flops for product in mixtral.products) == mixtral.forward_flops - router


def test_ranks_share_products() -> None:
    """8 of 64 heads, a quarter of the queries, and 2 of 8 experts with the tokens of 4 ranks."""
    scores = Product(4096, 4096, 128, batch=64, cut="batch")
    assert scores.on_gpu(2, 8, 4, 1) == replace(scores, rows=1024, batch=16)
    raised = Product(1024, 28672, 4096, batch=8, cut="columns", is_expert=True)
    assert raised.on_gpu(1, 2, 1, 4) == replace(raised, rows=4096, columns=14336, batch=2)


def test_a_layer_of_gpt_is_launched_in_the_counted_times() -> None:
    """4 linear operators, 2 products of batches, 8 kernels and 30 views; backward 4, 2, 11, 29 and
    12 gradients: 1.03 and 1.67 ms, and 3.73 ms with recomputation.
    """
    forward_us = 4 * 55.6 + 2 * 55.6 + 8 * 41.6 + 30 * 12.1
    backward_us = 4 * 108.6 + 2 * 101.6 + 11 * 36.6 + 29 * 10.6 + 12 * 26.6
    assert float(FORWARD_HOST_S / US) == pytest.approx(forward_us)
    assert float(BACKWARD_HOST_S / US) == pytest.approx(backward_us)
    assert float(2 * FORWARD_HOST_S + BACKWARD_HOST_S) == pytest.approx(3.73e-3, abs=0.005e-3)


def test_the_host_is_a_floor_and_captured_graphs_have_none() -> None:
    """12 layers of GPT-2 small: the GPU needs less than the host."""
    small = trained("gpt2-small", data=16, recompute="full")
    layers = small.model.layers
    forward, backward = pass_s(small, layers, Host(8))
    assert forward == 12 * FORWARD_HOST_S
    assert backward == 12 * (FORWARD_HOST_S + BACKWARD_HOST_S)
    captured = replace(small, host_time=Fraction(0))
    assert pass_s(captured, layers, Host(8)) == (
        forward_s(small, layers),
        backward_s(small, layers),
    )
    large = trained("gpt-175b", tensor=8, data=2)
    assert pass_s(large, large.model.layers, Host(8))[0] > 96 * FORWARD_HOST_S
    # XLA compiles whole programs for a TPU.
    on_tpu = replace(small, gpu=GPUS["TPU-v5p"])
    assert pass_s(on_tpu, layers, Host(8))[0] < 12 * FORWARD_HOST_S


def test_a_forward_pass_by_hand() -> None:
    """A layer of GPT-2 small: 72, 24, 96 and 24 tiles, a wave each. FlashAttention has half of
    4 s^2 h; 34 s h bytes are written and read; 15 kernels take 5 us each.
    """
    small = trained("gpt2-small")
    waves_s = Fraction(108 * TILE_FLOPS * (768 + 768 + 768 + 3072), PEAK)
    core_s = Fraction(2 * 1024**2 * 768, PEAK)
    kept_s = Fraction(2 * 34 * 1024 * 768, 2039 * 10**9)
    layer = small.model.layers[1:2]
    assert forward_s(small, layer) == waves_s + core_s + kept_s + 75 * US


def test_attention_with_and_without_flash_attention() -> None:
    """Scores of 40 heads are 5120 tiles, 48 waves, and values 320 tiles, 3 waves. FlashAttention
    computes half of 4 s^2 h, and moves no scores. Kernels, 5 us each, are as many.
    """
    plain = trained("gpt-13b", flash=False)
    layer = plain.model.layers[1:2]
    core_s = Fraction(4 * 2048**2 * 5120, PEAK)
    waves_s = Fraction(108 * TILE_FLOPS * (48 * 128 + 3 * 2048), PEAK)
    scores_s = Fraction(2 * 5 * 40 * 2048**2, 2039 * 10**9)
    flash = replace(plain, flash=True)
    assert forward_s(plain, layer) - forward_s(flash, layer) == waves_s + scores_s - core_s / 2
    assert backward_s(flash, layer) == backward_s(replace(flash, recompute="selective"), layer)

    selective = replace(plain, recompute="selective")
    assert backward_s(selective, layer) - backward_s(plain, layer) == waves_s + scores_s
    full = replace(plain, recompute="full")
    assert backward_s(full, layer) - backward_s(plain, layer) == forward_s(plain, layer)
    bert = trained("bert-large")
    causal = replace(bert.model.layers[1], causal=True)
    saved_s = forward_s(bert, bert.model.layers[1:2]) - forward_s(bert, [causal])
    assert saved_s == Fraction(2 * 512**2 * 1024, PEAK)


def test_a_layer_without_products_computes_its_operations() -> None:
    """Such a layer has no kernels: they were counted in transformers."""
    model = Model("one", "", (Layer("all", 10, PEAK, 1),), "an image")
    training = Training(model, A100)
    assert forward_s(training, model.layers) == 1
    assert backward_s(training, model.layers) == 2
    assert pass_s(training, model.layers, Host(8)) == (1, 2)


@pytest.mark.parametrize(
    ("ranks", "hosts", "us"),
    [
        (2, 1, 8.4 + 2 * 3.4),
        (4, 1, 14 + 6 * 1.9),
        (8, 1, 14 + 14 * 1.9),
        (16, 2, 14 + 28 * 1.9 + 2 * 4),
    ],
)
def test_a_small_all_reduce_takes_the_steps_of_a_ring(ranks: int, hosts: int, us: float) -> None:
    """The faster of Simple and LL128."""
    seconds = all_reduce_s(Bus(Fraction(10**30), hosts), ranks, 8)
    assert float(seconds / US) == pytest.approx(us)


def test_a_large_all_reduce_has_the_bandwidth_that_nccl_tests_print() -> None:
    """8 A100 reach 232.5 GB/s (NVIDIA/nccl-tests, issue 175), 8 H100 370 GB/s (issue 212)."""
    size = 8 * 2**30
    for gpu, published in (("A100", 232.5), ("H100", 370)):
        bus = Bus(execution(GPUS[gpu]).ring_bytes_per_s(GPUS[gpu]))
        seconds = all_reduce_s(bus, 8, size)
        assert 2 * 7 / 8 * size / float(seconds) / 1e9 == pytest.approx(published, rel=0.015)
        assert float(round_s(bus, 8, size) / seconds) == pytest.approx(0.5, rel=0.001)
    assert all_reduce_s(bus, 1, size) == round_s(bus, 8, 0) == 0


def test_the_rings_of_a_tensor_group_take_time() -> None:
    """A layer of GPT sums 20,971,520 B twice: a ring of 4 moves 3/2 of that at 230 GB/s, in 6
    steps.
    """
    training = trained("gpt-13b", tensor=4, data=2)
    layer = training.model.layers[1:2]
    sum_s = (Fraction("8.4") + 6 * Fraction("3.4")) * US
    sum_s += Fraction(3 * 20_971_520, 2 * 230 * 10**9)
    assert local_s(training, layer, Host(8)) == 2 * sum_s
    # Full recomputation repeats the sums of the forward pass.
    repeating = replace(training, recompute="full")
    assert local_s(repeating, layer, Host(8), backward=True) == 4 * sum_s
    # Two hosts: 91 % of 800 Gbit/s, and NICs for 2 of 30 steps.
    wide = replace(training, tensor=16, data=1)
    steps_s = (14 + 28 * Fraction("1.9") + 2 * 4) * US
    simple_s = (Fraction("8.4") + 28 * Fraction("3.4") + 2 * 14) * US
    moved_s = Fraction(30 * 20_971_520, 16 * 91 * 10**9)
    over_s = min(steps_s + moved_s / Fraction(120, 128), simple_s + moved_s)
    assert local_s(wide, layer, Host(8, 800 * 10**9)) == 2 * over_s
    with pytest.raises(ValueError, match="line rate"):
        local_s(wide, layer, Host(8))


def test_nics_carry_91_gigabytes_of_100() -> None:
    """4 HDR cards in NVIDIA/nccl-tests, issue 100."""
    assert Host(8, 800 * 10**9).bytes_per_s == 91 * 10**9
