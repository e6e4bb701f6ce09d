"""The controller around real switches in virtual time: plan, events, new plan.

Times and weights of Fig. 2 by hand.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.planning.policies import make_policy
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.targets import TARGETS
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.virtual.controller import VirtualController
from echelon_lab.virtual.embedded import VirtualTestbed
from echelon_lab.virtual.run import believed, run, sessions
from tests.faults import coded

pytestmark = pytest.mark.io


Staged = Callable[[Scenario, str], AbstractContextManager[Any]]

BOTTLENECK = ("s1", "s2")
NS = 10**9


def scheduler_port(stage: Any, scenario: Scenario) -> Any:
    return stage.testbed.switches["s1"].ports[scenario.fabric.port_to[BOTTLENECK]]


def queue_of_each_flow(stage: Any, scenario: Scenario) -> list[int]:
    plan = stage.controller.machine.in_force.planned.plan
    return [
        next(f.ranking.queue for f in plan.flows if f.flow == flow.name)
        for flow in scenario.jobs[0].flows
    ]


def test_varys_weights_at_the_bottleneck(fig2: Scenario, staged: Staged) -> None:
    """Flows start at 1, 2 and 3 s and take 2 s of the link each; MADD has all that are active
    finish together.

    At 2 s they have 1 and 2 s to go; at 3 s, after 1/3 and 2/3 of a second each, 2/3, 4/3 and 2 s.
    """
    seen: dict[Fraction, list[tuple[int, int]]] = {}
    with staged(fig2, "varys") as stage:
        port = scheduler_port(stage, fig2)

        def probe() -> None:
            queues = queue_of_each_flow(stage, fig2)
            configs = [port.config(queue) for queue in queues]
            assert len(set(queues)) == 3
            seen[Fraction(stage.testbed.clock.now_ns, NS)] = [(c.level, c.weight) for c in configs]

        for tenths in (5, 15, 25, 35, 65):
            stage.testbed.clock.call_at(tenths * NS // 10, probe)
        stage.run()
        probe()
        finish_s = stage.emulator.records["pipeline"].iterations[0].finish

    level_1 = [[weight for level, weight in configs if level == 1] for configs in seen.values()]
    expected: list[list[int]] = [[1, 1, 1], [1, 1, 1], [1, 2, 2], [1, 2, 3], [1, 2, 3]]
    assert all(len(weights) == 3 for weights in level_1)
    # Of those that are active; a queue without a flow has weight 1 of 1023.
    active = [0, 1, 2, 3, 3]
    for weights, count, ratio in zip(level_1, active, expected, strict=False):
        of_active = weights[:count]
        # Up to a window of packets (8 of 2000) is on its way to where bytes are counted.
        for weight, part in zip(of_active, ratio, strict=False):
            assert abs(
                Fraction(weight, max(of_active)) - Fraction(part, ratio[count - 1])
            ) < Fraction(1, 100)
        assert all(weight == 1 for weight in weights[count:])
    assert level_1[-1] == [1, 1, 1], "when all is finished, all queues are equal again"
    # All activations have arrived at 7 s; then worker 2 computes three times 1 s.
    assert abs(finish_s - 10) < Fraction(1, 100)


def test_the_tracker_sees_what_the_emulator_records(fig2: Scenario, staged: Staged) -> None:
    with staged(replace(fig2, iterations=2), "echelon") as stage:
        stage.run()
        stage.hear_all({"s1": 12, "s2": 12})
        (echelonflow,) = fig2.jobs[0].echelonflows
        view = stage.controller.machine.view("pipeline").echelonflows[echelonflow.name]
        seen = view.tardiness_s
        assert len(seen) == 2
        packet_s = Fraction(1, 1000)
        for tardiness_s, record in zip(
            seen, stage.emulator.records["pipeline"].iterations, strict=True
        ):
            reference_s = record.references[echelonflow.name]
            expected_s = max(
                record.flows[name].finish - reference_s - offset_s
                for name, offset_s in zip(echelonflow.flows, echelonflow.offsets_s, strict=True)
            )
            assert abs(tardiness_s - expected_s) < 20 * packet_s
        # At the first switch nothing has waited yet: worker 1 computes for 1 s between two
        # activations.
        assert view.distances_s is not None
        assert all(
            abs(distance - index) < packet_s for index, distance in enumerate(view.distances_s)
        )


def test_bytes_of_an_iteration_are_counted_from_its_start(fig2: Scenario, staged: Staged) -> None:
    """Counters run on, so second iterations would look finished from the beginning without the
    counters' values at the start.
    """
    with staged(replace(fig2, iterations=2), "varys") as stage:
        stage.run()
        first, second = stage.emulator.records["pipeline"].iterations
        assert abs((second.finish - second.start) - (first.finish - first.start)) < Fraction(1, 100)


def test_control_latency_passes_before_switches_change(fig2: Scenario, staged: Staged) -> None:
    latency_ns = 50_000_000
    with staged(replace(fig2, control_latency_s=Fraction(latency_ns, NS)), "varys") as stage:
        stage.run()
        log = stage.testbed.rpc_log("s1")
    times = sorted({now_ns for now_ns, kind in log if kind == "gnmi_set" and now_ns})
    # The first packet of the first flow reaches s1 10 us of sending and 1 us of cable after it
    # starts at 1 s.
    assert times[0] == NS + 11_000 + latency_ns


def test_the_controller_may_stop_in_the_middle(fig2: Scenario) -> None:
    """Sessions end while digests await acknowledgement; the switches go on alone."""
    scenario = replace(fig2, iterations=2, stop_controller_after_iteration=1)
    logs: dict[str, list[int]] = {}

    def observe(testbed: VirtualTestbed, _emulator: object) -> None:
        logs.update(
            {name: [time for time, _ in testbed.rpc_log(name)] for name in testbed.switches}
        )

    result = run(
        scenario, "varys", lambda: make_policy("varys"), lambda job, iteration: None, observe
    )
    iterations = result.records["pipeline"].iterations
    assert len(iterations) == 2
    end_ns = iterations[0].finish * NS  # type: ignore[operator]
    assert all(0 < max(times) <= end_ns for times in logs.values())


def test_a_switch_that_cannot_be_reached_is_named(fig2: Scenario) -> None:
    with VirtualTestbed(fig2.fabric) as testbed:
        addresses = dict(testbed.addresses) | {"s2": "127.0.0.1:1"}
        jobs = believed(fig2, fig2.identities)
        controller = VirtualController(
            fig2.fabric,
            jobs,
            make_policy("fair"),
            sessions(TARGETS["softswitch"], fig2.fabric, addresses),
            softswitch(),
        )
        with (
            pytest.raises(
                SouthboundError, check=coded("switch-failed", "switch s2: ", addresses["s2"])
            ),
            controller,
        ):
            raise AssertionError("connected to nobody")
        # The switches of this process keep threads of their own.
        assert "controller" not in {thread.name for thread in threading.enumerate()}


def test_a_session_lost_during_a_run_ends_it_with_the_reason(
    fig2: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def progress(job: str, iteration: int) -> None:
        # In a thread of its own: here the switches are in the middle of something.
        threading.Thread(target=testbeds[0].servers["s2"].stop).start()
        # The controller hears of it in its own time.
        for _ in range(1000):
            if controllers[0].failure is not None:
                break
            threading.Event().wait(0.01)

    testbeds: list[Any] = []
    controllers: list[Any] = []
    enter_testbed, enter_controller = VirtualTestbed.__enter__, VirtualController.__enter__
    monkeypatch.setattr(
        VirtualTestbed, "__enter__", lambda self: testbeds.append(self) or enter_testbed(self)
    )
    monkeypatch.setattr(
        VirtualController,
        "__enter__",
        lambda self: controllers.append(self) or enter_controller(self),
    )
    lost = coded("run-failed", "fair: switch s2: the session at ")
    with pytest.raises(RunError, check=lost):
        run(replace(fig2, iterations=2), "fair", lambda: make_policy("fair"), progress)


def test_nothing_is_left_behind(
    fig2: Scenario,
    staged: Staged,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No thread and no pending task (asyncio would complain) is left, and nothing of ours on
    standard error.
    """
    caplog.set_level(logging.WARNING)
    for policy in ("echelon", "varys"):
        with staged(fig2, policy) as stage:
            stage.run()
            controller = stage.controller
        assert "controller" not in {thread.name for thread in threading.enumerate()}
        controller.stop()  # again
    assert caplog.messages == []
    # gRPC's own threads may note, at their leisure, that a server said goodbye.
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if "Got goaway" not in line] == []
