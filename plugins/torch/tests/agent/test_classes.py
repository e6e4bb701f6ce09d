"""Traffic classes of process groups: read from the environment, and given by the agent."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.controller.client import Client
from echelon.controller.resources.plan import ClassesResource, ClassResource
from echelon_torch import nccl_options, traffic_classes
from echelon_torch.agent.watching import Agent
from tests.faults import mentions

VARIABLE = "ECHELON_TRAFFIC_CLASSES"


def torch_with(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Let `torch.distributed` be one whose process groups have these options."""
    config = SimpleNamespace(**options)
    group = SimpleNamespace(Options=lambda: SimpleNamespace(config=config))
    torch = ModuleType("torch")
    torch.distributed = SimpleNamespace(ProcessGroupNCCL=group)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_options_of_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "dp=162,a=b=66")
    assert traffic_classes() == {"dp": 162, "a=b": 66}
    torch_with(monkeypatch, traffic_class=None)
    assert nccl_options("dp").config.traffic_class == 162
    torch_with(monkeypatch, traffic_class=None)
    assert nccl_options("pp").config.traffic_class is None, "the plan gives it none"
    monkeypatch.delenv(VARIABLE)
    assert nccl_options("dp").config.traffic_class is None


def test_a_pytorch_that_has_no_such_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "dp=162")
    torch_with(monkeypatch)
    with pytest.raises(RuntimeError, match=r"PyTorch 2\.8 with NCCL 2\.26.* = 162"):
        nccl_options("dp")


@pytest.mark.parametrize("text", ["dp", "dp=256", "=3", "dp=x"])
def test_a_variable_of_somebody_else(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=VARIABLE):
        traffic_classes()


def classes(*queues: int | None) -> ClassesResource:
    groups: list[ClassResource] = []
    for number, queue in enumerate(queues):
        dscp = None if queue is None else 8 * queue
        byte = None if dscp is None else dscp << 2 | 2
        group = ClassResource(echelonflow=f"g{number}", queue=queue, dscp=dscp, traffic_class=byte)
        groups.append(group)
    return ClassesResource(job="bert", policy="crux", classes=tuple(groups))


@pytest.mark.parametrize(
    ("queues", "variables"),
    [
        ((5, 5), {"NCCL_IB_TC": "162", "NCCL_IB_SL": "5", VARIABLE: None}),
        ((5, 2), {VARIABLE: "g0=162,g1=66", "NCCL_IB_SL": "0", "NCCL_IB_TC": None}),
    ],
)
def test_the_agent_gives_them_to_its_command(
    monkeypatch: pytest.MonkeyPatch, queues: tuple[int, ...], variables: dict[str, str | None]
) -> None:
    calls: list[Any] = []

    def run(_agent: Agent, command: list[str], environment: dict[str, str]) -> int:
        calls.extend([command, environment])
        return 0

    # What an earlier `eval` may have left.
    monkeypatch.setenv("NCCL_IB_TC", "7")
    monkeypatch.setenv(VARIABLE, "g0=66,g1=162")
    monkeypatch.setattr(Agent, "run", run)
    monkeypatch.setattr(Client, "classes", lambda _client, _job: classes(*queues))
    words = ["agent", "run", "--classes", "--job", "bert", "--worker", "h1", "--", "train"]
    done = CliRunner().invoke(app, words, env={"ECHELON_URL": "unix:/nobody"})
    assert done.exit_code == 0, done.output
    command, environment = calls
    assert command == ["train"]
    assert {name: environment.get(name) for name in variables} == variables
    assert environment["PATH"] == os.environ["PATH"]
    assert mentions(done.stderr, "job bert", "crux")


def test_without_a_lasting_class_the_command_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Client, "classes", lambda _client, _job: classes(None))
    monkeypatch.setattr(Agent, "run", lambda *_: json.loads("not reached"))
    words = ["agent", "run", "--classes", "--job", "bert", "--worker", "h1", "--", "train"]
    done = CliRunner().invoke(app, words, env={"ECHELON_URL": "unix:/nobody"})
    assert done.exit_code == 2
    assert mentions(done.stderr, "--classes", "packet by packet")
