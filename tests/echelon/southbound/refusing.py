"""A proxy before a switch that refuses parts of what a controller wants, and passes on the rest.

It knows P4Runtime and gNMI only as far as it refuses: everything else goes through as bytes, so any
switch may be behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from finsy.proto import gnmi, p4r, rpc_code, rpc_status

P4RUNTIME = "/p4.v1.P4Runtime/"
SET = "/gnmi.gNMI/Set"


@dataclass
class Refusals:
    """The parts that a switch refuses from now on; they may change at any time."""

    ports: Collection[int] = ()
    """The ports whose queues are not set."""
    tables: Collection[int] = ()
    """The tables, by id, of which no entry is written."""
    digests: bool = False
    groups: bool = False
    everything: str = ""
    """The reason for which every write is refused as a whole."""
    program: bool = False
    calls: list[str] = field(default_factory=list)
    """The names of all calls so far."""


class RefusingSwitch:
    """A proxy of the switch at `behind`."""

    def __init__(self, behind: str, refusals: Refusals, address: str = "127.0.0.1:0") -> None:
        self._channel = grpc.insecure_channel(behind)
        self._refusals = refusals
        # A session holds up to four calls for as long as it lasts.
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=[self])
        port = self._server.add_insecure_port(address)
        self.address = f"127.0.0.1:{port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()
        self._channel.close()

    def service(self, call: Any) -> Any:
        method = call.method

        def handle(requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
            return self._handle(method, requests, context)

        # On the wire there is no difference between calls of one message and of several.
        return grpc.stream_stream_rpc_method_handler(handle)

    def _handle(self, method: str, requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
        self._refusals.calls.append(method.rpartition("/")[2])
        if method == P4RUNTIME + "Write":
            requests = [self._allowed(next(iter(requests)), context)]
        elif method == SET:
            requests = [self._checked(next(iter(requests)), context)]
        elif method == P4RUNTIME + "SetForwardingPipelineConfig" and self._refusals.program:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this program does not fit")
        yield from self._pass_on(method, iter(requests), context)

    def _pass_on(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        call = self._channel.stream_stream(method)(requests)
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            with suppress(StopIteration):
                yield from call
        except grpc.RpcError as error:
            context.set_trailing_metadata(call.trailing_metadata() or ())
            context.abort(error.code(), error.details())

    def _allowed(self, raw: bytes, context: Any) -> bytes:
        """Return the write without what is refused; if something is, write the rest and abort."""
        request = p4r.WriteRequest.FromString(raw)
        if self._refusals.everything:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._refusals.everything)
        reasons = [self._reason(update.entity) for update in request.updates]
        if not any(reasons):
            return raw
        rest = p4r.WriteRequest()
        rest.CopyFrom(request)
        del rest.updates[:]
        updates = zip(request.updates, reasons, strict=True)
        rest.updates.extend(update for update, reason in updates if not reason)
        if rest.updates:
            write = self._channel.unary_unary(P4RUNTIME + "Write")
            write(rest.SerializeToString())
        status = rpc_status.Status(code=rpc_code.UNKNOWN, message="some updates are refused")
        for reason in reasons:
            code = rpc_code.UNIMPLEMENTED if reason else rpc_code.OK
            status.details.add().Pack(p4r.Error(canonical_code=code, message=reason))
        details = ("grpc-status-details-bin", status.SerializeToString())
        context.set_trailing_metadata([details])
        context.abort(grpc.StatusCode.UNKNOWN, status.message)
        raise AssertionError("abort raises")

    def _reason(self, entity: Any) -> str:
        refusals = self._refusals
        match entity.WhichOneof("entity"):
            case "table_entry" if entity.table_entry.table_id in refusals.tables:
                return "this table is not here"
            case "digest_entry" if refusals.digests:
                return "no digests here"
            case "packet_replication_engine_entry" if refusals.groups:
                return "no groups here"
        return ""

    def _checked(self, raw: bytes, context: Any) -> bytes:
        for update in gnmi.SetRequest.FromString(raw).update:
            for element in update.path.elem:
                port = element.key.get("interface-id")
                if port is not None and int(port) in self._refusals.ports:
                    context.abort(
                        grpc.StatusCode.FAILED_PRECONDITION, f"port {port} keeps its own queues"
                    )
        return raw
