"""Builders of table entries of one action, and of the values in them."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from echelon.lowering.intent import ActionCall, Match, TableEntry

_ADDRESSES = 1 << 16
"""Number of hosts whose addresses are cached: every switch has entries for every host."""


def entry(table: str, match: dict[str, Match], action: str, priority: int = 0, **arguments: int) -> TableEntry:
    return TableEntry(table, tuple(match.items()), (ActionCall(action, tuple(arguments.items())),), priority)


@lru_cache(maxsize=_ADDRESSES)
def ipv4(text: str) -> int:
    return int(ipaddress.IPv4Address(text))


@lru_cache(maxsize=_ADDRESSES)
def mac(text: str) -> int:
    return int(text.replace(":", ""), 16)
