"""A rank's part of the job from its execution trace alone: in the order of the host.

Each operation waits for the one before, and for the kernels between them if the trace has their
times. The transfers of a batch wait for the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from echelon_importers.pytorch.execution import ExecutionTrace
from echelon_importers.pytorch.members import Members
from echelon_importers.pytorch.records import TRANSFERS, Recorded
from echelon_importers.trace_parts import TraceNode, Work
from echelon_importers.workload import ReadCounts


@dataclass(slots=True)
class _Order:
    """The order so far: what the next node waits for."""

    before: tuple[int, ...] = ()
    batch: tuple[str, object] | None = None
    """The process group and the number of the transfers that were last."""
    parts: list[int] = field(default_factory=list)
    """The nodes of that batch."""

    def begin(self, batch: tuple[str, object] | None) -> None:
        """Begin what waits for everything so far."""
        if self.parts:
            self.before = tuple(self.parts)
        self.parts = []
        self.batch = batch


def by_host(
    trace: ExecutionTrace,
    members: Members,
    tally: ReadCounts,
) -> Iterator[TraceNode]:
    """Yield the nodes of a rank. Raises `DocumentError`."""
    order = _Order()
    for number, node in enumerate(trace.nodes):
        does = node.does
        if isinstance(does, Fraction):
            order.begin(None)
            tally.read["kernels"] += 1
            yield TraceNode(number, order.before, Work(does))
        else:
            batch = _batch(does)
            # Transfers of a batch have one number; PyTorch before 2.4 does not say it.
            if batch is None or batch != order.batch:
                order.begin(batch)
            part = members.part(node.place, does)
            yield TraceNode(number, order.before, part, str(node.place))
        order.parts.append(number)


def _batch(recorded: Recorded) -> tuple[str, object] | None:
    is_transfer = recorded.operation in TRANSFERS
    if not is_transfer or recorded.sequence is None:
        return None
    return recorded.group, recorded.sequence
