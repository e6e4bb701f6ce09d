"""Tests of what one message, and all calls together, may take of a switch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from finsy.proto import U128, gnmi, gnmi_grpc, p4r, p4r_grpc, rpc_status

from softswitch.gnmi import service as gnmi_module
from softswitch.p4runtime import pushes, wire
from softswitch.p4runtime import server as server_module
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.p4runtime.wire import WireRequest
from softswitch.rpc.places import Places
from softswitch.rpc.status import Code, RefusedError
from tests.faults import mentions
from tests.reference.table_updates import updates
from tests.softswitch.p4runtime.conftest import connection
from tests.softswitch.tm.native import SchedulerInC

ANSWER_S = 20
WRITE = "/p4.v1.P4Runtime/Write"


def refusal(call: Any, *args: Any) -> tuple[Code, str]:
    with pytest.raises(RefusedError) as caught:
        call(*args)
    return caught.value.status.code, caught.value.status.message


def ending(call: Any, *args: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
    def wait() -> None:
        answer = call(*args, timeout=ANSWER_S, **options)
        if isinstance(answer, grpc.Call):
            list(answer)

    with pytest.raises(grpc.RpcError) as caught:
        wait()
    return caught.value.code(), caught.value.details() or ""


# -- one message -----------------------------------------------------------------------------------


def test_a_message_above_the_limit_is_refused_by_grpc(server: Server) -> None:
    with connection(server, **{"grpc.max_send_message_length": -1}) as channel:
        raw = channel.unary_unary(WRITE)
        code, text = ending(raw, bytes((16 << 20) + 1))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert mentions(text, str((16 << 20) + 1), str(16 << 20))
        answer = p4r_grpc.P4RuntimeStub(channel).Capabilities(
            p4r.CapabilitiesRequest(), timeout=ANSWER_S
        )
        assert answer.p4runtime_api_version == "1.5.0"


@pytest.mark.parametrize("junk", [b"\0\0", b"\x08\x01", b"\x28\x01", b"\x1a\0"])
def test_a_header_of_many_fields_is_not_read_field_by_field(
    junk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of 64 MB once took 53 s, field by field."""
    fields = 0
    skip_field = wire._skip  # noqa: SLF001

    def counted(data: bytes, position: int) -> int:
        nonlocal fields
        fields += 1
        return skip_field(data, position)

    monkeypatch.setattr(wire, "_skip", counted)
    for data in (junk * (1 << 20), b"\x22\0" + junk * (1 << 20)):
        code, text = refusal(WireRequest.parse, data)
        assert code == Code.RESOURCE_EXHAUSTED
        assert mentions(text, f"{len(data)} bytes", str(1 << 20))
    assert fields <= 128


def test_forty_thousand_entries_fit_in_one_write(program: Any) -> None:
    request = p4r.WriteRequest(device_id=1, election_id=U128.encode(1))
    request.updates.extend(updates(program.p4info, "exact_table", 40_000))
    data = request.SerializeToString()
    assert len(data) < server_module._MESSAGE_BYTES  # noqa: SLF001
    assert len(WireRequest.parse(data).updates) == 40_000


def test_updates_beyond_the_limits_are_refused_before_they_are_decoded() -> None:
    code, text = refusal(WireRequest.parse, b"\x08\x01" + b"\x22\0" * 70_000)
    assert code == Code.RESOURCE_EXHAUSTED
    assert mentions(text, "65536 updates")
    large = p4r.WriteRequest()
    large.updates.add().entity.table_entry.metadata = bytes(1 << 20)
    code, text = refusal(WireRequest.parse, large.SerializeToString())
    assert code == Code.RESOURCE_EXHAUSTED
    assert mentions(text, "an update", str(1 << 20))


def test_a_large_program_is_accepted_and_a_large_p4info_is_not() -> None:
    request = p4r.SetForwardingPipelineConfigRequest(device_id=1)
    request.config.p4_device_config = bytes(8 << 20)
    request.config.p4info.tables.add().preamble.name = "t"
    assert pushes.parse(request.SerializeToString()) == request
    request.config.p4info.tables.add().preamble.name = "t" * (1 << 20)
    code, text = refusal(pushes.parse, request.SerializeToString())
    assert code == Code.RESOURCE_EXHAUSTED
    assert mentions(text, "P4Info", str(1 << 20))
    code, _ = refusal(pushes.parse, b"\x08\x01" * (1 << 20))
    assert code == Code.RESOURCE_EXHAUSTED


def test_requests_beyond_the_limits_say_so(server: Server, program: Any) -> None:
    many = p4r.ReadRequest(device_id=1)
    many.entities.extend([program.entity("table_entry { }")] * 100_000)
    large = p4r.ReadRequest(device_id=1, role="r" * (1 << 20))
    paths = gnmi.GetRequest(path=[gnmi.Path()] * 257)
    with connection(server) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        tree = gnmi_grpc.gNMIStub(channel)
        for call, request, facts in [
            (stub.Read, many, ("100000 queries", "4096")),
            (stub.Read, large, (f"{large.ByteSize()} bytes", str(1 << 20))),
            (tree.Get, paths, ("257 paths", "256")),
        ]:
            code, text = ending(call, request)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert mentions(text, *facts)
        wanted = gnmi.SubscriptionList(
            subscription=[gnmi.Subscription(path=gnmi.Path())] * 257,
            mode=gnmi.SubscriptionList.ONCE,
        )
        subscribe = iter([gnmi.SubscribeRequest(subscribe=wanted)])
        code, text = ending(tree.Subscribe, subscribe)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert mentions(text, "257 paths", "256")


def test_an_answer_of_gnmi_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(ports={1: SchedulerInC(10**9)})
    path = gnmi.Path(elem=[gnmi.PathElem(name="interfaces")])
    request = gnmi.GetRequest(path=[path] * 8, encoding=gnmi.JSON_IETF)
    with Server(device) as server, connection(server) as channel:
        stub = gnmi_grpc.gNMIStub(channel)
        size_bytes = stub.Get(request, timeout=ANSWER_S).ByteSize()
        monkeypatch.setattr(gnmi_module, "_MOST_BYTES", size_bytes // 2)
        code, text = ending(stub.Get, request)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert mentions(text, f"{size_bytes // 2} bytes")


def test_a_thousand_errors_reach_a_client_that_takes_them(
    server: Server, controller: Any, program: Any
) -> None:
    """The limit of metadata is the receiver's: the switch itself takes little of it."""
    request = controller.request(*[program.exact(1, kind="DELETE")] * 1000)
    with (
        connection(server, **{"grpc.max_metadata_size": 4 << 20}) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        p4r_grpc.P4RuntimeStub(channel).Write(request, timeout=ANSWER_S)
    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    assert len(rpc_status.Status.FromString(details).details) == 1000


# -- all calls together ----------------------------------------------------------------------------


class Context:
    """The context of a call, as far as `Places` needs it."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.cancelled = False

    def peer(self) -> str:
        return self._peer

    def cancel(self) -> None:
        self.cancelled = True

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise RefusedError(Code(code.value[0]), text)


def test_a_call_without_its_message_gives_way_to_a_peer_with_fewer() -> None:
    calls = Places(3)
    crowd = [Context("ipv4:10.0.0.1:1") for _ in range(3)]
    places = [calls.place(context) for context in crowd]
    for place in places:
        place.__enter__()
    calls.keep(crowd[0])
    code, text = refusal(calls.place(Context("ipv4:10.0.0.1:1")).__enter__)
    assert code == Code.RESOURCE_EXHAUSTED
    assert mentions(text, "3 calls", "10.0.0.1")
    with calls.place(Context("ipv4:10.0.0.2:1")):
        assert [context.cancelled for context in crowd] == [False, True, False]
    for place in places:
        place.__exit__(None, None, None)
    with calls.place(Context("ipv4:10.0.0.1:1")):
        pass


def test_a_late_message_gives_way_to_anybody() -> None:
    now_s = 0.0
    calls = Places(1, patience_s=20, clock=lambda: now_s)
    slow = Context("ipv4:10.0.0.1:1")
    with calls.place(slow):
        assert refusal(calls.place(Context("ipv4:10.0.0.2:1")).__enter__)[0]
        now_s = 21.0
        with calls.place(Context("ipv4:10.0.0.2:1")):
            assert slow.cancelled


def test_a_message_that_has_come_is_worked_on() -> None:
    calls = Places(1, clock=lambda: 0.0)
    busy = Context("ipv4:10.0.0.1:1")
    with calls.place(busy):
        calls.keep(busy)
        refusal(calls.place(Context("ipv4:10.0.0.2:1")).__enter__)
    assert not busy.cancelled


def test_calls_without_messages_keep_nobody_out(
    server: Server, controller: Any, program: Any
) -> None:
    """A stranger begins Writes and sends no message; a controller's Write is answered."""
    silence = threading.Event()

    def nothing() -> Iterator[bytes]:
        silence.wait(ANSWER_S)
        yield from ()

    with connection(server) as stranger, connection(server) as channel:
        begun = [stranger.stream_stream(WRITE)(nothing()) for _ in range(60)]
        # As many as find no place are told so.
        until_s = time.monotonic() + ANSWER_S
        while sum(call.code() is not None for call in begun if not call.is_active()) < 36:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        request = controller.request(program.exact(1))
        p4r_grpc.P4RuntimeStub(channel).Write(request, timeout=ANSWER_S)
        silence.set()
        codes = {call.code() for call in begun}
    assert codes <= {
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
    assert len(controller.read("table_entry { table_id: $exact_table }")) == 1
