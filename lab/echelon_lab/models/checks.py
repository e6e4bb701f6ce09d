"""Checks of a training's layout; each refusal names the option and what to give."""

from __future__ import annotations

from echelon.model.documents import DocumentError
from echelon_lab.models.training import Training


def check(training: Training) -> None:
    """Raise `DocumentError` for degrees and options that do not go together."""
    _check_degrees(training)
    _check_experts(training)
    _check_shard(training)
    _check_pipeline(training)
    _check_zero(training)


def _check_degrees(training: Training) -> None:
    layers = training.model.layers
    is_cut = any(layer.tensor_reduces for layer in layers)
    for key, degree in (("tp", training.tensor), ("cp", training.context)):
        if degree > 1 and not is_cut:
            reason = f"{training.model.name} has no layers that are cut (give {key}=1)"
            raise DocumentError("--parallel", key, reason)
    passes_states = any(layer.scores and not layer.key_values for layer in layers)
    if training.context > 1 and passes_states:
        reason = (
            f"{training.model.name} has layers that pass a state along the sequence instead of keys"
            " and values (give cp=1)"
        )
        raise DocumentError("--parallel", "cp", reason)
    if training.model.tables and training.pipeline > 1:
        reason = f"{training.model.name} has tables that all GPUs share (give pp=1)"
        raise DocumentError("--parallel", "pp", reason)


def check_heads(training: Training) -> None:
    """Raise `DocumentError` for a tensor group that would cut a head.

    A training may be of a made-up model, as in measurements: only users' layouts are checked.
    """
    for layer in training.model.layers:
        if layer.heads % training.tensor:
            reason = (
                f"{training.tensor} does not divide the {layer.heads} heads of"
                f" {training.model.name} (give a divisor)"
            )
            raise DocumentError("--parallel", "tp", reason)


def _check_experts(training: Training) -> None:
    if training.expert == 1:
        return
    count = max(layer.expert_count for layer in training.model.layers)
    if not count:
        raise DocumentError("--parallel", "ep", f"{training.model.name} has no experts (give ep=1)")
    if count % training.expert:
        reason = f"{training.expert} does not divide the {count} experts (give a divisor)"
        raise DocumentError("--parallel", "ep", reason)
    ranks = training.data * training.context * training.tensor
    if training.folded:
        if ranks % training.expert:
            reason = f"{training.expert} does not divide dp x cp x tp = {ranks} (give a divisor)"
            raise DocumentError("--parallel", "ep", reason)
        return
    if training.data % training.expert:
        advice = "give a divisor"
        if ranks % training.expert == 0:
            advice += f", or etp=1: whole experts on parts of dp x cp x tp = {ranks}"
        reason = f"{training.expert} does not divide dp={training.data} ({advice})"
        raise DocumentError("--parallel", "ep", reason)


def _check_shard(training: Training) -> None:
    if training.shard is None:
        return
    replicas = training.data * training.context
    if replicas % training.shard:
        reason = f"{training.shard} does not divide dp x cp = {replicas} (give a divisor)"
        raise DocumentError("--parallel", "shard", reason)
    if not training.is_sharded:
        reason = "goes with --zero 2 or 3 and pp=1 (give --zero 3, as FSDP2 does)"
        raise DocumentError("--parallel", "shard", reason)
    if training.expert > 1 and training.shard < replicas:
        reason = "does not go with ep here (leave out one of them)"
        raise DocumentError("--parallel", "shard", reason)


def _check_pipeline(training: Training) -> None:
    layers = len(training.model.layers)
    if training.pipeline * training.chunks > layers:
        if training.pipeline > layers:
            place = ("--parallel", "pp")
        else:
            place = ("--interleave", "")
        reason = f"{training.model.name} has {layers} layers (give at most as many stages in all)"
        raise DocumentError(*place, reason, code="too-large")
    if training.sequence_parallel and training.tensor == 1:
        raise DocumentError("--sequence-parallel", "", "needs a tensor group (give tp=2 or more)")
    if training.chunks > 1 and training.pipeline == 1:
        raise DocumentError("--interleave", "", "needs a pipeline (give pp=2 or more)")
    if training.chunks > 1 and training.micro_batches % training.pipeline:
        reason = (
            f"needs micro-batches in multiples of pp={training.pipeline}, not"
            f" {training.micro_batches} (change --global-batch or --micro-batches)"
        )
        raise DocumentError("--interleave", "", reason)


def _check_zero(training: Training) -> None:
    if training.zero == 3 and training.pipeline > 1:
        reason = (
            "3 does not go with a pipeline, which keeps gathered parameters (give 2, as"
            " torchtitan does)"
        )
        raise DocumentError("--zero", "", reason)
    if training.zero and training.model.tables:
        reason = f"{training.model.name} has tables, which GPUs share without it (give 0)"
        raise DocumentError("--zero", "", reason)
    if training.is_sharded and not training.overlap:
        reason = "does not go with --zero 2 or 3, which scatter as they compute (leave it out)"
        raise DocumentError("--no-overlap", "", reason)
