"""A device with the program `everything.p4`, and controllers that talk to it without gRPC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format

from ctoolchain import compilers
from softswitch.native.choice import Choice
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.roles import EVERY_ROLE
from softswitch.p4runtime.server import Server
from softswitch.rpc.status import Status
from tests.engines import ENGINES

HERE = Path(__file__).parent
CPU_PORT = 510


EVERYTHING = [
    "table_entry { counter_data { } meter_config { } }",
    "action_profile_member { }",
    "action_profile_group { }",
    "counter_entry { }",
    "meter_entry { }",
    "register_entry { }",
    "value_set_entry { }",
    "digest_entry { }",
    "packet_replication_engine_entry { multicast_group_entry { } }",
    "packet_replication_engine_entry { clone_session_entry { } }",
]


class Everything:
    """The program: its pipeline config, and messages in text form with `$alias` for the id of an
    entity.
    """

    def __init__(self) -> None:
        self.p4info = text_format.Parse(
            (HERE / "everything.p4info.txtpb").read_text(), p4i.P4Info()
        )
        self.json = (HERE / "everything.json").read_bytes()
        self.ids = {
            entity.preamble.alias: entity.preamble.id
            for field, entities in self.p4info.ListFields()
            if field.name not in ("pkg_info", "type_info")
            for entity in entities
        }

    def config(self, cookie: int | None = None) -> p4r.ForwardingPipelineConfig:
        config = p4r.ForwardingPipelineConfig(p4info=self.p4info, p4_device_config=self.json)
        if cookie is not None:
            config.cookie.cookie = cookie
        return config

    def entity(self, text: str) -> p4r.Entity:
        return text_format.Parse(self.with_ids(text), p4r.Entity())

    def with_ids(self, text: str) -> str:
        """Return a text with the id of each entity in place of its `$alias`."""
        return re.sub(r"\$(\w+)", lambda found: str(self.ids[found[1]]), text)

    def update(self, kind: str, text: str) -> p4r.Update:
        return p4r.Update(type=p4r.Update.Type.Value(kind), entity=self.entity(text))

    def exact(self, number: int, port: int = 2, kind: str = "INSERT") -> p4r.Update:
        """Return an exact_table entry: destination `number`, ingress port 1, forward to `port`."""
        key = "".join(f"\\x{byte:02x}" for byte in number.to_bytes(6, "big").lstrip(b"\0") or b"\0")
        return self.update(
            kind,
            f"""table_entry {{ table_id: $exact_table
                match {{ field_id: 1 exact {{ value: "{key}" }} }} match {{ field_id: 2 exact {{ value: "\\x01" }} }}
                action {{ action {{ action_id: $forward
                    params {{ param_id: 1 value: "\\x{port:02x}" }} params {{ param_id: 2 value: "\\x00" }} }} }} }}""",
        )


class Controller:
    """One stream to a device, and the unary requests that go with its election id."""

    def __init__(
        self, device: Device, program: Everything, election_id: int | None = 1, role: str = ""
    ) -> None:
        self.device = device
        self.program = program
        self.election_id = election_id
        self.role = role
        self.inbox: list[p4r.StreamMessageResponse] = []
        self.ended: list[Status] = []
        self.stream = device.open_stream(self.inbox.append, self.ended.append)
        self.arbitrate()

    def arbitrate(self) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=self.device.device_id)
        if self.role:
            update.role.name = self.role
        if self.election_id is not None:
            update.election_id.CopyFrom(U128.encode(self.election_id))
        self.stream.receive(p4r.StreamMessageRequest(arbitration=update))

    def request(self, *updates: p4r.Update, atomicity: int = 0) -> p4r.WriteRequest:
        return p4r.WriteRequest(
            device_id=self.device.device_id,
            role=self.role,
            election_id=None if self.election_id is None else U128.encode(self.election_id),
            updates=updates,
            atomicity=atomicity,  # type: ignore[arg-type]
        )

    def write(self, *updates: p4r.Update, atomicity: int = 0) -> list[Status]:
        return self.device.write(self.request(*updates, atomicity=atomicity))

    def do(self, kind: str, *texts: str) -> None:
        """Write updates that must all succeed."""
        statuses = self.write(*(self.program.update(kind, text) for text in texts))
        assert [status.message for status in statuses if status.code] == []

    def read(self, *texts: str) -> list[p4r.Entity]:
        request = p4r.ReadRequest(
            device_id=self.device.device_id, entities=[self.program.entity(text) for text in texts]
        )
        return [entity for response in self.device.read(request) for entity in response.entities]

    def everything(self) -> list[p4r.Entity]:
        """Read all that a controller can write but default entries."""
        return self.read(*EVERYTHING)

    def set_pipeline(self, action: str, config: p4r.ForwardingPipelineConfig | None = None) -> None:
        types = p4r.SetForwardingPipelineConfigRequest
        request = types(
            device_id=self.device.device_id,
            role=self.role,
            election_id=None if self.election_id is None else U128.encode(self.election_id),
            action=types.Action.Value(action),
            config=config,
        )
        self.device.set_pipeline(request)


@contextmanager
def connection(server: Server, **options: int) -> Iterator[grpc.Channel]:
    """Yield a channel over a connection of its own, whose window stays at 64 KiB."""
    listed = {"grpc.use_local_subchannel_pool": 1, "grpc.http2.bdp_probe": 0, **options}
    with grpc.insecure_channel(server.address, options=list(listed.items())) as channel:
        yield channel


class Time:
    """A clock that tests set."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture(scope="session")
def program() -> Everything:
    return Everything()


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture(params=ENGINES)
def bare_device(request: pytest.FixtureRequest, clock: Time) -> Device:
    """Return a device without a pipeline."""
    engines = Choice(request.param, compilers()[-1:])
    return Device(now_ns=clock, cpu_port=CPU_PORT, engines=engines, roles=[EVERY_ROLE])


@pytest.fixture
def connect(bare_device: Device, program: Everything) -> Callable[..., Controller]:
    """Return a function that makes a further controller of the device from election id and role."""
    return lambda *args: Controller(bare_device, program, *args)


@pytest.fixture
def device(bare_device: Device, program: Everything) -> Device:
    """Return a device that runs the program."""
    bare_device.install(program.config())
    return bare_device


@pytest.fixture
def server(device: Device) -> Iterator[Server]:
    """Yield a server of `device`."""
    with Server(device) as running:
        yield running


@pytest.fixture
def controller(device: Device, program: Everything) -> Controller:
    """Return the primary of `device`."""
    return Controller(device, program)
