"""Emulated jobs, packet by packet, through switches in virtual time.

The controller is the service's (`echelon.controller.machine`). It reaches the switches only by the
sessions of their target, as it would reach real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from echelon.controller.machine.jobs import BuiltJob
from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import FlowKey, Job
from echelon.model.jobs.spec import JobSpec
from echelon.model.progress import RUN, UNSEEN, CommandProgress, counted
from echelon.planning.policies.base import Policy
from echelon.switches.lowering.capabilities import Capabilities, QueueDepthMarks
from echelon.switches.lowering.identity import Identity
from echelon.switches.southbound.channel import Connect
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.session import IntentSession
from echelon.switches.targets import DEFAULT_TARGET, TARGETS, Site, Target
from echelon.switches.targets.virtual import VirtualSwitches
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.endhosts.transport import NS_PER_S
from echelon_lab.scenarios.results import PolicyRun, SwitchStats
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.virtual.controller import VirtualController
from echelon_lab.virtual.searching import report_search

Observer = Callable[[VirtualSwitches, TrainingEmulator], None]


def run(
    scenario: Scenario,
    label: str,
    make: Callable[[], Policy],
    progress: Callable[[str, int], None],
    observe: Observer | None = None,
    target: str = DEFAULT_TARGET,
    end_s: Fraction | None = None,
    shown: CommandProgress = UNSEEN,
) -> PolicyRun:
    """Run `scenario` under one policy. `observe` is called once at the end, before anything is
    taken down.

    `progress(job, iteration)` is called for each finished iteration; `shown` is told what is being
    done. With `end_s`, jobs iterate until that time, in seconds, instead of as often as the
    scenario says.

    Raises `PlanError` for what the fabric or the switches cannot carry, `RunError` for a run that
    broke.
    """
    try:
        return _run(
            scenario.described, label, make, progress, observe, TARGETS[target], end_s, shown
        )
    except SouthboundError as error:
        raise RunError(f"{label}: {error}") from error


def _run(
    scenario: Scenario,
    label: str,
    make: Callable[[], Policy],
    progress: Callable[[str, int], None],
    observe: Observer | None,
    target: Target[Any],
    end_s: Fraction | None,
    shown: CommandProgress,
) -> PolicyRun:
    identities = scenario.identities
    fabric = scenario.fabric
    build = target.virtual_fabric()
    if build is None:
        raise RunError(f"target {target.name} does not run in virtual time (choose another one)")
    options = options_for(target, scenario.jobs)
    capabilities = _as_set(target.capabilities(options), scenario)
    shown.doing(
        f"{label}: planning, and starting {counted(len(fabric.switches), 'switch', 'switches')}"
    )
    with (
        build(fabric, scenario.control_latency_s, scenario.queue_bytes) as testbed,
        VirtualController(
            fabric,
            believed(scenario, identities),
            make(),
            sessions(target, fabric, testbed.addresses, options, testbed.connect),
            capabilities,
            acknowledged=testbed.acknowledged,
            on_search=partial(report_search, shown, label),
        ) as controller,
    ):

        def on_iteration(job: str, iteration: int, _now_ns: int) -> None:
            progress(job, iteration)
            if scenario.stop_controller_after_iteration is not None:
                testbed.clock.stop()

        def done() -> bool:
            # Between events, because closing the sessions needs the switches to answer.
            last = scenario.stop_controller_after_iteration
            if last is not None and emulator.completion.common_iterations >= last:
                controller.stop()
                emulator.release()  # as host agents do that have lost their scheduler
            return (
                emulator.done
                or controller.failed
                or (end_ns is not None and testbed.clock.now_ns >= end_ns)
            )

        emulator = TrainingEmulator(
            testbed.clock,
            testbed.nics,
            fabric,
            controller.plan.delayed(scenario.jobs),
            identities,
            transport=scenario.transport,
            iterations=scenario.iterations if end_s is None else None,
            until=scenario.until,
            delays=scenario.delays,
            background=scenario.background,
            traffic=scenario.traffic,
            seed=scenario.seed,
            on_iteration=on_iteration,
            paced=controller.plan.reactive,
            paths=controller.plan.paths,
            trees=controller.trees,
            native=testbed.native,
            ranked_at_hosts=None if capabilities.ranks else controller.at_hosts,
            ranking=(
                (lambda flow: controller.plan.ranking_at_host(flow))
                if controller.plan.hosts_rank
                else None
            ),
        )
        if controller.plan.reactive:
            testbed.decide_with(lambda: emulator.pace(controller.plan.rates_Bps))
        for name, host in emulator.hosts.items():
            testbed.receive_with(name, host.deliver)
        shown.begin(RUN)
        shown.share(0)
        shown.doing(f"{label}: running {counted(len(scenario.jobs), 'job')}")
        emulator.start()
        if end_s is None:
            end_ns = None
        else:
            end_ns = testbed.clock.now_ns + round(end_s * NS_PER_S)
        if end_ns is not None:
            testbed.clock.at(end_ns, testbed.clock.stop)
        testbed.run(done)
        controller.raise_failure()
        if observe is not None:
            observe(testbed, emulator)
        return PolicyRun(
            emulator.records,
            {
                name: SwitchStats(
                    switch.packets_in,
                    switch.packets_out,
                    switch.packets_dropped,
                    controller.entries[name],
                    testbed.digests[name],
                )
                for name, switch in testbed.switches.items()
            },
            emulator.reordered_packets,
            emulator.retransmitted_packets,
            controller.plan.paths,
            emulator.traffic.outcomes,
            plans=controller.plans,
        )


def believed(
    scenario: Scenario, identities: Mapping[FlowKey, Identity]
) -> list[tuple[JobSpec, BuiltJob]]:
    """Return the jobs as the controller is told of them, with a profile that may be wrong."""
    of_jobs: dict[str, dict[str, Identity]] = {}
    for (job, flow), identity in identities.items():
        of_jobs.setdefault(job, {})[flow] = identity
    return [
        (scenario.specs[job.name], BuiltJob(job, of_jobs.get(job.name, {})))
        for job in scenario.believed_jobs
    ]


def options_for(target: Target[Any], jobs: Sequence[Job]) -> Any:
    """Return the options of the switches that these jobs need: the default ones, or those of the
    program that adds up what flows bring. Raise `RunError` if the target has none."""
    of_trees = next((job.name for job in jobs if any(flow.among for flow in job.flows)), None)
    if of_trees is None:
        options = target.options()
    else:
        options = target.aggregating()
    if options is None:
        raise RunError(
            f"target {target.name} has no program that adds up what flows bring, as job {of_trees}"
            f" needs (use --target {DEFAULT_TARGET}, or another collective such as 'ring')"
        )
    return options


def sessions(
    target: Target[Any],
    fabric: Fabric,
    addresses: Mapping[str, str],
    options: Any = None,
    connect: Connect | None = None,
) -> dict[str, IntentSession]:
    """Return a session, to be opened, with each switch of the fabric; all are of one target with
    the same options, by default its default ones. `connect` opens their connections, by default
    over sockets.

    Raise `RunError` if the P4 program was not compiled for the target.
    """
    options = options or target.options()
    make = target.session_factory(options)
    try:
        program = target.program(options)
    except FileNotFoundError as error:
        raise RunError(f"target {target.name}: {error}") from None
    made = {}
    for name, switch in fabric.switches.items():
        rates_bps = {port: fabric.rate_bps[name, to] for port, to in fabric.ports[name].items()}
        queues = target.queue_driver(options, Site(name, rates_bps))
        made[name] = make(
            name, addresses[name], switch.device_id, program, queues=queues, connect=connect
        )
    return made


def _as_set(capabilities: Capabilities, scenario: Scenario) -> Capabilities:
    """Return the capabilities with the ECN threshold and the depth of queues that the scenario
    sets, if it does.
    """
    ecn = capabilities.ecn
    outer = capabilities.outer_queues
    if scenario.ecn_threshold_packets is not None and isinstance(ecn, QueueDepthMarks):
        ecn = replace(ecn, packets=scenario.ecn_threshold_packets)
    if scenario.queue_bytes is not None and outer is not None:
        outer = replace(outer, depth_packets=-(-scenario.queue_bytes // outer.frame_bytes))
    return replace(capabilities, ecn=ecn, outer_queues=outer)
