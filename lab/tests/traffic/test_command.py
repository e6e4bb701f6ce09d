"""`echelon traffic`: send and receive, as commands."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon_lab.traffic.outcome import FlowOutcome, read_outcomes
from echelon_lab.traffic.replay import Replay
from echelon_lab.traffic.schedule import ScheduledFlow, read_schedule
from tests.echelon.lab.traffic.test_traffic_command import SMALL, bad, good
from tests.faults import mentions

ROOT = Path(__file__).parents[3]
FABRIC = ROOT / "topologies" / "dumbbell_2.yaml"


@contextmanager
def receiving(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "echelon", "traffic", "receive", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "controller")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("receiving at 127.0.0.1:")
            yield process, int(line.rpartition(":")[2])
        finally:
            process.terminate()


def test_flows_are_sent_and_reported(tmp_path: Path) -> None:
    file, out = tmp_path / "schedule.csv", tmp_path / "outcomes.csv"
    good("generate", "consistent", *SMALL, "-o", file)
    flows = read_schedule(file).flows
    with receiving("--listen", "127.0.0.1:0", "--processes", "1") as (receiver, port):
        where = ["--from", "a", "--host", f"b=127.0.0.1:{port}", "--processes", "2"]
        report = good(
            "send", file, *where, "-o", out, "--interval", "100ms", "--capacity", "1 Gbit/s"
        )
        told = json.loads(good("send", file, *where, "--json"))
        receiver.send_signal(signal.SIGTERM)
        assert receiver.stdout is not None
        last = receiver.stdout.read()
        assert receiver.wait() == 0
    assert last.startswith(f"received {2 * len(flows)} flows")
    assert [outcome.flow for outcome in read_outcomes(out)] == list(flows)
    for word in ("offered load", "achieved load", "completion time", "slowdown", "started late by"):
        assert word in report
    assert "failed" not in report
    assert [line.split()[0] for line in report.splitlines()[-3:]] == ["0", "100", "200"]
    assert (told["flows"], told["failed"], told["unfinished"]) == (len(flows), 0, 0)


def test_failed_flows_are_told_by_reason_and_status(tmp_path: Path) -> None:
    file, out = tmp_path / "schedule.csv", tmp_path / "outcomes.csv"
    file.write_text("start_us,src,dst,bytes\n0,h1,h2,10\n5,h1,h2,10\n")
    arguments = [
        "traffic",
        "send",
        str(file),
        "--from",
        "h1",
        "--host",
        "h2=127.0.0.1:1",
        "-o",
        str(out),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "failed           2 Connection refused" in result.stdout
    assert [outcome.failed for outcome in read_outcomes(out)] == ["Connection refused"] * 2


def test_an_interrupted_sender_reports_what_it_has(tmp_path: Path) -> None:
    file, out = tmp_path / "schedule.csv", tmp_path / "outcomes.csv"
    file.write_text("start_us,src,dst,bytes\n0,a,b,10\n3600000000,a,b,10\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "controller")}
    with receiving("--listen", "127.0.0.1:0") as (_, port):
        command = [sys.executable, "-m", "echelon", "traffic", "send", str(file), "--from", "a"]
        command += ["--host", f"b=127.0.0.1:{port}", "-o", str(out)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as sender:
            tree = Path(f"/proc/{sender.pid}/task/{sender.pid}/children")
            while not tree.read_text().split():
                assert sender.poll() is None
            sender.send_signal(signal.SIGTERM)
            report, _ = sender.communicate()
        assert sender.returncode == 0
    assert "left out" in report
    assert len(read_outcomes(out)) <= 1


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["receive", "--listen", "here"], "--listen: 'here'"),
        (["receive", "--listen", "127.0.0.1:99999"], "--listen: '127.0.0.1:99999'"),
        (["send", "x.csv", "--from", "a", "--host", "b"], "--host: 'b'"),
        (["send", "x.csv", "--from", "a", "--interval", "0"], "--interval: '0'"),
        (["send", "x.csv", "--from", "a", "--begin", "nan"], "--begin: nan"),
        (["send", "x.csv", "--from", "a", "--begin", "inf"], "--begin: inf"),
        (["send", "x.csv", "--from", "a", "--capacity", "0"], "--capacity: '0'"),
        (["send", "x.csv"], "'--from'"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert mentions(bad(*arguments), place)
    assert not list(tmp_path.iterdir())


def test_what_this_machine_cannot_do_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "schedule.csv"
    file.write_text("start_us,src,dst,bytes\n0,a1,b1,10\n")
    listening = bad("receive", "--listen", "192.0.2.1", status=1)
    assert mentions(listening, "192.0.2.1:5600", os.strerror(errno.EADDRNOTAVAIL))
    assert mentions(bad("send", file, "--from", "a9", status=1), "a9")
    assert mentions(bad("send", file, "--from", "a1", status=1), "host b1", "--host b1=ADDRESS")
    # The fabric's addresses are those of hosts in namespaces, not here.
    elsewhere = bad("send", file, "--from", "a1", "--fabric", FABRIC, status=1)
    assert mentions(elsewhere, "a1", "10.0.0.1", os.strerror(errno.EADDRNOTAVAIL))


def test_mistakes_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "schedule.csv"
    file.write_text("start_us,src,dst,bytes\n0,a,b,10\n9000000,a,b,10\n")
    send = ["send", file, "--from", "a", "--host", "b=127.0.0.1:1"]
    absent = tmp_path / "no" / "x.csv"
    unwritable = bad(*send, "-o", absent)
    assert mentions(unwritable, f"--out: {absent}", os.strerror(errno.ENOENT))
    assert mentions(bad(*send, "--interval", "1ns"), "--interval: 1ns", "100000")
    assert [entry.name for entry in tmp_path.iterdir()] == ["schedule.csv"]


def test_intervals_are_of_all_that_was_sent() -> None:
    outcomes = tuple(
        FlowOutcome(ScheduledFlow(at, "a", "b", 100), at / 1e6, at / 1e6 + 0.1)
        for at in (0, 850_000)
    )
    replay = Replay(outcomes, 1.0, 1.0, 0, 0)
    for length_s, starts in (
        (0.7, [0, 0.7]),
        (0.6, [0, 0.6]),
        (0.25, [0, 0.25, 0.5, 0.75]),
        (0.1, 10),
        (3.0, [0]),
    ):
        parts = replay.intervals(length_s)
        assert (
            len(parts) == starts
            if isinstance(starts, int)
            else [start for start, _ in parts] == starts
        )
        ends = [*(start for start, _ in parts[1:]), 1.0]
        total = sum(
            part.offered_bps * (end - start) for (start, part), end in zip(parts, ends, strict=True)
        )
        assert total == pytest.approx(1600)
