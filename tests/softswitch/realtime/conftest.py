"""Stand-ins for programs, the `softswitch` command as a process, and private network namespaces."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format
from hypothesis import HealthCheck, settings

from tests import namespaces
from tests.namespaces import Namespace
from tests.needs import require
from tests.softswitch.virtual.conftest import Sent, Waiting
from tests.softswitch_process import COMMAND as COMMAND
from tests.softswitch_process import Running, running

settings.register_profile(
    "realtime", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("realtime")

PATIENCE_S = 60


class Orders:
    """A program whose packets say what is to become of them.

    Byte 0: copies that ingress makes (0 drops); byte 1: the port of the first, each further one to
    the next port; byte 2: queue; byte 3: times egress sends a packet round again; byte 4: what
    egress does in the end: 0 sends, 1 drops, 2 makes it 7 bytes longer.
    """

    def __init__(self) -> None:
        self.left: list[tuple[int, bytes, int, int, int, int]] = []
        """(port, packet, enqueued, now, depth met, depth left behind) of each packet whose turn
        came, in order
        """

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> list[Waiting]:
        copies, first, queue = data[:3]
        return [Waiting(first + copy, queue, data) for copy in range(copies)]

    def egress(self, q: Waiting, enq_ns: int, now_ns: int, met: int, leaves: int, /) -> list[Sent]:
        self.left.append((q.port, q.data, enq_ns, now_ns, met, leaves))
        if q.rounds < q.data[3]:
            return [Sent(q.port, None, [Waiting(q.port, q.queue, q.data, q.rounds + 1)])]
        if q.data[4] == 1:
            return []
        return [Sent(q.port, q.data + bytes(7 if q.data[4] == 2 else 0))]


@pytest.fixture(scope="session")
def new_orders() -> type[Orders]:
    return Orders


def order(
    port: int, queue: int = 0, length: int = 64, copies: int = 1, rounds: int = 0, end: int = 0
) -> bytes:
    return bytes([copies, port, queue, rounds, end]).ljust(length, b"\0")


@pytest.fixture(scope="session")
def make_order() -> Callable[..., bytes]:
    """Return the function that makes a packet for `Orders`."""
    return order


# -- the command -----------------------------------------------------------------------------------


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that starts the command with the given arguments, on a free port.

    What still runs at the end is killed.
    """
    with ExitStack() as stack:

        def start_(*arguments: str | Path, **options: Any) -> Running:
            return stack.enter_context(running(*arguments, **options))

        yield start_


class Peer:
    """The other end of a `unix:` port."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"{path}.peer")
        self._socket.settimeout(PATIENCE_S)

    def send(self, data: bytes) -> None:
        self._socket.sendto(data, str(self.path))

    def receive(self) -> bytes:
        return self._socket.recv(1 << 16)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def new_peer(tmp_path: Path) -> Iterator[Callable[[str], Peer]]:
    """Yield a function that makes the other end of the port `unix:{tmp_path}/{name}`."""
    peers: list[Peer] = []

    def make(name: str) -> Peer:
        peers.append(Peer(tmp_path / name))
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()


# -- network namespaces ----------------------------------------------------------------------------


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Yield a namespace. Skips where namespaces or interfaces cannot be made."""
    require("veth interfaces")
    with namespaces.namespace() as made:
        yield made


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Return a function that waits until a condition holds that another process brings about, and
    fails if it never does.
    """

    def wait(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {PATIENCE_S} s: {what}")
            time.sleep(0.02)

    return wait


# -- controllers -----------------------------------------------------------------------------------


class Controller:
    """A primary of a running switch with the program `everything.p4`; it reads its stream only when
    it is asked to.
    """

    def __init__(self, channel: grpc.Channel, device_id: int, election_id: int) -> None:
        self._stub = p4r_grpc.P4RuntimeStub(channel)
        self._device_id = device_id
        self._election_id = U128.encode(election_id)
        self._outbox: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        self._stream = self._stub.StreamChannel(iter(self._outbox.get, None))
        arbitration = p4r.MasterArbitrationUpdate(
            device_id=device_id, election_id=self._election_id
        )
        self._outbox.put(p4r.StreamMessageRequest(arbitration=arbitration))
        assert self.next("arbitration").arbitration.status.code == 0

    def next(self, kind: str) -> p4r.StreamMessageResponse:
        """Return the next message of the stream of one kind."""
        return next(message for message in self._stream if message.WhichOneof("update") == kind)

    def set_pipeline(self, program: Path, p4info: Path) -> None:
        config = p4r.ForwardingPipelineConfig(p4_device_config=program.read_bytes())
        text_format.Parse(p4info.read_text(), config.p4info)
        types = p4r.SetForwardingPipelineConfigRequest
        self._stub.SetForwardingPipelineConfig(
            types(
                device_id=self._device_id,
                election_id=self._election_id,
                action=types.VERIFY_AND_COMMIT,
                config=config,
            )
        )

    def forward(self, destination: bytes, port: int, to: int) -> None:
        """Send frames for `destination` that come in at `port` to port `to`."""
        ids = self._ids()
        key = destination.lstrip(b"\0")
        entry = p4r.TableEntry(table_id=ids["exact_table"])
        entry.match.add(field_id=1).exact.value = key
        entry.match.add(field_id=2).exact.value = bytes([port])
        action = entry.action.action
        action.action_id = ids["forward"]
        action.params.add(param_id=1, value=to.to_bytes(2, "big").lstrip(b"\0") or b"\0")
        action.params.add(param_id=2, value=b"\0")
        self._insert(p4r.Entity(table_entry=entry))

    def learn_everything(self) -> None:
        """Send a digest at once for each frame, to be acknowledged."""
        ids = self._ids()
        entry = p4r.TableEntry(table_id=ids["ternary_table"], priority=1)
        field = entry.match.add(field_id=2)
        field.range.low, field.range.high = b"\0", b"\x80\0"
        entry.action.action.action_id = ids["learn"]
        self._insert(p4r.Entity(table_entry=entry))
        digest = p4r.DigestEntry(digest_id=ids["station_t"])
        digest.config.max_list_size = 1
        digest.config.ack_timeout_ns = 10**12
        self._insert(p4r.Entity(digest_entry=digest))

    def packet_out(self, payload: bytes, port: int) -> None:
        """Send a frame out of `port`."""
        packet = p4r.PacketOut(payload=payload)
        for number, value in self._packet_out_fields(port):
            packet.metadata.add(metadata_id=number, value=value)
        self._outbox.put(p4r.StreamMessageRequest(packet=packet))

    def close(self) -> None:
        self._outbox.put(None)

    def _info(self) -> p4i.P4Info:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self._device_id)
        return self._stub.GetForwardingPipelineConfig(request).config.p4info

    def _ids(self) -> dict[str, int]:
        info = self._info()
        return {
            part.preamble.alias: part.preamble.id
            for part in (*info.tables, *info.actions, *info.digests)
        }

    def _packet_out_fields(self, port: int) -> list[tuple[int, bytes]]:
        header = next(
            part
            for part in self._info().controller_packet_metadata
            if part.preamble.name == "packet_out"
        )
        return [
            (part.id, bytes([port if part.name == "egress_port" else 0]))
            for part in header.metadata
        ]

    def _insert(self, entity: p4r.Entity) -> None:
        request = p4r.WriteRequest(device_id=self._device_id, election_id=self._election_id)
        request.updates.add(type=p4r.Update.INSERT, entity=entity)
        self._stub.Write(request)


@pytest.fixture
def connect() -> Iterator[Callable[..., Controller]]:
    """Yield a function that makes a controller, given the address of a running switch."""
    made: list[Controller] = []

    channels: list[grpc.Channel] = []

    def connect_(
        address: str,
        device_id: int = 1,
        election_id: int = 1,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> Controller:
        if credentials is None:
            channels.append(grpc.insecure_channel(address))
        else:
            channels.append(grpc.secure_channel(address, credentials))
        made.append(Controller(channels[-1], device_id, election_id))
        return made[-1]

    yield connect_
    for controller in made:
        controller.close()
    for channel in channels:
        channel.close()
