"""GPUs against what their vendors say of whole hosts, racks and pods."""

from __future__ import annotations

import pytest

from echelon_lab.models.gpus import GPUS

PETA, TERA = 10**15, 10**12
PLATFORMS = {
    # GPUs, dense BF16 operations a second, bytes of memory and their bytes a second, and bytes a
    # second of links in both directions: data sheets of DGX A100, DGX H100 and HGX H200, HGX B200,
    # GB200 NVL72 (with sparsity 360 PFLOP/s), Instinct MI300X Platform, and of v6e's pod the
    # documentation. None: it does not say.
    "A100": (8, 2.5 * PETA, 640e9, None, 8 * 0.6 * TERA),
    "H100": (8, 8 * PETA, 640e9, 27 * TERA, 7.2 * TERA),
    "H200": (8, 8 * PETA, 1128e9, 38 * TERA, 7.2 * TERA),
    "B200": (8, 18 * PETA, 1440e9, 64 * TERA, 14.4 * TERA),
    "GB200": (72, 180 * PETA, 13.4 * TERA, 576 * TERA, 130 * TERA),
    "MI300X": (8, 10.4 * PETA, 1.5 * TERA, 42.4 * TERA, 8 * 0.896 * TERA),
    "TPU-v6e": (256, 234.9 * PETA, 256 * 32e9, None, 256 * 0.8 * TERA),
}


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_has_so_many_times_as_much(name: str) -> None:
    count, flops, memory, memory_per_s, links = PLATFORMS[name]
    gpu = GPUS[name]
    assert count * gpu.peak_flops == pytest.approx(flops, rel=0.015)
    assert gpu.memory_bytes is not None
    assert count * gpu.memory_bytes == pytest.approx(memory, rel=0.03)
    if memory_per_s is not None:
        assert count * gpu.memory_bytes_per_s == pytest.approx(memory_per_s, rel=0.015)
    assert 2 * count * gpu.local_bytes_per_s == pytest.approx(links, rel=0.015)


@pytest.mark.parametrize("name", GPUS)
def test_each_says_what_matrix_products_reach_and_who_measured_it(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.efficiency is not None
    assert 0.5 < gpu.efficiency < 0.9
    assert gpu.measured != "given"
    # A TPU's number is of a whole training, or that of another.
    assert ("lower bound" in gpu.measured) == name.startswith("TPU")
    assert ("carried over" in gpu.measured) == (name == "TPU-v6e")


MEASURED_TFLOPS = {"A100": 271.2, "H100": 794.5, "B200": 1745, "GB200": 1822, "MI300X": 668.4}
"""S. Bekman, Machine Learning Engineering, compute/accelerator, mean of 100 products, BF16."""


@pytest.mark.parametrize("name", MEASURED_TFLOPS)
def test_what_is_reached_is_the_measured_rate(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.efficiency is not None
    reached = gpu.peak_flops * gpu.efficiency
    assert float(reached) == pytest.approx(MEASURED_TFLOPS[name] * 1e12, rel=0.001)
