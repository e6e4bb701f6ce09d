"""Tests of `echelon lab SCENARIO`: emulated hosts do the service's jobs in real time.

What is seen of them is what switches report, and what their ports count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.client import Client
from tests.echelon.lab.laboratories import (
    PATIENCE_S,
    await_ends,
    descendants,
    environment_in,
    held,
)
from tests.needs import needs

WHOLE_S = 5 * PATIENCE_S
"""The seconds that a laboratory and the commands in it may take."""
LAB = (sys.executable, "-m", "echelon", "lab")
LINKS = [("h1", "s1"), ("h2", "s1"), ("s1", "s2"), ("s1", "s3"), ("s2", "s4"), ("s3", "s4")]
LINKS += [("s4", "h3"), ("s4", "h4")]
TCP = {"by": "bytes", "source_port": 5001, "destination_port": 5002, "idle_gap": "20 ms"}


def job(name: str, workers: list[str], **more: Any) -> dict[str, Any]:
    """Return a job that iterates in a tenth of a second or little more."""
    data = {"compute": "50 ms", "gradient": "20 kB"}
    return {"job": name, "parallelism": "data", "workers": workers, "data": data, **more}


SCENARIO = {
    "scenario": "living",
    "fabric": {
        "fabric": "two_ways",
        "hosts": ["h1", "h2", "h3", "h4"],
        "switches": ["s1", "s2", "s3", "s4"],
        "links": [{"between": list(link), "rate": "20 Mbit/s"} for link in LINKS],
    },
    "jobs": [job("first", ["h1", "h3"]), job("second", ["h2", "h4"], recognition=TCP)],
    "background": [{"name": "there", "src": "h1", "dst": "h4", "rate": "100 kbit/s"}],
    "policies": ["echelon"],
}


@dataclass(frozen=True)
class Living:
    """A laboratory that runs, and a client of its service."""

    process: subprocess.Popen[str]
    client: Client
    directory: Path

    def iterations(self, name: str) -> float:
        """Return how often switches have timed the job."""
        start = f'echelon_job_iterations_total{{training_job="{name}"}} '
        for line in self.client.metrics().splitlines():
            if line.startswith(start):
                return float(line.removeprefix(start))
        return 0.0

    def await_more(self, *names: str) -> None:
        """Wait until each of these jobs has done some more iterations."""
        before = {name: self.iterations(name) for name in names}
        await_true(lambda: all(self.iterations(name) > before[name] + 2 for name in names))

    def sent(self) -> list[tuple[int, ...]]:
        """Return the counts of all queues of the first switch."""
        queues = self.client.queues("s1").queues
        return [(queue.port, queue.queue, queue.packets) for queue in queues]


def await_true(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "it does not happen"
        time.sleep(0.05)


def start(temporary: Path, scenario: dict[str, Any], *options: str) -> Living:
    """Start a laboratory whose shell waits for a word."""
    file = temporary / "scenario.yaml"
    file.write_text(yaml.safe_dump(scenario))
    process = subprocess.Popen(
        [*LAB, str(file), "--scale", "1", *options, "--run", "echo $ECHELON_URL $ECHELON_LAB; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment_in(temporary),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.communicate()
        raise AssertionError("the laboratory does not start")
    url, directory = line.split()
    return Living(process, Client(url, timeout_s=PATIENCE_S, retry_s=PATIENCE_S), Path(directory))


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yield a directory with a short name: that of a Unix socket in it has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="lab") as name:
        yield Path(name)


@pytest.fixture
def living(temporary: Path) -> Iterator[Living]:
    laboratory = start(temporary, SCENARIO)
    with laboratory.process as process, laboratory.client:
        yield laboratory
        process.kill()


def test_jobs_iterate_as_the_service_says_until_the_end(living: Living, temporary: Path) -> None:
    """Jobs iterate over the shim and over TCP. One that is submitted begins, one that is removed
    stops; another policy, and the death of a switch on a way, do not stop the others.
    """
    client = living.client
    living.await_more("first", "second")
    timed = client.job("first")
    assert timed.alone_iteration_s is not None
    assert min(timed.iteration_times_s) > 0.95 * timed.alone_iteration_s

    client.register_job(job("third", ["h2", "h3"]))
    living.await_more("third")

    ranked = client.plan().flows
    client.set_policy("fair")
    await_true(lambda: client.plan().policy == "fair" and client.plan().flows != ranked)
    living.await_more("first", "second", "third")

    way = next(flow.path for flow in client.plan().flows if flow.job == "first")
    killed = living.directory / f"{way[2]}.pid"
    left = held([int(killed.read_text())])
    os.kill(int(killed.read_text()), signal.SIGKILL)
    await_ends(left)
    # By the other way.
    living.await_more("first")

    for name in ("first", "second", "third"):
        client.remove_job(name)
    counts = [living.sent()]

    def is_quiet() -> bool:
        # Only background traffic goes on: less than the packets of an iteration.
        time.sleep(0.5)
        counts.append(living.sent())
        before, after = (sum(count[-1] for count in counted) for counted in counts[-2:])
        return after - before < 16

    await_true(is_quiet)
    assert sum(count[-1] for count in living.sent()) > 0

    assert living.process.stdin is not None
    left = held(descendants(living.process.pid))
    assert len(left) >= 6
    living.process.stdin.close()
    assert living.process.wait(PATIENCE_S) == 0
    await_ends(left)
    assert [path.name for path in temporary.iterdir()] == ["scenario.yaml"]


def test_kill_9_leaves_no_process(living: Living) -> None:
    left = held(descendants(living.process.pid))
    assert len(left) >= 6
    living.process.kill()
    living.process.wait(PATIENCE_S)
    assert living.process.stdin is not None
    living.process.stdin.close()
    await_ends(left)


def test_job_files_are_scaled_by_a_command(temporary: Path) -> None:
    """The fabric of a scenario at scale 1/4 has a quarter of the rates, and `scaled` a quarter of
    the sizes: alone, a job takes as long as before.
    """
    file = temporary / "scenario.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    third = temporary / "third.yaml"
    third.write_text(yaml.safe_dump(job("third", ["h2", "h3"])))
    script = (
        f"scaled {third} | echelon job submit - --wait > $ECHELON_LAB/said;"
        " echelon job show third --json; scaled nothing.yaml; echo $?"
    )
    done = subprocess.run(
        [*LAB, str(file), "--scale", "1/4", "--run", script],
        env=environment_in(temporary),
        capture_output=True,
        text=True,
        timeout=WHOLE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown, _, status = done.stdout.strip().rpartition("\n")
    third_job = yaml.safe_load(shown)
    assert third_job["spec"]["data"]["gradient"] == "5000 B"
    assert status == "1"
    assert "scale 1/4: " in done.stderr
    assert "nothing.yaml" in done.stderr


def counter(text: str, protocol: str, name: str) -> int:
    """Return a counter of /proc/net/snmp: a line of names comes before one of numbers."""
    names, numbers = (line.split() for line in text.splitlines() if line.startswith(protocol))
    return int(dict(zip(names, numbers, strict=True))[name])


@needs("the laboratory's sandbox", "ping")
@pytest.mark.parametrize(
    "target",
    [
        "softswitch",
        pytest.param("bmv2", marks=[pytest.mark.long, pytest.mark.bmv2, needs("bmv2")]),
    ],
)
def test_hosts_have_shells_beside_the_jobs(temporary: Path, target: str) -> None:
    """Kernels of hosts, which see the frames of jobs, answer none of them: TCP goes on."""
    file = temporary / "scenario.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    script = (
        # A line of its own for each time of an iteration.
        "until echelon job show second --json | grep -q '^    0[.]'; do sleep 0.2; done;"
        " host h1 ping -c 2 10.0.0.3; host h3 cat /proc/net/snmp"
    )
    done = subprocess.run(
        [*LAB, str(file), "--scale", "1", "--hosts", "--target", target, "--run", script],
        env=environment_in(temporary),
        capture_output=True,
        text=True,
        timeout=WHOLE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 received, 0% packet loss" in done.stdout
    assert counter(done.stdout, "Icmp:", "OutDestUnreachs") == 0
    assert counter(done.stdout, "Tcp:", "OutRsts") == 0
    assert [path.name for path in temporary.iterdir()] == ["scenario.yaml"]


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, ["--scale", "2"], "--scale: 2 "),
        ({}, ["--scale", "much"], "--scale: 'much' is not a number"),
        ({"control_latency": "1 ms"}, [], "control_latency: cannot be set on real switches"),
        ({"jobs": [job("first", ["h1", "h9"])]}, [], "'h9'"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(
    temporary: Path, change: dict[str, Any], options: list[str], said: str
) -> None:
    file = temporary / "scenario.yaml"
    file.write_text(yaml.safe_dump({**SCENARIO, **change}))
    done = CliRunner().invoke(app, ["lab", str(file), *options, "--run", "exit 7"])
    assert done.exit_code in (1, 2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert said in done.stderr


def test_a_scale_goes_with_a_scenario_only(temporary: Path) -> None:
    file = temporary / "fabric.yaml"
    file.write_text(yaml.safe_dump(SCENARIO["fabric"]))
    done = CliRunner().invoke(app, ["lab", str(file), "--scale", "1/2", "--run", "exit 7"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--scale: goes with a scenario only" in done.stderr
