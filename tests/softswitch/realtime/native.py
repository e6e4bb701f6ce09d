"""The switch in C behind the interface of `Core`, and the program `Orders` in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, load
from softswitch.native.core import Core
from softswitch.native.programs import PythonProgram
from softswitch.native.scheduler import PortScheduler, c_source
from softswitch.native.wires import CProgram, load_core
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


@cache
def wires() -> Loaded:
    return load_core()


@cache
def orders() -> Loaded:
    includes = c_source("tm")[0].includes
    text = Path(__file__).with_name("orders.c").read_text()
    return load(CSource("orders", text, includes), includes["abi.h"] + DECLARED)


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
    def __init__(self, core: Core, outlet: Any, scheduler: PortScheduler) -> None:
        self._core = core
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
    def due_ns(self) -> int | None:
        return None if self.outlet.due_ns < 0 else int(self.outlet.due_ns)

    @property
    def sending(self) -> list[bytes]:
        return self._core.packets(self.outlet)


class SchedulerOfWires(PortScheduler):
    def __init__(self, rate_bps: int | None) -> None:
        super().__init__(wires(), rate_bps)


class CoreInC:
    """The product's `Core` behind the interface of the one in Python."""

    def __init__(
        self, switch: CProgram | PythonProgram | None = None, queues: int = QUEUES
    ) -> None:
        self.core = Core(wires(), queues)
        self.outlets: dict[int, OutletInC] = {}
        self.switch = switch

    def __del__(self) -> None:
        self.core.close()

    @property
    def switch(self) -> CProgram | PythonProgram | None:
        return self.core.switch

    @switch.setter
    def switch(self, switch: CProgram | PythonProgram | None) -> None:
        self.core.switch = switch

    @property
    def account(self) -> Any:
        return self.core.account

    def add(self, port: int, scheduler: PortScheduler) -> None:
        outlet = self.core.add(port, scheduler)
        self.outlets[port] = OutletInC(self.core, outlet, scheduler)
        self.core.set_up(outlet, True, 0)

    def receive(self, port: int, frames: Sequence[bytes], now_ns: int) -> None:
        self.core.receive(port, frames, now_ns)

    def serve_due(self, now_ns: int) -> int | None:
        return self.core.serve_due(now_ns)

    def sending(self) -> list[OutletInC]:
        return [self.outlets[outlet.port] for outlet in self.core.sending()]

    def sent(self, outlet: OutletInC, packets: int, _length_bytes: int) -> None:
        self.core.sent(outlet.outlet, packets)

    def refused(self, outlet: OutletInC, obstacle: Obstacle, now_ns: int) -> None:
        self.core.refused(outlet.outlet, obstacle, now_ns)

    def unblock(self, outlet: OutletInC, now_ns: int) -> None:
        self.core.unblock(outlet.outlet, now_ns)

    def set_up(self, outlet: OutletInC, up: bool, now_ns: int) -> None:
        self.core.set_up(outlet.outlet, up, now_ns)
