"""A plan in which each job is ranked by the order that is best in its neighbourhood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log2
from statistics import median
from typing import Any

from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Number
from echelon.planning.policies.echelon.candidates import BLENDS, PlanCandidate
from echelon.planning.policies.echelon.ordered import OrderedPolicy
from echelon.planning.policies.orders import Blend, Blended, JobFacts, Levels, Urgency


class MixedOrder:
    """An order with several blends, each for some of the jobs.

    Each blend measures tardiness in units of its own, so ranks of different blends cannot be
    compared. A common factor for all units of a blend changes no order under this blend alone. We
    choose it so that the median unit is that of the usual blend; a power of two, because it should
    stay when jobs come or go: all ranks of the blend change with it.

    Args:
        usual: the name of the blend of jobs that are not in `orders`.
        orders: the names of the blends of other jobs, by job.
    """

    def __init__(self, usual: str, orders: Mapping[str, str]) -> None:
        self._usual = usual
        self._orders = orders
        names = {usual, *orders.values()}
        self._blended = {name: Blended(BLENDS[name]) for name in names}
        self._scaled = Kept(_scaled)
        self._facts: Mapping[str, JobFacts] = {}
        """The facts of jobs in comparable units."""

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        due_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        blended = self._blended[self._order(flow.job)]
        comparable = self._facts.get(flow.job, facts)
        return blended.urgency(comparable, now_s, flow, due_s, memory_s)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Return the levels of each job by its blend."""
        usual = BLENDS[self._usual]
        factors = {name: _factor(jobs, usual, BLENDS[name]) for name in self._blended}
        rows = {}
        for job, facts in jobs.items():
            rows[job] = facts, factors[self._order(job)]
        self._facts = self._scaled.update(rows)
        by_order: dict[str, dict[str, JobFacts]] = defaultdict(dict)
        for job, facts in self._facts.items():
            by_order[self._order(job)][job] = facts
        levels: dict[str, Levels] = {}
        for name, blended in self._blended.items():
            levels |= blended.levels(by_order[name])
        return levels

    def _order(self, job: str) -> str:
        return self._orders.get(job, self._usual)


def _factor(
    jobs: Mapping[str, JobFacts],
    usual: Blend,
    blend: Blend,
) -> Fraction:
    """Return the factor of the units of a blend that makes its ranks comparable."""
    if blend == usual or not jobs:
        return Fraction(1)
    ratios = [log2(facts.unit_s(usual) / facts.unit_s(blend)) for facts in jobs.values()]
    return Fraction(2) ** round(median(ratios))


def _scaled(facts: JobFacts, factor: Fraction) -> JobFacts:
    """Return the facts of a job whose units are so many times as large."""
    if factor == 1:
        return facts
    return replace(facts, weight=facts.weight / factor)


@dataclass(frozen=True, slots=True)
class MixedCandidate(PlanCandidate):
    """A way to plan with a blend of its own for some jobs; `order` is that of all others."""

    orders: tuple[tuple[str, str], ...] = ()
    """The blends of jobs, by name, where they differ from `order`."""

    @property
    def label(self) -> str:
        """Return a name for people."""
        words = [f"rule {self.order}"]
        if self.orders:
            words = [f"rules by neighbourhood, mostly {self.order}"]
        if self.paths != "kept":
            words.append(f"paths={self.paths}")
        return " ".join(words)

    def new_policy(self, similar: OrderedPolicy | None = None) -> OrderedPolicy:
        """Return a new policy, as `PlanCandidate.new_policy` does."""
        order = MixedOrder(self.order, dict(self.orders))
        units = dict(self.units)
        if similar is not None:
            return similar.with_order(order, units=units)
        return OrderedPolicy(order, units=units)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        document = PlanCandidate.to_document(self)
        return {**document, "orders": dict(self.orders)}


def candidate_of(document: Mapping[str, Any]) -> PlanCandidate:
    """Return the candidate of which this is the document. Raises `ValueError`."""
    candidate = PlanCandidate.of_document(document)
    if "orders" not in document:
        return candidate
    orders = []
    for job, order in document["orders"].items():
        if order not in BLENDS:
            raise ValueError(f"there is no order '{order}'")
        orders.append((str(job), str(order)))
    return MixedCandidate(
        candidate.order,
        paths=candidate.paths,
        units=candidate.units,
        orders=tuple(sorted(orders)),
    )
