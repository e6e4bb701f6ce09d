"""kill -9 of the controller at random moments, while jobs come and go and packets pass the switches.

What was acknowledged is there after every restart; what was not may be or not, but wholly; switches hold exactly what
is there; forwarding never stops.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from reference.frames import ipv4, udp

from echelon.client import Client, ClientError
from tests.echelon.service.conftest import Build
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import TWO_BY_TWO, Daemon, Host, Lab, ring, settle

LONGEST_LIFE_S = 1.0
"""Longest life of a controller after its first acknowledgement; it starts in about as long."""
KILLED_EARLY = 0.25
"""Part of the kills that come at any moment of the start."""
PACKET_INTERVAL_S = 0.004
HOSTS = ["h1", "h2", "h3", "h4"]
UNKNOWN = object()
"""The state of a job whose change was not answered."""


@pytest.mark.parametrize(
    ("kills", "seed"),
    # The 50 of `long` in two halves, for two processors.
    [(2, 1), pytest.param(25, 2, marks=pytest.mark.long), pytest.param(25, 3, marks=pytest.mark.long)],
)
def test_nothing_acknowledged_is_lost(build: Build, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    lab = build(TWO_BY_TWO)
    operator = Operator(rng)
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        settle(client)
    lives = 0
    with passing_packets(lab) as stream:
        for kill in range(kills):
            if rng.random() < KILLED_EARLY:
                daemon.kill()
                daemon = lab.daemon()
                time.sleep(rng.uniform(0, 1.3))
            else:
                # Changes go on in this thread while another kills the controller.
                killer = threading.Timer(rng.uniform(0, LONGEST_LIFE_S), daemon.kill)
                operator.work_until_it_dies(daemon, killer)
                lives += 1
            daemon.kill()
            daemon = lab.daemon()
            with lab.client(daemon) as client:
                settle(client)
                operator.check(client, kill)
                assert_exactly(lab, client)
                for switch in lab.switches:
                    found = client.difference(switch)
                    assert found.reachable
                    assert (found.inserts, found.modifies, found.deletes, found.foreign) == ((), (), (), 0)
    print(
        f"{kills} kills, {operator.acknowledged} changes acknowledged, {operator.unanswered} unanswered; "
        f"{stream.sent} packets sent, {stream.received} received"
    )
    assert operator.acknowledged >= lives > 0
    assert stream.received == stream.sent > 100 * kills


class Operator:
    """An operator who registers, changes and removes jobs, and remembers the answers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.expected: dict[str, Any] = {}
        """The spec of each job, None (removed), or `UNKNOWN` with its possible states in `_candidates`."""
        self._candidates: dict[str, list[Any]] = {}
        self.acknowledged = 0
        self.unanswered = 0

    def work_until_it_dies(self, daemon: Daemon, killer: threading.Timer) -> None:
        """Change jobs until the controller is gone. The killer's time runs from the first acknowledgement."""
        before = self.acknowledged
        with Client(daemon.wait_listening(), timeout_s=10) as client:
            while daemon.alive:
                name = f"j{self._rng.randrange(8)}"
                known = self.expected.get(name)
                wanted: Any = None
                if known is None or self._rng.random() < 0.5:
                    workers = self._rng.sample(HOSTS, self._rng.randint(2, 4))
                    wanted = ring(name, workers, gradient=f"{self._rng.randint(1, 9)} MB")
                try:
                    if wanted is None:
                        client.remove_job(name)
                    else:
                        client.register_job(wanted, replace=True)
                except ClientError as error:
                    if error.status is not None:
                        raise
                    self.expected[name] = UNKNOWN
                    self._candidates[name] = [known, wanted]
                    self.unanswered += 1
                    break
                self.expected[name] = wanted
                self.acknowledged += 1
                if self.acknowledged == before + 1:
                    killer.start()
        killer.join()

    def check(self, client: Client, kill: int) -> None:
        """Check that every acknowledged change is there, and that an unanswered one was made or was not."""
        there = {job.name: client.job(job.name).spec for job in client.jobs()}
        for name, known in self.expected.items():
            if known is UNKNOWN:
                assert there.get(name) in self._candidates[name], (kill, name)
                self.expected[name] = there.get(name)
        assert there == {name: spec for name, spec in self.expected.items() if spec is not None}, kill


class Stream:
    """Numbered packets of no job from one host to another, and how many came."""

    def __init__(self, source: Host, sink: Host) -> None:
        self._source, self._sink = source, sink
        self._ended = threading.Event()
        self.sent = 0
        self.received = 0
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]

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
