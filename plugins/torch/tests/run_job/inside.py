"""Run as a module: `echelon run-job` on hosts of a sandbox; prints what was seen as JSON.

    python -m plugins.torch.tests.run_job.inside JOB PROGRAM [ARGUMENT...]

JOB is a job file. PROGRAM runs on each of its workers with the environment of a rank, and that of
torchrun on a node. Everything is real: the
service, a switch, the hosts' network namespaces, their sockets, and PyTorch.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from echelon_lab.hosts import sandbox
from echelon_lab.hosts.backends.base import NamespaceFabric
from tests.echelon.service.lab import BIN, Lab, settle

_ETH_P_ALL = 3
_PORT = 29500
Seen = Counter[tuple[str, int, str, int, int, bool]]
"""Packets by sender and its port, receiver and its port, type of service, and whether they carry
data."""


def star(hosts: Sequence[str]) -> dict[str, Any]:
    """Return a fabric of these hosts and one switch."""
    links = [{"between": [host, "s1"], "rate": "1 Gbit/s"} for host in hosts]
    return {"fabric": "star", "hosts": list(hosts), "switches": ["s1"], "links": links}


class Capture:
    """What hosts send, as it comes out at the switch's end of their cables."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        self.seen: Seen = Counter()
        self._selector = selectors.DefaultSelector()
        for interface in interfaces:
            packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 25)
            packets.bind((interface, 0))
            self._selector.register(packets, selectors.EVENT_READ)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_over.is_set():
            for key, _ in self._selector.select(0.2):
                assert isinstance(key.fileobj, socket.socket)
                frame, (_, _, direction, *_) = key.fileobj.recvfrom(1 << 16)
                if direction != socket.PACKET_OUTGOING:
                    self._note(frame[14:])

    def _note(self, packet: bytes) -> None:
        if packet[:1] != b"\x45" or packet[9] != socket.IPPROTO_TCP:
            return
        sender, receiver = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
        ports = [int.from_bytes(packet[at : at + 2], "big") for at in (20, 22)]
        length = int.from_bytes(packet[2:4], "big")
        has_data = length > 20 + 4 * (packet[32] >> 4)
        self.seen[sender, ports[0], receiver, ports[1], packet[1], has_data] += 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


@contextmanager
def place(hosts: Sequence[str]) -> Iterator[tuple[Lab, NamespaceFabric, str]]:
    """Yield a laboratory with a service, the hosts, and the service's address."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="run-job-")))
        lab = Lab(directory, star(hosts), api={"listen": f"unix:{directory}/api"})
        built = stack.enter_context(NamespaceFabric(lab.fabric))
        for name, switch in lab.switches.items():
            switch.interfaces = built.interfaces(name)
        stack.callback(lab.stop)
        lab.start()
        yield lab, built, f"unix:{directory}/api"


def main(file: str, *command: str) -> int:
    spec = yaml.safe_load(Path(file).read_text())
    hosts = spec["workers"]
    with place(hosts) as (lab, built, url), lab.client(lab.daemon()) as client:
        client.set_policy("by_paradigm")
        client.register_job(spec)
        settle(client)
        capture = Capture(list(built.interfaces("s1").values()))
        addresses = {host: lab.fabric.hosts[host].ipv4 for host in hosts}
        environment = {
            **os.environ,
            "WORLD_SIZE": str(len(hosts)),
            "MASTER_ADDR": addresses[hosts[0]],
            "MASTER_PORT": str(_PORT),
            "PET_NNODES": str(len(hosts)),
            "PET_MASTER_ADDR": addresses[hosts[0]],
            "PET_MASTER_PORT": str(_PORT),
            "OMP_NUM_THREADS": "1",
        }
        ranks = []
        for rank, host in enumerate(hosts):
            run_job = [BIN / "echelon", "run-job", "--url", url, "--worker", host]
            place_of_rank = {
                "RANK": str(rank),
                "PET_NODE_RANK": str(rank),
                "GLOO_SOCKET_IFNAME": built.host_interface(host),
            }
            ranks.append(
                subprocess.Popen(
                    [*built.in_host(host), *run_job, "--", *command],
                    env={**environment, **place_of_rank},
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        lines = [rank.communicate()[1].splitlines() for rank in ranks]
        capture.stop()
        found = {
            "status": [rank.returncode for rank in ranks],
            "lines": lines,
            "addresses": list(addresses.values()),
            "seen": [[*key, count] for key, count in capture.seen.items()],
        }
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    command_line = [sys.executable, "-m", "plugins.torch.tests.run_job.inside", *sys.argv[1:]]
    sys.exit(main(*sys.argv[1:]) if sandbox.inside() else sandbox.run_inside(command_line))
