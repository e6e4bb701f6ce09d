"""A switch that serves BF Runtime, and a client that uses gRPC directly."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from finsy.proto import rpc_status

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino_model.bfruntime.device import BfrtProgram
from echelon_tofino_model.bfruntime.fixed import fixed_schema
from echelon_tofino_model.bfruntime.schema import BfrtTable, Schema, parse
from echelon_tofino_model.bfruntime.server import BfRuntimeServer
from echelon_tofino_model.bfruntime.service import BfRuntime
from echelon_tofino_model.bfruntime.store import StoredDevice
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from tests.softswitch.tm.native import SchedulerInC

INFO = Path(__file__).with_name("small.bf-rt.json")
LINE_BPS = 100_000_000
WAIT_S = 20.0


class Served:
    """A switch with ports 1 to 8 of 100 Mbit/s, with the program of `small.bf-rt.json`."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.lock = threading.RLock()
        self.ports = {port: SchedulerInC(LINE_BPS) for port in range(1, 9)}
        self.down: set[int] = set()
        self.traffic = TrafficManager(
            self.ports, lambda: self.now_ns, lambda port: port not in self.down
        )
        self.schema = parse(INFO.read_bytes(), str(INFO))
        self.device = StoredDevice(self.traffic, BfrtProgram("small", self.schema))
        self.service = BfRuntime(self.device, self.lock)
        self.server = BfRuntimeServer(self.service)


class BfrtError(Exception):
    """The codes and texts of a batch's parts."""

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        super().__init__(errors)
        self.codes = [code for code, _ in errors]
        self.texts = [text for _, text in errors]


_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


class Client:
    """A client of BF Runtime that gives fields by name."""

    def __init__(self, address: str, client_id: int, schema: Schema) -> None:
        self.id = client_id
        self._channel = grpc.insecure_channel(address)
        self._schema = schema
        path = "/bfrt_proto.BfRuntime/"
        unary = self._channel.unary_unary
        self.write_call = unary(
            path + "Write", bfrt.WriteRequest.SerializeToString, bfrt.WriteResponse.FromString
        )
        self._read = self._channel.unary_stream(
            path + "Read", bfrt.ReadRequest.SerializeToString, bfrt.ReadResponse.FromString
        )
        self._set = unary(
            path + "SetForwardingPipelineConfig",
            bfrt.SetForwardingPipelineConfigRequest.SerializeToString,
            bfrt.SetForwardingPipelineConfigResponse.FromString,
        )
        self._get = unary(
            path + "GetForwardingPipelineConfig",
            bfrt.GetForwardingPipelineConfigRequest.SerializeToString,
            bfrt.GetForwardingPipelineConfigResponse.FromString,
        )
        self._stream = self._channel.stream_stream(
            path + "StreamChannel",
            bfrt.StreamMessageRequest.SerializeToString,
            bfrt.StreamMessageResponse.FromString,
        )
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._channel.close()

    # -- stream and program ------------------------------------------------------------------------

    def subscribe(self, **notifications: bool) -> bfrt.StreamMessageResponse:
        """Subscribe, and return the answer. Raise grpc.RpcError."""
        self.call = self._stream(iter(self._requests.get, None), timeout=WAIT_S)
        request = bfrt.StreamMessageRequest(client_id=self.id)
        request.subscribe.device_id = 0
        for name, value in notifications.items():
            setattr(request.subscribe.notifications, f"enable_{name}_notifications", value)
        self._requests.put(request)
        return next(self.call)

    def send(self, request: bfrt.StreamMessageRequest) -> None:
        self._requests.put(request)

    def configure(self, action: int, configs: Sequence[bfrt.ForwardingPipelineConfig] = ()) -> None:
        request = bfrt.SetForwardingPipelineConfigRequest(
            client_id=self.id, action=action, config=configs
        )
        self._set(request, timeout=WAIT_S)

    def bind(self, name: str = "small") -> None:
        self.configure(
            bfrt.SetForwardingPipelineConfigRequest.BIND,
            [bfrt.ForwardingPipelineConfig(p4_name=name)],
        )

    def config(self) -> bfrt.GetForwardingPipelineConfigResponse:
        return self._get(bfrt.GetForwardingPipelineConfigRequest(client_id=self.id), timeout=WAIT_S)

    # -- entries -----------------------------------------------------------------------------------

    def table(self, name: str) -> BfrtTable:
        return {**fixed_schema().tables, **self._schema.tables}[name]

    def entry(
        self,
        table: str,
        key: dict[str, Any] | None,
        action: str | None = None,
        default: bool = False,
        **data: Any,
    ) -> bfrt.TableEntry:
        """Return an entry.

        Names of data fields have `_` for `.` and `$`; numbers have their field's length.
        """
        described = self.table(table)
        entry = bfrt.TableEntry(table_id=described.id, is_default_entry=default)
        fields = {field.name: field for field in described.key}
        for name, value in (key or {}).items():
            part = entry.key.fields.add(field_id=fields[name].id)
            length = fields[name].length_bytes
            match fields[name].match_type:
                case "Exact":
                    part.exact.value = value.to_bytes(length, "big")
                case "Ternary":
                    part.ternary.value, part.ternary.mask = (
                        number.to_bytes(length, "big") for number in value
                    )
                case "LPM":
                    part.lpm.value, part.lpm.prefix_len = value[0].to_bytes(length, "big"), value[1]
                case "Range":
                    part.range.low, part.range.high = (
                        number.to_bytes(length, "big") for number in value
                    )
        if action is not None:
            entry.data.action_id = described.action_by_name[action].id
        named = {_plain(field.name): field for field in described.fields(action)}
        for name, value in data.items():
            field = named[name]
            part = entry.data.fields.add(field_id=field.id)
            if field.repeated:
                part.int_arr_val.val.extend(value)
            elif field.type == "bool":
                part.bool_val = value
            elif field.type == "string":
                part.str_val = value
            else:
                part.stream = value.to_bytes(field.length_bytes, "big")
        return entry

    def write(
        self,
        kind: int,
        *entries: bfrt.TableEntry,
        pipe: int = 0xFFFF,
        atomicity: int = 0,
        p4_name: str = "",
        metadata: Any = None,
    ) -> bfrt.WriteResponse:
        request = bfrt.WriteRequest(client_id=self.id, atomicity=atomicity, p4_name=p4_name)
        request.target.pipe_id = pipe
        for entry in entries:
            update = request.updates.add(type=kind)
            update.entity.table_entry.CopyFrom(entry)
        with _errors():
            return self.write_call(request, timeout=WAIT_S, metadata=metadata)

    def insert(self, *entries: bfrt.TableEntry, **options: Any) -> None:
        self.write(bfrt.Update.INSERT, *entries, **options)

    def modify(self, *entries: bfrt.TableEntry, **options: Any) -> None:
        self.write(bfrt.Update.MODIFY, *entries, **options)

    def delete(self, *entries: bfrt.TableEntry, **options: Any) -> None:
        self.write(bfrt.Update.DELETE, *entries, **options)

    def read_entities(
        self, *entities: bfrt.Entity, pipe: int = 0xFFFF, p4_name: str = ""
    ) -> list[bfrt.Entity]:
        request = bfrt.ReadRequest(client_id=self.id, entities=entities, p4_name=p4_name)
        request.target.pipe_id = pipe
        with _errors():
            return [
                entity
                for answer in self._read(request, timeout=WAIT_S)
                for entity in answer.entities
            ]

    def read(self, entry: bfrt.TableEntry, **options: Any) -> list[dict[str, Any]]:
        """Return entries as dicts: `key`, `action`, and data fields by name."""
        return [
            self.shown(found.table_entry)
            for found in self.read_entities(bfrt.Entity(table_entry=entry), **options)
        ]

    def shown(self, entry: bfrt.TableEntry) -> dict[str, Any]:
        table = next(
            t
            for t in (*fixed_schema().tables.values(), *self._schema.tables.values())
            if t.id == entry.table_id
        )
        action = table.action_by_id[entry.data.action_id].name if entry.data.action_id else None
        fields = {field.id: field for field in table.fields(action)}
        values: dict[str, Any] = {"action": action, "key": {}}
        for part in entry.data.fields:
            kind = part.WhichOneof("value")
            value = getattr(part, kind)
            if kind == "stream":
                value = int.from_bytes(value, "big")
            elif kind.endswith("_arr_val"):
                value = list(value.val)
            values[fields[part.field_id].name] = value
        for part in entry.key.fields:
            match part.WhichOneof("match_type"):
                case "exact":
                    value = int.from_bytes(part.exact.value, "big")
                case "ternary":
                    value = (
                        int.from_bytes(part.ternary.value, "big"),
                        int.from_bytes(part.ternary.mask, "big"),
                    )
                case "lpm":
                    value = (int.from_bytes(part.lpm.value, "big"), part.lpm.prefix_len)
                case _:
                    value = (
                        int.from_bytes(part.range.low, "big"),
                        int.from_bytes(part.range.high, "big"),
                    )
            values["key"][table.key_by_id[part.field_id].name] = value
        return values


def _plain(name: str) -> str:
    return name.replace("$", "").replace(".", "_")


class _errors:  # noqa: N801
    """Turn the errors of a batch's parts into `BfrtError`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, grpc.RpcError) or error.code() is not grpc.StatusCode.UNKNOWN:
            return
        status = rpc_status.Status.FromString(
            dict(error.trailing_metadata())["grpc-status-details-bin"]
        )
        parts = []
        for detail in status.details:
            part = bfrt.Error()
            assert detail.Unpack(part)
            parts.append((_NAMES[part.canonical_code], part.message))
        raise BfrtError(parts) from None


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    with found.server:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client that is bound to the program."""
    with Client(served.server.address, 7, served.schema) as found:
        found.subscribe(learn=True, port_status_change=True)
        found.bind()
        yield found
