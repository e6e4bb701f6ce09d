"""A router like SAI P4 end to end: entries of several tables, and what becomes of packets."""

from __future__ import annotations

from tests.conformance.arbitration import IPV4, route
from tests.conformance.requirement import Trial, requires

SAI = "SAI P4"
TO_CPU = "\\x01\\xfe"
DESTINATION = slice(0, 6)


def next_hop(number: int, mac: int, port: str = TO_CPU) -> str:
    return (
        "table_entry { table_id: $next_hop_table "
        f'match {{ field_id: 1 exact {{ value: "\\x{number:02x}" }} }} '
        f'action {{ action {{ action_id: $send params {{ param_id: 1 value: "{port}" }} '
        'params { param_id: 2 value: "\\x0a" } '
        f'params {{ param_id: 3 value: "\\x{mac:02x}" }} }} }} }}'
    )


def to_next_hop(number: int) -> str:
    return (
        "action { action { action_id: $set_next_hop "
        f'params {{ param_id: 1 value: "\\x{number:02x}" }} }} }}'
    )


def routed(prefix: str, bits: int, action: str, vrf: int = 0) -> str:
    return (
        "table_entry { table_id: $route_table "
        f'match {{ field_id: 1 exact {{ value: "\\x{vrf:02x}" }} }} '
        f'match {{ field_id: 2 lpm {{ value: "{prefix}" prefix_len: {bits} }} }} {action} }}'
    )


def rule(match: str, action: str, priority: int = 10) -> str:
    return (
        f"table_entry {{ table_id: $rule_table priority: {priority} {match} "
        f"action {{ action {{ action_id: ${action} }} }} }}"
    )


UDP = 'match { field_id: 1 ternary { value: "\\x11" mask: "\\xff" } }'
YOUNG = 'match { field_id: 3 range { low: "\\x30" high: "\\x50" } }'
DROP = "action { action { action_id: $drop } }"
SUBNET = "\\x0a\\x00\\x01\\x00"


def _router(t: Trial) -> Trial:
    router = t.using("router")
    route(router)
    return router


def _send(t: Trial, packet: bytes = IPV4) -> None:
    t.packet(packet, b"\0", b"\x01", b"\0")


def _comes(t: Trial, mac: int, packet: bytes = IPV4) -> None:
    """Send a packet that has to come to the CPU port by the next hop with an address."""
    _send(t, packet)
    payload = t.packet_in().payload
    t.holds(
        payload[DESTINATION] == mac.to_bytes(6, "big"), f"it went to {payload[DESTINATION].hex()}"
    )


def _is_lost(t: Trial, packet: bytes = IPV4) -> None:
    _send(t, packet)
    t.holds(t.is_quiet_of("packet"), "it is forwarded")


def _flow(number: int) -> bytes:
    """Return the packet from another source."""
    return IPV4[:26] + bytes([10, 9, number // 256, number % 256]) + IPV4[30:]


@requires("S.1", SAI, "Packets are routed only to addresses that the admission table has.")
def _(t: Trial) -> None:
    router = _router(t)
    _comes(router, 11)
    _is_lost(router, b"\0\0\0\0\0\x77" + IPV4[6:])


@requires("S.2", SAI, "The longest prefix decides.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("INSERT", next_hop(6, 22), routed("\\x0a\\x00\\x01\\x02", 32, to_next_hop(6)))
    _comes(router, 22)
    router.do("DELETE", routed("\\x0a\\x00\\x01\\x02", 32, ""))
    _comes(router, 11)


@requires("S.3", SAI, "A virtual router has routes of its own.")
def _(t: Trial) -> None:
    router = _router(t)
    vrf = (
        "table_entry { table_id: $vrf_table priority: 5 "
        'match { field_id: 1 ternary { value: "\\x0a\\x00\\x00\\x00" '
        'mask: "\\xff\\x00\\x00\\x00" } } '
        'action { action { action_id: $set_vrf params { param_id: 1 value: "\\x07" } } } }'
    )
    router.do("INSERT", vrf)
    _is_lost(router)
    router.do("INSERT", next_hop(6, 22), routed(SUBNET, 24, to_next_hop(6), 7))
    _comes(router, 22)


@requires("S.4", SAI, "A route may drop.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("MODIFY", routed(SUBNET, 24, DROP))
    _is_lost(router)


@requires(
    "S.5", SAI, "A group of one shot spreads flows over its next hops, each flow to the same."
)
def _(t: Trial) -> None:
    router = _router(t)
    actions = " ".join(
        f"action_profile_actions {{ {to_next_hop(number)[9:-2]} weight: 1 }}" for number in (6, 7)
    )
    group = (
        "table_entry { table_id: $group_table "
        'match { field_id: 1 exact { value: "\\x05" } } '
        f"action {{ action_profile_action_set {{ {actions} }} }} }}"
    )
    router.do("INSERT", next_hop(6, 22), next_hop(7, 33), group)
    _spread(router)


@requires("S.6", SAI, "A group of members does so, too.")
def _(t: Trial) -> None:
    router = _router(t)
    members = [
        (
            f"action_profile_member {{ action_profile_id: $groups member_id: {number} "
            f"{to_next_hop(number)[9:-2]} }}"
        )
        for number in (6, 7)
    ]
    group = (
        "action_profile_group { action_profile_id: $groups group_id: 1 "
        "members { member_id: 6 weight: 1 } members { member_id: 7 weight: 1 } }"
    )
    entry = (
        "table_entry { table_id: $group_table "
        'match { field_id: 1 exact { value: "\\x05" } } '
        "action { action_profile_group_id: 1 } }"
    )
    router.do("INSERT", next_hop(6, 22), next_hop(7, 33), *members, group, entry)
    _spread(router)


def _spread(t: Trial) -> None:
    chosen: list[bytes] = []
    for number in range(24):
        for _ in range(2):
            _send(t, _flow(number))
        first, second = (t.packet_in().payload[DESTINATION] for _ in range(2))
        t.holds(first == second, "a flow takes two next hops")
        chosen.append(first)
    hops = {bytes(5) + b"\x16", bytes(5) + b"\x21"}
    t.holds(set(chosen) == hops, f"{len(set(chosen))} next hops")


@requires("S.7", SAI, "A rule overrides the route, and the one of the highest priority decides.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("INSERT", rule(UDP, "drop"))
    _is_lost(router)
    router.do(
        "INSERT",
        rule(
            UDP
            + (
                'match { field_id: 2 ternary { value: "\\x0a\\x00\\x01\\x02" '
                'mask: "\\xff\\xff\\xff\\xff" } }'
            ),
            "NoAction",
            20,
        ),
    )
    _comes(router, 11)


@requires("S.8", SAI, "A rule matches a range.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("INSERT", rule(YOUNG, "drop"))
    _is_lost(router)
    _comes(router, 11, IPV4[:22] + b"\x20" + IPV4[23:])


@requires("S.9", SAI, "A rule sends a packet to the controller instead.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("MODIFY", next_hop(5, 11, "\\x07"))
    _is_lost(router)
    router.do("INSERT", rule(UDP, "trap"))
    _comes(router, 11)


@requires("S.10", SAI, "A rule sends a copy to a clone session, as the packet came in.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("MODIFY", next_hop(5, 11, "\\x07"))
    session = (
        "packet_replication_engine_entry { "
        "clone_session_entry { session_id: 9 replicas { egress_port: 510 instance: 1 } } }"
    )
    router.do("INSERT", session, rule(UDP, "copy"))
    _send(router)
    payload = router.packet_in().payload
    router.do("DELETE", session)
    router.holds(payload[-len(IPV4) :][DESTINATION] == IPV4[DESTINATION], "another packet")


@requires("S.11", SAI, "Ports that are strings of the controller work end to end.")
def _(t: Trial) -> None:
    router = t.using_strings()
    route(router, "510")
    router.packet(IPV4, b"0", b"\x01", b"\0")
    packet = router.packet_in()
    t.holds(packet.payload[DESTINATION] == bytes(5) + b"\x0b", "another next hop")
    t.holds(packet.metadata[0].value == b"510", "its port is no string")


@requires("S.12", SAI, "All entries of the router are read back, and removed.")
def _(t: Trial) -> None:
    router = _router(t)
    router.do("INSERT", rule(UDP, "drop"), rule(YOUNG, "trap", 20))
    entries = router.read("table_entry { }")
    t.holds(len(entries) == 5, f"{len(entries)} entries")
    codes = router.session.codes([router.program.deletion(entity) for entity in entries])
    t.holds(not any(codes), f"{codes}")
    t.holds(router.read("table_entry { }") == [], "some are left")
