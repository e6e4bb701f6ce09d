"""The recorder's core: what it holds, records and refuses."""

from __future__ import annotations

from typing import Any

import pytest
from finsy import P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.proto import U128, p4r, rpc_code

from echelon.model.p4program import program
from echelon_example_plugins.recorder.switch import RecordedSwitch, RefusedError

SCHEMA = P4Schema(program().p4info)
DEVICE = 3


def entry(dscp: int, queue: int = 1) -> p4r.Entity:
    action = P4TableAction("set_dscp", dscp=dscp)
    return P4TableEntry("queue_to_dscp", match=P4TableMatch(queue=queue), action=action).encode(
        SCHEMA
    )


class Controlled:
    """A recorder with a program and a controller."""

    def __init__(self) -> None:
        self.record: list[dict[str, Any]] = []
        self.switch = RecordedSwitch(DEVICE, self.record.append)
        assert self.bid(5) == rpc_code.OK
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE, election_id=U128.encode(5)
        )
        request.action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(SCHEMA.p4info)
        self.switch.set_pipeline(request)

    def bid(self, election_id: int) -> int:
        claim = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=U128.encode(election_id))
        return self.switch.arbitrate(claim).status.code

    def write(self, *updates: tuple[Any, p4r.Entity], election_id: int = 5) -> None:
        listed = [p4r.Update(type=kind, entity=entity) for kind, entity in updates]
        self.switch.write(
            p4r.WriteRequest(device_id=DEVICE, election_id=U128.encode(election_id), updates=listed)
        )

    def read(self, *queries: p4r.Entity) -> list[p4r.Entity]:
        return list(self.switch.read(p4r.ReadRequest(device_id=DEVICE, entities=queries)))


INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
EVERYTHING = p4r.Entity(table_entry=p4r.TableEntry())


def test_it_holds_and_records_what_is_written() -> None:
    here = Controlled()
    here.record.clear()
    here.write((INSERT, entry(8)), (INSERT, entry(16, queue=2)))
    here.write((MODIFY, entry(24)), (DELETE, entry(0, queue=2)))
    assert here.read(EVERYTHING) == here.read(entry(0)) == [entry(24)]
    assert [(line["update"], line["match"]) for line in here.record] == [
        ("INSERT", {"queue": "0x1"}),
        ("INSERT", {"queue": "0x2"}),
        ("MODIFY", {"queue": "0x1"}),
        ("DELETE", {"queue": "0x2"}),
    ]


def test_what_a_query_selects() -> None:
    here = Controlled()
    digest = p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=next(iter(SCHEMA.digests)).id))
    here.write((INSERT, entry(8)), (INSERT, digest))
    of_table = p4r.Entity(table_entry=p4r.TableEntry(table_id=entry(8).table_entry.table_id))
    of_other = p4r.Entity(table_entry=p4r.TableEntry(table_id=SCHEMA.tables["ecmp"].id))
    assert here.read(of_table) == [entry(8)]
    assert here.read(of_other) == here.read(entry(8, queue=3)) == []
    assert here.read(p4r.Entity(digest_entry=p4r.DigestEntry())) == here.read(digest) == [digest]


@pytest.mark.parametrize(
    ("kind", "entity", "code"),
    [
        (INSERT, entry(8), rpc_code.ALREADY_EXISTS),
        (MODIFY, entry(8, queue=2), rpc_code.NOT_FOUND),
        (DELETE, entry(8, queue=2), rpc_code.NOT_FOUND),
        (INSERT, p4r.Entity(meter_entry=p4r.MeterEntry()), rpc_code.UNIMPLEMENTED),
    ],
)
def test_a_batch_with_a_fault_changes_and_records_nothing(
    kind: Any, entity: p4r.Entity, code: int
) -> None:
    here = Controlled()
    here.write((INSERT, entry(8)))
    before = list(here.record)
    with pytest.raises(RefusedError) as caught:
        here.write((INSERT, entry(8, queue=7)), (kind, entity))
    assert caught.value.code == code
    assert here.read(EVERYTHING) == [entry(8)]
    assert here.record == before


def test_the_highest_election_id_writes() -> None:
    here = Controlled()
    assert here.bid(4) == rpc_code.ALREADY_EXISTS
    assert here.bid(6) == rpc_code.OK
    with pytest.raises(RefusedError) as caught:
        here.write((INSERT, entry(8)))
    assert caught.value.code == rpc_code.PERMISSION_DENIED
    here.write((INSERT, entry(8)), election_id=6)
    assert here.read(EVERYTHING) == [entry(8)]


def test_requests_for_another_device_or_before_a_program() -> None:
    switch = RecordedSwitch(DEVICE, lambda _line: None)
    with pytest.raises(RefusedError) as other:
        switch.pipeline(p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE + 1))
    with pytest.raises(RefusedError) as early:
        switch.pipeline(p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE))
    assert (other.value.code, early.value.code) == (
        rpc_code.NOT_FOUND,
        rpc_code.FAILED_PRECONDITION,
    )
