"""The degrees of parallelism that a user writes, as in ``dp=8,tp=4,pp=2``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from echelon.model.documents import DocumentError

_DEGREE = re.compile(r"(dp|tp|pp|cp|ep|etp|shard)=([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees of parallelism, as `Training` explains them."""

    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    folded: bool
    shard: int | None


def degrees(text: str, gpus: int) -> Degrees:
    """Return the degrees for so many GPUs; a missing dp is what remains.

    Raises `DocumentError`.
    """
    numbers = _numbers(text)
    tensor, pipeline = numbers.get("tp", 1), numbers.get("pp", 1)
    context, expert = numbers.get("cp", 1), numbers.get("ep", 1)
    replica = tensor * pipeline * context
    data = numbers.get("dp", max(1, gpus // replica))
    if data * replica != gpus:
        product = f"dp={data}, tp={tensor}, pp={pipeline}"
        if context > 1:
            product += f", cp={context}"
        reason = f"{product} are {data * replica} GPUs, not {gpus} (correct one of them)"
        raise DocumentError("--parallel", "", reason)
    folded = _is_folded(numbers.get("etp"), tensor, expert)
    return Degrees(data, tensor, pipeline, context, expert, folded, numbers.get("shard"))


def _numbers(text: str) -> Mapping[str, int]:
    numbers: dict[str, int] = {}
    for word in text.split(","):
        part = word.strip()
        if not part:
            continue
        match = _DEGREE.fullmatch(part)
        if match is None:
            reason = (
                f"'{part}' is not a degree of parallelism (write dp=8,tp=4,pp=2; also cp, ep, etp"
                " and shard)"
            )
            raise DocumentError("--parallel", "", reason)
        if match[1] in numbers:
            raise DocumentError("--parallel", match[1], "is given twice (give it once)")
        numbers[match[1]] = int(match[2])
    return numbers


def _is_folded(expert_tensor: int | None, tensor: int, expert: int) -> bool:
    """Return whether experts are whole; by default, a tensor group cuts them as all else."""
    if expert_tensor is None:
        return False
    if expert == 1:
        reason = "is about expert parallelism (give ep=2 or more, or leave it out)"
        raise DocumentError("--parallel", "etp", reason)
    if expert_tensor not in (1, tensor):
        reason = f"is {expert_tensor}, but experts are whole or cut as all else (give 1 or tp)"
        raise DocumentError("--parallel", "etp", reason)
    return expert_tensor == 1
