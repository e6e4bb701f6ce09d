"""Entries that the program came with: read back they are what p4c wrote into its entries file."""

from __future__ import annotations

from pathlib import Path

import pytest
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format
from google.protobuf.message import Message

from softswitch.p4runtime.device import Device
from softswitch.rpc.status import Code, Status

HERE = Path(__file__).parent


@pytest.fixture
def device() -> Device:
    p4info = text_format.Parse((HERE / "constants.p4info.txtpb").read_text(), p4i.P4Info())
    device = Device()
    device.install(
        p4r.ForwardingPipelineConfig(
            p4info=p4info, p4_device_config=(HERE / "constants.json").read_bytes()
        )
    )
    stream = device.open_stream(lambda message: None, lambda status: None)
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
    stream.receive(p4r.StreamMessageRequest(arbitration=claim))
    return device


@pytest.fixture
def initial() -> list[p4r.TableEntry]:
    """Return the program's entries according to p4c, with byte strings shortened to the canonical
    form.
    """
    request = text_format.Parse((HERE / "constants.entries.txtpb").read_text(), p4r.WriteRequest())
    entries = [update.entity.table_entry for update in request.updates]
    for entry in entries:
        shorten(entry)
    return entries


def shorten(message: Message) -> None:
    """Strip the leading zeros of every byte string."""
    for field, value in message.ListFields():
        if isinstance(value, bytes):
            setattr(message, field.name, value.lstrip(b"\0") or b"\0")
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                shorten(part)


def read(device: Device) -> list[p4r.TableEntry]:
    request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
    return [entity.table_entry for response in device.read(request) for entity in response.entities]


def write(device: Device, kind: int, entry: p4r.TableEntry) -> Status:
    update = p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry))  # type: ignore[arg-type]
    (status,) = device.write(
        p4r.WriteRequest(device_id=1, election_id=U128.encode(1), updates=[update])
    )
    return status


def test_entries_are_those_of_p4c(device: Device, initial: list[p4r.TableEntry]) -> None:
    assert len(initial) == 11
    assert sorted(map(str, read(device))) == sorted(map(str, initial))


def test_constant_entries_stay(device: Device, initial: list[p4r.TableEntry]) -> None:
    before = read(device)
    for entry in initial:
        if not entry.is_const:
            continue
        for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
            assert write(device, kind, entry).code == Code.INVALID_ARGUMENT, (
                "is_const cannot be written"
            )
        entry.is_const = False
        for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
            assert write(device, kind, entry).code == Code.PERMISSION_DENIED
        entry.ClearField("action")
        entry.metadata = b"m"
        assert write(device, p4r.Update.MODIFY, entry).code == Code.PERMISSION_DENIED
        entry.metadata = b""
        assert write(device, p4r.Update.MODIFY, entry).code == Code.OK, "there is nothing to change"
    assert read(device) == before


def test_direct_resources_of_constant_entries(
    device: Device, initial: list[p4r.TableEntry]
) -> None:
    entry = initial[0]
    entry.is_const = False
    entry.ClearField("action")
    entry.counter_data.packet_count = 9
    assert write(device, p4r.Update.MODIFY, entry).code == Code.OK
    query = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry))
    (response,) = device.read(p4r.ReadRequest(device_id=1, entities=[query]))
    assert response.entities[0].direct_counter_entry.data.packet_count == 9


def test_initial_entries_are_ordinary_ones(device: Device, initial: list[p4r.TableEntry]) -> None:
    ordinary = [entry for entry in initial if not entry.is_const]
    assert len(ordinary) == 2
    for entry in ordinary:
        entry.metadata = b"m"
        assert write(device, p4r.Update.MODIFY, entry).code == Code.OK
        assert entry in read(device)
        assert write(device, p4r.Update.DELETE, entry).code == Code.OK
        assert entry not in read(device)
        assert write(device, p4r.Update.INSERT, entry).code == Code.OK
    more = p4r.TableEntry()
    more.CopyFrom(ordinary[0])
    more.priority = 77
    assert write(device, p4r.Update.INSERT, more).code == Code.OK
