"""A plan in which each job is ranked by the order that is best in its neighbourhood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
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
    choose it so that the median unit is that of the usual blend (`_factor`).

    Args:
        usual: the name of the blend of jobs that are not in `orders`.
        orders: the names of the blends of other jobs, by job.
    """

    def __init__(self, usual: str, orders: Mapping[str, str]) -> None:
        self._usual = usual
        self._orders = orders
        self._blended = {}
        for name in {usual, *orders.values()}:
            blend = BLENDS[name]
            self._blended[name] = Blended(blend)
        self._scaled = Kept(JobFacts.in_units)
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
        order = self._order(flow.job)
        blended = self._blended[order]
        # Facts that `levels` has not seen are taken as they are.
        comparable = self._facts.get(flow.job, facts)
        return blended.urgency(comparable, now_s, flow, due_s, memory_s)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Return the levels of each job by its blend."""
        self._facts = self._comparable(jobs)
        by_order: dict[str, dict[str, JobFacts]] = defaultdict(dict)
        for job, facts in self._facts.items():
            order = self._order(job)
            by_order[order][job] = facts

        levels: dict[str, Levels] = {}
        for order, blended in self._blended.items():
            members = by_order[order]
            levels |= blended.levels(members)
        return levels

    def _comparable(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, JobFacts]:
        """Return the facts of jobs in units that can be compared."""
        usual = BLENDS[self._usual]
        factors = {}
        for order in self._blended:
            blend = BLENDS[order]
            factors[order] = _factor(jobs, usual, blend)

        rows = {}
        for job, facts in jobs.items():
            order = self._order(job)
            rows[job] = facts, factors[order]
        # The facts of a job stay the same object while they and the factor are equal.
        return self._scaled.update(rows)

    def _order(self, job: str) -> str:
        return self._orders.get(job, self._usual)


def _factor(
    jobs: Mapping[str, JobFacts],
    usual: Blend,
    blend: Blend,
) -> Fraction:
    """Return the factor of the units of a blend that makes its ranks comparable.

    It is the median over all jobs of the usual unit over that of the blend, as a power of two: it
    should stay when jobs come or go, because all ranks of the blend change with it.
    """
    if blend == usual or not jobs:
        return Fraction(1)
    exponents = []
    for facts in jobs.values():
        ratio = facts.unit_s(usual) / facts.unit_s(blend)
        exponents.append(log2(ratio))
    exponent = round(median(exponents))
    return Fraction(2) ** exponent


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
        words += self._units_in_words()
        return " ".join(words)

    def new_policy(self, similar: OrderedPolicy | None = None) -> OrderedPolicy:
        """Return a new policy, as `PlanCandidate.new_policy` does."""
        orders = dict(self.orders)
        order = MixedOrder(self.order, orders)
        units = dict(self.units)
        if similar is not None:
            return similar.with_order(order, units=units)
        return OrderedPolicy(order, units=units)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        # A dataclass with slots is another class than the one that `super()` would name.
        document = PlanCandidate.to_document(self)
        document["orders"] = dict(self.orders)
        return document


def candidate_of(document: Mapping[str, Any]) -> PlanCandidate:
    """Return the candidate of which this is the document. Raises `ValueError`."""
    candidate = PlanCandidate.of_document(document)
    if "orders" not in document:
        return candidate

    orders = []
    for job, order in document["orders"].items():
        # A document may be from another version, which had other blends.
        if order not in BLENDS:
            raise ValueError(f"there is no order '{order}'")
        orders.append((str(job), str(order)))
    orders.sort()
    return MixedCandidate(
        candidate.order,
        paths=candidate.paths,
        units=candidate.units,
        orders=tuple(orders),
    )
