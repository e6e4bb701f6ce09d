"""The state of one packet on its way through the match-action stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from echelon_tofino_model.emulator.phv import Vector


@dataclass(slots=True)
class PacketRun:
    """A packet in a stage: every table reads ``before`` and every action writes ``after``."""

    before: Vector
    after: Vector
    valid: int
    """The valid containers, a bit each."""
    now_ns: int
    length_bytes: int
    random: Random
    data: tuple[int, ...] = ()
    """The values of the running action's operands that come from its table entry."""
    outputs: dict[str, int] = field(default_factory=dict)
    """The results of stateful ALUs and meters in this stage, by table."""

    def next_stage(self) -> None:
        """Let what the stage's actions wrote become what the next stage reads."""
        self.before = self.after
        self.after = self.before.copy()
        self.outputs.clear()
