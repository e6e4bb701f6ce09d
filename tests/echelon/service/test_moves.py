"""Links that move while jobs send: real switches, an emulated optical switch, a real service that
may be killed.
"""

from __future__ import annotations

import json
import random
import time

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.client import Client, ClientError
from echelon.model.fabric.load import FabricSpec, build_fabric
from tests.echelon.service.conftest import Build
from tests.echelon.service.holdings import assert_exactly
from tests.echelon.service.lab import Lab, settle, until
from tests.echelon.service.moving import (
    JOBS,
    OPPOSITE,
    TURNED,
    fabric,
    joined,
    lost_in_the_dark,
    optical,
    register,
    traffic,
)
from tests.faults import coded

OTHERS = ((1, 5), (2, 4), (3, 6))


def stand(client: Client) -> None:
    until(lambda: client.move().stage == "standing", "the links do not stand")
    settle(client)


def cabled(client: Client, lab: Lab) -> set[frozenset[tuple[str, int]]]:
    """Return which ports of switches lead to each other, as the service has it."""
    port = {(name, use.to): use.port for name in lab.switches for use in client.queues(name).queues}
    return {frozenset({(a, port[a, b]), (b, port[b, a])}) for a, b in port if b in lab.switches}


def test_nothing_is_lost_where_there_are_other_paths(build: Build) -> None:
    lab = optical(build, fabric(*OPPOSITE))
    with lab.client(lab.daemon()) as client:
        register(client)
        settle(client)
        with traffic(lab, client) as stream:
            stream.start()
            for chords in (TURNED, OPPOSITE):
                time.sleep(0.2)
                move = client.move_links(fabric(*chords))
                assert {one.between for one in move.come} <= {(f"l{a}", f"l{b}") for a, b in chords}
                stand(client)
                assert joined(lab) == cabled(client, lab)
            stream.stop()
        assert stream.lost == {}
        assert min(stream.sent.values()) > 20
        assert lost_in_the_dark(lab) == 0
        assert {job.state for job in client.jobs()} == {"installed"}
        assert [event.action for event in client.events() if "link" in event.action] == 2 * [
            "move links",
            "links moved",
        ]
        assert 'echelon_link_move_seconds_count{phase="draining"} 2.0' in client.metrics()
        assert_exactly(lab, client)


def test_what_waits_in_a_queue_passes_before_the_link_goes(build: Build) -> None:
    lab = optical(build, fabric(*OPPOSITE, rate="1 Mbit/s"), with_rates=True)
    with lab.client(lab.daemon()) as client:
        register(client)
        settle(client)
        with traffic(lab, client) as stream:
            stream.burst("across", "h1", 60)
            client.move_links(fabric(*TURNED, rate="1 Mbit/s"))
            until(lambda: client.move().stage == "draining", "it does not drain")
            assert stream.received["across"] < 60, "nothing waited"
            stand(client)
            stream.stop()
        assert (stream.sent["across"], stream.lost, lost_in_the_dark(lab)) == (60, {}, 0)


def test_a_job_without_another_path_waits_for_the_new_links(build: Build) -> None:
    lab = optical(build, fabric(*OPPOSITE), time_ms=600)
    with lab.client(lab.daemon()) as client:
        register(client)
        client.remove_job("near")
        for other in ("l2", "l6"):
            client.set_link("l1", other, "drained")
        settle(client)
        with traffic(lab, client, [name for name in JOBS if name != "near"]) as stream:
            stream.start()
            client.move_links(fabric(*TURNED))
            until(lambda: client.move().stage == "moving", "the links do not move")
            why = "link l1 - l4 moves, and there is no other path until the new links stand"
            assert client.move().jobs == {"across": why}
            assert {one.name: one.state for one in client.jobs()} == {
                "across": "planned",
                "also": "installed",
                "stays": "installed",
            }
            assert {(one.a, one.b) for one in client.links() if one.state == "moving"} == {
                ("l1", "l4"),
                ("l3", "l6"),
            }
            for other in (OTHERS, OPPOSITE):
                with pytest.raises(ClientError, check=coded("refused", status=409, path="")):
                    client.move_links(fabric(*other))
            stand(client)
            stream.stop()
        assert {job.state for job in client.jobs()} == {"installed"}
        assert stream.lost.keys() == {"across"}, "others have lost packets"
        assert stream.lost["across"] >= lost_in_the_dark(lab) > 0


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]
)
def test_a_killed_service_goes_on_with_the_move(build: Build, seed: int) -> None:
    rng = random.Random(seed)
    lab = optical(build, fabric(*OPPOSITE), time_ms=200)
    chords, standing = TURNED, OPPOSITE
    for _ in range(3):
        daemon = lab.daemon()
        with lab.client(daemon) as client:
            register(client)
            settle(client)
            client.move_links(fabric(*chords))
            time.sleep(rng.uniform(0, 1.0))
        daemon.kill()
        daemon = lab.daemon()
        with lab.client(daemon) as client:
            stand(client)
            there = {(one.a, one.b) for one in client.links()}
            assert there >= {(f"l{a}", f"l{b}") for a, b in chords}, (
                "an acknowledged change is lost"
            )
            assert joined(lab) == cabled(client, lab)
            assert {job.name: job.state for job in client.jobs()} == dict.fromkeys(
                JOBS, "installed"
            )
            lab.fabric = build_fabric(FabricSpec.model_validate(fabric(*chords)))
            assert_exactly(lab, client)
        daemon.kill()
        chords, standing = standing, chords


def test_a_person_moves_links_and_says_so(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = build(fabric(*OPPOSITE))
    daemon = lab.daemon()
    (lab.directory / "new.yaml").write_text(yaml.safe_dump(fabric(*TURNED)))
    (lab.directory / "old.yaml").write_text(yaml.safe_dump(fabric(*OPPOSITE)))

    monkeypatch.chdir(lab.directory)

    def echelon(*words: str, status: int = 0) -> str:
        command = ["link", "move", *words, "--url", daemon.wait_listening()]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == status, done.output
        return done.stdout + done.stderr

    with lab.client(daemon) as client:
        register(client)
        settle(client)
        assert "flow" in echelon("new.yaml", "--dry-run")
        assert "echelon link move" in echelon("--moved", status=2)
        said = echelon("new.yaml", "--wait", status=1)
        assert "echelon link move --moved" in said
        # Ports stay where they are if the file does not say otherwise.
        assert "l1 port 4 - l4 port 4" in said.partition("come")[0]
        assert "l1 port 4 - l3 port 4" in said.partition("come")[2]
        assert any("echelon link move --moved" in problem for problem in client.status().problems)
        # Nothing was moved yet: the person thinks better of it.
        assert "links  stand" in echelon("old.yaml", "--wait")
        echelon("new.yaml", "--wait", status=1)
        echelon("--moved", "--wait")
        settle(client)
        assert {("l1", "l3"), ("l4", "l6")} < {(link.a, link.b) for link in client.links()}
        assert [event.action for event in client.events()][-1] == "links moved"
    # The new links hold after a restart, until the fabric file has others; then they are forgotten.
    for chords, chord in (
        (OPPOSITE, ("l1", "l3")),
        (OTHERS, ("l1", "l5")),
        (OPPOSITE, ("l1", "l4")),
    ):
        daemon.kill()
        (lab.directory / "fabric.yaml").write_text(yaml.safe_dump(fabric(*chords)))
        daemon = lab.daemon()
        with lab.client(daemon) as client:
            settle(client)
            assert chord in {(link.a, link.b) for link in client.links()}


def test_what_is_more_than_links_is_refused(build: Build) -> None:
    lab = build(fabric(*OPPOSITE))
    with lab.client(lab.daemon()) as client:
        register(client)
        settle(client)
        for link in ("l2", "l6"):
            client.set_link("l1", link, "drained")
        before = client.links()
        for kind, name, other in (("host", "h6", "h7"), ("switch", "l6", "s6")):
            document = json.loads(json.dumps(fabric(*OPPOSITE)).replace(f'"{name}"', f'"{other}"'))
            keys = {"host": "hosts", "switch": "switches"}
            missing = coded("refused", f"'{name}'", status=422, path=f"{keys[kind]}.{name}")
            with pytest.raises(ClientError, check=missing):
                client.move_links(document)
        no_port = coded("does-not-fit", "'l1'", "'l3'", "2 Gbit/s", status=422, path="links[12]")
        with pytest.raises(ClientError, check=no_port):
            client.move_links(fabric(*TURNED, rate="2 Gbit/s"))
        cut_off = coded("no-route", "2 jobs", ": across, near", status=422, path="")
        with pytest.raises(ClientError, check=cut_off):
            client.move_links(fabric((2, 5), (3, 6)))
        assert client.links() == before
        assert client.move().stage == "standing"
