"""A controller that says what a server answers, over gRPC."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy.proto import U128, p4r, p4r_grpc, rpc_status

DEVICE_ID = 1
RPC_S = 20
ANSWER_S = 5.0
"""The time that an answer may take on a stream."""
QUIET_S = 0.3
"""The time without a message after which none is expected to come."""

Actions = p4r.SetForwardingPipelineConfigRequest


class AnswerError(Exception):
    """What a server answered where it had to accept, or the other way round."""


class Session:
    """One channel and one stream to a switch.

    Args:
        election_id: the one to claim and to write with; None: no stream is opened.
    """

    def __init__(
        self,
        address: str,
        election_id: int | None = 1,
        role: str = "",
        config: Any = None,
        device_id: int = DEVICE_ID,
    ) -> None:
        self.election_id = election_id
        self.role = role
        self.device_id = device_id
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 1 << 20)]
        self.channel = grpc.insecure_channel(address, options=options)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.first: Any = None
        if election_id is not None:
            self.claim(election_id, role, config)

    def claim(self, election_id: int, role: str = "", config: Any = None) -> Any:
        """Send an arbitration message on the stream; return what comes back."""
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id)
        if election_id:
            update.election_id.CopyFrom(U128.encode(election_id))
        if role:
            update.role.name = role
        if config is not None:
            update.role.config.Pack(config)
        self.send(p4r.StreamMessageRequest(arbitration=update))
        self.first = self.receive("arbitration")
        return self.first

    def send(self, message: Any) -> None:
        if self._outbox.empty() and not hasattr(self, "_thread"):
            responses = self.stub.StreamChannel(iter(self._outbox.get, None))
            self._thread = threading.Thread(target=self._receive, args=(responses,), daemon=True)
            self._thread.start()
        self._outbox.put(message)

    def _receive(self, responses: Any) -> None:
        try:
            for response in responses:
                self.inbox.put(response)
        except grpc.RpcError as error:
            self.inbox.put(error)

    def receive(self, kind: str | None = None) -> Any:
        """Return the next message, of a kind if that is given, or the stream's end (RpcError)."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            left = deadline - time.monotonic()
            try:
                message = self.inbox.get(timeout=max(left, 0.001))
            except queue.Empty:
                raise AnswerError("nothing came on the stream") from None
            if isinstance(message, grpc.RpcError):
                return message
            if kind is None or message.WhichOneof("update") == kind:
                return message

    def next(self, timeout_s: float) -> Any:
        """Return the next message, None if none comes in time."""
        try:
            return self.inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def is_primary(self) -> bool:
        first = self.first
        return not isinstance(first, grpc.RpcError) and first.arbitration.status.code == 0

    def close(self) -> None:
        self._outbox.put(None)
        self.channel.close()

    # -- unary -------------------------------------------------------------------------------------

    def codes(self, updates: Sequence[Any], atomicity: int = 0, **changes: Any) -> list[int]:
        """Return the status code of each update, or that of the request for all."""
        request = p4r.WriteRequest(
            device_id=self.device_id,
            role=self.role,
            updates=updates,
            atomicity=atomicity,  # type: ignore[arg-type]
        )
        if self.election_id:
            request.election_id.CopyFrom(U128.encode(self.election_id))
        for name, value in changes.items():
            setattr(request, name, value)
        try:
            self.stub.Write(request, timeout=RPC_S)
        except grpc.RpcError as error:
            details = errors_of(error)
            if len(details) == len(updates):
                return [detail.canonical_code for detail in details]
            return [error.code().value[0]] * len(updates)
        return [0] * len(updates)

    def errors(self, updates: Sequence[Any]) -> list[Any]:
        """Return the p4.v1.Error of each update."""
        request = p4r.WriteRequest(device_id=self.device_id, updates=updates, role=self.role)
        request.election_id.CopyFrom(U128.encode(self.election_id or 1))
        try:
            self.stub.Write(request, timeout=RPC_S)
        except grpc.RpcError as error:
            return errors_of(error)
        return []

    def read(self, *queries: Any, **changes: Any) -> list[Any]:
        request = p4r.ReadRequest(device_id=self.device_id, role=self.role, entities=queries)
        for name, value in changes.items():
            setattr(request, name, value)
        answers = self.stub.Read(request, timeout=RPC_S)
        return [entity for answer in answers for entity in answer.entities]

    def pipeline(self, action: str, config: Any = None, **changes: Any) -> None:
        request = Actions(
            device_id=self.device_id,
            role=self.role,
            action=Actions.Action.Value(action),
            config=config,
        )
        if self.election_id:
            request.election_id.CopyFrom(U128.encode(self.election_id))
        for name, value in changes.items():
            setattr(request, name, value)
        self.stub.SetForwardingPipelineConfig(request, timeout=RPC_S)

    def config(self, kind: str = "ALL", **changes: Any) -> Any:
        types = p4r.GetForwardingPipelineConfigRequest
        request = types(device_id=self.device_id, response_type=types.ResponseType.Value(kind))
        for name, value in changes.items():
            setattr(request, name, value)
        return self.stub.GetForwardingPipelineConfig(request, timeout=RPC_S).config


def errors_of(error: Any) -> list[Any]:
    """Return the p4.v1.Error messages of a batch that failed."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            details = rpc_status.Status.FromString(value).details
            return [p4r.Error.FromString(detail.value) for detail in details]
    return []


def code_of(call: Callable[[], Any]) -> int:
    """Return the status code with which a call ends; 0 where it succeeds."""
    try:
        call()
    except grpc.RpcError as error:
        code: int = error.code().value[0]
        return code
    return 0
