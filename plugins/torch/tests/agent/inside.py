"""Run as a module: agents beside an unmodified program, in a sandbox; prints what was seen as a
line of JSON.

    python -m plugins.torch.tests.agent.inside [--no-ebpf | --watch | --iterations | --polled |
    --udp | --training]

With `--watch`, a program runs already when an agent begins to watch its control group. With
`--iterations`, a program sends the same again after each silence, and more than its file says; with
`--polled`, a thread of it sends a little all the time, as one does that asks a store. With `--udp`,
the program of the documentation's page writes the shim itself. With `--training`, the ranks of a
job of PyTorch train.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from echelon.switches.telemetry.sizes import AGREEING
from echelon_lab.hosts import sandbox
from echelon_torch.agent import cgroups
from plugins.torch.tests.agent import kernel
from plugins.torch.tests.agent.place import HERE, JOB, Place, place
from tests.echelon.service.lab import ring, settle, until

ROOT = Path(__file__).resolve().parents[4]

ROUNDS = 3
STORES = {29500 + number for number in range(ROUNDS)}
"""The ports of the stores of training.py, whose connections carry little beside the gradients."""
IDLE_GAP_S = 0.2
SENT = 1_600_000
"""Bytes of an iteration: the ring's file says 1 MB."""


def follow(here: Place, options: Sequence[str]) -> dict[str, Any]:
    """Let connections open, carry bytes, close and open again; then kill the agents."""
    before = kernel.programs(), kernel.links(), kernel.groups()
    accepting, port = here.accepting("h1", *options)
    connecting = here.connecting("h2", "h1", port, *options)
    seen: dict[str, Any] = {}
    ports = connecting.order("open 3")
    until(lambda: here.connections() == both(ports, port), "the connections are not recognised")
    seen["opened"] = len(ports)
    counted = here.counted()
    connecting.order("send 100000")
    until(
        lambda: sum(count for _, count in here.counted().values()) >= 300_000,
        "the entries count nothing",
    )
    seen["counted"] = {
        flow: (count[0] - counted[flow][0], count[1]) for flow, count in here.counted().items()
    }
    connecting.order("close 2")
    ports = connecting.order("open 1")
    until(lambda: here.connections() == both(ports, port), "the reconnect is not recognised")
    seen["reconnected"] = len(ports)
    children = [child for agent in (accepting, connecting) for child in agent.children()]
    programs = [child for child in children if "program.py" in command(child)]
    seen["during"] = [len(now - then) for now, then in zip(held(), before, strict=True)]
    accepting.kill()
    connecting.kill()
    until(
        lambda: not any(now - then for now, then in zip(held(), before, strict=True)),
        f"{held()}, before: {before}",
    )
    seen["programs_go_on"] = all(Path(f"/proc/{child}").exists() for child in programs) and len(
        programs
    )
    for child in programs:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return seen


def watch(here: Place) -> dict[str, Any]:
    """Let connections open before and after an agent begins to watch, and end the agent."""
    file = here.directory / "port"
    with cgroups.JobGroup("watched") as made:
        group = made.path
        accepting = here.program(
            "h1", group, HERE / "program.py", "accept", here.lab.fabric.hosts["h1"].ipv4, file
        )
        until(file.exists, "the program does not listen")
        port = int(file.read_text())
        # The program of h2 has no agent.
        connecting = subprocess.Popen(
            [
                *here.in_host("h2"),
                sys.executable,
                HERE / "program.py",
                "connect",
                "10.0.0.1",
                str(port),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert connecting.stdin is not None
        assert connecting.stdout is not None
        agent, found = None, []
        for order in ("open 2", "open 1"):
            print(order, file=connecting.stdin, flush=True)
            ports = [int(word) for word in connecting.stdout.readline().split()]
            agent = agent or here.watching("h1", group)
            here.wait(both(ports, port))
            found.append(len(ports))
        assert agent is not None
        status = agent.terminate()
        kept = len(here.connections())
        for process in (connecting, accepting):
            process.kill()
            process.wait()
    return {"watched": found, "status": status, "kept": kept}


def iterations(here: Place, *, polled: bool = False) -> dict[str, Any]:
    """Send the same several times with silence between; return what the service knows of it."""
    _, port = here.accepting("h1")
    connecting = here.connecting("h2", "h1", port, "--idle-gap", f"{IDLE_GAP_S} s")
    ports = connecting.order("open 2")
    if polled:
        connecting.order(f"poll {IDLE_GAP_S * 1000 / 4:.0f}")
        until(lambda: len(reported(here)["h2"]) == 3, f"reported: {reported(here)}")
    for _ in range(AGREEING + 4):
        connecting.order(f"send {SENT // 2}")
        # Silence is time without bytes, so there is nothing else to wait for.
        time.sleep(4 * IDLE_GAP_S)
    measured = here.client.job(JOB).measurements
    until(
        lambda: len(here.client.job(JOB).measurements[0].iteration_times_s) > AGREEING,
        f"{measured}",
    )
    (measured,) = here.client.job(JOB).measurements
    until(lambda: here.client.job(JOB).sizes[0].used_bytes == SENT, f"{here.client.job(JOB).sizes}")
    (size,) = here.client.job(JOB).sizes
    until(
        lambda: reported(here)["h1"] == {(port, one) for one in ports},
        f"reported: {reported(here)}",
    )
    return {
        "measured": measured.model_dump(),
        "size": size.model_dump(),
        "reported": len(reported(here)["h2"]),
    }


def udp(here: Place) -> dict[str, Any]:
    """Run the program of the page on h1, for a job whose hosts write the shim; return what switches
    saw of it.
    """
    code = (ROOT / "docs" / "agent.md").read_text().partition("```python\n")[2].partition("```")[0]
    # So little that no buffer overflows, however slow this machine is.
    here.client.register_job(
        {**ring("bert", ["h1", "h2"]), "data": {"compute": "10 ms", "gradient": "20 kB"}}
    )
    settle(here.client)
    env = {**os.environ, "ECHELON_URL": here.url}
    subprocess.run([*here.in_host("h1"), sys.executable, "-c", code], env=env, check=True)
    until(
        lambda: sum(count for count, _ in here.counted_by_shim("bert").values()) >= 48,
        "packets are missing",
    )
    counted = here.counted_by_shim("bert")
    return {
        "counted": {
            flow.name: counted[flow.name]
            for flow in here.client.job("bert").flows
            if flow.src == "h1"
        }
    }


def training(here: Place) -> dict[str, Any]:
    """Train with agents on both hosts; compare after each round what they reported with what the
    kernel says.
    """
    rounds = []
    for rank, host in enumerate(("h1", "h2")):
        interface = subprocess.run(
            [*here.in_host(host), "ip", "-o", "-4", "addr", "show", "scope", "global"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()[1]
        names = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "10.0.0.1",
            "GLOO_SOCKET_IFNAME": interface,
        }
        os.environ.update(names, OMP_NUM_THREADS="1")
        here.agent(host, HERE / "training.py", here.directory, str(ROUNDS))
    for number in range(ROUNDS):
        until(
            lambda number=number: all(
                (here.directory / f"trained-{rank}-{number}").exists() for rank in (0, 1)
            ),
            f"the ranks do not train: {here.lines}",
        )
        until(
            lambda: (
                reported(here)
                == (by_kernel := {host: established(here, host) for host in ("h1", "h2")})
                and here.connections() == {ports for seen in by_kernel.values() for ports in seen}
            ),
            f"reported {reported(here)}, by the kernel"
            f" {[established(here, host) for host in ('h1', 'h2')]}",
        )
        rounds.append({host: sorted(seen) for host, seen in reported(here).items()})
        (here.directory / f"go-{number}").touch()
    until(
        lambda: reported(here) == {"h1": set(), "h2": set()}, f"connections stay: {reported(here)}"
    )
    return {"rounds": rounds}


def reported(here: Place) -> dict[str, set[tuple[int, int]]]:
    """Return the local and the remote port of each connection that agents reported, by host."""
    known = here.client.connections(JOB).connections
    return {
        host: {(one.local[1], one.remote[1]) for one in known.get(host, ())}
        for host in ("h1", "h2")
    }


def established(here: Place, host: str) -> set[tuple[int, int]]:
    """Return the same as the tables of the kernel have it, for connections with the other host that
    carry data.
    """
    shown = subprocess.run(
        [*here.in_host(host), "cat", "/proc/net/tcp", "/proc/net/tcp6"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    own, other = ("h1", "h2") if host == "h1" else ("h2", "h1")
    # Addresses are words in the order of this machine; those of IPv4 are the last word of IPv6's.
    ends = [
        socket.inet_aton(here.lab.fabric.hosts[name].ipv4)[::-1].hex().upper()
        for name in (own, other)
    ]
    found = set()
    for line in shown.splitlines():
        _, local, remote, state, *_ = line.split()
        addresses, ports = (
            zip(*(end.split(":") for end in (local, remote)), strict=False)
            if ":" in local
            else ((), ())
        )
        if state == "01" and [address[-8:] for address in addresses] == ends:
            found.add((int(ports[0], 16), int(ports[1], 16)))
    return {one for one in found if not {*one} & STORES}


def command(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text()


def held() -> tuple[frozenset[int], frozenset[int], frozenset[str]]:
    return kernel.programs(), kernel.links(), kernel.groups()


def both(ports: Sequence[int], port: int) -> set[tuple[int, int]]:
    return {(one, port) for one in ports} | {(port, one) for one in ports}


def main() -> int:
    modes: dict[str, Callable[[Place], dict[str, Any]]] = {
        "--watch": watch,
        "--iterations": iterations,
        "--polled": partial(iterations, polled=True),
        "--udp": udp,
        "--training": training,
    }
    with place(telemetry={"correct_sizes": True}) as here:
        mode = modes.get(sys.argv[1]) if sys.argv[1:] else None
        seen = follow(here, sys.argv[1:]) if mode is None else mode(here)
        print(json.dumps({**seen, "lines": here.lines}))
    return 0


if __name__ == "__main__":
    command_line = [sys.executable, "-m", "plugins.torch.tests.agent.inside", *sys.argv[1:]]
    sys.exit(main() if sandbox.inside() else sandbox.run_inside(command_line))
