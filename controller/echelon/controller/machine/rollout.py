"""The plan on its way to the switches: in one step, or in several where flows take other paths.

The next step begins when every switch that can be reached holds the one before
(`echelon.switches.lowering.loop_free`). One that is away holds up nobody, and one that stays behind
holds up the others for `STEP_S` at the most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from echelon.controller.machine import facts
from echelon.controller.machine.effects import Effects, Install, SetAlarm
from echelon.controller.machine.events import Alarm
from echelon.controller.machine.planning import Intents, Planned

STEP_S = 5.0
"""The longest wait for the switches to hold a step. Then all get the plan at once, in no order."""

Lacking = Callable[[int], Sequence[str]]
"""A function that returns which switches that can be reached do not hold a version yet."""


class Rollout:
    """The steps of the plan in force.

    One plan after the other: the next is adopted after the last step of this one.
    """

    def __init__(self) -> None:
        self._left: deque[tuple[int, Intents]] = deque()
        """The versions and intents of the steps that have not begun."""
        self._version = 0
        """The version of the step that has begun last."""

    @property
    def is_under_way(self) -> bool:
        """Whether there are steps that have not begun."""
        return bool(self._left)

    def begin(self, planned: Planned) -> Effects:
        """Begin with a plan."""
        assert not self._left
        first = planned.version - len(planned.steps)
        steps = [*planned.steps, planned.intents]
        self._left.extend(enumerate(steps, start=first))
        return self._next()

    def advance(self, lacking: Lacking) -> Effects:
        """Go on if the switches are far enough."""
        out: Effects = []
        while self._left and not lacking(self._version):
            out += self._next()
        return out

    def ring(self, version: int, lacking: Lacking) -> Effects:
        """Wait no longer, if the step of that version still waits."""
        if not self._left or version != self._version:
            return []
        # The steps between are only there for their order, which is given up.
        plan = self._left.pop()
        self._left.clear()
        self._left.append(plan)
        given_up = facts.OrderGivenUp(plan[0], tuple(lacking(version)))
        return [given_up, *self._next()]

    def _next(self) -> Effects:
        self._version, intents = self._left.popleft()
        install = Install(self._version, intents)
        if self._left:
            return [install, SetAlarm(Alarm("step", self._version), STEP_S)]
        return [install]
