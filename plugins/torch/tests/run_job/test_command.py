"""`echelon run-job` as a command: what the program gets, its end, and mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.client import Client, ClientError
from echelon.controller.resources.plan import ClassesResource, ClassResource
from echelon_torch.run_job.answering import GroupClasses
from plugins.torch.tests.run_job.layouts import hosts, layout, mesh
from tests.faults import mentions

REQUESTS = (signal.SIGINT, signal.SIGTERM)
SHOW = """
import json, os, sys
names = ("NCCL_IB_TC", "NCCL_IB_SL", "ECHELON_TRAFFIC_CLASSES", "ECHELON_CLASSES_SOCKET")
found = {name: os.environ.get(name) for name in names}
found["hook"] = "sitecustomize" in sys.modules and sys.modules["sitecustomize"].__file__
open(sys.argv[1], "w").write(json.dumps(found))
raise SystemExit(int(sys.argv[2]))
"""
DATA = {"data": {"compute": "1 ms", "gradient": "1 MB"}}


def classes_of(*queues: int | None) -> ClassesResource:
    """Return a job with an EchelonFlow of each of these queues."""
    groups = []
    for number, queue in enumerate(queues):
        dscp = None if queue is None else 8 * queue
        byte = None if dscp is None else dscp << 2 | 2
        name = "all-reduce" if number == 0 else f"g{number}"
        group = ClassResource(echelonflow=name, queue=queue, dscp=dscp, traffic_class=byte)
        groups.append(group)
    return ClassesResource(job="bert", policy="p", classes=tuple(groups))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let a service know jobs whose hosts are h1 and h2."""
    known = SimpleNamespace(classes=classes_of(5), jobs=["bert"])
    spec = {"job": "bert", "parallelism": "data", "workers": hosts(2), **DATA}

    def jobs(_client: Client, worker: str) -> list[Any]:
        return [SimpleNamespace(name=name) for name in known.jobs if worker in hosts(2)]

    def connections(_client: Client, _job: str) -> Any:
        return SimpleNamespace(addresses={"h1": "10.0.0.1", "h2": "10.0.0.2"})

    monkeypatch.setattr(Client, "jobs", jobs)
    monkeypatch.setattr(Client, "classes", lambda _client, _job: known.classes)
    monkeypatch.setattr(Client, "job", lambda _client, _job: SimpleNamespace(spec=spec))
    monkeypatch.setattr(Client, "connections", connections)
    return known


def called(*words: str, worker: str = "h1") -> Any:
    command = ["run-job", "--worker", worker, *words]
    return CliRunner().invoke(app, command, env={"ECHELON_URL": "unix:/nobody"})


@pytest.mark.parametrize(
    ("queues", "wanted"),
    [
        ((5,), ["162", "5", None]),
        ((5, 2), [None, "0", "all-reduce=162,g1=66"]),
    ],
)
def test_the_program_gets_the_environment_and_the_hook(
    service: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    queues: Sequence[int],
    wanted: Sequence[str | None],
) -> None:
    service.classes = classes_of(*queues)
    monkeypatch.setenv("NCCL_IB_TC", "7")
    handlers = [signal.getsignal(number) for number in REQUESTS]
    done = called("--", sys.executable, "-c", SHOW, str(tmp_path / "found"), "3")
    assert done.exit_code == 3, done.output
    found = json.loads((tmp_path / "found").read_text())
    names = ("NCCL_IB_TC", "NCCL_IB_SL", "ECHELON_TRAFFIC_CLASSES")
    assert [found[name] for name in names] == wanted
    assert Path(found["hook"]).parent.name == "injected"
    assert not Path(found["ECHELON_CLASSES_SOCKET"]).exists(), "it goes with the command"
    assert mentions(done.stderr, "job bert", "policy p")
    after = [signal.getsignal(number) for number in REQUESTS]
    assert after == handlers, "this process may be interrupted again"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--", "no-such-command"], ["no-such-command", "PATH"]),
        (["--worker", "h9", "--", "true"], ["h9", "h1, h2"]),
        ([], ["COMMAND"]),
    ],
)
def test_a_mistake_is_one_line(
    service: SimpleNamespace, words: Sequence[str], wanted: Sequence[str]
) -> None:
    done = called(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert mentions(done.stderr, *wanted)


@pytest.mark.parametrize("jobs", [[], ["bert", "gpt"]])
def test_which_job_it_is_has_to_be_clear(service: SimpleNamespace, jobs: list[str]) -> None:
    service.jobs = jobs
    done = called("--", "true")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert mentions(done.stderr, "--job", "h1", ", ".join(jobs) or "none")
    assert called("--job", "bert", "--", "true").exit_code == 0


def test_a_policy_that_ranks_packets_starts_no_command(
    service: SimpleNamespace, tmp_path: Path
) -> None:
    service.classes = classes_of(None)
    done = called("--", "touch", str(tmp_path / "started"))
    assert done.exit_code == 2
    assert mentions(done.stderr, "packet by packet")
    assert not (tmp_path / "started").exists()


STARTED = """
import sys
from echelon_torch import run_job_command
print(run_job_command._run([sys.executable, "-c", sys.argv[1]], None, "a title"))
"""
SLEEPS = "print('sleeping', flush=True); import time; time.sleep(1000)"


def test_a_request_to_end_reaches_the_program() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTED, SLEEPS], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "sleeping\n"
    parent.send_signal(signal.SIGTERM)
    assert parent.communicate(timeout=60)[0] == f"{-signal.SIGTERM}\n"
    assert parent.returncode == 0


def test_groups_get_the_classes_of_the_newest_plan_and_lines_are_said_once() -> None:
    lines: list[str] = []
    job = layout(**mesh(8))
    queue, refusal = [5], []

    def classes(_job: str) -> ClassesResource:
        if refusal:
            raise refusal[0]
        groups = []
        for each in job.traffic:
            byte = queue[0] << 5 | 2
            group = ClassResource(
                echelonflow=each.echelonflow,
                queue=queue[0],
                dscp=queue[0] << 3,
                traffic_class=byte,
            )
            groups.append(group)
        return ClassesResource(job="gpt", policy="p", classes=tuple(groups))

    addresses = {f"h{number + 1}": f"10.0.0.{number + 1}" for number in range(8)}
    client: Any = SimpleNamespace(
        classes=classes, connections=lambda _job: SimpleNamespace(addresses=addresses)
    )
    answering = GroupClasses(client, "gpt", job, ("h1",), lines.append)
    group = {"rank": 0, "world": 8, "ranks": [0, 4], "description": "dp", "nccl": True}
    assert answering.answer(group)["tos"] == {"10.0.0.5": 160}
    answering.answer({**group, "ranks": [0, 3], "description": ""})
    assert "not marked" in lines[-1]
    assert "NCCL_IB_TC" in lines[-1], "it holds for all groups"
    del lines[-1]
    queue[0] = 3
    assert answering.answer(group)["traffic_class"] == 3 << 5 | 2
    refusal.append(ClientError(None, "nobody answers"))
    assert answering.answer(group)["tos"] == {"10.0.0.5": 96}
    assert answering.answer({"say": "something"}) == answering.answer({"say": "something"}) == {}
    assert [line.partition(":")[0] for line in lines] == [
        "the group of ranks 0, 4 (dp)",
        "the group of ranks 0, 4 (dp)",
        "classes are those of before, since the service does not answer",
        "something",
    ]
