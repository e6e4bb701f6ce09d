"""Rates of a switch's queues and ports under test, for which P4Runtime has no message."""

from __future__ import annotations

import json
from collections.abc import Mapping

import grpc  # type: ignore[import-untyped]
from finsy import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

from echelon.switches.targets import find_target
from echelon.switches.targets.bmv2 import Bmv2
from echelon.switches.targets.bmv2.options import ServerAddress
from echelon.switches.targets.bmv2.thrift import ThriftError, limit_queue
from echelon.switches.targets.rates import TIMEOUT_S, FrameRate, QueueRates, RatesError
from echelon.switches.targets.softswitch import EmbeddedTarget

_MAX_RATE = GNMIPath(
    "qos/interfaces/interface[interface-id=0]/output/queues/queue[name=0]/config"
    "/softswitch:max-rate"
)
_PORT_RATE = GNMIPath("interfaces/interface[name=0]/config/softswitch:port-rate")


def rates_of(entry: Mapping[str, str]) -> QueueRates:
    """Return the rates of the switch that an entry of a configuration describes."""
    if "target" not in entry:
        return QueueRates()
    target = find_target(entry["target"], "--test-params", "switch.target")
    if isinstance(target, EmbeddedTarget):
        return GnmiRates(entry["address"])
    if isinstance(target, Bmv2):
        return ThriftRates(ServerAddress.parse(entry["thrift"]))
    return target.queue_rates(entry)


class GnmiRates(QueueRates):
    """The rates that gNMI sets at the address of P4Runtime."""

    can_limit_queues = True
    can_limit_ports = True

    def __init__(self, address: str) -> None:
        self._stub = gnmi_grpc.gNMIStub(grpc.insecure_channel(address))

    def limit_queue(self, port: int, queue: int, rate: FrameRate) -> None:
        path = _MAX_RATE.set("interface", **{"interface-id": str(port)})
        self._set(path.set("queue", name=str(queue)), rate)

    def limit_port(self, port: int, rate: FrameRate) -> None:
        path = _PORT_RATE.set("interface", name=str(port))
        self._set(path, rate)

    def _set(self, path: GNMIPath, rate: FrameRate) -> None:
        # JSON_IETF carries 64-bit numbers as strings (RFC 7951, section 6.1).
        text = json.dumps(str(rate.bits_per_s)).encode()
        update = gnmi.Update(
            path=path.path,
            val=gnmi.TypedValue(json_ietf_val=text),
        )
        try:
            request = gnmi.SetRequest(update=[update])
            self._stub.Set(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise RatesError(f"gNMI Set {path}: {error.code().name} {error.details()}") from None


class ThriftRates(QueueRates):
    """The rates that BMv2's Thrift service sets.

    It cannot limit a port: each queue has a clock of its own, so with all eight queues limited the
    port sends eight times the rate, and no queue waits for another.
    """

    can_limit_queues = True
    reason = "the target slows queues one by one, not ports"

    def __init__(self, server: ServerAddress) -> None:
        self._server = server

    def limit_queue(self, port: int, queue: int, rate: FrameRate) -> None:
        try:
            limit_queue(self._server, port, queue, rate.packets_per_s)
        except ThriftError as error:
            raise RatesError(str(error)) from None
