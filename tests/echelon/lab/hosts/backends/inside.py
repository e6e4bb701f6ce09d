"""Observations of a fabric of real interfaces, from within a sandbox.

    python -m tests.echelon.lab.hosts.backends.inside BACKEND|TARGET LOOK...

is run by `look` and prints what it saw, as JSON. `build` measures how long building takes.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from echelon.model.errors import RunError
from echelon.model.fabric.builders import leaf_spine, line, one_tor
from echelon.model.fabric.load import build_fabric, fabric_text
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.switches.processes import DIES_WITH_CALLER, NICENESS, preferred
from echelon.switches.targets import TARGETS
from echelon.switches.targets.launching import Place
from echelon_lab.hosts import sandbox
from echelon_lab.hosts.backends.base import BACKENDS, HostFabric

ROOT = Path(__file__).parents[5]
PATIENCE_S = 60.0


def look(which: str, *looks: str) -> Any:
    """Return what each look sees, in a sandbox."""
    script = (
        "import sys; from echelon_lab.hosts.sandbox import run_inside;"
        " sys.exit(run_inside(sys.argv[1:]))"
    )
    command = [sys.executable, "-m", "tests.echelon.lab.hosts.backends.inside", which, *looks]
    done = subprocess.run(
        [sys.executable, "-c", script, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "controller"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- fabrics ---------------------------------------------------------------------------------------


def far_apart() -> Fabric:
    """Return two hosts at one switch, of different networks of 16 bits, with names that are too
    long for interfaces.
    """
    hosts = {
        "accelerator-of-rack-17-number-01": Host(
            "accelerator-of-rack-17-number-01", "10.1.2.3", "02:aa:00:00:00:01"
        ),
        "accelerator-of-rack-17-number-02": Host(
            "accelerator-of-rack-17-number-02", "10.77.2.3", "02:aa:00:00:00:02"
        ),
    }
    tor = Switch("top-of-rack-switch", 7)
    links = [
        CableLink(LinkEnd(host, 0), LinkEnd(tor.name, 40 + number), 10**9, Fraction(0))
        for number, host in enumerate(hosts)
    ]
    return Fabric("far_apart", hosts, {tor.name: tor}, tuple(links))


def _json(prefix: Sequence[str], *command: str) -> Any:
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "[]")


# -- looks -----------------------------------------------------------------------------------------


def hosts(backend: str) -> object:
    """Return what `ip` says of each host."""
    out = {}
    fabric = far_apart()
    with BACKENDS[backend](fabric, 9000) as built:
        for host in fabric.hosts:
            enter = built.in_host(host)
            (interface,) = _json(
                enter, "ip", "-json", "address", "show", "dev", built.host_interface(host)
            )
            others = _json(enter, "ip", "-json", "neighbour")
            routes = _json(enter, "ip", "-json", "route")
            out[host] = {
                "name": interface["ifname"],
                "mac": interface["address"],
                "mtu": interface["mtu"],
                "state": interface["operstate"],
                "addresses": [f"{a['local']}/{a['prefixlen']}" for a in interface["addr_info"]],
                "neighbours": {n["dst"]: [n["lladdr"], *n["state"]] for n in others},
                "routes": sorted(route["dst"] for route in routes),
            }
        switch = built.interfaces("top-of-rack-switch")
        mtus = {link["ifname"]: link["mtu"] for link in _json((), "ip", "-json", "link")}
    return {"hosts": out, "switch": switch, "mtus": [mtus[name] for name in switch.values()]}


def frames(backend: str) -> object:
    """Send a megabyte over TCP between two hosts, whose switch is a bridge of the kernel, and look
    at every frame.
    """
    fabric = build_fabric(one_tor(2))
    with BACKENDS[backend](fabric, 1500) as built:
        _bridge(built, "tor")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
            tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            tap.bind((built.interfaces("tor")[1], 3))
            received = _transfer(built, "h1", "h2", fabric.hosts["h2"].ipv4, 1_000_000)
            tap.setblocking(False)
            seen = []
            while True:
                try:
                    seen.append(tap.recv(1 << 17))
                except BlockingIOError:
                    break
    tcp = [
        frame for frame in seen if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP
    ]
    return {
        "received": received,
        "longest": max(map(len, tcp)),
        "frames": len(tcp),
        "bad_checksums": sum(not _checksums_hold(frame) for frame in tcp),
        "other": len(seen) - len(tcp),
    }


def left(backend: str) -> object:
    """Return what exists before, inside and after a fabric; then after one that cannot be built."""
    fabric = build_fabric(line(2))

    def census() -> dict[str, object]:
        return {
            "interfaces": sorted(name for _, name in socket.if_nameindex()),
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "threads": threading.active_count(),
            "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text().split(),
        }

    with BACKENDS[backend](fabric):
        pass  # what is imported and opened once
    before = census()
    with BACKENDS[backend](fabric):
        during = census()
    after = census()
    subprocess.run(
        ["ip", "link", "add", "s2-eth1", "type", "veth", "peer", "name", "other"], check=True
    )
    message = ""
    try:
        with BACKENDS[backend](fabric):
            pass
    except RunError as error:
        message = str(error)
    subprocess.run(["ip", "link", "delete", "s2-eth1"], check=True)
    return {
        "before": before,
        "during": during,
        "after": after,
        "message": message,
        "at_last": census(),
    }


def build(backend: str) -> object:
    """Build 16 hosts and 24 hosts in leaf-spines of 32 and 32 links, and return the times."""
    took = {}
    for name, spec in (("16 hosts", leaf_spine(4, 4, 4)), ("24 hosts", leaf_spine(4, 2, 6))):
        fabric = build_fabric(spec)
        start = time.monotonic()
        with BACKENDS[backend](fabric):
            up = time.monotonic()
        took[f"{name}, {len(fabric.cables)} links"] = {
            "up_s": up - start,
            "down_s": time.monotonic() - up,
        }
    return took


def switch(target: str) -> object:
    """Run one switch: return its arguments, its words when it is killed, and whether it ends with
    its caller.
    """
    from echelon.controller.service.config import load_service_config

    fabric = build_fabric(one_tor(2))
    launcher = TARGETS[target].launcher()
    assert launcher is not None
    before = (*DIES_WITH_CALLER, *preferred(NICENESS))
    with (
        BACKENDS["namespaces"](fabric) as built,
        tempfile.TemporaryDirectory() as directory,
        tempfile.TemporaryDirectory() as elsewhere,
    ):
        place = Place("tor", fabric.switches["tor"].device_id, built.interfaces("tor"))
        started = launcher.launch(place, Path(directory), before)
        started.wait_ready()
        started.check()
        config = {"service": "s", "fabric": "fabric.yaml", "switches": {"tor": dict(started.entry)}}
        Path(directory, "echelon.yaml").write_text(json.dumps(config))
        Path(directory, "fabric.yaml").write_text(fabric_text(one_tor(2), "A test's."))
        entry = load_service_config(Path(directory, "echelon.yaml")).switches["tor"]
        nice = os.getpriority(os.PRIO_PROCESS, started.pid)
        shown = subprocess.run(
            ["ss", "-0", "-apmnO"], capture_output=True, text=True, check=True
        ).stdout
        of_switch = [line for line in shown.splitlines() if f"pid={started.pid}," in line]
        os.kill(started.pid, signal.SIGKILL)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        problem = ""
        try:
            started.check()
        except RunError as error:
            problem = str(error)
        started.kill()
        started.stop()
        files = sorted(path.name for path in Path(directory).iterdir())
        reading, writing = os.pipe()
        if not (caller := os.fork()):
            orphan = launcher.launch(place, Path(elsewhere), before)
            orphan.wait_ready()
            os.write(writing, orphan.pid.to_bytes(4, "little"))
            signal.pause()
        orphan_process = os.pidfd_open(int.from_bytes(os.read(reading, 4), "little"))
        os.kill(caller, signal.SIGKILL)
        died, _, _ = select.select([orphan_process], [], [], PATIENCE_S)
        os.waitpid(caller, 0)
        return {
            "address": started.address == entry.address,
            "target": entry.target,
            "options": {
                key: value
                for key, value in started.entry.items()
                if key not in ("address", "thrift")
            },
            "nice": nice,
            "send_buffers": [
                int(size) for line in of_switch for size in re.findall(r",tb(\d+),", line)
            ],
            "problem": problem,
            "files": files,
            "orphan_died": bool(died),
        }


def _bridge(built: HostFabric, switch: str) -> None:
    # One that snoops reports itself to others, by IGMP.
    subprocess.run(
        ["ip", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0"], check=True
    )
    for interface in built.interfaces(switch).values():
        subprocess.run(["ip", "link", "set", interface, "master", "bridge"], check=True)
    subprocess.run(["ip", "link", "set", "bridge", "up"], check=True)


_SINK = """
import socket
with socket.create_server(("0.0.0.0", 5001)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    total = 0
    while data := connection.recv(1 << 16):
        total += len(data)
    print(total)
"""
_SOURCE = """
import socket, sys
with socket.create_connection((sys.argv[1], 5001)) as connection:
    connection.sendall(bytes(range(256)) * (int(sys.argv[2]) // 256) + bytes(int(sys.argv[2]) % 256))
"""


def _transfer(built: HostFabric, source: str, sink: str, to: str, size: int) -> int:
    with subprocess.Popen(
        [*built.in_host(sink), sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True
    ) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        sender = [*built.in_host(source), sys.executable, "-c", _SOURCE, to, str(size)]
        subprocess.run(sender, check=True, timeout=PATIENCE_S)
        return int(receiver.stdout.readline())


def _checksums_hold(frame: bytes) -> bool:
    """Return whether the checksums of IPv4 and of TCP in it hold (RFC 1071)."""
    packet = frame[14:]
    header = packet[: (packet[0] & 15) * 4]
    packet = packet[: struct.unpack("!H", packet[2:4])[0]]
    segment = packet[len(header) :]
    pseudo = packet[12:20] + struct.pack("!BBH", 0, packet[9], len(segment))
    return _sum(header) == 0xFFFF and _sum(pseudo + segment) == 0xFFFF


def _sum(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


LOOKS: Mapping[str, Callable[[str], object]] = {
    seen.__name__: seen for seen in (hosts, frames, left, build, switch)
}


if __name__ == "__main__":
    if not sandbox.inside():
        sys.exit(sandbox.run_inside([sys.executable, *sys.orig_argv[1:]]))
    print(json.dumps({name: LOOKS[name](sys.argv[1]) for name in sys.argv[2:]}))
