"""What every policy offers: a plan for switches, and the ideal rates that the fluid simulator runs.

Both faces see jobs and fabric only. Numbers are `Fraction` so that the fluid simulator is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from echelon.documents import Section
from echelon.fabric.model import Fabric
from echelon.fabric.routing import Routes
from echelon.jobs.graph import Job
from echelon.plan import Plan

Link = tuple[str, str]
"""A directed link: (node, next node)."""


@dataclass(frozen=True, slots=True)
class ActiveFlow:
    """A flow that has started and not finished, as a scheduler sees it."""

    job: str
    flow: str
    iteration: int
    echelonflow: str | None
    """None for background traffic that no job claims."""
    links: tuple[Link, ...]
    size_bytes: int
    remaining_bytes: Fraction
    start_s: Fraction
    ideal_finish_s: Fraction
    sequence: int
    """Counts flow starts in the whole run: breaks ties by arrival."""
    max_rate_Bps: Fraction | None = None  # noqa: N815
    """Bytes per second that the sender does not exceed (background); None: no limit."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rates in bytes per second, in the order of the flows given; they hold until a flow starts or finishes, or until
    `valid_until_s` (None: no other limit)."""

    rates_Bps: tuple[Fraction, ...]  # noqa: N815
    valid_until_s: Fraction | None = None


class NoParameters(Section):
    """The parameters of a policy that has none."""


class Policy(Protocol):
    """A published way of sharing the network between jobs.

    Its class has an attribute `Parameters`, a `Section` with typed fields and defaults, and is made from an instance of
    it; see `echelon.policies.registry`.
    """

    @property
    def name(self) -> str: ...

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        """The plan for switches before the first iteration. Raises `PlanError` if the fabric cannot carry the jobs."""

    def remember(self, routes: Mapping[str, Routes]) -> None:
        """For a policy that takes over from another, or from itself before a restart: by job, the path that each of its
        connections has. They stay on it if the policy does not need another one."""

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        """The rates that the policy would ideally give `flows` from now on (needs `plan` first)."""
