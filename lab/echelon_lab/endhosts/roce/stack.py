"""RoCE v2 of one host.

Frames that arrive go to its queue pairs, and their answers go to its interface.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from zlib import crc32

from echelon.switches.targets.virtual import Clock, Nic
from echelon_lab.endhosts.roce.frames import ACKNOWLEDGE, NUMBERS, Packet, QueuePairAddress, parse
from echelon_lab.endhosts.roce.queue_pair import PairSettings, Requester, Responder
from echelon_lab.endhosts.shim import PacketTally
from echelon_lab.endhosts.tcp.stack import MovingCall


class RoceStack:
    """The queue pairs of one host, by their numbers."""

    def __init__(self, clock: Clock, nic: Nic) -> None:
        self.clock = clock
        self.nic = nic
        self.closed = False
        """Set it to make the host fall silent."""
        self.answered: dict[int, Callable[[int, Packet], None]] = {}
        """The receiver of the acknowledgements to each queue pair."""
        self.asked: dict[int, Callable[[int, Packet], None]] = {}
        """The receiver of the data to each queue pair."""

    def deliver(self, now_ns: int, frame: bytes) -> bool:
        """Take a frame that has arrived; return whether it was for a queue pair here."""
        packet = parse(frame)
        if packet is None:
            return False
        ends = self.asked
        if packet.opcode == ACKNOWLEDGE:
            ends = self.answered
        end = ends.get(packet.dst_pair)
        if end is None:
            return False
        end(now_ns, packet)
        return True


class PairConnection:
    """A connection between queue pairs of two hosts of an emulation, which carries data one way.

    Bytes that are written at one end are reported when they have arrived at the other. `on_lost` is
    called when the connection is given up.
    """

    def __init__(
        self,
        src: RoceStack,
        dst: RoceStack,
        address: QueuePairAddress,
        settings: PairSettings,
        on_lost: Callable[[], None],
        tally: PacketTally | None = None,
    ) -> None:
        self._src = src
        self._dst = dst
        self._on_lost = on_lost
        # As random as NICs begin, and the same in every run.
        first_psn = crc32(address.connection + address.dst_pair.to_bytes(3, "big")) % NUMBERS
        self._requester = Requester(address, settings, tally, first_psn)
        self._responder = Responder(address, tally, first_psn)
        self._alarm = MovingCall(src.clock, self._on_deadline)
        self._written = 0
        self._expected: deque[tuple[int, Callable[[], None]]] = deque()
        """Pairs of (bytes, what to call when they have been received), ascending."""
        src.answered[address.src_pair] = self._on_answer
        dst.asked[address.dst_pair] = self._on_data

    def establish(self) -> None:
        """Do nothing: applications connect queue pairs before they use them."""

    def write(self, length_bytes: int, on_received: Callable[[], None]) -> None:
        """Write `length_bytes` more.

        Call `on_received` when they and all bytes before them have arrived.
        """
        self._written += length_bytes
        self._expected.append((self._written, on_received))
        self._transmit(self._requester.write(self._src.clock.now_ns, length_bytes))

    def _on_answer(self, now_ns: int, packet: Packet) -> None:
        self._transmit(self._requester.on_packet(now_ns, packet))

    def _on_data(self, _now_ns: int, packet: Packet) -> None:
        answer = self._responder.on_packet(packet)
        if answer is not None:
            self._dst.nic.send(answer)
        expected = self._expected
        while expected and expected[0][0] <= self._responder.received_bytes:
            expected.popleft()[1]()

    def _on_deadline(self, now_ns: int) -> None:
        if self._src.closed:
            return
        self._transmit(self._requester.on_deadline(now_ns))
        if self._requester.given_up:
            self._on_lost()

    def _transmit(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._src.nic.send(frame)
        self._alarm.set(self._requester.deadline_ns)
