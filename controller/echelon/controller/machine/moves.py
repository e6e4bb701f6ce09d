"""The move of links from port to port while jobs run: how far it has come, and what is next.

Plans first lead around the links that go, as around links that are down: only where there is no
other path they still lead over them. When the switches at their ends hold such a plan, and nothing
is on its way over these links any more, the links move: an optical switch is told to, or a person
moves cables and says so. Then the fabric has the new links, and plans use them. What was saved is
enough to go on from after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.change import OWN, AppliedChange, ChangeRequest, ControllerState
from echelon.controller.machine.effects import Effect, Effects
from echelon.controller.machine.errors import ConflictError
from echelon.controller.machine.events import Alarm
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes
from echelon.controller.machine.wiring import Wiring
from echelon.controller.states import Stage
from echelon.model.fabric.model import CableLink

RETRY_S = 2.0
"""The time after which the store or the optical switch is asked again."""

Lacking: TypeAlias = Callable[[int, Collection[str] | None], Sequence[str]]
"""A function that returns which of some switches do not hold a version yet.

None stands for all switches that can be reached.
"""

_NAMED = 4
"""The most switches that are named."""


class WiringChange(ChangeRequest):
    """A change of the links that there are, or that are to be: its target.

    The target is the very same object as before if nothing changes.
    """

    __slots__ = ()

    def is_done(self, target: Wiring, jobs: JobStore) -> bool:
        return target is jobs.wiring

    def to_save(self, target: Wiring, jobs: JobStore) -> Changes:
        return jobs.change_wiring(target)

    def apply(
        self,
        target: Wiring,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        state.jobs.use_wiring(target)
        return AppliedChange(target)

    def planned(
        self,
        target: Wiring,
        before: PlanRequest,
        jobs: JobStore,
    ) -> PlanRequest:
        return replace(before, fabric=jobs.fabric_after(target))


@dataclass(frozen=True, slots=True)
class MoveStep(WiringChange):
    """The next step of a move, which the controller takes by itself (`OWN`).

    It is no kind of change that a client could ask for.
    """

    before: Wiring
    after: Wiring

    def check(self, state: ControllerState, now: Instant) -> Wiring:
        # A client may have ended the move, or may have said that the links stand.
        if self.before is not state.jobs.wiring:
            raise ConflictError("the links are others by now", code="refused")
        return self.after

    def trail_entry(self) -> None:
        return None


def refuse_while_switching(state: ControllerState) -> None:
    """Raise `ConflictError` while the optical switch moves links."""
    if state.is_switching():
        raise ConflictError("the optical switch moves the links now (wait for it)", code="refused")


class Moves:
    """The move of links that is under way.

    `Machine` saves the steps that it wants saved.
    """

    def __init__(self, by_hand: bool) -> None:
        self.wiring: Wiring | None = None
        """The links that were saved, as `follow` had them last."""
        self.stage: Stage = "standing"
        self.problem: str | None = None
        """The reason why the optical switch has not moved the links."""
        self._awaited: Sequence[str] = ()
        """The switches that do not hold the plan yet that the links wait for."""
        self._saves: Wiring | None = None
        """The links that this object asked to save, not those that a client confirmed by hand."""
        self._by_hand = by_hand
        self._last: Wiring | None = None
        """The move that is under way, or that was last."""
        self._generation = -1
        """The first generation of what was accepted that has the wiring."""
        self._version: int | None = None
        """The version of the first plan for it."""
        self._number = 0
        """The number of the effect or alarm that is awaited."""
        self._began_s: list[tuple[Stage, float]] = []
        """The time at which each stage began."""

    def is_switching(self) -> bool:
        """Return whether the optical switch is moving links."""
        return self.stage == "moving" and not self._by_hand and self.problem is None

    @property
    def waits(self) -> str | None:
        """The reason why the move does not go on by itself; None: it does, or there is none."""
        if self._awaited:
            names = ", ".join(self._awaited[:_NAMED])
            return f"waits for {names} to hold the plan around the links"
        if self.problem is not None:
            return self.problem
        if self.stage == "moving" and self._by_hand:
            return "move them, then say so (echelon link move --moved)"
        return None

    def follow(
        self,
        wiring: Wiring,
        generation: int,
        now_s: float,
    ) -> Effects:
        """Go on after something of a move was saved, or loaded."""
        ended: Effects = []
        # Another move may begin while switches get the plan for the links of the last one.
        if wiring.then is not None and self.stage == "installing":
            ended = self._end(now_s)
        before = self.wiring
        self.wiring = wiring
        self._generation = generation
        self._version = None
        self.problem = None

        if wiring.then is None:
            has_moved = before is not None and before.then is wiring.now
            self._enter("installing" if has_moved else "standing", now_s)
            return ended
        self._last = wiring
        if wiring.begun:
            self._enter("moving", now_s)
            return ended + self._switch()
        self._began_s = []
        self._enter("routing", now_s)
        return ended

    def adopted(self, version: int, generation: int) -> None:
        """Note that there is a plan of what was accepted up to `generation`."""
        # A plan that was under way when the wiring was saved may still lead over the links that go.
        if self._version is None and generation >= self._generation:
            self._version = version

    def advance(self, lacking: Lacking, now_s: float) -> Effects:
        """Go on if the switches are far enough."""
        wiring = self.wiring
        version = self._version
        if wiring is None or version is None:
            return []
        if self.stage == "routing":
            self._awaited = lacking(version, _ends(wiring.going))
            if not self._awaited:
                self._enter("draining", now_s)
                return [effects.AdvanceMove(self._next(), wiring)]
        elif self.stage == "installing" and not lacking(version, None):
            return self._end(now_s)
        return []

    def advanced(self, event: events.MoveAdvanced) -> tuple[Effects, MoveStep | None]:
        """Return what follows, and what to save, when packets have passed or links have moved."""
        if self.stage not in ("draining", "moving") or event.number != self._number:
            return [], None
        if event.problem is None:
            return [], self._saving()
        self.problem = event.problem
        return [facts.MoveFailed(event.problem), self._retry_later()], None

    def failed(self) -> Effects:
        """Save again later."""
        return [self._retry_later()]

    def retry(self, number: int) -> tuple[Effects, MoveStep | None]:
        """Tell the optical switch again, or save again."""
        if number != self._number or self.stage not in ("draining", "moving"):
            return [], None
        if self.problem is None:
            return [], self._saving()
        self.problem = None
        return self._switch(), None

    def _saving(self) -> MoveStep:
        """Return the order to save the next step: links begin to move, or have moved."""
        wiring = self.wiring
        assert wiring is not None
        assert wiring.then is not None
        if wiring.begun:
            after = Wiring(wiring.then)
        else:
            after = Wiring(wiring.now, wiring.then, begun=True)
        self._saves = after
        return MoveStep(OWN, wiring, after)

    def _switch(self) -> Effects:
        assert self.wiring is not None
        if self._by_hand:
            return []
        return [effects.AdvanceMove(self._next(), self.wiring)]

    def _retry_later(self) -> Effect:
        return effects.SetAlarm(Alarm("move", self._next()), RETRY_S)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _enter(self, stage: Stage, now_s: float) -> None:
        self.stage = stage
        self._awaited = ()
        self._began_s.append((stage, now_s))

    def _end(self, now_s: float) -> Effects:
        self._enter("standing", now_s)
        seconds: dict[str, float] = {}
        for (stage, began_s), (_, end_s) in pairwise(self._began_s):
            seconds[stage] = end_s - began_s
        move = self._last
        assert move is not None
        by_hand = self.wiring is not self._saves
        return [facts.LinksMoved(len(move.going), len(move.coming), by_hand, seconds)]


def _ends(cables: Iterable[CableLink]) -> set[str]:
    """Return the nodes at the ends of links."""
    nodes = set[str]()
    for cable in cables:
        nodes |= {cable.a.node, cable.b.node}
    return nodes
