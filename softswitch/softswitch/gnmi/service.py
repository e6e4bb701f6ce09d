"""The gRPC shell of gNMI: Capabilities, Get, Set and Subscribe.

A subscription is ONCE, POLL, or STREAM by sampling or on change.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import grpc  # type: ignore[import-untyped]
from finsy.proto import gnmi

from softswitch.gnmi.qos import QosTree
from softswitch.gnmi.writers import READER
from softswitch.rpc import handlers
from softswitch.rpc.endings import GRPC_CODES
from softswitch.rpc.handlers import REQUEST_BYTES
from softswitch.rpc.status import Code, RefusedError

__all__ = ["Chassis", "GnmiService"]

_MOST_PATHS = 256
"""The most paths of one request. A path with `*` stands for every port or queue."""

_MOST_BYTES = 4 << 20
"""The most bytes of one answer, which is what clients accept by default.

The tree of a switch with 64 ports has 0.6 MB.
"""

_SHORTEST_SAMPLE_S = 0.1
_DEFAULT_SAMPLE_S = 10.0

_MODELS = (
    ("openconfig-qos", "0.11.2"),
    ("openconfig-interfaces", "3.7.1"),
    ("softswitch", "1.0.0"),
)


class Chassis(Protocol):
    """A device as the service needs it.

    It has a queue tree, the lock to hold while touching the tree, a clock, a message log, and a
    condition on the lock that is notified when a port has gone up or down.
    """

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def qos(self) -> QosTree: ...

    @property
    def ports_changed(self) -> threading.Condition: ...

    @property
    def epoch_ns(self) -> int: ...

    @property
    def now_ns(self) -> Callable[[], int]: ...

    def record(self, kind: str) -> None: ...


class GnmiService:
    """The gNMI service of one or several devices.

    `prefix.target` (a device id in decimal) selects one of several.
    """

    def __init__(self, devices: Mapping[int, Chassis]) -> None:
        self._devices = devices

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the service as a gRPC handler."""
        methods: dict[str, grpc.RpcMethodHandler] = {}
        methods["Capabilities"] = handlers.unary_unary(
            self.capabilities,
            gnmi.CapabilityRequest.FromString,
            gnmi.CapabilityResponse,
            most_bytes=REQUEST_BYTES,
        )
        methods["Get"] = handlers.unary_unary(
            self.get, gnmi.GetRequest.FromString, gnmi.GetResponse, most_bytes=REQUEST_BYTES
        )
        methods["Set"] = handlers.unary_unary(
            self.set, gnmi.SetRequest.FromString, gnmi.SetResponse, most_bytes=REQUEST_BYTES
        )
        methods["Subscribe"] = handlers.stream_stream(
            self.subscribe,
            gnmi.SubscribeRequest.FromString,
            gnmi.SubscribeResponse,
            most_bytes=REQUEST_BYTES,
        )
        return grpc.method_handlers_generic_handler("gnmi.gNMI", methods)

    def capabilities(
        self, request: gnmi.CapabilityRequest, context: Any
    ) -> gnmi.CapabilityResponse:
        """Return the models and encodings."""
        for device in self._devices.values():
            with device.lock:
                device.record("gnmi_capabilities")
        models: list[gnmi.ModelData] = []
        for name, version in _MODELS:
            organization, _, _ = name.partition("-")
            models.append(
                gnmi.ModelData(
                    name=name,
                    organization=organization,
                    version=version,
                )
            )
        return gnmi.CapabilityResponse(
            supported_models=models,
            supported_encodings=[gnmi.JSON_IETF, gnmi.JSON, gnmi.PROTO],
            gNMI_version="0.10.0",
        )

    def get(self, request: gnmi.GetRequest, context: Any) -> gnmi.GetResponse:
        """Return one notification per path, with its own time. Others go on between two paths."""
        READER.set(context.peer())
        response = gnmi.GetResponse()
        prefix = request.prefix
        size_bytes = 0
        try:
            device = self._device(prefix)
            with device.lock:
                device.record("gnmi_get")
            _check_paths(len(request.path))
            for path in request.path:
                notification = self._notification(
                    device, [path], prefix, request.type, request.encoding
                )
                response.notification.append(notification)
                size_bytes += notification.ByteSize()
                _check_bytes(size_bytes)
            return response
        except RefusedError as error:
            _abort(context, error)

    def set(self, request: gnmi.SetRequest, context: Any) -> gnmi.SetResponse:
        """Apply all operations or none."""
        try:
            device = self._device(request.prefix)
            with device.lock:
                device.record("gnmi_set")
                return device.qos.set(request, device.now_ns())
        except RefusedError as error:
            _abort(context, error)

    def subscribe(
        self, request_iterator: Iterable[gnmi.SubscribeRequest], context: Any
    ) -> Iterator[gnmi.SubscribeResponse]:
        """Yield the values once, at each poll, or periodically.

        A STREAM subscription yields samples at the sampling interval, in real time, and values
        subscribed to on change whenever they have changed.
        """
        READER.set(context.peer())
        requests = iter(request_iterator)
        try:
            request = next(requests, None)
            if request is None or request.WhichOneof("request") != "subscribe":
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    "the first message of a Subscribe must hold a subscription list",
                )
            wanted = request.subscribe
            device = self._device(wanted.prefix)
            ended = threading.Event()

            def end() -> None:
                ended.set()
                with device.lock:
                    device.ports_changed.notify_all()

            if not context.add_callback(end):
                return
            _check_paths(len(wanted.subscription))
            with device.lock:
                device.record("gnmi_subscribe")
                plan = _plan(wanted, device.qos)
                every = [subscription.path for subscription in wanted.subscription]
                first = self._sample(device, wanted, every)
                reported = self._sample(device, wanted, plan.on_change)
            if not (wanted.updates_only and wanted.mode == gnmi.SubscriptionList.STREAM):
                yield first
            yield gnmi.SubscribeResponse(sync_response=True)
            if wanted.mode == gnmi.SubscriptionList.POLL:
                for request in requests:
                    _check_poll(request)
                    yield self._sample(device, wanted, every)
                    yield gnmi.SubscribeResponse(sync_response=True)
            elif wanted.mode == gnmi.SubscriptionList.STREAM:
                yield from self._stream(device, wanted, plan, reported, ended)
        except RefusedError as error:
            _abort(context, error)

    def _stream(
        self,
        device: Chassis,
        wanted: gnmi.SubscriptionList,
        plan: _Plan,
        reported: gnmi.SubscribeResponse,
        ended: threading.Event,
    ) -> Iterator[gnmi.SubscribeResponse]:
        """Yield samples when they are due, and values that have changed.

        `reported` are the last values that the client knows.
        """
        due_s = time.monotonic() + plan.interval_s
        while True:
            left_s = min(due_s - time.monotonic(), threading.TIMEOUT_MAX)
            now = reported

            def changed() -> bool:
                nonlocal now
                if plan.on_change:
                    now = self._sample(device, wanted, plan.on_change)
                if ended.is_set():
                    return True
                return list(now.update.update) != list(reported.update.update)  # noqa: B023

            with device.lock:
                device.ports_changed.wait_for(changed, max(0.0, left_s))
            if ended.is_set():
                return
            known_updates = reported.update.update
            news = [update for update in now.update.update if update not in known_updates]
            if news:
                reported = now
                message = gnmi.SubscribeResponse()
                message.CopyFrom(now)
                del message.update.update[:]
                message.update.update.extend(news)
                yield message
            if plan.sampled and time.monotonic() >= due_s:
                due_s += plan.interval_s
                yield self._sample(device, wanted, plan.sampled)

    def _sample(
        self,
        device: Chassis,
        wanted: gnmi.SubscriptionList,
        paths: Iterable[gnmi.Path],
    ) -> gnmi.SubscribeResponse:
        # A client that leaves out the encoding sends JSON, too.
        # Either way, leaves are sent one by one.
        encoding = wanted.encoding
        if encoding == gnmi.JSON:
            encoding = gnmi.PROTO
        notification = self._notification(
            device, paths, wanted.prefix, gnmi.GetRequest.ALL, encoding
        )
        return gnmi.SubscribeResponse(update=notification)

    def _notification(
        self,
        device: Chassis,
        paths: Iterable[gnmi.Path],
        prefix: gnmi.Path,
        kind: int,
        encoding: int,
    ) -> gnmi.Notification:
        notification = gnmi.Notification()
        size_bytes = 0
        for path in paths:
            with device.lock:
                updates = list(device.qos.get(path, prefix, kind, encoding))
            notification.update.extend(updates)
            size_bytes += sum(update.ByteSize() for update in updates)
            _check_bytes(size_bytes)
        notification.timestamp = device.now_ns() + device.epoch_ns
        if prefix.target:
            notification.prefix.target = prefix.target
        return notification

    def _device(self, prefix: gnmi.Path) -> Chassis:
        if not prefix.target and len(self._devices) == 1:
            return next(iter(self._devices.values()))
        for device_id, device in self._devices.items():
            if prefix.target == str(device_id):
                return device
        device_ids = ", ".join(map(str, self._devices))
        raise RefusedError(
            Code.NOT_FOUND,
            f"prefix.target {prefix.target!r} is not a device of this server;"
            f" give a device id: {device_ids}",
        )


@dataclass(frozen=True)
class _Plan:
    """The values that a STREAM subscription sends after the first ones.

    They are samples of some paths, and changes of others.
    """

    sampled: Sequence[gnmi.Path]
    on_change: Sequence[gnmi.Path]
    interval_s: float
    """Infinite if nothing is sampled."""


def _plan(wanted: gnmi.SubscriptionList, qos: QosTree) -> _Plan:
    sampled: list[gnmi.Path] = []
    on_change: list[gnmi.Path] = []
    interval_s = math.inf
    if wanted.mode not in gnmi.SubscriptionList.Mode.values():
        raise RefusedError(Code.INVALID_ARGUMENT, f"there is no subscription mode {wanted.mode}")
    for subscription in wanted.subscription:
        path = subscription.path
        is_constant = qos.is_constant(path, wanted.prefix)
        if is_constant or wanted.mode != gnmi.SubscriptionList.STREAM:
            continue
        if subscription.mode == gnmi.ON_CHANGE:
            if not qos.tells_changes(path, wanted.prefix):
                raise RefusedError(
                    Code.UNIMPLEMENTED,
                    "ON_CHANGE is supported for names, ifindex and oper-status only; use SAMPLE",
                )
            on_change.append(path)
            continue
        sampled.append(path)
        asked_s = subscription.sample_interval / 1e9 or _DEFAULT_SAMPLE_S
        interval_s = min(interval_s, max(_SHORTEST_SAMPLE_S, asked_s))
    return _Plan(sampled, on_change, interval_s)


def _check_paths(count: int) -> None:
    if count > _MOST_PATHS:
        raise RefusedError(
            Code.RESOURCE_EXHAUSTED,
            f"{count} paths in one request, of which {_MOST_PATHS} are allowed; use * for all"
            " ports or queues, or send several requests",
        )


def _check_bytes(size_bytes: int) -> None:
    if size_bytes > _MOST_BYTES:
        raise RefusedError(
            Code.RESOURCE_EXHAUSTED,
            f"an answer of more than {_MOST_BYTES} bytes, which is the limit; ask for fewer paths"
            " at a time",
        )


def _check_poll(request: gnmi.SubscribeRequest) -> None:
    if request.WhichOneof("request") != "poll":
        raise RefusedError(
            Code.INVALID_ARGUMENT, "only polls may follow a subscription of mode POLL"
        )


def _abort(context: Any, error: RefusedError) -> NoReturn:
    context.abort(GRPC_CODES[error.status.code], error.status.message)
    raise AssertionError("gRPC's abort always raises")
