"""The parts of a program that packets have reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softswitch import ir
from softswitch.trace import Event, events

Part = tuple[object, ...]


class Reach:
    """A tracer that notes which states, outcomes of conditions and statements of a program packets
    have reached.
    """

    def __init__(self, program: ir.ProgramIR) -> None:
        self._parts: set[Part] = {("state", name) for name in program.parser.states}
        for pipeline in (program.ingress, program.egress):
            for node in pipeline.nodes.values():
                if isinstance(node, ir.Conditional):
                    text, position = (
                        (node.origin.text, str(node.origin)) if node.origin else (node.name, None)
                    )
                    self._parts |= {("condition", text, position, holds) for holds in (False, True)}
        for action in program.actions.values():
            for primitive in action.body:
                if not primitive.op.startswith("_jump"):
                    origin = primitive.origin
                    self._parts.add(
                        (
                            "statement",
                            (origin and origin.text) or primitive.op,
                            origin and str(origin),
                        )
                    )
        self.reached: set[Part] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case events.State(name):
                self.reached.add(("state", name))
            case events.Condition(text, position, value):
                self.reached.add(("condition", text, position, value))
            case events.Statement(text, position):
                self.reached.add(("statement", text, position))

    @property
    def share(self) -> float:
        """The share of the parts that could be reached."""
        return len(self.reached & self._parts) / len(self._parts)

    def is_new(self, call: Callable[[], Any]) -> bool:
        """Make a call, and tell whether it reached a part that none before it did."""
        known = len(self.reached)
        call()
        return len(self.reached) > known
