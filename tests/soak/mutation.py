"""New packets from packets that are known to lead somewhere."""

from __future__ import annotations

import random
import struct

KEPT = 400
"""Packets that a corpus keeps at most."""
_LONGEST = 4096


def with_ipv4_checksum(data: bytes) -> bytes:
    """Return the frame with a right header checksum if it is IPv4 behind Ethernet, so that it
    passes verification.
    """
    if len(data) < 34 or data[12:14] != b"\x08\x00":
        return data
    end = 14 + 4 * (data[14] & 0xF)
    if not 34 <= end <= len(data):
        return data
    head = data[14:24] + bytes(2) + data[26:end]
    total: int = sum(struct.unpack(f"!{len(head) // 2}H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:24] + (total ^ 0xFFFF).to_bytes(2, "big") + data[26:]


class Corpus:
    """Packets that reached something new; `mutated` makes another of one or two of them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._packets: list[bytes] = []

    def __len__(self) -> int:
        return len(self._packets)

    def add(self, data: bytes) -> None:
        """Keep a packet, in the place of another one if there are `KEPT`."""
        if len(self._packets) < KEPT:
            self._packets.append(data)
        else:
            self._packets[self._rng.randrange(KEPT)] = data

    def mutated(self) -> bytes:
        """Return a packet of the corpus after one to four changes.

        Raises IndexError if there is none.
        """
        rng = self._rng
        data = bytearray(rng.choice(self._packets))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            data = self._changed(data)
        return bytes(data[:_LONGEST])

    def _changed(self, data: bytearray) -> bytearray:
        rng = self._rng
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            return data[:place]
        if kind == 1:
            return data + rng.randbytes(rng.choice((1, 2, 8, 40, 1500)))
        if kind == 2:
            return data[:place] + bytearray(rng.choice(self._packets)[place:])
        if kind == 3:
            end = min(len(data), place + rng.randrange(1, 9))
            return data[:end] + data[place:end] + data[end:]
        if kind == 4:
            return data[:place] + data[place + rng.randrange(1, 9) :]
        if not data:
            return data
        place = rng.randrange(len(data))
        if kind == 5:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 6:
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        else:
            data[place] = (data[place] + rng.choice((-1, 1))) & 0xFF
        return data
