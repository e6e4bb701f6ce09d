"""The times of a micro-batch's passes, with what GPUs communicate inside a host.

A pass takes the longer of two: what the GPU does (`computing`, and rings inside the host), or what
the host needs to launch it (`launches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from echelon_lab.models.collectives import Bus, all_reduce_s, round_s
from echelon_lab.models.computing import backward_s, forward_s
from echelon_lab.models.execution import execution
from echelon_lab.models.hosts import Host
from echelon_lab.models.launches import BACKWARD_HOST_S, FORWARD_HOST_S
from echelon_lab.models.layers import Layer
from echelon_lab.models.training import Training


def pass_s(
    training: Training,
    layers: Sequence[Layer],
    host: Host,
) -> tuple[Fraction, Fraction]:
    """Return the times of the forward and of the backward pass of one micro-batch on a host."""
    forward = forward_s(training, layers)
    forward += local_s(training, layers, host)
    backward = backward_s(training, layers)
    backward += local_s(training, layers, host, backward=True)
    host_forward, host_backward = host_s(training, layers)
    return max(forward, host_forward), max(backward, host_backward)


def host_s(training: Training, layers: Sequence[Layer]) -> tuple[Fraction, Fraction]:
    """Return the host's times to launch the forward and the backward pass."""
    # Operators were counted of transformers only.
    launched = len([layer for layer in layers if layer.scores])
    share = host_share(training)
    forward = share * launched * FORWARD_HOST_S
    backward = share * launched * BACKWARD_HOST_S
    if training.recompute == "full":
        backward += forward
    return forward, backward


def host_share(training: Training) -> Fraction:
    """Return the part of the host's times that this training needs."""
    if execution(training.gpu).is_compiled:
        return Fraction(0)
    return training.host_time


def local_s(
    training: Training,
    layers: Sequence[Layer],
    host: Host,
    *,
    backward: bool = False,
) -> Fraction:
    """Return the seconds that these layers communicate inside a host in one pass.

    A micro-batch has rings of the tensor group, and of the context's and experts' groups that fit
    into the host. A tensor group that does not fit has its rings over the host's NICs.
    """
    passes = 1
    if backward and training.recompute == "full":
        passes = 2
    inside = Bus(execution(training.gpu).ring_bytes_per_s(training.gpu))
    cut = training.tensor * training.context
    total = Fraction(0)
    for layer in layers:
        total += passes * _tensor_s(training, layer, inside, host)
        if cut <= host.gpus:
            key_values = training.context_bytes(layer)
            gathered_s = round_s(inside, training.context, key_values)
            # The backward pass also scatters the gradients of keys and values.
            total += (passes + backward) * gathered_s
        if training.expert_span <= host.gpus:
            routed = training.routed_bytes(layer)
            total += 2 * passes * round_s(inside, training.expert, routed)
    return total


def _tensor_s(
    training: Training,
    layer: Layer,
    inside: Bus,
    host: Host,
) -> Fraction:
    """Return the seconds in which a tensor group sums the outputs of a layer in one pass."""
    if training.tensor == 1 or layer.tensor_reduces == 0:
        return Fraction(0)
    bus = inside
    if training.tensor > host.gpus:
        bus = Bus(host.bytes_per_s, hosts=training.tensor // host.gpus)
    size = training.activation_bytes(layer)
    if training.sequence_parallel:
        sum_s = 2 * round_s(bus, training.tensor, size)
    else:
        sum_s = all_reduce_s(bus, training.tensor, size)
    # Tokens for experts are gathered before them, and scattered behind them.
    tokens_s = 2 * round_s(bus, training.tensor, training.expert_tokens_bytes(layer))
    return layer.tensor_reduces * sum_s + tokens_s
