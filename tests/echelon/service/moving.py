"""A laboratory in which links move while jobs send: six leaves in a ring, and between them links of
an optical switch.

The optical switch is `softswitch optical`. Frames carry the shim of the jobs' flows, and a number
each.
"""

from __future__ import annotations

import json
import select
import struct
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from echelon.controller.client import Client
from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import BIN, Host, Lab, ring
from tests.reference.frames import ipv4, shim

LEAVES = tuple(f"l{number}" for number in range(1, 7))
JOBS = {"across": ["h1", "h4"], "also": ["h3", "h6"], "stays": ["h2", "h5"], "near": ["h1", "h2"]}
"""`across` and `also` have their shortest paths over links that move, `stays` over one that does
not.
"""
_NUMBER_AT = 14 + 20 + 8 + 20
_JOB_AT = 14 + 20 + 8 + 2
INTERVAL_S = 0.01
"""The time between two packets of a flow."""
SILENCE_S = 10.0
"""The time without a packet after which those that have not come are lost."""


def fabric(*chords: tuple[int, int], rate: str = "1 Gbit/s") -> dict[str, Any]:
    """Return the fabric with these links of the optical switch, by the numbers of leaves."""
    ends = [(number, number % 6 + 1) for number in range(1, 7)]
    return {
        "fabric": "panel",
        "hosts": [f"h{number}" for number in range(1, 7)],
        "switches": list(LEAVES),
        "links": [
            *({"between": [f"h{one}", f"l{one}"], "rate": "1 Gbit/s"} for one in range(1, 7)),
            *({"between": [f"l{one}", f"l{other}"], "rate": "1 Gbit/s"} for one, other in ends),
            *({"between": [f"l{one}", f"l{other}"], "rate": rate} for one, other in chords),
        ],
    }


OPPOSITE = ((1, 4), (2, 5), (3, 6))
TURNED = ((1, 3), (2, 5), (4, 6))


def optical(
    build: Build, before: Mapping[str, Any], *, time_ms: float = 20, **settings: Any
) -> Lab:
    """Build a laboratory with an optical switch."""
    command = [str(BIN / "softswitch"), "optical", ".", "--time", f"{time_ms}"]
    settings = {"moves": {"command": command}, **settings}
    return build(before, **settings)


def lost_in_the_dark(lab: Lab) -> int:
    """Return how many packets came to the optical switch while links moved."""
    return sum(
        json.loads(line)["lost"]
        for line in (lab.directory / "optical.jsonl").read_text().splitlines()
    )


def joined(lab: Lab) -> set[frozenset[tuple[str, int]]]:
    """Return which ports of switches lead to each other."""
    found = set()
    for peer in lab.directory.glob("*.peer"):
        if peer.is_symlink():
            ends = (peer.name.removesuffix(".peer"), peer.readlink().name)
            found.add(
                frozenset((name, int(port)) for name, port in (end.rsplit("-", 1) for end in ends))
            )
    return found


def register(client: Client) -> None:
    for name, workers in JOBS.items():
        client.register_job(ring(name, workers))


class Traffic:
    """Numbered packets of every flow of the jobs, and how many of each job were sent and came."""

    def __init__(
        self,
        client: Client,
        hosts: Mapping[str, Host],
        ipv4_of: Mapping[str, int],
        names: Collection[str],
    ) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self._hosts = hosts
        jobs = [client.job(name) for name in names]
        self._name = {job.number: job.name for job in jobs}
        self._flows = [
            (job.name, flow.src, ipv4_of[flow.src], ipv4_of[flow.dst], job.number, flow.number)
            for job in jobs
            for flow in job.flows
        ]
        self._seen: set[tuple[int, int, int]] = set()
        self._ended, self._all_sent = threading.Event(), threading.Event()
        self._sender, self._receiver = (
            threading.Thread(target=self._send),
            threading.Thread(target=self._receive),
        )

    @property
    def lost(self) -> dict[str, int]:
        return {
            name: self.sent[name] - self.received[name]
            for name in JOBS
            if self.sent[name] > self.received[name]
        }

    def start(self) -> None:
        self._receiver.start()
        self._sender.start()

    def stop(self) -> None:
        """Stop, and wait for what is on its way."""
        self._ended.set()
        if self._sender.ident is not None:
            self._sender.join()
        # Only now is everything sent that the receiver has to wait for.
        self._all_sent.set()
        if self._receiver.ident is not None:
            self._receiver.join()

    def burst(self, job: str, host: str, packets: int) -> None:
        """Send packets of a job from a host at once, and receive them in the background."""
        flow = next(flow for flow in self._flows if flow[:2] == (job, host))
        for number in range(packets):
            self._send_one(flow, number)
        self._receiver.start()

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(INTERVAL_S):
            number += 1
            for flow in self._flows:
                self._send_one(flow, number)

    def _send_one(self, flow: tuple[str, str, int, int, int, int], number: int) -> None:
        name, host, src, dst, job, of_job = flow
        payload = struct.pack("!I", number) + bytes(960)
        self._hosts[host].send(ipv4(src, dst, 17, shim(job, of_job, 1, 1_000_000, payload=payload)))
        self.sent[name] += 1

    def _receive(self) -> None:
        last_s = time.monotonic()
        while not self._all_sent.is_set() or (self.lost and time.monotonic() - last_s < SILENCE_S):
            for host in select.select([*self._hosts.values()], [], [], 0.1)[0]:
                frame = host.receive()
                job, flow = struct.unpack_from("!HH", frame, _JOB_AT)
                (number,) = struct.unpack_from("!I", frame, _NUMBER_AT)
                last_s = time.monotonic()
                assert (job, flow, number) not in self._seen, "a packet came twice"
                self._seen.add((job, flow, number))
                self.received[self._name[job]] += 1


@contextmanager
def traffic(lab: Lab, client: Client, jobs: Collection[str] = tuple(JOBS)) -> Iterator[Traffic]:
    """Yield traffic between all hosts, which has not begun."""
    addresses = {
        name: int.from_bytes(bytes(map(int, host.ipv4.split("."))), "big")
        for name, host in lab.fabric.hosts.items()
    }
    with ExitStack() as stack:
        hosts = {name: stack.enter_context(lab.host(name)) for name in lab.fabric.hosts}
        yield Traffic(client, hosts, addresses, jobs)
