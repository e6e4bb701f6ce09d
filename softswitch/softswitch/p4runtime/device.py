"""One P4Runtime device without I/O: messages in, messages and statuses out.

The specification's RPCs are methods here; `softswitch.p4runtime.server` puts them on a socket.

The thread that feeds packets to the switch holds `Device.lock` meanwhile, and every method takes it
for work on the data plane. A long Write or Read releases it repeatedly. If the lock hands itself
over (`softswitch.realtime.lock.HandoverLock`), forwarding continues in between. RPCs take turns
(`softswitch.p4runtime.turns`) before they take the lock, which makes them strictly serializable: a
new primary begins after the writes of the former one have ended. Therefore a caller must not hold
`Device.lock` when it calls an RPC's method.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from finsy.proto import U128, p4r

from softswitch import Switch
from softswitch.budget import DEFAULT_BYTES
from softswitch.gnmi.qos import PortCounters, QosPort, QosTree
from softswitch.p4runtime.arbitration import Arbitration, Claim, Notice, Termination
from softswitch.p4runtime.digests import DigestBatch
from softswitch.p4runtime.pipeline import Pipeline
from softswitch.p4runtime.reading import Reading
from softswitch.p4runtime.roles import (
    FULL_ACCESS,
    ListedRoles,
    RoleScope,
    check_claim,
    role_scope,
)
from softswitch.p4runtime.turns import Turns
from softswitch.p4runtime.wire import MOST_UPDATES, WireRequest
from softswitch.rpc.peers import LOCAL, Peer
from softswitch.rpc.status import BatchFailedError, Code, RefusedError, Status
from softswitch.switch import Engines, Python

if TYPE_CHECKING:
    from softswitch.trace import Tracer

__all__ = ["LOG_LENGTH", "ControllerStream", "Device", "RpcRecord"]

API_VERSION = "1.5.0"
"""The version of the P4Runtime specification that the device implements."""

_UPDATES_AT_ONCE = 64
"""The number of updates after which a Write lets the data plane continue.

They take about a millisecond.
"""

_MOST_ATOMIC_UPDATES = 4096
"""The most updates in a Write that is applied as a whole or not at all.

The data plane waits for all of them, some 100 ms, and each has its undoing in memory.
"""

LOG_LENGTH = 20_000
"""The number of messages that `Device.rpc_log` holds."""

_NO_PIPELINE = "No forwarding pipeline config set for this device"


class RpcRecord(NamedTuple):
    """A message received from a controller: its time on the device's clock, and its kind."""

    now_ns: int
    kind: str


class ControllerStream:
    """The device's end of one StreamChannel."""

    def __init__(
        self,
        device: Device,
        send: Callable[[p4r.StreamMessageResponse], object],
        terminate: Callable[[Status], object],
        peer: Peer,
    ) -> None:
        self._device = device
        self.send = send
        self.terminate = terminate
        self.peer = peer
        self.ended = False
        """Whether the stream is closed or terminated.

        Messages that still arrive on it are ignored.
        """

    def receive(self, message: p4r.StreamMessageRequest) -> bool:
        """Handle a message from the controller.

        Return whether it was a primary's packet-out or acknowledgement, and was taken.
        """
        return self._device.receive_from(self, message)

    def close(self) -> None:
        """Note that the stream is broken or ended. Closing it twice does nothing."""
        self._device.closed(self)


class Device:
    """A switch as controllers see it.

    It starts without a pipeline: until one is set, Write and Read fail with FAILED_PRECONDITION.
    Each committed pipeline runs on a new `Switch`, which is passed to `on_pipeline`.

    Args:
        switch: a switch that forwards until the first pipeline is committed. Controllers do not see
            it.
        device_id: the id that messages must name. simple_switch_grpc's default is 0, which
            P4Runtime reserves since 1.5.
        lock: the lock to share with the data plane, reentrant and suitable for
            `threading.Condition`; None makes one.
        ports: the device's ports, whose egress gNMI configures, by number; it may grow later. Only
            these and the CPU port can be watched. None: any port can.
        now_ns: the device's clock, in nanoseconds; virtual or real.
        port_counters: returns what a port has received and sent, None if it is not counted; called
            with the lock held.
        epoch_ns: the difference between the time since 1970, which controllers are told, and that
            clock.
        cpu_port: the port of packet-in and packet-out, None for none.
        drop_port: the port number that means drop.
        seed: the seed of the program's random numbers.
        tracer: receives each step of each packet from every switch made here; slow.
        engines: loads programs and chooses what runs their packets; None lets Python do it.
        memory_bytes: the memory of a program's arrays and packets; a program whose arrays need more
            is refused.
        roles: the roles that may write beside a primary of the default role, and may set the
            pipeline if their config says so; `EVERY_ROLE` in it stands for all. Others may then
            only read.
    """

    def __init__(
        self,
        switch: Switch | None = None,
        device_id: int = 1,
        lock: Any = None,
        *,
        ports: Mapping[int, QosPort] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        epoch_ns: int = 0,
        port_counters: Callable[[int], PortCounters | None] = lambda _port: None,
        cpu_port: int | None = None,
        drop_port: int = 511,
        seed: int = 0,
        tracer: Tracer | None = None,
        engines: Engines | None = None,
        memory_bytes: int = DEFAULT_BYTES,
        roles: Collection[str] = (),
    ) -> None:
        if device_id < 0:
            raise ValueError(f"device_id: {device_id} is not a device id; give 0 or more")
        self.device_id = device_id
        self.lock = threading.RLock() if lock is None else lock
        self.now_ns = now_ns
        self.epoch_ns = epoch_ns
        self.switch = switch
        """The switch that forwards; None before the first one."""
        self._down: set[int] = set()
        self._ports = ports
        self._cpu_port = cpu_port
        self.qos = QosTree({} if ports is None else ports, self.is_port_up, port_counters)
        self.ports_changed = threading.Condition(self.lock)
        """A condition that is notified when a port has gone up or down."""
        self.on_pipeline: Callable[[Switch], object] | None = None
        """A callback for the new switch when a pipeline has been committed.

        It is called with the lock held.
        """
        self.on_packet_out: Callable[[bytes], object] | None = None
        """A callback for a packet-out, as the bytes that the switch must receive at `cpu_port`.

        It is called with the lock held.
        """
        self.rpc_log: deque[RpcRecord] = deque(maxlen=LOG_LENGTH)
        """The latest messages from controllers, P4Runtime and gNMI, oldest first."""
        self._new_switch = partial(
            Switch,
            cpu_port=cpu_port,
            drop_port=drop_port,
            seed=seed,
            tracer=tracer,
            memory_bytes=memory_bytes,
        )
        self._engines = engines or Python()
        self._turns = Turns()
        self._let_others: Callable[[], object] = getattr(self.lock, "yield_", self._release_briefly)
        """Releases the lock, which this thread holds, once for the threads that wait for it."""
        self._roles = ListedRoles(roles)
        self._arbitration = Arbitration(
            device_id,
            check_config=self._check_role_config,
            listed=roles,
        )
        self._scopes: dict[str, RoleScope] = {"": FULL_ACCESS}
        self._acting: list[tuple[RoleScope, Any]] = []
        """The recipients of packets and digests: the latest `_acting_primaries`."""
        self._committed: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._list_ids = itertools.count(1)
        self._acknowledged = threading.Condition(self.lock)

    # -- unary RPCs --------------------------------------------------------------------------------

    def write(self, request: p4r.WriteRequest | WireRequest) -> list[Status]:
        """Apply a Write; return one status per update.

        A large Write is much faster as a WireRequest. Packets, streams and calls that neither write
        nor read go on between some of its updates, unless the whole is to be atomic. Other Writes
        wait: the specification demands that the updates of a request appear without others between
        them.

        Raises:
            RefusedError: NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION or RESOURCE_EXHAUSTED
                for the request as a whole. No update was attempted.
        """
        header = request.header if isinstance(request, WireRequest) else request
        updates = request.updates
        atomicity = header.atomicity
        _check_size(len(updates), atomicity)
        with self._turns.change(header.role), self.lock:
            self.record("write")
            self._check_primary(header)
            pipeline = self._pipeline()
            if atomicity not in p4r.WriteRequest.Atomicity.values():
                raise RefusedError(Code.INVALID_ARGUMENT, f"there is no atomicity {atomicity}")
            scope = self._scopes[header.role]
            if atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                return pipeline.write_all_or_nothing(updates, scope)
            statuses: list[Status] = []
            for start in range(0, len(updates), _UPDATES_AT_ONCE):
                if start:
                    self._let_others()
                statuses += pipeline.write(updates[start : start + _UPDATES_AT_ONCE], scope)
            return statuses

    def write_all(self, request: p4r.WriteRequest | WireRequest) -> None:
        """Apply a Write as `write` does. Raise BatchFailedError unless every update succeeded."""
        statuses = self.write(request)
        if any(status.code for status in statuses):
            raise BatchFailedError("Write", statuses)

    def read(self, request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        """Yield the responses to a Read, each of about 256 KiB at most.

        It is worked on in slices. Writes, packets and streams go on between two of them, and Writes
        go first. What is returned is nevertheless the state of one moment: of each Write, the Read
        sees all that it does if it had ended when the Read began, and nothing otherwise. Counters
        and registers that packets change meanwhile are as they are when the Read comes to them.

        Raises:
            RefusedError: NOT_FOUND or FAILED_PRECONDITION for the request as a whole;
                RESOURCE_EXHAUSTED if it asks for too much; ABORTED, or RESOURCE_EXHAUSTED, between
                two responses if that moment can no longer be told, because of a new pipeline or too
                many changes.
            BatchFailedError: after the last response, if some element of the request was refused.
        """
        with self._turns.slice, self.lock:
            self.record("read")
            self._check_device(request.device_id)
            scope = self._read_scope(request.role)
            reading = Reading(self._pipeline(), request.entities, scope)
            reading.work()
            if not reading.ended:
                # No change came between: the moment of this Read is that of its first slice.
                reading.watch()
        if not reading.ended:
            yield from self._read_on(reading)
        response = reading.take()
        if response.entities:
            yield response
        if any(status.code for status in reading.statuses):
            raise BatchFailedError("Read", reading.statuses)

    def _read_on(self, reading: Reading) -> Iterator[p4r.ReadResponse]:
        """Yield all responses to a long Read but the last one."""
        try:
            while not reading.ended:
                if reading.is_full:
                    yield reading.take()
                with self._turns.slice, self.lock:
                    reading.work()
        finally:
            with self.lock:
                reading.close()

    def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Verify, save or commit a pipeline.

        Raises:
            RefusedError: as the specification says. A pipeline that cannot be realized is
                INVALID_ARGUMENT, with the reason.
        """
        actions = p4r.SetForwardingPipelineConfigRequest
        with self._turns.change(request.role):
            with self.lock:
                self.record("set_pipeline")
                self._check_primary(request)
                self._roles.check_pipeline(request.role, self._scopes[request.role])
            action = request.action
            if action == actions.COMMIT:
                if request.HasField("config"):
                    raise RefusedError(
                        Code.INVALID_ARGUMENT, "COMMIT takes no config; it commits the saved one"
                    )
                if self._saved is None:
                    raise RefusedError(
                        Code.NOT_FOUND, "no pipeline is saved; VERIFY_AND_SAVE one first"
                    )
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
                with self.lock:
                    self._tell_ports(pipeline)
                    self._drop(self._saved)
                    self._saved = pipeline
            elif action == actions.VERIFY_AND_COMMIT:
                self._commit(pipeline)
            elif action == actions.RECONCILE_AND_COMMIT:
                with self.lock:
                    if self._committed is not None:
                        pipeline.adopt(self._committed)
                    self._commit(pipeline)
            # What a pipeline has taken is held in cycles; the next one may need that memory, and
            # a compiler goes on for a program as long as there is a switch that runs it.
            del pipeline
            gc.collect()

    def get_pipeline(
        self, request: p4r.GetForwardingPipelineConfigRequest
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the pipeline config that Read and Write refer to; an empty one if none is set.

        Raises:
            RefusedError: NOT_FOUND for another device.
        """
        types = p4r.GetForwardingPipelineConfigRequest
        with self.lock:
            self.record("get_pipeline")
            self._check_device(request.device_id)
            pipeline = self._saved or self._committed
        response = p4r.GetForwardingPipelineConfigResponse()
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
        """Return the version of the API. Raise RefusedError (NOT_FOUND) for another device."""
        with self.lock:
            self.record("capabilities")
            if request.device_id:
                self._check_device(request.device_id)
            return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    # -- without a controller ----------------------------------------------------------------------

    def install(self, config: p4r.ForwardingPipelineConfig) -> None:
        """Commit a pipeline locally, as a switch does that starts with its program.

        Raises:
            RefusedError: INVALID_ARGUMENT with the reason.
        """
        with self._turns.change():
            self._commit(self._build(config))

    def set_port_up(self, port: int, up: bool) -> None:
        """Set whether `port` has its link. A port counts as up until it is first set.

        While a port is down, group members and one-shot actions that watch it are not chosen,
        backup replicas replace the replicas to it, and gNMI shows it as DOWN.
        """
        with self.lock:
            if up == self.is_port_up(port):
                return
            if up:
                self._down.remove(port)
            else:
                self._down.add(port)
            for pipeline in (self._committed, self._saved):
                if pipeline is not None:
                    pipeline.set_port_up(port, up)
            self.ports_changed.notify_all()

    def _make_switch(self, source: bytes) -> Switch:
        program = self._engines.load(source, "p4_device_config")
        return self._new_switch(program, native=self._engines(program))

    def is_port_up(self, port: int) -> bool:
        """Return the latest state that `set_port_up` set."""
        return port not in self._down

    def _has_port(self, port: int) -> bool:
        if self._ports is None:
            return True
        return port in self._ports or port == self._cpu_port

    def record(self, kind: str) -> None:
        """Add a message received from a controller to the log."""
        self.rpc_log.append(RpcRecord(self.now_ns(), sys.intern(kind)))

    # -- streams -----------------------------------------------------------------------------------

    def open_stream(
        self,
        send: Callable[[p4r.StreamMessageResponse], object],
        terminate: Callable[[Status], object],
        peer: Peer = LOCAL,
    ) -> ControllerStream:
        """Return the device's end of a new stream.

        Both callbacks are called with the lock held and must not block.
        """
        return ControllerStream(self, send, terminate, peer)

    def packet_in(self, data: bytes) -> None:
        """Send a packet that left the switch at its CPU port to the primaries that want it."""
        with self.lock:
            if self._committed is None:
                return
            message = self._committed.packet_in.unpack(data)
            if message is not None:
                message = self._committed.translation.outward(message)
                receivers = self._primaries(lambda scope: scope.wants(message))
                _send(receivers, p4r.StreamMessageResponse(packet=message))

    # -- time and digests --------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Do what is due by `now_ns`.

        Send digest lists, forget old unacknowledged ones, and report idle entries.
        """
        with self.lock:
            pipeline = self._committed
            if pipeline is None:
                return
            for batch in pipeline.digests.tick(now_ns, self._primaries_of):
                self._send_digests(pipeline, batch)
            self._acknowledged.notify_all()
            for table_id, idle in pipeline.tables.idle(now_ns):
                notification = p4r.IdleTimeoutNotification(
                    table_entry=pipeline.translated(idle),
                    timestamp=now_ns + self.epoch_ns,
                )
                message = p4r.StreamMessageResponse(idle_timeout_notification=notification)
                _send(self._primaries_of(table_id), message)

    def next_tick_ns(self) -> int | None:
        """Return the time at which `tick` next has something to do, None if nothing is pending."""
        with self.lock:
            if self._committed is None:
                return None
            digests_ns = self._committed.digests.next_tick_ns()
            idle_ns = self._committed.tables.next_idle_ns()
            if digests_ns is None or idle_ns is None:
                return idle_ns if digests_ns is None else digests_ns
            return min(digests_ns, idle_ns)

    @property
    def awaits_acknowledgement(self) -> bool:
        """Return whether a digest list sent with an `ack_timeout_ns` is not acknowledged yet."""
        return self._committed is not None and self._committed.digests.waiting

    def wait_acknowledged(self, timeout_s: float | None = None) -> bool:
        """Block until every digest list is acknowledged, or its receiver is gone.

        Only lists sent with an `ack_timeout_ns` count.

        The lock is free while this waits, even if the caller holds it, so that the controller can
        write before it acknowledges.

        Called without the lock between two batches of events, it also lets in RPCs that wait for
        the lock.

        Args:
            timeout_s: the longest wait, in seconds of real time; None: no limit.

        Returns:
            False if the wait timed out.
        """
        # A thread that releases a lock and takes it again immediately keeps all other threads out.
        time.sleep(0)
        with self._acknowledged:
            return self._acknowledged.wait_for(lambda: not self.awaits_acknowledgement, timeout_s)

    def _release_briefly(self) -> None:
        self.lock.release()
        self.lock.acquire()

    # -- inside: checks ----------------------------------------------------------------------------

    def _check_device(self, device_id: int) -> None:
        if device_id != self.device_id:
            raise RefusedError(
                Code.NOT_FOUND,
                f"this server has no device {device_id}, only device {self.device_id}",
            )

    def _check_primary(
        self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest
    ) -> None:
        self._check_device(request.device_id)
        if not self._arbitration.knows(request.role):
            raise RefusedError(
                Code.NOT_FOUND,
                f"no controller ever claimed role {request.role!r}; open a stream with it first",
            )
        election_id = None
        sender = "an unset election id"
        if request.HasField("election_id"):
            election_id = U128.decode(request.election_id)
            sender = f"election id {election_id}"
        if not self._arbitration.is_primary(request.role, election_id):
            raise RefusedError(
                Code.PERMISSION_DENIED,
                f"{sender} is not that of the primary of role {request.role!r}",
            )
        self._roles.check_change(request.role, self._has_owner())

    def _has_owner(self) -> bool:
        """Return whether the default role, to which all belongs, has a primary."""
        return any(not role for role, _ in self._arbitration.primaries)

    def _check_role_config(self, claim: Claim) -> Status | None:
        """Return the fault in the role that a controller claims, None if there is none."""
        live = {name: self._scopes[name] for name in self._arbitration.live_roles()}
        try:
            check_claim(claim.role, claim.role_config)
            role_scope(claim.role, claim.role_config, live)
        except RefusedError as error:
            return error.status
        return None

    def _read_scope(self, role: str) -> RoleScope:
        scope = self._scopes.get(role)
        if scope is None:
            raise RefusedError(
                Code.NOT_FOUND,
                f"no controller ever claimed role {role!r}; open a stream with it first",
            )
        return scope

    def _pipeline(self) -> Pipeline:
        pipeline = self._saved or self._committed
        if pipeline is None:
            raise RefusedError(Code.FAILED_PRECONDITION, _NO_PIPELINE)
        return pipeline

    # -- inside: pipelines -------------------------------------------------------------------------

    def _build(self, config: p4r.ForwardingPipelineConfig) -> Pipeline:
        copy = p4r.ForwardingPipelineConfig()
        copy.CopyFrom(config)
        return Pipeline(copy, self._make_switch, self._list_ids, self.now_ns, self._has_port)

    def _tell_ports(self, pipeline: Pipeline) -> None:
        for port in self._down:
            pipeline.set_port_up(port, False)

    def _commit(self, pipeline: Pipeline) -> None:
        with self.lock:
            self._tell_ports(pipeline)
            if self._committed is not None:
                self._committed.switch.on_digest = _ignore_digest
            self._drop(self._committed)
            if self._saved is not pipeline:
                self._drop(self._saved)
            self._committed = pipeline
            self._saved = None
            self.switch = pipeline.switch
            self.switch.on_digest = self._on_digest
            # acknowledgements of lists of the former pipeline are no longer awaited
            self._acknowledged.notify_all()
            if self.on_pipeline is not None:
                self.on_pipeline(self.switch)

    @staticmethod
    def _drop(pipeline: Pipeline | None) -> None:
        """End the Reads of a pipeline that goes, which would keep its memory."""
        if pipeline is not None:
            pipeline.lose_pasts("the pipeline was replaced while this Read went on; read again")

    # -- inside: digests ---------------------------------------------------------------------------

    def _on_digest(
        self,
        now_ns: int,
        name: str,
        _learn_list_id: int,
        values: tuple[int, ...],
    ) -> None:
        with self.lock:
            pipeline = self._committed
            assert pipeline is not None
            batch = pipeline.learning.learn(name, values, now_ns, self._primaries_of)
            if batch is not None:
                self._send_digests(pipeline, batch)

    def _send_digests(self, pipeline: Pipeline, batch: DigestBatch) -> None:
        message = pipeline.learning.message(batch)
        message.timestamp += self.epoch_ns
        _send(self._primaries_of(batch.digest_id), p4r.StreamMessageResponse(digest=message))

    def _primaries_of(self, number: int) -> list[ControllerStream]:
        """Return the primaries whose role has the entity with this P4Info id."""
        return self._primaries(lambda scope: scope.covers(number))

    def _primaries(self, wanted: Callable[[RoleScope], bool]) -> list[ControllerStream]:
        return [stream for scope, stream in self._acting if wanted(scope)]

    def _acting_primaries(self) -> list[tuple[RoleScope, Any]]:
        """Return the scopes and streams of the primaries that may do more than read."""
        acting: list[tuple[RoleScope, Any]] = []
        has_owner = self._has_owner()
        for role, stream in self._arbitration.primaries:
            if self._roles.may_act(role, has_owner):
                acting.append((self._scopes[role], stream))
        return acting

    # -- inside: streams ---------------------------------------------------------------------------

    def receive_from(self, stream: ControllerStream, message: p4r.StreamMessageRequest) -> bool:
        kind = message.WhichOneof("update")
        if kind == "arbitration":
            # The specification demands that the writes of a former primary have ended first.
            with self._turns.change():
                self._arbitrate(stream, message.arbitration)
            return False
        with self.lock:
            if stream.ended:
                return False
            self.record("packet_out" if kind == "packet" else kind or "empty")
            try:
                self._check_sender(stream)
                if kind == "packet":
                    self._packet_out(message.packet)
                elif kind == "digest_ack":
                    self._acknowledge(stream, message.digest_ack)
                else:
                    raise RefusedError(
                        Code.UNIMPLEMENTED,
                        f"a stream message of kind {kind or 'nothing'} is not supported",
                    )
            except RefusedError as error:
                stream.send(p4r.StreamMessageResponse(error=_stream_error(message, error.status)))
                return False
        return True

    def _check_sender(self, stream: ControllerStream) -> None:
        for role, primary in self._arbitration.primaries:
            if primary is stream:
                self._roles.check_change(role, self._has_owner())
                return
        raise RefusedError(Code.PERMISSION_DENIED, "only a primary may send this")

    def _arbitrate(self, stream: ControllerStream, update: p4r.MasterArbitrationUpdate) -> None:
        with self.lock:
            # A message may have waited for the lock while its stream broke. It must not bring the
            # stream back to life.
            if stream.ended:
                return
            self.record("arbitration")
            if update.role.id and not update.role.name:
                text = (
                    f"role id {update.role.id}: roles have names since P4Runtime 1.4; give the"
                    " role's name instead"
                )
                refusal = Termination(stream, Status(Code.INVALID_ARGUMENT, text))
                self._tell([refusal, *self._arbitration.closed(stream)])
                return
            claim = _claim(update, stream.peer)
            outcomes = self._arbitration.claim(stream, claim)
            for role in [role for role in self._scopes if not self._arbitration.knows(role)]:
                del self._scopes[role]
            if self._arbitration.knows(claim.role):
                config = self._arbitration.config(claim.role)
                self._scopes[claim.role] = role_scope(claim.role, config, {})
            self._tell(outcomes)

    def closed(self, stream: ControllerStream) -> None:
        with self.lock:
            stream.ended = True
            self._tell(self._arbitration.closed(stream))

    def _tell(self, outcomes: list[Notice | Termination]) -> None:
        self._acting = self._acting_primaries()
        for outcome in outcomes:
            stream: Any = outcome.stream
            if isinstance(outcome, Termination):
                stream.ended = True
                stream.terminate(outcome.status)
            else:
                update = self._arbitration_update(outcome)
                stream.send(p4r.StreamMessageResponse(arbitration=update))
        if self._committed is not None:
            self._committed.digests.await_only([stream for _, stream in self._acting])
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
        elif notice.code == Code.ALREADY_EXISTS:
            update.status.message = "another controller is the primary"
        else:
            update.status.message = "no controller is the primary"
        return update

    def _packet_out(self, packet: p4r.PacketOut) -> None:
        if self._committed is None:
            raise RefusedError(Code.FAILED_PRECONDITION, _NO_PIPELINE)
        translated = self._committed.translation.inward(packet)
        data = self._committed.packet_out.pack(translated)
        if self.on_packet_out is None:
            raise RefusedError(Code.UNIMPLEMENTED, "this switch has no path for packet-outs")
        self.on_packet_out(data)

    def _acknowledge(self, stream: ControllerStream, ack: p4r.DigestListAck) -> None:
        if self._committed is None:
            raise RefusedError(Code.FAILED_PRECONDITION, _NO_PIPELINE)
        self._committed.learning.check(ack.digest_id)
        self._committed.digests.acknowledge(ack.digest_id, ack.list_id, stream)
        self._acknowledged.notify_all()


def _check_size(updates: int, atomicity: int) -> None:
    if atomicity == p4r.WriteRequest.CONTINUE_ON_ERROR:
        most = MOST_UPDATES
        kind = "one Write"
    else:
        most = _MOST_ATOMIC_UPDATES
        kind = "one Write that is all or nothing"
    if updates > most:
        raise RefusedError(
            Code.RESOURCE_EXHAUSTED,
            f"{updates} updates in {kind}, of which {most} are allowed; send several Writes",
        )


def _send(streams: list[ControllerStream], message: p4r.StreamMessageResponse) -> None:
    for stream in streams:
        stream.send(message)


def _claim(update: p4r.MasterArbitrationUpdate, peer: Peer) -> Claim:
    config = None
    if update.role.HasField("config"):
        config = type(update.role.config)()
        config.CopyFrom(update.role.config)
    election_id = None
    if update.HasField("election_id"):
        election_id = U128.decode(update.election_id)
    return Claim(update.device_id, update.role.name, election_id, config, peer)


def _stream_error(message: p4r.StreamMessageRequest, status: Status) -> p4r.StreamError:
    error = p4r.StreamError(
        canonical_code=status.code,
        message=status.message,
    )
    kind = message.WhichOneof("update")
    if kind == "packet":
        error.packet_out.packet_out.CopyFrom(message.packet)
    elif kind == "digest_ack":
        error.digest_list_ack.digest_list_ack.CopyFrom(message.digest_ack)
    elif kind == "other":
        error.other.other.CopyFrom(message.other)
    return error


def _ignore_digest(
    _now_ns: int,
    _name: str,
    _learn_list_id: int,
    _values: tuple[int, ...],
) -> None:
    """Discard the digests of a switch that no longer runs."""
