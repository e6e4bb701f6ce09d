"""The data plane of ports of any kind.

One thread polls them, runs the switch, sends, and sleeps when there is nothing to do.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any, Protocol

from softswitch.native.core import Core
from softswitch.native.scheduler import PortScheduler
from softswitch.realtime.core import TURN, Account
from softswitch.realtime.kernel import Poller, set_timer_slack_ns
from softswitch.realtime.links import LinkNews
from softswitch.realtime.lock import HandoverLock
from softswitch.realtime.port import Obstacle, Port

__all__ = ["Controllers", "DataPlane"]

_RETRY_NS = 250_000
"""The time for which a port that pushed back is left alone.

The kernel does not always report that it has room again.
"""

_LOOK_NS = 1_000_000
"""The least time between two looks at deadlines and interfaces while packets move."""

_IDLE_LOOK_NS = 10**9
"""The interval between two such looks while nothing happens."""

_REOPEN_NS = 200_000_000
"""The interval between attempts to open a port that is down.

The kernel's news of it may be lost.
"""


class Controllers(Protocol):
    """The duties of the data plane towards the control plane.

    `softswitch.p4runtime.device.Device` implements them.
    """

    def tick(self, now_ns: int) -> None: ...

    def next_tick_ns(self) -> int | None: ...

    def packet_in(self, data: bytes) -> None: ...


class DataPlane:
    """Ports around a core, and the one thread that serves them.

    The holder of `lock` has the switch to itself. The thread holds it while it works, and hands it
    over to a waiter between two batches. A controller that stops reading holds no lock, so no
    controller can stop the packets.

    Args:
        core: the switch, without ports.
        clock: the core's clock, in nanoseconds, which never goes back.
        lock: the lock that controllers take as well.
        controllers: the receiver of digests, idle notifications and packet-ins.
        on_port: called with the lock held when a port went up or down.
    """

    def __init__(
        self,
        core: Core,
        clock: Callable[[], int],
        lock: HandoverLock,
        controllers: Controllers,
        on_port: Callable[[int, bool], object] = lambda _port, _up: None,
    ) -> None:
        self.core = core
        self._clock = clock
        self._lock = lock
        self._controllers = controllers
        self._on_port = on_port
        self._ports: dict[int, Port] = {}
        self._inlets: list[tuple[int, Port]] = []
        self._cpu_port: int | None = None
        self._blocked: set[int] = set()
        self._links = LinkNews()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = Poller()
        self._poll_changed = True
        self._retry_ns = 0
        self._look_ns = 0
        self._looked_ns = 0
        self._sleeping = False
        self._stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run,
            name="softswitch-dataplane",
        )
        lock.on_return = self._on_return

    # -- before it starts --------------------------------------------------------------------------

    def add(
        self,
        number: int,
        port: Port,
        scheduler: PortScheduler,
    ) -> None:
        """Add a port. Raise ValueError if there is already one of that number."""
        outlet = self.core.add(number, scheduler)
        self._ports[number] = port
        self._inlets.append((number, port))
        self.core.set_up(outlet, port.up, 0)

    def add_cpu_port(self, number: int) -> None:
        """Send packets for port `number` to the controllers.

        Raise ValueError if there is already a port of that number.
        """
        self.core.add(number, self.core.scheduler(None), is_interface=False)
        self._cpu_port = number

    def start(self, on_failure: Callable[[], object] = lambda: None) -> None:
        """Start to serve.

        `on_failure` is called if the thread ends by itself; `stop` then raises the reason.
        """
        self._on_failure = on_failure
        self._thread.start()

    def stop(self) -> None:
        """Stop, close the ports, and raise the error that stopped the thread before, if any.

        A second call does nothing.
        """
        if self._stopping:
            return
        with self._lock:
            self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for port in self._ports.values():
            port.close()
        self._links.close()
        self.core.close()
        os.close(self._wake_fd)
        self._lock.on_return = None
        if self._failure is not None:
            raise self._failure

    # -- with the lock held ------------------------------------------------------------------------

    def inject(self, data: bytes) -> None:
        """Process a controller's packet-out, for which there must be a CPU port."""
        assert self._cpu_port is not None
        now_ns = self._clock()
        self.core.receive(self._cpu_port, (data,), now_ns)
        # The thread may sleep, and would send this only when something else wakes it.
        self._flush(now_ns)

    @property
    def account(self) -> Account:
        """Return the whereabouts of all packets."""
        return self.core.account

    @property
    def lost(self) -> dict[int, int]:
        """Return the packets lost before they reached the switch, by port."""
        return {number: port.lost for number, port in self._ports.items()}

    @property
    def up(self) -> dict[int, bool]:
        """Return whether each port is up."""
        return {number: port.up for number, port in self._ports.items()}

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        set_timer_slack_ns(1)
        try:
            with self._lock:
                while not self._stopping:
                    self._sleep(self._work())
        except BaseException as error:
            self._failure = error
            self._on_failure()

    def _work(self) -> int | None:
        """Serve ports and queues until nothing is left to do now.

        Return the time when something is due, None if nothing is.
        """
        core = self.core
        clock = self._clock
        lock = self._lock
        receive = core.receive
        inlets = self._inlets
        while True:
            busy = False
            for number, port in inlets:
                frames = port.receive(TURN)
                if frames:
                    receive(number, frames, clock())
                    busy = True
            now_ns = clock()
            due_ns = core.serve_due(now_ns)
            self._flush(now_ns)
            if busy:
                self._look_by(now_ns + _LOOK_NS)
            if self._look_ns <= now_ns:
                self._look(now_ns)
            if self._blocked and self._retry_ns <= now_ns:
                self._retry(now_ns)
                busy = True
            if self._stopping or not (busy or (due_ns is not None and due_ns <= now_ns)):
                return due_ns
            if lock.wanted:
                lock.yield_()

    def _sleep(self, due_ns: int | None) -> None:
        """Wait without the lock until something is due or arrives, or another thread had it."""
        if due_ns is None:
            wake_ns = self._look_ns
        else:
            wake_ns = min(due_ns, self._look_ns)
        if self._blocked:
            wake_ns = min(wake_ns, self._retry_ns)
        if self._poll_changed:
            watched = [self._wake_fd, self._links.fd]
            watched += [port.fd for port in self._ports.values() if port.fd is not None]
            self._poller.watch(watched)
            self._poll_changed = False
        self._sleeping = True
        self._lock.release()
        try:
            ready = self._poller.wait(wake_ns - self._clock())
        finally:
            self._sleeping = False
            self._lock.acquire()
        for fd, events in ready:
            if fd == self._wake_fd:
                os.eventfd_read(fd)
                self._look_by(self._looked_ns + _LOOK_NS)
            elif fd == self._links.fd or events & select.POLLERR:
                self._reopen()

    def _look_by(self, at_ns: int) -> None:
        if at_ns < self._look_ns:
            self._look_ns = at_ns

    def _look(self, now_ns: int) -> None:
        """Do what is due towards controllers, and process the kernel's news of interfaces."""
        self._looked_ns = now_ns
        self._controllers.tick(now_ns)
        due_ns = self._controllers.next_tick_ns()
        if due_ns is None:
            self._look_ns = now_ns + _IDLE_LOOK_NS
        else:
            self._look_ns = max(due_ns, now_ns + _LOOK_NS)
        if not all(port.up for port in self._ports.values()):
            self._look_by(now_ns + _REOPEN_NS)
            self._reopen()
        elif self._links.drain():
            self._reopen()

    def _retry(self, now_ns: int) -> None:
        """Offer their packets again to the ports that pushed back."""
        blocked = self._blocked
        self._blocked = set()
        for number in blocked:
            self.core.unblock(self.core.outlets[number], now_ns)

    def _reopen(self) -> None:
        self._links.drain()
        for number, port in self._ports.items():
            self._poll_changed |= port.reopen()
            outlet = self.core.outlets[number]
            if port.up != outlet.up:
                self._blocked.discard(number)
                self.core.set_up(outlet, port.up, self._clock())
                self._on_port(number, port.up)

    def _flush(self, now_ns: int) -> None:
        """Send what the core has to send, and report the outcome to it."""
        while outlets := self.core.sending():
            for outlet in outlets:
                if outlet.port == self._cpu_port:
                    self._to_controllers(outlet)
                else:
                    self._send(outlet, now_ns)

    def _send(self, outlet: Any, now_ns: int) -> None:
        packets = self.core.packets(outlet)
        count = len(packets)
        number = outlet.port
        obstacle = self._ports[number].send(packets)
        self.core.sent(outlet, count - len(packets))
        if obstacle is not None:
            self.core.refused(outlet, obstacle, now_ns)
            if obstacle is Obstacle.FULL:
                self._blocked.add(number)
                self._retry_ns = now_ns + _RETRY_NS
            elif obstacle is Obstacle.DOWN:
                self._poll_changed = True
                self._look_by(self._looked_ns)
                self._on_port(number, False)

    def _to_controllers(self, outlet: Any) -> None:
        packets = self.core.packets(outlet)
        self.core.sent(outlet, len(packets))
        for data in packets:
            self._controllers.packet_in(data)

    # -- other threads -----------------------------------------------------------------------------

    def _on_return(self) -> None:
        """Wake the thread, because another thread may have changed what is due next."""
        if self._sleeping and threading.get_ident() != self._thread.ident:
            self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)
