"""Workers with threads and sockets of their own, on a switch: the model in a thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from echelon.model.documents import DocumentError
from echelon.model.errors import RunError
from echelon_aggregation.frames import Endpoint, Frames, UnixWire, open_wire, read
from echelon_aggregation.membership import VARIABLE, Membership, read_membership
from echelon_aggregation.station import Station
from echelon_aggregation.wire import PORT, Kind, Packet
from echelon_aggregation.worker import Collective, all_reduce
from plugins.aggregation.tests.model_switch import ModelSwitch, membership, sums
from tests.faults import coded
from tests.needs import needs


@contextmanager
def stations(of: Membership) -> Iterator[list[Station]]:
    with ExitStack() as closing:
        found = [Station(of, rank) for rank in range(len(of.workers))]
        for station in found:
            closing.callback(station.close)
        yield found


def wait_for(given: list[tuple[Station, Collective]]) -> list[Exception | None]:
    """Return the errors of collectives, once all have ended."""
    ended: list[Exception | None] = []
    all_ended = threading.Semaphore(0)

    def on_done(error: Exception | None) -> None:
        ended.append(error)
        all_ended.release()

    for station, collective in given:
        station.submit(collective, on_done)
    for _ in given:
        assert all_ended.acquire(timeout=60)
    return ended


def arrays(workers: int, size: int, seed: int) -> list[NDArray[np.int32]]:
    rng = Random(seed)
    return [
        np.array([rng.randint(-(2**31), 2**31 - 1) for _ in range(size)], np.int32)
        for _ in range(workers)
    ]


@pytest.mark.parametrize("loses", [0.0, 0.05])
def test_sums_are_exact_over_sockets(tmp_path: Path, loses: float) -> None:
    of = membership(tmp_path, 3, window=8)
    switch = ModelSwitch(of, loses)
    try:
        with stations(of) as found:
            for seed in range(3):
                given = arrays(3, 1000, seed)
                collectives = [all_reduce(array) for array in given]
                assert wait_for(list(zip(found, collectives, strict=True))) == [None] * 3
                expected = sums([array.tolist() for array in given])
                assert [collective.result.tolist() for collective in collectives] == [expected] * 3
            assert (sum(station.worker.tally.resent for station in found) > 0) >= bool(loses)
    finally:
        switch.close()


def test_a_group_works_without_the_switch_s_memory(tmp_path: Path) -> None:
    """All packets that a switch takes are those that it may not keep; the fallback adds up."""
    of = membership(tmp_path, 3, window=4, spread=False)
    switch = ModelSwitch(of)
    switch.switch.trees[of.tree, of.session] = None
    try:
        with stations(of) as found:
            given = arrays(3, 300, 7)
            collectives = [all_reduce(array) for array in given]
            assert wait_for(list(zip(found, collectives, strict=True))) == [None] * 3
            expected = sums([array.tolist() for array in given])
            assert [collective.result.tolist() for collective in collectives] == [expected] * 3
            assert found[0].fallback is not None
            assert found[0].fallback.tally.results == 10
    finally:
        switch.close()


def test_a_station_that_failed_ends_what_it_was_given_and_what_comes(tmp_path: Path) -> None:
    of = membership(tmp_path, 2)
    with stations(of) as (first, second):
        cause = RunError("the other worker is gone")
        threading.Timer(0.05, first.fail, [cause]).start()
        assert wait_for([(first, all_reduce(np.ones(4, np.int32)))]) == [cause]
        assert wait_for([(first, all_reduce(np.ones(4, np.int32)))]) == [cause]
        assert not first.busy
        assert not second.busy


def test_a_wire_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing" / "port")
    with pytest.raises(RunError, check=coded("run-failed", missing)):
        UnixWire(missing)
    of = membership(tmp_path, 2)
    with pytest.raises(RunError, check=coded("run-failed", "no-such-port")):
        open_wire("no-such-port", [of.endpoint(0)])


def test_a_group_is_read_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(RunError, check=coded("run-failed", VARIABLE)):
        read_membership()
    file = tmp_path / "group.yaml"
    text = """\
tree: 1
session: 2
window: 16
memory: first
workers:
- {wire: eth0, ip: 10.0.0.1, mac: "02:00:00:00:00:01", port: 5000}
- {wire: "unix:/run/port2", ip: 10.0.0.2, mac: "02:00:00:00:00:02", port: 5001}
"""
    file.write_text(text)
    monkeypatch.setenv(VARIABLE, str(file))
    group = read_membership().group
    assert (group.workers, group.tree, group.session, group.window, group.shared_memory) == (
        2,
        1,
        2,
        16,
        True,
    )
    for wrong, path in (
        (text.replace("16", "17"), "window"),
        (text.replace("port: 5000", "port: 61201"), "workers[0].port"),
        (text.replace("port: 5000", "port: 61200"), "workers[0].port"),
        (text + "fallback: 2\n", "fallback"),
        (text.replace("tree", "trees"), "trees"),
        (text.replace("02:00:00:00:00:01", "none"), "workers[0].mac"),
    ):
        file.write_text(wrong)
        with pytest.raises(DocumentError) as caught:
            read_membership()
        assert caught.value.path == path


def test_what_no_switch_has_checked_is_no_packet_of_the_protocol() -> None:
    fallback, worker, other = (
        Endpoint("10.0.0.1", "02:00:00:00:00:01", port) for port in (PORT, 5000, 5001)
    )
    packet = Packet(Kind.RESULT, 1, 1, 0, 3, values=bytes(8))
    good = Frames(fallback).encode(worker, packet)
    arrived = read(good)
    assert arrived is not None
    assert arrived.packet == packet
    assert read(Frames(other).encode(fallback, packet)) is not None
    assert read(Frames(other).encode(worker, packet)) is None, (
        "a switch takes it for an ordinary datagram"
    )
    for first in (0x20, 0x01):
        assert read(good[:20] + bytes([first]) + good[21:]) is None, (
            "a part of a datagram, whose ports may be values"
        )


@needs("veth interfaces")
def test_processes_share_an_interface_by_port_and_the_kernel_answers_nothing() -> None:
    command = ["unshare", "--net", sys.executable, "-m", "plugins.aggregation.tests.one_interface"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
