"""The gRPC shell of gNMI: Capabilities, Get, Set, Subscribe (ONCE, and STREAM by sampling)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

import grpc  # type: ignore[import-untyped]
from finsy.proto import gnmi, gnmi_grpc

from softswitch.gnmi.qos import QosTree
from softswitch.p4runtime.status import Code, RefusedError

__all__ = ["Chassis", "GnmiService"]

_SHORTEST_SAMPLE_S = 0.1
_DEFAULT_SAMPLE_S = 10.0

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}

_MODELS = (("openconfig-qos", "0.11.2"), ("openconfig-interfaces", "3.7.1"), ("softswitch", "1.0.0"))


class Chassis(Protocol):
    """What is needed of a device: its queue tree, the lock to hold while touching it, its clock, its message log."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def qos(self) -> QosTree: ...

    @property
    def now_ns(self) -> Callable[[], int]: ...

    def record(self, kind: str) -> None: ...


class GnmiService(gnmi_grpc.gNMIServicer):
    """gNMI for one or several devices; `prefix.target` (a device id in decimal) chooses where there are several."""

    def __init__(self, devices: Mapping[int, Chassis]) -> None:
        self._devices = devices

    def Capabilities(self, request: gnmi.CapabilityRequest, context: Any) -> gnmi.CapabilityResponse:  # noqa: N802
        """Name the models and encodings."""
        for device in self._devices.values():
            with device.lock:
                device.record("gnmi_capabilities")
        return gnmi.CapabilityResponse(
            supported_models=[
                gnmi.ModelData(name=name, organization=name.partition("-")[0], version=version)
                for name, version in _MODELS
            ],
            supported_encodings=[gnmi.JSON_IETF, gnmi.JSON, gnmi.PROTO],
            gNMI_version="0.10.0",
        )

    def Get(self, request: gnmi.GetRequest, context: Any) -> gnmi.GetResponse:  # noqa: N802
        """Return one notification per path."""
        try:
            device = self._device(request.prefix)
            with device.lock:
                device.record("gnmi_get")
                return gnmi.GetResponse(
                    notification=[
                        self._notification(device, [path], request.prefix, request.type, request.encoding)
                        for path in request.path
                    ]
                )
        except RefusedError as error:
            _abort(context, error)

    def Set(self, request: gnmi.SetRequest, context: Any) -> gnmi.SetResponse:  # noqa: N802
        """Apply all operations or none."""
        try:
            device = self._device(request.prefix)
            with device.lock:
                device.record("gnmi_set")
                return device.qos.set(request, device.now_ns())
        except RefusedError as error:
            _abort(context, error)

    def Subscribe(  # noqa: N802
        self, request_iterator: Iterable[gnmi.SubscribeRequest], context: Any
    ) -> Iterator[gnmi.SubscribeResponse]:
        """Send the values once, or again and again at the sampling interval (of real time)."""
        try:
            request = next(iter(request_iterator), None)
            if request is None or request.WhichOneof("request") != "subscribe":
                raise RefusedError(
                    Code.INVALID_ARGUMENT, "the first message of a Subscribe must hold a subscription list"
                )
            wanted = request.subscribe
            device = self._device(wanted.prefix)
            # JSON is also what a client sends that leaves the encoding out; either way leaves are sent one by one.
            encoding = gnmi.PROTO if wanted.encoding == gnmi.JSON else wanted.encoding
            ended = threading.Event()
            if not context.add_callback(ended.set):
                return
            with device.lock:
                device.record("gnmi_subscribe")
                interval_s = _sampling_interval_s(wanted, device.qos)
                paths = [subscription.path for subscription in wanted.subscription]
                sampled = [path for path in paths if not device.qos.is_constant(path, wanted.prefix)]
            first = self._sample(device, paths, wanted.prefix, encoding)
            if not (wanted.updates_only and wanted.mode == gnmi.SubscriptionList.STREAM):
                yield first
            yield gnmi.SubscribeResponse(sync_response=True)
            if interval_s is None:
                return
            while not ended.wait(min(interval_s, threading.TIMEOUT_MAX)):
                yield self._sample(device, sampled, wanted.prefix, encoding)
        except RefusedError as error:
            _abort(context, error)

    def _sample(
        self, device: Chassis, paths: Iterable[gnmi.Path], prefix: gnmi.Path, encoding: int
    ) -> gnmi.SubscribeResponse:
        with device.lock:
            notification = self._notification(device, paths, prefix, gnmi.GetRequest.ALL, encoding)
        return gnmi.SubscribeResponse(update=notification)

    def _notification(
        self, device: Chassis, paths: Iterable[gnmi.Path], prefix: gnmi.Path, kind: int, encoding: int
    ) -> gnmi.Notification:
        updates = [update for path in paths for update in device.qos.get(path, prefix, kind, encoding)]
        notification = gnmi.Notification(timestamp=device.now_ns(), update=updates)
        if prefix.target:
            notification.prefix.target = prefix.target
        return notification

    def _device(self, prefix: gnmi.Path) -> Chassis:
        if not prefix.target and len(self._devices) == 1:
            return next(iter(self._devices.values()))
        for device_id, device in self._devices.items():
            if prefix.target == str(device_id):
                return device
        known = ", ".join(map(str, self._devices))
        raise RefusedError(
            Code.NOT_FOUND, f"prefix.target {prefix.target!r} names no device here; give a device id: {known}"
        )


def _sampling_interval_s(wanted: gnmi.SubscriptionList, qos: QosTree) -> float | None:
    """Seconds between samples: infinite where nothing can change, None for ONCE."""
    if wanted.mode == gnmi.SubscriptionList.ONCE:
        return None
    if wanted.mode != gnmi.SubscriptionList.STREAM:
        raise RefusedError(Code.UNIMPLEMENTED, "subscriptions of mode POLL are not served; use ONCE or STREAM")
    interval_s = math.inf
    for subscription in wanted.subscription:
        if qos.is_constant(subscription.path, wanted.prefix):
            continue
        if subscription.mode == gnmi.ON_CHANGE:
            raise RefusedError(
                Code.UNIMPLEMENTED, "ON_CHANGE is served for names, ifindex and oper-status only; use SAMPLE"
            )
        asked_s = subscription.sample_interval / 1e9 or _DEFAULT_SAMPLE_S
        interval_s = min(interval_s, max(_SHORTEST_SAMPLE_S, asked_s))
    return interval_s


def _abort(context: Any, error: RefusedError) -> NoReturn:
    context.abort(_GRPC_CODES[error.status.code], error.status.message)
    raise AssertionError("gRPC's abort always raises")
