"""Agents, service and switch together: an unmodified program in namespaces, on ports of the
kernel's choice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from echelon_lab.endhosts.shim import HEADER_BYTES
from tests.needs import needs

pytestmark = [
    pytest.mark.xdist_group("agent"),
    needs("the laboratory's sandbox"),
]
ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 180.0


def seen(*options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "plugins.torch.tests.agent.inside", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ":".join(map(str, (ROOT, ROOT / "tests")))},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(
        next(line for line in done.stdout.splitlines() if '"lines": ' in line)
    )
    return found


def check(found: dict[str, Any]) -> None:
    packets, carried = zip(*found["counted"].values(), strict=True)
    assert sum(packets) >= 300_000 // 1448
    assert sum(carried) >= 300_000
    assert found["reconnected"] == 2
    assert found["programs_go_on"] == 2, "a killed agent ends the program that it watches"


@needs("eBPF")
def test_connections_are_recognised_and_a_killed_agent_leaves_nothing() -> None:
    found = seen()
    check(found)
    assert found["during"] == [2, 2, 2]
    assert all(
        "eBPF" in lines[0] and "no eBPF" not in lines[0] for lines in found["lines"].values()
    )


@pytest.mark.long
@needs("eBPF")
def test_an_agent_that_comes_later_reports_what_is_open_already_and_leaves_it_reported() -> None:
    assert seen("--watch").items() >= {"watched": [2, 3], "status": 0, "kept": 6}.items()


@pytest.mark.long
def test_without_ebpf_the_agent_says_so_and_does_the_same() -> None:
    found = seen("--no-ebpf")
    check(found)
    assert found["during"][:2] == [0, 0]
    assert all("no eBPF here" in lines[0] for lines in found["lines"].values())


@pytest.mark.long
def test_iterations_are_measured_and_the_file_s_sizes_corrected() -> None:
    found = seen("--iterations")
    measured, size = found["measured"], found["size"]
    assert measured["host"] == "h2"
    assert measured["sent_bytes"] == {"h1": 1_600_000}
    assert all(0.2 < time_s < 30 for time_s in measured["iteration_times_s"])
    assert size["measured_bytes"] == size["used_bytes"] == 1_600_000
    assert 0 < size["profiled_bytes"] < 1_600_000


@pytest.mark.long
def test_a_polled_store_breaks_no_silence_and_counts_no_bytes() -> None:
    found = seen("--polled")
    # The connection of the store is not reported any more.
    assert found["reported"] == 2
    assert found["size"]["used_bytes"] == 1_600_000
    # A reading that comes late on a busy machine takes iterations together, but none has a byte of
    # the polling.
    assert found["measured"]["sent_bytes"]["h1"] % 1_600_000 == 0


@pytest.mark.long
def test_switches_recognise_datagrams_of_the_page_s_program() -> None:
    # Three iterations of two flows, each of 10,000 bytes in 8 datagrams.
    found = seen("--udp")
    assert len(found["counted"]) == 2
    assert all(
        count == [3 * 8, 3 * (10_000 + 8 * HEADER_BYTES)] for count in found["counted"].values()
    ), found


@pytest.mark.long
@needs("torch")
def test_what_is_reported_of_a_job_of_pytorch_is_what_the_kernel_knows() -> None:
    rounds = seen("--training")["rounds"]
    assert len(rounds) == 3
    for one in rounds:
        # At least one of gloo's connections, and none of the store's.
        assert one["h1"]
        assert {tuple(ports) for ports in one["h1"]} == {
            (local, remote) for remote, local in one["h2"]
        }
    # Every round has new connections; PyTorch keeps some of those of the rounds before.
    seen_before: set[tuple[int, int]] = set()
    for one in rounds:
        ports = {(local, remote) for local, remote in one["h1"]}
        assert ports - seen_before
        seen_before |= ports
