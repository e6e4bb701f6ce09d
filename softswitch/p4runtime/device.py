"""One P4Runtime device without I/O: messages in, messages and statuses out.

The specification's RPCs are methods here; `softswitch.p4runtime.server` puts them on a socket. Every method takes
`Device.lock`, and whoever feeds packets to the switch holds the same lock while it does, so that a batch of updates is
atomic for the data plane.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from finsy.proto import U128, p4r

from softswitch import Switch
from softswitch.gnmi.qos import Port, QosTree
from softswitch.p4runtime.arbitration import Arbitration, Claim, Notice, Termination
from softswitch.p4runtime.digests import DigestBatch
from softswitch.p4runtime.pipeline import Pipeline
from softswitch.p4runtime.status import OK, BatchFailedError, Code, RefusedError, Status

__all__ = ["ControllerStream", "Device", "RpcRecord"]

API_VERSION = "1.5.0"
"""The version of the P4Runtime specification that is followed."""

_RESPONSE_BYTES = 1 << 20
"""A ReadResponse is closed once it has reached this size: clients accept 4 MiB by default."""

_LOG_LENGTH = 100_000

_NO_PIPELINE = "No forwarding pipeline config set for this device"


class RpcRecord(NamedTuple):
    """A message received from a controller: when, in the device's time, and its kind."""

    now_ns: int
    kind: str


class ControllerStream:
    """The device's end of one StreamChannel."""

    def __init__(
        self,
        device: Device,
        send: Callable[[p4r.StreamMessageResponse], object],
        terminate: Callable[[Status], object],
    ) -> None:
        self._device = device
        self.send = send
        self.terminate = terminate
        self.ended = False
        """Whether the stream is closed or terminated; what still arrives on it is ignored."""

    def receive(self, message: p4r.StreamMessageRequest) -> None:
        """Take a message of the controller."""
        self._device._receive(self, message)

    def close(self) -> None:
        """Take note that the stream is broken or ended. Closing twice does nothing."""
        self._device._closed(self)


class Device:
    """A switch as controllers see it.

    It starts without a pipeline: until one is set, Write and Read fail with FAILED_PRECONDITION. Each committed
    pipeline runs on a new `Switch`, which is handed to `on_pipeline`.

    Args:
        switch: a switch that forwards until the first pipeline is committed, not visible to controllers.
        device_id: the id that messages must name; not 0.
        lock: the lock to share with the data plane; None makes one.
        ports: the egress ports that gNMI configures, by number; may grow later.
        now_ns: the device's clock, in nanoseconds; virtual or real.
        cpu_port: the port of packet-in and packet-out, None for none.
        drop_port: the port number that means drop.
        seed: of the program's random numbers.
    """

    def __init__(
        self,
        switch: Switch | None = None,
        device_id: int = 1,
        lock: threading.RLock | None = None,
        *,
        ports: Mapping[int, Port] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        cpu_port: int | None = None,
        drop_port: int = 511,
        seed: int = 0,
    ) -> None:
        if device_id < 1:
            raise ValueError(f"device_id: {device_id} is not a device id (give 1 or more)")
        self.device_id = device_id
        self.lock = threading.RLock() if lock is None else lock
        self.now_ns = now_ns
        self.switch = switch
        """The switch that forwards; None before there is one."""
        self.qos = QosTree({} if ports is None else ports)
        self.on_pipeline: Callable[[Switch], object] | None = None
        """Called with the new switch, with the lock held, when a pipeline has been committed."""
        self.on_packet_out: Callable[[bytes], object] | None = None
        """Called with the bytes of a packet-out as the switch must receive them at `cpu_port`, with the lock held."""
        self.rpc_log: deque[RpcRecord] = deque(maxlen=_LOG_LENGTH)
        """The latest messages from controllers, P4Runtime and gNMI, oldest first."""
        self.rpc_count = 0
        """All messages ever received from controllers."""
        self.digest_count = 0
        """Digest messages that the data plane has made, whether anybody received them or not."""
        self._make_switch = partial(Switch, cpu_port=cpu_port, drop_port=drop_port, seed=seed)
        self._arbitration = Arbitration(device_id)
        self._committed: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._list_ids = itertools.count(1)
        self._acknowledged = threading.Condition(self.lock)

    # -- unary RPCs --------------------------------------------------------------------------------------------------

    def write(self, request: p4r.WriteRequest) -> list[Status]:
        """Apply a Write; return one status per update.

        Raises:
            RefusedError: NOT_FOUND, PERMISSION_DENIED or FAILED_PRECONDITION for the request as a whole; nothing was
                attempted.
        """
        with self.lock:
            self.record("write")
            self._check_primary(request)
            pipeline = self._pipeline()
            if request.atomicity not in p4r.WriteRequest.Atomicity.values():
                raise RefusedError(Code.INVALID_ARGUMENT, f"there is no atomicity {request.atomicity}")
            return pipeline.write(request.updates, request.atomicity)

    def write_all(self, request: p4r.WriteRequest) -> None:
        """Apply a Write as `write` does, and raise BatchFailedError unless every update succeeded."""
        statuses = self.write(request)
        if any(status.code for status in statuses):
            raise BatchFailedError("Write", statuses)

    def read(self, request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        """Yield the responses to a Read, each about 1 MiB at most, all of one instant.

        Raises:
            RefusedError: NOT_FOUND or FAILED_PRECONDITION for the request as a whole.
            BatchFailedError: after the last response, if some element of the request was refused.
        """
        responses = [p4r.ReadResponse()]
        size_bytes = 0
        statuses: list[Status] = []
        with self.lock:
            self.record("read")
            self._check_device(request.device_id)
            pipeline = self._pipeline()
            for query in request.entities:
                status = OK
                try:
                    for entity in pipeline.read(query):
                        if size_bytes >= _RESPONSE_BYTES:
                            responses.append(p4r.ReadResponse())
                            size_bytes = 0
                        responses[-1].entities.append(entity)
                        size_bytes += entity.ByteSize()
                except RefusedError as error:
                    status = error.status
                statuses.append(status)
        yield from (response for response in responses if response.entities)
        if any(status.code for status in statuses):
            raise BatchFailedError("Read", statuses)

    def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Verify, save or commit a pipeline.

        Raises:
            RefusedError: as the specification says; a pipeline that cannot be realized is INVALID_ARGUMENT with the
                reason.
        """
        actions = p4r.SetForwardingPipelineConfigRequest
        with self.lock:
            self.record("set_pipeline")
            self._check_primary(request)
            action = request.action
            if action == actions.COMMIT:
                if request.HasField("config"):
                    raise RefusedError(Code.INVALID_ARGUMENT, "COMMIT takes no config; it commits the saved one")
                if self._saved is None:
                    raise RefusedError(Code.NOT_FOUND, "no pipeline is saved; VERIFY_AND_SAVE one first")
                self._commit(self._saved)
                return
            if action not in (
                actions.VERIFY,
                actions.VERIFY_AND_SAVE,
                actions.VERIFY_AND_COMMIT,
                actions.RECONCILE_AND_COMMIT,
            ):
                raise RefusedError(Code.INVALID_ARGUMENT, f"there is no pipeline action {action}")
            if not request.HasField("config"):
                raise RefusedError(Code.INVALID_ARGUMENT, "the pipeline config is missing")
            pipeline = self._build(request.config)
            if action == actions.VERIFY_AND_SAVE:
                self._saved = pipeline
            elif action == actions.VERIFY_AND_COMMIT:
                self._commit(pipeline)
            elif action == actions.RECONCILE_AND_COMMIT:
                if self._committed is not None:
                    pipeline.adopt(self._committed)
                self._commit(pipeline)

    def get_pipeline(self, request: p4r.GetForwardingPipelineConfigRequest) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the pipeline config that Read and Write refer to; none if none is set.

        Raises:
            RefusedError: NOT_FOUND for another device.
        """
        types = p4r.GetForwardingPipelineConfigRequest
        with self.lock:
            self.record("get_pipeline")
            self._check_device(request.device_id)
            response = p4r.GetForwardingPipelineConfigResponse()
            pipeline = self._saved or self._committed
            if pipeline is None:
                return response
            response.config.SetInParent()
            config = pipeline.config
            if request.response_type in (types.ALL, types.P4INFO_AND_COOKIE):
                response.config.p4info.CopyFrom(config.p4info)
            if request.response_type in (types.ALL, types.DEVICE_CONFIG_AND_COOKIE):
                response.config.p4_device_config = config.p4_device_config
            if config.HasField("cookie"):
                response.config.cookie.CopyFrom(config.cookie)
            return response

    def capabilities(self, request: p4r.CapabilitiesRequest) -> p4r.CapabilitiesResponse:
        """Return the version of the API; NOT_FOUND for another device."""
        with self.lock:
            self.record("capabilities")
            if request.device_id:
                self._check_device(request.device_id)
            return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    # -- without a controller ----------------------------------------------------------------------------------------

    def install(self, config: p4r.ForwardingPipelineConfig) -> None:
        """Commit a pipeline from this side, as a switch does that is started with its program.

        Raises:
            RefusedError: INVALID_ARGUMENT with the reason.
        """
        with self.lock:
            self._commit(self._build(config))

    def record(self, kind: str) -> None:
        """Enter a message received from a controller into the log."""
        self.rpc_count += 1
        self.rpc_log.append(RpcRecord(self.now_ns(), kind))

    # -- streams -----------------------------------------------------------------------------------------------------

    def open_stream(
        self, send: Callable[[p4r.StreamMessageResponse], object], terminate: Callable[[Status], object]
    ) -> ControllerStream:
        """Return the device's end of a new stream. Both callbacks are called with the lock held and must not block."""
        return ControllerStream(self, send, terminate)

    def packet_in(self, data: bytes) -> None:
        """Take a packet that left the switch at its CPU port and send it to the primaries."""
        with self.lock:
            message = self._committed.packet_in.unpack(data) if self._committed is not None else None
            if message is not None:
                self._send_to_primaries(p4r.StreamMessageResponse(packet=message))

    # -- time and digests --------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Do what is due by `now_ns`: send digest lists, forget old unacknowledged ones, report idle entries."""
        with self.lock:
            pipeline = self._committed
            if pipeline is None:
                return
            for batch in pipeline.digests.tick(now_ns, self._arbitration.primaries()):
                self._send_digests(pipeline, batch)
            self._acknowledged.notify_all()
            idle = pipeline.tables.idle(now_ns)
            if idle:
                notification = p4r.IdleTimeoutNotification(table_entry=idle, timestamp=now_ns)
                self._send_to_primaries(p4r.StreamMessageResponse(idle_timeout_notification=notification))

    def next_tick_ns(self) -> int | None:
        """When `tick` next has something to do, in the device's time; None if nothing is pending."""
        with self.lock:
            if self._committed is None:
                return None
            due = (self._committed.digests.next_tick_ns(), self._committed.tables.next_idle_ns())
            return min((time_ns for time_ns in due if time_ns is not None), default=None)

    def wait_acknowledged(self, timeout_s: float) -> bool:
        """Block until every digest list sent with an `ack_timeout_ns` is acknowledged, or its receiver is gone.

        The lock is free while this waits, even if the caller holds it, so that the controller can write before it
        acknowledges.

        Called without the lock between two batches of events, it also lets in RPCs that wait for the lock.

        Args:
            timeout_s: the longest wait, in seconds of real time.

        Returns:
            False if the time was over first.
        """
        time.sleep(0)  # a thread that releases a lock and takes it again at once would keep all others out
        with self._acknowledged:
            return self._acknowledged.wait_for(
                lambda: self._committed is None or not self._committed.digests.waiting, timeout_s
            )

    # -- inside: checks ----------------------------------------------------------------------------------------------

    def _check_device(self, device_id: int) -> None:
        if device_id != self.device_id:
            raise RefusedError(Code.NOT_FOUND, f"no device {device_id} here, only device {self.device_id}")

    def _check_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        self._check_device(request.device_id)
        if not self._arbitration.knows(request.role):
            raise RefusedError(Code.NOT_FOUND, f"no controller ever took role {request.role!r}")
        election_id = U128.decode(request.election_id) if request.HasField("election_id") else None
        if not self._arbitration.is_primary(request.role, election_id):
            shown = "an unset election id" if election_id is None else f"election id {election_id}"
            raise RefusedError(Code.PERMISSION_DENIED, f"{shown} is not that of the primary of role {request.role!r}")

    def _pipeline(self) -> Pipeline:
        pipeline = self._saved or self._committed
        if pipeline is None:
            raise RefusedError(Code.FAILED_PRECONDITION, _NO_PIPELINE)
        return pipeline

    # -- inside: pipelines -------------------------------------------------------------------------------------------

    def _build(self, config: p4r.ForwardingPipelineConfig) -> Pipeline:
        copy = p4r.ForwardingPipelineConfig()
        copy.CopyFrom(config)
        return Pipeline(copy, self._make_switch, self._list_ids, self.now_ns)

    def _commit(self, pipeline: Pipeline) -> None:
        if self._committed is not None:
            self._committed.switch.on_digest = _ignore_digest
        self._committed = pipeline
        self._saved = None
        self.switch = pipeline.switch
        self.switch.on_digest = self._on_digest
        self._acknowledged.notify_all()  # lists of the former pipeline are awaited no longer
        if self.on_pipeline is not None:
            self.on_pipeline(self.switch)

    # -- inside: digests ---------------------------------------------------------------------------------------------

    def _on_digest(self, now_ns: int, name: str, _learn_list_id: int, values: tuple[int, ...]) -> None:
        with self.lock:
            self.digest_count += 1
            pipeline = self._committed
            assert pipeline is not None
            batch = pipeline.learning.learn(name, values, now_ns, self._arbitration.primaries())
            if batch is not None:
                self._send_digests(pipeline, batch)

    def _send_digests(self, pipeline: Pipeline, batch: DigestBatch) -> None:
        self._send_to_primaries(p4r.StreamMessageResponse(digest=pipeline.learning.message(batch)))

    def _send_to_primaries(self, message: p4r.StreamMessageResponse) -> None:
        for stream in self._arbitration.primaries():
            assert isinstance(stream, ControllerStream)
            stream.send(message)

    # -- inside: streams ---------------------------------------------------------------------------------------------

    def _receive(self, stream: ControllerStream, message: p4r.StreamMessageRequest) -> None:
        with self.lock:
            # A message may have waited for the lock while its stream broke; it must not bring the stream back to life.
            if stream.ended:
                return
            kind = message.WhichOneof("update")
            self.record("packet_out" if kind == "packet" else kind or "empty")
            if kind == "arbitration":
                self._tell(self._arbitration.claim(stream, _claim(message.arbitration)))
                return
            try:
                if stream not in self._arbitration.primaries():
                    raise RefusedError(Code.PERMISSION_DENIED, "only a primary may send this")
                if kind == "packet":
                    self._packet_out(message.packet)
                elif kind == "digest_ack":
                    self._acknowledge(stream, message.digest_ack)
                else:
                    raise RefusedError(
                        Code.UNIMPLEMENTED, f"a stream message of kind {kind or 'nothing'} is not known here"
                    )
            except RefusedError as error:
                stream.send(p4r.StreamMessageResponse(error=_stream_error(message, error.status)))

    def _closed(self, stream: ControllerStream) -> None:
        with self.lock:
            stream.ended = True
            self._tell(self._arbitration.closed(stream))

    def _tell(self, outcomes: list[Notice | Termination]) -> None:
        for outcome in outcomes:
            stream: Any = outcome.stream
            if isinstance(outcome, Termination):
                stream.ended = True
                stream.terminate(outcome.status)
            else:
                stream.send(p4r.StreamMessageResponse(arbitration=self._arbitration_update(outcome)))
        if self._committed is not None:
            self._committed.digests.await_only(self._arbitration.primaries())
            self._acknowledged.notify_all()

    def _arbitration_update(self, notice: Notice) -> p4r.MasterArbitrationUpdate:
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id)
        if notice.role:
            update.role.name = notice.role
        if notice.role_config is not None:
            update.role.config.CopyFrom(notice.role_config)
        if notice.election_id is not None:
            update.election_id.CopyFrom(U128.encode(notice.election_id))
        update.status.code = notice.code
        if notice.code == Code.OK:
            update.status.message = "you are the primary"
        else:
            update.status.message = (
                "another is the primary" if notice.code == Code.ALREADY_EXISTS else "nobody is the primary"
            )
        return update

    def _packet_out(self, packet: p4r.PacketOut) -> None:
        if self._committed is None:
            raise RefusedError(Code.FAILED_PRECONDITION, _NO_PIPELINE)
        data = self._committed.packet_out.pack(packet)
        if self.on_packet_out is None:
            raise RefusedError(Code.UNIMPLEMENTED, "nothing carries packet-outs into this switch")
        self.on_packet_out(data)

    def _acknowledge(self, stream: ControllerStream, ack: p4r.DigestListAck) -> None:
        if self._committed is None:
            raise RefusedError(Code.FAILED_PRECONDITION, _NO_PIPELINE)
        self._committed.learning.check(ack.digest_id)
        self._committed.digests.acknowledge(ack.digest_id, ack.list_id, stream)
        self._acknowledged.notify_all()


def _claim(update: p4r.MasterArbitrationUpdate) -> Claim:
    config = None
    if update.role.HasField("config"):
        config = type(update.role.config)()
        config.CopyFrom(update.role.config)
    election_id = U128.decode(update.election_id) if update.HasField("election_id") else None
    return Claim(update.device_id, update.role.name, election_id, config)


def _stream_error(message: p4r.StreamMessageRequest, status: Status) -> p4r.StreamError:
    error = p4r.StreamError(canonical_code=status.code, message=status.message)
    kind = message.WhichOneof("update")
    if kind == "packet":
        error.packet_out.packet_out.CopyFrom(message.packet)
    elif kind == "digest_ack":
        error.digest_list_ack.digest_list_ack.CopyFrom(message.digest_ack)
    elif kind == "other":
        error.other.other.CopyFrom(message.other)
    return error


def _ignore_digest(_now_ns: int, _name: str, _learn_list_id: int, _values: tuple[int, ...]) -> None:
    """Where the digests of a switch go that no longer runs."""
