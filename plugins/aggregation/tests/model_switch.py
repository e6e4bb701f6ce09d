"""One switch of the model in a thread, with a Unix socket for each port, as softswitch has them."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from random import Random
from threading import Thread

from echelon_aggregation.membership import Member, Membership
from echelon_aggregation.wire import PORT, decode
from echelon_lab.endhosts.shim import FlowAddress, headers
from plugins.aggregation.tests.reference_switch import Datagram, Entry, Switch, Take
from plugins.aggregation.tests.reference_switch import Member as Behind

SHIM_AT, PACKET_AT = 42, 62


def membership(directory: Path, workers: int, **settings: object) -> Membership:
    """Return a group whose worker i is at port i + 1 of a switch with sockets in a directory."""
    members = tuple(
        Member(
            wire=f"unix:{directory}/port{rank + 1}",
            ip=IPv4Address(f"10.0.0.{rank + 1}"),
            mac=f"02:00:00:00:00:{rank + 1:02x}",
            port=5000 + rank,
        )
        for rank in range(workers)
    )
    return Membership.model_validate({"workers": members, "tree": 3, "session": 9, **settings})


def tables(of: Membership, switch: Switch) -> None:
    """Give a switch what it needs for the only tree."""
    key = of.tree, of.session
    addresses = [(str(member.ip), member.port) for member in of.workers]
    for rank, (ip, _) in enumerate(addresses):
        kind = Behind.FALLBACK if rank == of.fallback else Behind.CHILD
        switch.members[of.tree, rank + 1] = kind, 1 << rank
        switch.routes[ip] = rank + 1
    children = tuple((rank + 1, address) for rank, address in enumerate(addresses))
    switch.trees[key] = Entry(0, 2 * of.window - 1, of.group.everyone, children, take=Take.OWN)
    switch.holders[key] = addresses[-1], (addresses[of.fallback][0], PORT)


class ModelSwitch:
    """The switch of one group.

    `loses` is the share of frames that it loses, at each port and each way.
    """

    def __init__(
        self,
        of: Membership,
        loses: float = 0.0,
        seed: int = 1,
        drop: Callable[[int], bool] | None = None,
    ):
        self._membership, self._loses, self._random, self._drop = of, loses, Random(seed), drop
        self.switch = Switch()
        self.counted = self.switch.counted
        self.lost = 0
        tables(of, self.switch)
        self._macs = {str(member.ip): member.mac for member in of.workers}
        self._ports: dict[int, socket.socket] = {}
        for rank, member in enumerate(of.workers):
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            opened.setblocking(False)
            path = Path(member.wire.removeprefix("unix:"))
            path.unlink(missing_ok=True)
            opened.bind(str(path))
            self._ports[rank + 1] = opened
        self._stop, self._stopped = socket.socketpair()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.send(b"\0")
        self._thread.join()
        for opened in (self._stop, self._stopped, *self._ports.values()):
            opened.close()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._stopped, *self._ports.values()], [], [])
            if self._stopped in ready:
                return
            for port, opened in self._ports.items():
                if opened in ready:
                    self._serve(port, opened.recv(1 << 16))

    def _serve(self, port: int, frame: bytes) -> None:
        if self._is_lost(port):
            return
        src, dst, src_port, dst_port = struct.unpack_from("!4s4sHH", frame, 26)
        datagram = Datagram(
            decode(frame[PACKET_AT:]),
            (socket.inet_ntoa(src), src_port),
            (socket.inet_ntoa(dst), dst_port),
            congested=frame[15] & 3 == 3,
        )
        for out, sent in self.switch.receive(port, datagram):
            if self._is_lost(out):
                continue
            data = sent.packet.encode()
            address = FlowAddress(
                self._macs[sent.src[0]],
                self._macs[sent.dst[0]],
                sent.src[0],
                sent.dst[0],
                sent.src[1],
            )
            head = headers(address, PACKET_AT + len(data), sent.dst[1])
            try:
                path = self._membership.workers[out - 1].wire.removeprefix("unix:")
                self._ports[out].sendto(head + frame[SHIM_AT:PACKET_AT] + data, path + ".peer")
            except OSError:
                self.lost += 1

    def _is_lost(self, port: int) -> bool:
        lost = self._random.random() < self._loses or (self._drop is not None and self._drop(port))
        self.lost += lost
        return lost


def sums(arrays: Sequence[Sequence[int]]) -> list[int]:
    """Return the sums of whole numbers, place by place, modulo 2^32 around 0."""
    return [(sum(values) + 2**31) % 2**32 - 2**31 for values in zip(*arrays, strict=True)]
