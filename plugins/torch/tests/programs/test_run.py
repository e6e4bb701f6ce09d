"""Programs as the workers of a job on real hosts: `echelon run` from its start to its end, however
it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from echelon_torch.agent import groups
from echelon_torch.agent.connection import AgentError
from plugins.torch.tests.agent import kernel
from tests.echelon.lab.hosts.conftest import MARK, ROOT
from tests.echelon.lab.hosts.test_everything import what_is_outside
from tests.faults import mentions
from tests.needs import needs

pytestmark = [
    # Tests of the agent look at the same groups and programs.
    pytest.mark.xdist_group("agent"),
    needs("the laboratory's sandbox"),
]
TRAINER = Path(__file__).with_name("trainer.py")
PATIENCE_S = 180.0
ITERATIONS = 5
LINKS = [{"between": [host, "s1"], "rate": "20 Mbit/s", "delay": "10 us"} for host in ("h1", "h2")]


def scenario(directory: Path, steps: int, **more: Any) -> Path:
    """Return a scenario with a job of programs that make so many steps."""
    job = {
        "job": "real",
        "parallelism": "data",
        "workers": ["h1", "h2"],
        "data": {"compute": "100 ms", "gradient": "100 kB"},
        "recognition": {"by": "agent", "idle_gap": "40 ms"},
    }
    document = {
        "scenario": "programs",
        "fabric": {"fabric": "one", "hosts": ["h1", "h2"], "switches": ["s1"], "links": LINKS},
        "jobs": [job, *more.pop("jobs", ())],
        "commands": {"real": f"python {TRAINER} {steps} {directory / 'step'}"},
        "policies": ["echelon"],
        "iterations": ITERATIONS,
        **more,
    }
    file = directory / "scenario.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def start(file: Path, mark: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "echelon",
        "run",
        str(file),
        "--on",
        "namespaces",
        "-o",
        str(file.parent / "out"),
    ]
    path = ":".join(map(str, (ROOT / "controller", ROOT)))
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def marked(mark: str) -> list[int]:
    """Return the processes of a run, in whatever namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue  # it has just ended
            if f"{MARK}={mark}".encode() in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def held() -> frozenset[str]:
    """Return what runs and agents hold here: interfaces, namespaces, files, groups, and programs of
    the kernel.
    """
    interfaces, namespaces, files = what_is_outside()
    found = {f"interface {name}" for name in interfaces} | {f"file {name}" for name in files}
    found |= {f"namespace {line}" for line in namespaces.splitlines()}
    with suppress(AgentError):
        found |= {f"group {path.name}" for path in groups.own_group().glob("echelon-*")}
    if kernel.why_no_ebpf() is None:
        found |= {f"program {number}" for number in kernel.programs()}
        found |= {f"link {number}" for number in kernel.links()}
    return frozenset(found)


def wait_nothing_left(before: frozenset[str]) -> None:
    """Wait until nothing is there that was not. Others on this machine may come and go."""
    wait(lambda: held() <= before, f"left: {sorted(held() - before)}")


def results(file: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((file.parent / "out" / "results.json").read_text())[
        "results"
    ]["echelon"]
    return found


def test_programs_run_beside_emulated_jobs_and_are_recognised(tmp_path: Path) -> None:
    emulated = {
        "job": "emulated",
        "parallelism": "data",
        "workers": ["h1", "h2"],
        "data": {"compute": "100 ms", "gradient": "20 kB"},
    }
    file, before = scenario(tmp_path, 10_000, jobs=[emulated]), held()
    run = start(file, uuid.uuid4().hex)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    jobs, switches = results(file)["jobs"], results(file)["switches"]
    assert min(len(of["iteration_times_s"]) for of in jobs.values()) == ITERATIONS
    real = jobs["real"]
    assert [
        (flow["name"], flow["iteration"], flow["src"], flow["dst"], flow["bytes"])
        for flow in real["flows"]
    ] == [
        (f"all-reduce-0-{src}", number, src, dst, 100_000)
        for number in range(1, len(real["iteration_times_s"]) + 1)
        for src, dst in (("h1", "h2"), ("h2", "h1"))
    ]
    # Iterations follow each other: the job is never between two.
    ends = [
        max(flow["finish_s"] for flow in real["flows"] if flow["iteration"] == number)
        for number in range(1, 6)
    ]
    assert sum(real["iteration_times_s"][:5]) == pytest.approx(ends[-1])
    # A digest for each iteration and direction that has ended: the emulated job's alone would be
    # fewer.
    own = 2 * len(jobs["emulated"]["iteration_times_s"])
    assert switches["s1"]["digests"] >= 2 * own, switches
    wait_nothing_left(before)


@pytest.mark.long
def test_a_program_that_ends_before_the_run_does_is_one_line(tmp_path: Path) -> None:
    run = start(scenario(tmp_path, 5), uuid.uuid4().hex)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1
    [line] = [line for line in errors.splitlines() if line.startswith(str(tmp_path))]
    assert "job real: its program on h" in line
    assert mentions(line, "status 0")


def test_nothing_remains_after_kill_9(tmp_path: Path) -> None:
    before, mark = held(), uuid.uuid4().hex
    run = start(scenario(tmp_path, 10_000, iterations=10_000), mark)
    try:
        step = tmp_path / "step"
        wait(
            lambda: step.exists() and step.read_text() not in ("", "1", "2", "3"),
            "the programs do not train",
        )
        assert len(marked(mark)) >= 7, (
            "a controller, a switch, two programs with their agents, and who starts them"
        )
        assert held() - before
    finally:
        run.kill()
        run.communicate()
    wait(lambda: not marked(mark), "processes go on")
    wait_nothing_left(before)


def wait(condition: Callable[[], object], problem: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, problem
        time.sleep(0.1)
