"""The daemon as a process: jobs in, entries on switches, plain gRPC as the witness."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from echelon.client import Client
from tests.echelon.service.conftest import Build, Service
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import LINE, Lab, ring, settle, until

pytestmark = pytest.mark.xdist_group("daemon")


@pytest.fixture
def service(two_by_two: Service) -> Iterator[tuple[Lab, Client]]:
    """Return the switches and a client of a daemon without jobs, under the default policy, with all links up."""
    with two_by_two.lab.client(two_by_two.daemon) as client:
        yield two_by_two.lab, client


def test_jobs_come_and_go(service: tuple[Lab, Client]) -> None:
    lab, client = service
    for name, workers in (("a", ["h1", "h3"]), ("b", ["h2", "h4", "h1"]), ("c", ["h1", "h2"])):
        client.register_job(ring(name, workers))
    for name in "abc":
        assert client.job(name, wait_s=30).state == "installed"
    settle(client)
    assert_exactly(lab, client)
    client.remove_job("b")
    client.register_job(ring("a", ["h1", "h4"]), replace=True)
    assert client.job("a", wait_s=30).state == "installed"
    settle(client)
    assert_exactly(lab, client)


def test_what_an_iteration_takes_alone(service: tuple[Lab, Client]) -> None:
    """Two workers of one leaf, with 1 Gbit/s each way, take 16 ms for each of two times half of 4 MB, after 10 ms of
    computing.
    """
    _, client = service
    client.register_job(ring("a", ["h1", "h2"], gradient="4 MB", compute="10 ms"))
    settle(client)
    until(lambda: client.job("a").alone_iteration_s is not None, "it was not computed")
    assert client.job("a").alone_iteration_s == pytest.approx(0.042)


def test_policies_change_while_running(service: tuple[Lab, Client]) -> None:
    lab, client = service
    for name, workers in (("a", ["h1", "h3"]), ("b", ["h2", "h4", "h1"])):
        client.register_job(ring(name, workers))
    for policy in ("fair", "varys", "fifo", "echelon"):
        client.set_policy(policy)
        settle(client)
        assert [job.state for job in client.jobs()] == ["installed", "installed"]
        assert client.plan().policy == policy
        assert_exactly(lab, client)


def test_one_jobs_change_writes_its_own_difference_alone(service: tuple[Lab, Client]) -> None:
    """The job is one of 100. The difference is counted twice: by the daemon, and by what plain gRPC reads before and
    after.
    """
    lab, client = service
    hosts = list(lab.fabric.hosts)
    for n in range(100):
        workers = [hosts[(n + k) % 4] for k in range(2 + n % 3)]
        client.register_job(ring(f"j{n}", workers, gradient=f"{1 + n % 7} MB"))
    settle(client)
    assert_exactly(lab, client)
    before, written = entries_by_key(lab), updates(client)
    client.register_job(ring("j50", [hosts[0], hosts[2]], gradient="77 MB"), replace=True)
    settle(client)
    after = entries_by_key(lab)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert updates(client) - written == len(changed)
    flows = client.job("j50").flow_count + client.job("j49").flow_count
    assert 0 < len(changed) < 2 * 3 * flows + 2 * 8 * len(lab.switches), "more than its flows and thresholds"
    client.remove_job("j50")
    client.register_job(ring("j50", [hosts[0], hosts[2]], gradient="77 MB"))
    settle(client)
    assert_exactly(lab, client)


def entries_by_key(lab: Lab) -> dict[tuple[object, ...], bytes]:
    out: dict[tuple[object, ...], bytes] = {}
    for name, switch in lab.switches.items():
        for entry in switch.entries():
            match = tuple(sorted(one.SerializeToString() for one in entry.match))
            out[name, entry.table_id, entry.priority, match] = entry.action.SerializeToString(deterministic=True)
    return out


def updates(client: Client) -> int:
    """Return the number of entries inserted, modified and deleted so far, on all switches."""
    families = text_string_to_metric_families(client.metrics())
    return sum(
        int(sample.value) for family in families for sample in family.samples
        if sample.name == "echelon_entries_written_total"
    )  # fmt: skip


def test_a_drained_link_carries_nothing(service: tuple[Lab, Client]) -> None:
    lab, client = service
    for name, workers in (("a", ["h1", "h3"]), ("b", ["h2", "h4", "h1"])):
        client.register_job(ring(name, workers))
    client.set_link("leaf1", "spine1", "drained")
    settle(client)
    assert [job.state for job in client.jobs()] == ["installed", "installed"]
    paths = {flow.path for flow in client.plan().flows}
    assert any("spine2" in path for path in paths)
    assert not any({"leaf1", "spine1"} <= set(path) for path in paths)
    assert_exactly(lab, client)


def test_sigterm_ends_it_and_the_switches_go_on(build: Build) -> None:
    lab = build(LINE)
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        assert client.job("a", wait_s=30).state == "installed"
    before = lab.switches["s1"].entries()
    assert daemon.terminate() == 0
    assert lab.switches["s1"].entries() == before
    assert not [line for line in daemon.lines if "Traceback" in line]
