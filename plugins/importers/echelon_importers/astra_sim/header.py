"""The first line of a text workload: its training loop and its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from echelon.model.documents import suggestion
from echelon.model.quantities import excerpt
from echelon_importers.astra_sim.loops import LOOPS, PIPELINED
from echelon_importers.importer import Source

INFERENCE = 1
"""The `mode` that AICB 2.0 writes for prefill and decode."""
_LISTS = ("checkpoints", "checkpoint_initiates")
_LEAST: Mapping[str, int] = {
    "model_parallel_NPU_group": 1,
    "ep": 1,
    "pp": 1,
    "vpp": 1,
    "ga": 1,
    "all_gpus": 1,
    "expert_parallel_npu_group": 1,
    "mode": 0,
    "pp_comm": 0,
    "DLRM_LAST_BOTTOM_LAYER": 0,
}
"""The settings with one number, and the least that it may be."""
_OF_PIPELINES = ("vpp", "ga", "pp_comm")
_UNREAD = "expert_parallel_npu_group"
"""AICB's name for `ep` in micro-benchmarks, which SimAI passes over."""


@dataclass(frozen=True, slots=True)
class Header:
    """The training loop of a text workload, and its settings."""

    loop: str
    settings: Mapping[str, tuple[int, ...]]
    """Numbers by key; `checkpoints` and `checkpoint_initiates` are layers counted from 0."""

    def number(self, key: str, default: int) -> int:
        """Return a setting with one number."""
        return self.settings.get(key, (default,))[0]

    @property
    def is_inference(self) -> bool:
        """Return whether a forward pass is all that runs."""
        has_mode = self.number("mode", 0) == INFERENCE
        return has_mode or self.loop == "DISTRIBUTED_INFERENCE"

    @property
    def stages(self) -> int:
        """Return the number of stages of the pipeline."""
        return self.number("pp", 1)

    def of_one_stage(self) -> Header:
        """Return the header of a stage alone, which has a part of the GPUs."""
        settings = {**self.settings, "pp": (1,)}
        if "all_gpus" in settings:
            settings["all_gpus"] = (self.number("all_gpus", 0) // self.stages,)
        return replace(self, settings=settings)

    def unused(self) -> list[str]:
        """Return the settings that change nothing in what is imported."""
        keys = []
        for key in self.settings:
            of_pipeline = key in _OF_PIPELINES and self.stages == 1
            if of_pipeline or key == _UNREAD:
                keys.append(key)
        return keys


def parse_header(
    source: Source,
    line: int,
    words: Sequence[str],
) -> Header:
    """Return what the first line says.

    Raises `DocumentError` for a setting whose meaning is not known.
    """
    loop = words[0]
    if loop not in LOOPS:
        reason = f"{excerpt(loop)} is not a training loop"
        raise source.fault(line, reason, suggestion(loop, LOOPS))
    settings: dict[str, tuple[int, ...]] = {}
    if loop.startswith("HYBRID_DLRM") and len(words) == 2:
        words = (loop, "DLRM_LAST_BOTTOM_LAYER:", words[1])
    rest = list(words[:0:-1])
    while rest:
        key = rest.pop().removesuffix(":")
        if key in _LISTS:
            word = rest.pop() if rest else ""
            count = source.integer(line, word, f"how many {key}", most=10**4)
            settings[key] = tuple(_number(source, line, key, rest) for _ in range(count))
            continue
        if key not in _LEAST:
            hint = suggestion(key, (*_LEAST, *_LISTS))
            remedy = f"{hint}; take it out if it changes nothing that is sent or computed"
            raise source.fault(line, f"{excerpt(key)} is not a setting that is understood", remedy)
        number = _number(source, line, key, rest)
        if number < _LEAST[key]:
            raise source.fault(line, f"{key} {number} is less than {_LEAST[key]}", "correct it")
        if settings.get(key, (number,)) != (number,):
            reason = f"{key} is {settings[key][0]} and {number}"
            raise source.fault(line, reason, "take one of them out")
        settings[key] = (number,)
    return Header(loop, settings)


def _number(
    source: Source,
    line: int,
    key: str,
    rest: list[str],
) -> int:
    word = rest.pop() if rest else ""
    # AICB divides with sequence parallelism: "pp_comm: 4194304.0".
    if re.fullmatch(r"[0-9]+\.0", word):
        word = word.removesuffix(".0")
    return source.integer(line, word, f"a number for {key}")


def check_header(
    source: Source,
    line: int,
    header: Header,
) -> None:
    """Raise `DocumentError` if settings contradict each other."""
    mode = header.number("mode", 0)
    if mode > INFERENCE:
        reason = f"mode {mode} is not known (0: training, 1: inference)"
        raise source.fault(line, reason, "correct it, or take it out for training")
    if header.stages == 1:
        return
    stages = f"pp is {header.stages}"
    alone = "or give --set pp=1 for one stage alone"
    if header.loop not in PIPELINED:
        reason = f"{stages}, but {header.loop} has no pipelines"
        raise source.fault(line, reason, f"use {' or '.join(PIPELINED)}, {alone}")
    if not header.number("pp_comm", 0):
        reason = f"{stages}, but pp_comm has no bytes"
        raise source.fault(line, reason, f"add pp_comm: and the bytes of a send, {alone}")
    if header.is_inference and header.number("ga", 1) > 1:
        reason = "mode 1 is inference, but ga says several micro-batches"
        raise source.fault(line, reason, "take one of them out")
    if header.settings.get("checkpoint_initiates"):
        reason = (
            f"{stages}, but forward passes are repeated from checkpoints (which is unsupported)"
        )
        raise source.fault(line, reason, f"take the checkpoints out, {alone}")
