"""The gRPC shell around `BfRuntime`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import grpc  # type: ignore[import-untyped]

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino_model.bfruntime.service import BfRuntime
from softswitch.rpc import handlers
from softswitch.rpc.endings import abort, until_end
from softswitch.rpc.listener import Listener
from softswitch.rpc.status import BatchFailedError, Code, RefusedError, Status

__all__ = ["BfRuntimeServer"]

_BACKLOG = 100_000
"""The number of messages that may wait for a client that does not read.

Further ones are dropped.
"""

_Outbox = SimpleQueue[bfrt.StreamMessageResponse | Status | None]


class BfRuntimeServer(Listener):
    """A gRPC server for BF Runtime.

    Args:
        service: what it serves.
        address: "host:port"; port 0 takes a free one.
        max_workers: the number of RPCs served at a time; an open stream counts as one.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(
        self,
        service: BfRuntime,
        address: str = "127.0.0.1:0",
        *,
        max_workers: int = 32,
    ) -> None:
        super().__init__(
            [_handlers(_Calls(service))],
            address,
            threads=max_workers,
            name="softswitch-bfrt",
        )


def _handlers(calls: _Calls) -> grpc.GenericRpcHandler:
    methods: dict[str, grpc.RpcMethodHandler] = {}
    methods["Write"] = handlers.unary_unary(
        calls.write, bfrt.WriteRequest.FromString, bfrt.WriteResponse
    )
    methods["Read"] = handlers.unary_stream(
        calls.read, bfrt.ReadRequest.FromString, bfrt.ReadResponse
    )
    methods["StreamChannel"] = handlers.stream_stream(
        calls.stream, bfrt.StreamMessageRequest.FromString, bfrt.StreamMessageResponse
    )
    methods["SetForwardingPipelineConfig"] = handlers.unary_unary(
        calls.set_pipeline,
        bfrt.SetForwardingPipelineConfigRequest.FromString,
        bfrt.SetForwardingPipelineConfigResponse,
    )
    methods["GetForwardingPipelineConfig"] = handlers.unary_unary(
        calls.get_pipeline,
        bfrt.GetForwardingPipelineConfigRequest.FromString,
        bfrt.GetForwardingPipelineConfigResponse,
    )
    return grpc.method_handlers_generic_handler("bfrt_proto.BfRuntime", methods)


class _Calls:
    def __init__(self, service: BfRuntime) -> None:
        self._service = service

    def write(self, request: bfrt.WriteRequest, context: Any) -> bfrt.WriteResponse:
        metadata = dict(context.invocation_metadata())
        ignore_not_found = metadata.get("ignore_not_found") == "1"
        errors_in_answer = metadata.get("error_in_resp") == "1"
        try:
            return self._service.write(
                request,
                ignore_not_found=ignore_not_found,
                errors_in_answer=errors_in_answer,
            )
        except (RefusedError, BatchFailedError) as error:
            abort(context, error, bfrt.Error)

    def read(self, request: bfrt.ReadRequest, context: Any) -> Iterator[bfrt.ReadResponse]:
        try:
            yield from self._service.read(request)
        except (RefusedError, BatchFailedError) as error:
            abort(context, error, bfrt.Error)

    def set_pipeline(
        self, request: bfrt.SetForwardingPipelineConfigRequest, context: Any
    ) -> bfrt.SetForwardingPipelineConfigResponse:
        try:
            self._service.set_pipeline(request)
        except RefusedError as error:
            abort(context, error, bfrt.Error)
        return bfrt.SetForwardingPipelineConfigResponse()

    def get_pipeline(
        self, request: bfrt.GetForwardingPipelineConfigRequest, context: Any
    ) -> bfrt.GetForwardingPipelineConfigResponse:
        try:
            return self._service.get_pipeline(request)
        except RefusedError as error:
            abort(context, error, bfrt.Error)

    def stream(
        self, requests: Iterable[bfrt.StreamMessageRequest], context: Any
    ) -> Iterator[bfrt.StreamMessageResponse]:
        # The queue decouples the device from the socket: it must not wait for a slow client while
        # it holds its lock.
        outbox: _Outbox = SimpleQueue()
        session = _Session(self._service, outbox)
        if not context.add_callback(lambda: outbox.put(None)):
            return  # the call has already ended
        thread = threading.Thread(
            target=session.serve,
            args=(requests,),
            name="softswitch-bfrt-stream",
            daemon=True,
        )
        thread.start()
        try:
            yield from until_end(outbox.get, context)
        finally:
            session.close()


class _Session:
    """One StreamChannel, which is nobody's until its client subscribes."""

    def __init__(self, service: BfRuntime, outbox: _Outbox) -> None:
        self._service = service
        self._outbox = outbox
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._closed = False

    def serve(self, requests: Iterable[bfrt.StreamMessageRequest]) -> None:
        """Pass the client's messages on until it has no more, or is gone."""
        try:
            # An iterator's RpcError is its sign that the call was cancelled.
            with suppress(grpc.RpcError):
                for request in requests:
                    self._receive(request)
        except RefusedError as error:
            self._outbox.put(error.status)
        finally:
            self._outbox.put(None)

    def close(self) -> None:
        """End the subscription. Later messages are ignored."""
        with self._lock:
            self._closed = True
            end = self._end
        if end is not None:
            end()

    def _receive(self, request: bfrt.StreamMessageRequest) -> None:
        match request.WhichOneof("update"):
            case "subscribe":
                with self._lock:
                    if self._end is None and not self._closed:
                        self._end = self._service.subscribe(
                            request.client_id, request.subscribe, self._send
                        )
            case "digest_ack":
                # The open SDE acknowledges lists by itself, and ends the stream of a client that
                # does.
                raise RefusedError(
                    Code.UNIMPLEMENTED, "lists of digests are not acknowledged by clients"
                )

    def _send(self, message: bfrt.StreamMessageResponse) -> None:
        if self._outbox.qsize() < _BACKLOG:
            self._outbox.put(message)
