"""Rates of a Tofino's queues and ports for PTF tests, set by the tables of its traffic manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]

from echelon.switches.targets.rates import TIMEOUT_S, RatesError
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino.target.channel import ALL_PIPES
from echelon_tofino.target.fixed import FixedTable, fixed_tables
from echelon_tofino.target.queues import PORTS_PER_PIPE_BITS

_SERVICE = "/bfrt_proto.BfRuntime/"
_ANY_CLIENT = "$SHARED"
"""The name by which a client reaches the fixed tables without subscribing."""
_PORT = "tf1.tm.port.cfg"
_OF_PORT = "tf1.tm.port"
_OF_QUEUE = "tf1.tm.queue"


class BfrtRates:
    """A `QueueRates` that sets maximum rates in kilobits per second through the BF Runtime
    service.
    """

    can_limit_queues = True
    can_limit_ports = True
    reason = ""

    def __init__(self, address: str, device: int = 0) -> None:
        channel = grpc.insecure_channel(address)
        self._device = device
        self._write = channel.unary_unary(
            _SERVICE + "Write", bfrt.WriteRequest.SerializeToString, bfrt.WriteResponse.FromString
        )
        self._read = channel.unary_stream(
            _SERVICE + "Read", bfrt.ReadRequest.SerializeToString, bfrt.ReadResponse.FromString
        )
        self._config = channel.unary_unary(
            _SERVICE + "GetForwardingPipelineConfig",
            bfrt.GetForwardingPipelineConfigRequest.SerializeToString,
            bfrt.GetForwardingPipelineConfigResponse.FromString,
        )
        self._tables: Mapping[str, FixedTable] = {}

    def limit_queue(self, port: int, queue: int, packets_per_s: int, frame_bytes: int) -> None:
        place = self._place(port)
        key = {"pg_id": place["pg_id"], "pg_queue": place["egress_qid_queues"][queue]}
        self._limit(_OF_QUEUE, key, port >> PORTS_PER_PIPE_BITS, packets_per_s * frame_bytes * 8)

    def limit_port(self, port: int, packets_per_s: int, frame_bytes: int) -> None:
        self._limit(_OF_PORT, {"dev_port": port}, ALL_PIPES, packets_per_s * frame_bytes * 8)

    def _limit(self, of: str, key: Mapping[str, int], pipe: int, rate_bps: int) -> None:
        shaping, scheduling = (
            self._table(f"{of}.{name}") for name in ("sched_shaping", "sched_cfg")
        )
        request = bfrt.WriteRequest(p4_name=_ANY_CLIENT)
        request.target.device_id = self._device
        request.target.pipe_id = pipe
        if rate_bps:
            # The rate first: it must be right when it is enabled.
            request.updates.append(
                shaping.update(key, {"unit": "BPS", "max_rate": max(1, rate_bps // 1000)})
            )
        request.updates.append(scheduling.update(key, {"max_rate_enable": rate_bps > 0}))
        try:
            self._write(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise _refused(f"writing {of}", error) from None

    def _place(self, port: int) -> Mapping[str, Any]:
        table = self._table(_PORT)
        request = bfrt.ReadRequest(p4_name=_ANY_CLIENT, entities=[table.query({"dev_port": port})])
        request.target.device_id = self._device
        request.target.pipe_id = ALL_PIPES
        try:
            (answer,) = self._read(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise _refused(f"reading {_PORT}", error) from None
        return table.values(answer.entities[0].table_entry)

    def _table(self, name: str) -> FixedTable:
        if not self._tables:
            names = [
                _PORT,
                *(
                    f"{of}.{name}"
                    for of in (_OF_PORT, _OF_QUEUE)
                    for name in ("sched_shaping", "sched_cfg")
                ),
            ]
            request = bfrt.GetForwardingPipelineConfigRequest(device_id=self._device)
            try:
                self._tables = fixed_tables(
                    self._config(request, timeout=TIMEOUT_S).non_p4_config.bfruntime_info, names
                )
            except grpc.RpcError as error:
                raise _refused("reading the fixed tables", error) from None
        return self._tables[name]


def _refused(what: str, error: Any) -> RatesError:
    return RatesError(f"{what}: {error.code().name} {error.details()}")
