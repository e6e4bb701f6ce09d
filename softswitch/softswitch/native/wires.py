"""The switch between its ports in C (core.c), and the threads that move its packets (wires.c)."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ctoolchain import TCC, Compiler, Loaded, load
from softswitch.native.programs import CProgram, PythonProgram, functions_of
from softswitch.native.scheduler import PortScheduler, c_source
from softswitch.realtime.core import Account, Drop, PortAccount
from softswitch.realtime.lock import HandoverLock
from softswitch.tm import QUEUES, QueueConfig

__all__ = ["CProgram", "Wires", "has_barriers", "load_core"]

_FUNCTIONS = ("ingress", "egress", "drop", "lock", "unlock")


def load_core(compilers: Sequence[Compiler] | None = None) -> Loaded:
    """Return the library of core.c and wires.c.

    Threads may use it if `has_barriers` says so of its compiler. Raise `ToolchainError` if no
    compiler can make it.
    """
    source, declared = c_source("wires", "wires.h", "core.c")
    return load(source, declared + source.includes["wires.h"], compilers)


def has_barriers(compiler: Compiler) -> bool:
    """Return whether threads see each other's writes in order in what a compiler makes.

    tcc has no atomics, so wires.c makes do with volatile words there. That is enough on x86-64,
    whose processors keep the order of writes and of reads; on ARM it is not.
    """
    return compiler.name != TCC or platform.machine() in ("x86_64", "AMD64")


class Wires:
    """The ports, queues and counters of one switch in C. Threads in C may use them at the same
    time.

    Args:
        native: the library of `load_core`, from a compiler that `has_barriers`.
        queues: the number of a port's queues that a program may use.
        groups: the number of threads.
        epoch_ns: the time of the monotonic clock at which the switch's own begins.
    """

    _on_error: Callable[..., None] | None = None
    """Called with what a program in Python raises; by default it is printed."""

    def __init__(
        self,
        native: Loaded,
        queues: int = QUEUES,
        groups: int = 1,
        epoch_ns: int = 0,
    ) -> None:
        self.native = native
        self.ffi, self.library, _ = native
        self.groups = groups
        # One to wake each thread, and one by which threads say that controllers have something.
        self._fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(groups + 1)]
        *wake_fds, self.news_fd = self._fds
        self.outlets: dict[int, Any] = {}
        """The structure `core_outlet` of each port."""
        self.schedulers: dict[int, PortScheduler] = {}
        # Packets without a port pass egress, too, which may count or clone them.
        self._nowhere = self.scheduler(None)
        wires = self.library.wires_new(
            queues, groups, epoch_ns, self._nowhere.port, wake_fds, self.news_fd
        )
        if wires == self.ffi.NULL:
            raise MemoryError
        self.wires = self.ffi.gc(wires, self.library.wires_free)
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
    ) -> PortScheduler:
        """Return queues for a port."""
        return PortScheduler(self.native, rate_bps, queues, self.guard)

    def add(
        self,
        port: int,
        scheduler: PortScheduler,
        is_interface: bool = True,
        group: int = 0,
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
        functions = self.ffi.NULL
        if switch is not None:
            switch.report()
            if isinstance(switch, PythonProgram):
                functions = switch.functions(self.ffi, "core_program *", self._on_error)
            else:
                functions = functions_of(
                    switch, self.ffi.new("core_program *"), self.ffi, _FUNCTIONS, self.guard
                )
            self._programs.append((switch, functions))
        self._install(functions)
        self._switch = switch
        with self.guard():
            # The other programs are kept while packets of them wait.
            self._programs = [
                (program, structure)
                for program, structure in self._programs
                if program is switch or structure.waiting
            ]
        self._install(functions)

    def _install(self, program: Any) -> None:
        """Let packets that come run through a program.

        Threads enter Python's lock while one in Python is kept.
        """
        locks = [
            kept.lock
            for kept, _ in self._programs
            if isinstance(kept, PythonProgram) and kept.lock is not None
        ]
        if locks and self._guards is None:
            # They stay: a thread may be about to call one when the last program in Python goes.
            callback = self.ffi.callback
            enter = callback("void(void)", _entering(locks[0]))
            self._guards = enter, callback("void(void)", locks[0].release)
        if locks and self._guards is not None:
            guards = self._guards
        else:
            guards = (self.ffi.NULL, self.ffi.NULL)
        self.library.wires_run_program(self.wires, program, *guards)

    @property
    def account(self) -> Account:
        """Return the whereabouts of all packets."""
        with self.guard():
            ports = {}
            packets_in = 0
            packets_out = 0
            queued = self._nowhere.queued_packets
            for number, outlet in self.outlets.items():
                port = _account(outlet)
                ports[number] = port
                packets_in += port.packets_in
                packets_out += port.packets_out
                queued += port.queued
            dropped = {}
            for reason, count in zip(Drop, self.core.dropped, strict=True):
                if count:
                    dropped[reason.value] = count
            return Account(
                packets_in=packets_in,
                replicated=self.core.replicated,
                packets_out=packets_out,
                dropped=dict(sorted(dropped.items())),
                queued=queued,
                ports=ports,
            )


def _entering(lock: HandoverLock) -> Callable[[], None]:
    def enter() -> None:
        lock.acquire()

    return enter


def _account(outlet: Any) -> PortAccount:
    unsent = 0
    for batch in (outlet.filling, outlet.sending):
        unsent += batch.count - batch.first
    return PortAccount(
        packets_in=outlet.packets_in,
        bytes_in=outlet.bytes_in,
        packets_out=outlet.packets_out,
        bytes_out=outlet.bytes_out,
        dropped=outlet.dropped,
        queued=outlet.queues.packets + unsent,
    )
