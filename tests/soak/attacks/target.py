"""The target of an attacker, and its client, which sends bytes as they are over plain gRPC."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import grpc
from finsy.proto import U128, p4r
from google.protobuf import text_format

from echelon.model.p4program import program

ANSWER_S = 120.0
"""The time that an attacker waits for an answer."""

Answer = tuple[str, str, float | None]
"""A call of an attacker, the answer, and how long it took in seconds."""

_P4 = "/p4.v1.P4Runtime/"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 16 << 20),
    ("grpc.absolute_max_metadata_size", 16 << 20),
    # Each channel is a connection, and so a peer, of its own.
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True)
class Target:
    """The switch and the service that are attacked."""

    switch: str
    """The address of the switch's P4Runtime and gNMI."""
    device_id: int
    port: Path
    """The socket of a port of the switch: frames sent to it come in there."""
    api_port: int
    """The port of the service's API, at 127.0.0.1."""


class Telling:
    """A pipe on which the answers to an attacker go to the process that prints them."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def __call__(self, call: str, text: str, took_s: float | None = None) -> None:
        answer: Answer = (call, " ".join(text.split())[:160], took_s)
        with suppress(OSError):
            self._pipe.send(answer)

    def call(self, name: str, action: Callable[[], object]) -> bool:
        """Do something, and say what came of it and how long it took; return whether it worked."""
        began_s = time.monotonic()
        try:
            answer = str(action() or "OK")
            is_done = True
        except grpc.RpcError as error:
            answer = answer_text(error)
            is_done = False
        self(name, answer, time.monotonic() - began_s)
        return is_done


def answer_text(error: grpc.RpcError) -> str:
    """Return the status of a refused call and its words."""
    return f"{error.code().name} {error.details() or ''}"  # type: ignore[attr-defined]


def _unchanged(data: bytes) -> bytes:
    return data


class Peer:
    """A client of the switch with a connection of its own. A context manager."""

    def __init__(self, target: Target) -> None:
        self.device_id = target.device_id
        self.channel = grpc.insecure_channel(target.switch, _OPTIONS)
        self._outboxes: list[SimpleQueue[bytes | None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for outbox in self._outboxes:
            outbox.put(None)
        self.channel.close()

    def call(self, method: str, request: bytes, timeout_s: float = ANSWER_S) -> bytes:
        """Send a request to a method of P4Runtime, or to another one by its full path."""
        path = method if method.startswith("/") else _P4 + method
        call = self.channel.unary_unary(path, _unchanged, _unchanged)
        return bytes(call(request, timeout=timeout_s))

    def read(self, request: bytes, timeout_s: float = ANSWER_S) -> Iterator[bytes]:
        """Yield what a Read answers."""
        call = self.channel.unary_stream(_P4 + "Read", _unchanged, _unchanged)
        yield from call(request, timeout=timeout_s)

    def stream(self) -> tuple[Any, SimpleQueue[bytes | None]]:
        """Open a stream that says nothing; return its answers and what is sent on it."""
        outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._outboxes.append(outbox)
        stream = self.channel.stream_stream(_P4 + "StreamChannel", _unchanged, _unchanged)
        return stream(iter(outbox.get, None)), outbox

    def claim(self, election_id: int, role: str = "") -> Any:
        """Open a stream that claims to be primary; return its answers."""
        answers, outbox = self.stream()
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.election_id.CopyFrom(U128.encode(election_id))
        if role:
            request.arbitration.role.name = role
        outbox.put(request.SerializeToString())
        return answers

    def push(
        self,
        config: p4r.ForwardingPipelineConfig,
        election_id: int,
        role: str = "",
    ) -> None:
        """Replace the pipeline."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            role=role,
            election_id=U128.encode(election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=config,
        )
        self.call("SetForwardingPipelineConfig", request.SerializeToString())

    def entries(self) -> list[p4r.Entity]:
        """Return the entries that somebody wrote."""
        request = p4r.ReadRequest(device_id=self.device_id)
        request.entities.add().table_entry.SetInParent()
        entries = []
        for answer in self.read(request.SerializeToString()):
            for entity in p4r.ReadResponse.FromString(answer).entities:
                entry = entity.table_entry
                if not entry.is_default_action and not entry.is_const:
                    entries.append(entity)
        return entries


def product_config() -> p4r.ForwardingPipelineConfig:
    """Return the pipeline that the service itself brings."""
    compiled = program()
    config = p4r.ForwardingPipelineConfig(p4_device_config=compiled.binary.read_bytes())
    text_format.Parse(compiled.p4info.read_text(encoding="utf-8"), config.p4info)
    return config
