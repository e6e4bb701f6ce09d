"""Reconciliation against BMv2, whose P4Runtime server is another implementation."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.lowering.capabilities import softswitch
from echelon.lowering.identity import number_shims
from echelon.lowering.lower import lower
from echelon.p4program import program
from echelon.policies import PARAMETERS, make_policy
from echelon.southbound.session import SwitchSession
from echelon.testbed.scenario import load_scenario

BMV2 = "simple_switch_grpc"
SCENARIOS = Path(__file__).parents[3] / "topologies" / "scenarios"

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(shutil.which(BMV2) is None, reason=f"{BMV2} is not installed"),
]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.fixture
def address() -> Iterator[str]:
    """A switch without interfaces and without a program."""
    found = f"127.0.0.1:{free_port()}"
    command = [BMV2, "--no-p4", "--device-id", "1", "--thrift-port", str(free_port())]
    process = subprocess.Popen(
        [*command, "--", "--grpc-server-addr", found], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", int(found.rpartition(":")[2]))) == 0:
                    break
            time.sleep(0.05)
        yield found
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("policy", ["fair", "echelon"])
def test_a_second_reconcile_finds_nothing_to_do(address: str, policy: str) -> None:
    scenario = load_scenario(SCENARIOS / "shared_link.yaml", PARAMETERS)
    plan = make_policy(policy).plan(scenario.jobs, scenario.fabric)
    intent = lower(plan, scenario.fabric, number_shims(scenario.jobs), softswitch())["leaf1"]
    # BMv2's queues are not configured by gNMI.
    intent = replace(intent, queues=())

    async def reconcile_twice() -> tuple[int, int]:
        async with SwitchSession("leaf1", address, 1, program()) as session:
            return len(await session.reconcile(intent)), len(await session.reconcile(intent))

    assert asyncio.run(asyncio.wait_for(reconcile_twice(), 60)) == (len(intent.entries), 0)
