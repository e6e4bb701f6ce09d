"""Attacks by single messages: Reads of many queries, long Reads, and large messages."""

from __future__ import annotations

from functools import partial
from itertools import cycle

from finsy.proto import p4r

from tests.soak.attacks.target import Peer, Target, Telling

# Fields of one byte's tag, and an empty message as their value.
_QUERY = b"\x12\x00"
_UPDATE = b"\x22\x00"
_WILDCARD_ENTRIES = b"\x12\x02\x12\x00"
_ENTITIES = (
    "register_entry",
    "counter_entry",
    "direct_counter_entry",
    "table_entry",
    "meter_entry",
    "direct_meter_entry",
)


def read_queries(target: Target, tell: Telling, queries: int) -> None:
    """Read all entries of all tables so many times in one call, again and again."""
    request = p4r.ReadRequest(device_id=target.device_id).SerializeToString()
    request += _WILDCARD_ENTRIES * queries
    with Peer(target) as peer:
        while True:
            tell.call(f"{queries:,} queries", partial(_read, peer, request))


def read_everything(target: Target, tell: Telling) -> None:
    """Read all registers, counters, meters and entries, one kind after the other, again and again."""
    with Peer(target) as peer:
        for kind in cycle(_ENTITIES):
            request = p4r.ReadRequest(device_id=target.device_id)
            getattr(request.entities.add(), kind).SetInParent()
            tell.call(kind, partial(_read, peer, request.SerializeToString()))


def _read(peer: Peer, request: bytes) -> str:
    answered = 0
    for answer in peer.read(request):
        answered += len(answer)
    return f"{answered:,} bytes"


def send_large(target: Target, tell: Telling, megabytes: int) -> None:
    """Send large messages to each method: noise, and such as are millions of empty parts."""
    size = megabytes << 20
    device = p4r.WriteRequest(device_id=target.device_id).SerializeToString()
    kinds = (
        ("Capabilities", "noise", bytes(size)),
        ("Write", "noise", bytes(size)),
        ("Write", "empty updates", device + _UPDATE * (size // 2)),
        ("Read", "empty queries", device + _QUERY * (size // 2)),
    )
    with Peer(target) as peer:
        for method, content, request in cycle(kinds):
            send = partial(peer.call, method, request)
            if method == "Read":
                send = partial(_read, peer, request)
            tell.call(f"{method} of {megabytes} MB, {content}", send)
