"""The division of links between flows by the queues of their ports, at one moment.

Packets decide this port by port. Here it is computed as a whole, with every sender as fast as its path allows:

- A queue first gets its minimum share of the port. The rest serves queues of a higher level before those of a lower
  one, and queues of one level in proportion to their weights (DWRR), none above its maximum share.
- A queue is a FIFO, which serves flows in proportion to the packets that they have in it. A sender that keeps a window
  in flight has that window in the queue where it waits, so flows that wait in one queue share it in proportion to their
  windows. A sender of constant rate gets its full rate through, before the others share the rest, as long as the queue
  carries it; beyond that, such senders share the queue in proportion to their rates.
- A flow that waits elsewhere takes less than its share here, and the others share what it leaves: max-min fairness,
  found by fixing the flows of the tightest queue first.

If every flow waits in a single queue, this is what packets do. A flow that waits in several FIFO queues of its path
splits its window between them, and such a network shares in proportional fairness (Massoulié and Roberts, Bandwidth
sharing: objectives and algorithms, INFOCOM '99); max-min fairness gives such a flow somewhat more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

from echelon.allocation import Number
from echelon.fluid.filling import NO_RATE, SharedPorts, Standings, shared_rates
from echelon.fluid.rounding import Arithmetic
from echelon.plan import PortSchedule, QueuePlan

_ONE_FIFO = (QueuePlan(level=0),)


@dataclass(frozen=True, slots=True)
class SharedPort:
    """A link and the queues in front of it."""

    capacity_Bps: Number  # noqa: N815
    schedule: PortSchedule | None
    """None for a host's interface, which is one FIFO."""
    reverse: int | None = None
    """The index of the port of the opposite direction, if acknowledgements take part of its link."""

    @property
    def limited(self) -> bool:
        """Whether some queue has a maximum share."""
        return any(queue.max_share is not None for queue in self.schedule or ())


class QueueSharing:
    """The ports, the possible standings of a flow at them, and the rates that follow.

    `acknowledging` is the bytes of acknowledgements for each byte of a flow. They return on the same path, before all
    flows.
    """

    def __init__(self, ports: Sequence[SharedPort], arithmetic: Arithmetic, acknowledging: Number = 0) -> None:
        number = arithmetic.number
        self._exact = arithmetic.exact
        self._constants = (number(0), number(acknowledging), arithmetic.tolerance)
        capacities = [number(port.capacity_Bps) for port in ports]
        queues = [(index, plan) for index, port in enumerate(ports) for plan in port.schedule or _ONE_FIFO]
        self._first = [0] * len(ports)
        """The first queue of each port."""
        for queue, (index, _) in reversed([*enumerate(queues)]):
            self._first[index] = queue
        self._ports = SharedPorts(
            capacity=self._numbers(capacities),
            is_fifo=_integers(port.schedule is None for port in ports),
            limited=_integers(port.limited for port in ports),
            reverse=_integers(-1 if port.reverse is None else port.reverse for port in ports),
            port_of=_integers(index for index, _ in queues),
            level=_integers(plan.level for _, plan in queues),
            weight=_integers(plan.weight for _, plan in queues),
            limit=self._numbers(
                capacities[index] * (1 if plan.max_share is None else number(plan.max_share)) for index, plan in queues
            ),
            minimum=self._numbers(
                capacities[index] * (1 if ports[index].schedule is None else number(plan.min_share))
                for index, plan in queues
            ),
            port_number=_integers([-1] * len(ports)),
            queue_number=_integers([-1] * len(queues)),
        )
        self._standings = Standings(_integers([0]), _integers(()), _integers(()), self._numbers(()))

    def place(self, port: int, queue: int) -> int:
        """Return the number of a queue of a port; a FIFO has one queue only."""
        return self._first[port] + queue

    def standing(self, places: Iterable[int], window: int, sent_Bps: Number | None = None) -> int:  # noqa: N803
        """Return the number of a new standing.

        Args:
            places: the queues on the path of a flow.
            window: its window in flight, in any unit that is the same for all flows.
            sent_Bps: the constant rate at which it sends; None: as fast as its window lets it.
        """
        of = self._standings
        of.places.extend(places)
        of.window.append(window)
        of.sent.append(NO_RATE if sent_Bps is None else sent_Bps)
        of.starts.append(len(of.places))
        return len(of.window) - 1

    def rates(self, standings: Sequence[int]) -> tuple[list[Number], list[bool]]:
        """Return the rates of flows of these standings, and which of them wait in a queue with others.

        Every flow ends with a full link or a full queue on its path, or at its own rate.
        """
        return shared_rates(standings, self._standings, self._ports, *self._constants)

    def _numbers(self, values: Iterable[Number]) -> MutableSequence[Number]:
        numbers: MutableSequence[Any] = list(values) if self._exact else array("d", map(float, values))
        return numbers


def _integers(values: Iterable[int]) -> array[int]:
    return array("q", values)
