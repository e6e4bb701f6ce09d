"""The plans among which `echelon` chooses: rules of its own rank, and orders of other policies,
over two sets of paths.

No rule is best for all mixes of jobs. Of 192 rules none was within 1 % of the best for more than 65
% of random mixes; the portfolio here was chosen on the even seeds of `echelon evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.plan import Plan
from echelon.planning.policies.base import Policy
from echelon.planning.policies.cassini.shifts import time_shifts
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.echelon.ordered import Ordered
from echelon.planning.policies.orders import MEMORY, ORDERS, Blended, Order, Rule
from echelon.planning.policies.registry import make_policy

PATHS: Mapping[str, Callable[[], PathChooser] | None] = {"kept": None, "crux": LeastCongested}
"""Choosers of paths by name: connections stay where they are, or take the least congested path as
Crux does.
"""


@dataclass(frozen=True, slots=True)
class CandidatePlan:
    """A way to plan: a rule or a named order of ours, or another policy."""

    rule: str = ""
    """A key of `RULES` or of `ORDERS`."""
    policy: str = ""
    """The name of another policy, instead of a rule."""
    parameters: tuple[tuple[str, str], ...] = ()
    """The parameters of that policy."""
    paths: str = "kept"
    """A key of `PATHS`."""
    shifted: bool = False
    """Whether hosts delay jobs so that fewer of their flows meet, as CASSINI has it."""

    @property
    def label(self) -> str:
        """Return a name for people."""
        extras = (
            *((f"paths={self.paths}",) if self.paths != "kept" else ()),
            *(("shifted",) if self.shifted else ()),
        )
        return " ".join((self.policy or f"rule {self.rule}", *extras))

    def planner(self) -> Policy:
        """Return a new planner. Its connections take the paths of `chooser`."""
        if self.policy:
            return make_policy(self.policy, **dict(self.parameters))
        return Ordered(order_named(self.rule), time_shifts if self.shifted else None)

    def chooser(self) -> PathChooser | None:
        """Return a new chooser of paths; None: connections stay where they are."""
        make = PATHS[self.paths]
        return make() if make else None

    def plan(
        self,
        planner: Policy,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None,
        places: Mapping[str, int],
    ) -> Plan:
        """Return the plan of `planner`.

        Raises as `Policy.plan`. Under a rule, `places` tell copies of a job apart.
        """
        if isinstance(planner, Ordered) and self.rule in RULES:
            return planner.plan(jobs, fabric, paths, places)
        return planner.plan(jobs, fabric, paths)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        given = dict(self.parameters)
        return {
            "rule": self.rule,
            "policy": self.policy,
            "parameters": given,
            "paths": self.paths,
            "shifted": self.shifted,
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> CandidatePlan:
        """Return what `to_document` returned.

        Raises `ValueError` for a rule, policy or paths that there are not.
        """
        parameters = tuple((str(key), str(value)) for key, value in document["parameters"].items())
        found = cls(
            str(document["rule"]),
            str(document["policy"]),
            parameters,
            str(document["paths"]),
            bool(document["shifted"]),
        )
        if found.paths not in PATHS or not (
            found.policy or found.rule in RULES or found.rule in ORDERS
        ):
            raise ValueError(f"there is no plan '{found.label}'")
        return found


_HALF, _NONE, _ALL = Fraction(1, 2), Fraction(0), Fraction(1)
RULES: Mapping[str, Rule] = {
    "k3": Rule(_HALF, _HALF, latest=True, left=3),
    "h1": MEMORY,
    "k0": Rule(_HALF, _HALF, latest=True),
    "e2": Rule(_HALF, _HALF, _ALL, left=2),
    "n2": Rule(_ALL, _NONE, _ALL, left=2),
    "p4": Rule(_HALF, _NONE, latest=True, left=4),
    "u4": Rule(_NONE, _NONE, latest=True, left=4),
    "a4": Rule(_NONE, _NONE, left=4),
    "o4": Rule(_NONE, _ALL, left=4, together=True),
    "t3": Rule(_HALF, _HALF, latest=True, left=3, together=True),
}
"""The rules of `echelon.planning.policies.orders.Blended` that are simulated."""


def order_named(name: str) -> Order:
    """Return a new order: of a rule, or one of `ORDERS`."""
    if name in RULES:
        return Blended(RULES[name])
    return ORDERS[name]()


ALONE = CandidatePlan("memory")
"""The plan of a job that shares no links: by deadline alone."""
AT_ONCE = CandidatePlan("k3")
"""The plan of other jobs before any simulation."""
FAIR = CandidatePlan(policy="fair")
OTHERS = (
    FAIR,
    CandidatePlan(policy="srpt"),
    CandidatePlan(policy="crux", parameters=(("paths", "given"),)),
    CandidatePlan(policy="cassini"),
    CandidatePlan(policy="mltcp"),
    CandidatePlan(policy="unfair"),
)
"""Other policies of which switches execute the plan without a controller."""
SHIFTED = ("k3", "n2")
"""The rules that are also simulated with shifts."""


def candidates(several_paths: bool) -> Sequence[CandidatePlan]:
    """Return all candidates, `AT_ONCE` first; `several_paths`: whether some connection has a choice
    of paths.
    """
    own = [CandidatePlan(name) for name in (*RULES, "normalised")]
    shifted = [CandidatePlan(name, shifted=True) for name in SHIFTED]
    found = [AT_ONCE, *(one for one in (*own, *shifted, *OTHERS) if one != AT_ONCE)]
    if several_paths:
        found += [replace(one, paths="crux") for one in found]
    return found
