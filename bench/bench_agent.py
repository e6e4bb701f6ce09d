"""The agent beside an unmodified program: the time from connect to the switch's entry, and the
agent's processor time.

The reference of the times is the agent without eBPF in the same run. Needs root. `python -m bench
agent`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONNECTS = 100
MANY = 1000
IDLE_S = 20.0
KINDS = {"eBPF": [], "polling": ["--no-ebpf"]}


ROUNDS = 9
TRANSFERS = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
began = time.perf_counter()
for _ in range(1000):
    ours = socket.create_connection(server.getsockname())
    theirs, _ = server.accept()
    ours.close()
    theirs.close()
connects_s = (time.perf_counter() - began) / 1000
ours = socket.create_connection(server.getsockname())
theirs, _ = server.accept()
began = time.perf_counter()
for _ in range(20_000):
    ours.send(bytes(1448))
    theirs.recv(1448)
print(connects_s, (time.perf_counter() - began) / 20_000)
"""


def bench() -> list[tuple[str, float, str]]:
    rows = program_rows()
    for kind, options in KINDS.items():
        seen = measured(options)
        times_s = sorted(seen["connect_s"])
        p50_s = statistics.median(times_s)
        p99_s = times_s[-1 - len(times_s) // 100]
        # The first rows of both kinds can be compared with each other.
        rows += [
            (f"{kind}: connect to entry, p50 of {CONNECTS}", 1000 * p50_s, "ms"),
            (f"{kind}: connect to entry, p99 of {CONNECTS}", 1000 * p99_s, "ms"),
            (
                f"{kind}: agent's processor time for a connect and a close",
                1000 * seen["cpu_per_connect_s"],
                "ms",
            ),
            (
                f"{kind}: {MANY} connections at once, until all have their entries",
                seen["many_s"],
                "s",
            ),
            (
                f"{kind}: agent with {MANY} open connections, share of a processor",
                100 * seen["idle_share"],
                "%",
            ),
            (f"{kind}: agent with {MANY} open connections, memory", seen["memory_mb"], "MB"),
        ]
    return rows


def program_rows() -> list[tuple[str, float, str]]:
    """Return what the program in the kernel costs on loopback, beside the same without it: the best
    of all rounds.
    """
    from echelon_torch.agent import cgroups
    from echelon_torch.agent.program import KernelProgram

    times: dict[bool, list[list[float]]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for attached in times:
            with (
                cgroups.JobGroup("bench") as bench_group,
                KernelProgram(bench_group.path) if attached else nullcontext(),
            ):
                group = bench_group.path
                done = subprocess.run(
                    [
                        "sh",
                        "-c",
                        'echo 0 >"$1/cgroup.procs" && exec "$2" -c "$3"',
                        "sh",
                        group,
                        sys.executable,
                        TRANSFERS,
                    ],
                    capture_output=True,
                    text=True,
                    check=True,
                )
            words = done.stdout.split()
            times[attached].append([float(word) for word in words])
    connect_s, packet_s = map(min, zip(*times[False], strict=True))
    with_connect_s, with_packet_s = map(min, zip(*times[True], strict=True))
    return [
        ("connection opened and closed on loopback, without a program", 1e6 * connect_s, "us"),
        ("the same with it, over that", with_connect_s / connect_s, ""),
        ("packet on loopback, without a program", 1e6 * packet_s, "us"),
        ("the same with it, over that", with_packet_s / packet_s, ""),
    ]


def measured(options: list[str]) -> dict[str, Any]:
    tests = ROOT / "tests"
    done = subprocess.run(
        [sys.executable, __file__, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tests}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = done.stderr or done.stdout
        last_line = output.strip().splitlines()[-1]
        raise SystemExit(f"bench agent: {last_line}")
    lines = done.stdout.splitlines()
    figures = next(line for line in lines if '"connect_s"' in line)
    result: dict[str, Any] = json.loads(figures)
    return result


def main() -> int:
    from plugins.torch.tests.agent.place import place

    with place() as hosts:
        accepting, port = hosts.accepting("h1", *sys.argv[1:])
        connecting = hosts.connecting("h2", "h1", port, *sys.argv[1:])
        connecting.order("open 0")
        # The first report takes longer: the agent does not know the job's addresses yet.
        time.sleep(2)
        connect_s = []
        cpu_s = connecting.cpu_s()
        for _ in range(CONNECTS):
            began_s = time.monotonic()
            (own_port,) = connecting.order("open 1")
            hosts.wait({(own_port, port), (port, own_port)})
            connect_s.append(time.monotonic() - began_s)
            connecting.order("close 1")
            hosts.wait(set())
        cpu_per_connect_s = (connecting.cpu_s() - cpu_s) / CONNECTS
        began_s = time.monotonic()
        directions = set()
        for own_port in connecting.order(f"open {MANY}"):
            directions |= {(own_port, port), (port, own_port)}
        hosts.wait(directions)
        many_s = time.monotonic() - began_s
        cpu_s = connecting.cpu_s()
        time.sleep(IDLE_S)
        idle_share = (connecting.cpu_s() - cpu_s) / IDLE_S
        status = Path(f"/proc/{connecting.pid}/status").read_text()
        _, _, behind_key = status.partition("VmRSS:")
        memory_kb, *_ = behind_key.split()
        memory_mb = int(memory_kb) / 1000
        seen = {
            "connect_s": connect_s,
            "cpu_per_connect_s": cpu_per_connect_s,
            "many_s": many_s,
            "idle_share": idle_share,
            "memory_mb": memory_mb,
        }
        print(json.dumps(seen), flush=True)
        connecting.close()
        accepting.terminate()
    return 0


if __name__ == "__main__":
    from echelon_lab.hosts import sandbox

    sys.exit(
        main()
        if sandbox.inside()
        else sandbox.run_inside([sys.executable, __file__, *sys.argv[1:]])
    )
