"""Check the exercises with queues: python check.py FOLDER [ecn|monitor|priority ...] [--target
bmv2]

Two switches and three hosts stand in network namespaces, which needs root. Packets come from the
kernel's sockets.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from echelon.model.documents import parse_document
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.switches.processes import DIES_WITH_CALLER, enter, free_port, set_receive_buffer, start
from echelon_lab.hosts import sandbox
from echelon_lab.hosts.backends.base import NamespaceFabric

HERE = Path(__file__).resolve().parent
LINKS = {"h1": ("s1", 1), "h2": ("s1", 2), "h3": ("s2", 1)}
TRUNK, BITS_PER_S, BULK_BYTES = 3, 2_000_000, 1000
HEADERS_BYTES = 14 + 20 + 8
BULK, PROBE, RECORD = 5000, 7777, struct.Struct("!BI6s")
"""UDP ports of bulk and of probes, and a record of the link monitor: port, bytes, microseconds."""
STAMP = struct.Struct("!III")
"""The content of packets.

They carry their number, the bulk sent before them, and the number of packets that waited somewhere.
"""
THRESHOLD = 10
ELSEWHERE = {"softswitch": 50, "bmv2": None}
"""The most packets that are under way without being in the queue of s1. Of BMv2 nothing is said: it
has no rate, so the kernel behind it keeps the link's, and most packets wait there or in front of
BMv2, where no program sees them."""
READY_S, QUIET_S, BUFFER_BYTES = 60.0, 1.0, 1 << 24


@dataclass(frozen=True)
class Seen:
    """A packet that came to h3."""

    at_s: float
    length: int
    ecn: int
    port: int
    payload: bytes

    @property
    def stamp(self) -> tuple[int, int, int]:
        return STAMP.unpack_from(self.payload)


class Network:
    """The two switches, with a program, and the hosts. A context manager."""

    def __init__(self, program: Path, target: str, directory: Path) -> None:
        ends = [({host: 0, name: port}, "1 Gbit/s") for host, (name, port) in LINKS.items()]
        ends.append(({"s1": TRUNK, "s2": TRUNK}, "2 Mbit/s"))
        links = [
            {
                "between": [*ports],
                "ports": {node: port for node, port in ports.items() if port},
                "rate": rate,
            }
            for ports, rate in ends
        ]
        spec = {"fabric": "queues", "hosts": [*LINKS], "switches": ["s1", "s2"], "links": links}
        self.target = target
        self.seen: list[Seen] = []
        self.sent = 0
        self._fabric = build_fabric(parse_document(FabricSpec, spec, "the exercise"))
        self._hosts = NamespaceFabric(self._fabric)
        self._program, self._directory, self._stack = program, directory, ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._hosts)
            for name in self._fabric.switches:
                self._start(stack, name)
            frames = lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))  # noqa: E731
            self._capture = stack.enter_context(self._inside("h3", frames))
            self._capture.bind((self._hosts.host_interface("h3"), 0x0800))
            self._capture.setblocking(False)
            set_receive_buffer(self._capture, BUFFER_BYTES)
            self._senders = {host: stack.enter_context(self._inside(host, udp)) for host in LINKS}
            for port in (BULK, PROBE):  # so that the kernel of h3 refuses nothing
                stack.enter_context(self._inside("h3", udp)).bind(("10.0.0.3", port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack, name: str) -> None:
        interfaces = self._hosts.interfaces(name)
        address = f"127.0.0.1:{free_port()}"
        words = [
            word for port, interface in interfaces.items() for word in ("-i", f"{port}@{interface}")
        ]
        if self.target == "bmv2":
            command = [
                "simple_switch_grpc",
                *words,
                "--thrift-port",
                str(free_port()),
                self._program,
            ]
            # As Mininet limits a link: in the kernel, behind the switch.
            tbf = ("tbf", "rate", f"{BITS_PER_S}bit", "burst", "3000", "limit", "1000000")
            subprocess.run(
                ["tc", "qdisc", "replace", "dev", interfaces[TRUNK], "root", *tbf], check=True
            )
        else:
            command = [Path(sys.executable).with_name("softswitch"), self._program, *words]
            command += ["--port-rate", f"{TRUNK}={BITS_PER_S}bit"]
        options = ["--", "--grpc-server-addr", address, "--priority-queues", "8"]
        log = self._directory / f"{name}.log"
        process = start([*DIES_WITH_CALLER, *map(str, command), *options], log)
        stack.callback(process.wait)
        stack.callback(process.kill)
        host, _, port = address.rpartition(":")
        give_up_at = time.monotonic() + READY_S
        while True:
            with socket.socket() as one:
                if one.connect_ex((host, int(port))) == 0:
                    return
            if process.poll() is not None or time.monotonic() > give_up_at:
                sys.exit(f"{name} does not start: {log.read_text(errors='replace')}")
            time.sleep(0.05)

    def _inside(self, host: str, make: Callable[[], socket.socket]) -> socket.socket:
        """Return a socket that was made in the network of a host."""
        path = self._hosts.in_host(host)[1].removeprefix("--net=")

        def visit() -> socket.socket:
            enter(path)
            return make()

        with ThreadPoolExecutor(1) as visitor:
            return visitor.submit(visit).result()

    def send(self, host: str, tos: int, port: int, payload: bytes) -> None:
        sender = self._senders[host]
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        sender.sendto(payload, ("10.0.0.3", port))
        self.sent += 1

    def look(self) -> None:
        """Take note of what has come to h3."""
        while True:
            try:
                frame, (*_, kind, _, _) = self._capture.recvfrom(1 << 16)
            except BlockingIOError:
                return
            if kind != socket.PACKET_OUTGOING and frame[23] == socket.IPPROTO_UDP:
                port = int.from_bytes(frame[36:38])
                self.seen.append(
                    Seen(time.monotonic(), len(frame), frame[15] & 3, port, frame[HEADERS_BYTES:])
                )

    @property
    def waiting(self) -> int:
        """The number of packets that were sent and have not come to h3."""
        self.look()
        return self.sent - len(self.seen)

    def calm(self) -> None:
        """Wait until nothing has come to h3 for a while."""
        count, since_s = -1, time.monotonic()
        while count != len(self.seen) or time.monotonic() - since_s < QUIET_S:
            if count != len(self.seen):
                count, since_s = len(self.seen), time.monotonic()
            time.sleep(0.02)
            self.look()


def udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@dataclass
class Load:
    """Bulk from h2 at a rate, and small packets from h1 in between."""

    network: Network
    bits_per_s: int
    duration_s: float
    bulk: int = 0
    small: list[int] = field(default_factory=list)
    """The number of packets that waited when each small one was sent."""

    def run(self, period_s: float, tosses: Sequence[int]) -> None:
        """Send small packets of each TOS every `period_s`, to port 5001 and up."""
        began_s, gap_s = (
            time.monotonic(),
            (BULK_BYTES + HEADERS_BYTES) * 8 / self.bits_per_s if self.bits_per_s else 9e9,
        )
        bulk, turns = 0, 0
        while (now_s := time.monotonic() - began_s) < self.duration_s:
            if now_s >= bulk * gap_s and self.bits_per_s:
                self.network.send(
                    "h2", 0, BULK, STAMP.pack(self.bulk, 0, 0) + bytes(BULK_BYTES - STAMP.size)
                )
                bulk, self.bulk = bulk + 1, self.bulk + 1
            if now_s >= turns * period_s:
                turns += 1
                for number, tos in enumerate(tosses, 1):
                    stamp = STAMP.pack(len(self.small), self.bulk, self.network.waiting)
                    self.small.append(self.network.waiting)
                    self.network.send("h1", tos, BULK + number, stamp)
            time.sleep(0.0005)


def ecn(network: Network) -> Iterator[str]:
    """Packets of both kinds before, during and after a time in which twice the link's rate comes
    in.
    """
    phases: list[tuple[Sequence[Seen], str]] = []
    for name, bits_per_s, duration_s in (
        ("before", 0, 1.0),
        ("during", 2 * BITS_PER_S, 2.5),
        ("after", 0, 1.0),
    ):
        first = len(network.seen)
        Load(network, bits_per_s, duration_s).run(0.05, (1, 0))
        network.calm()
        phases.append(([one for one in network.seen[first:] if one.port > BULK], name))
    for packets, name in phases:
        capable = [one for one in packets if one.port == BULK + 1]
        marked = [one for one in capable if one.ecn == 3]
        print(f"{name:<6}  {len(capable)} packets that can be marked, {len(marked)} marked")
        if name != "during" and marked:
            yield f"packets were marked {name} the load, when none waited"
        if any(one.ecn for one in packets if one.port == BULK + 2):
            yield "packets were marked whose senders cannot be told"
        if any(one.stamp[2] < THRESHOLD for one in marked):
            yield f"packets were marked when fewer than {THRESHOLD} waited"
        if name == "during" and not marked:
            yield f"no packet was marked while more than {THRESHOLD} waited"
        elsewhere = ELSEWHERE[network.target]
        if elsewhere is not None and any(
            one.ecn != 3 for one in capable if one.stamp[2] >= THRESHOLD + elsewhere
        ):
            yield f"some packets were not marked although more than {THRESHOLD} waited"


def monitor(network: Network) -> Iterator[str]:
    """Half of the link's rate, and probes, whose records are compared with what h3 got."""
    load, began_s, probed_s, gap_s = 0, time.monotonic(), list[float](), 0.25
    while (now_s := time.monotonic() - began_s) < 5.0:
        if now_s >= load * (BULK_BYTES + HEADERS_BYTES) * 16 / BITS_PER_S:
            network.send("h2", 0, BULK, bytes(BULK_BYTES))
            load += 1
        if now_s >= len(probed_s) * gap_s:
            probed_s.append(now_s)
            network.send("h1", 0, PROBE, bytes(1))
        network.look()
        time.sleep(0.0005)
    network.calm()
    probes = [at for at, one in enumerate(network.seen) if one.port == PROBE]
    records = [records_of(network.seen[at].payload) for at in probes]
    if len(probes) != len(probed_s) or any(
        [port for port, *_ in one] != [1, TRUNK] for one in records
    ):
        yield "not every probe came with a record of each switch"
        return
    for place, name in ((1, "s1 to s2"), (0, "s2 to h3")):
        wrong = 0
        for before, at, found in zip(probes, probes[1:], records[1:], strict=False):
            between = sum(one.length for one in network.seen[before + 1 : at])
            wrong += found[place][1] != between + network.seen[at].length - RECORD.size * (
                1 + place
            )
        total, lasted_us = (sum(found[place][what] for found in records[1:]) for what in (1, 2))
        offered = 8 * total / (probed_s[-1] - probed_s[0])
        measured = 8e6 * total / max(1, lasted_us)
        print(
            f"{name}  {measured / BITS_PER_S:.1%} of the link by probes, {offered / BITS_PER_S:.1%}"
            " were sent"
        )
        if wrong:
            yield f"{name}: the bytes of probes are not those that h3 got"
        elif abs(measured - offered) > 0.05 * offered:
            yield f"{name}: the times of probes are not those between them"


def records_of(payload: bytes) -> list[tuple[int, int, int]]:
    """Return the records of a probe, the last switch's first."""
    found = (RECORD.unpack_from(payload, 1 + RECORD.size * at) for at in range(payload[0]))
    return [(port, count, int.from_bytes(lasted)) for port, count, lasted in found]


def priority(network: Network) -> Iterator[str]:
    """Twice the link's rate of class 0, and a few packets of DSCP 46, which is queue 5."""
    Load(network, 2 * BITS_PER_S, 2.5).run(0.05, (46 << 2,))
    network.calm()
    urgent = [at for at, one in enumerate(network.seen) if one.port == BULK + 1]
    overtook, waited = [0], [0]
    for at in urgent:
        _, bulk, waiting = network.seen[at].stamp
        overtook.append(sum(one.port == BULK and one.stamp[0] < bulk for one in network.seen[at:]))
        earlier = sum(one.port == BULK for one in network.seen[:at])
        waited.append(earlier - (bulk - waiting))
    print(
        f"{len(urgent)} of 50 packets of class 46 came, overtook up to {max(overtook)}, waited for"
        f" up to {max(waited)}"
    )
    if len(urgent) < 50:
        yield "packets of class 46 were lost"
    elsewhere = ELSEWHERE[network.target]
    if elsewhere is not None and max(waited) > elsewhere:
        yield f"packets of class 46 waited for more than {elsewhere} others"


CHECKS = {"ecn": ecn, "monitor": monitor, "priority": priority}


def compiled(source: Path, scratch: Path) -> Path:
    """Return the program as p4c writes it; without p4c, the one that is beside the source."""
    if shutil.which("p4c-bm2-ss") is None:
        made = source.with_suffix(".json")
        if not made.exists():
            sys.exit("p4c-bm2-ss is not installed: it compiles your program")
        return made
    out = scratch / f"{source.stem}.json"
    options = ("--std", "p4-16", "--arch", "v1model", "--Wdisable=unused", "-I", HERE)
    done = subprocess.run(
        ["p4c-bm2-ss", *options, "-o", out, source.name],
        cwd=source.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=[*CHECKS])
    parser.add_argument("--target", choices=sorted(ELSEWHERE), default="softswitch")
    asked = parser.parse_args()
    if not sandbox.inside():
        if (why := sandbox.missing()) is not None:
            sys.exit(why)
        return sandbox.run_inside([sys.executable, *sys.argv])
    found: list[str] = []
    for name in asked.names:
        with TemporaryDirectory(dir=sandbox.scratch()) as scratch:
            program = compiled(asked.folder.resolve() / f"{name}.p4", Path(scratch))
            with Network(program, asked.target, Path(scratch)) as network:
                problems = dict.fromkeys(CHECKS[name](network))
        found += [f"{name}: {problem}" for problem in problems]
    for problem in found:
        print(problem)
    print("there is something left to do" if found else "done")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
