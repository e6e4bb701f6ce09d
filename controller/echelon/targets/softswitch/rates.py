"""Rates of softswitch's queues and ports for PTF tests, set by gNMI."""

from __future__ import annotations

import json

import grpc  # type: ignore[import-untyped]
from finsy import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

from echelon.targets.rates import TIMEOUT_S, RatesError

_MAX_RATE = GNMIPath("qos/interfaces/interface[interface-id=0]/output/queues/queue[name=0]/config/softswitch:max-rate")
_PORT_RATE = GNMIPath("interfaces/interface[name=0]/config/softswitch:port-rate")


class GnmiRates:
    """A `QueueRates` that sets bits per second through the gNMI service at the address of P4Runtime."""

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
        # JSON_IETF carries 64-bit numbers as strings (RFC 7951, section 6.1).
        update = gnmi.Update(path=path.path, val=gnmi.TypedValue(json_ietf_val=json.dumps(str(value)).encode()))
        try:
            self._stub.Set(gnmi.SetRequest(update=[update]), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise RatesError(f"gNMI Set {path}: {error.code().name} {error.details()}") from None
