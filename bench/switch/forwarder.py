"""The bare forwarder: interfaces and queues in C, and a program that does nothing.

It bounds what a switch can reach.

    python -m bench.switch.forwarder 127.0.0.1:PORT IN OUT [GROUPS]

What comes in at one interface goes out of the other one. The address is listened at, and does not
answer.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, load
from softswitch.cli.running import until_ended
from softswitch.native.dataplane import NativeDataPlane
from softswitch.native.scheduler import c_source
from softswitch.native.wires import Wires, load_core
from softswitch.realtime import HandoverLock, PacketSocketPort

_UNIT = Path(__file__).parents[1] / "programs" / "forward.c"


class Forward:
    """The program, and its state."""

    def __init__(self) -> None:
        includes = c_source("tm")[0].includes
        source = CSource("forward", _UNIT.read_text("utf-8"), includes)
        self.native: Loaded = load(source, includes["abi.h"])
        ffi, library, _ = self.native
        self.state: Any = ffi.gc(library.ss_new(511, 0), library.ss_free)
        self.events = None
        self.on_library: Callable[[], object] = lambda: None

    def report(self) -> None:
        """Report nothing: it has no digests."""


class _Nobody:
    def tick(self, now_ns: int) -> None: ...

    def next_tick_ns(self) -> int | None: ...

    def packet_in(self, data: bytes) -> None: ...


def main(arguments: Sequence[str]) -> None:
    address, first, second, *groups = arguments
    start_ns = time.monotonic_ns()
    core = Wires(
        load_core(),
        groups=int(groups[0]) if groups else 1,
        epoch_ns=start_ns,
    )
    core.switch = Forward()
    plane = NativeDataPlane(core, lambda: time.monotonic_ns() - start_ns, HandoverLock(), _Nobody())
    for number, name in enumerate((first, second)):
        plane.add(number, PacketSocketPort(name), core.scheduler(None))
    host, _, port = address.partition(":")
    with until_ended() as ending, socket.create_server((host, int(port))):
        plane.start(ending.ask)
        ending.wait()
        plane.stop()
    print(plane.account, plane.lost)


if __name__ == "__main__":
    main(sys.argv[1:])
