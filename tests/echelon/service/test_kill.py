"""kill -9 of the controller at random moments, while jobs come and go and packets pass the
switches: nothing acknowledged is lost (tests/killing.py), and forwarding never stops.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import PAIR, RULE, TWO_BY_TWO, Host, Lab, settle
from tests.killing import Operator, kill_often
from tests.needs import needs
from tests.reference.frames import ipv4, udp

PACKET_INTERVAL_S = 0.004


@pytest.mark.parametrize(
    ("fabric", "kills", "seed", "parameters"),
    # The 50 of `long` in two halves, for two processors, and while plans are searched for.
    [
        (PAIR, 1, 5, RULE),
        pytest.param(TWO_BY_TWO, 25, 2, {}, marks=pytest.mark.long),
        pytest.param(TWO_BY_TWO, 25, 3, {}, marks=[pytest.mark.long, needs("all examples")]),
    ],
)
def test_nothing_acknowledged_is_lost(
    build: Build, fabric: Mapping[str, Any], kills: int, seed: int, parameters: Mapping[str, Any]
) -> None:
    rng = random.Random(seed)
    lab = build(fabric, policy={"name": "echelon", "parameters": parameters})
    operator = Operator(rng)
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        settle(client)
    with passing_packets(lab) as stream:
        lives = kill_often(lab, daemon, lab.daemon, operator, kills, rng)
    print(
        f"{kills} kills, {operator.acknowledged} changes acknowledged, {operator.unanswered}"
        f" unanswered; {stream.sent} packets sent, {stream.received} received"
    )
    assert operator.acknowledged >= lives > 0
    assert stream.received == stream.sent > 100 * kills


class Stream:
    """Numbered packets of no job from one host to another, and how many came."""

    def __init__(self, source: Host, sink: Host) -> None:
        self._source, self._sink = source, sink
        self._ended = threading.Event()
        self.sent = 0
        self.received = 0
        self._threads = [
            threading.Thread(target=self._send),
            threading.Thread(target=self._receive),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._ended.is_set():
            self._source.send(_frame(self.sent))
            self.sent += 1
            time.sleep(PACKET_INTERVAL_S)
        self._source.send(_frame(LAST))

    def _receive(self) -> None:
        while (number := _number(self._sink.receive())) != LAST:
            assert number == self.received
            self.received += 1


LAST = 0xFFFFFFFF


def _frame(number: int) -> bytes:
    payload = struct.pack("!I", number) + bytes(60)
    return ipv4(0x0A000001, 0x0A000004, 17, udp(5000, 5001, payload))


def _number(frame: bytes) -> int:
    (number,) = struct.unpack_from("!I", frame, 14 + 20 + 8)
    return int(number)


@contextmanager
def passing_packets(lab: Lab) -> Iterator[Stream]:
    with lab.host("h1") as source, lab.host("h4") as sink:
        stream = Stream(source, sink)
        stream.start()
        try:
            yield stream
        finally:
            stream.stop()
