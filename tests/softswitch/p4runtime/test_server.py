"""Real gRPC on the loopback: raw stubs and finsy as clients."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.gnmiclient import GNMIClientError
from finsy.proto import U128, gnmi, gnmi_grpc, p4r, p4r_grpc, rpc_status

from softswitch.gnmi.qos import PortCounters
from softswitch.native.fabric import EventLoop, VirtualFabric
from softswitch.p4runtime import outbox as outbox_module
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.outbox import Outbox
from softswitch.p4runtime.server import Server
from softswitch.p4runtime.streams import Session
from softswitch.rpc.status import Code
from softswitch.tm import QueueConfig
from tests.faults import mentions, naming
from tests.softswitch.tm.native import SchedulerInC

HERE = Path(__file__).parent
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 4 << 20)]


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address, options=UNLIMITED) as opened:
        yield opened


class Stream:
    """A StreamChannel with a thread-safe way to send."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.outbox: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        self.responses = p4r_grpc.P4RuntimeStub(channel).StreamChannel(
            iter(self.outbox.get, None), timeout=20
        )

    def send(self, **kind: Any) -> None:
        self.outbox.put(p4r.StreamMessageRequest(**kind))

    def claim(self, election_id: int | None = 1, device_id: int = 1) -> p4r.MasterArbitrationUpdate:
        update = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id is not None:
            update.election_id.CopyFrom(U128.encode(election_id))
        self.send(arbitration=update)
        return next(self.responses).arbitration


def write(channel: grpc.Channel, *updates: p4r.Update, election_id: int = 1) -> None:
    request = p4r.WriteRequest(device_id=1, election_id=U128.encode(election_id), updates=updates)
    p4r_grpc.P4RuntimeStub(channel).Write(request, timeout=20)


# -- raw stubs: P4Runtime --------------------------------------------------------------------------


def test_arbitration_and_failover(server: Server, program: Any) -> None:
    with grpc.insecure_channel(server.address) as one, grpc.insecure_channel(server.address) as two:
        first, second = Stream(one), Stream(two)
        assert first.claim(2**100).status.code == Code.OK
        answer = second.claim(7)
        assert (answer.status.code, U128.decode(answer.election_id)) == (
            Code.ALREADY_EXISTS,
            2**100,
        )
        first.outbox.put(None)
        with pytest.raises(StopIteration):
            next(first.responses)
        assert next(second.responses).arbitration.status.code == Code.NOT_FOUND
        assert second.claim(2**100).status.code == Code.OK
        write(two, program.exact(1), election_id=2**100)
        third = Stream(one)
        with pytest.raises(grpc.RpcError) as caught:
            third.claim(2**100)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        fourth = Stream(one)
        with pytest.raises(grpc.RpcError) as caught:
            fourth.claim(1, device_id=3)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert mentions(caught.value.details() or "", "device 3", "devices: 1")
        second.responses.cancel()


def test_stream_must_arbitrate_first(channel: grpc.Channel) -> None:
    stream = Stream(channel)
    stream.send(packet=p4r.PacketOut(payload=b"x"))
    assert next(stream.responses).error.canonical_code == Code.PERMISSION_DENIED
    assert stream.claim().status.code == Code.OK
    stream.send(other={})
    assert next(stream.responses).error.canonical_code == Code.UNIMPLEMENTED


def test_failed_batch_carries_one_error_per_update(channel: grpc.Channel, program: Any) -> None:
    stream = Stream(channel)
    stream.claim()
    write(channel, program.exact(2))
    with pytest.raises(grpc.RpcError) as caught:
        write(channel, program.exact(1), program.exact(2), program.exact(3, kind="DELETE"))
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    status = rpc_status.Status.FromString(details)
    assert (status.code, status.message) == (Code.UNKNOWN, caught.value.details())
    errors = []
    for detail in status.details:
        errors.append(p4r.Error())
        assert detail.Unpack(errors[-1])
    assert [error.canonical_code for error in errors] == [
        Code.OK,
        Code.ALREADY_EXISTS,
        Code.NOT_FOUND,
    ]
    assert errors[0] == p4r.Error()
    assert mentions(errors[1].message, "IngressImpl.exact_table")


def test_statuses_of_whole_requests(channel: grpc.Channel, program: Any) -> None:
    stub = p4r_grpc.P4RuntimeStub(channel)
    election_id = U128.encode(1)
    cases = [
        (stub.Write, p4r.WriteRequest(device_id=9), grpc.StatusCode.NOT_FOUND),
        (stub.Write, p4r.WriteRequest(device_id=1, role="x"), grpc.StatusCode.NOT_FOUND),
        (
            stub.Write,
            p4r.WriteRequest(device_id=1, election_id=election_id),
            grpc.StatusCode.PERMISSION_DENIED,
        ),
        (
            stub.SetForwardingPipelineConfig,
            p4r.SetForwardingPipelineConfigRequest(device_id=1, election_id=election_id),
            grpc.StatusCode.PERMISSION_DENIED,
        ),
        (
            stub.GetForwardingPipelineConfig,
            p4r.GetForwardingPipelineConfigRequest(),
            grpc.StatusCode.NOT_FOUND,
        ),
        (stub.Capabilities, p4r.CapabilitiesRequest(device_id=9), grpc.StatusCode.NOT_FOUND),
    ]
    for call, request, code in cases:
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=20)
        assert caught.value.code() is code
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Read(p4r.ReadRequest(device_id=9), timeout=20))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert stub.Capabilities(p4r.CapabilitiesRequest(), timeout=20).p4runtime_api_version == "1.5.0"
    answer = stub.GetForwardingPipelineConfig(
        p4r.GetForwardingPipelineConfigRequest(device_id=1), timeout=20
    )
    assert answer.config == program.config()


def test_a_large_table_is_read_in_pieces_that_default_clients_accept(
    server: Server, controller: Any, program: Any
) -> None:
    update = program.exact(1)
    update.entity.table_entry.metadata = b"x" * 2000
    for start in range(1, 3001, 1000):
        updates = []
        for number in range(start, start + 1000):
            update.entity.table_entry.match[0].exact.value = number.to_bytes(
                1 + (number > 255), "big"
            )
            updates.append(p4r.Update.FromString(update.SerializeToString()))
        assert not any(status.code for status in controller.write(*updates))
    request = p4r.ReadRequest(
        device_id=1, entities=[program.entity("table_entry { table_id: $exact_table }")]
    )
    with grpc.insecure_channel(server.address) as channel:
        responses = list(p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=20))
    assert sum(len(response.entities) for response in responses) == 3000
    assert len(responses) > 4
    assert max(response.ByteSize() for response in responses) < (1 << 20) + 5000


def test_packet_in_and_out(channel: grpc.Channel, device: Device, program: Any) -> None:
    received: list[bytes] = []
    device.on_packet_out = received.append
    stream = Stream(channel)
    stream.claim()
    metadata = [
        p4r.PacketMetadata(metadata_id=1, value=b"\x01\x02"),
        p4r.PacketMetadata(metadata_id=2, value=b"\x05"),
    ]
    stream.send(packet=p4r.PacketOut(payload=b"payload", metadata=metadata))
    stream.send(packet=p4r.PacketOut(payload=b"payload", metadata=metadata[:1]))
    error = next(stream.responses).error
    assert error.canonical_code == Code.INVALID_ARGUMENT
    assert mentions(error.message, "field 2", "'unused'")
    assert error.packet_out.packet_out.payload == b"payload"
    assert received == [(0x102 << 7 | 5).to_bytes(2, "big") + b"payload"]
    device.packet_in(received[0])
    packet = next(stream.responses).packet
    assert packet.payload == b"payload"
    assert list(packet.metadata) == metadata
    device.packet_in(b"x")  # shorter than its header: nothing to send
    device.packet_in(b"\0\0")
    assert next(stream.responses).packet.payload == b""


@pytest.mark.parametrize(
    ("metadata", "code", "facts"),
    [
        (
            [(1, b"\x01"), (2, b"\x01"), (3, b"\x01")],
            Code.INVALID_ARGUMENT,
            ("packet-out", "field 3"),
        ),
        ([(1, b"\x01"), (1, b"\x01")], Code.INVALID_ARGUMENT, ("field 1",)),
        (
            [(1, b"\x02\x00"), (2, b"\x01")],
            Code.INVALID_ARGUMENT,
            ("field 1", "'egress_port'", "0x0200", "bit<9>"),
        ),
        (
            [(1, b""), (2, b"\x01")],
            Code.INVALID_ARGUMENT,
            ("field 1", "'egress_port'", "bit<9>"),
        ),
        ([(1, b"\x01"), (2, b"\x01")], Code.UNIMPLEMENTED, ("packet-outs",)),
    ],
)
def test_refused_packet_outs(
    controller: Any, metadata: list[tuple[int, bytes]], code: Code, facts: tuple[str, ...]
) -> None:
    packet = p4r.PacketOut(
        metadata=[p4r.PacketMetadata(metadata_id=number, value=value) for number, value in metadata]
    )
    controller.stream.receive(p4r.StreamMessageRequest(packet=packet))
    error = controller.inbox[-1].error
    assert error.canonical_code == code
    assert mentions(error.message, *facts), error


def test_devices_share_a_port(program: Any) -> None:
    devices = [
        Device(device_id=3, ports={1: SchedulerInC(5)}),
        Device(device_id=4, ports={1: SchedulerInC(6)}),
    ]
    with Server(devices) as server, grpc.insecure_channel(server.address) as channel:
        for device_id in (3, 4):
            stream = Stream(channel)
            assert stream.claim(device_id=device_id).device_id == device_id
        for device_id, rate in ((3, 5), (4, 6)):
            request = gnmi.GetRequest(
                path=[fy.GNMIPath("/interfaces").path],
                prefix={"target": str(device_id)},
                encoding=2,
            )
            (notification,) = gnmi_grpc.gNMIStub(channel).Get(request, timeout=20).notification
            assert notification.prefix.target == str(device_id)
            assert rate in [update.val.uint_val for update in notification.update]
        for target in ("", "5"):
            with pytest.raises(grpc.RpcError) as caught:
                gnmi_grpc.gNMIStub(channel).Get(
                    gnmi.GetRequest(prefix={"target": target}), timeout=20
                )
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(ValueError, check=naming("devices")):
        Server([])
    with pytest.raises(ValueError, check=naming("devices")):
        Server([Device(device_id=3), Device(device_id=3)])
    with pytest.raises(ValueError, check=naming("device_id: -1")):
        Device(device_id=-1)


def test_address_in_use(server: Server, device: Device) -> None:
    with pytest.raises(OSError, check=naming(f"127.0.0.1:{server.port}")):
        Server(device, server.address)


def test_a_slow_client_loses_packets_only(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_PACKETS", 5)
    outlet = OutboxOnly()
    session = Session({1: device}, outlet)
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
    session.take(p4r.StreamMessageRequest(arbitration=claim))
    for _ in range(9):
        device.packet_in(b"\0\0packet")
    session.take(p4r.StreamMessageRequest(arbitration=claim))
    session.take(p4r.StreamMessageRequest(packet=p4r.PacketOut()))
    kinds = ["arbitration", *["packet"] * 4, "arbitration", "error"]
    assert outlet.kinds() == kinds
    assert outlet.outbox.dropped == 5


def test_a_client_that_never_reads_loses_its_session_and_no_memory(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "_MESSAGE_BYTES", 2000)
    outlet = OutboxOnly()
    session = Session({1: device}, outlet)
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
    session.take(p4r.StreamMessageRequest(arbitration=claim))
    for _ in range(50):
        session.take(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=bytes(500))))
    assert outlet.outbox.dropped == 46
    session.take(p4r.StreamMessageRequest(arbitration=claim))
    assert outlet.kinds() == ["arbitration", *["error"] * 4, Code.RESOURCE_EXHAUSTED]


class OutboxOnly:
    """The way to a client that never reads."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.send = self.outbox.send
        self.end = self.outbox.end

    def settle(self) -> None:
        pass

    def kinds(self) -> list[Any]:
        """Return the kinds of the messages that wait, and the codes of statuses."""
        kinds: list[Any] = []
        with suppress(TimeoutError):
            while True:
                message = self.outbox.get(0)
                is_message = isinstance(message, p4r.StreamMessageResponse)
                kinds.append(message.WhichOneof("update") if is_message else message.code)
        return kinds


def test_stop_ends_open_streams(device: Device) -> None:
    server = Server(device)
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        stream = Stream(channel)
        stream.claim()
        server.stop()
        with pytest.raises(grpc.RpcError) as caught:
            next(stream.responses)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        stream.outbox.put(None)


# -- virtual time ----------------------------------------------------------------------------------


def test_a_controller_reacts_at_a_virtual_instant_and_not_at_all_without_digests(
    program: Any,
) -> None:
    """The switch learns a station at 1 us of virtual time; the controller's entry is there for the
    packet at 2 us.
    """
    loop = EventLoop()
    fabric = VirtualFabric(loop)
    arrived: list[int] = []
    lock = threading.RLock()
    device = Device(lock=lock, now_ns=lambda: loop.now_ns, cpu_port=510)
    device.install(program.config())
    node = fabric.add_switch("s1", device.switch)
    device.on_pipeline = lambda switch: setattr(node, "switch", switch)
    host = fabric.add_host("h1", lambda now_ns, data: None)
    fabric.add_host("h2", lambda now_ns, data: arrived.append(now_ns))
    fabric.connect((node, 1), (host, 0), 10**9, 0)
    fabric.connect((node, 2), ("h2", 0), 10**9, 0)
    frame = (7).to_bytes(6, "big") + (9).to_bytes(6, "big") + b"\x08\x00" + bytes(46)

    with Server(device) as server, grpc.insecure_channel(server.address) as channel:
        stream = Stream(channel)
        stream.claim()
        learn = (
            "table_entry { table_id: $ternary_table priority: 1 action { action { action_id: $learn"
            " } } }"
        )
        enable = (
            "digest_entry { digest_id: $station_t config { max_list_size: 1 ack_timeout_ns:"
            " 1000000 } }"
        )
        write(channel, program.update("INSERT", learn), program.update("INSERT", enable))

        def react() -> None:
            digest = next(stream.responses).digest
            write(channel, program.exact(7, port=2), program.update("DELETE", learn))
            stream.send(
                digest_ack=p4r.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id)
            )

        thread = threading.Thread(target=react)
        thread.start()
        for time_ns in (1_000, 2_000):
            loop.call_at(time_ns, host.send, frame)
        while loop.pending:
            with lock:
                loop.run(max_events=1)
            assert device.wait_acknowledged(20)
        thread.join()
        assert arrived == [2_000 + 480 + 480]
        assert [kind for now_ns, kind in device.rpc_log if now_ns > 0] == ["write", "digest_ack"]
        assert {now_ns for now_ns, _ in device.rpc_log} == {0, 1_480}
        count = len(device.rpc_log)
        loop.call_at(5_000, host.send, frame)
        with lock:
            fabric.run()
        assert len(arrived) == 2
        assert len(device.rpc_log) == count


# -- finsy -----------------------------------------------------------------------------------------

OPTIONS = fy.SwitchOptions(p4info=HERE / "everything.p4info.txtpb", p4blob=HERE / "everything.json")


def entry(number: int, port: int = 2) -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "exact_table",
        match=fy.Match(dst=number, ingress_port=1),
        action=fy.Action("forward", port=port, mark=0),
    )


async def test_finsy_writes_reads_and_learns(bare_device: Device) -> None:
    bare_device.qos = type(bare_device.qos)({1: SchedulerInC(10**9)})
    with Server(bare_device) as server:
        async with fy.Switch("s1", server.address, OPTIONS) as switch:
            assert switch.is_primary
            assert [(port.name, port.up) for port in switch.ports] == [("1", True)]
            await switch.write([+entry(number) for number in range(2000)])
            found = [item async for item in switch.read(fy.P4TableEntry("exact_table"))]
            assert found == [entry(number) for number in range(2000)]
            await switch.write([~entry(5, port=3), -entry(6)])
            assert [item async for item in switch.read([entry(5), entry(6)])] == [entry(5, port=3)]
            with pytest.raises(fy.P4ClientError) as caught:
                await switch.insert([entry(number) for number in range(1000)])
            assert len(caught.value.details) == 999
            assert {int(error.canonical_code) for error in caught.value.details.values()} == {
                Code.ALREADY_EXISTS
            }

            learn = fy.P4TableEntry("ternary_table", priority=1, action=fy.Action("learn"))
            await switch.write(
                [
                    +learn,
                    +fy.P4DigestEntry(
                        "station_t", max_list_size=2, max_timeout_ns=10**9, ack_timeout_ns=10**9
                    ),
                ]
            )
            digests = switch.read_digests("station_t")
            coming = asyncio.ensure_future(anext(digests))
            await asyncio.sleep(0)
            with bare_device.lock:
                for src in (7, 8):
                    bare_device.switch.process(
                        1, bytes(6) + src.to_bytes(6, "big") + b"\x08\x00" + bytes(46), 55
                    )
            learnt = await coming
            assert [(value["address"], value["port"], value["special"]) for value in learnt] == [
                (7, 1, False),
                (8, 1, False),
            ]
            assert not bare_device.wait_acknowledged(0)
            await switch.write([learnt.ack()])
            assert await asyncio.to_thread(bare_device.wait_acknowledged, 20)
            await switch.delete_all()
            assert [item async for item in switch.read(fy.P4TableEntry("exact_table"))] == []


async def test_finsy_configures_queues() -> None:
    ports = {1: SchedulerInC(10**9), 2: SchedulerInC(10**9)}
    queue = "qos/interfaces/interface[interface-id={}]/output/queues/queue[name={}]/config/softswitch:{}"
    with Server(Device(ports=ports)) as server:
        async with fy.GNMIClient(server.address) as client:
            capabilities = await client.capabilities()
            assert "softswitch" in [model.name for model in capabilities.supported_models]
            await client.set(
                update=[(fy.GNMIPath(queue.format(port, 3, "weight")), 10 * port) for port in ports]
                + [(fy.GNMIPath(queue.format(1, 3, "max-rate")), 5_000_000)]
            )
            assert ports[1].config(3) == QueueConfig(level=3, weight=10, max_rate_bps=5_000_000)
            assert ports[2].config(3) == QueueConfig(level=3, weight=20)
            found = await client.get(fy.GNMIPath(queue.format("*", 3, "weight")))
            assert [update.value for update in found] == [10, 20]
            with pytest.raises(GNMIClientError) as caught:
                await client.set(update=[(fy.GNMIPath(queue.format(1, 3, "weight")), 0)])
            assert int(caught.value.code) == Code.INVALID_ARGUMENT
            assert mentions(caught.value.message, queue.format(1, 3, "weight"), 0, "1..1023")

            once = client.subscribe()
            once.once(fy.GNMIPath(queue.format(2, 3, "weight")))
            assert [update.value async for update in once.synchronize()] == [20]
            samples = client.subscribe()
            samples.sample(fy.GNMIPath(queue.format(2, 3, "weight")), sample_interval=1)
            assert [update.value async for update in samples.synchronize()] == [20]
            ports[2].configure(3, QueueConfig(weight=30), 0)
            assert (await anext(samples.updates())).value == 30
            samples.cancel()
            changes = client.subscribe()
            changes.on_change(fy.GNMIPath(queue.format(2, 3, "weight")))
            with pytest.raises(GNMIClientError) as caught:
                [update async for update in changes.synchronize()]
            assert int(caught.value.code) == Code.UNIMPLEMENTED


async def test_two_finsy_controllers_settle_who_is_primary(device: Device) -> None:
    with Server(device) as server:
        at = server.address
        async with fy.Switch("a", at, OPTIONS) as first, fy.Switch("b", at, OPTIONS) as second:
            assert (first.is_primary, second.is_primary) == (True, False)
            with pytest.raises(fy.P4ClientError) as caught:
                await second.write([+entry(1)])
            assert int(caught.value.code) == Code.PERMISSION_DENIED
            await first.write([+entry(1)])


def test_gnmi_polls_and_changes() -> None:
    """POLL answers each poll; ON_CHANGE tells of a port that goes down and comes back, and of
    nothing else.
    """
    device = Device(ports={1: SchedulerInC(10**9), 2: SchedulerInC(10**9)}, port_counters=counted)
    status = gnmi.Path(
        elem=[
            gnmi.PathElem(name="interfaces"),
            gnmi.PathElem(name="interface", key={"name": "*"}),
            gnmi.PathElem(name="state"),
            gnmi.PathElem(name="oper-status"),
        ]
    )
    counters = gnmi.Path()
    counters.CopyFrom(status)
    counters.elem[3].name = "counters"

    def subscription(mode: int, *paths: gnmi.Path) -> gnmi.SubscribeRequest:
        return gnmi.SubscribeRequest(
            subscribe=gnmi.SubscriptionList(
                mode=mode,  # type: ignore[arg-type]
                encoding=gnmi.PROTO,
                subscription=[gnmi.Subscription(path=path, mode=gnmi.ON_CHANGE) for path in paths],
            )
        )

    def values(response: gnmi.SubscribeResponse) -> list[tuple[str, object]]:
        return [
            (update.path.elem[1].key["name"], update.val.string_val or update.val.uint_val)
            for update in response.update.update
        ]

    with Server(device) as server, grpc.insecure_channel(server.address) as channel:
        stub = gnmi_grpc.gNMIStub(channel)
        polls: SimpleQueue[gnmi.SubscribeRequest | None] = SimpleQueue()
        polls.put(subscription(gnmi.SubscriptionList.POLL, counters))
        answers = stub.Subscribe(iter(polls.get, None), timeout=60)
        expected = [(str(port), value) for port in (1, 2) for value in counted(port)]
        assert values(next(answers)) == expected
        assert next(answers).sync_response
        polls.put(gnmi.SubscribeRequest(poll=gnmi.Poll()))
        assert values(next(answers)) == expected
        assert next(answers).sync_response
        polls.put(subscription(gnmi.SubscriptionList.POLL, counters))
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        polls.put(None)

        changes = stub.Subscribe(
            iter([subscription(gnmi.SubscriptionList.STREAM, status)]), timeout=60
        )
        assert values(next(changes)) == [("1", "UP"), ("2", "UP")]
        assert next(changes).sync_response
        for port, up in ((2, False), (1, False), (2, True)):
            device.set_port_up(port, up)
            assert values(next(changes)) == [(str(port), "UP" if up else "DOWN")]
        changes.cancel()


def counted(port: int) -> PortCounters:
    """Return counters that identify the port."""
    return PortCounters(port, 10 * port, 100 * port, 1000 * port)


# -- what is no message ----------------------------------------------------------------------------

NO_MESSAGE = b"\x0a\xff"
"""A field longer than what follows: no message of any type."""

METHODS = [
    *(
        f"/p4.v1.P4Runtime/{name}"
        for name in ("Write", "Read", "SetForwardingPipelineConfig", "StreamChannel")
    ),
    *(f"/p4.v1.P4Runtime/{name}" for name in ("GetForwardingPipelineConfig", "Capabilities")),
    *(f"/gnmi.gNMI/{name}" for name in ("Capabilities", "Get", "Set", "Subscribe")),
]
USUAL = {"/p4.v1.P4Runtime/Write", "/p4.v1.P4Runtime/StreamChannel", "/gnmi.gNMI/Subscribe"}
"""One method of each kind: a call, a stream, and a service of its own. `make test-long` has all."""


@pytest.mark.parametrize(
    "method",
    [pytest.param(method, marks=() if method in USUAL else pytest.mark.long) for method in METHODS],
)
def test_what_cannot_be_decoded_is_refused_and_forgotten(
    channel: grpc.Channel, method: str
) -> None:
    call = channel.stream_stream(method)
    before = calls_remembered()
    for _ in range(20):
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([NO_MESSAGE]), timeout=20))
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    # The last ones may not yet be done with.
    assert calls_remembered() < before + 10


def calls_remembered() -> int:
    """Return the number of calls that gRPC's server still keeps something of."""
    gc.collect()
    return sum(
        type(found).__name__ == "_RPCState" and "callbacks" in vars(found)
        for found in gc.get_objects()
    )
