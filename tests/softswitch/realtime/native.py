"""The switch in C behind the interface of `Core`, and the program `Orders` in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, load
from softswitch.native.scheduler import NativeScheduler, c_source
from softswitch.native.wires import CProgram, Wires, load_wires
from softswitch.realtime import Obstacle
from softswitch.tm import QUEUES

DECLARED = """
typedef struct {
    uint32_t port, length;
    uint64_t enqueued_ns, now_ns;
    uint32_t met, leaves;
    uint8_t data[2048];
} seen;
uint32_t orders_count(ss_switch *s);
uint64_t orders_packets(ss_switch *s);
seen *orders_left(ss_switch *s, uint32_t at);
"""
OBSTACLES = (None, Obstacle.FULL, Obstacle.DOWN, Obstacle.REFUSED, Obstacle.NO_PEER)


@cache
def wires() -> Loaded:
    found = load_wires()
    assert found is not None
    return found


@cache
def orders() -> Loaded:
    includes = c_source("tm")[0].includes
    text = Path(__file__).with_name("orders.c").read_text()
    found = load(CSource("orders", text, includes), includes["abi.h"] + DECLARED)
    assert found is not None
    return found


class OrdersInC:
    """The program whose packets say what is to become of them, in C."""

    def __init__(self, endless: bool = False) -> None:
        self.native = orders()
        self._library = self.native.library
        self.on_library: Callable[[], object] = lambda: None
        self.state = self.native.ffi.gc(
            self._library.ss_new(endless, 20_000), self._library.ss_free
        )

    events = None

    def report(self) -> None:
        """Report nothing: it has no digests."""

    @property
    def packets(self) -> int:
        """Return the number of packets that neither egress nor a drop has ended."""
        return int(self._library.orders_packets(self.state))

    @property
    def left(self) -> list[tuple[int, bytes, int, int, int, int]]:
        seen = (
            self._library.orders_left(self.state, at)
            for at in range(self._library.orders_count(self.state))
        )
        data = self.native.ffi.buffer
        return [
            (s.port, data(s.data)[: s.length], s.enqueued_ns, s.now_ns, s.met, s.leaves)
            for s in seen
        ]


class OutletInC:
    def __init__(self, outlet: Any, scheduler: NativeScheduler) -> None:
        self.outlet = outlet
        self.scheduler = scheduler

    @property
    def port(self) -> int:
        return int(self.outlet.port)

    @property
    def up(self) -> bool:
        return bool(self.outlet.up)

    @property
    def blocked(self) -> bool:
        return bool(self.outlet.blocked)

    @property
    def sending(self) -> list[bytes]:
        batch = self.outlet.filling
        data = memoryview(wires().ffi.buffer(batch.data))
        return [
            bytes(data[batch.at[at] : batch.at[at] + batch.length[at]])
            for at in range(batch.first, batch.count)
        ]


class SchedulerOfWires(NativeScheduler):
    def __init__(self, rate_bps: int | None) -> None:
        super().__init__(wires(), rate_bps)


class CoreInC:
    """A switch whose threads do not run: its clock and its interfaces are the test's."""

    def __init__(self, switch: CProgram | None = None, queues: int = QUEUES) -> None:
        self._of = Wires(wires(), queues)
        self._library = self._of.library
        self.outlets: dict[int, OutletInC] = {}
        self.switch = switch

    def __del__(self) -> None:
        self._of.close()

    @property
    def switch(self) -> CProgram | None:
        return self._of.switch

    @switch.setter
    def switch(self, switch: CProgram | None) -> None:
        self._of.switch = switch

    @property
    def account(self) -> Any:
        return self._of.account

    def add(self, port: int, scheduler: NativeScheduler) -> None:
        outlet = self._of.add(port, scheduler)
        self.outlets[port] = OutletInC(outlet, scheduler)
        self._library.core_set_up(self._of.core, outlet, True, 0)

    def receive(self, port: int, frames: Sequence[bytes], now_ns: int) -> None:
        for data in frames:
            self._library.core_receive(self._of.core, port, data, len(data), now_ns)
        self._library.core_let_go(self._of.core)

    def serve_due(self, now_ns: int) -> int | None:
        due_ns = self._library.core_serve_due(self._of.core, now_ns)
        self._library.core_let_go(self._of.core)
        return None if due_ns < 0 else int(due_ns)

    def sending(self) -> list[OutletInC]:
        return [outlet for outlet in self.outlets.values() if outlet.sending and not outlet.blocked]

    def sent(self, outlet: OutletInC, packets: int, _length_bytes: int) -> None:
        self._library.core_sent(outlet.outlet, outlet.outlet.filling, packets)

    def refused(self, outlet: OutletInC, obstacle: Obstacle, now_ns: int) -> None:
        self._library.core_refused(self._of.core, outlet.outlet, OBSTACLES.index(obstacle), now_ns)
        self._library.core_let_go(self._of.core)

    def unblock(self, outlet: OutletInC, now_ns: int) -> None:
        self._library.core_unblock(self._of.core, outlet.outlet, now_ns)

    def set_up(self, outlet: OutletInC, up: bool, now_ns: int) -> None:
        self._library.core_set_up(self._of.core, outlet.outlet, up, now_ns)
        self._library.core_let_go(self._of.core)
