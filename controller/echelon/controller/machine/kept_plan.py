"""The plan in force as bytes, which a restart takes over without building the graphs of its jobs.

Bytes are in pieces of some jobs each, because other threads wait while one is made or read. Only
the classes of plans are read: bytes that somebody else wrote run nothing.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from fractions import Fraction
from itertools import chain
from operator import attrgetter
from typing import Any

from echelon.controller.machine.lines import JobFlows
from echelon.controller.machine.planning import KeptPlan, Planned
from echelon.planning import plan as plans
from echelon.planning.plan import Plan
from echelon.planning.rankings import (
    attained,
    deadline,
    fixed,
    in_switches,
    window,
)
from echelon.switches.lowering import intent, job_part
from echelon.switches.lowering.job_part import LoweredJob

PIECE = 100
"""The jobs of a piece: some ten milliseconds."""
_MODULES = (
    attained,
    deadline,
    fixed,
    in_switches,
    intent,
    job_part,
    plans,
    window,
)
"""The modules of rankings, and of all else that a kept plan consists of."""


def _values() -> Iterator[type]:
    """Yield the classes of immutable values in these modules."""
    for module in _MODULES:
        for thing in vars(module).values():
            if not isinstance(thing, type):
                continue
            is_value = is_dataclass(thing) or issubclass(thing, tuple)
            if is_value and thing.__module__ == module.__name__:
                yield thing


_VALUES = frozenset(_values())
_READ = {(kind.__module__, kind.__qualname__): kind for kind in (*_VALUES, Fraction, dict)}


def can_be_kept(planned: Planned) -> bool:
    """Return whether bytes say all of a plan: of trees, rules of hosts and reactive plans not."""
    plan = planned.plan
    if plan.reactive or plan.memory or planned.trees or planned.at_hosts:
        return False
    rankings = map(attrgetter("ranking"), plan.flows)
    return _VALUES.issuperset(map(type, rankings))


def to_pieces(planned: Planned) -> Iterator[bytes]:
    """Yield a plan as bytes: what is of no job, then its jobs in their order."""
    plan = planned.plan
    # A copy, without what has been derived from the plan.
    yield _written(replace(plan, flows=()))
    names = [*plan.by_job]
    for first in range(0, len(names), PIECE):
        rows = []
        for name in names[first : first + PIECE]:
            lowered = planned.lowered[name]
            rows.append((name, plan.by_job[name], lowered.parts))
        yield _written(rows)


def from_pieces(pieces: Iterable[bytes]) -> KeptPlan:
    """Return the plan that `to_pieces` made bytes of.

    Raises `ValueError` for other classes, and may raise anything for bytes that it never made.
    """
    first, *rest = map(_read, pieces)
    flows: dict[str, JobFlows] = {}
    parts: dict[str, Mapping[str, LoweredJob]] = {}
    for name, job_flows, job_parts in chain.from_iterable(rest):
        flows[name] = job_flows
        parts[name] = job_parts
    fields = {**vars(first)}
    del fields["policy"], fields["flows"]
    plan = Plan.of_jobs(first.policy, flows, **fields)
    return KeptPlan(plan, parts)


def _written(thing: object) -> bytes:
    piece = io.BytesIO()
    _Pickler(piece, pickle.HIGHEST_PROTOCOL).dump(thing)
    return piece.getvalue()


def _by_fields(thing: Any) -> tuple[type, tuple[Any, ...]]:
    """Return how to make an object again: by its constructor, which is faster than its state."""
    kind = type(thing)
    return kind, tuple([getattr(thing, name) for name in kind.__match_args__])


def _by_ratio(number: Fraction) -> tuple[type, tuple[int, int]]:
    return Fraction, number.as_integer_ratio()


class _Pickler(pickle.Pickler):
    dispatch_table = {  # noqa: RUF012
        Fraction: _by_ratio,
        **dict.fromkeys(filter(is_dataclass, _VALUES), _by_fields),
    }


def _read(piece: bytes) -> Any:
    return _Unpickler(io.BytesIO(piece)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        kind = _READ.get((module, name))
        if kind is None:
            raise ValueError(f"a plan has no {module}.{name}")
        return kind
