"""softswitch as a target, by two ways through it: its pipelines called one after the other, and a
virtual fabric.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence

from finsy.proto import U128, p4r

from softswitch import Queued, Switch
from softswitch.native.fabric import EventLoop, VirtualFabric
from softswitch.p4runtime.device import Device
from softswitch.rpc.status import RefusedError
from softswitch.v1model import RESUBMIT_LIMIT
from tests.differential.case import Output, Sent
from tests.differential.catalogue import Subject
from tests.differential.target import TargetError

DEVICE_ID = 1
_STEP_NS = 1_000_000


class DeviceTarget:
    """P4Runtime to a `Device` without a socket, packets to the pipelines of its switch, one packet
    at a time.

    `wait_ns` passes between a packet's enqueueing and its dequeueing.
    """

    def __init__(self, wait_ns: int = 0) -> None:
        self._wait_ns = wait_ns
        self._now_ns = 0
        self._device = self._new_device()

    def install(self, subject: Subject) -> None:
        self._device = self._new_device()
        config = p4r.ForwardingPipelineConfig(p4info=subject.p4info, p4_device_config=subject.json)
        try:
            self._device.install(config)
        except RefusedError as error:
            raise TargetError(f"softswitch does not take {subject.name}: {error}") from None
        stream = self._device.open_stream(lambda _message: None, lambda _status: None)
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=U128.encode(1))
        stream.receive(p4r.StreamMessageRequest(arbitration=arbitration))

    def write(self, updates: Sequence[p4r.Update]) -> list[int]:
        request = p4r.WriteRequest(device_id=DEVICE_ID, election_id=U128.encode(1), updates=updates)
        return [int(status.code) for status in self._device.write(request)]

    def read(self, queries: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=queries)
        return [entity for response in self._device.read(request) for entity in response.entities]

    def send(self, packets: Sequence[tuple[int, bytes]], hint: Sent | None) -> Sent:
        outputs: list[Output] = []
        burst = 1
        for cause, (port, data) in enumerate(packets):
            self._now_ns += _STEP_NS
            try:
                burst = max(burst, self._process(cause, port, data, outputs))
            except Exception as error:
                # No packet may make the switch raise: report it as what this switch did, with the
                # packet.
                place = traceback.extract_tb(error.__traceback__)[-1]
                reason = (
                    f"{type(error).__name__}: {error} in {place.name},"
                    f" {place.filename}:{place.lineno}"
                )
                raise TargetError(
                    f"softswitch: port {port}, packet {data.hex()}: {reason}"
                ) from error
        return Sent(tuple(outputs), burst)

    @property
    def switch(self) -> Switch:
        """The switch that runs the installed program."""
        assert self._device.switch is not None
        return self._device.switch

    def _new_device(self) -> Device:
        return Device(device_id=DEVICE_ID, now_ns=lambda: self._now_ns)

    def _process(self, cause: int, port: int, data: bytes, outputs: list[Output]) -> int:
        """Process one packet; returns how many copies of it there were at most in one queue."""
        switch, now_ns = self.switch, self._now_ns
        waiting = switch.ingress(port, data, now_ns)
        queued_at: Counter[tuple[int, int]] = Counter()
        for _ in range(RESUBMIT_LIMIT):
            following: list[Queued] = []
            queued_at.update((queued.port, queued.queue) for queued in waiting)
            for queued in waiting:
                for departure in switch.egress(queued, now_ns, now_ns + self._wait_ns, 0, 0):
                    if departure.packet is not None:
                        outputs.append(
                            Output(cause, departure.port, departure.packet, queued.queue)
                        )
                    following += departure.requeue
            waiting = following
            if not waiting:
                return max(queued_at.values(), default=1)
        raise TargetError(
            f"packet {cause} goes round and round: the program must not loop for ever"
        )


class FabricTarget(DeviceTarget):
    """The same, with packets through a `VirtualSwitch` that has a host at every port."""

    PORTS = range(511)

    def send(self, packets: Sequence[tuple[int, bytes]], hint: Sent | None) -> Sent:
        outputs: list[Output] = []
        cause = 0
        loop = EventLoop(self._now_ns)
        fabric = VirtualFabric(loop)
        node = fabric.add_switch("switch", self.switch)
        for port in self.PORTS:

            def receive(_now_ns: int, data: bytes, port: int = port) -> None:
                outputs.append(Output(cause, port, data))

            fabric.add_host(f"host{port}", receive)
            fabric.connect((node, port), (f"host{port}", 0), 100 * 10**9, 0)
        for cause, (port, data) in enumerate(packets):  # noqa: B007 - `receive` reads it
            node.inject(port, data)
            fabric.run(max_events=100_000)
        self._now_ns = loop.now_ns + _STEP_NS
        return Sent(tuple(outputs))
