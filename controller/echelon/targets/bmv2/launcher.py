"""Starts BMv2 as a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.errors import RunError
from echelon.targets.bmv2.htb import Port
from echelon.targets.bmv2.options import Bmv2Options
from echelon.targets.bmv2.sockets import deepest_queue, mtu_bytes, send_buffer_bytes
from echelon.targets.launching import ExecutableLauncher, Place, Ports, accepts

_NOTIFICATIONS = "--notifications-addr"


class Bmv2Launcher(ExecutableLauncher):
    """A launcher of `simple_switch_grpc`, with its Thrift server."""

    target = "bmv2"
    executable = "simple_switch_grpc"
    remedy = "build P4's behavioral-model, or use the packages of p4.org; or use --target softswitch"

    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        thrift = ["--thrift-port", str(ports.other)]
        if not accepts(self.find(), _NOTIFICATIONS):
            return thrift
        # By default, a BMv2 that was built with nanomsg leaves a socket file in /tmp.
        return [*thrift, _NOTIFICATIONS, f"inproc://{place.name}"]

    def entry(self, place: Place, ports: Ports) -> Mapping[str, object]:
        mtu = max(map(mtu_bytes, place.interfaces.values()))
        return {
            "interfaces": {str(port): interface for port, interface in place.interfaces.items()},
            "thrift": f"127.0.0.1:{ports.other}",
            "mtu": mtu,
            "depth": _depth_packets(place, mtu),
        }

    def serves_at(self, ports: Ports) -> Sequence[int]:
        return (ports.grpc, ports.other)


def _depth_packets(place: Place, mtu: int) -> int:
    """Return how many packets each queue is to hold. Of jumbo frames, the sockets' buffers take hardly one.

    Raises `RunError` for more than BMv2's sockets have room for: their buffer is a setting of the whole machine.
    """
    frame_bytes = Port(0, mtu).frame_bytes
    buffer_bytes = send_buffer_bytes()
    most = 10_000 if buffer_bytes is None else max(1, deepest_queue(frame_bytes, buffer_bytes))
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
