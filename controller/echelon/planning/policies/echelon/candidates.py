"""The ways to plan among which `echelon` chooses: orders of ours and other policies, by paths.

No order is best for all mixes of jobs. Of 192 blends none was within 1 % of the best for more than
65 % of random mixes; the portfolio here was chosen on the even seeds of `echelon evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.plan import Plan
from echelon.planning.policies.base import Policy
from echelon.planning.policies.cassini.shifts import time_shifts
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.echelon.ordered import OrderedPolicy
from echelon.planning.policies.orders import MEMORY, ORDERS, Blend, Blended, Order
from echelon.planning.policies.registry import make_policy

PATHS: Mapping[str, Callable[[], PathChooser] | None] = {"kept": None, "crux": LeastCongested}
"""Choosers of paths by name: kept ones, or the least congested as with Crux."""


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A way to plan: an order of ours, or another policy."""

    choosers: ClassVar = PATHS
    """The choosers of paths that there are, by name."""
    order: str = ""
    """A key of `BLENDS` or of `ORDERS`."""
    policy: str = ""
    """The name of another policy, instead of an order."""
    parameters: tuple[tuple[str, str], ...] = ()
    """The parameters of that policy."""
    paths: str = "kept"
    """A key of `choosers`."""
    shifted: bool = False
    """Whether hosts delay jobs so that fewer of their flows meet, as CASSINI has it."""
    units: tuple[tuple[str, Fraction], ...] = ()
    """The factors of the units of jobs under an order, by name, where they are not 1 (`units`)."""

    @property
    def label(self) -> str:
        """Return a name for people."""
        words = [self.policy or f"rule {self.order}"]
        if self.paths != "kept":
            words.append(f"paths={self.paths}")
        if self.shifted:
            words.append("shifted")
        words += self._units_in_words()
        return " ".join(words)

    def _units_in_words(self) -> list[str]:
        return [f"{job}×{factor}" for job, factor in self.units]

    @property
    def relies_on_bytes(self) -> bool:
        """Whether flows are kept apart by ranks that depend on their bytes left, and not by shifts."""
        counts_bytes = self.order in BLENDS and bool(BLENDS[self.order].left)
        return counts_bytes and not self.shifted

    def new_policy(self, similar: OrderedPolicy | None = None) -> Policy:
        """Return a new policy. Its connections take the paths of `chooser`.

        It shares with `similar` what no order changes.
        """
        if self.policy:
            return make_policy(self.policy, **dict(self.parameters))
        shifts = None
        if self.shifted:
            shifts = time_shifts
        order = order_named(self.order)
        units = dict(self.units)
        if similar is not None:
            return similar.with_order(order, shifts, units)
        return OrderedPolicy(order, shifts, units)

    def chooser(self) -> PathChooser | None:
        """Return a new chooser of paths; None: connections stay where they are."""
        make = self.choosers[self.paths]
        if make is None:
            return None
        return make()

    def plan(
        self,
        policy: Policy,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None,
        places: Mapping[str, int],
    ) -> Plan:
        """Return the plan of `policy`, which `new_policy` returned.

        Raises as `Policy.plan`. Under a blend, `places` tell copies of a job apart.
        """
        if isinstance(policy, OrderedPolicy) and self.order in BLENDS:
            return policy.plan(jobs, fabric, paths, places)
        return policy.plan(jobs, fabric, paths)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "rule": self.order,
            "policy": self.policy,
            "parameters": dict(self.parameters),
            "paths": self.paths,
            "shifted": self.shifted,
            "units": {job: str(factor) for job, factor in self.units},
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> PlanCandidate:
        """Return what `to_document` returned, also with a name of `FORMER_NAMES`.

        Raises `ValueError` for an order, policy or paths that there are not.
        """
        name = str(document["rule"])
        policy = str(document["policy"])
        parameters = []
        for key, value in document["parameters"].items():
            parameters.append((str(key), str(value)))
        paths = str(document["paths"])
        shifted = bool(document["shifted"])
        units = []
        # Older stores have no units.
        for job, factor in document.get("units", {}).items():
            units.append((str(job), Fraction(factor)))
        order = FORMER_NAMES.get(name, name)
        candidate = cls(order, policy, tuple(parameters), paths, shifted, tuple(units))
        has_order = policy or order in BLENDS or order in ORDERS
        if paths not in PATHS or not has_order:
            raise ValueError(f"there is no plan '{candidate.label}'")
        return candidate


_NONE = Fraction(0)
_HALF = Fraction(1, 2)
_ALL = Fraction(1)
BLENDS: Mapping[str, Blend] = {
    "critical_and_short_first": Blend(_HALF, _HALF, latest=True, left=3),
    "delayed_first": MEMORY,
    "critical_first": Blend(_HALF, _HALF, latest=True),
    "delayed_and_short_first": Blend(_HALF, _HALF, _ALL, left=2),
    "furthest_behind_and_short_first": Blend(_ALL, _NONE, _ALL, left=2),
    "critical_and_short_by_root_of_period": Blend(_HALF, _NONE, latest=True, left=4),
    "critical_and_short_in_seconds": Blend(_NONE, _NONE, latest=True, left=4),
    "smallest_left_first": Blend(_NONE, _NONE, left=4),
    "light_jobs_and_short_groups_first": Blend(_NONE, _ALL, left=4, together=True),
    "critical_and_short_groups_first": Blend(
        _HALF,
        _HALF,
        latest=True,
        left=3,
        together=True,
    ),
}
"""The blends of tardiness, memory and bytes left that are simulated, by what they put first.

`critical`: flows are due at their latest finish on the critical path, and else when their
arrangement says. `short`: few bytes left come first, and with `groups` those of all flows that are
due together. `delayed` and `furthest_behind`: jobs that have lost most, the second in their own
iterations. `light`: a second counts more for jobs that occupy the network for less time. The
numbers were chosen by simulation (`echelon evaluate`, even seeds).
"""
FORMER_NAMES: Mapping[str, str] = {
    "k3": "critical_and_short_first",
    "h1": "delayed_first",
    "k0": "critical_first",
    "e2": "delayed_and_short_first",
    "n2": "furthest_behind_and_short_first",
    "p4": "critical_and_short_by_root_of_period",
    "u4": "critical_and_short_in_seconds",
    "a4": "smallest_left_first",
    "o4": "light_jobs_and_short_groups_first",
    "t3": "critical_and_short_groups_first",
}
"""The codes of blends in the records of stores that are older than their names."""


def order_named(name: str) -> Order:
    """Return a new order: a blend, or one of `ORDERS`."""
    if name in BLENDS:
        return Blended(BLENDS[name])
    return ORDERS[name]()


ALONE = PlanCandidate("memory")
"""The candidate of a job that shares no links: by deadline alone."""
UNSEARCHED = PlanCandidate("critical_and_short_first")
"""The candidate of other jobs before any simulation."""
FAIR = PlanCandidate(policy="fair")
FIFO = PlanCandidate(policy="fifo")
MFS = PlanCandidate(policy="mfs")
OTHER_POLICIES = (
    FAIR,
    FIFO,
    MFS,
    PlanCandidate(policy="srpt"),
    PlanCandidate(
        policy="crux",
        parameters=(("paths", "given"),),
    ),
    PlanCandidate(policy="cassini"),
    PlanCandidate(policy="mltcp"),
    PlanCandidate(policy="unfair"),
)
"""Other policies of which switches execute the plan without a controller."""
_OFTEN_BEST = ("delayed_first", "normalised")
SHIFTED = ("critical_and_short_first", "furthest_behind_and_short_first")
"""The blends that are also simulated with shifts."""


def candidates(several_paths: bool) -> Sequence[PlanCandidate]:
    """Return all candidates, `UNSEARCHED` first, and those first that are most often the best.

    A search that runs out of time tries the first ones only. `several_paths` says whether some
    connection has a choice of paths.
    """
    out = [UNSEARCHED, FAIR, FIFO, MFS, *map(PlanCandidate, _OFTEN_BEST)]
    out += [PlanCandidate(order) for order in BLENDS]
    out += OTHER_POLICIES
    out += [PlanCandidate(order, shifted=True) for order in SHIFTED]
    out = list(dict.fromkeys(out))
    if not several_paths:
        return out
    in_turns = []
    for candidate in out:
        in_turns += [candidate, replace(candidate, paths="crux")]
    return in_turns
