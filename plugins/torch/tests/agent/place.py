"""Two hosts in namespaces, a switch between them, the service, and agents: everything real.

Call it in a sandbox.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from finsy import P4Schema
from finsy.proto import p4r

from echelon.controller.client import Client
from echelon.model.p4program import program
from echelon_lab.hosts.backends.base import NamespaceFabric
from tests.echelon.service.lab import BIN, LINE, PATIENCE_S, Lab, ring, settle, until

HERE = Path(__file__).parent
JOB = "a"
GAP = "50 ms"


class AgentProcess:
    """An `echelon agent run` on a host, whose command takes orders from this process."""

    def __init__(self, command: Sequence[str | Path], lines: list[str]) -> None:
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = lines
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            self.lines.append(line.rstrip())

    def order(self, line: str) -> list[int]:
        """Have the program obey a line; return the ports of its connections then."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        print(line, file=self._popen.stdin, flush=True)
        answer = self._popen.stdout.readline()
        assert answer, "\n".join(self.lines)
        return [int(word) for word in answer.split()]

    @property
    def pid(self) -> int:
        """Return the process of the agent. `nsenter` has become it."""
        return self._popen.pid

    def cpu_s(self) -> float:
        """Return the processor time that the agent has taken, without its command's."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def children(self) -> list[int]:
        return [
            int(word)
            for word in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        ]

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait(PATIENCE_S)

    def close(self) -> None:
        """End its program by the end of its orders, and wait for both."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        self._popen.wait(PATIENCE_S)

    def terminate(self) -> int:
        self._popen.terminate()
        return self._popen.wait(PATIENCE_S)


class Place:
    """The hosts h1 and h2, their switch s1, and the service."""

    def __init__(self, lab: Lab, hosts: NamespaceFabric, client: Client, url: str) -> None:
        self.lab = lab
        self.client = client
        self.directory = lab.directory
        self.lines: dict[str, list[str]] = {}
        self._hosts = hosts
        self.url = url
        self._schema = P4Schema(program().p4info)
        self._agents: list[AgentProcess] = []

    def in_host(self, host: str) -> Sequence[str]:
        return self._hosts.in_host(host)

    def agent(self, host: str, *command: str | Path, options: Sequence[str] = ()) -> AgentProcess:
        words = [
            *self._hosts.in_host(host),
            BIN / "echelon",
            "agent",
            "run",
            "--url",
            self.url,
            "--job",
            JOB,
        ]
        lines = self.lines.setdefault(host, [])
        agent = AgentProcess(
            [*words, "--worker", host, *options, "--", sys.executable, *command], lines
        )
        self._agents.append(agent)
        return agent

    def watching(self, host: str, cgroup: Path) -> AgentProcess:
        """Start an agent that watches a control group."""
        words = [
            *self._hosts.in_host(host),
            BIN / "echelon",
            "agent",
            "watch",
            "--url",
            self.url,
            "--job",
            JOB,
        ]
        agent = AgentProcess(
            [*words, "--worker", host, "--cgroup", cgroup], self.lines.setdefault(host, [])
        )
        self._agents.append(agent)
        return agent

    def program(self, host: str, cgroup: Path, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a Python program on a host, without an agent, in a control group."""

        def enter() -> None:
            (cgroup / "cgroup.procs").write_text("0")

        return subprocess.Popen(
            [*self._hosts.in_host(host), sys.executable, *command], preexec_fn=enter
        )

    def accepting(self, host: str, *options: str) -> tuple[AgentProcess, int]:
        """Start a program that accepts connections, and return its port."""
        file = self.directory / f"port-{host}"
        file.unlink(missing_ok=True)
        address = self.lab.fabric.hosts[host].ipv4
        agent = self.agent(host, HERE / "program.py", "accept", address, file, options=options)
        until(file.exists, "the program does not listen")
        return agent, int(file.read_text())

    def connecting(self, host: str, to: str, port: int, *options: str) -> AgentProcess:
        address = self.lab.fabric.hosts[to].ipv4
        return self.agent(host, HERE / "program.py", "connect", address, str(port), options=options)

    def stop(self) -> None:
        for agent in self._agents:
            with suppress(ProcessLookupError):
                agent.kill()

    # -- the switch --------------------------------------------------------------------------------

    def connections(self) -> set[tuple[int, int]]:
        """Return the ports, source and destination, of the TCP connections that the switch
        recognises.
        """
        found = set()
        for entry in self.lab.switches["s1"].entries():
            table = self._schema.tables[entry.table_id]
            if table.alias == "tcp_connection":
                values = {
                    table.match_fields[one.field_id].alias: int.from_bytes(one.exact.value, "big")
                    for one in entry.match
                }
                found.add((values["src_port"], values["dst_port"]))
        return found

    def wait(self, wanted: set[tuple[int, int]]) -> None:
        """Wait, asking without pause, until the switch recognises exactly these connections."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self.connections() != wanted:
            assert time.monotonic() < give_up_at, len(self.connections())

    def counted(self) -> dict[str, tuple[int, int]]:
        """Return the packets and bytes that the switch has counted of each flow of the job."""
        numbers = {one.number: one.name for one in self.client.job(JOB).flows}
        return {
            numbers.get(number, str(number)): counts for number, counts in self._counts().items()
        }

    def counted_by_shim(self, job: str) -> dict[str, tuple[int, int]]:
        """Return the same of a job whose packets carry the shim."""
        known = self.client.job(job)
        table, counts = self._schema.tables["shim_flow"], self._counts()
        found: dict[str, tuple[int, int]] = {}
        for entry in self.lab.switches["s1"].entries():
            if entry.table_id == table.id:
                values = {
                    table.match_fields[one.field_id].alias: int.from_bytes(one.exact.value, "big")
                    for one in entry.match
                }
                if values["job"] == known.number:
                    (parameter,) = entry.action.action.params
                    found[known.flows[values["flow"]].name] = counts[
                        int.from_bytes(parameter.value, "big")
                    ]
        return found

    def _counts(self) -> dict[int, tuple[int, int]]:
        """Return the packets and bytes of each flow, by its number in the switch."""
        table = self._schema.tables["flow"]
        wanted = p4r.TableEntry(table_id=table.id, counter_data=p4r.CounterData())
        request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=wanted)])
        found: dict[int, tuple[int, int]] = {}
        with self.lab.switches["s1"].stub() as stub:
            for reply in stub.Read(request, timeout=PATIENCE_S):
                for entity in reply.entities:
                    entry = entity.table_entry
                    if entry.match:
                        counter = entry.counter_data
                        number = int.from_bytes(entry.match[0].exact.value, "big")
                        found[number] = counter.packet_count, counter.byte_count
        return found


@contextmanager
def place(**settings: Any) -> Iterator[Place]:
    """Set everything up, with one job whose connections agents report."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="agent-")))
        socket = directory / "api.sock"
        lab = Lab(directory, LINE, api={"listen": f"unix:{socket}"}, **settings)
        hosts = stack.enter_context(NamespaceFabric(lab.fabric))
        for name, switch in lab.switches.items():
            switch.interfaces = hosts.interfaces(name)
        stack.callback(lab.stop)
        lab.start()
        daemon = lab.daemon()
        client = stack.enter_context(lab.client(daemon))
        client.register_job(
            {**ring(JOB, ["h1", "h2"]), "recognition": {"by": "agent", "idle_gap": GAP}}
        )
        settle(client)
        made = Place(lab, hosts, client, f"unix:{socket}")
        stack.callback(made.stop)
        yield made
