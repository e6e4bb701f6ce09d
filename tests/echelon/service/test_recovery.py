"""Switches that restart or are changed behind the controller's back, and controllers that take over
from each other.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from finsy import P4Schema
from finsy.proto import U128, p4r

from echelon.controller.client import Client
from echelon.model.p4program import program
from echelon.switches.southbound.election import election_id
from tests.echelon.service.conftest import Build
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import (
    LINE,
    PAIR,
    PATIENCE_S,
    RULE,
    TWO_BY_TWO,
    Lab,
    Switch,
    ring,
    settle,
    until,
    wait_links,
)

AUDIT_S = 1


def sorted_bytes(entries: list[p4r.TableEntry]) -> list[bytes]:
    return sorted(entry.SerializeToString(deterministic=True) for entry in entries)


def write(switch: Switch, term: int, kind: int, entries: list[p4r.TableEntry]) -> None:
    """Write as a client could that knows the leader's term. Raises grpc.RpcError."""
    updates = [p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry)) for entry in entries]  # type: ignore[arg-type]
    with switch.stub() as stub:
        stub.Write(
            p4r.WriteRequest(
                device_id=switch.device_id,
                election_id=U128.encode(election_id(term)),
                updates=updates,
            ),
            timeout=PATIENCE_S,
        )


def test_a_restarted_switch_gets_its_entries_back(build: Build) -> None:
    lab = build(PAIR)
    with lab.client(lab.daemon()) as client:
        for name, workers in (("a", ["h1", "h3"]), ("b", ["h2", "h4", "h1"])):
            client.register_job(ring(name, workers))
        settle(client)
        switch = lab.switches["leaf1"]
        before = sorted_bytes(switch.entries())
        for _ in range(2):
            switch.kill()
            until(lambda: client.switch("leaf1").state == "away", "it has not missed the switch")
            assert client.job("a").state == "planned", "its entries are not there now"
            switch.start()
            began = time.monotonic()
            until(lambda: client.switch("leaf1").state == "ready", "it has not come back")
            print(f"back at its intent {time.monotonic() - began:.2f} s after its port opened")
            assert sorted_bytes(switch.entries()) == before
            assert client.job("a").state == "installed"
        assert client.switch("leaf2").sessions == 1, "others were left alone"


def test_a_switch_that_is_away_is_planned_for(build: Build) -> None:
    lab = build(PAIR)
    lab.switches["leaf2"].kill()
    with lab.client(lab.daemon()) as client:
        client.register_job(ring("a", ["h1", "h3"]))
        client.register_job(ring("b", ["h1", "h2"]))
        assert client.job("b", wait_s=30).state == "installed", "it does not need the switch"
        assert client.job("a").state == "planned"
        lab.switches["leaf2"].start()
        assert client.job("a", wait_s=30).state == "installed"
        # On a busy machine it may have been away for so long that its links were down.
        wait_links(client)
        settle(client)
        assert_exactly(lab, client)


def test_a_spine_that_dies_is_routed_around(build: Build) -> None:
    policy = {"name": "echelon", "parameters": RULE, "reroute_after": "200 ms"}
    lab = build(TWO_BY_TWO, policy=policy)
    with lab.client(lab.daemon()) as client:
        for name, workers in (("a", ["h1", "h3"]), ("b", ["h2", "h4"])):
            client.register_job(ring(name, workers))
        settle(client)
        numbers = [client.job(name).number for name in "ab"]
        spine = client.plan(job="a").flows[0].path[2]
        lab.switches[spine].kill()
        until(lambda: not client.plan(switch=spine).flows, "flows still lead over it")
        until(
            lambda: {job.state for job in client.jobs()} == {"installed"},
            "jobs are not installed elsewhere",
        )
        assert {link.state for link in client.links() if spine in (link.a, link.b)} == {"down"}
        assert any(
            f"switch {spine} does not answer" in problem for problem in client.status().problems
        )
        lab.switches[spine].start()
        wait_links(client)
        settle(client)
        assert [client.job(name).number for name in "ab"] == numbers
        told = [event.action for event in client.events() if event.action.startswith("links")]
        assert told == ["links down", "links up"]
        assert f'echelon_switch_links_down{{switch="{spine}"}} 0.0' in client.metrics()
        assert_exactly(lab, client)


def test_what_was_changed_behind_its_back_is_repaired(build: Build) -> None:
    lab = build(LINE, audit=f"{AUDIT_S} s")
    with lab.client(lab.daemon()) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        switch = lab.switches["s1"]
        before = switch.entries()
        term = client.status().term
        assert term is not None
        schema = P4Schema(program().p4info)
        paths = [entry for entry in before if schema.tables[entry.table_id].alias == "flow"]
        deleted, changed = p4r.TableEntry(), p4r.TableEntry()
        deleted.CopyFrom(paths[0])
        changed.CopyFrom(paths[1])
        changed.action.action.params[0].value = b"\x07"
        surplus, foreign = p4r.TableEntry(), p4r.TableEntry()
        surplus.CopyFrom(paths[0])
        surplus.match[0].exact.value = b"\x3a\xaa"
        foreign.CopyFrom(surplus)
        foreign.match[0].exact.value = b"\x3b\xbb"
        foreign.metadata = b"somebody else"
        deleted.ClearField("action")
        write(switch, term, p4r.Update.DELETE, [deleted])
        write(switch, term, p4r.Update.MODIFY, [changed])
        write(switch, term, p4r.Update.INSERT, [surplus, foreign])
        audits = client.switch("s1").last_audit_at
        until(lambda: client.switch("s1").drift_found, "no audit has found it")
        assert sorted_bytes(switch.entries()) == sorted_bytes([*before, foreign])
        seen = client.switch("s1")
        assert (seen.drift_found, seen.foreign_entries, seen.state) == (3, 1, "ready")
        assert seen.last_audit_at != audits
        assert 'echelon_drift_entries_total{switch="s1"} 3.0' in client.metrics()


def test_a_standby_on_the_same_file_takes_over(build: Build) -> None:
    lab = build(LINE)
    first = lab.daemon("first", store="sqlite:state.db")
    with lab.client(first) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        second = lab.daemon("second", store="sqlite:state.db")
        with Client(second.wait_listening(), timeout_s=PATIENCE_S) as other:
            until(lambda: other.status().leader is not None, "the standby does not know its leader")
            assert other.status().role == "standby"
            assert other.status().leader == first.wait_listening()
            first_term = client.status().term
            first.kill()
            second.wait_event("leading")
            settle(other)
            term = other.status().term
            assert first_term is not None
            assert term is not None
            assert term > first_term
            assert [job.name for job in other.jobs()] == ["a"]
            assert_exactly(lab, other)
            with pytest.raises(grpc.RpcError) as refused:
                write(
                    lab.switches["s1"],
                    first_term,
                    p4r.Update.INSERT,
                    lab.switches["s1"].entries()[:1],
                )
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_configuration_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    daemon = Lab(tmp_path, LINE).daemon(api={"listen": "0.0.0.0:0"})
    assert daemon.join() == 2
    (line,) = daemon.lines
    assert "api.tokens" in line


def test_a_leader_that_stands_still_is_reported_by_its_standby(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINE)
    try:
        first, second = lab.daemon("first", store="sqlite:s.db", lease="1 s"), None
        first.wait_event("leading")
        second = lab.daemon("second", store="sqlite:s.db", lease="1 s")
        with Client(second.wait_listening()) as standby:
            until(lambda: standby.not_ready() is None, "it knows its leader")
            first.signal(signal.SIGSTOP)
            until(standby.not_ready, "it says that nobody can take over")
            problem = standby.not_ready()
            assert problem is not None
            assert str(first.pid) in problem
            assert "kill -CONT" in problem
            first.signal(signal.SIGCONT)
            until(lambda: standby.not_ready() is None, "the leader goes on")
            assert not second.events("leading")
            first.signal(signal.SIGSTOP)
            first.kill()
            second.wait_event("leading")
    finally:
        lab.stop()


@pytest.mark.parametrize("lost", [("state.db",), ("state.db", "state.db.lock")])
def test_an_empty_store_is_not_taken_for_a_new_one(build: Build, lost: tuple[str, ...]) -> None:
    lab = build(LINE)
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
    daemon.kill()
    (switch,) = lab.switches.values()
    before = len(switch.entries())
    for ending in ("", "-wal", "-shm"):
        (lab.directory / f"state.db{ending}").unlink(missing_ok=True)
    for name in lost[1:]:
        (lab.directory / name).unlink()
    for _ in range(2):
        refused = lab.daemon()
        assert "--empty-store" in refused.wait_event("cannot start")["problem"]
        assert refused.join() == 2
    assert len(switch.entries()) == before
    with lab.client(lab.daemon("echelon", "--empty-store")) as client:
        settle(client)
        assert not client.jobs()
    assert len(switch.entries()) < before


@contextmanager
def stranger(switch: Switch, bid: int) -> Iterator[int]:
    """Bid for the switch with an election id, and yield the code of the answer."""
    claim = p4r.MasterArbitrationUpdate(device_id=switch.device_id, election_id=U128.encode(bid))
    done = threading.Event()

    def requests() -> Iterator[p4r.StreamMessageRequest]:
        yield p4r.StreamMessageRequest(arbitration=claim)
        done.wait(PATIENCE_S)

    with switch.stub() as stub:
        answers = stub.StreamChannel(requests())
        yield next(answers).arbitration.status.code
        done.set()
        answers.cancel()


def test_only_the_highest_id_takes_a_switch_and_that_is_told(build: Build) -> None:
    lab = build(LINE)
    switch = lab.switches["s1"]
    with lab.client(lab.daemon()) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        with stranger(switch, (1 << 64) - 1) as code:
            assert code == grpc.StatusCode.ALREADY_EXISTS.value[0]
        assert client.switch("s1").state == "ready"
        with stranger(switch, (1 << 128) - 1) as code:
            assert code == 0
            until(lambda: client.switch("s1").state == "backup", "the switch is not told of")
            seen = client.switch("s1")
            assert seen.entries is None
            assert "restart the switch" in (seen.problem or "")
            assert client.take_switch("s1").state == "backup"
            told = client.events(subject="s1")
            assert [one.action for one in told if one.action != "links up"] == [
                "switch taken",
                "take switch",
            ]
            assert told[-1].address == "127.0.0.1"
        switch.kill()
        switch.start()
        settle(client)
        assert client.switch("s1").entries
