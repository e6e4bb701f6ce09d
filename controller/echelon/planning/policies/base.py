"""The interface of every policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.plan import Plan
from echelon.planning.policies.judges import MODEL


class NoParameters(Section):
    """The parameters of a policy that has none."""


class LinksOnly:
    """An allocator whose rates depend on other flows through links only (`LocalAllocator`)."""

    def neighbourhood(self, flow: ActiveFlow) -> None:
        """Return None: nothing else couples the flow to others."""


BY_JOB = "by_job"
"""The key, in what a policy carries, of a value for each job by its name.

Each is saved with its job: a change is written in the same time, however many jobs there are.
"""


@runtime_checkable
class Carried(Protocol):
    """The part of a policy on which its next plan depends besides jobs and fabric."""

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue from what `to_document` returned, before the first plan. Raises `ValueError`."""


class Policy(Protocol):
    """A published way of sharing the network between jobs.

    Its class has an attribute `Parameters`, a `Section` with typed fields and defaults, and is made
    from an instance of it; see `echelon.planning.policies.registry`. A policy that is also an
    `echelon.planning.allocation.Allocator` says which rates it would give every flow if switches
    had a queue for each: the central scheduler of a reactive policy turns them into weights of
    queues, and the fluid simulator's ideal mode runs them as they are.

    Its class may say in `needs` what it has to know or have, in a few words, and in `source` where
    it was published.

    It says `reactive = True` if its plans need a scheduler that hears of every flow, and
    `ranks_by_bytes = True` if flows change queues with the bytes that they have sent.

    A policy whose plans depend on those before has it in an attribute `carried`. The service keeps
    that, so that a restart changes no plan.
    """

    @property
    def name(self) -> str: ...

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return the plan for the switches. Raises `PlanError` if the fabric cannot carry the jobs.

        `paths` chooses the paths of connections, unless the policy chooses them itself; by default
        a connection stays on its path for as long as that is a shortest one.
        """


def carried_by(policy: Policy) -> Carried | None:
    """Return that part of a policy; None: its plans do not depend on those before."""
    carried = getattr(policy, "carried", None)
    if isinstance(carried, Carried):
        return carried
    return None


Group = frozenset[str]
"""The names of jobs that share links, directly or through others."""


@dataclass(frozen=True, slots=True)
class FixedPlan:
    """A policy that has its plan already."""

    result: Plan

    @property
    def name(self) -> str:
        return self.result.policy

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        return self.result


class Labelled(Protocol):
    """A way to plan a group of jobs."""

    @property
    def label(self) -> str:
        """Return a name for people."""


C = TypeVar("C", bound=Labelled, covariant=True)


@dataclass(frozen=True, slots=True)
class Prediction(Generic[C]):
    """The simulated effect of a way to plan."""

    candidate: C
    slowdowns: Mapping[str, float]
    """The mean time of an iteration over that alone, by job; empty if there was no simulation."""
    score: float
    """The figure by which predictions are compared: lower is better."""
    draws: int
    """The number of draws of what is not known in which it was simulated."""
    problem: str | None = None
    """The reason why it cannot be planned or simulated."""
    iterations: int = 0
    """The length of the simulation, in iterations of the slowest job alone."""
    by_model: Mapping[str, float] = field(default_factory=dict)
    """The slowdowns on the fluid model, where a judge has run the plan in another way: then all the
    rest is what the judge says."""
    detours: Mapping[str, float] = field(default_factory=dict)
    """The time of an iteration alone on the paths that are kept, over the least time on any paths,
    by job. Slowdowns times these are what scores, and reports of runs, have."""

    def to_least(self, slowdowns: Mapping[str, float]) -> dict[str, float]:
        """Return the mean time of an iteration over the least of any paths, by job."""
        to_least = {}
        for job, slowdown in slowdowns.items():
            detour = self.detours.get(job, 1)
            to_least[job] = slowdown * detour
        return to_least


@dataclass(frozen=True, slots=True)
class Choice(Generic[C]):
    """The result of a search."""

    best: Prediction[C]
    tried: tuple[Prediction[C], ...]
    """All predictions, the best first."""
    preliminary: bool = False
    """Whether a longer search may find something better."""
    work: int = 0
    """The most work that the search could take, if its result is preliminary."""
    judge: str = MODEL
    """Who compared the best plans (`echelon.planning.policies.judges`)."""
    unjudged: str | None = None
    """The reason why the judge that was asked for did not, so that the model did."""


@dataclass(frozen=True, slots=True)
class GroupDecision(Generic[C]):
    """The way in which a group is planned."""

    candidate: C
    choice: Choice[C] | None = None
    """The search that chose it; None: there was none, or it was before a restart."""
    before: C | None = None
    """The candidate that the search replaced."""
    was_searched: bool = False
    """Whether a search chose the candidate before a restart."""

    @property
    def is_chosen(self) -> bool:
        """Return whether a search chose the candidate, now or before a restart."""
        return self.was_searched or self.choice is not None


class Search(Protocol):
    """A search for the best plan of a group of jobs. It can be pickled, and changes nothing."""

    @property
    def group(self) -> Group: ...
    def run(self) -> Choice[Labelled]:
        """Return the best plan, after seconds or minutes. Raises `PlanError` if there is none."""


def no_report(_share: float) -> None:
    """Tell nobody."""


@runtime_checkable
class Reporting(Protocol):
    """A search that says how far it is."""

    report: Callable[[float], None]
    """Called with the share that is done: with 0 when the first simulation begins."""


@runtime_checkable
class Patient(Reporting, Protocol):
    """A policy that searches for its best plan, and reports 1 when it has the plan."""

    @property
    def simulated_iterations(self) -> int:
        """About how many iterations of all jobs it simulates; 0: it does not search."""


@runtime_checkable
class Searching(Protocol):
    """A policy that has a plan at once, and a better one for a group after a search."""

    def searches(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        renewed: Iterable[str] = (),
        starts_s: Mapping[str, float] | None = None,
        brief: Collection[Group] = (),
    ) -> Sequence[Search]:
        """Return the searches that the last plan lacks, also for groups with a job of `renewed`.

        `starts_s` says in how many seconds jobs will begin an iteration, where that is known.
        Searches for groups of `brief` should end after about a second; if their result is
        preliminary, they are asked for again, with their groups in `renewed` only.
        """

    def adopt(self, group: Group, choice: Any) -> bool:
        """Follow the result of a search. Return whether the next plan differs."""

    def reject(self, group: Group) -> Choice[Labelled] | None:
        """Take back what `adopt` did last for the group, because the switches cannot carry it.
        Return the next best result of the same search, if there is one."""

    @property
    def choices(self) -> Mapping[Group, GroupDecision[Labelled]]:
        """The plan of each group of the last plan."""
