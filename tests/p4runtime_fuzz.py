# ruff: noqa: E501 - messages in text form stay on one line
"""Random and mutated messages of P4Runtime and gNMI, for the program everything.p4.

The suite gives them to a device in its process (tests/softswitch/p4runtime/test_fuzz.py), and
``python -m tests.soak p4runtime`` sends them to a switch that is a process of its own.
"""

from __future__ import annotations

import random
from typing import TypeVar

from finsy.proto import gnmi, p4r
from google.protobuf.message import DecodeError, Message

from tests.softswitch.p4runtime.conftest import Everything

M = TypeVar("M", bound=Message)

SEEDS = [
    """table_entry { table_id: $exact_table match { field_id: 1 exact { value: "\\x0a" } }
        match { field_id: 2 exact { value: "\\x01" } } counter_data { packet_count: 3 } metadata: "m"
        action { action { action_id: $forward params { param_id: 1 value: "\\x02" } params { param_id: 2 value: "\\x07" } } } }""",
    """table_entry { table_id: $lpm_table match { field_id: 1 lpm { value: "\\x0a\\x00" prefix_len: 44 } }
        action { action { action_id: $flood params { param_id: 1 value: "\\x05" } } } }""",
    """table_entry { table_id: $ternary_table priority: 5 match { field_id: 1 ternary { value: "\\x0a" mask: "\\xff\\x0f" } }
        match { field_id: 2 range { low: "\\x00" high: "\\x08\\x00" } } match { field_id: 3 optional { value: "\\x01" } }
        action { action { action_id: $learn } } }""",
    'table_entry { table_id: $meter_table match { field_id: 1 exact { value: "\\x01" } } meter_config { cir: 1 pir: 2 } action { action { action_id: $measure } } }',
    'table_entry { table_id: $idle_table match { field_id: 1 exact { value: "\\x01" } } idle_timeout_ns: 9 action { action { action_id: $NoAction } } }',
    """table_entry { table_id: $selector_table match { field_id: 1 exact { value: "\\x01" } } action { action_profile_action_set {
        action_profile_actions { weight: 3 action { action_id: $NoAction } } } } }""",
    'table_entry { table_id: $const_table match { field_id: 1 exact { value: "\\x90\\x00" } } }',
    "table_entry { table_id: $exact_table is_default_action: true action { action { action_id: $drop } } }",
    "action_profile_member { action_profile_id: $members member_id: 3 action { action_id: $NoAction } }",
    "action_profile_member { action_profile_id: $chooser member_id: 3 action { action_id: $NoAction } }",
    "action_profile_group { action_profile_id: $chooser group_id: 3 max_size: 9 members { member_id: 3 weight: 2 } }",
    'table_entry { table_id: $profile_table match { field_id: 1 exact { value: "\\x01" } } action { action_profile_member_id: 3 } }',
    "counter_entry { counter_id: $port_counter index { index: 1 } data { packet_count: 4 } }",
    "meter_entry { meter_id: $port_meter index { index: 1 } config { cir: 1 cburst: 2 pir: 3 pburst: 4 } }",
    'register_entry { register_id: $last_type index { index: 7 } data { bitstring: "\\x07" } }',
    "direct_counter_entry { table_entry { table_id: $exact_table } data { byte_count: 8 } }",
    "direct_meter_entry { table_entry { table_id: $meter_table } config { cir: 1 pir: 8 } }",
    "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 5 replicas { egress_port: 3 } } }",
    'packet_replication_engine_entry { clone_session_entry { session_id: 5 replicas { port: "\\x01" } class_of_service: 2 } }',
    'value_set_entry { value_set_id: $special_types members { match { field_id: 1 exact { value: "\\x90" } } } }',
    "digest_entry { digest_id: $station_t config { max_list_size: 6 ack_timeout_ns: 9 } }",
    "extern_entry { extern_type_id: 1 }",
]

GNMI_PATH = ("qos", "interfaces", "interface", "output", "queues", "queue", "config")
GNMI_NAMES = (*GNMI_PATH, "state", "softswitch:level", "name", "*", "")
GNMI_LEAVES = ("softswitch:level", "softswitch:weight", "softswitch:depth", "name", "x")
GNMI_VALUES = [
    *(gnmi.TypedValue(uint_val=value) for value in (0, 1, 5, 2000, 2**64 - 1)),
    gnmi.TypedValue(int_val=-3),
    *(
        gnmi.TypedValue(json_ietf_val=value)
        for value in (b"{}", b"[]", b"[", b"3", b'"3"', b"nan", b'{"name": 3}', b"\0")
    ),
    gnmi.TypedValue(json_ietf_val=b'{"softswitch:level": 3}'),
    gnmi.TypedValue(json_val=b'{"softswitch:weight": 4, "softswitch:level": 2}'),
]


class Messages:
    """What a controller of the program can send, right or mutated."""

    def __init__(self, program: Everything, random_: random.Random) -> None:
        self.seeds = [program.entity(text) for text in SEEDS]
        self._program = program
        self._random = random_

    def mutated_entity(self) -> p4r.Entity:
        return mutated(self._random.choice(self.seeds), self._random)

    def on_stream(self, claim: p4r.MasterArbitrationUpdate) -> list[p4r.StreamMessageRequest]:
        """Return a message of each kind for the stream; the claim is the last."""
        port = [
            p4r.PacketMetadata(metadata_id=1, value=b"\1"),
            p4r.PacketMetadata(metadata_id=2, value=b"\1"),
        ]
        digest_id = self._program.ids["station_t"]
        return [
            p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"abc", metadata=port)),
            p4r.StreamMessageRequest(
                digest_ack=p4r.DigestListAck(digest_id=digest_id, list_id=1),
            ),
            p4r.StreamMessageRequest(other={"type_url": "x", "value": b"y"}),
            p4r.StreamMessageRequest(arbitration=claim),
        ]

    def mutated_p4info(self) -> p4r.ForwardingPipelineConfig:
        """Return a pipeline with a mutated P4Info."""
        config = self._program.config()
        config.p4info.CopyFrom(mutated(config.p4info, self._random))
        return config

    def mutated_program(self) -> p4r.ForwardingPipelineConfig:
        """Return a pipeline whose program has a few characters replaced."""
        config = self._program.config()
        data = bytearray(config.p4_device_config)
        for _ in range(3):
            place = self._random.randrange(len(data))
            end = place + self._random.randint(0, 3)
            data[place:end] = self._random.choice([b"", b"9", b'"', b"[", b"null", b"-"])
        config.p4_device_config = bytes(data)
        return config

    def gnmi_path(self) -> gnmi.Path:
        """Return a path of the tree of queues, or one that is nearly one."""
        random_ = self._random
        path = gnmi.Path(elem=[gnmi.PathElem(name=name) for name in GNMI_PATH])
        path.elem[2].key["interface-id"] = random_.choice(["1", "2", "2", "9", "x", "-1", "*", "١"])
        path.elem[5].key["name"] = random_.choice(["0", "7", "8", "9", "*", ""])
        if random_.random() < 0.3:
            path.elem[random_.randrange(7)].name = random_.choice(GNMI_NAMES)
        if random_.random() < 0.2:
            del path.elem[random_.randint(0, 7) :]
        if random_.random() < 0.5:
            path.elem.add(name=random_.choice(GNMI_LEAVES))
        return path

    def gnmi_value(self) -> gnmi.TypedValue:
        return self._random.choice(GNMI_VALUES)


def mutated(message: M, random_: random.Random) -> M:
    """Return a copy of `message` with bytes of its encoding changed, or fields dropped, repeated or
    replaced.
    """
    copy = type(message)()
    if random_.random() < 0.5:
        data = bytearray(message.SerializeToString(deterministic=True))
        for _ in range(random_.randint(1, 4)):
            if data:
                data[random_.randrange(len(data))] = random_.choice(
                    [0, 1, 2, 0x7F, 0x80, 0xFF, random_.randrange(256)]
                )
        try:
            copy.ParseFromString(bytes(data))
            return copy
        except DecodeError:
            pass
    copy.CopyFrom(message)
    _mutate_field(copy, random_)
    return copy


def _mutate_field(message: Message, random_: random.Random) -> None:
    present = message.ListFields()
    if not present:
        return
    field, value = random_.choice(present)
    if random_.random() < 0.15:
        message.ClearField(field.name)
    elif field.message_type is None:
        if isinstance(value, bytes):
            setattr(
                message,
                field.name,
                random_.choice(
                    [b"", b"\0", value + b"\1", b"\0" + value, random_.randbytes(7), b"\xff" * 9]
                ),
            )
        elif isinstance(value, bool):
            setattr(message, field.name, not value)
        elif isinstance(value, int):
            choices = [0, 1, value + 1, value * 2, 2**31 - 1] + (
                [-1, -(2**31)] if field.cpp_type in (1, 2) else []
            )
            setattr(message, field.name, min(random_.choice(choices), 2**31 - 1))
    elif hasattr(value, "add"):
        if random_.random() < 0.2:
            value.add().CopyFrom(random_.choice(list(value)))
        else:
            _mutate_field(random_.choice(list(value)), random_)
    elif not hasattr(value, "values"):
        _mutate_field(value, random_)
    else:
        name = random_.choice(list(value))
        if isinstance(value[name], str):
            value[name] = random_.choice(["", "*", "1", value[name] + "x"])
        else:
            _mutate_field(value[name], random_)
