"""The policy reaches the packets through P4Runtime and gNMI, and through nothing else.

That its modules cannot import anything else is a contract of import-linter (pyproject.toml).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import number_shims
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.scenarios.scenario import Background, Scenario
from echelon_lab.virtual.embedded import VirtualTestbed
from echelon_lab.virtual.run import run
from tests.faults import coded

pytestmark = pytest.mark.io


KINDS = {
    "arbitration", "capabilities", "set_pipeline", "get_pipeline", "read", "write", "digest_ack",
    "gnmi_capabilities", "gnmi_get", "gnmi_set", "gnmi_subscribe",
}  # fmt: skip
"""P4Runtime's and gNMI's messages from a controller, as switches log them."""


def test_addresses_are_text(fig2: Scenario) -> None:
    with VirtualTestbed(fig2.fabric) as testbed:
        assert {name: type(address) for name, address in testbed.addresses.items()} == {
            "s1": str,
            "s2": str,
        }


def log_of_a_run(scenario: Scenario, policy: str) -> dict[str, list[tuple[int, str]]]:
    logs: dict[str, list[tuple[int, str]]] = {}

    def observe(testbed: VirtualTestbed, emulator: TrainingEmulator) -> None:
        assert emulator.done
        logs.update({name: list(testbed.rpc_log(name)) for name in testbed.switches})

    run(scenario, policy, lambda: make_policy(policy), lambda job, iteration: None, observe)
    return logs


def test_echelon_sends_no_message_during_a_run(fig2: Scenario) -> None:
    logs = log_of_a_run(replace(fig2, iterations=2), "echelon")
    assert set(logs) == {"s1", "s2"}
    for log in logs.values():
        assert {kind for _, kind in log} <= KINDS
        # The first packet leaves after 1 s of computing: what was written was written before, and
        # that was all.
        assert {time_ns for time_ns, _ in log} == {0}
        assert {"set_pipeline", "write"} <= {kind for _, kind in log}


def test_a_central_scheduler_does(fig2: Scenario) -> None:
    logs = log_of_a_run(fig2, "varys")
    for log in logs.values():
        assert {kind for _, kind in log} <= KINDS
        assert {"gnmi_set", "digest_ack"} <= {kind for time_ns, kind in log if time_ns > 0}


@pytest.mark.parametrize(
    ("policy", "during"), [("echelon", False), ("fair", False), ("varys", True)]
)
def test_messages_are_counted_from_the_first_event_to_the_last(
    fig2: Scenario,
    staged: Callable[[Scenario, str], AbstractContextManager[Any]],
    policy: str,
    during: bool,
) -> None:
    """The counts are as above, without trust in the time that the log gives."""
    with staged(fig2, policy) as stage:
        before = {name: len(stage.testbed.rpc_log(name)) for name in stage.testbed.switches}
        assert all(before.values())
        stage.run()
        after = {name: len(stage.testbed.rpc_log(name)) for name in before}
        assert {name: after[name] > before[name] for name in before} == dict.fromkeys(
            before, during
        )


def test_without_a_message_no_packet_gets_through(fig2: Scenario) -> None:
    """Switches that nobody programmed forward nothing, so no default can hide behind a policy."""
    background = Background("bg", "h1", "h2", 100_000, 1250)
    with VirtualTestbed(fig2.fabric) as testbed:
        emulator = TrainingEmulator(
            testbed.clock,
            testbed.nics,
            fig2.fabric,
            fig2.jobs,
            number_shims(fig2.jobs),
            transport=replace(fig2.transport, retransmit_after_s=Fraction(1, 100)),
            iterations=1,
            background=[background],
        )
        arrived: list[str] = []
        for name in emulator.hosts:
            testbed.receive_with(name, lambda now_ns, frame, name=name: arrived.append(name))
        emulator.start()
        names = ("job pipeline: flow activation-s1-m1 from h1 to h2 ", "16 time-outs")
        with pytest.raises(RunError, check=coded("run-failed", *names)):
            testbed.run(lambda: emulator.done)
        assert arrived == []
        first = testbed.switches["s1"]
        assert first.packets_in > 10
        assert first.packets_dropped == first.packets_in
        assert all(switch.packets_out == 0 for switch in testbed.switches.values())
        assert all(list(testbed.rpc_log(name)) == [] for name in testbed.switches)
