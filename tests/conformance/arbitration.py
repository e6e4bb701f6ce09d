"""Arbitration, roles and the stream (sections 5 and 16)."""

from __future__ import annotations

from typing import Any

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r, stratum

from tests.conformance.requirement import (
    DENIED,
    EXISTS,
    INVALID,
    NOT_FOUND,
    OK,
    PRECONDITION,
    UNIMPLEMENTED,
    Trial,
    requires,
)
from tests.conformance.session import Session, code_of

CLIENT = "5"
STREAM = "16"
FRAME = bytes(6) + b"\0\0\0\0\0\x07" + b"\x12\x34" + bytes(46)


@requires(
    "10.1",
    CLIENT,
    "A controller that opens a stream and claims an election id becomes the primary.",
)
def _(t: Trial) -> None:
    t.holds(t.session.is_primary, "not the primary")
    t.holds(t.session.first.arbitration.device_id == 1, "another device id")


@requires("10.2", CLIENT, "The controller with the highest election id is the primary.")
def _(t: Trial) -> None:
    higher = t.open(1)
    t.holds(higher.is_primary, "the higher one is no primary")
    lower = t.open(-1)
    t.holds(
        lower.first.arbitration.status.code == EXISTS, "the lower one is told no ALREADY_EXISTS"
    )
    t.holds(higher.codes([t.program.exact(1)]) == [OK], "its write is refused")


@requires(
    "10.3", CLIENT, "Writes and pipelines of another than the primary end with PERMISSION_DENIED."
)
def _(t: Trial) -> None:
    t.open(1)
    t.holds(t.session.codes([t.program.exact(1)]) == [DENIED], "a Write is not PERMISSION_DENIED")
    t.ends(lambda: t.session.pipeline("VERIFY_AND_COMMIT", t.program.config()), DENIED)


@requires(
    "10.4", CLIENT, "Every controller may read, the primary or not, with a stream or without."
)
def _(t: Trial) -> None:
    t.session.codes([t.program.exact(1)])
    query = t.program.entity("table_entry { table_id: $exact_table }")
    t.holds(len(t.open(-1).read(query)) == 1, "a backup does not see the entry")
    t.holds(len(t.bare().read(query)) == 1, "without a stream, the entry is not seen")


@requires("10.5", CLIENT, "A primary that a higher election id replaces is told so.")
def _(t: Trial) -> None:
    higher = t.open(1)
    notice = t.session.receive("arbitration").arbitration
    t.holds(notice.status.code == EXISTS, "the status is not ALREADY_EXISTS")
    t.holds(notice.election_id.low == higher.election_id, "the notice has another election id")


@requires(
    "10.6",
    CLIENT,
    "When the primary's stream ends, the others are told, and the next one can take over.",
)
def _(t: Trial) -> None:
    higher = t.open(1)
    t.session.receive()
    higher.close()
    for _ in range(2):
        notice = t.session.receive("arbitration").arbitration
        if notice.status.code in (OK, NOT_FOUND):
            break
    t.holds(notice.status.code in (OK, NOT_FOUND), "it is not told")
    # Since 1.1, a backup is not promoted: it learns that there is none, and claims again.
    if notice.status.code == NOT_FOUND:
        t.session.claim((t.session.election_id or 0) + 2)
        t.session.election_id = (t.session.election_id or 0) + 2
    t.holds(t.session.codes([t.program.exact(1)]) == [OK], "it cannot write")


@requires("10.7", CLIENT, "A controller without an election id is a backup at all times.")
def _(t: Trial) -> None:
    t.session.close()
    backup = Session(t.address, 0)
    t.opened.append(backup)
    t.holds(backup.first.arbitration.status.code in (NOT_FOUND, EXISTS), "it is the primary")
    t.holds(backup.codes([t.program.exact(1)]) == [DENIED], "it may write")


@requires("10.8", CLIENT, "Each role has a primary of its own.")
def _(t: Trial) -> None:
    first, second = t.open(1, "a"), t.open(1, "b")
    t.holds(first.is_primary and second.is_primary, "one of two roles has no primary")
    t.holds(not t.open(0, "a").is_primary, "a role has two primaries")


def _scope(t: Trial, table: str) -> Any:
    return stratum.P4RoleConfig(exclusive_p4_ids=[t.program.ids[table]])


@requires("10.9", CLIENT, "A role may write the entities of its config only.")
def _(t: Trial) -> None:
    limited = t.open(1, "a", _scope(t, "lpm_table"))
    t.holds(not isinstance(limited.first, grpc.RpcError), "the server knows no role configs")
    t.holds(limited.codes([t.program.exact(1)]) == [DENIED], "it may write another table")
    entry = (
        "table_entry { table_id: $lpm_table "
        'match { field_id: 1 lpm { value: "\\x01" prefix_len: 48 } } '
        "action { action { action_id: $NoAction } } }"
    )
    t.holds(limited.codes([t.program.update("INSERT", entry)]) == [OK], "it may not write its own")


@requires("10.10", CLIENT, "A role reads the entities of its config only, by id and by wildcard.")
def _(t: Trial) -> None:
    t.session.codes([t.program.exact(1)])
    limited = t.open(1, "a", _scope(t, "lpm_table"))
    t.holds(not isinstance(limited.first, grpc.RpcError), "the server knows no role configs")
    for query in ("table_entry { table_id: $exact_table }", "table_entry { }"):
        entities = limited.read(t.program.entity(query))
        seen = {entity.table_entry.table_id for entity in entities}
        t.holds(seen <= {t.program.ids["lpm_table"]}, "it sees another table")


@requires("10.11", CLIENT, "A role config that the server does not know is refused.", extra=True)
def _(t: Trial) -> None:
    stranger = t.open(1, "c", p4r.TableEntry(table_id=1))
    first = stranger.first
    is_ended = isinstance(first, grpc.RpcError)
    t.holds(is_ended and first.code().value[0] in (INVALID, UNIMPLEMENTED), "it is accepted")


@requires("10.12", CLIENT, "A primary whose stream has ended may write no more.")
def _(t: Trial) -> None:
    other = t.open(1)
    gone = other.election_id
    other.close()
    t.session.receive()
    t.session.receive()
    codes = t.bare()
    codes.election_id = gone
    t.holds(codes.codes([t.program.exact(1)]) == [DENIED], "it still may")


@requires(
    "10.13",
    CLIENT,
    "A controller that claims another role leaves the one before without a primary, or is refused.",
)
def _(t: Trial) -> None:
    stream = t.open(1, "d")
    changed = stream.claim((stream.election_id or 0), "e")
    if isinstance(changed, grpc.RpcError):
        t.holds(changed.code().value[0] == PRECONDITION, "the refusal is not FAILED_PRECONDITION")
        return
    t.holds(t.open(0, "d").is_primary, "the role still has a primary")


@requires(
    "14.1",
    STREAM,
    "A packet-out enters the switch, and a packet for the CPU port comes as a packet-in.",
)
def _(t: Trial) -> None:
    t.packet(FRAME, b"\x01\xfe", b"\0")
    packet = t.packet_in()
    t.holds(packet.payload == FRAME, "the payload differs")
    metadata = {part.metadata_id: part.value for part in packet.metadata}
    t.holds(metadata == {1: b"\x01\xfe", 2: b"\x03"}, f"metadata {metadata}")


@requires("14.2", STREAM, "A packet-out that asks for it passes the tables, whose entries decide.")
def _(t: Trial) -> None:
    routed = t.using("router")
    route(routed)
    routed.packet(IPV4, b"\0", b"\x01", b"\0")
    packet = routed.packet_in()
    t.holds(
        packet.payload[:12] == b"\0\0\0\0\0\x0b\0\0\0\0\0\x0a", "the addresses are not the entry's"
    )
    t.holds(packet.payload[22] == 63, "the TTL is not one less")


IPV4 = (
    b"\0\0\0\0\0\x01\0\0\0\0\0\x02\x08\0"
    + bytes([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 2])
    + bytes(26)
)


def route(t: Trial, port: str = "\\\\x01\\\\xfe") -> None:
    """Write what leads 10.0.1.0/24 to the CPU port."""
    port = port.replace("\\\\", "\\")
    t.do(
        "INSERT",
        (
            "table_entry { table_id: $admission_table priority: 1 "
            'match { field_id: 1 ternary { value: "\\x01" '
            'mask: "\\xff\\xff\\xff\\xff\\xff\\xff" } } action { action { action_id: $admit } } }'
        ),
        (
            "table_entry { table_id: $next_hop_table "
            'match { field_id: 1 exact { value: "\\x05" } } '
            f'action {{ action {{ action_id: $send params {{ param_id: 1 value: "{port}" }} '
            'params { param_id: 2 value: "\\x0a" } '
            'params { param_id: 3 value: "\\x0b" } } } }'
        ),
        (
            "table_entry { table_id: $route_table "
            'match { field_id: 1 exact { value: "\\x00" } } '
            'match { field_id: 2 lpm { value: "\\x0a\\x00\\x01\\x00" prefix_len: 24 } } '
            "action { action { action_id: $set_next_hop "
            'params { param_id: 1 value: "\\x05" } } } }'
        ),
    )


@requires("14.3", STREAM, "Packets keep their order.")
def _(t: Trial) -> None:
    frames = [FRAME[:14] + bytes([number]) * 46 for number in range(20)]
    for frame in frames:
        t.packet(frame, b"\x01\xfe", b"\0")
    t.holds([t.packet_in().payload for _ in frames] == frames, "another order")


@requires("14.4", STREAM, "A message on the stream that is wrong is answered by a StreamError.")
def _(t: Trial) -> None:
    t.packet(FRAME, b"\x01\xfe")
    answer = t.session.receive("error")
    t.holds(answer.error.canonical_code == INVALID, f"status {answer.error.canonical_code}")


@requires(
    "14.8",
    STREAM,
    "A message of a kind that the server does not know is answered by a StreamError.",
)
def _(t: Trial) -> None:
    message = p4r.StreamMessageRequest()
    message.other.Pack(p4r.TableEntry())
    t.session.send(message)
    answer = t.session.receive("error")
    t.holds(answer.error.canonical_code in (INVALID, UNIMPLEMENTED), "another status")
    t.holds(code_of(lambda: t.session.config("COOKIE_ONLY")) == OK, "the server does not go on")
