"""Stubs of the switches of a fabric: ``python -m bench.stubs.serving FABRIC``.

The first line of the output is JSON: the address by switch. Each line that is read, whatever it is,
is answered with the number of updates that all switches have acknowledged. The end of standard
input ends them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import grpc
from finsy.proto import gnmi_grpc, p4r_grpc

from bench.stubs.switch import StubSwitch
from echelon.model.fabric.load import load_fabric

# A Write of many entries is longer than what gRPC takes otherwise, 4 MB.
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]


class Stubs:
    """The process that serves the stubs."""

    def __init__(self, process: Popen[str], addresses: dict[str, str]) -> None:
        self._process = process
        self.addresses = addresses

    @property
    def pid(self) -> int:
        return self._process.pid

    def updates(self) -> int:
        """Return the number of updates that all switches have acknowledged."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return int(answer)


@contextmanager
def running(fabric: Path) -> Iterator[Stubs]:
    """Serve the switches of a fabric in a process of their own."""
    command = [sys.executable, "-m", "bench.stubs.serving", str(fabric)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        addresses = json.loads(first_line)
        yield Stubs(process, addresses)
        process.kill()


async def _serve(path: Path) -> None:
    fabric = load_fabric(path)
    ports: Counter[str] = Counter()
    for node, _ in fabric.port_to:
        ports[node] += 1
    stubs = []
    servers = []
    addresses = {}
    for name, switch in fabric.switches.items():
        stub = StubSwitch(switch.device_id, ports[name])
        server = grpc.aio.server(options=_OPTIONS)
        p4r_grpc.add_P4RuntimeServicer_to_server(stub, server)
        gnmi_grpc.add_gNMIServicer_to_server(stub.queues, server)
        port = server.add_insecure_port("127.0.0.1:0")
        addresses[name] = f"127.0.0.1:{port}"
        await server.start()
        stubs.append(stub)
        servers.append(server)
    print(json.dumps(addresses), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        updates = [stub.updates for stub in stubs]
        print(sum(updates), flush=True)
    for server in servers:
        await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
