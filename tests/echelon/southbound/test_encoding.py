"""Requests and responses as bytes, against what Protocol buffers makes of them."""

from __future__ import annotations

import pytest
from finsy.proto import U128, p4r
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echelon.switches.protobuf_fields import varint
from echelon.switches.southbound.encoding import (
    UpdateKind,
    read_request,
    table_entries,
    update_size,
    write_header,
    write_request,
)
from tests.faults import naming

# Sizes around the lengths at which a frame grows by a byte.
SIZES = st.sampled_from(
    [
        0,
        1,
        100,
        116,
        117,
        118,
        119,
        120,
        121,
        122,
        123,
        124,
        125,
        126,
        127,
        128,
        129,
        300,
        16380,
        16384,
    ]
)


@st.composite
def table_entry(draw: st.DrawFn) -> p4r.TableEntry:
    entry = p4r.TableEntry(
        table_id=draw(st.integers(0, (1 << 32) - 1)), priority=draw(st.integers(0, 1 << 30))
    )
    entry.metadata = bytes(draw(SIZES))
    return entry


@settings(deadline=None)
@given(
    st.sampled_from(UpdateKind), st.lists(table_entry(), max_size=5), st.integers(0, (1 << 128) - 1)
)
def test_a_write_request_is_what_protocol_buffers_writes(
    kind: UpdateKind, entries: list[p4r.TableEntry], election: int
) -> None:
    expected = p4r.WriteRequest(
        device_id=7,
        election_id=U128.encode(election),
        updates=[p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry)) for entry in entries],  # type: ignore[arg-type]
    )
    raw = [entry.SerializeToString() for entry in entries]
    header = write_header(7, election)
    request = write_request(header, kind, raw)
    assert p4r.WriteRequest.FromString(request) == expected
    assert len(request) == len(header) + sum(map(update_size, raw)) == expected.ByteSize()


def test_the_kinds_are_those_of_p4runtime() -> None:
    assert {kind.name: kind.value for kind in UpdateKind} == {
        name: value for name, value in p4r.Update.Type.items() if name != "UNSPECIFIED"
    }


@given(st.integers(0, (1 << 64) - 1))
@example(127)
@example(128)
@example(16384)
def test_varints(number: int) -> None:
    assert p4r.WriteRequest.FromString(b"\x08" + varint(number)).device_id == number


@given(st.lists(table_entry(), max_size=3))
def test_a_read_request_is_what_protocol_buffers_writes(entries: list[p4r.TableEntry]) -> None:
    expected = p4r.ReadRequest(
        device_id=3, entities=[p4r.Entity(table_entry=entry) for entry in entries]
    )
    assert (
        p4r.ReadRequest.FromString(read_request(3, [e.SerializeToString() for e in entries]))
        == expected
    )


@settings(deadline=None)
@given(st.lists(table_entry(), max_size=6))
def test_entries_of_a_response(entries: list[p4r.TableEntry]) -> None:
    response = p4r.ReadResponse(entities=[p4r.Entity(table_entry=entry) for entry in entries])
    found = list(table_entries(response.SerializeToString()))
    assert found == [entry.SerializeToString() for entry in entries]


def test_entities_of_other_kinds_and_unknown_fields_are_passed_over() -> None:
    one, two = p4r.TableEntry(table_id=1), p4r.TableEntry(table_id=2)
    response = p4r.ReadResponse(
        entities=[
            p4r.Entity(table_entry=one),
            p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=5)),
            p4r.Entity(table_entry=two),
        ]
    )
    raw = response.SerializeToString()
    expected = [one.SerializeToString(), two.SerializeToString()]
    assert list(table_entries(raw)) == expected
    # Field 15 of ReadResponse, and of an Entity: of a later version of P4Runtime.
    assert list(table_entries(b"\x78\x05" + raw)) == expected
    assert list(table_entries(b"\x0a\x06\x78\x05\x12\x02\x08\x01")) == [one.SerializeToString()]


@pytest.mark.parametrize("cut", range(1, 12))
def test_what_is_cut_off_is_no_response(cut: int) -> None:
    entry = p4r.TableEntry(table_id=1, metadata=b"12345")
    raw = p4r.ReadResponse(entities=[p4r.Entity(table_entry=entry)]).SerializeToString()
    with pytest.raises(ValueError, check=naming("ReadResponse")):
        table_entries(raw[:-cut])
