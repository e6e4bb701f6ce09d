"""The time of an iteration when the training is alone on its hosts.

It is the computing of its passes in their schedule, and what of the communication they cannot
hide. A pipeline sends the output of a stage, and its gradient, for each micro-batch. A stage that
waits for its sends (`Training.blocking`) is idle for both. Otherwise there are only as many
micro-batches under way as stages (1F1B), and all wait while one goes to the last stage and back.
The job file has the same sends in the same schedule, and what runs it exposes them by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon_lab.models.hosts import Host
from echelon_lab.models.launches import US
from echelon_lab.models.layers import Layer
from echelon_lab.models.times import pass_s
from echelon_lab.models.training import Training

SEND_S = 20 * US
"""What a send adds besides its bytes. An own estimate: no measurement is known."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """The seconds of an iteration, by what they are spent on."""

    computed_s: Fraction
    """The time of passes, with what is communicated inside a host, and of waiting for stages."""
    sent_s: Fraction
    """The time of a pipeline's sends."""
    summed_s: Fraction
    """The time in which replicas sum gradients and gather parameters."""

    @property
    def total_s(self) -> Fraction:
        """Return the seconds of the iteration."""
        return self.computed_s + self.sent_s + self.summed_s


def iteration(training: Training, host: Host) -> Iteration:
    """Return the time of an iteration on hosts whose NICs have a rate.

    * m micro-batches on p stages of v chunks take m times the slowest stage, and 1/v of all others
      to fill and drain the pipeline;
    * there are two sends over each boundary to fill and drain the pipeline, and for each
      micro-batch and chunk two sends if they block, or else a part of the way to the last stage and
      back;
    * sums of gradients take their time, less the last backward pass of a stage if they overlap;
    * with ZeRO-3, each layer takes the longer of computing and gathering, or scattering.
    """
    if training.zero == 3:
        return _sharded(training, host)
    busy = []
    exposed = []
    for layers in training.stages:
        forward, backward = pass_s(training, layers, host)
        busy.append(forward + backward)
        hidden_s = Fraction(0)
        if training.overlap:
            hidden_s = backward / training.chunks
        exposed.append(_exposed_s(training, host, layers, hidden_s))

    slowest = max(busy)
    bubble_s = (sum(busy) - slowest) / training.chunks
    computed_s = training.micro_batches * slowest + bubble_s
    return Iteration(computed_s, _sent_s(training, host), max(exposed))


def _exposed_s(
    training: Training,
    host: Host,
    layers: Sequence[Layer],
    hidden_s: Fraction,
) -> Fraction:
    """Return what of a stage's sums over replicas is not hidden behind so many seconds."""
    summed_s = _summed_s(training, host, layers)
    if training.zero == 0:
        return max(Fraction(0), 2 * summed_s - hidden_s)
    # ZeRO gathers parameters after the step, when nothing hides it.
    scattered_s = max(Fraction(0), summed_s - hidden_s)
    return scattered_s + _gathered_s(training, host, layers)


def _sharded(training: Training, host: Host) -> Iteration:
    """Return the iteration with ZeRO-3, which gathers each layer before it is used."""
    computed_s = Fraction(0)
    total_s = Fraction(0)
    for layer in training.model.layers:
        layers = [layer]
        forward, backward = pass_s(training, layers, host)
        gather_s = _gathered_s(training, host, layers)
        scatter_s = _summed_s(training, host, layers)
        scatter_s += _copied_s(training, host, layers)
        computed_s += forward + backward
        total_s += max(forward, gather_s)
        total_s += max(backward, gather_s, scatter_s)
    computed_s *= training.micro_batches
    total_s *= training.micro_batches
    return Iteration(computed_s, Fraction(0), total_s - computed_s)


def _sent_s(training: Training, host: Host) -> Fraction:
    """Return the seconds that sends of a pipeline add.

    The GPUs of a host send at once over its NICs. Stages inside a host send over its own links,
    which takes no time here.
    """
    stage_gpus = training.gpus // training.pipeline
    if training.pipeline == 1 or stage_gpus < host.gpus:
        return Fraction(0)
    largest = 0
    for layers in training.stages[:-1]:
        largest = max(largest, training.sent_bytes(layers[-1]))
    send_s = host.gpus * largest / host.bytes_per_s + SEND_S
    boundaries = training.pipeline - 1
    if training.blocking:
        steady = Fraction(training.micro_batches * training.chunks)
    else:
        steady = Fraction(training.micro_batches * boundaries, training.pipeline)
    return 2 * (steady + boundaries) * send_s


def _summed_s(
    training: Training,
    host: Host,
    layers: Sequence[Layer],
) -> Fraction:
    """Return how long replicas need to scatter the gradients of these layers."""
    return _around_ring_s(training, host, layers, training.summed_element_bytes)


def _gathered_s(
    training: Training,
    host: Host,
    layers: Sequence[Layer],
) -> Fraction:
    """Return how long replicas need to gather the parameters of these layers."""
    return _around_ring_s(training, host, layers, training.model.parameter_bytes)


def _copied_s(
    training: Training,
    host: Host,
    layers: Sequence[Layer],
) -> Fraction:
    """Return how long hosts with the same shard need to sum its gradients (HSDP)."""
    shard_hosts = _shard_hosts(training, host)
    copies = training.gpus // host.gpus // shard_hosts
    if copies <= 1:
        return Fraction(0)
    parameters = training.host_parameters(layers, host.gpus)
    size = Fraction(training.summed_element_bytes * parameters, shard_hosts)
    moved = 2 * Fraction(copies - 1, copies) * size
    return moved / host.bytes_per_s


def _shard_hosts(training: Training, host: Host) -> int:
    """Return how many hosts have a shard of each layer."""
    return -(-training.tensor * training.shards // host.gpus)


def _around_ring_s(
    training: Training,
    host: Host,
    layers: Sequence[Layer],
    element_bytes: int,
) -> Fraction:
    """Return how long a ring of hosts needs for elements of so many bytes of each parameter."""
    hosts = training.gpus // host.gpus // training.pipeline
    if training.is_sharded:
        hosts = _shard_hosts(training, host)
    if hosts <= 1:
        return Fraction(0)
    parameters = Fraction(training.host_parameters(layers, host.gpus))
    if training.tensor > host.gpus:
        parameters *= Fraction(host.gpus, training.tensor)
    moved = Fraction(hosts - 1, hosts) * element_bytes * parameters
    return moved / host.bytes_per_s
