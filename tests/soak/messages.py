# ruff: noqa: E501 - messages in text form stay on one line
"""Messages that controllers could send, and how to spoil them.

The ids stand as `$alias` of the program everything.p4.
"""

from __future__ import annotations

import random

from google.protobuf.message import DecodeError, Message

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


def mutated(message: Message, random_: random.Random) -> Message:
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
