"""The gRPC shell around `Device`: P4Runtime and gNMI on one port.

`Device` and `softswitch.gnmi` make all decisions. This module moves messages between them and
gRPC's threads.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakSet

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r

from softswitch.gnmi.service import GnmiService
from softswitch.p4runtime import pushes
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.streams import Session, Streams
from softswitch.p4runtime.wire import WireRequest
from softswitch.rpc import handlers
from softswitch.rpc.admission import AllowedClients
from softswitch.rpc.endings import abort
from softswitch.rpc.handlers import REQUEST_BYTES
from softswitch.rpc.listener import Listener
from softswitch.rpc.local import LocalChannel, LocalStream
from softswitch.rpc.status import BatchFailedError, Code, RefusedError

__all__ = ["Server"]

_MESSAGE_BYTES = 16 << 20
"""The most bytes of a message from a client.

A pipeline or a large Write may exceed gRPC's 4 MiB; the specification asks servers to raise the
limit. Echelon's program has 1.8 MB, and 40,000 entries of its leaves 4 MB; those of others may have
400 bytes each. Messages of all calls that are served at a time (24 of one device) fit in 400 MB.
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
        allowed: the clients that may call, by their certificates; None means all.
        max_workers: the number of calls with one answer that are served at a time; others wait.
            None means 32, and 16 more per device. Streams, subscriptions and Reads are bounded, but
            do not count.

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
        allowed: AllowedClients | None = None,
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
            allowed=allowed,
            message_bytes=_MESSAGE_BYTES,
        )

    def local_channel(self) -> LocalChannel:
        """Return a channel for clients in this process, whether or not the server serves others."""
        return LocalChannel(self._services, self._open_local_stream)

    def _open_local_stream(self, stream: LocalStream) -> Session:
        self._local.add(stream)
        if not self._services:
            stream.end()
        return Session(self.devices, stream)

    def stop(self, grace_s: float | None = None) -> None:
        self._services.clear()
        for stream in self._local:
            stream.end()
        super().stop(grace_s)


class _P4RuntimeService:
    def __init__(self, devices: dict[int, Device]) -> None:
        self._devices = devices
        self.streams = Streams(devices)

    def write(self, request: WireRequest, context: Any) -> p4r.WriteResponse:
        try:
            device = self._device(request.header.device_id)
            with device.qos.writers.noting(context.peer(), request.header.role):
                device.write_all(request)
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
            device = self._device(request.device_id)
            with device.qos.writers.noting(context.peer(), request.role):
                device.set_pipeline(request)
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
        service.read, p4r.ReadRequest.FromString, p4r.ReadResponse, most_bytes=REQUEST_BYTES
    )
    methods["SetForwardingPipelineConfig"] = handlers.unary_unary(
        service.set_pipeline,
        pushes.parse,
        p4r.SetForwardingPipelineConfigResponse,
    )
    methods["GetForwardingPipelineConfig"] = handlers.unary_unary(
        service.get_pipeline,
        p4r.GetForwardingPipelineConfigRequest.FromString,
        p4r.GetForwardingPipelineConfigResponse,
        most_bytes=REQUEST_BYTES,
    )
    methods["StreamChannel"] = handlers.stream_stream(
        service.streams.serve,
        p4r.StreamMessageRequest.FromString,
        p4r.StreamMessageResponse,
        is_bounded=True,
        most_bytes=REQUEST_BYTES,
    )
    methods["Capabilities"] = handlers.unary_unary(
        service.capabilities,
        p4r.CapabilitiesRequest.FromString,
        p4r.CapabilitiesResponse,
        most_bytes=REQUEST_BYTES,
    )
    return grpc.method_handlers_generic_handler("p4.v1.P4Runtime", methods)
