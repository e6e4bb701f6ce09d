"""Jobs that run on a lab's switches: hosts that send a job's flows, iteration after iteration,
until they are stopped.

A worker's computing is a pause. An iteration ends when the last packet of each of its flows has
arrived.
"""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from echelon.controller.client import Client
from echelon_lab.endhosts.shim import LAST, SHIM_AT, DataSegment, FlowAddress, ShimFrames
from tests.echelon.service.lab import Host, Lab

FRAME_BYTES = 1400
SWITCH_S = 0.0005
LOST_S = 2.0
"""The time after which the rest of an iteration counts as lost, and the next one begins."""


@dataclass(frozen=True)
class Trained:
    """A job, and the pauses of its iteration."""

    name: str
    compute_s: float
    """Pause before its first flow."""
    gap_s: float = 0.0
    """Pause between flows."""


@contextmanager
def training(lab: Lab, client: Client, jobs: Sequence[Trained]) -> Iterator[None]:
    """Run the jobs, which are installed, until the end of the block."""
    stop = threading.Event()
    arrived = _Arrivals()
    with ExitStack() as stack:
        hosts = {name: stack.enter_context(_Listening(lab, name)) for name in lab.fabric.hosts}
        threads = [threading.Thread(target=_receive, args=(list(hosts.values()), arrived, stop))]
        threads += [
            threading.Thread(
                target=_iterate, args=(lab, client.job(job.name), job, hosts, arrived, stop)
            )
            for job in jobs
        ]
        # A Unix socket holds ten frames, so the receiving thread must not wait for long.
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_S)
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class _Listening(Host):
    """A host whose socket can be waited for."""

    def __init__(self, lab: Lab, name: str) -> None:
        (leaf,) = (node for node, other in lab.fabric.port_to if other == name)
        super().__init__(lab.switches[leaf].path(lab.fabric.port_to[leaf, name]))
        self._inbox = self._socket.dup()
        self._inbox.settimeout(0)

    def close(self) -> None:
        self._inbox.close()
        super().close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def frames(self) -> Iterator[bytes]:
        while True:
            try:
                yield self._inbox.recv(1 << 16)
            except BlockingIOError:
                return


class _Arrivals:
    """The flows whose last packet has arrived, by the shim's key: epoch, job and flow."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._keys: set[bytes] = set()

    def add(self, key: bytes) -> None:
        with self._news:
            self._keys.add(key)
            self._news.notify_all()

    def take(self, keys: set[bytes]) -> None:
        """Wait until all have arrived, or are lost."""
        with self._news:
            self._news.wait_for(lambda: keys <= self._keys, LOST_S)
            self._keys -= keys


def _receive(hosts: Sequence[_Listening], arrived: _Arrivals, stop: threading.Event) -> None:
    while not stop.is_set():
        for host in select.select(hosts, [], [], 0.1)[0]:
            for frame in host.frames():
                if len(frame) > SHIM_AT + 6 and frame[SHIM_AT] & LAST:
                    arrived.add(frame[SHIM_AT + 1 : SHIM_AT + 6])


def _iterate(lab: Lab, job: object, trained: Trained, hosts: dict[str, _Listening], arrived: _Arrivals,
             stop: threading.Event) -> None:  # fmt: skip
    epoch = 0
    while not stop.wait(trained.compute_s):
        epoch = (epoch + 1) % 256
        keys = set()
        for flow in job.flows:
            one, other = lab.fabric.hosts[flow.src], lab.fabric.hosts[flow.dst]
            address = FlowAddress(
                one.mac, other.mac, one.ipv4, other.ipv4, 0xC000, job.number, flow.number
            )
            frames = ShimFrames(address, epoch, FRAME_BYTES)
            count = max(1, flow.size_bytes // FRAME_BYTES)
            for left in range(count, 0, -1):
                frame = frames.data(DataSegment(left * FRAME_BYTES, FRAME_BYTES, last=left == 1))
                hosts[flow.src].send(frame)
            keys.add(frame[SHIM_AT + 1 : SHIM_AT + 6])
            if trained.gap_s and stop.wait(trained.gap_s):
                return
        arrived.take(keys)
