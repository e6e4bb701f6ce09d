"""Action profiles, counters, meters, replication, registers and the rest (section 9.2 and on)."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from tests.conformance.arbitration import IPV4, route
from tests.conformance.entries import (
    MEMBER,
    METERED,
    REGISTER,
    exact,
    forward,
    group,
)
from tests.conformance.requirement import (
    EXHAUSTED,
    EXISTS,
    INVALID,
    NOT_FOUND,
    OK,
    OUT_OF_RANGE,
    PRECONDITION,
    UNIMPLEMENTED,
    Trial,
    requires,
)

PROFILES = "9.2"
ARRAYS = "9.3, 9.4"
REPLICATION = "9.5"
OTHERS = "9.6 to 9.9"
ATTEMPTS = 20
"""How often a packet is sent that a switch may not be ready for."""


@requires("9.30", PROFILES, "INSERT adds a member.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1)
    t.same(MEMBER % 1)


@requires("9.31", PROFILES, "INSERT of a member that exists ends with ALREADY_EXISTS.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1)
    t.refused("INSERT", MEMBER % 1, EXISTS)


@requires("9.32", PROFILES, "DELETE removes a member that no group and no entry uses.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, MEMBER % 2, group(1, 2))
    t.do("DELETE", MEMBER % 1)
    t.refused("DELETE", MEMBER % 2, PRECONDITION)
    t.holds(len(t.read("action_profile_member { }")) == 1, "not one member is left")


@requires("9.33", PROFILES, "INSERT adds a group of members.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, group(1, 1))
    t.refused("INSERT", group(2, 7), NOT_FOUND)


@requires("9.34", PROFILES, "MODIFY gives a group other members.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, MEMBER % 2, group(1, 1))
    t.do("MODIFY", group(1, 2))
    t.same(group(1, 2))


@requires("9.35", PROFILES, "DELETE of a group that does not exist ends with NOT_FOUND.")
def _(t: Trial) -> None:
    t.refused("DELETE", group(1), NOT_FOUND)


FIRST, SECOND = (forward(port)[len("action { ") : -len(" }")] for port in ("\\x02", "\\x03"))
ONE_SHOT = (
    "table_entry { table_id: $selector_table "
    'match { field_id: 1 exact { value: "\\x0a" } } '
    f"action {{ action_profile_action_set {{ action_profile_actions {{ {FIRST} weight: 1 }} "
    f"action_profile_actions {{ {SECOND} weight: 2 }} }} }} }}"
)


@requires("9.36", PROFILES, "An entry may have its group in one shot.")
def _(t: Trial) -> None:
    t.do("INSERT", ONE_SHOT)
    t.same(ONE_SHOT)
    t.do("DELETE", ONE_SHOT)


@requires("9.37", PROFILES, "A group may not be larger than its max_size, which is fixed.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, MEMBER % 2)
    t.refused("INSERT", group(1, 1, 2, size=1), EXHAUSTED, INVALID)
    t.do("INSERT", group(1, 1))
    t.refused("MODIFY", group(1, 1, size=3), INVALID)


@requires("9.38", PROFILES, "An unknown action profile is refused for a member.")
def _(t: Trial) -> None:
    t.refused("INSERT", (MEMBER % 1).replace("$chooser", "301989872"), NOT_FOUND, INVALID)


@requires("9.39", PROFILES, "A member's action has to be one of the profile's tables.")
def _(t: Trial) -> None:
    text = (
        "action_profile_member { action_profile_id: $chooser member_id: 1 "
        "action { action_id: $learn } }"
    )
    t.refused("INSERT", text, INVALID)


@requires("9.40", PROFILES, "A member's parameters are checked.")
def _(t: Trial) -> None:
    t.refused("INSERT", (MEMBER % 1).replace("param_id: 2", "param_id: 9"), INVALID)
    t.refused(
        "INSERT",
        (MEMBER % 1).replace('value: "\\x02"', 'value: "\\x02\\x00"'),
        OUT_OF_RANGE,
        INVALID,
    )


@requires("9.41", PROFILES, "An unknown action profile is refused for a group.")
def _(t: Trial) -> None:
    t.refused("INSERT", group(1).replace("$chooser", "301989872"), NOT_FOUND, INVALID)


@requires("9.42", PROFILES, "A profile that is full ends INSERT with RESOURCE_EXHAUSTED.")
def _(t: Trial) -> None:
    text = (
        "action_profile_member { action_profile_id: $members member_id: %d "
        "action { action_id: $NoAction } }"
    )
    updates = [t.program.update("INSERT", text % number) for number in range(1, 40)]
    codes = t.session.codes(updates)
    t.holds(codes[:16] == [OK] * 16, "less than its size")
    t.holds(set(codes) == {OK, EXHAUSTED}, f"{set(codes)}")


@requires("9.43a", PROFILES, "A group without members is accepted.")
def _(t: Trial) -> None:
    t.do("INSERT", group(1))
    t.same(group(1))


@requires("9.43b", PROFILES, "MODIFY replaces all members of a group.")
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1, MEMBER % 2, MEMBER % 3, group(1, 1, 2))
    t.do("MODIFY", group(1, 3))
    t.same(group(1, 3))


@requires("9.43c", PROFILES, "A watch port that does not exist is refused.", extra=True)
def _(t: Trial) -> None:
    t.do("INSERT", MEMBER % 1)
    watched = group(1, 1).replace("weight: 1", 'weight: 1 watch_port: "\\x55"')
    t.refused("INSERT", watched, INVALID, UNIMPLEMENTED)


COUNTER = (
    "counter_entry { counter_id: $port_counter index { index: %d } "
    "data { byte_count: 640 packet_count: 4 } }"
)


@requires("9.50", ARRAYS, "A direct counter is written and read.")
def _(t: Trial) -> None:
    t.do("INSERT", exact())
    text = (
        f"direct_counter_entry {{ {exact(action='')} data {{ byte_count: 99 packet_count: 3 }} }}"
    )
    t.do("MODIFY", text)
    (entity,) = t.read(f"direct_counter_entry {{ {exact(action='')} }}")
    t.holds(entity.direct_counter_entry.data.packet_count == 3, "another count")


@requires(
    "9.51",
    ARRAYS,
    "A counter is written and read, and an index beyond its end ends with OUT_OF_RANGE.",
)
def _(t: Trial) -> None:
    t.do("MODIFY", COUNTER % 2)
    (entity,) = t.read("counter_entry { counter_id: $port_counter index { index: 2 } }")
    t.holds(entity.counter_entry.data.packet_count == 4, "another count")
    t.refused("MODIFY", COUNTER % 16, OUT_OF_RANGE)


@requires("9.52", ARRAYS, "A direct meter is configured, and read.")
def _(t: Trial) -> None:
    t.do("INSERT", METERED)
    entry = METERED.partition("action {")[0] + "}"
    (entity,) = t.read(f"direct_meter_entry {{ {entry} }}")
    t.holds(entity.direct_meter_entry.config.pir == 200, "another rate")


METER = (
    "meter_entry { meter_id: $port_meter index { index: %d } "
    "config { cir: 1000 cburst: 100 pir: 2000 pburst: 200 } }"
)


@requires("9.53", ARRAYS, "A meter is configured, and read.")
def _(t: Trial) -> None:
    t.do("MODIFY", METER % 1)
    (entity,) = t.read("meter_entry { meter_id: $port_meter index { index: 1 } }")
    t.holds(entity.meter_entry.config.pir == 2000, "another rate")


@requires("9.54", ARRAYS, "A meter has counts by colour, or says UNIMPLEMENTED.", extra=True)
def _(t: Trial) -> None:
    text = (METER % 1).replace("config", "counter_data { green { packet_count: 1 } } config")
    codes = t.session.codes([t.program.update("MODIFY", text)])
    t.holds(codes[0] in (OK, UNIMPLEMENTED), f"{codes}")
    if codes == [OK]:
        (entity,) = t.read(
            "meter_entry { meter_id: $port_meter index { index: 1 } counter_data { } }"
        )
        t.holds(entity.meter_entry.counter_data.green.packet_count == 1, "the count is lost")


def multicast(number: int, *ports: int) -> str:
    replicas = " ".join(
        f"replicas {{ egress_port: {port} instance: {n} }}" for n, port in enumerate(ports, 1)
    )
    return (
        "packet_replication_engine_entry { "
        f"multicast_group_entry {{ multicast_group_id: {number} {replicas} }} }}"
    )


def clone(number: int, *ports: int) -> str:
    replicas = " ".join(f"replicas {{ egress_port: {port} instance: 1 }}" for port in ports)
    return (
        "packet_replication_engine_entry { "
        f"clone_session_entry {{ session_id: {number} {replicas} }} }}"
    )


def _cycle(t: Trial, first: str, second: str) -> None:
    t.do("INSERT", first)
    t.same(first)
    t.do("MODIFY", second)
    t.same(second)
    t.do("DELETE", second)
    t.refused("DELETE", second, NOT_FOUND)


@requires("9.60", REPLICATION, "Multicast groups are inserted, modified, deleted and read.")
def _(t: Trial) -> None:
    _cycle(t, multicast(21, 1, 2), multicast(21, 3))


@requires("9.61", REPLICATION, "Clone sessions are inserted, modified, deleted and read.")
def _(t: Trial) -> None:
    _cycle(t, clone(22, 1), clone(22, 3))


@requires("9.62", REPLICATION, "INSERT of a group or session that exists ends with ALREADY_EXISTS.")
def _(t: Trial) -> None:
    t.do("INSERT", multicast(23, 1), clone(23, 1))
    codes = t.session.codes(
        [t.program.update("INSERT", text(23, 1)) for text in (multicast, clone)]
    )
    t.session.codes([t.program.update("DELETE", text(23)) for text in (multicast, clone)])
    t.holds(codes == [EXISTS, EXISTS], f"{codes}")


@requires(
    "9.63", REPLICATION, "MODIFY of a group or session that does not exist ends with NOT_FOUND."
)
def _(t: Trial) -> None:
    t.refused("MODIFY", multicast(24, 1), NOT_FOUND)
    t.refused("MODIFY", clone(24, 1), NOT_FOUND)


@requires(
    "9.64", REPLICATION, "DELETE of a group or session that does not exist ends with NOT_FOUND."
)
def _(t: Trial) -> None:
    t.refused("DELETE", multicast(25), NOT_FOUND)
    t.refused("DELETE", clone(25), NOT_FOUND)


@requires("9.65", REPLICATION, "A wildcard reads all groups and all sessions.")
def _(t: Trial) -> None:
    t.do("INSERT", multicast(26, 1), multicast(27, 2), clone(26, 1))
    groups = t.read("packet_replication_engine_entry { multicast_group_entry { } }")
    sessions = t.read("packet_replication_engine_entry { clone_session_entry { } }")
    t.do("DELETE", multicast(26), multicast(27), clone(26))
    t.holds(len(groups) == 2, f"{len(groups)} groups")
    t.holds(len(sessions) == 1, f"{len(sessions)} sessions")


@requires("9.40r", OTHERS, "MODIFY writes a cell of a register.")
def _(t: Trial) -> None:
    t.do("MODIFY", REGISTER % (1, "\\x07"))
    t.same(REGISTER % (1, "\\x07"))


@requires("9.41r", OTHERS, "INSERT of a register is refused (INVALID_ARGUMENT).")
def _(t: Trial) -> None:
    t.refused("INSERT", REGISTER % (1, "\\x07"), INVALID)


@requires("9.42r", OTHERS, "DELETE of a register is refused (INVALID_ARGUMENT).")
def _(t: Trial) -> None:
    t.refused("DELETE", REGISTER % (1, "\\x07"), INVALID)


@requires(
    "9.43r",
    OTHERS,
    "An index beyond a register's end ends with OUT_OF_RANGE.",
)
def _(t: Trial) -> None:
    t.refused("MODIFY", REGISTER % (8, "\\x07"), OUT_OF_RANGE)
    t.refused("MODIFY", REGISTER % (-1, "\\x07"), INVALID)


@requires("9.44", OTHERS, "An unknown register is refused.")
def _(t: Trial) -> None:
    t.refused(
        "MODIFY", (REGISTER % (1, "\\x07")).replace("$last_type", "369098752"), NOT_FOUND, INVALID
    )


@requires("9.70", OTHERS, "The members of a value set are written and read.", extra=True)
def _(t: Trial) -> None:
    text = (
        "value_set_entry { value_set_id: $special_types "
        'members { match { field_id: 1 exact { value: "\\x08\\x06" } } } }'
    )
    t.do("MODIFY", text)
    t.same(text)


STATIONS = (
    "digest_entry { digest_id: $station_t config { max_list_size: 1 ack_timeout_ns: 2000000000 } }"
)


def _learning(t: Trial) -> Trial:
    """Return the router, which learns the sources of packets."""
    router = t.using("router")
    route(router)
    rule = (
        "table_entry { table_id: $rule_table priority: 1 action { action { action_id: $learn } } }"
    )
    router.do("INSERT", STATIONS, rule)
    return router


def _learnt(t: Trial) -> Any:
    t.packet(IPV4, b"\0", b"\x01", b"\0")
    answer = t.session.receive("digest")
    return answer.digest


def _triggers(t: Trial) -> bool:
    """Return whether a packet triggers a digest."""
    t.packet(IPV4, b"\0", b"\x01", b"\0")
    return not t.is_quiet_of("digest")


@requires("9.71", OTHERS, "Digests are configured.", extra=True)
def _(t: Trial) -> None:
    router = t.using("router")
    router.do("INSERT", STATIONS)
    router.same(STATIONS)
    router.do("DELETE", STATIONS)


@requires("14.5", "16", "A digest that a packet triggers comes on the stream.", extra=True)
def _(t: Trial) -> None:
    (station,) = _learnt(_learning(t)).data
    values = [member.bitstring for member in station.struct.members]
    t.holds(values == [b"\x0a", b"\x0a\0\0\x01"], f"{values}")


@requires(
    "9.72", OTHERS, "An entry of an extern that the server does not know is refused.", extra=True
)
def _(t: Trial) -> None:
    t.refused("INSERT", "extern_entry { extern_type_id: 129 extern_id: 1 }", UNIMPLEMENTED, INVALID)


@requires("14.6", "16", "A digest comes again once it is acknowledged, not before.", extra=True)
def _(t: Trial) -> None:
    router = _learning(t)
    digest = _learnt(router)
    router.holds(not _triggers(router), "it comes twice")
    ack = p4r.StreamMessageRequest()
    ack.digest_ack.digest_id = digest.digest_id
    ack.digest_ack.list_id = digest.list_id
    router.session.send(ack)
    # A packet may be faster than the acknowledgement that was sent before it.
    again = any(_triggers(router) for _ in range(ATTEMPTS))
    router.holds(again, "it does not come again")
