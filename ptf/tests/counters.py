"""The counters of the program, read through P4Runtime."""

from __future__ import annotations

from functools import partial

from echelon_ptf import entries, frames
from echelon_ptf.base import RECEIVER, EchelonTest
from echelon_ptf.control import Count
from echelon_ptf.entries import Fixed


class PerFlow(EchelonTest):
    """Each flow known by its shim has its packets and bytes counted, whatever other flows send."""

    def runTest(self) -> None:
        flows = [self.shim_flow(Fixed(queue)) for queue in (2, 3)]
        expected = []
        for index, flow in enumerate(flows):
            sizes = [
                len(self.carry(flow.packet(payload_bytes=100 * n))) for n in range(index + 1, 5)
            ]
            expected.append(Count(len(sizes), sum(sizes)))
        self.await_equal(
            expected, lambda: [self.switch.direct_counter(flow.entry) for flow in flows]
        )


class PerFlowNotItsAcknowledgements(EchelonTest):
    """Acknowledgements of a flow are not counted as its packets."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(2))
        self.carry(flow.packet(flags=frames.ACK))
        size = len(self.carry(flow.packet()))
        self.await_equal(Count(1, size), lambda: self.switch.direct_counter(flow.entry))


class NewEntriesCountFromZero(EchelonTest):
    """An entry counts from zero, whatever an earlier entry with its key has counted."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(2))
        size = len(self.carry(flow.packet()))
        self.await_equal(Count(1, size), lambda: self.switch.direct_counter(flow.entry))
        self.switch.delete(flow.entry)
        self.switch.insert(flow.entry)
        self.assertEqual(self.switch.direct_counter(flow.entry), Count(0, 0))


class PerSegment(EchelonTest):
    """Flows known by their place in a connection have their packets and bytes counted."""

    def runTest(self) -> None:
        number = self.new_connection()
        numbers = [self.new_flow(), self.new_flow()]
        flows = [entries.flow(flow, Fixed(2), RECEIVER, RECEIVER) for flow in numbers]
        self.install(
            *flows,
            *(
                entries.segment(number, 1000 * n, 1000 * n + 1000, flow)
                for n, flow in enumerate(numbers)
            ),
            entries.connection(
                "tcp",
                3,
                3,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=3_600_000_000,
                head_bytes=2000,
            ),
        )
        sizes = [len(self.carry(frames.tcp(3, 3, 400))) for _ in range(4)]
        # At 0, 400 and 800; at 1200.
        expected = [Count(3, sum(sizes[:3])), Count(1, sizes[3])]
        self.await_equal(expected, lambda: [self.switch.direct_counter(flow) for flow in flows])


class PerPortAndQueue(EchelonTest):
    """Packets and bytes are counted for each queue of each port."""

    def runTest(self) -> None:
        for port in (2, 3):
            flow = self.shim_flow(Fixed(5), port=port)
            before = self.sent(port)
            sizes = [
                len(self.carry(flow.packet(payload_bytes=size), port)) for size in (10, 500, 1200)
            ]
            expected = Count(before.packets + len(sizes), before.bytes + sum(sizes))
            self.await_equal(expected, partial(self.sent, port))

    def sent(self, port: int) -> Count:
        return self.switch.queue_counter(port, 5)
