"""Switches as processes on the interfaces of a fabric: how those of a target start, what a controller is told."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from echelon.fabric.model import Fabric
from echelon.hosts.backends.interfaces import mtu_bytes
from echelon.hosts.sandbox import DIES_WITH_CALLER
from echelon.scenarios.results import RunError

__all__ = ["CPU_PORT", "LAUNCHERS", "SwitchLauncher", "SwitchProcess", "free_port"]

QUEUES = 8
CPU_PORT = 510
_NICENESS = -10
"""Less than a switch's share of a busy processor shows in the times of a run."""
_START_S = 30.0
_STOP_S = 5.0
_POLL_S = 0.01
_TAIL_BYTES = 2000
_SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")


class SwitchProcess(Protocol):
    """A switch that was started, without a P4 program: its controller brings one."""

    @property
    def address(self) -> str:
        """host:port of its P4Runtime (and gNMI) service, on the loopback interface of the launcher's namespace."""
        ...

    @property
    def options(self) -> Mapping[str, object]:
        """The switch's entry in the service's configuration, whole: `address`, `target` and what that target needs."""
        ...

    @property
    def pid(self) -> int: ...

    def wait_ready(self) -> None:
        """Until it answers. Raises `RunError`, with the end of what it said, if it does not."""
        ...

    def check(self) -> None:
        """Raises `RunError`, with the end of what it said, if it runs no more."""
        ...

    def stop(self) -> None:
        """Asks it to end, and waits. Idempotent."""
        ...

    def kill(self) -> None:
        """As a power cut does. Idempotent."""
        ...


class SwitchLauncher(Protocol):
    def launch(
        self,
        fabric: Fabric,
        switch: str,
        interfaces: Mapping[int, str],
        directory: Path,
        queue_bytes: int | None = None,
    ) -> SwitchProcess:
        """Start `switch` of `fabric` on `interfaces` (by port); what it prints goes to SWITCH.log in `directory`.

        `queue_bytes` is how much each queue of a port holds; None: the target's default. Does not wait (`wait_ready`),
        so that several start at once. The switch is killed when the thread that called ends. Raises `RunError` that
        says what to install, or what the target cannot hold.
        """
        ...


def free_port() -> int:
    """A TCP port of loopback that nobody uses now, another one at each call in this process."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given_out:
            _given_out.add(port)
            return port


_given_out: set[int] = set()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a switch is to run."""

    name: str
    device_id: int
    interfaces: Mapping[int, str]
    """By port."""
    rates_bps: Mapping[int, int]
    """By port: of the link there."""
    queue_bytes: int | None
    """Of each queue; None: the target's default."""
    grpc_port: int
    other_port: int
    """Of loopback, for what a target serves besides P4Runtime."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"


@dataclass(frozen=True, slots=True)
class Launcher:
    """A `SwitchLauncher`."""

    target: str
    """Its name in a configuration."""
    executable: str
    remedy: str
    """What to do where there is none."""
    arguments: Callable[[Place], Sequence[str]]
    options: Callable[[Place], Mapping[str, object]]
    """The keys of the target in the switch's entry in a configuration. May raise `RunError`."""
    ports: Callable[[Place], Sequence[int]]
    """Of loopback, on which it answers when it is ready."""

    def path(self) -> str | None:
        """Where it is installed: beside this Python, or on the PATH."""
        beside = Path(sys.executable).with_name(self.executable)
        return str(beside) if beside.exists() else shutil.which(self.executable)

    def launch(
        self,
        fabric: Fabric,
        switch: str,
        interfaces: Mapping[int, str],
        directory: Path,
        queue_bytes: int | None = None,
    ) -> SwitchProcess:
        path = self.path()
        if path is None:
            raise RunError(f"switch {switch}: {self.executable} is not installed ({self.remedy})")
        place = Place(
            name=switch,
            device_id=fabric.switches[switch].device_id,
            interfaces=interfaces,
            rates_bps={port: fabric.rate_bps[switch, other] for port, other in fabric.ports[switch].items()},
            queue_bytes=queue_bytes,
            grpc_port=free_port(),
            other_port=free_port(),
        )
        entry = {"address": place.address, "target": self.target, **self.options(place)}
        log = directory / f"{switch}.log"
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*_WRAPPED, path, *self.arguments(place)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Of its own, or Ctrl-C in a terminal would end the switch before what uses it.
                    process_group=0,
                )
        except OSError as error:
            raise RunError(f"switch {switch}: {error.filename}: {error.strerror}") from None
        return _Process(switch, self, place, process, log, entry)


_WRAPPED = (*DIES_WITH_CALLER, "nice", "-n", str(_NICENESS))


@dataclass(frozen=True, slots=True)
class _Process:
    """A `SwitchProcess`."""

    name: str
    launcher: Launcher
    place: Place
    process: subprocess.Popen[bytes]
    log: Path
    options: Mapping[str, object]

    @property
    def address(self) -> str:
        return self.place.address

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        give_up_at = time.monotonic() + _START_S
        for port in self.launcher.ports(self.place):
            while not _answers(port):
                self.check()
                if time.monotonic() > give_up_at:
                    raise RunError(f"switch {self.name}: does not answer after {_START_S:g} s: {self._said()}")
                time.sleep(_POLL_S)

    def check(self) -> None:
        status = self.process.poll()
        if status is not None:
            how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
            raise RunError(f"switch {self.name}: {self.launcher.executable} ended {how}: {self._said()}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _said(self) -> str:
        with self.log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _TAIL_BYTES))
            last = log.read().decode(errors="replace").strip().splitlines()[-3:]
        return " | ".join(last) or "it says nothing"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- targets -------------------------------------------------------------------------------------------------------


def _common(place: Place) -> list[str]:
    """What `softswitch` has in common with `simple_switch_grpc`."""
    attached = [word for port, interface in place.interfaces.items() for word in ("-i", f"{port}@{interface}")]
    return ["--no-p4", "--device-id", str(place.device_id), *attached]


def _served(place: Place) -> list[str]:
    return ["--grpc-server-addr", place.address, "--cpu-port", str(CPU_PORT), "--priority-queues", str(QUEUES)]


def _softswitch_arguments(place: Place) -> Sequence[str]:
    rates = [word for port, rate_bps in place.rates_bps.items() for word in ("--port-rate", f"{port}={rate_bps}")]
    depth = [] if place.queue_bytes is None else ["--queue-depth", str(place.queue_bytes)]
    return [*_common(place), *rates, *depth, "--", *_served(place)]


def _bmv2_arguments(place: Place) -> Sequence[str]:
    # Notifications would need a socket file, by default one in /tmp that stays there.
    own = ["--thrift-port", str(place.other_port), "--notifications-addr", f"inproc://{place.name}"]
    return [*_common(place), *own, "--", *_served(place)]


def _bmv2_options(place: Place) -> Mapping[str, object]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        mtu = max(mtu_bytes(here, interface) for interface in place.interfaces.values())
    return {
        "interfaces": {str(port): interface for port, interface in place.interfaces.items()},
        "thrift": f"127.0.0.1:{place.other_port}",
        "mtu": mtu,
        "depth": _bmv2_depth(place, mtu),
    }


def _bmv2_depth(place: Place, mtu: int) -> int:
    """Packets of a queue. The send buffers of BMv2's sockets must have room for all queues of a port; of jumbo frames
    that is hardly one (net.core.wmem_default is the whole machine's, and not ours to raise)."""
    from echelon.southbound.queues.bmv2 import socket_bytes
    from echelon.southbound.queues.htb import Port
    from echelon.southbound.targets import Bmv2Options

    frame_bytes = Port(0, mtu).frame_bytes
    try:
        most = max(1, int(_SEND_BUFFER.read_text()) // (QUEUES * socket_bytes(frame_bytes)))
    except (OSError, ValueError):
        most = 10_000
    if place.queue_bytes is None:
        default: int = Bmv2Options.model_fields["depth"].default
        return min(default, most)
    wanted = max(1, place.queue_bytes // frame_bytes)
    if wanted > most:
        raise RunError(
            f"switch {place.name}: queues of {place.queue_bytes} bytes are more than BMv2 holds here, {most} packets "
            f"of {frame_bytes} bytes each (give less, or raise net.core.wmem_default)"
        )
    return wanted


LAUNCHERS: Mapping[str, SwitchLauncher] = {
    launcher.target: launcher
    for launcher in (
        Launcher(
            target="softswitch",
            executable="softswitch",
            remedy="it comes with this package: pip install echelon-p4",
            arguments=_softswitch_arguments,
            options=lambda _place: {},
            ports=lambda place: (place.grpc_port,),
        ),
        Launcher(
            target="bmv2",
            executable="simple_switch_grpc",
            remedy="build P4's behavioral-model, or use the packages of p4.org; or take --target softswitch",
            arguments=_bmv2_arguments,
            options=_bmv2_options,
            ports=lambda place: (place.grpc_port, place.other_port),
        ),
    )
}
"""By target, as a switch's entry in a configuration names it."""
