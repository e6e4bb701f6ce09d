"""Making queues build up: the one thing tests need of a target that P4Runtime has no word for.

Each kind of channel is one class; a test asks the object what it can do (`can_limit_ports`) and is skipped, with
`reason`, where it cannot.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Protocol

import grpc  # type: ignore[import-untyped]
from finsy import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

from echelon_ptf.control import TIMEOUT_S, TargetError

_MAX_RATE = GNMIPath("qos/interfaces/interface[interface-id=0]/output/queues/queue[name=0]/config/softswitch:max-rate")
_PORT_RATE = GNMIPath("interfaces/interface[name=0]/config/softswitch:port-rate")
_THRIFT_CLI = "simple_switch_CLI"


class QueueRates(Protocol):
    """Rates of a target's egress queues and ports. Calls raise TargetError when the target refuses."""

    @property
    def can_limit_queues(self) -> bool: ...

    @property
    def can_limit_ports(self) -> bool: ...

    @property
    def reason(self) -> str:
        """Why it cannot do what it cannot."""
        ...

    def limit_queue(self, port: int, queue: int, packets_per_s: int, frame_bytes: int) -> None:
        """Let at most so many packets of that size leave the queue in a second; 0 packets: as many as come."""

    def limit_port(self, port: int, packets_per_s: int, frame_bytes: int) -> None:
        """The same for a port, whose queues then share it by priority."""


class NoRates:
    """A target of which nobody knows how to slow it down."""

    can_limit_queues = False
    can_limit_ports = False
    reason = "the target has no channel that sets queue rates"

    def limit_queue(self, port: int, queue: int, packets_per_s: int, frame_bytes: int) -> None:
        raise TargetError(self.reason)

    def limit_port(self, port: int, packets_per_s: int, frame_bytes: int) -> None:
        raise TargetError(self.reason)


class GnmiRates:
    """Bits per second, by the gNMI service that is at the same address as P4Runtime."""

    can_limit_queues = True
    can_limit_ports = True
    reason = ""

    def __init__(self, address: str) -> None:
        self._stub = gnmi_grpc.gNMIStub(grpc.insecure_channel(address))

    def limit_queue(self, port: int, queue: int, packets_per_s: int, frame_bytes: int) -> None:
        path = _MAX_RATE.set("interface", **{"interface-id": str(port)}).set("queue", name=str(queue))
        self._set(path, packets_per_s * frame_bytes * 8)

    def limit_port(self, port: int, packets_per_s: int, frame_bytes: int) -> None:
        self._set(_PORT_RATE.set("interface", name=str(port)), packets_per_s * frame_bytes * 8)

    def _set(self, path: GNMIPath, value: int) -> None:
        # Numbers of 64 bits are strings in JSON_IETF (RFC 7951).
        update = gnmi.Update(path=path.path, val=gnmi.TypedValue(json_ietf_val=json.dumps(str(value)).encode()))
        try:
            self._stub.Set(gnmi.SetRequest(update=[update]), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise TargetError(f"gNMI Set {path}: {error.code().name} {error.details()}") from None


class ThriftRates:
    """Packets per second, by the command line client that comes with BMv2.

    Each queue has a clock of its own: with all eight slowed to a rate, the port sends eight times as much, and none
    waits for another. So there is no slow port.
    """

    can_limit_ports = False

    def __init__(self, thrift_port: int) -> None:
        self._thrift_port = thrift_port
        self._cli = shutil.which(_THRIFT_CLI)

    @property
    def can_limit_queues(self) -> bool:
        return self._cli is not None

    @property
    def reason(self) -> str:
        if self._cli is None:
            return f"{_THRIFT_CLI}, which sets queue rates, is not installed"
        return "the target slows queues one by one, not ports"

    def limit_queue(self, port: int, queue: int, packets_per_s: int, frame_bytes: int) -> None:
        if self._cli is None:
            raise TargetError(self.reason)
        line = f"set_queue_rate {packets_per_s} {port} {queue}"
        command = [self._cli, "--thrift-port", str(self._thrift_port)]
        done = subprocess.run(command, input=line + "\n", capture_output=True, text=True, timeout=4 * TIMEOUT_S)
        answer = done.stdout.partition("RuntimeCmd:")[2].removeprefix(" ").removesuffix("RuntimeCmd: \n").strip()
        if done.returncode or answer:
            raise TargetError(f"{_THRIFT_CLI}: {line}: {answer or done.stderr.strip() or done.returncode}")

    def limit_port(self, port: int, packets_per_s: int, frame_bytes: int) -> None:
        raise TargetError(self.reason)


def open_rates(channel: str, address: str) -> QueueRates:
    """`channel` is gnmi (at `address`), thrift:PORT or none. Raises ValueError for another one."""
    kind, _, argument = channel.partition(":")
    if kind == "gnmi":
        return GnmiRates(address)
    if kind == "thrift":
        return ThriftRates(int(argument))
    if kind == "none":
        return NoRates()
    raise ValueError(f"queue rates {channel!r}: neither gnmi, thrift:PORT nor none")
