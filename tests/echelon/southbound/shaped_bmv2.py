"""A real BMv2 with shaped ports, in namespaces of its own: what its tests look at.

    python -m tests.echelon.southbound.shaped_bmv2

is run inside `unshare` (see `looking`). For each line of its input, which names one of `LOOKS`, it
starts a switch and prints what it saw, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from echelon.controller.client import Client
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.lowering.identity import Identity, ShimIdentity
from echelon.switches.lowering.intent import Intent
from echelon.switches.lowering.lower import lower
from echelon.switches.processes import free_port
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets import TARGETS, Site
from echelon.switches.targets.bmv2.htb import bmv2 as capabilities
from echelon.switches.targets.bmv2.sockets import enlarge, needed_buffer
from echelon_lab.endhosts.shim import DataSegment, FlowAddress, ShimFrames, read_frame
from tests.echelon.southbound.bmv2_process import bmv2_process

ROOT = Path(__file__).parents[3]
UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net")
PATIENCE_S = 40.0
LOOK_S = 4 * PATIENCE_S
"""The most that one look may take: a service that starts on a busy machine has taken half a minute.
"""
PORTS = (1, 2, 3)
FRAME_BYTES = 1000
SLOW_BPS = 30_000
"""The rate of a link at which a frame takes a quarter of a second, longer than a test process is
kept waiting.
"""
DEPTH = 200
EARLY = 90
SEND_BUFFER = needed_buffer(1514, DEPTH)
STRICT = tuple(QueuePlan(level=level) for level in range(LEVELS))


@contextmanager
def looking() -> Iterator[Callable[[str], Any]]:
    """Yield a function that returns what one of `LOOKS` saw, each with a switch of its own, all in
    one process.
    """
    command = [*UNSHARE, sys.executable, "-m", "tests.echelon.southbound.shaped_bmv2"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "controller"), str(ROOT)])}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def look(what: str) -> Any:
            asked.write(f"{what}\n")
            answer = answers.readline()
            assert answer, "the process that looks has ended"
            return json.loads(answer)

        try:
            yield look
        finally:
            asked.close()


# -- the switch ------------------------------------------------------------------------------------


def fabric(rate_bps: int = SLOW_BPS) -> Fabric:
    """Return h1, h2 and h3 at ports 1 to 3 of s1."""
    return Fabric(
        "star",
        {f"h{n}": Host(f"h{n}", f"10.0.0.{n}", f"02:00:00:00:00:0{n}") for n in PORTS},
        {"s1": Switch("s1", 1)},
        tuple(
            CableLink(LinkEnd(f"h{n}", 0), LinkEnd("s1", n), rate_bps, Fraction(0)) for n in PORTS
        ),
    )


@contextmanager
def bmv2() -> Iterator[tuple[str, int]]:
    """Run BMv2, and yield its P4Runtime address and Thrift port.

    Interfaces s1-eth1 to 3 are its ports, h1 to 3 the other ends.
    """
    lines = ["link set lo up"]
    for n in PORTS:
        lines += [
            f"link add s1-eth{n} type veth peer name h{n}",
            f"link set s1-eth{n} up",
            f"link set h{n} up",
        ]
    for name in ("all", "default"):
        with suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    ports = {n: f"s1-eth{n}" for n in PORTS}
    try:
        with bmv2_process("--priority-queues", "8", interfaces=ports) as switch:
            assert switch.process is not None
            enlarge(switch.process.pid, SEND_BUFFER)
            yield switch.address, switch.thrift
    finally:
        links = "\n".join(f"link del h{n}" for n in PORTS)
        subprocess.run(["ip", "-batch", "-"], input=links, text=True, check=True)


def session(address: str, thrift: int, rate_bps: int = SLOW_BPS) -> SwitchSession:
    target = TARGETS["bmv2"]
    deep = {"depth": DEPTH, "send_buffer": SEND_BUFFER}
    options = target.options(interfaces="s1-eth{port}", thrift=f"127.0.0.1:{thrift}", **deep)
    queues = target.queue_driver(options, Site("s1", dict.fromkeys(PORTS, rate_bps)))
    return SwitchSession("s1", address, 1, target.program(), queues=queues)


def intent(
    flows: dict[str, Deadline], schedule: tuple[QueuePlan, ...], rate_bps: int = SLOW_BPS
) -> Intent:
    """Return the intent for s1, for flows of one job from h1 to h3, known by shim in order."""
    identities: dict[tuple[str, str], Identity] = {
        ("a", name): ShimIdentity(1, n) for n, name in enumerate(flows)
    }
    plans = tuple(
        FlowPlan("a", name, ranking, ("h1", "s1", "h3")) for name, ranking in flows.items()
    )
    plan = Plan("test", plans, schedule)
    return lower(plan, fabric(rate_bps), identities, capabilities())["s1"]


class Line:
    """A line that sends packets of flows at h1, and takes them at h3.

    `remaining` numbers them; the last of a flow never comes.
    """

    def __init__(self, flows: Sequence[str]) -> None:
        self._flows = flows
        self._frames = {
            name: ShimFrames(_address(n), 1, FRAME_BYTES) for n, name in enumerate(flows)
        }
        self._sender, self._receiver = _socket("h1"), _socket("h3")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()
        self._receiver.close()

    def send(self, flow: str, numbers: Iterable[int], *, alone: bool = False) -> None:
        for number in numbers:
            segment = DataSegment((100 - number) * FRAME_BYTES, FRAME_BYTES, alone=alone)
            self._sender.send(self._frames[flow].data(segment))

    async def receive(self, count: int) -> list[tuple[str, int]]:
        """Return (flow, number) of the next packets."""
        return [(name, number) for name, number, _, _ in await self.receive_marked(count)]

    async def receive_marked(self, count: int) -> list[tuple[str, int, int, bool]]:
        """Return (flow, number, queue, whether it asks to drain) of the next packets."""
        out: list[tuple[str, int, int, bool]] = []
        while len(out) < count:
            frame = await self.receive_frame()
            found = read_frame(frame)
            if found is not None:
                key, segment, _ = found
                assert isinstance(segment, DataSegment)
                number = 100 - segment.remaining // FRAME_BYTES
                flow = self._flows[int.from_bytes(key[3:5], "big")]
                out.append((flow, number, frame[15] >> 5, segment.drain))
        return out

    async def receive_frame(self) -> bytes:
        return await asyncio.to_thread(self._receiver.recv, 2048)


# -- what is looked at -----------------------------------------------------------------------------

TARDY = (Fraction(1, 100),) * 7
"""The thresholds that put a flow into the highest queue from 10 ms of tardiness on."""
RATED = tuple(
    QueuePlan(level // 2, 1 + level, Fraction(level, 100), Fraction(1, 2) if level % 3 else None)
    for level in range(8)
)


async def twice(address: str, thrift: int) -> dict[str, object]:
    """Bring the same switch to one intent with two controllers one after the other, and to another
    intent with a third.
    """
    rate_bps = 10_000_000
    flows = {"head": Deadline("e", Fraction(0), TARDY)}
    seen: list[dict[str, int]] = []
    rated, strict = intent(flows, RATED, rate_bps), intent(flows, STRICT, rate_bps)
    shown: list[str] = []
    for wanted in (rated, rated, strict):
        async with session(address, thrift, rate_bps) as s:
            for _ in range(2):
                change = await s.reconcile(wanted)
                seen.append(
                    {
                        "entries": len(change),
                        "queues": change.queues,
                        "refused": len(change.refused),
                    }
                )
        shown.append("".join(tc(f"-details class show dev s1-eth{port}") for port in PORTS))
    return {
        "changes": seen,
        "entries": len(rated.entries),
        "queues": len(rated.queues),
        "shown": shown,
    }


async def order(address: str, thrift: int) -> dict[str, object]:
    """Send a burst that has time, then one that is late, into a port that hardly moves until all
    are there. They are more than the send buffers that the kernel gives the switch would hold."""
    rate_bps = 10_000_000
    flows = {"late": Deadline("e", Fraction(0), TARDY), "early": Deadline("e", Fraction(10), TARDY)}
    async with session(address, thrift, rate_bps) as s:
        await s.reconcile(intent(flows, STRICT, rate_bps))
        with Line(list(flows)) as line:
            line.send("late", range(1))
            arrivals = await line.receive(1)
            # What follows of that flow is late: its time was up when its first packet passed.
            await asyncio.sleep(0.05)
            throttle("10kbit")
            for number in range(1, EARLY + 1):
                line.send("early", [number])
                # A burst is more than it reads from its interface.
                await asyncio.sleep(0.001)
            # Its first packet has arrived: nothing of it is left behind.
            line.send("late", range(1, 2), alone=True)
            line.send("late", range(2, 9))
            while taken() < EARLY + 9:
                await asyncio.sleep(0.02)
            throttle("10mbit")
            arrivals += await line.receive(EARLY + 8)
    return {"arrivals": arrivals}


def tc(words: str) -> str:
    """Run iproute2's `tc`, and return what it prints."""
    return subprocess.run(["tc", *words.split()], capture_output=True, text=True, check=True).stdout


def throttle(rate: str) -> None:
    """Set the rate of the port to h3, past the driver."""
    what = f"htb rate {rate} ceil {rate} burst 3028 cburst 3028"
    tc(f"class change dev s1-eth3 parent ec: classid ec:1 {what}")


def taken() -> int:
    """Return the packets that have come to the tree of the port to h3 and were not dropped."""
    shown = tc("-s class show dev s1-eth3")
    leaves = re.findall(
        r"class htb ec:1[0-7] .*?bytes (\d+) pkt .*?backlog \S+ (\d+)p", shown, re.DOTALL
    )
    return sum(int(left) + int(waiting) for left, waiting in leaves)


async def promotion(address: str, thrift: int) -> dict[str, object]:
    """Send a flow that becomes late while its packets wait for a slow port, and then lets its
    window run empty.
    """
    flows = {"flow": Deadline("e", Fraction(0), TARDY)}
    async with session(address, thrift) as s:
        await s.reconcile(intent(flows, STRICT))
        with Line(list(flows)) as line:
            line.send("flow", range(10))
            arrivals = await line.receive_marked(1)
            await asyncio.sleep(0.05)
            line.send("flow", range(10, 13))
            arrivals += await line.receive_marked(12)
            line.send("flow", [13], alone=True)
            line.send("flow", [14])
            arrivals += await line.receive_marked(2)
    return {"arrivals": arrivals}


async def hold(address: str, thrift: int) -> dict[str, object]:
    """Send a flow that becomes late, pauses for the hold time of its queue, and does not say that
    it is alone.
    """
    rate_bps = 10_000_000
    flows = {"flow": Deadline("e", Fraction(0), TARDY)}
    wanted = intent(
        flows,
        tuple(QueuePlan(level, min_share=Fraction(1, 10)) for level in range(LEVELS)),
        rate_bps,
    )
    holds = {
        entry.match: entry.actions[0].arguments
        for entry in wanted.entries
        if entry.table == "promotion_hold"
    }
    ((_, hold_us),) = holds[("port", 3), ("queue", 0)]
    async with session(address, thrift, rate_bps) as s:
        await s.reconcile(wanted)
        with Line(list(flows)) as line:
            line.send("flow", range(5))
            arrivals = await line.receive_marked(5)
            await asyncio.sleep(hold_us / 1e6)
            line.send("flow", [5])
            arrivals += await line.receive_marked(1)
    return {"arrivals": arrivals}


async def marks(address: str, thrift: int) -> dict[str, object]:
    """Return the ECN marks in a burst of packets that are ECN-capable: the queue is outside the
    switch.
    """
    flows = {"early": Deadline("e", Fraction(0), (Fraction(100),) * 7)}
    async with session(address, thrift) as s:
        await s.reconcile(intent(flows, STRICT))
        marked: list[bool] = []
        with Line(list(flows)) as line:
            line.send("early", range(10))
            while len(marked) < 10:
                frame = await line.receive_frame()
                if read_frame(frame) is not None:
                    marked.append(frame[15] & 3 == 3)
    return {"marked": marked}


async def depths(address: str, thrift: int) -> dict[str, object]:
    """Reconcile with a settings file whose Thrift port is another service's."""
    target = TARGETS["bmv2"]
    options = target.options(interfaces="s1-eth{port}", thrift=f"127.0.0.1:{free_port()}")
    queues = target.queue_driver(options, Site("s1", dict.fromkeys(PORTS, SLOW_BPS)))
    async with SwitchSession("s1", address, 1, target.program(), queues=queues) as s:
        applied = await s.reconcile(intent({}, STRICT))
    refused = [str(part) for part in applied.refused]
    return {"refused": refused, "queues": applied.queues, "entries": len(applied)}


async def service(address: str, thrift: int) -> dict[str, object]:
    """Run the real daemon on this switch: a job comes, the tree goes, the policy changes."""
    with tempfile.TemporaryDirectory() as directory:
        return await asyncio.to_thread(_service, Path(directory), address, thrift)


def _service(directory: Path, address: str, thrift: int) -> dict[str, object]:
    hosts = [f"h{n}" for n in PORTS]
    links = [{"between": [host, "s1"], "rate": "10 Mbit/s", "delay": "1 us"} for host in hosts]
    listen = f"127.0.0.1:{free_port()}"
    (directory / "fabric.yaml").write_text(
        json.dumps({"fabric": "star", "hosts": hosts, "switches": ["s1"], "links": links})
    )
    switch = {
        "address": address,
        "target": "bmv2",
        "interfaces": "s1-eth{port}",
        "thrift": f"127.0.0.1:{thrift}",
    }
    config = {
        "service": "test",
        "fabric": "fabric.yaml",
        "switches": {"s1": switch},
        "audit": "1 s",
    }
    (directory / "echelon.yaml").write_text(json.dumps({**config, "api": {"listen": listen}}))
    start = "import sys; from echelon.cli import main; sys.argv[0] = 'echelon'; main()"
    command = [sys.executable, "-c", start, "serve", "--config", str(directory / "echelon.yaml")]
    with (directory / "log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with Client(f"http://{listen}", retry_s=PATIENCE_S) as client:
            data = {"compute": "1 s", "gradient": "1 MB"}
            client.register_job(
                {"job": "a", "parallelism": "data", "workers": ["h1", "h3"], "data": data}
            )
            state = client.job("a", wait_s=PATIENCE_S).state
            ranked = _prios("s1-eth3")
            subprocess.run(["tc", "qdisc", "del", "dev", "s1-eth3", "root"], check=True)
            _until(lambda: client.switch("s1").drift_found > 0)
            repairs = "switch repaired"
            _until(lambda: any(event.action == repairs for event in client.events()))
            mended = _prios("s1-eth3")
            client.set_policy("fifo")
            # Classes change one after the other, that of queue 7 last.
            _until(lambda: _prios("s1-eth3")["7"].startswith("prio 6"))
            return {"state": state, "ranked": ranked, "mended": mended, "fifo": _prios("s1-eth3")}
    finally:
        daemon.terminate()
        daemon.wait()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def _prios(interface: str) -> dict[str, str]:
    """Return `prio` and rate of each queue's class."""
    shown = subprocess.run(
        ["tc", "class", "show", "dev", interface], capture_output=True, text=True, check=True
    )
    return dict(re.findall(r"leaf ec1(\d): (prio \d rate \w+) ", shown.stdout))


def _address(flow: int) -> FlowAddress:
    hosts = fabric().hosts
    source, destination = hosts["h1"], hosts["h3"]
    return FlowAddress(
        source.mac, "02:00:00:00:00:aa", source.ipv4, destination.ipv4, 4000, 1, flow
    )


def _socket(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    opened.bind((interface, 3))
    opened.settimeout(PATIENCE_S)
    return opened


LOOKS: dict[str, Callable[[str, int], Any]] = {
    look.__name__: look for look in (twice, order, promotion, hold, marks, depths, service)
}


def main() -> None:
    for line in sys.stdin:
        with bmv2() as (address, thrift):
            seen = asyncio.run(asyncio.wait_for(LOOKS[line.strip()](address, thrift), LOOK_S))
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
