"""The reporter: the service has the latest connections in the end, whatever fails on the way."""

from __future__ import annotations

import random
import threading
import time
from fractions import Fraction

import pytest

from echelon.controller.client import ClientError
from echelon.controller.resources.jobs import ConnectionsResource, HostMeasurement
from echelon.controller.service.api.jobs import host_measurement
from echelon.switches.telemetry.sizes import HostIteration
from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.connections import Totals
from echelon_torch.agent.iterations import MeasuredIteration, SentIteration
from echelon_torch.agent.reporting import Reporter

PATIENCE_S = 30.0
ADDRESSES = {"h1": "10.0.0.1", "h2": "10.0.0.2"}


def to_h2(port: int) -> TcpConnection:
    return TcpConnection("10.0.0.1", port, "10.0.0.2", 29500)


class FlakyService:
    """A service that fails some calls, and notes what it was told last."""

    def __init__(self, share: float = 0.0, seed: int = 0) -> None:
        self.told: list[TcpConnection] | None = None
        self.measured: list[HostIteration] = []
        self.refuses_iterations = False
        self.calls = 0
        self._share = share
        self._random = random.Random(seed)
        self.news = threading.Condition()

    def _maybe_fail(self) -> None:
        self.calls += 1
        if self._random.random() < self._share:
            raise ClientError(
                self._random.choice((None, 404, 409, 422, 500, 503)), "the service has a bad day"
            )

    def connections(self, job: str) -> ConnectionsResource:
        self._maybe_fail()
        return ConnectionsResource(
            job=job, by="agent", idle_gap_s=None, addresses=ADDRESSES, connections={}
        )

    def report_connections(
        self, job: str, host: str, connections: list[TcpConnection]
    ) -> ConnectionsResource:
        self._maybe_fail()
        with self.news:
            self.told = connections
            self.news.notify_all()
        return ConnectionsResource(
            job=job, by="agent", idle_gap_s=None, addresses=ADDRESSES, connections={}
        )

    def report_iterations(
        self, job: str, host: str, iterations: list[HostIteration]
    ) -> HostMeasurement:
        self._maybe_fail()
        if self.refuses_iterations:
            raise ClientError(422, "the link does not carry that")
        with self.news:
            self.measured = iterations
            self.news.notify_all()
        return host_measurement(host, ())

    def wait_told(self, *connections: TcpConnection) -> None:
        with self.news:
            assert self.news.wait_for(lambda: self.told == sorted(connections), PATIENCE_S), (
                self.told
            )


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_service_has_the_latest_state_in_the_end(share: float) -> None:
    service = FlakyService(share)
    lines: list[str] = []
    reporter = Reporter(service, "a", "h1", lines.append)
    reporter.start()
    for last in range(1, 30):
        reporter.update(frozenset(to_h2(port) for port in range(1, last)))
    service.wait_told(*(to_h2(port) for port in range(1, 29)))
    reporter.update(frozenset({to_h2(1)}))
    service.wait_told(to_h2(1))
    assert all(line.isprintable() for line in lines)
    reporter.stop(0.0)


def test_what_is_not_between_hosts_of_the_job_is_not_reported() -> None:
    service = FlakyService()
    reporter = Reporter(service, "a", "h1", lambda _: None)
    reporter.start()
    elsewhere = TcpConnection("10.0.0.1", 5, "10.0.9.9", 443)
    loopback = TcpConnection("127.0.0.1", 5, "127.0.0.1", 6)
    itself = TcpConnection("10.0.0.1", 5, "10.0.0.1", 6)
    reporter.update(frozenset({to_h2(1), elsewhere, loopback, itself}))
    service.wait_told(to_h2(1))
    reporter.stop(0.0)


def test_it_says_once_what_is_wrong() -> None:
    service = FlakyService(share=1.0)
    said = threading.Event()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        said.set()

    reporter = Reporter(service, "a", "h1", say)
    reporter.start()
    assert said.wait(PATIENCE_S)
    give_up_at = time.monotonic() + PATIENCE_S
    while service.calls < 4:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    assert len(set(lines)) == len(lines) == 1
    reporter.stop(0.0)


def test_the_last_state_is_reported_before_the_end() -> None:
    service = FlakyService()
    reporter = Reporter(service, "a", "h1", lambda _: None)
    reporter.start()
    reporter.update(frozenset({to_h2(1)}))
    service.wait_told(to_h2(1))
    reporter.update(frozenset())
    reporter.stop(PATIENCE_S)
    assert service.told == []


def test_iterations_are_reported_with_the_hosts_they_went_to() -> None:
    service = FlakyService()
    reporter = Reporter(service, "a", "h1", lambda _: None)
    reporter.start()
    service.wait_told()
    for number in range(1, 4):
        seen = SentIteration(float(number), 0.25, 1000 * number)
        sent = {"10.0.0.2": 1000 * number, "10.0.9.9": 5, "10.0.0.1": 0}
        reporter.measured(MeasuredIteration(seen, Totals(retransmitted_bytes=number, sent_to=sent)))
    with service.news:
        assert service.news.wait_for(lambda: len(service.measured) == 3, PATIENCE_S), (
            service.measured
        )
    assert [one.sent_bytes for one in service.measured] == [
        {"h2": 1000},
        {"h2": 2000},
        {"h2": 3000},
    ]
    assert {one.duration_s for one in service.measured} == {Fraction(1, 4)}
    assert [one.retransmitted_bytes for one in service.measured] == [1, 2, 3]
    reporter.stop(0.0)


def test_iterations_that_are_refused_do_not_keep_connections_from_being_reported() -> None:
    service = FlakyService()
    service.refuses_iterations = True
    lines: list[str] = []
    reporter = Reporter(service, "a", "h1", lines.append)
    reporter.start()
    service.wait_told()
    for number in range(100):
        reporter.measured(
            MeasuredIteration(SentIteration(0.0, 1.0, 1), Totals(sent_to={"10.0.0.2": 1}))
        )
        reporter.update(frozenset({to_h2(number + 1)}))
    service.wait_told(to_h2(100))
    reporter.stop(PATIENCE_S)
    assert len(lines) == len(set(lines)) <= 2
    assert len(service.measured) == 0
