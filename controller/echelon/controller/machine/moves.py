"""The move of links from port to port while jobs run: how far it has come, and what is next.

Plans first lead around the links that go, as around links that are down: only where there is no
other path they still lead over them. When the switches at their ends hold such a plan, and nothing
is on its way over these links any more, the links move: an optical switch is told to, or a person
moves cables and says so. Then the fabric has the new links, and plans use them. What was saved is
enough to go on from after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.effects import Effect
from echelon.controller.machine.events import OWN, Alarm, TurnLinks
from echelon.controller.machine.wiring import Wiring

RETRY_S = 2.0
"""The time after which the store or the optical switch is asked again."""

_NAMED = 4
"""The most switches that are named."""

Stage: TypeAlias = Literal["standing", "routing", "draining", "moving", "installing"]
"""standing: no move is under way. routing: flows take other paths. draining: packets on their way
pass. moving: links move. installing: switches get the plan for the new links."""


class Moves:
    """The move of links that is under way.

    `Machine` saves what it wants saved, with `TurnLinks`.
    """

    def __init__(self, by_hand: bool) -> None:
        self.wiring: Wiring | None = None
        """What was saved, as `follow` had it last."""
        self.stage: Stage = "standing"
        self.problem: str | None = None
        """The reason why the optical switch has not moved the links."""
        self._awaited: Sequence[str] = ()
        """The switches that do not hold the plan yet that the links wait for."""
        self._saves: Wiring | None = None
        """What this has asked for to be saved.

        A client who says that the links stand has asked for something else.
        """
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
        """When each stage began."""

    @property
    def is_switching(self) -> bool:
        """Whether the optical switch moves links now."""
        return self.stage == "moving" and not self._by_hand and self.problem is None

    @property
    def waits(self) -> str | None:
        """The reason, in one line, why the move does not go on by itself; None: it does, or there
        is none.
        """
        if self._awaited:
            return (
                f"waits for {', '.join(self._awaited[:_NAMED])} to hold the plan around the links"
            )
        by_hand = self.stage == "moving" and self._by_hand
        return self.problem or (
            "move them, then say so (echelon link move --moved)" if by_hand else None
        )

    def follow(self, wiring: Wiring, generation: int, now_s: float) -> list[Effect]:
        """Go on after something of a move was saved, or loaded."""
        # Another move may begin while switches get the plan for the links of the last one.
        if wiring.then is not None and self.stage == "installing":
            ended = self._end(now_s)
        else:
            ended = []
        before = self.wiring
        self.wiring = wiring
        self._generation = generation
        self._version = None
        self.problem = None
        if wiring.then is not None:
            self._last = wiring
            if wiring.begun:
                self._enter("moving", now_s)
                return ended + self._switch()
            self._began_s = []
            self._enter("routing", now_s)
        else:
            self._enter(
                "installing" if before is not None and before.then is wiring.now else "standing",
                now_s,
            )
        return ended

    def adopted(self, version: int, generation: int) -> None:
        """Note that there is a plan of what was accepted up to `generation`."""
        if self._version is None and generation >= self._generation:
            self._version = version

    def advance(
        self, lacking: Callable[[int, Collection[str] | None], Sequence[str]], now_s: float
    ) -> list[Effect]:
        """Go on if the switches are far enough. `lacking` says which of these switches do not hold
        a version yet; None: which of all that can be reached."""
        wiring = self.wiring
        version = self._version
        if wiring is None or version is None:
            return []
        if self.stage == "routing":
            self._awaited = lacking(
                version, {end.node for one in wiring.going for end in (one.a, one.b)}
            )
            if not self._awaited:
                self._enter("draining", now_s)
                return [effects.AdvanceMove(self._next(), wiring)]
        elif self.stage == "installing" and not lacking(version, None):
            return self._end(now_s)
        return []

    def advanced(self, event: events.MoveAdvanced) -> tuple[list[Effect], TurnLinks | None]:
        """Return what follows, and what to save, when packets have passed or links have moved."""
        if self.stage not in ("draining", "moving") or event.number != self._number:
            return [], None
        if event.problem is None:
            return [], self._saving()
        self.problem = event.problem
        return [facts.MoveFailed(event.problem), self._again()], None

    def failed(self) -> list[Effect]:
        """Save again later."""
        return [self._again()]

    def again(self, number: int) -> tuple[list[Effect], TurnLinks | None]:
        """Tell the optical switch again, or save again."""
        if number != self._number or self.stage not in ("draining", "moving"):
            return [], None
        if self.problem is None:
            return [], self._saving()
        self.problem = None
        return self._switch(), None

    def _saving(self) -> TurnLinks:
        """Return the order to save the next step: links begin to move, or have moved."""
        wiring = self.wiring
        assert wiring is not None
        assert wiring.then is not None
        if wiring.begun:
            after = Wiring(wiring.then)
        else:
            after = Wiring(wiring.now, wiring.then, begun=True)
        self._saves = after
        return TurnLinks(OWN, wiring, after)

    def _switch(self) -> list[Effect]:
        assert self.wiring is not None
        if self._by_hand:
            return []
        return [effects.AdvanceMove(self._next(), self.wiring)]

    def _again(self) -> Effect:
        return effects.SetAlarm(Alarm("move", self._next()), RETRY_S)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _enter(self, stage: Stage, now_s: float) -> None:
        self.stage = stage
        self._awaited = ()
        self._began_s.append((stage, now_s))

    def _end(self, now_s: float) -> list[Effect]:
        self._enter("standing", now_s)
        seconds: dict[str, float] = {
            stage: end_s - began_s for (stage, began_s), (_, end_s) in pairwise(self._began_s)
        }
        assert self._last is not None
        by_hand = self.wiring is not self._saves
        return [facts.LinksMoved(len(self._last.going), len(self._last.coming), by_hand, seconds)]
