"""Training with PyTorch on real sockets: workers in network namespaces of their own, behind
softswitch or BMv2.

`python -m plugins.aggregation.tests.training --target bmv2` (root, PyTorch) prints how the loss and
the time of an iteration compare with Gloo's over the same links, and what happens when a worker or
the switch is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median
from typing import Any

from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.intent import Intent, Part
from echelon.switches.lowering.parts import fabric_part
from echelon.switches.processes import start
from echelon.switches.targets import TARGETS
from echelon.switches.targets.bmv2.options import ServerAddress
from echelon.switches.targets.bmv2.thrift import open_queues
from echelon.switches.targets.launching import Place, SwitchProcess
from echelon_aggregation.installed import TreeAtSwitch, TreeRun, WorkerPort
from echelon_aggregation.membership import VARIABLE, Member, Membership
from echelon_aggregation.memory import TAKES, Grant
from echelon_lab.hosts import sandbox
from echelon_lab.hosts.backends.base import NamespaceFabric

WORKERS, WINDOW, PORT, STORE_PORT = 4, 64, 5000, 29500
PATIENCE_S = 900.0
IN_THE_MIDDLE = "step 50"
WAYS = {
    "echelon": ("cpu:echelon", "training"),
    "hook": ("gloo", "hook"),
    "gloo": ("gloo", "training"),
}
"""Backend, and what a worker does: all collectives through the tree, gradients alone, and none."""


@dataclass
class Rank:
    """The end of a worker."""

    status: int
    said: str
    seconds: float
    """The time from what was done to the group, or from the start, to the end of the process."""

    @property
    def found(self) -> dict[str, Any]:
        assert self.status == 0, self.said
        loaded: dict[str, Any] = json.loads(self.said.splitlines()[-1])
        return loaded


class Testbed:
    """Hosts in namespaces around one switch, which aggregates for all of them."""

    def __init__(self, target: str, hosts: NamespaceFabric, fabric: Fabric, out: Path) -> None:
        self._target, self._hosts, self._fabric, self._out = TARGETS[target], hosts, fabric, out
        self._runner = asyncio.Runner()
        self._session = 0
        self.switch = self.start_switch()

    def start_switch(self) -> SwitchProcess:
        """Start the switch. It has no program yet."""
        launcher, (name,) = self._target.launcher(), self._fabric.switches
        assert launcher is not None
        device = self._fabric.switches[name].device_id
        switch = launcher.launch(Place(name, device, self._hosts.interfaces(name)), self._out)
        switch.wait_ready()
        if "thrift" in switch.entry:
            open_queues(ServerAddress.parse(switch.entry["thrift"]))
        return switch

    def install(self) -> None:
        """Give the switch the program, and the entries of the tree in the present session."""
        (name,) = self._fabric.switches
        own = {
            key: value
            for key, value in self.switch.entry.items()
            if key not in ("address", "target")
        }
        options: Any = self._target.options.model_validate(own)
        workers = [WorkerPort(host, PORT) for host in self._fabric.hosts]
        grant = Grant(0, 2 * WINDOW - 1, 0, TAKES["share"])
        run = TreeRun(1, self._session, workers, workers[0].host, {}, name, {name: grant})
        tree = TreeAtSwitch(run, name, self._fabric)
        capabilities = self._target.capabilities(options)
        parts = (
            fabric_part(name, self._fabric, 0, capabilities),
            Part("aggregation", tree.entries()),
        )
        make = self._target.session_factory(options)
        device = self._fabric.switches[name].device_id

        softswitch = TARGETS["softswitch"]
        program = softswitch.program(softswitch.aggregating())

        async def write() -> None:
            async with make(name, self.switch.address, device, program, queues=None) as session:
                (await session.reconcile(Intent(name, parts, groups=(tree.group,)))).require()

        self._runner.run(write())

    def train(
        self,
        backend: str,
        what: str,
        then: Callable[[Sequence[subprocess.Popen[bytes]]], None] | None = None,
        silence_s: float = 60,
    ) -> list[Rank]:
        """Return how the workers of a group ended, to which something is done in the middle."""
        self._session += 1
        self.install()
        members = tuple(
            Member(
                wire=self._hosts.host_interface(name),
                ip=IPv4Address(host.ipv4),
                mac=host.mac,
                port=PORT,
            )
            for name, host in self._fabric.hosts.items()
        )
        of = Membership(
            workers=members, tree=1, session=self._session, window=WINDOW, silence_s=silence_s
        )
        file = self._out / "group.json"
        file.write_text(of.model_dump_json())
        logs = [self._out / f"{name}.log" for name in self._fabric.hosts]
        began = time.monotonic()
        processes = [
            start(
                [
                    *self._hosts.in_host(name),
                    *(
                        sys.executable,
                        "-m",
                        "plugins.aggregation.tests.torch_worker",
                        str(rank),
                        str(WORKERS),
                    ),
                    *(f"{members[0].ip}:{STORE_PORT}", backend, what),
                ],
                logs[rank],
                env={**os.environ, VARIABLE: str(file), "GLOO_SOCKET_IFNAME": members[rank].wire},
            )
            for rank, name in enumerate(self._fabric.hosts)
        ]
        try:
            if then is not None:
                while IN_THE_MIDDLE not in logs[0].read_text():
                    assert processes[0].poll() is None, logs[0].read_text()
                    time.sleep(0.01)
                began = time.monotonic()
                then(processes)
            ended: dict[int, float] = {}
            while len(ended) < WORKERS and time.monotonic() - began < PATIENCE_S:
                for rank, process in enumerate(processes):
                    if rank not in ended and process.poll() is not None:
                        ended[rank] = time.monotonic() - began
                time.sleep(0.01)
            return [
                Rank(process.wait(0), log.read_text(), ended[rank])
                for rank, (process, log) in enumerate(zip(processes, logs, strict=True))
            ]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def close(self) -> None:
        self.switch.stop()
        self._runner.close()


@contextmanager
def testbed(target: str) -> Iterator[Testbed]:
    fabric = build_fabric(one_tor(WORKERS, 10**10, Fraction(0)))
    with tempfile.TemporaryDirectory() as out, NamespaceFabric(fabric) as hosts:
        made = Testbed(target, hosts, fabric, Path(out))
        try:
            yield made
        finally:
            made.close()


def compare(target: str) -> dict[str, Any]:
    """Return the losses and the median time of an iteration, by way."""
    found = {}
    with testbed(target) as bed:
        for way, (backend, what) in WAYS.items():
            ranks = [rank.found for rank in bed.train(backend, what)]
            assert all(rank["losses"] == ranks[0]["losses"] for rank in ranks)
            found[way] = {"losses": ranks[0]["losses"], "ms": 1000 * median(ranks[0]["times_s"])}
    return found


def largest_difference(found: dict[str, Any], way: str) -> float:
    """Return the largest difference between the losses of a way and Gloo's, of what `compare`
    found.
    """
    return max(
        abs(one - other)
        for one, other in zip(found[way]["losses"], found["gloo"]["losses"], strict=True)
    )


def kill(target: str, whom: str, silence_s: str) -> dict[str, Any]:
    """Return how long it took until all others had ended, how, and what they said last.

    `whom` is the number of a worker, "switch", or "switch for a moment": it is started again at
    once, and this returns the losses and how long the longest iteration took.
    """
    with testbed(target) as bed:

        def do(processes: Sequence[subprocess.Popen[bytes]]) -> None:
            if whom.isdecimal():
                processes[int(whom)].kill()
                return
            bed.switch.kill()
            if whom != "switch":
                bed.switch = bed.start_switch()
                bed.install()

        ranks = bed.train(*WAYS["echelon"], do, float(silence_s))
    left = [rank for number, rank in enumerate(ranks) if str(number) != whom]
    if whom == "switch for a moment":
        return {"losses": left[0].found["losses"], "longest_s": max(left[0].found["times_s"])}
    return {
        "seconds": max(rank.seconds for rank in left),
        "statuses": [rank.status for rank in left],
        "said": [rank.said.splitlines()[-1].rpartition("RunError: ")[2] for rank in left],
    }


LOOKS: dict[str, Callable[..., dict[str, Any]]] = {"compare": compare, "kill": kill}


def look(name: str, *arguments: str) -> dict[str, Any]:
    """Return what a function of this module finds, in a sandbox of its own."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "found.json"
        command = [
            sys.executable,
            "-m",
            "plugins.aggregation.tests.training",
            "--look",
            str(file),
            name,
            *arguments,
        ]
        status = sandbox.run_inside(command)
        assert status == 0, f"status {status}"
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--target", choices=["softswitch", "bmv2"], action="append", help="may be repeated (both)"
    )
    parser.add_argument("--look", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look:
        file, name, *arguments = options.look
        Path(file).write_text(json.dumps(LOOKS[name](*arguments)))
        return
    if reason := sandbox.missing():
        sys.exit(reason)
    for target in options.target or ["softswitch", "bmv2"]:
        found = look("compare", target)
        print(
            f"\n| {target} | ms an iteration | last loss | largest difference from Gloo's"
            " |\n|---|---|---|---|"
        )
        for way, of in found.items():
            print(
                f"| {way} | {of['ms']:.1f} | {of['losses'][-1]:.6f} |"
                f" {largest_difference(found, way):.1e} |",
                flush=True,
            )
        print(f"\n| {target}: killed at step 50 | the others end after | with |\n|---|---|---|")
        for whom in ("3", "0", "switch"):
            killed = look("kill", target, whom, "5")
            for said in sorted(set(killed["said"])):
                print(f"| {whom} | {killed['seconds']:.1f} s | {said} |", flush=True)
        again = look("kill", target, "switch for a moment", "60")
        same = (
            "the same losses" if again["losses"] == found["echelon"]["losses"] else "other losses"
        )
        print(
            f"\nThe switch started again at once: {same}; the longest iteration took"
            f" {again['longest_s']:.1f} s.",
            flush=True,
        )


if __name__ == "__main__":
    main()
