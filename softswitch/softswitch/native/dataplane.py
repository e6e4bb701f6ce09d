"""The data plane of interfaces in C.

Threads move packets, and one looks after ports and controllers.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

from softswitch.native.polling import Controllers
from softswitch.native.scheduler import PortScheduler
from softswitch.native.wires import Wires
from softswitch.realtime.core import Account
from softswitch.realtime.links import LinkNews
from softswitch.realtime.lock import HandoverLock
from softswitch.realtime.packet_socket import PacketSocketPort, Ring

__all__ = ["NativeDataPlane"]

_AHEAD_OF_CONTROLLERS = 10
"""The steps of niceness by which threads that move packets come before those of controllers."""
_LOOK_NS = 1_000_000
"""The shortest interval between two looks at controllers' deadlines."""
_IDLE_LOOK_NS = 10**9
"""The longest interval between two such looks."""
_REOPEN_NS = 200_000_000
"""The interval between attempts to open a port that is down.

The kernel's news of it may be lost.
"""


class NativeDataPlane:
    """Interfaces around a switch in C, with the methods of `softswitch.native.polling.DataPlane`.

    The holder of `lock` has the control plane to itself, but not the packets: those are moved by
    threads that know neither this lock nor the interpreter's.

    Args:
        core: the switch, without ports.
        clock: the switch's clock, in nanoseconds.
        lock: the lock that controllers take as well.
        controllers: the receiver of digests, idle notifications and packet-ins.
        on_port: called with the lock held when a port went up or down.
    """

    def __init__(
        self,
        core: Wires,
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
        self._ports: dict[int, PacketSocketPort] = {}
        self._up: dict[int, bool] = {}
        self._cpu_port: int | None = None
        self._links = LinkNews()
        self._stopping = self._sleeping = False
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(
                target=self._look_after,
                name="softswitch-dataplane",
            )
        ]
        for group in range(core.groups):
            name = f"softswitch-wires-{group}"
            thread = threading.Thread(
                target=self._move_packets,
                args=(group,),
                name=name,
            )
            self._threads.append(thread)
        lock.on_return = self._on_return

    # -- before it starts --------------------------------------------------------------------------

    def add(
        self,
        number: int,
        port: PacketSocketPort,
        scheduler: PortScheduler,
    ) -> None:
        """Add a port. Raise ValueError if there is already one of that number."""
        outlet = self.core.add(number, scheduler, group=len(self._ports))
        self._ports[number] = port
        self._up[number] = port.up
        library = self.core.library
        wires = self.core.wires
        ffi = self.core.ffi

        def on_ring(ring: Ring | None) -> None:
            if ring is None:
                library.wires_close(wires, outlet)
            else:
                slots = ffi.cast("uint8_t *", ring.address)
                library.wires_open(wires, outlet, ring.fd, slots, ring.slot_bytes, ring.slots)

        port.on_ring = on_ring
        if port.ring is not None:
            on_ring(port.ring)

    def add_cpu_port(self, number: int) -> None:
        """Send packets for port `number` to the controllers.

        Raise ValueError if there is already a port of that number.
        """
        self.core.add(number, self.core.scheduler(None), is_interface=False)
        self._cpu_port = number

    def start(self, on_failure: Callable[[], object] = lambda: None) -> None:
        """Start to serve.

        `on_failure` is called if a thread ends by itself; `stop` then raises the reason.
        """
        self._on_failure = on_failure
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, close the ports, and raise the error that stopped a thread before, if any.

        A second call does nothing.
        """
        if self._stopping:
            return
        with self._lock:
            self._stopping = True
        self.core.library.wires_stop(self.core.wires)
        self._wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for port in self._ports.values():
            # What waits at a port stays counted as waiting, as in an account before.
            port.on_ring = lambda _ring: None
            port.close()
        self._links.close()
        self._lock.on_return = None
        self.core.close()
        if self._failure is not None:
            raise self._failure

    # -- with the lock held ------------------------------------------------------------------------

    def inject(self, data: bytes) -> None:
        """Process a controller's packet-out, for which there must be a CPU port."""
        assert self._cpu_port is not None
        self.core.library.wires_inject(self.core.wires, self._cpu_port, data, len(data))

    @property
    def account(self) -> Account:
        """Return the whereabouts of all packets."""
        return self.core.account

    @property
    def lost(self) -> dict[int, int]:
        """Return the packets lost before they reached the switch, by port."""
        return {
            number: port.lost + self.core.outlets[number].lost
            for number, port in self._ports.items()
        }

    @property
    def up(self) -> dict[int, bool]:
        """Return whether each port is up."""
        return {number: port.up for number, port in self._ports.items()}

    # -- the threads -------------------------------------------------------------------------------

    def _move_packets(self, group: int) -> None:
        thread = threading.get_native_id()
        with contextlib.suppress(PermissionError):
            # Packets do not wait for the writes of controllers. Linux keeps niceness by thread.
            niceness = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, niceness - _AHEAD_OF_CONTROLLERS)
        number = self.core.library.wires_run(self.core.wires, group)
        if number:
            self._fail(OSError(number, os.strerror(number)))

    def _look_after(self) -> None:
        try:
            poll = select.poll()
            poll.register(self.core.news_fd, select.POLLIN)
            poll.register(self._links.fd, select.POLLIN)
            with self._lock:
                while not self._stopping:
                    self._sleep(poll, self._look(self._clock()))
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._on_failure()

    def _look(self, now_ns: int) -> int:
        """Do what is due towards controllers, and see to ports; return when to look again."""
        if self._cpu_port is not None:
            self._to_controllers(self.core.outlets[self._cpu_port])
        if self.core.switch is not None:
            self.core.switch.report()
        self._controllers.tick(now_ns)
        if (
            self._links.drain()
            or self.core.library.wires_trouble(self.core.wires)
            or not all(self._up.values())
        ):
            self._reopen()
        if all(self._up.values()):
            pause_ns = _IDLE_LOOK_NS
        else:
            pause_ns = _REOPEN_NS
        due_ns = self._controllers.next_tick_ns()
        if due_ns is not None:
            pause_ns = max(_LOOK_NS, min(due_ns - now_ns, pause_ns))
        return now_ns + pause_ns

    def _sleep(self, poll: select.poll, wake_ns: int) -> None:
        """Wait, without the lock, until it is time or there is news."""
        self._sleeping = True
        self._lock.release()
        try:
            pause_ns = max(0, wake_ns - self._clock())
            ready = poll.poll(-(-pause_ns // 10**6))
        finally:
            self._sleeping = False
            self._lock.acquire()
        if any(fd == self.core.news_fd for fd, _ in ready):
            os.eventfd_read(self.core.news_fd)

    def _reopen(self) -> None:
        for number, port in self._ports.items():
            if port.up and self.core.outlets[number].fd < 0:
                port.close()  # it failed while something was sent
            port.reopen()
            if port.up != self._up[number]:
                self._up[number] = port.up
                self._on_port(number, port.up)

    def _to_controllers(self, outlet: object) -> None:
        library = self.core.library
        ffi = self.core.ffi
        while True:
            batch = library.wires_take(self.core.wires, outlet)
            if batch == ffi.NULL:
                return
            data = ffi.buffer(batch.data)
            for index in range(batch.count):
                start = batch.start[index]
                self._controllers.packet_in(data[start : start + batch.length[index]])

    # -- other threads -----------------------------------------------------------------------------

    def _on_return(self) -> None:
        """Wake the thread that looks after controllers, because something may be due sooner."""
        if self._sleeping and all(
            threading.get_ident() != thread.ident for thread in self._threads
        ):
            self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self.core.news_fd, 1)
