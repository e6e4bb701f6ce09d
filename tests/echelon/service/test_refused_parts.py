"""A switch that refuses a part of its intent serves all the rest, and says what it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from echelon.cli import app
from echelon.controller.client import Client
from echelon.model.p4program import program
from echelon.switches.southbound.codec import schema_of
from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import LINE, Daemon, Lab, until
from tests.echelon.southbound.refusing import Refusals, RefusingSwitch

UNCABLED = 3
THREE = {
    **LINE,
    "hosts": ["h1", "h2", "h3"],
    "links": [{"between": [host, "s1"], "rate": "1 Gbit/s"} for host in ("h1", "h2", "h3")],
}


def pipeline(name: str, *workers: str) -> dict[str, Any]:
    stages = {"micro_batches": 3, "forward": "10 ms", "activation": "100 kB"}
    return {"job": name, "parallelism": "pipeline", "workers": list(workers), "pipeline": stages}


def write_fabric(lab: Lab, fabric: Mapping[str, Any]) -> None:
    (lab.directory / "fabric.yaml").write_text(yaml.safe_dump(dict(fabric)))


def submit(daemon: Daemon, tmp_path: Path, spec: Mapping[str, Any]) -> Result:
    """Run `echelon job submit FILE --wait`."""
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(dict(spec)))
    environment = {"ECHELON_URL": daemon.wait_listening()}
    return CliRunner().invoke(app, ["job", "submit", str(file), "--wait"], env=environment)


def assert_serves_the_rest(lab: Lab, daemon: Daemon, client: Client, tmp_path: Path) -> None:
    """Check that two of three hosts are served, and that everybody learns why one is not."""
    near = submit(daemon, tmp_path, pipeline("near", "h1", "h2"))
    assert near.exit_code == 0, near.output
    until(lambda: {link.state for link in client.links() if link.a == "h3"} == {"down"}, "it is up")

    began_s = time.monotonic()
    far = submit(daemon, tmp_path, pipeline("far", "h1", "h3"))
    assert far.exit_code == 1
    assert time.monotonic() - began_s < 30, "it waits until its time is over"
    for words in ("job 'far' is planned: ", "port 3", "ports: 1, 2"):
        assert words in far.stderr

    (switch,) = client.switches()
    assert (switch.state, switch.sessions) == ("refused", 1)
    assert switch.entries == switch.wanted_entries == len(lab.switches["s1"].entries())
    (link,) = [link for link in client.links() if link.state == "down"]
    assert (link.a, link.b) == ("h3", "s1")
    assert "port 3 of switch s1 is not served: " in (link.problem or "")
    problems = "\n".join(client.status().problems)
    for words in ("links down: h3 - s1 (port 3 ", "switch s1: queues of port 3: ", "ports: 1, 2"):
        assert words in problems
    objects = {event.action: event.object for event in client.events()}
    assert "queues of port 3" in objects["intent refused"]
    assert objects["links down"].startswith("s1 port 3 is not served")
    metrics = client.metrics()
    assert 'echelon_switch_links_down{switch="s1"} 1.0' in metrics
    assert 'echelon_refused_entries{switch="s1"} 1.0' in metrics


@pytest.fixture
def lab(build: Build) -> Lab:
    """Return a softswitch with ports 1 and 2."""
    return build(LINE)


def test_a_port_that_is_not_there_leaves_the_others_served(lab: Lab, tmp_path: Path) -> None:
    write_fabric(lab, THREE)
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        assert_serves_the_rest(lab, daemon, client, tmp_path)


def test_a_port_that_comes_with_a_reload_leaves_the_others_served(lab: Lab, tmp_path: Path) -> None:
    """The service runs already; in the end the port is cabled."""
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        assert submit(daemon, tmp_path, pipeline("first", "h1", "h2")).exit_code == 0
        before = len(lab.switches["s1"].entries())
        write_fabric(lab, THREE)
        daemon.hang_up()
    with lab.client(daemon) as client:
        assert_serves_the_rest(lab, daemon, client, tmp_path)
        assert len(lab.switches["s1"].entries()) > before
        states = {job.name: job.state for job in client.jobs()}
        assert states == {"first": "installed", "near": "installed", "far": "planned"}

        switch = lab.switches["s1"]
        switch.kill()
        switch.ports = [1, 2, UNCABLED]
        switch.start()
        until(lambda: client.job("far").state == "installed", "the port is not served")
        until(lambda: {link.state for link in client.links()} == {"up"}, "the link stays down")
        assert not client.status().problems
        assert "intent held" in {event.action for event in client.events()}


# -- parts of other kinds, refused by a proxy before the switch ------------------------------------


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture
def refused(lab: Lab, refusals: Refusals) -> Iterator[Callable[[], Daemon]]:
    """Return what starts a service whose switch is behind a proxy."""
    with RefusingSwitch(lab.switches["s1"].address, refusals) as proxy:
        # A policy whose queues are not those of a switch without a plan.
        policy = {"name": "fair"}
        yield lambda: lab.daemon(switches={"s1": {"address": proxy.address}}, policy=policy)


def table_id(name: str) -> int:
    sources = program()
    schema = schema_of(sources.p4info.read_text("utf-8"), sources.binary.read_bytes())
    return int(schema.tables[name].id)


def test_queues_of_a_port_that_are_refused(
    lab: Lab, refusals: Refusals, refused: Callable[[], Daemon], tmp_path: Path
) -> None:
    write_fabric(lab, LINE)
    refusals.ports = [2]
    daemon = refused()
    with lab.client(daemon) as client:
        result = submit(daemon, tmp_path, pipeline("near", "h1", "h2"))
        assert result.exit_code == 1
        assert "port 2 keeps its own queues" in result.stderr
        (switch,) = client.switches()
        assert switch.entries == switch.wanted_entries > 0
        assert {link.a: link.state for link in client.links()} == {"h1": "up", "h2": "down"}
        refusals.ports = ()
        until(lambda: client.job("near").state == "installed", "it is not tried again")
        assert client.switches()[0].sessions == 1


def test_a_table_that_is_refused(
    lab: Lab, refusals: Refusals, refused: Callable[[], Daemon], tmp_path: Path
) -> None:
    refusals.tables = [table_id("shim_flow")]
    daemon = refused()
    with lab.client(daemon) as client:
        result = submit(daemon, tmp_path, pipeline("near", "h1", "h2"))
        assert result.exit_code == 1
        for words in ("job 'near' is planned: ", "table shim_flow", "this table is not here"):
            assert words in result.stderr
        (switch,) = client.switches()
        assert switch.entries is not None
        assert 0 < switch.entries < switch.wanted_entries
        assert {link.state for link in client.links()} == {"up"}
        refusals.tables = ()
        until(lambda: client.job("near").state == "installed", "it is not tried again")
        assert client.switches()[0].sessions == 1


def test_digests_that_are_refused_hold_up_no_job(
    lab: Lab, refusals: Refusals, refused: Callable[[], Daemon], tmp_path: Path
) -> None:
    refusals.digests = True
    daemon = refused()
    with lab.client(daemon) as client:
        assert submit(daemon, tmp_path, pipeline("near", "h1", "h2")).exit_code == 0
        (problem,) = client.status().problems
        assert "digests flow_event_t" in problem


@pytest.mark.parametrize("kind", ["everything", "program"])
def test_a_switch_that_refuses_all(
    kind: str, lab: Lab, refusals: Refusals, refused: Callable[[], Daemon], tmp_path: Path
) -> None:
    if kind == "program":
        refusals.program = True
    else:
        refusals.everything = "closed for maintenance"
    daemon = refused()
    with lab.client(daemon) as client:
        until(lambda: {link.state for link in client.links()} == {"down"}, "links stay up")
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(pipeline("near", "h1", "h2")))
        arguments = ["job", "submit", str(file), "--wait", "--timeout", "15"]
        environment = {"ECHELON_URL": daemon.wait_listening()}
        result = CliRunner().invoke(app, arguments, env=environment)
        assert result.exit_code == 1
        assert "job 'near' is planned: " in result.stderr
        sessions = refusals.calls.count("StreamChannel")
        assert sessions <= 14
        refusals.program = False
        refusals.everything = ""
        until(lambda: client.job("near").state == "installed", "it is not tried again")
