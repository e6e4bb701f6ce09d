"""BMv2's `simple_switch_grpc`: tables by P4Runtime, queues in HTB trees behind its ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.model.documents import DocumentError
from echelon.model.errors import RunError
from echelon.switches.targets.bmv2.options import DEEPEST, HEADER_BYTES, Bmv2Options
from echelon.switches.targets.bmv2.sockets import enlarge, mtu_bytes, needed_buffer
from echelon.switches.targets.launching import (
    ExecutableLauncher,
    Place,
    Ports,
    SwitchLauncher,
    accepts,
)
from echelon.switches.targets.target import Site, Target

if TYPE_CHECKING:
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.southbound.queues import QueueDriver


_NOTIFICATIONS = "--notifications-addr"
_WITHOUT_THRIFT = b"compiled without Thrift support"
"""Words of a warning that only an executable without Thrift's server has, as BMv2 is built by
default."""
_QUEUE_BYTES = 1 << 20
"""The size of a queue unless a run says another one, the same as softswitch's: TCP without ECN,
which waits in a queue that hardly drains, loses its window in a shorter one."""


class Bmv2Launcher(ExecutableLauncher):
    """A launcher of `simple_switch_grpc`, with its Thrift server."""

    target = "bmv2"
    executable = "simple_switch_grpc"
    remedy = (
        "build P4's behavioral-model (configure --with-pi --with-thrift), or use the packages of"
        " p4.org; or use --target softswitch"
    )

    def find(self) -> str:
        problem = _missing()
        if problem is not None:
            raise RunError(f"target bmv2: {problem}")
        path = super().find()
        if _WITHOUT_THRIFT in Path(path).read_bytes():
            raise RunError(f"target bmv2: {path} has no Thrift (configure it with --with-thrift)")
        return path

    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        thrift = ["--thrift-port", str(ports.other)]
        if not accepts(self.find(), _NOTIFICATIONS):
            return thrift
        # By default, a BMv2 that was built with nanomsg leaves a socket file in /tmp.
        return [*thrift, _NOTIFICATIONS, f"inproc://{place.name}"]

    def entry(self, place: Place, ports: Ports) -> Mapping[str, object]:
        mtu = max(map(mtu_bytes, place.interfaces.values()))
        frame_bytes = mtu + HEADER_BYTES
        depth = _depth_packets(place, frame_bytes)
        interfaces = {str(port): interface for port, interface in place.interfaces.items()}
        return {
            "interfaces": interfaces,
            "thrift": f"127.0.0.1:{ports.other}",
            "mtu": mtu,
            "depth": depth,
            "send_buffer": needed_buffer(frame_bytes, depth),
        }

    def completion(self, entry: Mapping[str, object]) -> Callable[[int], None]:
        buffer_bytes = int(str(entry["send_buffer"]))
        return partial(enlarge, buffer_bytes=buffer_bytes)

    def serves_at(self, ports: Ports) -> Sequence[int]:
        return (ports.grpc, ports.other)


def _missing() -> str | None:
    """Return what is missing to speak with BMv2's Thrift server, and how to install it."""
    if find_spec("thriftpy2"):
        return None
    return "thriftpy2 is not installed (run: pip install 'echelon-p4[bmv2]')"


def _depth_packets(place: Place, frame_bytes: int) -> int:
    """Return how many packets each queue is to hold. Raise `RunError`."""
    queue_bytes = _QUEUE_BYTES if place.queue_bytes is None else place.queue_bytes
    depth = max(1, queue_bytes // frame_bytes)
    if depth > DEEPEST:
        raise RunError(
            f"switch {place.name}: queues of {place.queue_bytes} bytes are {depth} packets of"
            f" {frame_bytes} bytes, and BMv2's hold {DEEPEST} at most (give less)"
        )
    return depth


class Bmv2(Target[Bmv2Options]):
    """The target `bmv2`."""

    name = "bmv2"
    options = Bmv2Options

    def capabilities(self, options: Bmv2Options) -> Capabilities:
        from echelon.switches.targets.bmv2.htb import bmv2

        return bmv2(options.depth, options.mtu, options.program)

    def queue_driver(self, options: Bmv2Options, site: Site) -> QueueDriver:
        from echelon.switches.targets.bmv2.htb import Port
        from echelon.switches.targets.bmv2.queues import Bmv2Queues, ShapedPort

        problem = _missing()
        if options.thrift is not None and problem is not None:
            raise DocumentError(f"switch {site.switch}", "thrift", problem)
        ports = []
        for number, rate_bps in sorted(site.port_rates_bps.items()):
            port = Port(rate_bps, options.mtu, options.depth)
            interface = options.interface(number)
            ports.append(ShapedPort(number, interface, port))
        return Bmv2Queues(
            site.switch, ports, options.namespace, options.thrift, options.send_buffer
        )

    def launcher(self) -> SwitchLauncher:
        return Bmv2Launcher()
