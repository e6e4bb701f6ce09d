"""Several threads at once: forwarding goes on while controllers write, and primaries follow each
other in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from finsy.proto import U128, p4r

from softswitch.p4runtime.device import Device
from softswitch.realtime.lock import HandoverLock
from softswitch.rpc.status import Code
from softswitch.stateful import Register
from tests.reference.table_updates import updates

TIMEOUT_S = 60


class Gate(Register):
    """A register whose writing can be held up."""

    def __init__(self, register: Register) -> None:
        super().__init__(register.name, register.size, register.width)
        self.entered, self.go = threading.Event(), threading.Event()

    def write(self, index: int, value: int) -> None:
        super().write(index, value)
        self.entered.set()
        assert self.go.wait(TIMEOUT_S)


def test_packets_pass_between_the_updates_of_one_write(program: Any) -> None:
    lock = HandoverLock()
    device = Device(lock=lock, cpu_port=510)
    device.install(program.config())
    stream = device.open_stream(lambda message: None, lambda status: None)
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
    stream.receive(p4r.StreamMessageRequest(arbitration=claim))
    request = p4r.WriteRequest(
        device_id=1,
        election_id=U128.encode(1),
        updates=list(updates(program.p4info, "exact_table", 4000)),
    )
    table = device.switch.tables["IngressImpl.exact_table"]
    seen: set[int] = set()

    def forward() -> None:
        while len(table) < 4000:
            with lock:
                seen.add(len(table))

    forwarding = threading.Thread(target=forward, daemon=True)
    forwarding.start()
    statuses = device.write(request)
    forwarding.join(TIMEOUT_S)
    assert not any(status.code for status in statuses)
    assert len(seen) > 10, "the lock was free again and again"
    assert all(size % 64 == 0 for size in seen - {4000})


def test_a_new_primary_waits_for_the_writes_of_the_former(
    controller: Any, connect: Callable[..., Any], program: Any
) -> None:
    device = controller.device
    pipeline = device._pipeline()  # noqa: SLF001
    store = pipeline._stores["register_entry"]  # noqa: SLF001
    ((number, register),) = store._arrays.items()  # noqa: SLF001
    gate = store._arrays[number] = Gate(register)  # noqa: SLF001
    cell = (
        'register_entry { register_id: $last_type index { index: 1 } data { bitstring: "\x07" } }'
    )
    outcome: list[Any] = []
    writing = threading.Thread(
        target=lambda: outcome.extend(
            controller.write(program.update("MODIFY", cell), program.exact(1))
        ),
        daemon=True,
    )
    writing.start()
    assert gate.entered.wait(TIMEOUT_S)
    joined: list[Any] = []
    joining = threading.Thread(target=lambda: joined.append(connect(2)), daemon=True)
    joining.start()
    joining.join(0.3)
    assert joining.is_alive(), "it waits while a write of the former primary is under way"
    gate.go.set()
    writing.join(TIMEOUT_S)
    joining.join(TIMEOUT_S)
    assert [status.code for status in outcome] == [Code.OK, Code.OK], "what had begun is finished"
    assert joined[0].inbox[-1].arbitration.status.code == Code.OK
    assert controller.inbox[-1].arbitration.status.code == Code.ALREADY_EXISTS
