"""The placement of a training's groups on hosts."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.model.documents import DocumentError
from echelon_lab.models.checks import check
from echelon_lab.models.hosts import Host
from echelon_lab.models.training import Training


@dataclass(frozen=True, slots=True)
class Placement:
    """Consecutive ranks on hosts, and the number of hosts of each group of them."""

    gpus_per_host: int
    hosts: int
    context_hosts: int
    expert_hosts: int
    shard_hosts: int

    @property
    def host(self) -> Host:
        """Return a host of these."""
        return Host(self.gpus_per_host)

    @property
    def has_context(self) -> bool:
        """Return whether hosts exchange keys and values of a context."""
        return self.context_hosts > 1

    @property
    def group(self) -> int:
        """Return how many hosts share the layers of a replica, or of several with all experts."""
        return max(self.context_hosts, self.expert_hosts)

    @property
    def sharded_replicas(self) -> int:
        """Return how often hosts have all shards of the state."""
        return self.hosts // self.shard_hosts


def placement(training: Training, gpus_per_host: int) -> Placement:
    """Return the placement of a training on hosts with so many GPUs.

    Raises `DocumentError` for degrees that do not go together, and for groups that hosts cut or
    that cannot be written as a job.
    """
    check(training)
    if gpus_per_host % training.tensor:
        reason = (
            f"{gpus_per_host} a host do not hold whole groups of tp={training.tensor} (give a"
            " multiple of tp, or a smaller tp)"
        )
        raise DocumentError("--gpus-per-host", "", reason)
    hosts = training.gpus // gpus_per_host
    if hosts < 2:
        reason = (
            f"{training.gpus} are on one host, which needs no network (give more, or a smaller"
            " --gpus-per-host)"
        )
        raise DocumentError("--gpus", "", reason)
    stage = training.gpus // training.pipeline
    if stage % gpus_per_host:
        reason = (
            f"{gpus_per_host} a host do not divide the {stage} GPUs of a stage (give a divisor, or"
            " a larger dp)"
        )
        raise DocumentError("--gpus-per-host", "", reason)

    context = training.tensor * training.context
    experts = 1
    if training.expert > 1:
        experts = training.expert_span
    shards = training.tensor * training.shards
    for key, size in (("cp", context), ("ep", experts), ("shard", shards)):
        # A group is a part of a host, or several hosts.
        if size % gpus_per_host and gpus_per_host % size:
            reason = (
                f"{gpus_per_host} a host neither divide the {size} GPUs in a row of {key} nor are a"
                f" multiple of them (change one)"
            )
            raise DocumentError("--gpus-per-host", "", reason)
    placed = Placement(
        gpus_per_host,
        hosts,
        context_hosts=-(-context // gpus_per_host),
        expert_hosts=-(-experts // gpus_per_host),
        shard_hosts=-(-shards // gpus_per_host),
    )
    _check_between(training, placed)
    return placed


def _check_between(training: Training, placed: Placement) -> None:
    if placed.has_context and placed.expert_hosts > 1:
        reason = "and cp are both larger than a host (give a smaller one of them)"
        raise DocumentError("--parallel", "ep", reason)
    if training.is_sharded and placed.group > 1:
        key = "cp" if placed.has_context else "ep"
        reason = (
            f"{training.zero} goes with {key} inside a host of {placed.gpus_per_host} only (give 0"
            f" or 1, or a smaller {key})"
        )
        raise DocumentError("--zero", "", reason)
