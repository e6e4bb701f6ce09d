"""gNMI paths as tuples of steps, and their text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from finsy.proto import gnmi

from softswitch.rpc.status import Code, RefusedError

__all__ = ["Step", "from_message", "path_text", "to_message"]


class Step(NamedTuple):
    """One element of a path: its name and its list keys."""

    name: str
    keys: Mapping[str, str] = {}


def from_message(path: gnmi.Path, prefix: gnmi.Path | None = None) -> tuple[Step, ...]:
    """Return the steps of `path` behind those of `prefix`.

    Raises:
        RefusedError: INVALID_ARGUMENT for the deprecated `element` form or an origin other than
        OpenConfig's.
    """
    steps: list[Step] = []
    for part in (prefix, path):
        if part is None:
            continue
        if part.element:
            raise RefusedError(
                Code.INVALID_ARGUMENT, "paths of strings (`element`) are not supported; send `elem`"
            )
        if part.origin not in ("", "openconfig"):
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"origin {part.origin!r} is unknown; only 'openconfig' is served",
            )
        steps += (Step(elem.name, dict(elem.key)) for elem in part.elem)
    return tuple(steps)


def to_message(steps: Iterable[Step]) -> gnmi.Path:
    """Return `steps` as a message."""
    path = gnmi.Path()
    for step in steps:
        path.elem.add(
            name=step.name,
            key=dict(step.keys),
        )
    return path


def path_text(steps: Iterable[Step]) -> str:
    """Return `steps` in the usual notation: ``/qos/interfaces/interface[interface-id=1]``."""
    text = ""
    for step in steps:
        text += f"/{step.name}"
        for key, value in sorted(step.keys.items()):
            text += f"[{key}={value}]"
    return text or "/"
