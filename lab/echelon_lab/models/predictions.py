"""How long an iteration will take, in words, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from echelon_lab.models.execution import execution
from echelon_lab.models.hosts import NIC_SHARE, Host
from echelon_lab.models.iteration import iteration
from echelon_lab.models.launches import BACKWARD_HOST_S, FORWARD_HOST_S, KERNEL_S
from echelon_lab.models.layers import Layer
from echelon_lab.models.products import TILE
from echelon_lab.models.times import host_share, pass_s
from echelon_lab.models.training import Training

RANGE = (0.92, 1.39)
"""Nine of ten measured runs took between these parts of what was predicted.

They are the even rows of data/ground_truth_multi.csv of VIA-Research/vTrain at f8dda84, 55 runs on
64 to 512 A100 (`python -m research vtrain`). Of the odd rows, which are no independent sample, 46
of 54 are inside, and 17 of the 19 published runs (`research.published_runs`).
"""


def timing(training: Training, host: Host) -> Iterator[str]:
    """Yield how passes are timed, and how long an iteration takes with what range."""
    has_transformers = any(layer.scores for layer in training.model.layers)
    yield _constants(training, has_transformers)
    if host.line_bps is not None:
        line_gbps = Fraction(host.line_bps, 10**9)
        yield (
            f"Network: NICs of {float(line_gbps):g} Gbit/s a host carry {float(NIC_SHARE):.0%} of"
            " that (NVIDIA/nccl-tests, issue 100). Give the fabric"
            f" {float(NIC_SHARE * line_gbps):g} Gbit/s."
        )
    yield _prediction(training, host, has_transformers)


def _constants(training: Training, has_transformers: bool) -> str:
    gpu = training.gpu
    executed = execution(gpu)
    if not has_transformers:
        return (
            "Times: waves of tiles and launches are left out, which were counted of transformers."
        )
    if executed.multiprocessors is None:
        products = "Products of matrices are not cut into waves of tiles"
    else:
        products = (
            f"Products of matrices run in whole waves of tiles of {TILE[0]} x {TILE[1]} on"
            f" {executed.multiprocessors} multiprocessors"
        )
        if gpu.name != "A100":
            products += " (tile carried over from A100)"
    kernels = f"a kernel adds {_us(KERNEL_S):.0f} us (measured on V100)"
    share = host_share(training)
    launches = "no host launches kernels one by one"
    if share:
        launches = (
            f"hosts launch a layer in {_us(share * FORWARD_HOST_S) / 1000:.2f} ms forward and"
            f" {_us(share * BACKWARD_HOST_S) / 1000:.2f} ms backward, {float(share):.0%} of what"
            " GPT needs with PyTorch (other hosts; --host-time)"
        )
    rings = ""
    if training.tensor * training.context * training.expert > 1:
        reached = float(executed.ring_bytes_per_s(gpu)) / 1e9
        rings = f"; rings inside a host reach {reached:.0f} GB/s ({executed.ring_source})"
    return f"Times: {products}; {kernels}; {launches}{rings}."


def _prediction(
    training: Training,
    host: Host,
    has_transformers: bool,
) -> str:
    if host.line_bps is None or _exchanges_between_hosts(training, host):
        subject = "The slowest stage computes for about"
        seconds = _computed_s(training, host)
        besides = "; the network adds to that"
        if host.line_bps is None:
            besides += " (--nic RATE predicts the iteration)"
    else:
        subject = "An iteration alone takes about"
        seconds = iteration(training, host).total_s
        besides = ""
    if not has_transformers:
        return f"{subject} {float(seconds):.3g} s{besides}. No measured run gives a range."
    low, high = RANGE
    carried = ""
    if training.gpu.name != "A100":
        carried = f", carried over to {training.gpu.name}"
    return (
        f"{subject} {float(seconds):.3g} s{besides}. Range: {float(seconds) * low:.3g} s to"
        f" {float(seconds) * high:.3g} s, as nine of ten measured runs of GPT on A100 took {low:g}"
        f" to {high:g} of what is predicted (vTrain, arXiv:2312.12391{carried})."
    )


def _computed_s(training: Training, host: Host) -> Fraction:
    """Return the seconds in which the slowest stage computes in an iteration."""
    stages: list[tuple[Layer, ...]] = training.stages
    if training.is_sharded:
        stages = [(layer,) for layer in training.model.layers]
    times = []
    for layers in stages:
        forward, backward = pass_s(training, layers, host)
        times.append(forward + backward)
    # Layers that are sharded follow each other; stages compute at once.
    busy_s = max(times)
    if training.is_sharded:
        busy_s = sum(times, Fraction(0))
    return training.micro_batches * busy_s


def _exchanges_between_hosts(training: Training, host: Host) -> bool:
    """Return whether contexts, experts or tables exchange over the network: not predicted here."""
    if training.model.tables:
        return True
    cut = training.tensor * training.context
    has_context = training.context > 1 and cut > host.gpus
    has_experts = training.expert > 1 and training.expert_span > host.gpus
    return has_context or has_experts


def _us(seconds: Fraction) -> float:
    return float(seconds * 10**6)
