"""The policies by name: each a published way of sharing the network between training jobs.

A policy's module is imported when the policy is made, so that listing the names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from echelon.policies.base import Policy

__all__ = ["PARAMETERS", "POLICIES", "PlanError", "make_policy"]


class PlanError(ValueError):
    """A policy cannot be made, or cannot plan these jobs on this fabric; the message says what to change."""

    def __init__(self, reason: str, job: str | None = None) -> None:
        super().__init__(reason)
        self.job = job
        """Without this job the others may be planned; None: it is not one job that is at fault."""


def _from(module: str, name: str) -> Callable[..., Policy]:
    def make(**parameters: object) -> Policy:
        return cast("Policy", getattr(import_module(module), name)(**parameters))

    return make


POLICIES: Mapping[str, Callable[..., Policy]] = {
    "fifo": _from("echelon.policies.fifo", "Fifo"),
    "fair": _from("echelon.policies.fair", "Fair"),
    "coflow": _from("echelon.policies.coflow", "Varys"),
    "echelon": _from("echelon.policies.echelon", "Echelon"),
}
"""What makes each policy, by name; takes the policy's own keyword parameters."""

PARAMETERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "fifo": {},
    "fair": {},
    "coflow": {},
    "echelon": {"order": ("normalised", "deadline", "setf"), "reference": ("iteration", "echelonflow")},
}
"""The parameters of each policy and the values that each can have, the default first."""


def make_policy(name: str, **parameters: object) -> Policy:
    """The policy of that name. Raises `PlanError` for an unknown name, parameter or value."""
    factory = POLICIES.get(name)
    if factory is None:
        raise PlanError(f"policy {name!r} does not exist; choose one of {', '.join(POLICIES)}")
    known = PARAMETERS[name]
    for parameter, value in parameters.items():
        if parameter not in known:
            choice = f"it takes {', '.join(known)}" if known else "it takes none"
            raise PlanError(f"policy {name} has no parameter {parameter!r}; {choice}")
        if value not in known[parameter]:
            allowed = ", ".join(known[parameter])
            raise PlanError(f"policy {name}: {parameter} cannot be {value!r}; choose one of {allowed}")
    return factory(**parameters)
