"""Switches without an address: configured by other means, and reached by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from echelon.controller.client import Client
from echelon.controller.service.config import load_service_config
from echelon.model.documents import DocumentError
from tests.echelon.service.lab import PATIENCE_S, Daemon, ring, until

FABRIC = {
    "fabric": "rack",
    "paths": "address",
    "hosts": ["h1", "h2", "h3"],
    "switches": ["s1"],
    "links": [{"between": [host, "s1"], "rate": "1 Gbit/s"} for host in ("h1", "h2", "h3")],
}


def config(directory: Path, target: str, policy: str = "classes") -> Path:
    (directory / "fabric.yaml").write_text(yaml.safe_dump(FABRIC))
    document = {
        "service": "lab",
        "fabric": "fabric.yaml",
        "policy": policy,
        "api": {"listen": "127.0.0.1:0"},
        "switches": {"s1": {"target": target}},
    }
    file = directory / "echelon.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(config(tmp_path, "classes"))
    yield daemon
    daemon.kill()


def test_jobs_are_installed_and_get_their_classes(daemon: Daemon) -> None:
    with Client(daemon.wait_listening(), timeout_s=PATIENCE_S) as client:
        daemon.wait_event("leading")
        for name, workers in (("a", ["h1", "h2"]), ("b", ["h2", "h3"])):
            client.register_job(ring(name, workers))
            assert client.job(name, wait_s=PATIENCE_S).state == "installed"
        for name in "ab":
            [group] = client.classes(name).classes
            assert group.queue in range(8)
            assert group.traffic_class == 32 * group.queue + 2
        [switch] = client.switches()
        assert (switch.state, switch.problem, switch.entries) == ("ready", None, 0)
        client.remove_job("a")
        until(lambda: [job.name for job in client.jobs()] == ["b"], "job a stays")

        client.set_policy("crux")
        assert client.job("b", wait_s=PATIENCE_S).state == "installed"
        difference = client.difference("s1")
        assert not difference.reachable
        assert "has no address" in (difference.problem or "")


def test_nobody_warns_of_a_switch_that_nobody_reaches(daemon: Daemon) -> None:
    daemon.wait_event("leading")
    assert not [line for line in daemon.lines if "TLS" in line]


def test_a_switch_that_has_to_be_reached_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as error:
        load_service_config(config(tmp_path, "softswitch"))
    assert error.value.path == "switches.s1.address"
    assert error.value.code == "missing-key"
