"""The switch between real interfaces in C (core.c): what `softswitch.realtime.core.Core` is in
Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ctoolchain import Compiler, Loaded, load
from softswitch.native.programs import CProgram, PythonProgram, functions_of
from softswitch.native.scheduler import NativeScheduler, c_source
from softswitch.realtime.core import Account, Drop, PortAccount
from softswitch.realtime.lock import HandoverLock
from softswitch.tm import QUEUES, QueueConfig

__all__ = ["CProgram", "Wires", "load_wires"]

_FUNCTIONS = ("ingress", "egress", "drop", "lock", "unlock")


def load_wires(compilers: Sequence[Compiler] | None = None) -> Loaded | None:
    """Return the library of wires.c; None: there is no compiler.

    Raise `ToolchainError` if none can build it.
    """
    source, declared = c_source("wires", "wires.h", "core.c")
    return load(source, declared + source.includes["wires.h"], compilers)


class Wires:
    """The ports, queues and counters of one switch in C. Threads in C may use them at the same
    time.

    Args:
        native: the library of `load_wires`.
        queues: the number of a port's queues that a program may use.
        groups: the number of threads.
        epoch_ns: the time of the monotonic clock at which the switch's own begins.
    """

    def __init__(
        self, native: Loaded, queues: int = QUEUES, groups: int = 1, epoch_ns: int = 0
    ) -> None:
        self.native = native
        self.ffi, self.library, _ = native
        self.groups = groups
        self._fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(groups + 1)]
        *wake_fds, self.news_fd = self._fds
        self.outlets: dict[int, Any] = {}
        """The structure `core_outlet` of each port."""
        self.schedulers: dict[int, NativeScheduler] = {}
        self._nowhere = self.scheduler(None)
        made = self.library.wires_new(
            queues, groups, epoch_ns, self._nowhere.port, wake_fds, self.news_fd
        )
        if made == self.ffi.NULL:
            raise MemoryError
        self.wires = self.ffi.gc(made, self.library.wires_free)
        self.core = self.library.core_of(self.wires)
        self._switch: CProgram | PythonProgram | None = None
        self._programs: list[tuple[CProgram | PythonProgram, Any]] = []
        self._guards: tuple[Any, ...] | None = None

    def close(self) -> None:
        """Release what the operating system has given. No thread may run any more."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Keep the threads in C from the switch."""
        self.library.wires_lock(self.wires)
        try:
            yield
        finally:
            self.library.wires_unlock(self.wires)

    def scheduler(
        self, rate_bps: int | None, queues: Sequence[QueueConfig] | None = None
    ) -> NativeScheduler:
        """Return queues for a port."""
        return NativeScheduler(self.native, rate_bps, queues, self.guard)

    def add(
        self, port: int, scheduler: NativeScheduler, is_interface: bool = True, group: int = 0
    ) -> Any:
        """Add a port, which is down until it has an interface; one without is the controllers'.
        Raise ValueError if there is already one of that number."""
        if port in self.outlets:
            raise ValueError(f"port {port} is given twice")
        outlet = self.library.wires_add(
            self.wires, port, scheduler.port, group % self.groups, is_interface
        )
        if outlet == self.ffi.NULL:
            raise MemoryError
        self.outlets[port] = outlet
        self.schedulers[port] = scheduler

        def plan(now_ns: int) -> None:
            self.library.core_plan(self.core, outlet, now_ns)
            self.library.wires_wake(self.wires)

        scheduler.on_reconfigured = plan
        return outlet

    @property
    def switch(self) -> CProgram | PythonProgram | None:
        """Return the program. It may be replaced at any time; waiting packets still leave by the
        one that queued them."""
        return self._switch

    @switch.setter
    def switch(self, switch: CProgram | PythonProgram | None) -> None:
        made = self.ffi.NULL
        if switch is not None:
            switch.report()
            if isinstance(switch, PythonProgram):
                made = switch.functions(self.ffi, "core_program *")
            else:
                made = functions_of(
                    switch, self.ffi.new("core_program *"), self.ffi, _FUNCTIONS, self.guard
                )
            self._programs.append((switch, made))
        self._install(made)
        self._switch = switch
        with self.guard():
            # The other programs are kept while packets of them wait.
            self._programs = [of for of in self._programs if of[0] is switch or of[1].waiting]
        self._install(made)

    def _install(self, program: Any) -> None:
        """Let packets that come run through a program.

        Threads enter Python's lock while one in Python is kept.
        """
        locks = [
            of.lock
            for of, _ in self._programs
            if isinstance(of, PythonProgram) and of.lock is not None
        ]
        if locks and self._guards is None:
            # They stay: a thread may be about to call one when the last program in Python goes.
            self._guards = tuple(
                self.ffi.callback("void(void)", call)
                for call in (_entering(locks[0]), locks[0].release)
            )
        if locks and self._guards is not None:
            guards = self._guards
        else:
            guards = (self.ffi.NULL, self.ffi.NULL)
        self.library.wires_run_program(self.wires, program, *guards)

    @property
    def account(self) -> Account:
        """Return the whereabouts of all packets."""
        with self.guard():
            ports = {port: _account(outlet) for port, outlet in self.outlets.items()}
            dropped = dict(zip((drop.value for drop in Drop), self.core.dropped, strict=True))
            return Account(
                sum(port.packets_in for port in ports.values()),
                self.core.replicated,
                sum(port.packets_out for port in ports.values()),
                {reason: count for reason, count in sorted(dropped.items()) if count},
                sum(port.queued for port in ports.values()) + self._nowhere.queued_packets,
                ports,
            )


def _entering(lock: HandoverLock) -> Callable[[], None]:
    def enter() -> None:
        lock.acquire()

    return enter


def _account(outlet: Any) -> PortAccount:
    unsent = sum(batch.count - batch.first for batch in (outlet.filling, outlet.sending))
    return PortAccount(
        outlet.packets_in,
        outlet.bytes_in,
        outlet.packets_out,
        outlet.bytes_out,
        outlet.dropped,
        outlet.queues.packets + unsent,
    )
