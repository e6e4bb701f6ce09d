"""A stranger who writes to a switch again and again: what the service says of it, and until when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.request import urlopen

import grpc
import pytest
from finsy.proto import U128, p4r

from echelon.controller.client import Client
from echelon.switches.southbound.election import election_id
from tests.echelon.service.conftest import Build
from tests.echelon.service.lab import LINE, PATIENCE_S, Switch, ring, settle, until

AUDIT_S = 0.25
"""A switch counts as left alone after twenty of these."""


class Stranger:
    """A client that knows the leader's election id, as the switch tells it to any backup."""

    def __init__(self, switch: Switch, term: int) -> None:
        self.switch = switch
        self._id = U128.encode(election_id(term))

    def delete_all(self) -> int:
        """Delete every entry, and return how many that were."""
        request = p4r.WriteRequest(device_id=self.switch.device_id, election_id=self._id)
        for entry in self.switch.entries():
            entry.ClearField("action")
            request.updates.add(
                type=p4r.Update.DELETE,
                entity=p4r.Entity(table_entry=entry),
            )
        with self.switch.stub() as stub, suppress(grpc.RpcError):
            # The service may have repaired or deleted some meanwhile.
            stub.Write(request, timeout=PATIENCE_S)
        return len(request.updates)

    def pipeline(self) -> p4r.ForwardingPipelineConfig:
        """Return the program that the switch runs."""
        wanted = p4r.GetForwardingPipelineConfigRequest(device_id=self.switch.device_id)
        with self.switch.stub() as stub:
            config: p4r.ForwardingPipelineConfig = stub.GetForwardingPipelineConfig(
                wanted, timeout=PATIENCE_S
            ).config
        return config

    def replace_pipeline(self) -> None:
        """Push the same program under another cookie, which empties the tables."""
        config = self.pipeline()
        config.cookie.cookie += 1
        with self.switch.stub() as stub:
            request = p4r.SetForwardingPipelineConfigRequest(
                device_id=self.switch.device_id,
                election_id=self._id,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            )
            stub.SetForwardingPipelineConfig(request, timeout=PATIENCE_S)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Delete all entries every 0.3 s inside the block."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(0.3):
                self.delete_all()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def disturbed(client: Client) -> list[str]:
    return [text for text in client.status().problems if "somebody else writes to it" in text]


def repairs(client: Client) -> float:
    name = 'echelon_switch_repairs_total{switch="s1"} '
    (line,) = [line for line in client.metrics().splitlines() if line.startswith(name)]
    return float(line.removeprefix(name))


def actions(client: Client) -> list[str]:
    return [event.action for event in client.events() if event.action.startswith("switch ")]


def test_whoever_deletes_entries_again_and_again_is_a_problem_until_he_stops(
    build: Build,
) -> None:
    lab = build(LINE, audit=f"{AUDIT_S} s")
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        assert (repairs(client), client.status().problems) == (0, ())
        term = client.status().term
        assert term is not None
        stranger = Stranger(lab.switches["s1"], term)
        count = stranger.delete_all()
        until(lambda: repairs(client), "no audit has found it")
        assert disturbed(client) == [], "once may be a mistake"
        (event,) = [event for event in client.events() if event.action == "switch repaired"]
        assert event.object.startswith("s1 (")
        detail = event.object.removeprefix("s1 (")
        missing = [part for part in detail.split(", ") if part.startswith("missing in")]
        assert sum(int(part.rpartition(" ")[2]) for part in missing) == count

        with stranger.at_work():
            until(lambda: disturbed(client), "it is no problem yet")
            until(lambda: repairs(client) >= 5, "it is not repaired again and again")
            (problem,) = disturbed(client)
            assert problem.startswith("switch s1: somebody else writes to it (repairs: ")
            assert ", last: missing in " in problem
            assert ", by the default role at ipv4:127.0.0.1:" in problem, "softswitch tells"
            # The API is needed now, so the service stays ready, and names the switch.
            with urlopen(f"{daemon.wait_listening()}/readyz") as answer:
                assert json.load(answer)["stuck"][0].startswith("switch s1: somebody else")
        until(lambda: not disturbed(client), "it stays a problem")
        assert actions(client) == ["switch repaired", "switch disturbed", "switch quiet"]
        assert client.switch("s1").state == "ready"
        assert len(daemon.events("drift repaired")) == repairs(client)
        assert daemon.events("somebody else writes to a switch")


def test_a_pipeline_that_somebody_replaced_is_said_and_pushed_again(build: Build) -> None:
    lab = build(LINE, audit=f"{AUDIT_S} s")
    daemon = lab.daemon()
    with lab.client(daemon) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        switch = lab.switches["s1"]
        before = sorted(entry.SerializeToString(deterministic=True) for entry in switch.entries())
        term = client.status().term
        assert term is not None
        stranger = Stranger(switch, term)
        cookie = stranger.pipeline().cookie
        for number in range(1, 4):
            stranger.replace_pipeline()
            # One that comes amid an audit is found by the next one.
            until(lambda: stranger.pipeline().cookie == cookie, "it is not pushed again")
            until(lambda n=number: repairs(client) >= n, "no audit has found it")
        assert disturbed(client)
        details = [record["detail"] for record in daemon.events("drift repaired")]
        assert any("programs replaced: 1" in detail for detail in details)
        until(lambda: len(switch.entries()) == len(before), "entries are missing")
        settle(client)
        after = sorted(entry.SerializeToString(deterministic=True) for entry in switch.entries())
        assert after == before
        assert client.switch("s1").sessions == 1


@pytest.mark.parametrize("stays", [True, False])
def test_whoever_takes_a_switch_is_a_problem_also_when_it_is_taken_back(
    build: Build, stays: bool
) -> None:
    lab = build(LINE, audit=f"{AUDIT_S} s")
    with lab.client(lab.daemon()) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
        term = client.status().term
        assert term is not None
        switch = lab.switches["s1"]
        higher = election_id(term + 10)
        claim = p4r.StreamMessageRequest()
        claim.arbitration.device_id = switch.device_id
        claim.arbitration.election_id.CopyFrom(U128.encode(higher))
        ended = threading.Event()

        def claims() -> Iterator[p4r.StreamMessageRequest]:
            yield claim
            ended.wait(PATIENCE_S)

        with switch.stub() as stub:
            stream = stub.StreamChannel(claims())
            assert next(stream).arbitration.status.code == 0
            if not stays:
                ended.set()
            until(lambda: disturbed(client), "the takeover is no problem")
            (problem,) = disturbed(client)
            assert f"takeovers: 1, since {time.strftime('%Y-')}" in problem
            assert f"last: taken by election id {higher})" in problem
            settle(client)
            assert client.switch("s1").election_id != term
            until(lambda: not disturbed(client), "it stays a problem")
            assert actions(client) == ["switch taken", "switch quiet"]
            ended.set()
            stream.cancel()


def test_a_leader_that_follows_another_one_is_nobody_else(build: Build) -> None:
    """Entries of the last leader that the next one writes anew are neither drift nor a takeover."""
    lab = build(LINE, audit=f"{AUDIT_S} s", store="sqlite:state.db")
    last = lab.daemon("first")
    with lab.client(last) as client:
        client.register_job(ring("a", ["h1", "h2"]))
        settle(client)
    for number, name in enumerate(("second", "third")):
        daemon = lab.daemon(name)
        daemon.wait_listening()
        if number:
            last.terminate()
        else:
            last.kill()
        last = daemon
        with lab.client(daemon) as client:
            client.register_job(ring(f"b{number}", ["h1", "h2"]))
            settle(client)
            audited = client.switch("s1").last_audit_at
            until(
                lambda before=audited: client.switch("s1").last_audit_at != before,
                "no audit comes",
            )
            assert (repairs(client), client.status().problems) == (0, ())
            assert actions(client) == []
