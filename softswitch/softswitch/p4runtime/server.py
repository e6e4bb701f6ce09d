"""The gRPC shell around `Device`: P4Runtime and gNMI on one port.

`Device` and `softswitch.gnmi` make all decisions. This module moves messages between them and
gRPC's threads.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r

from softswitch.gnmi.service import GnmiService
from softswitch.p4runtime.device import ControllerStream, Device
from softswitch.p4runtime.wire import WireRequest
from softswitch.rpc import handlers
from softswitch.rpc.endings import abort
from softswitch.rpc.listener import Listener
from softswitch.rpc.local import LocalChannel, LocalStream
from softswitch.rpc.status import BatchFailedError, Code, RefusedError, Status

__all__ = ["Server"]

_BACKLOG = 10_000
"""The number of messages that may wait for a slow client before further packet-ins are dropped."""

_HARD_BACKLOG = 10
"""The multiple of `_BACKLOG` from which everything but arbitration is dropped.

The specification allows it. A client that never reads must not take all memory.
"""


class Server(Listener):
    """A gRPC server for one or several devices.

    A P4Runtime message names its device by device id. A gNMI request names it by `prefix.target`
    (the device id in decimal), which may be left out if there is only one device.

    Args:
        devices: the devices, by distinct device ids.
        address: "host:port"; port 0 takes a free one.
        credentials: the TLS that clients must speak (`grpc.ssl_server_credentials`); None means
            plain text.
        max_workers: the number of RPCs served at a time, where an open stream or gNMI subscription
            counts as one; others wait. None means 32, and 16 more per device.

    Raises:
        ValueError: there is no device, or two have the same id.
        OSError: the address cannot be used.
    """

    def __init__(
        self,
        devices: Device | Sequence[Device],
        address: str = "127.0.0.1:0",
        *,
        credentials: grpc.ServerCredentials | None = None,
        max_workers: int | None = None,
    ) -> None:
        listed = [devices] if isinstance(devices, Device) else list(devices)
        self.devices = {device.device_id: device for device in listed}
        if not listed:
            raise ValueError("devices: a server needs at least one")
        if len(self.devices) != len(listed):
            raise ValueError("devices: two have the same device id")
        self._services = [
            _handlers(_P4RuntimeService(self.devices)),
            GnmiService(self.devices).handlers(),
        ]
        self._local: WeakSet[LocalStream] = WeakSet()
        super().__init__(
            self._services,
            address,
            threads=max_workers or 32 + 16 * len(listed),
            name="softswitch-rpc",
            credentials=credentials,
        )

    def local_channel(self) -> LocalChannel:
        """Return a channel for clients in this process, whether or not the server serves others."""
        return LocalChannel(self._services, self._open_local_stream)

    def _open_local_stream(self, stream: LocalStream) -> _Session:
        self._local.add(stream)
        if not self._services:
            stream.put(None)
        return _Session(self.devices, stream)

    def stop(self, grace_s: float | None = None) -> None:
        self._services.clear()
        for stream in self._local:
            stream.put(None)
        super().stop(grace_s)


class _P4RuntimeService:
    def __init__(self, devices: dict[int, Device]) -> None:
        self._devices = devices

    def write(self, request: WireRequest, context: Any) -> p4r.WriteResponse:
        try:
            self._device(request.header.device_id).write_all(request)
        except (RefusedError, BatchFailedError) as error:
            abort(context, error, p4r.Error)
        return p4r.WriteResponse()

    def read(self, request: p4r.ReadRequest, context: Any) -> Iterator[p4r.ReadResponse]:
        try:
            yield from self._device(request.device_id).read(request)
        except (RefusedError, BatchFailedError) as error:
            abort(context, error, p4r.Error)

    def set_pipeline(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        try:
            self._device(request.device_id).set_pipeline(request)
        except RefusedError as error:
            abort(context, error, p4r.Error)
        finally:
            # A pipeline has many references to itself. It stays in memory until the garbage
            # collector runs, which a switch in real time permits very seldom.
            gc.collect()
        return p4r.SetForwardingPipelineConfigResponse()

    def get_pipeline(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.GetForwardingPipelineConfigResponse:
        try:
            return self._device(request.device_id).get_pipeline(request)
        except RefusedError as error:
            abort(context, error, p4r.Error)

    def capabilities(
        self, request: p4r.CapabilitiesRequest, context: Any
    ) -> p4r.CapabilitiesResponse:
        if request.device_id == 0:
            return next(iter(self._devices.values())).capabilities(request)
        try:
            return self._device(request.device_id).capabilities(request)
        except RefusedError as error:
            abort(context, error, p4r.Error)

    def stream(
        self, requests: Iterable[p4r.StreamMessageRequest], context: Any
    ) -> Iterator[p4r.StreamMessageResponse]:
        # The queue decouples the device from the socket: the device must not wait for a slow client
        # while it holds its lock.
        outbox: SimpleQueue[p4r.StreamMessageResponse | Status | None] = SimpleQueue()
        session = _Session(self._devices, outbox)
        if not context.add_callback(lambda: outbox.put(None)):
            return  # the call has already ended
        reader = threading.Thread(
            target=session.serve,
            args=(requests,),
            name="softswitch-stream",
            daemon=True,
        )
        reader.start()
        try:
            while True:
                message = outbox.get()
                if message is None:
                    return
                if isinstance(message, Status):
                    abort(context, RefusedError(message.code, message.message), p4r.Error)
                yield message
        finally:
            session.close()

    def _device(self, device_id: int) -> Device:
        device = self._devices.get(device_id)
        if device is None:
            device_ids = ", ".join(map(str, self._devices))
            raise RefusedError(
                Code.NOT_FOUND, f"this server has no device {device_id}; devices: {device_ids}"
            )
        return device


def _handlers(service: _P4RuntimeService) -> grpc.GenericRpcHandler:
    """Return the service as a gRPC handler.

    The generated class would make a message of every update.
    """
    methods: dict[str, grpc.RpcMethodHandler] = {}
    methods["Write"] = handlers.unary_unary(service.write, WireRequest.parse, p4r.WriteResponse)
    methods["Read"] = handlers.unary_stream(
        service.read, p4r.ReadRequest.FromString, p4r.ReadResponse
    )
    methods["SetForwardingPipelineConfig"] = handlers.unary_unary(
        service.set_pipeline,
        p4r.SetForwardingPipelineConfigRequest.FromString,
        p4r.SetForwardingPipelineConfigResponse,
    )
    methods["GetForwardingPipelineConfig"] = handlers.unary_unary(
        service.get_pipeline,
        p4r.GetForwardingPipelineConfigRequest.FromString,
        p4r.GetForwardingPipelineConfigResponse,
    )
    methods["StreamChannel"] = handlers.stream_stream(
        service.stream, p4r.StreamMessageRequest.FromString, p4r.StreamMessageResponse
    )
    methods["Capabilities"] = handlers.unary_unary(
        service.capabilities, p4r.CapabilitiesRequest.FromString, p4r.CapabilitiesResponse
    )
    return grpc.method_handlers_generic_handler("p4.v1.P4Runtime", methods)


_Outbox = SimpleQueue[p4r.StreamMessageResponse | Status | None] | LocalStream
"""The messages that wait to be sent on one stream; a status or None ends it."""


class _Session:
    """One StreamChannel.

    It belongs to no device until its first arbitration message names one.
    """

    def __init__(self, devices: dict[int, Device], outbox: _Outbox) -> None:
        self._devices = devices
        self._outbox = outbox
        self._stream: ControllerStream | None = None
        self._lock = threading.Lock()
        self._closed = False

    def serve(self, requests: Iterable[p4r.StreamMessageRequest]) -> None:
        """Pass the client's messages to the device until the client has no more, or is gone."""
        try:
            for request in requests:
                self._receive(request)
        except grpc.RpcError:
            pass  # the iterator's sign that the call was cancelled
        except RefusedError as error:
            self._outbox.put(error.status)  # not a message
        finally:
            self._outbox.put(None)

    def receive(self, message: bytes) -> None:
        """Pass a message of a client in this process to the device."""
        self._receive(p4r.StreamMessageRequest.FromString(message))

    def close(self) -> None:
        """Tell the device that the stream is gone. Later messages are ignored."""
        with self._lock:
            self._closed = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def _receive(self, request: p4r.StreamMessageRequest) -> None:
        stream = self._stream
        if stream is None:
            stream = self._open(request)
        if stream is not None:
            stream.receive(request)

    def _open(self, request: p4r.StreamMessageRequest) -> ControllerStream | None:
        device = self._devices.get(request.arbitration.device_id)
        if request.WhichOneof("update") != "arbitration":
            error = p4r.StreamError(
                canonical_code=Code.PERMISSION_DENIED,
                message="no device is chosen yet: send an arbitration message first",
            )
            self._outbox.put(p4r.StreamMessageResponse(error=error))
            return None
        if device is None:
            device_ids = ", ".join(map(str, self._devices))
            number = request.arbitration.device_id
            text = f"this server has no device {number}; devices: {device_ids}"
            self._outbox.put(Status(Code.NOT_FOUND, text))
            return None
        with self._lock:
            if self._closed:
                return None
            self._stream = device.open_stream(self._send, self._outbox.put)
            return self._stream

    def _send(self, message: p4r.StreamMessageResponse) -> None:
        waiting = self._outbox.qsize()
        if waiting >= _BACKLOG:
            kind = message.WhichOneof("update")
            # If a client is slow, packets are dropped first. Messages that it may have to answer
            # are dropped only if it seems stuck.
            if kind == "packet" or (waiting >= _BACKLOG * _HARD_BACKLOG and kind != "arbitration"):
                return
        self._outbox.put(message)
