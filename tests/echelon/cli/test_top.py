"""The arithmetic of `echelon top`, and what it shows of a running service."""

from __future__ import annotations

import json
from ipaddress import IPv4Address

import pytest

from echelon.cli.top import PortsView, slowdown
from echelon.service.api.jobs import JobSummary
from echelon.service.api.switches import QueueUse, SwitchQueues, uses
from tests.echelon.cli.conftest import Operated
from tests.echelon.cli.test_service_commands import columns, submit
from tests.echelon.service.lab import settle, until
from tests.reference.frames import ipv4, udp

service_test = pytest.mark.xdist_group("cli-service")


def reading(at: float, *sizes: tuple[int, int, int], drops: int = 0) -> SwitchQueues:
    """Return a reading of (port, queue, bytes)."""
    return SwitchQueues(
        switch="s1",
        reachable=True,
        at=at,
        queues=tuple(
            QueueUse(port=port, to=f"h{port}", rate_bps=10**6, queue=queue, packets=0, size_bytes=size,
                     dropped_packets=drops)
            for port, queue, size in sizes
        ),
    )  # fmt: skip


def test_use_is_what_a_queue_sent_between_two_readings() -> None:
    """A million bits a second is 125,000 bytes: in 2 s, 62,500 bytes are a quarter."""
    before = {"s1": reading(10.0, (1, 0, 1000), (1, 7, 0), (2, 0, 5))}
    now = {"s1": reading(12.0, (1, 0, 63_500), (1, 7, 125_000), (2, 0, 5), drops=6)}
    busy, idle = uses(before, now)
    assert (busy.port, busy.queues_bps[0], busy.queues_bps[7]) == (1, 250_000, 500_000)
    assert busy.use == 0.75
    assert busy.drops_per_s == 6.0, "3 a second in each queue"
    assert (idle.port, idle.use) == (2, 0.0)
    assert [one.port for one in PortsView((), before, now).ports] == [1, 2]


def test_a_switch_that_was_restarted_shows_nothing_once() -> None:
    assert [one.use for one in uses({"s1": reading(1.0, (1, 0, 9000))}, {"s1": reading(2.0, (1, 0, 10))})] == [0.0]
    assert uses({}, {"s1": reading(2.0, (1, 0, 10))}) == []


def job(name: str, last_s: float | None, alone_s: float | None) -> JobSummary:
    return JobSummary(
        name=name, state="installed", parallelism="data", workers=(), flow_count=1, last_iteration_s=last_s,
        alone_iteration_s=alone_s,
    )  # fmt: skip


def test_the_slowest_come_first() -> None:
    jobs = [job("a", None, 1.0), job("b", 1.0, 1.0), job("c", 3.0, 2.0), job("d", 9.0, None)]
    assert [slowdown(one) for one in jobs] == [None, 1.0, 1.5, None]
    assert [one.name for one in PortsView(jobs, {}, {}).late] == ["c", "b", "a", "d"]


@service_test
def test_ports_and_jobs_of_a_service(service: Operated) -> None:
    """A frame that nobody claims leaves leaf1 towards h2 by the queue of best effort."""
    submit(service)
    with service.client() as client:
        settle(client)
        until(lambda: client.job("bert").alone_iteration_s is not None, "it was not computed")
        before = {"leaf1": client.queues("leaf1")}
        assert {(use.port, use.to) for use in before["leaf1"].queues} == {
            (port, other) for (node, other), port in service.lab.fabric.port_to.items() if node == "leaf1"
        }
        assert {use.queue for use in before["leaf1"].queues} == set(range(8))
        src, dst = (int(IPv4Address(service.lab.fabric.hosts[name].ipv4)) for name in ("h1", "h2"))
        with service.lab.host("h1") as sender, service.lab.host("h2") as receiver:
            sender.send(ipv4(src, dst, 17, udp(5000, 5001, bytes(100))))
            receiver.receive()
        sent = [one for one in uses(before, {"leaf1": client.queues("leaf1")}) if one.use]
        assert [one.to for one in sent] == ["h2"]
    shown = service.good("top", "--once", "--interval", "0.1")
    ports, jobs = (columns(text) for text in shown.split("\n\n"))
    assert ports[0][:5] == ["SWITCH", "PORT", "TO", "RATE", "USE"]
    assert len(ports) == 1 + len([1 for node, _ in service.lab.fabric.port_to if node in service.lab.switches])
    assert jobs[0] == ["JOB", "STATE", "ITERATION", "ALONE", "SLOWDOWN", "TARDINESS"]
    assert jobs[1][:2] == ["bert", "installed"]
    assert any("bert" in line for line in service.pictured("top", "--once", "--interval", "0.1", width=120))
    assert "--once" in service.bad("top")


@service_test
def test_status_on_one_screen(service: Operated) -> None:
    submit(service)
    with service.client() as client:
        settle(client)
    shown = service.good("status")
    for fact in ("fabric two_by_two", "term ", "4 ready", "1 installed", "register job bert, by operator"):
        assert fact in shown
    assert "problems" not in shown
    assert json.loads(service.good("status", "--json"))["jobs_by_state"] == {"installed": 1}
    service.good("link", "drain", "leaf1", "spine1")
    service.good("link", "drain", "leaf1", "spine2", "--force")
    with service.client() as client:
        until(lambda: client.job("bert").state == "unplanned", "the job keeps its plan")
    result = service.run("status")
    assert result.exit_code == 1
    for fact in ("leaf1 - spine1, leaf1 - spine2", "1 unplanned", "job bert: ", "path"):
        assert fact in result.stdout
