"""The daemon as a process: jobs in, entries on switches, plain gRPC as the witness."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from echelon.controller.client import Client, ClientError
from echelon.controller.resources.dryruns import DryRunResource
from echelon.controller.resources.plan import FlowPlanResource
from tests.echelon.service.conftest import Build, Service
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import LINE, PATIENCE_S, RULE, Lab, fill_store, ring, settle, until
from tests.faults import coded

pytestmark = pytest.mark.xdist_group("daemon")


@pytest.fixture
def service(two_by_two: Service) -> Iterator[tuple[Lab, Client]]:
    """Return the switches and a client of a daemon without jobs, under the default policy, with all
    links up.
    """
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
    """Two workers of one leaf, with 1 Gbit/s each way, take 16 ms for each of two times half of 4
    MB, after 10 ms of computing.
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
    """The job is one of 40.

    The difference is counted twice: by the daemon, and by what plain gRPC reads before and after.
    """
    lab, client = service
    hosts = list(lab.fabric.hosts)
    for n in range(40):
        workers = [hosts[(n + k) % 4] for k in range(2 + n % 3)]
        client.register_job(ring(f"j{n}", workers, gradient=f"{1 + n % 7} MB"))
    settle(client)
    assert_exactly(lab, client)
    before, written = entries_by_key(lab), updates(client)
    client.register_job(ring("j20", [hosts[0], hosts[2]], gradient="77 MB"), replace=True)
    settle(client)
    after = entries_by_key(lab)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert updates(client) - written == len(changed)
    flows = client.job("j20").flow_count + client.job("j19").flow_count
    assert 0 < len(changed) < 2 * 3 * flows + 2 * 8 * len(lab.switches), (
        "more than its flows and thresholds"
    )
    client.remove_job("j20")
    client.register_job(ring("j20", [hosts[0], hosts[2]], gradient="77 MB"))
    settle(client)
    assert_exactly(lab, client)


def test_pages_hold_everything_once(service: tuple[Lab, Client]) -> None:
    _, client = service
    names = [f"j{n * 7 % 12:02}" for n in range(12)]
    for name in names:
        client.register_job(ring(name, ["h1", "h3"] if name < "j06" else ["h2", "h4"]))
    for link in (("leaf1", "spine1"), ("leaf1", "spine2")):
        client.set_link(*link, "drained", force=True)
    client.register_job(ring("local", ["h1", "h2"]))
    settle_all(client)
    assert [job.name for job in client.jobs()] == sorted([*names, "local"])
    assert [job.name for job in client.jobs(limit=3)] == ["j00", "j01", "j02"]
    assert [job.name for job in client.jobs(state="installed")] == ["local"]
    assert [job.name for job in client.jobs(worker="h1")] == [*sorted(names)[:6], "local"]
    for link in (("leaf1", "spine1"), ("leaf1", "spine2")):
        client.set_link(*link, "up")
    settle(client)
    whole = client.plan().flows
    paged: list[FlowPlanResource] = []
    while page := client.plan(
        limit=7, after=f"{paged[-1].job}/{paged[-1].flow}" if paged else None
    ).flows:
        paged += page
    assert tuple(paged) == whole
    assert client.plan(job="j03", switch="leaf1").flows == tuple(
        flow for flow in whole if flow.job == "j03" and "leaf1" in flow.path
    )
    gone = coded("unknown-name", "'j03/nothing'", status=404, path="after")
    with pytest.raises(ClientError, check=gone):
        client.plan(after="j03/nothing")
    latest = client.events(limit=4)
    assert client.events(limit=2, before=latest[2].request) == latest[:2]
    assert {one.object for one in client.events(subject="local")} == {"local"}


def settle_all(client: Client) -> None:
    """Wait until the plan has all that it can."""
    until(
        lambda: all(job.state in ("installed", "unplanned") for job in client.jobs()),
        "the jobs do not settle",
    )


def test_a_dry_run_says_what_the_change_writes_and_writes_nothing(
    service: tuple[Lab, Client],
) -> None:
    """Plain gRPC reads the switches before, after the dry run, and after the change."""
    lab, client = service
    client.set_policy("fair")
    for name, workers in (("a", ["h1", "h3"]), ("b", ["h2", "h4", "h1"])):
        client.register_job(ring(name, workers))
    settle(client)
    new = ring("c", ["h1", "h4"], gradient="7 MB")
    rehearse: list[tuple[Callable[[], DryRunResource], Callable[[], object]]] = [
        (lambda: client.rehearse_job(new), lambda: client.register_job(new)),
        (
            lambda: client.rehearse_policy("echelon", RULE),
            lambda: client.set_policy("echelon", RULE),
        ),
        (
            lambda: client.rehearse_link("leaf1", "spine1", "drained"),
            lambda: client.set_link("leaf1", "spine1", "drained"),
        ),
        (lambda: client.rehearse_removal("a"), lambda: client.remove_job("a")),
    ]
    for ask, change in rehearse:
        before, written, jobs, events = (
            entries_by_key(lab),
            updates(client),
            client.jobs(),
            client.events(),
        )
        said = ask()
        assert (entries_by_key(lab), updates(client), client.jobs(), client.events()) == (
            before,
            written,
            jobs,
            events,
        )
        change()
        settle(client)
        after = entries_by_key(lab)
        assert Counter(
            {one.switch: len(one.inserts) for one in said.switches if one.inserts}
        ) == Counter(key[0] for key in after.keys() - before.keys())
        assert Counter(
            {one.switch: len(one.deletes) for one in said.switches if one.deletes}
        ) == Counter(key[0] for key in before.keys() - after.keys())
        assert Counter(
            {one.switch: len(one.modifies) for one in said.switches if one.modifies}
        ) == Counter(key[0] for key in before.keys() & after.keys() if before[key] != after[key])
        assert said.unpredicted is None
        assert all((one.before or 1) >= 0.99 and (one.after or 1) >= 0.99 for one in said.jobs), (
            said.jobs
        )
    assert [one.action for one in client.events()[-4:]] == [
        "register job", "choose policy", "drain link", "remove job",
    ]  # fmt: skip


def entries_by_key(lab: Lab) -> dict[tuple[object, ...], bytes]:
    out: dict[tuple[object, ...], bytes] = {}
    for name, switch in lab.switches.items():
        for entry in switch.entries():
            match = tuple(sorted(one.SerializeToString() for one in entry.match))
            out[name, entry.table_id, entry.priority, match] = entry.action.SerializeToString(
                deterministic=True
            )
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


def test_it_is_ready_when_it_leads_and_not_before(build: Build) -> None:
    """The service takes a while to load hundreds of accepted jobs."""
    lab = build(LINE)
    specs = [ring(f"j{number}", ["h1", "h2"]) for number in range(300)]
    asyncio.run(fill_store(lab.directory / "state.db", specs))
    with Client(lab.daemon().wait_listening(), timeout_s=PATIENCE_S) as client:
        until(lambda: client.not_ready() is None, "it does not get ready")
        status = client.status()
        assert (status.role, status.jobs) == ("leader", len(specs))
        assert status.plan >= 1
