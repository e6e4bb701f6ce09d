"""One agent on a server with eight interfaces, each a host of a rail-optimised fabric."""

from __future__ import annotations

import threading
from pathlib import Path

from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.resources.jobs import ConnectionsResource, HostMeasurement
from echelon.model.fabric.builders import rail_optimised
from echelon.model.fabric.load import build_fabric
from echelon.switches.telemetry.sizes import HostIteration
from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.interfaces import Interfaces
from echelon_torch.agent.reporting import Reporter
from tests.faults import mentions

RAILS = 8
PATIENCE_S = 30.0
FABRIC = build_fabric(rail_optimised(2, RAILS))
ADDRESSES = {name: host.ipv4 for name, host in FABRIC.hosts.items()}
OURS = [f"n1r{rail}" for rail in range(1, RAILS + 1)]


def along(rail: int, port: int = 5) -> TcpConnection:
    return TcpConnection(ADDRESSES[f"n1r{rail}"], port, ADDRESSES[f"n2r{rail}"], 29500)


class Service:
    """A service that notes what it was told of each host."""

    def __init__(self) -> None:
        self.reports: dict[str, list[TcpConnection]] = {}
        self.news = threading.Condition()

    def connections(self, job: str) -> ConnectionsResource:
        return ConnectionsResource(
            job=job, by="agent", idle_gap_s=None, addresses=ADDRESSES, connections={}
        )

    def report_connections(
        self, job: str, host: str, connections: list[TcpConnection]
    ) -> ConnectionsResource:
        with self.news:
            self.reports[host] = connections
            self.news.notify_all()
        return self.connections(job)

    def report_iterations(
        self, job: str, host: str, iterations: list[HostIteration]
    ) -> HostMeasurement:
        raise AssertionError("iterations of several interfaces are not told apart")


def test_each_interface_has_its_own_connections() -> None:
    assert len(set(ADDRESSES.values())) == 2 * RAILS
    service = Service()
    reporters = [Reporter(service, "bert", host, lambda _: None) for host in OURS]
    interfaces = Interfaces(reporters)
    interfaces.start()
    seen = {along(rail) for rail in range(1, RAILS + 1)}
    elsewhere = TcpConnection(ADDRESSES["n1r1"], 7, "192.0.2.1", 443)
    interfaces.update(frozenset({*seen, elsewhere}))
    expected = {host: [along(rail)] for rail, host in enumerate(OURS, 1)}
    with service.news:
        assert service.news.wait_for(lambda: service.reports == expected, PATIENCE_S), (
            service.reports
        )
    assert all(map(interfaces.is_peer, seen))
    assert not interfaces.is_peer(elsewhere)
    interfaces.update(frozenset())
    interfaces.stop(PATIENCE_S)
    assert service.reports == {host: [] for host in OURS}
    assert interfaces.counts.reports >= 2 * RAILS
    assert interfaces.counts.failures == 0


def test_iterations_of_several_interfaces_are_refused(tmp_path: Path) -> None:
    workers = [word for host in OURS for word in ("--worker", host)]
    words = ["agent", "run", "--job", "bert", *workers, "--idle-gap", "50 ms", "--", "true"]
    done = CliRunner().invoke(app, words, env={"ECHELON_URL": f"unix:{tmp_path}/nobody"})
    assert done.exit_code == 2
    assert mentions(done.stderr, "--idle-gap", "several interfaces", "echelon agent watch")
