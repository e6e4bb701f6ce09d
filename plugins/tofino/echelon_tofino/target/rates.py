"""Rates of a Tofino's queues and ports for PTF tests, set by the tables of its traffic manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]

from echelon.switches.targets.rates import TIMEOUT_S, FrameRate, QueueRates, RatesError
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino.target.channel import ALL_PIPES
from echelon_tofino.target.fixed import FixedTable, fixed_tables
from echelon_tofino.target.queues import PORTS_PER_PIPE_BITS

_SERVICE = "/bfrt_proto.BfRuntime/"
_ANY_CLIENT = "$SHARED"
"""The name by which a client reaches the fixed tables without subscribing."""
_PORT = "tf1.tm.port.cfg"
_PORT_TABLES = "tf1.tm.port"
_QUEUE_TABLES = "tf1.tm.queue"


class BfrtRates(QueueRates):
    """The maximum rates that the BF Runtime service sets."""

    can_limit_queues = True
    can_limit_ports = True

    def __init__(self, address: str, device: int = 0) -> None:
        channel = grpc.insecure_channel(address)
        self._device = device
        self._write = channel.unary_unary(
            f"{_SERVICE}Write",
            bfrt.WriteRequest.SerializeToString,
            bfrt.WriteResponse.FromString,
        )
        self._read = channel.unary_stream(
            f"{_SERVICE}Read",
            bfrt.ReadRequest.SerializeToString,
            bfrt.ReadResponse.FromString,
        )
        self._config = channel.unary_unary(
            f"{_SERVICE}GetForwardingPipelineConfig",
            bfrt.GetForwardingPipelineConfigRequest.SerializeToString,
            bfrt.GetForwardingPipelineConfigResponse.FromString,
        )
        self._tables: Mapping[str, FixedTable] = {}

    def limit_queue(
        self,
        port: int,
        queue: int,
        rate: FrameRate,
    ) -> None:
        place = self._place(port)
        queues = place["egress_qid_queues"]
        key = {
            "pg_id": place["pg_id"],
            "pg_queue": queues[queue],
        }
        pipe = port >> PORTS_PER_PIPE_BITS
        self._limit(_QUEUE_TABLES, key, pipe, rate.bits_per_s)

    def limit_port(
        self,
        port: int,
        rate: FrameRate,
    ) -> None:
        self._limit(_PORT_TABLES, {"dev_port": port}, ALL_PIPES, rate.bits_per_s)

    def _limit(
        self,
        scope: str,
        key: Mapping[str, int],
        pipe: int,
        rate_bps: int,
    ) -> None:
        shaping = self._table(f"{scope}.sched_shaping")
        scheduling = self._table(f"{scope}.sched_cfg")
        request = bfrt.WriteRequest(p4_name=_ANY_CLIENT)
        request.target.device_id = self._device
        request.target.pipe_id = pipe
        if rate_bps:
            # The rate first: it must be right when it is enabled.
            rate = {"unit": "BPS", "max_rate": max(1, rate_bps // 1000)}
            request.updates.append(shaping.update(key, rate))
        request.updates.append(scheduling.update(key, {"max_rate_enable": rate_bps > 0}))
        try:
            self._write(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise _refused(f"writing {scope}", error) from None

    def _place(self, port: int) -> Mapping[str, Any]:
        table = self._table(_PORT)
        request = bfrt.ReadRequest(
            p4_name=_ANY_CLIENT,
            entities=[table.query({"dev_port": port})],
        )
        request.target.device_id = self._device
        request.target.pipe_id = ALL_PIPES
        try:
            (answer,) = self._read(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise _refused(f"reading {_PORT}", error) from None
        return table.values(answer.entities[0].table_entry)

    def _table(self, name: str) -> FixedTable:
        if not self._tables:
            names = [_PORT]
            for scope in (_PORT_TABLES, _QUEUE_TABLES):
                names += (f"{scope}.sched_shaping", f"{scope}.sched_cfg")
            request = bfrt.GetForwardingPipelineConfigRequest(device_id=self._device)
            try:
                answer = self._config(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise _refused("reading the fixed tables", error) from None
            self._tables = fixed_tables(answer.non_p4_config.bfruntime_info, names)
        return self._tables[name]


def _refused(purpose: str, error: Any) -> RatesError:
    return RatesError(f"{purpose}: {error.code().name} {error.details()}")
