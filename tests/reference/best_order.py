"""The least mean slowdown that any sharing of links can reach, for a few small jobs in closed loop.

It covers **every** schedule of the fluid model in which each flow passes one contended link: any
rates at any time, idle links, orders that change with every event, knowledge of all that comes. For
an earliest-deadline order of each link, with the finish times of such a schedule as deadlines, ends
no flow later, and it serves one flow after another, which changes only when a flow starts or ends.
So it suffices to search orders that serve one flow a link and change at events. Times are whole
numbers of units, so that there are finitely many states: what is left of each step of each job.

The search is over all states that such orders can reach. Let ``v_j`` be the part of its speed alone
that a job has in the long run. For given weights, the largest weighted sum of ``v`` is the largest
ratio of gain to time of a cycle of states (Howard's algorithm; Cochet-Terrasson et al., IFAC LSS
'98). Potentials prove it: ``g`` is no less than ``(gain + potential after - before) / time`` of all
edges. The speeds that can be reached are a convex set, as schedules can take turns, and the mean
of ``1 / v_j`` is convex. So cycles for different weights approach its least value from above
(Frank and Wolfe, 1956), and by Cauchy's inequality it is at least ``(sum sqrt(w_j))^2 / (n g)``.

Nothing here is shared with the planner or its simulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from echelon.model.jobs.graph import ComputeUnit, Flow, Job

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_CLOSE = 1e-9
_LOWEST = 1e-6
_MOST_TURNS = 300
_MOST_WEIGHTS = 60
_MOST_POLICIES = 200
"""Improvements of one policy; some ten are usual."""


class TooManyStatesError(Exception):
    """The jobs have more states than may be searched."""


@dataclass(frozen=True)
class Bound:
    """What the best schedule reaches in the long run."""

    least: float
    """A mean slowdown that no schedule can be below."""
    reached: float
    """The mean slowdown of a schedule."""
    speeds: Sequence[float]
    """The parts of their speed alone that jobs have under that schedule."""
    alone: Sequence[int]
    """The units of time of each job's iteration alone."""
    states: int


State = tuple[int, ...]
"""What is left of each step of a job, in units of time; 0: it has finished."""


class _Job:
    """The steps of a job, in units of time."""

    def __init__(
        self,
        job: Job,
        unit_s: Fraction,
        unit_bytes: int,
        link_of: Callable[[Flow], str],
    ) -> None:
        steps: list[ComputeUnit | Flow] = [*job.computes, *job.flows]
        places = {step.name: place for place, step in enumerate(steps)}
        self.after = [[places[name] for name in step.after] for step in steps]
        lengths = []
        self.links: list[str | None] = []
        for step in steps:
            if isinstance(step, Flow):
                length = Fraction(step.size_bytes, unit_bytes)
                self.links.append(link_of(step))
            else:
                length = Fraction(step.duration_s) / unit_s
                self.links.append(None)
            if length.denominator != 1 or not length:
                raise ValueError(f"{step.name} takes {length} units, which is no whole number")
            lengths.append(int(length))
        self.start: State = tuple(lengths)
        self._active: dict[State, tuple[int, ...]] = {}

    def active(self, state: State) -> tuple[int, ...]:
        """Return the steps that could go on."""
        if state not in self._active:
            ready = []
            for place, left in enumerate(state):
                if left and not any(state[before] for before in self.after[place]):
                    ready.append(place)
            self._active[state] = tuple(ready)
        return self._active[state]

    def alone(self) -> int:
        """Return the least units of an iteration in which the job has all links for itself.

        Its own flows may share a link.
        """
        return _least_time(self, self.start, {})


def _least_time(job: _Job, state: State, times: dict[State, int]) -> int:
    """Return the least time to the end of an iteration. `times` are those of other states."""
    if not any(state):
        return 0
    if state not in times:
        options = []
        for served in _served([job], [state]):
            [after], time = _advanced([job], [state], served)
            options.append(time + _least_time(job, after, times))
        times[state] = min(options)
    return times[state]


Served = tuple[tuple[int, int], ...]
"""The steps that go on: job and step."""


def _served(jobs: Sequence[_Job], states: Sequence[State]) -> Iterator[Served]:
    """Yield each choice of the flows that go on, one for each link."""
    computing = []
    by_link: dict[str, list[tuple[int, int]]] = {}
    for number, (job, state) in enumerate(zip(jobs, states, strict=True)):
        for step in job.active(state):
            link = job.links[step]
            if link is None:
                computing.append((number, step))
            else:
                by_link.setdefault(link, []).append((number, step))
    for chosen in product(*by_link.values()):
        yield (*computing, *chosen)


def _advanced(
    jobs: Sequence[_Job],
    states: Sequence[State],
    served: Served,
) -> tuple[list[State], int]:
    """Return the states after the next event, and the time until then."""
    time = min(states[number][step] for number, step in served)
    after = [list(state) for state in states]
    for number, step in served:
        after[number][step] -= time
    return [tuple(state) for state in after], time


@dataclass(frozen=True)
class _Graph:
    """All states, with an edge for each choice; those of one state stand together."""

    first: Numbers
    """The first edge of each state."""
    before: Numbers
    after: Numbers
    time: Floats
    ended: Floats
    """The iterations that end, by edge and job."""


def _explored(jobs: Sequence[_Job], most_states: int) -> _Graph:
    start = tuple(job.start for job in jobs)
    numbers = {start: 0}
    waiting = [start]
    first, before, after, times, ended = [], [], [], [], []
    # `waiting` grows while it is read.
    for number, states in enumerate(waiting):
        first.append(len(before))
        for served in _served(jobs, states):
            following, time = _advanced(jobs, states, served)
            ends = []
            for place, job in enumerate(jobs):
                ends.append(not any(following[place]))
                if ends[-1]:
                    following[place] = job.start
            key = tuple(following)
            if key not in numbers:
                numbers[key] = len(waiting)
                waiting.append(key)
                if len(waiting) > most_states:
                    raise TooManyStatesError(f"more than {most_states:,} states")
            before.append(number)
            after.append(numbers[key])
            times.append(time)
            ended.append(ends)
    return _Graph(
        np.array(first),
        np.array(before),
        np.array(after),
        np.array(times, dtype=float),
        np.array(ended, dtype=float),
    )


class _Cycles:
    """The search for the cycle with the largest ratio of gain to time."""

    def __init__(self, graph: _Graph) -> None:
        self._graph = graph
        self._chosen = graph.first.copy()
        """The edge of each state under the current policy."""
        self._doublings = max(1, len(graph.first).bit_length())

    def best(self, gains: Floats) -> tuple[float, Floats]:
        """Return a bound of the ratio of gain to time, and iterations a unit in a good cycle.

        `gains` are by edge. The bound holds for whatever cycle, also where the search went wrong.
        """
        graph = self._graph
        for _ in range(_MOST_POLICIES):
            ratios, potentials, roots = self._evaluated(gains)
            # First by the ratio of the cycle that is reached, then by what is gained on the way.
            towards = ratios[graph.after]
            slack = _CLOSE * max(1.0, float(np.abs(potentials).max()))
            if not self._improved(towards, ratios, _CLOSE):
                worth = gains - ratios[graph.before] * graph.time + potentials[graph.after]
                worth[towards < ratios[graph.before] - _CLOSE] = -np.inf
                if not self._improved(worth, potentials, slack):
                    break
        growth = gains + potentials[graph.after] - potentials[graph.before]
        bound = float((growth / graph.time).max())
        root = roots[int(ratios.argmax())]
        return bound, self._rates(root)

    def _improved(self, worth: Floats, now: Floats, slack: float) -> bool:
        """Choose better edges where there are; return whether there were."""
        graph = self._graph
        best = np.maximum.reduceat(worth, graph.first)
        better = best > now + slack
        if not better.any():
            return False
        is_best = worth == best[graph.before]
        edges = np.flatnonzero(is_best & better[graph.before])
        # Of several edges of a state, the last that is written counts.
        self._chosen[graph.before[edges]] = edges
        return True

    def _evaluated(self, gains: Floats) -> tuple[Floats, Floats, Numbers]:
        """Return the ratio of the cycle that each state reaches, its potential, and its root.

        The root of a state is one state of that cycle. Paths are followed by doubling.
        """
        graph = self._graph
        after = graph.after[self._chosen]
        count = len(after)
        jump, least = after, np.arange(count)
        for _ in range(self._doublings):
            least = np.minimum(least, least[jump])
            jump = jump[jump]
        roots = least[jump]

        is_root = roots == np.arange(count)
        gain = np.where(is_root, 0.0, gains[self._chosen])
        time = np.where(is_root, 0.0, graph.time[self._chosen])
        jump = np.where(is_root, np.arange(count), after)
        for _ in range(self._doublings):
            gain = gain + gain[jump]
            time = time + time[jump]
            jump = jump[jump]
        around_gain = gains[self._chosen] + gain[after]
        around_time = graph.time[self._chosen] + time[after]
        ratios = (around_gain / around_time)[roots]
        return ratios, gain - ratios * time, roots

    def _rates(self, root: int) -> Floats:
        """Return the iterations of each job in a unit of time, around a cycle."""
        graph = self._graph
        ended = np.zeros(graph.ended.shape[1])
        time = 0.0
        state = root
        while True:
            edge = self._chosen[state]
            ended += graph.ended[edge]
            time += graph.time[edge]
            state = graph.after[edge]
            if state == root:
                return ended / time


def best_mean_slowdown(
    jobs: Sequence[Job],
    unit_s: Fraction,
    unit_bytes: int,
    link_of: Callable[[Flow], str],
    *,
    most_states: int = 300_000,
    gap: float = 1e-3,
) -> Bound:
    """Return the least mean slowdown of these jobs under any schedule.

    All steps take whole numbers of `unit_s`, in which a link carries `unit_bytes`. `link_of` returns
    the one link that a flow may share. The search ends when bound and best schedule differ by the
    part `gap`. Raises `TooManyStatesError`.
    """
    steps = [_Job(job, unit_s, unit_bytes, link_of) for job in jobs]
    units = [job.alone() for job in steps]
    alone = np.array(units, dtype=float)
    graph = _explored(steps, most_states)
    cycles = _Cycles(graph)
    count = len(jobs)
    weights = np.ones(count)
    points: list[Floats] = []
    least = 1.0
    speeds = weights
    for _ in range(_MOST_WEIGHTS):
        gains = graph.ended @ (weights * alone)
        ratio, rates = cycles.best(gains)
        bound = sum(map(sqrt, weights)) ** 2 / (count * ratio)
        least = max(least, float(bound))
        points.append(rates * alone)
        speeds = _mixed(points)
        if np.mean(1 / speeds) <= least * (1 + gap):
            break
        # The slope of the mean of 1 / v.
        weights = speeds**-2
        weights = weights / weights.mean()
    reached = float(np.mean(1 / speeds))
    return Bound(least, reached, [float(speed) for speed in speeds], units, len(graph.first))


def _mixed(points: Sequence[Floats]) -> Floats:
    """Return the speeds with the least mean slowdown of schedules that take turns."""
    # A job that no point serves would be infinitely slow.
    table = np.maximum(np.array(points), _LOWEST)
    mixed = table.mean(axis=0)
    for _ in range(_MOST_TURNS):
        slope = mixed**-2
        worth = table @ slope
        best = int(worth.argmax())
        if worth[best] - mixed @ slope < _CLOSE:
            break
        mixed = _between(mixed, table[best])
    return mixed


def _between(start: Floats, end: Floats) -> Floats:
    """Return the point between these with the least mean of `1 / v`: where its slope is 0."""
    direction = end - start
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if direction @ (start + middle * direction) ** -2 > 0:
            low = middle
        else:
            high = middle
    mixed: Floats = start + low * direction
    return mixed
