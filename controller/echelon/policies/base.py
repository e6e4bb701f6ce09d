"""The interface of every policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from echelon.documents import Section
from echelon.fabric.model import Fabric
from echelon.fabric.routing import PathChooser
from echelon.jobs.graph import Job
from echelon.plan import Plan


class NoParameters(Section):
    """The parameters of a policy that has none."""


@runtime_checkable
class Carried(Protocol):
    """The part of a policy on which its next plan depends besides jobs and fabric."""

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue from what `to_document` returned, before the first plan. Raises `ValueError`."""


class Policy(Protocol):
    """A published way of sharing the network between jobs.

    Its class has an attribute `Parameters`, a `Section` with typed fields and defaults, and is made from an instance of
    it; see `echelon.policies.registry`. A policy that is also an `echelon.allocation.Allocator` says which rates it
    would give every flow if switches had a queue for each: the central scheduler of a reactive policy turns them into
    weights of queues, and the fluid simulator's ideal mode runs them as they are.

    A policy whose plans depend on those before has it in an attribute `carried`. The service keeps that, so that a
    restart changes no plan.
    """

    @property
    def name(self) -> str: ...

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return the plan for the switches. Raises `PlanError` if the fabric cannot carry the jobs.

        `paths` chooses the paths of connections, unless the policy chooses them itself; by default a connection stays
        on its path for as long as that is a shortest one.
        """
