"""Strangers at a switch's port: what they open, and the controller that gets in all the same."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from finsy.proto import U128, gnmi, gnmi_grpc, p4r, p4r_grpc, stratum

from softswitch.p4runtime import streams as streams_module
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.pacing import Pace
from softswitch.p4runtime.server import Server
from softswitch.rpc import endings, handlers, listener
from softswitch.rpc.peers import LOCAL
from softswitch.rpc.status import Code
from tests.faults import mentions
from tests.softswitch.p4runtime.conftest import CPU_PORT, Controller, connection
from tests.softswitch_process import running

ANSWER_S = 20


@pytest.fixture
def device(program: Any) -> Device:
    """Return a device as an operator starts it: no role is listed."""
    device = Device(cpu_port=CPU_PORT)
    device.install(program.config())
    return device


class Stream:
    """A stream that says nothing until it claims."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        stub = p4r_grpc.P4RuntimeStub(channel)
        self.responses = stub.StreamChannel(iter(self._requests.get, None))

    def send(self, **kind: Any) -> None:
        self._requests.put(p4r.StreamMessageRequest(**kind))

    def claim(self, election_id: int, role: str = "", config: Any = None) -> int:
        """Return the status that the switch answers."""
        update = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(election_id))
        if role:
            update.role.name = role
        if config is not None:
            update.role.config.Pack(config)
        self.send(arbitration=update)
        code: int = next(self.responses).arbitration.status.code
        return code

    def end(self) -> tuple[grpc.StatusCode, str]:
        """Wait for the end of the stream; return its status."""
        with pytest.raises(grpc.RpcError) as caught:
            list(self.responses)
        return caught.value.code(), caught.value.details() or ""

    def close(self) -> None:
        self._requests.put(None)
        self.responses.cancel()


@contextmanager
def held(server: Server, connections: int, each: int) -> Iterator[list[Stream]]:
    """Yield silent streams that a stranger holds."""
    with ExitStack() as closing:
        streams: list[Stream] = []
        for _ in range(connections):
            channel = closing.enter_context(connection(server))
            streams += [Stream(channel) for _ in range(each)]
        for stream in streams:
            closing.callback(stream.close)
        yield streams


def operate(server: Server, program: Any, election_id: int = 1, number: int = 1) -> float:
    """Open a session, write and read as a controller does. Return the time it took, in seconds."""
    start_s = time.monotonic()
    with connection(server) as channel:
        stream = Stream(channel)
        assert stream.claim(election_id) == Code.OK
        stub = p4r_grpc.P4RuntimeStub(channel)
        change = p4r.WriteRequest(
            device_id=1, election_id=U128.encode(election_id), updates=[program.exact(number)]
        )
        stub.Write(change, timeout=ANSWER_S)
        table = program.entity("table_entry { table_id: $exact_table }")
        query = p4r.ReadRequest(device_id=1, entities=[table])
        assert list(stub.Read(query, timeout=ANSWER_S))
        stream.close()
    return time.monotonic() - start_s


@pytest.mark.parametrize(
    ("connections", "each"), [(1, 60), pytest.param(10, 100, marks=pytest.mark.long)]
)
def test_silent_streams_do_not_keep_the_controller_out(
    server: Server, program: Any, connections: int, each: int
) -> None:
    with held(server, connections, each):
        for number in range(1, 4):
            assert operate(server, program, number, number) < 5


def test_a_silent_stream_that_gives_way_is_told_why(server: Server) -> None:
    with held(server, 1, 60) as streams:
        code, text = streams[0].end()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert mentions(text, "32", "arbitration")


def test_streams_that_come_at_once_take_the_places_of_different_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Further streams come while the first one that gives way has not ended yet."""
    ending: list[Any] = []
    stream_type = streams_module._Stream  # noqa: SLF001
    monkeypatch.setattr(stream_type, "end", lambda stream, _status: ending.append(stream))
    streams = streams_module.Streams({})
    for _ in range(40):
        streams._enter(stream_type(streams, None, LOCAL))  # noqa: SLF001
    assert len(set(ending)) == 8
    assert len(streams._silent) == 32  # noqa: SLF001


def test_a_stream_has_some_seconds_to_arbitrate(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_module, "_SILENCE_S", 0.2)
    with Server(device) as server, connection(server) as channel:
        late, early = Stream(channel), Stream(channel)
        assert early.claim(1) == Code.OK
        code, text = late.end()
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert mentions(text, "0.2 s", "arbitration")
        time.sleep(0.3)
        assert early.claim(2) == Code.OK
        late.close()
        early.close()


def test_a_stream_that_talks_before_it_arbitrates_is_ended(server: Server) -> None:
    with connection(server) as channel:
        stream = Stream(channel)
        for _ in range(20):
            stream.send(packet=p4r.PacketOut(payload=b"x"))
        code, text = stream.end()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert mentions(text, "arbitration")
        stream.close()


def test_backups_do_not_keep_the_primary_out(server: Server, program: Any) -> None:
    operate(server, program, 100)
    with held(server, 2, 30) as streams:
        for number, stream in enumerate(streams):
            election_id = U128.encode(number + 1)
            claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=election_id)
            stream.send(arbitration=claim)
        assert operate(server, program, 100, 2) < 5
        assert operate(server, program, 101, 3) < 5


def test_readers_that_do_not_read_keep_no_place(
    device: Device, server: Server, program: Any
) -> None:
    """Each of a stranger's Reads waits with more answers than a connection's window takes."""
    owner = Controller(device, program)
    updates = [program.exact(number) for number in range(100, 300)]
    for update in updates:
        update.entity.table_entry.metadata = bytes(2000)
    assert not any(status.code for status in owner.write(*updates))
    owner.stream.close()
    everything = p4r.ReadRequest(device_id=1, entities=[program.entity("table_entry { }")])
    with ExitStack() as closing:
        for _ in range(2):
            stub = p4r_grpc.P4RuntimeStub(closing.enter_context(connection(server)))
            for _ in range(handlers.PLACES):
                closing.callback(stub.Read(everything).cancel)
        deadline_s = time.monotonic() + 2 * ANSWER_S
        while sum(record.kind == "read" for record in device.rpc_log) < handlers.PLACES:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert operate(server, program, 2) < 10


def test_subscriptions_keep_no_place(server: Server, program: Any) -> None:
    with ExitStack() as closing:
        for _ in range(2):
            stub = gnmi_grpc.gNMIStub(closing.enter_context(connection(server)))
            for _ in range(60):
                idle: SimpleQueue[gnmi.SubscribeRequest | None] = SimpleQueue()
                call = stub.Subscribe(iter(idle.get, None))
                closing.callback(idle.put, None)
                closing.callback(call.cancel)
        time.sleep(1)
        assert operate(server, program) < 5
        channel = closing.enter_context(connection(server))
        once = gnmi.SubscribeRequest()
        once.subscribe.mode = gnmi.SubscriptionList.ONCE
        assert list(gnmi_grpc.gNMIStub(channel).Subscribe(iter([once]), timeout=ANSWER_S))


def test_idle_connections_do_not_keep_the_controller_out() -> None:
    """The system grants 200 descriptors, of which a stranger takes 400."""
    with running("--no-p4", prefix=["bash", "-c", 'ulimit -Sn 200; exec "$@"', "_"]) as switch:
        host, _, port = switch.address.rpartition(":")
        with ExitStack() as closing:
            for _ in range(400):
                closing.enter_context(socket.create_connection((host, int(port)), ANSWER_S))
            with grpc.insecure_channel(switch.address) as channel:
                stub = p4r_grpc.P4RuntimeStub(channel)
                stub.Capabilities(p4r.CapabilitiesRequest(), timeout=5)


class Wire:
    """A way to a server that may be cut in silence, as when a host loses power."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._server_port = port
        self.is_cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with self._listener:
            near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._server_port))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.is_cut.is_set():
                    target.sendall(data)


def test_a_primary_whose_host_is_gone_makes_room_for_itself(
    device: Device, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary's new session claims the same election id as the dead one."""
    waits = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    options = dict(endings.OPTIONS)
    assert all(options[wait] <= 30_000 for wait in waits)
    options |= dict.fromkeys(waits, 1000)
    monkeypatch.setattr(listener, "OPTIONS", list(options.items()))
    with Server(device) as server:
        wire = Wire(server.port)
        with grpc.insecure_channel(f"127.0.0.1:{wire.port}") as channel:
            dead = Stream(channel)
            assert dead.claim(7) == Code.OK
            wire.is_cut.set()
            with pytest.raises(grpc.RpcError, match="election id 7 is already used"):
                operate(server, program, 7)
            deadline_s = time.monotonic() + ANSWER_S
            while True:
                with suppress(grpc.RpcError):
                    operate(server, program, 7)
                    break
                assert time.monotonic() < deadline_s
                time.sleep(0.2)
            dead.close()


# -- roles -----------------------------------------------------------------------------------------


def code_of(call: Any, request: Any) -> grpc.StatusCode:
    try:
        call(request, timeout=ANSWER_S)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("has_config", [False, True])
def test_what_another_role_may_do_beside_the_controller(
    device: Device, program: Any, listed: bool, has_config: bool
) -> None:
    role = "evil"
    device = Device(cpu_port=CPU_PORT, roles=[role] if listed else [])
    device.install(program.config())
    config = None
    if has_config:
        config = stratum.P4RoleConfig(shared_p4_ids=program.ids.values(), can_push_pipeline=True)
    with Server(device) as server, connection(server) as ours, connection(server) as theirs:
        controller, stranger = Stream(ours), Stream(theirs)
        assert controller.claim(1) == Code.OK
        assert stranger.claim(1, role, config) == Code.OK
        stub = p4r_grpc.P4RuntimeStub(theirs)
        election_id = U128.encode(1)
        change = p4r.WriteRequest(
            device_id=1, role=role, election_id=election_id, updates=[program.exact(1)]
        )
        pipeline = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            role=role,
            election_id=election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=program.config(),
        )
        denied, fine = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.OK
        assert code_of(stub.Write, change) is (fine if listed else denied)
        grants = listed and has_config
        assert code_of(stub.SetForwardingPipelineConfig, pipeline) is (fine if grants else denied)
        query = p4r.ReadRequest(device_id=1, role=role, entities=[program.entity("table_entry {}")])
        assert list(stub.Read(query, timeout=ANSWER_S))
        if not listed:
            stranger.send(packet=p4r.PacketOut(payload=b"x"))
            assert next(stranger.responses).error.canonical_code == Code.PERMISSION_DENIED
            # Without a controller that has the default role, roles share the switch as they like.
            controller.close()
            deadline_s = time.monotonic() + ANSWER_S
            while code_of(stub.Write, change) is denied:
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
            assert code_of(stub.SetForwardingPipelineConfig, pipeline) is denied
        controller.close()
        stranger.close()


def test_an_operator_lists_roles(program: Any) -> None:
    granted = stratum.P4RoleConfig(can_push_pipeline=True)
    with running("--no-p4", "--role", "ours", "--role", "theirs") as switch, ExitStack() as closing:
        channel = closing.enter_context(grpc.insecure_channel(switch.address))
        stub = p4r_grpc.P4RuntimeStub(channel)
        owner = Stream(channel)
        assert owner.claim(1) == Code.OK
        closing.callback(owner.close)
        for role, code in (
            ("ours", grpc.StatusCode.OK),
            ("theirs", grpc.StatusCode.OK),
            ("evil", grpc.StatusCode.PERMISSION_DENIED),
        ):
            stream = Stream(channel)
            assert stream.claim(1, role, granted) == Code.OK
            closing.callback(stream.close)
            pipeline = p4r.SetForwardingPipelineConfigRequest(
                device_id=1,
                role=role,
                election_id=U128.encode(1),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY,
                config=program.config(),
            )
            assert code_of(stub.SetForwardingPipelineConfig, pipeline) is code


def test_a_role_too_long_to_be_kept_is_refused(server: Server) -> None:
    with connection(server) as channel:
        stream = Stream(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stream.claim(1, "r", stratum.P4RoleConfig(shared_p4_ids=range(1, 40_000)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stream.close()


# -- floods ----------------------------------------------------------------------------------------


def test_the_pace_of_a_stream() -> None:
    pace = Pace()
    pauses = [pace.pause_s(is_taken=False, now_s=5.0) for _ in range(200)]
    assert pauses[:99] == [0.0] * 99
    assert pauses[-1] == pytest.approx(1.0)
    assert pace.pause_s(is_taken=True, now_s=100.0) == 0


def test_a_flood_on_one_stream_leaves_the_others_their_turn(
    server: Server, device: Device, program: Any
) -> None:
    counts: Counter[str] = Counter()
    device.on_packet_out = lambda data: counts.update(["out"])
    flooding = threading.Event()
    with connection(server) as ours, connection(server) as theirs:
        controller, stranger = Stream(ours), Stream(theirs)
        assert controller.claim(1) == Code.OK
        assert stranger.claim(1, "evil") == Code.OK

        def flood() -> None:
            while not flooding.is_set():
                for _ in range(100):
                    stranger.send(packet=p4r.PacketOut(payload=bytes(1000)))
                time.sleep(0.001)

        thread = threading.Thread(target=flood)
        thread.start()
        time.sleep(1.5)
        start_s = time.monotonic()
        metadata = [p4r.PacketMetadata(metadata_id=number, value=b"\1") for number in (1, 2)]
        for number in range(1, 21):
            change = p4r.WriteRequest(
                device_id=1, election_id=U128.encode(1), updates=[program.exact(number)]
            )
            p4r_grpc.P4RuntimeStub(ours).Write(change, timeout=ANSWER_S)
            controller.send(packet=p4r.PacketOut(payload=b"x", metadata=metadata))
        took_s = time.monotonic() - start_s
        flooding.set()
        thread.join()
        assert took_s < 10
        refused = sum(record.kind == "packet_out" for record in device.rpc_log) - counts["out"]
        assert refused < 100 * (1.5 + took_s) + 200
        controller.close()
        stranger.close()
