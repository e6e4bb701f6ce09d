"""A controller for tests: P4Runtime over one connection, with calls that block.

Tests send a packet, look at a counter and wait for a digest, in that order, so only the thread that
reads the stream runs beside them. Encoding is the control plane's own
(`echelon.switches.southbound.codec`, finsy).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, cast

import grpc  # type: ignore[import-untyped]
from finsy import P4CounterEntry, P4MulticastGroupEntry, P4Schema
from finsy.proto import U128, p4r, p4r_grpc, rpc_status

from echelon.model.p4program import P4Program, constants
from echelon.switches.lowering.intent import DigestSetting, TableEntry
from echelon.switches.lowering.lower import DIGEST
from echelon.switches.southbound.codec import encode_digest, encode_entry
from echelon_ptf.entries import BIAS

TIMEOUT_S = 15.0
"""The time within which a target has to give an answer that it gives at once."""
_PIPELINE_TIMEOUT_S = 60.0
"""The time within which a program has to be installed: a target may compile it."""
_ELECTION_ID = 1
_SENT = "EchelonEgress.sent"
_QUEUES = constants()["QUEUES"]
_FAST_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
]


class TargetError(AssertionError):
    """The target refused or did not answer. The text says what it was asked for."""


class UnsupportedError(TargetError):
    """The target says that it does not implement what it was asked for."""


class Count(NamedTuple):
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """A digest of the program: a flow started, finished, or both with its only packet."""

    event: int
    flow: int
    epoch: int
    slack_key: int
    time_us: int

    @property
    def slack_us(self) -> int:
        return self.slack_key - BIAS


class Controller:
    """The primary controller of one device over P4Runtime, from `connect` to `close`."""

    time_error_us = 0
    """The largest error of a difference of times that digests tell."""
    age_error = Fraction(0)
    """The share by which an age that the switch writes may be too short."""

    def __init__(self, address: str, device_id: int, program: P4Program) -> None:
        self._device_id = device_id
        self._schema = P4Schema(program.p4info)
        self._channel = grpc.insecure_channel(address, options=_FAST_RECONNECT)
        self._address = address
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._outbox: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        self._arbitrated = threading.Event()
        self._events: SimpleQueue[FlowEvent] = SimpleQueue()
        self._oldest_flow = 0
        self._reader = threading.Thread(
            target=self._read_stream, name="p4runtime-stream", daemon=True
        )
        self._closing = False
        self.stream_error = ""

    def connect(self, binary: bytes) -> None:
        """Become primary and install the program, on a target that may still be starting.

        Raises:
            TargetError: nobody answers, somebody else is primary, or the program is refused.
        """
        try:
            grpc.channel_ready_future(self._channel).result(timeout=TIMEOUT_S)
        except grpc.FutureTimeoutError:
            raise TargetError(
                f"no P4Runtime server at {self._address}; is the target running?"
            ) from None
        update = p4r.MasterArbitrationUpdate(
            device_id=self._device_id, election_id=U128.encode(_ELECTION_ID)
        )
        self._outbox.put(p4r.StreamMessageRequest(arbitration=update))
        self._reader.start()
        if not self._arbitrated.wait(TIMEOUT_S) or self.stream_error:
            raise TargetError(f"not primary at {self._address}: {self.stream_error or 'no answer'}")
        config = p4r.ForwardingPipelineConfig(p4info=self._schema.p4info, p4_device_config=binary)
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=U128.encode(_ELECTION_ID),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=config,
        )
        self._call(
            "installing the program",
            self._stub.SetForwardingPipelineConfig,
            request,
            timeout_s=_PIPELINE_TIMEOUT_S,
        )
        # One digest a list, sent at once without awaiting acknowledgements, so that tests need not
        # wait.
        setting = DigestSetting(DIGEST, max_list_size=1, max_timeout_ns=0, ack_timeout_ns=0)
        self._write(
            "digest",
            [p4r.Update(type=p4r.Update.INSERT, entity=encode_digest(setting, self._schema))],
        )

    def close(self) -> None:
        self._closing = True
        self._outbox.put(None)
        self._channel.close()

    # -- tables ------------------------------------------------------------------------------------

    def insert(self, *entries: TableEntry) -> None:
        self._write_entries(p4r.Update.INSERT, entries)

    def modify(self, *entries: TableEntry) -> None:
        self._write_entries(p4r.Update.MODIFY, entries)

    def delete(self, *entries: TableEntry) -> None:
        self._write_entries(p4r.Update.DELETE, entries)

    def insert_multicast(self, group: int, ports: Iterable[int | tuple[int, int]]) -> None:
        self._write_multicast(
            p4r.Update.INSERT, P4MulticastGroupEntry(group, replicas=tuple(ports))
        )

    def delete_multicast(self, group: int) -> None:
        self._write_multicast(p4r.Update.DELETE, P4MulticastGroupEntry(group))

    def _write_multicast(self, kind: Any, entry: P4MulticastGroupEntry) -> None:
        self._write("multicast group", [p4r.Update(type=kind, entity=entry.encode(self._schema))])

    def _write_entries(self, kind: Any, entries: Iterable[TableEntry]) -> None:
        updates = [
            p4r.Update(type=kind, entity=p4r.Entity(table_entry=encode_entry(entry, self._schema)))
            for entry in entries
        ]
        self._write(", ".join(sorted({entry.table for entry in entries})), updates)

    def _write(self, what: str, updates: list[p4r.Update]) -> None:
        request = p4r.WriteRequest(
            device_id=self._device_id, election_id=U128.encode(_ELECTION_ID), updates=updates
        )
        self._call(f"writing {what}", self._stub.Write, request)

    # -- counters ----------------------------------------------------------------------------------

    def counter(self, name: str, index: int) -> Count:
        """Return a cell of an indirect counter."""
        entity = P4CounterEntry(name, index=index).encode(self._schema)
        (answer,) = self._read(f"counter {name}", entity)
        return Count(answer.counter_entry.data.packet_count, answer.counter_entry.data.byte_count)

    def queue_counter(self, port: int, queue: int) -> Count:
        """Return what has left a queue."""
        return self.counter(_SENT, port * _QUEUES + queue)

    def direct_counter(self, entry: TableEntry) -> Count:
        """Return what an entry has counted."""
        key = encode_entry(entry, self._schema)
        key.ClearField("action")
        entity = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key))
        (answer,) = self._read(f"counter of {entry.table}", entity)
        return Count(
            answer.direct_counter_entry.data.packet_count,
            answer.direct_counter_entry.data.byte_count,
        )

    # -- registers ---------------------------------------------------------------------------------

    def register(self, name: str, index: int) -> int:
        """Return a cell of a register.

        Raises UnsupportedError where P4Runtime does not reach registers.
        """
        (answer,) = self._read(f"register {name}", self._register(name, index))
        return int.from_bytes(answer.register_entry.data.bitstring, "big")

    def set_register(self, name: str, index: int, value: int) -> None:
        """Set a cell of a register.

        Raises UnsupportedError where P4Runtime does not reach registers.
        """
        entity = self._register(name, index)
        entity.register_entry.data.bitstring = value.to_bytes(
            max(1, (value.bit_length() + 7) // 8), "big"
        )
        self._write(f"register {name}", [p4r.Update(type=p4r.Update.MODIFY, entity=entity)])

    def _register(self, name: str, index: int) -> p4r.Entity:
        entry = p4r.RegisterEntry(
            register_id=self._schema.registers[name].id, index=p4r.Index(index=index)
        )
        return p4r.Entity(register_entry=entry)

    # -- digests -----------------------------------------------------------------------------------

    def next_event(self) -> FlowEvent:
        """Return the oldest digest that was not taken or dropped yet.

        Raises TargetError when none comes.
        """
        try:
            # Flow 0 is nobody's: a digest of it would be an error of this test.
            while 0 < (event := self._events.get(timeout=TIMEOUT_S)).flow < self._oldest_flow:
                pass
        except Empty:
            raise TargetError(
                f"no digest for {TIMEOUT_S:g} s; {self.stream_error or 'the stream is open'}"
            ) from None
        return event

    def forget_events(self, before_flow: int) -> None:
        """Drop digests so far, and later ones of flows with lower numbers than `before_flow`."""
        while not self._events.empty():
            self._events.get()
        self._oldest_flow = before_flow

    # -- inside ------------------------------------------------------------------------------------

    def _read(self, what: str, entity: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=[entity])
        try:
            return [
                found
                for response in self._stub.Read(request, timeout=TIMEOUT_S)
                for found in response.entities
            ]
        except grpc.RpcError as error:
            raise _refusal(f"reading {what}", error) from None

    def _call(
        self,
        what: str,
        method: Callable[..., object],
        request: object,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        try:
            method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise _refusal(what, error) from None

    def _requests(self) -> Iterator[p4r.StreamMessageRequest]:
        while (message := self._outbox.get()) is not None:
            yield message

    def _read_stream(self) -> None:
        try:
            for message in self._stub.StreamChannel(self._requests()):
                self._receive(message)
        except grpc.RpcError as error:
            if not self._closing:
                self.stream_error = _reasons(error)
        finally:
            self._arbitrated.set()

    def _receive(self, message: p4r.StreamMessageResponse) -> None:
        match message.WhichOneof("update"):
            case "arbitration":
                if message.arbitration.status.code:
                    self.stream_error = (
                        message.arbitration.status.message or "another controller is primary"
                    )
                self._arbitrated.set()
            case "digest":
                spec = self._schema.digests[message.digest.digest_id].type_spec
                for data in message.digest.data:
                    self._events.put(FlowEvent(**cast(dict[str, int], spec.decode_data(data))))
            case "error":
                self.stream_error = message.error.message


def _refusal(what: str, error: Any) -> TargetError:
    kind = UnsupportedError if error.code() == grpc.StatusCode.UNIMPLEMENTED else TargetError
    return kind(f"{what}: {_reasons(error)}")


def _reasons(error: Any) -> str:
    """Return a server's message, with the reasons of single updates from the trailing metadata."""
    texts = [f"{error.code().name} {error.details() or ''}".strip()]
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in rpc_status.Status.FromString(value).details:
                reason = p4r.Error()
                if detail.Unpack(reason) and reason.canonical_code:
                    texts.append(reason.message)
    return "; ".join(texts)


def poll(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> bool:
    """Ask until `condition` holds or the time is over, and return whether it holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
