"""A switch as a process of its own, and a client that reads it without anything of echelon."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from finsy.proto import p4r, p4r_grpc

from echelon.switches.processes import free_port
from tests.echelon.service.lab import PATIENCE_S, Process


class SwitchProcess:
    """A switch without a program, for a controller to fill.

    Its tables live as long as the process.
    """

    def __init__(self, port: int, *options: str) -> None:
        self.address = f"127.0.0.1:{port}"
        command = ("softswitch", "--no-p4", "--grpc-server-addr", self.address, *options)
        self._process = Process("switch", *command, cwd=Path.cwd())
        self.kill = self._process.kill

    def wait_listening(self) -> None:
        """Wait until the switch reports that it listens."""
        assert self.address in self._process.wait_line(lambda line: "P4Runtime" in line)

    def freeze(self) -> None:
        """Stop the process: its kernel still takes connections, but it does not answer."""
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.signal(signal.SIGCONT)

    def held(self) -> list[bytes]:
        return read_entries(self.address, 1)


def read_entries(address: str, device_id: int) -> list[bytes]:
    """Return every entry that a controller wrote, serialized, sorted; without counters."""
    with grpc.insecure_channel(address) as channel:
        request = p4r.ReadRequest(
            device_id=device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())]
        )
        replies = list(p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=PATIENCE_S))
    return serialized(entity.table_entry for reply in replies for entity in reply.entities)


def serialized(entries: Iterator[p4r.TableEntry]) -> list[bytes]:
    out = []
    for entry in entries:
        if not entry.is_default_action and not entry.is_const:
            entry.ClearField("counter_data")
            out.append(entry.SerializeToString(deterministic=True))
    return sorted(out)


@contextmanager
def switch_process(port: int | None = None, *options: str) -> Iterator[SwitchProcess]:
    """Yield a switch process that listens."""
    process = SwitchProcess(free_port() if port is None else port, *options)
    try:
        process.wait_listening()
        yield process
    finally:
        process.kill()
