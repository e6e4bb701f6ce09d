"""Entries written per second over P4Runtime, on any server: softswitch, BMv2 or another.

`Load` is the client: it takes the primary role, pushes the pipeline and writes entries that
`updates` makes for any table of the P4Info, whatever its key. Requests are serialized before the
clock starts, so that the figures are the server's as far as one machine allows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc  # type: ignore[import-untyped]
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format

__all__ = ["Load", "Rate", "load_p4info", "updates"]

BATCH = 1000
"""The number of updates in a WriteRequest."""

_SERVICE = "/p4.v1.P4Runtime/"


@dataclass(frozen=True)
class Rate:
    """The rate of `count` entries in `seconds`."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


class Load:
    """A P4Runtime client of one device, made for large batches.

    Args:
        address: host:port of the server.
        p4info: what the server runs, or is to run (`push`).
        device_id: the device.
        election_id: must be the highest that the device has seen.

    Raises:
        grpc.RpcError: the server cannot be reached or refuses something.
        RuntimeError: another controller is the primary.
    """

    def __init__(
        self,
        address: str,
        p4info: p4i.P4Info,
        *,
        device_id: int = 1,
        election_id: int = 1,
    ) -> None:
        self.p4info = p4info
        self._device_id = device_id
        self._election_id = U128.encode(election_id)
        self._channel = grpc.insecure_channel(
            address, [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 16 << 20)]
        )
        grpc.channel_ready_future(self._channel).result(timeout=20)
        self._write = self._channel.unary_unary(_SERVICE + "Write")
        self._requests = _Requests()
        stream = self._channel.stream_stream(
            _SERVICE + "StreamChannel",
            request_serializer=p4r.StreamMessageRequest.SerializeToString,
            response_deserializer=p4r.StreamMessageResponse.FromString,
        )
        self._responses = stream(self._requests)
        claim = p4r.MasterArbitrationUpdate(
            device_id=device_id,
            election_id=self._election_id,
        )
        self._requests.put(p4r.StreamMessageRequest(arbitration=claim))
        answer = next(self._responses).arbitration
        if answer.status.code:
            raise RuntimeError(f"{address}: not the primary: {answer.status.message}")

    def push(self, program: bytes) -> None:
        """Commit the pipeline: the P4Info, and `program`, the JSON that p4c-bm2-ss wrote."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=self._election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4r.ForwardingPipelineConfig(
                p4info=self.p4info,
                p4_device_config=program,
            ),
        )
        self._channel.unary_unary(_SERVICE + "SetForwardingPipelineConfig")(
            request.SerializeToString()
        )

    def write(self, changes: Iterable[p4r.Update], *, batch: int = BATCH) -> Rate:
        """Write `changes`, `batch` a request, one request after another."""
        return self.send(self.requests(changes, batch=batch))

    def requests(
        self, changes: Iterable[p4r.Update], *, batch: int = BATCH
    ) -> list[tuple[int, bytes]]:
        """Return requests for `send`: the number of updates and the serialized message of each."""
        requests: list[tuple[int, bytes]] = []
        coming = iter(changes)
        while part := list(itertools.islice(coming, batch)):
            request = p4r.WriteRequest(
                device_id=self._device_id,
                election_id=self._election_id,
                updates=part,
            )
            requests.append((len(part), request.SerializeToString()))
        return requests

    def send(
        self, requests: Iterable[tuple[int, bytes]], *, per_second: float | None = None
    ) -> Rate:
        """Send requests one after another, no more than so many updates a second."""
        count = 0
        start = time.perf_counter()
        for updates_in, data in requests:
            if per_second is not None:
                time.sleep(max(0.0, start + count / per_second - time.perf_counter()))
            self._write(data)
            count += updates_in
        return Rate(count, time.perf_counter() - start)

    def close(self) -> None:
        """End the stream and the connection."""
        self._requests.end()
        self._responses.cancel()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Requests:
    """The requests on the stream, as the iterator that gRPC wants."""

    def __init__(self) -> None:
        from queue import SimpleQueue

        self._queue: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()

    def put(self, message: p4r.StreamMessageRequest) -> None:
        self._queue.put(message)

    def end(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> p4r.StreamMessageRequest:
        message = self._queue.get()
        if message is None:
            raise StopIteration
        return message


def load_p4info(path: Path) -> p4i.P4Info:
    """Return the P4Info in text form at `path`."""
    return text_format.Parse(path.read_text(), p4i.P4Info())


def updates(
    p4info: p4i.P4Info,
    table: str,
    count: int,
    kind: int = p4r.Update.INSERT,
) -> Iterator[p4r.Update]:
    """Yield `count` updates of distinct entries of `table`: keys count up, actions and arguments
    vary.

    Ternary entries have one of eight masks and one of 1000 priorities; prefixes are of two lengths;
    a table with an action selector gets one-shot sets of one to four actions.

    Raises:
        ValueError: the table does not exist, has no action for its entries, or its key has too few
        values.
    """
    wanted = _table(p4info, table)
    actions = {action.preamble.id: action for action in p4info.actions}
    usable = [
        actions[ref.id] for ref in wanted.action_refs if ref.scope != p4i.ActionRef.DEFAULT_ONLY
    ]
    usable = [action for action in usable if action.params] or usable
    if not usable:
        raise ValueError(f"table {table}: it has no action for entries")
    room = sum(min(24, match.bitwidth) for match in wanted.match_fields)
    if room < 63 and count > 1 << room:
        raise ValueError(f"table {table}: its key has room for {1 << room} entries, not {count}")
    ordered = any(match.match_type in _WITH_PRIORITY for match in wanted.match_fields)
    for number in range(count):
        entry = p4r.TableEntry(table_id=wanted.preamble.id)
        left = number
        for match in wanted.match_fields:
            part = min(24, match.bitwidth)
            _match(entry.match.add(field_id=match.id), match, left & ((1 << part) - 1), number)
            left >>= part
        if ordered:
            entry.priority = 1 + number % 1000
        if wanted.implementation_id:
            for member in range(1 + number % 4):
                chosen = entry.action.action_profile_action_set.action_profile_actions.add(
                    weight=1 + member
                )
                _call(chosen.action, usable[(number + member) % len(usable)], number + member)
        else:
            _call(entry.action.action, usable[number % len(usable)], number)
        yield p4r.Update(
            type=kind,
            entity=p4r.Entity(table_entry=entry),
        )  # type: ignore[arg-type]


_WITH_PRIORITY = (p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL)


def _match(
    field: p4r.FieldMatch,
    match: p4i.MatchField,
    value: int,
    number: int,
) -> None:
    """Give `field` a value that only `value` gets."""
    width = match.bitwidth
    if match.match_type == p4i.MatchField.EXACT:
        field.exact.value = _bytes(value)
    elif match.match_type == p4i.MatchField.LPM:
        # The lowest 24 bits behind the first eight carry the number; every other prefix is full.
        cut = max(0, width - 24) // 2 if number % 2 else 0
        field.lpm.value = _bytes(value << (max(0, width - 24) // 2))
        field.lpm.prefix_len = width - cut
    elif match.match_type == p4i.MatchField.TERNARY:
        spare = max(0, width - 24)
        mask = ((1 << width) - 1) & ~(number % 8 << 24 if spare >= 3 else 0)
        field.ternary.value = _bytes(value)
        field.ternary.mask = _bytes(mask)
    elif match.match_type == p4i.MatchField.RANGE:
        field.range.low = field.range.high = _bytes(value)
    else:
        field.optional.value = _bytes(value)


def _call(
    call: p4r.Action,
    action: p4i.Action,
    number: int,
) -> None:
    call.action_id = action.preamble.id
    for param in action.params:
        call.params.add(
            param_id=param.id,
            value=_bytes(number & ((1 << param.bitwidth) - 1)),
        )


def _bytes(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def _table(p4info: p4i.P4Info, name: str) -> p4i.Table:
    for table in p4info.tables:
        if name in (table.preamble.name, table.preamble.alias):
            return table
    names = ", ".join(table.preamble.name for table in p4info.tables)
    raise ValueError(f"the P4Info has no table {name!r}; it has {names}")
