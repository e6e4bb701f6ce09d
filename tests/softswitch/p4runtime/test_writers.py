"""Tests of who changed a device, as gNMI tells a controller that finds its entries changed."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from finsy.proto import U128, gnmi, gnmi_grpc, p4r, p4r_grpc

from softswitch.gnmi.writers import READER, Writers
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.rpc.status import BatchFailedError, Code, RefusedError, Status
from tests.softswitch.p4runtime.conftest import connection

ANSWER_S = 20
PATH = gnmi.Path(elem=[gnmi.PathElem(name="softswitch:foreign-writer")])


def foreign(writers: Writers, reader: str) -> str | None:
    token = READER.set(reader)
    try:
        return writers.foreign()
    finally:
        READER.reset(token)


def test_the_latest_beside_the_reader_since_it_began() -> None:
    writers = Writers()
    assert foreign(writers, "ours") is None
    for name, role in (("former", ""), ("ours", ""), ("theirs", "evil"), ("ours", "")):
        with writers.noting(name, role):
            pass
    assert foreign(writers, "ours") == "role 'evil' at theirs"
    assert foreign(writers, "theirs") == "the default role at ours"
    assert foreign(writers, "new") == "the default role at ours"
    # An earlier session of the same controller is no stranger.
    with writers.noting("latest", ""):
        pass
    assert foreign(writers, "latest") is None


def test_what_is_refused_as_a_whole_changes_nothing() -> None:
    writers = Writers()
    with pytest.raises(RefusedError), writers.noting("theirs", ""):
        raise RefusedError(Code.PERMISSION_DENIED, "no")
    assert foreign(writers, "ours") is None
    with pytest.raises(BatchFailedError), writers.noting("theirs", ""):
        raise BatchFailedError("Write", [Status(Code.OK, ""), Status(Code.NOT_FOUND, "no")])
    assert foreign(writers, "ours") == "the default role at theirs"


def test_few_are_remembered_and_names_are_short() -> None:
    writers = Writers()
    for number in range(1000):
        with writers.noting(f"connection {number}", "x" * 10_000):
            pass
    assert len(writers._writers) == 16  # noqa: SLF001
    writer = foreign(writers, "ours")
    assert writer is not None
    assert len(writer) < 100


@pytest.fixture
def device(program: Any) -> Device:
    device = Device()
    device.install(program.config())
    return device


def test_a_stranger_with_the_primarys_election_id_is_told_by_its_address(server: Server) -> None:
    claim = p4r.StreamMessageRequest()
    claim.arbitration.device_id = 1
    claim.arbitration.election_id.CopyFrom(U128.encode(7))
    nothing = p4r.WriteRequest(device_id=1, election_id=U128.encode(7))
    with connection(server) as ours, connection(server) as theirs:
        claims = SimpleQueue[p4r.StreamMessageRequest | None]()
        claims.put(claim)
        stream = p4r_grpc.P4RuntimeStub(ours).StreamChannel(iter(claims.get, None))
        assert next(stream).arbitration.status.code == 0

        def foreign_writers(channel: grpc.Channel) -> list[str]:
            request = gnmi.GetRequest(path=[PATH], encoding=gnmi.PROTO)
            (notification,) = gnmi_grpc.gNMIStub(channel).Get(request, ANSWER_S).notification
            return [update.val.string_val for update in notification.update]

        p4r_grpc.P4RuntimeStub(ours).Write(nothing, timeout=ANSWER_S)
        assert foreign_writers(ours) == []
        p4r_grpc.P4RuntimeStub(theirs).Write(nothing, timeout=ANSWER_S)
        p4r_grpc.P4RuntimeStub(ours).Write(nothing, timeout=ANSWER_S)
        (writer,) = foreign_writers(ours)
        assert writer.startswith("the default role at ipv4:127.0.0.1:")
        claims.put(None)
