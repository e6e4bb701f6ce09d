"""Emulated jobs, packet by packet, through switches in virtual time.

The controller is the same code as in the service (`echelon.controller.machine`). It talks to the
emulated switches through the same southbound sessions as to real ones.
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
from echelon.planning.rankings.base import Ranking
from echelon.switches.lowering.capabilities import Capabilities, QueueDepthMarks
from echelon.switches.lowering.identity import Identity
from echelon.switches.southbound.channel import Connect
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.session import IntentSession
from echelon.switches.targets import DEFAULT_TARGET, TARGETS, Site, Target
from echelon.switches.targets.virtual import VirtualFabricFactory, VirtualSwitches
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
    target: str | Target[Any] = DEFAULT_TARGET,
    end_s: Fraction | None = None,
    listener: CommandProgress = UNSEEN,
    build: VirtualFabricFactory | None = None,
) -> PolicyRun:
    """Run `scenario` under one policy.

    `observe` is called once at the end, before anything is taken down. `progress(job, iteration)`
    is called for each finished iteration; `listener` is told what is being done. With `end_s`, jobs
    iterate until that time, in seconds, instead of as often as the scenario says. `build` makes the
    fabric of switches of the target; None: the target makes it.

    Raises `PlanError` for what the fabric or the switches cannot carry, `RunError` for a run that
    broke.
    """
    if isinstance(target, str):
        target = TARGETS[target]
    try:
        virtual_run = _VirtualRun(scenario.described, label, target, end_s, build)
        return virtual_run.run(make, progress, observe, listener)
    except SouthboundError as error:
        raise RunError(f"{label}: {error}") from error


class _VirtualRun:
    """A run of a scenario under one policy."""

    def __init__(
        self,
        scenario: Scenario,
        label: str,
        target: Target[Any],
        end_s: Fraction | None,
        build: VirtualFabricFactory | None,
    ) -> None:
        self._scenario = scenario
        self._label = label
        self._target = target
        self._end_s = end_s
        self._identities = scenario.identities
        build = build or target.virtual_fabric()
        if build is None:
            raise RunError(
                f"target {target.name} does not run in virtual time (choose another one)"
            )
        self._build = build
        self._options = options_for(target, scenario.jobs)
        self._capabilities = _as_set(target.capabilities(self._options), scenario)

    def run(
        self,
        make: Callable[[], Policy],
        progress: Callable[[str, int], None],
        observe: Observer | None,
        listener: CommandProgress,
    ) -> PolicyRun:
        scenario = self._scenario
        fabric = scenario.fabric
        switches = counted(len(fabric.switches), "switch", "switches")
        listener.doing(f"{self._label}: planning, and starting {switches}")
        with (
            self._build(fabric, scenario.control_latency_s, scenario.queue_bytes) as testbed,
            self._controller(make(), testbed, listener) as controller,
        ):

            def on_iteration(
                job: str,
                iteration: int,
                _now_ns: int,
            ) -> None:
                progress(job, iteration)
                # `is_over` stops the controller. It is asked only between runs of the clock, which
                # otherwise go on for many events after this iteration.
                if scenario.stop_controller_after_iteration is not None:
                    testbed.clock.stop()

            emulator = self._emulator(testbed, controller, on_iteration)
            listener.begin(RUN)
            listener.share(0)
            listener.doing(f"{self._label}: running {counted(len(scenario.jobs), 'job')}")
            emulator.start()
            self._execute(testbed, controller, emulator)
            if observe is not None:
                observe(testbed, emulator)
            return _outcome(testbed, controller, emulator)

    def _controller(
        self,
        policy: Policy,
        testbed: VirtualSwitches,
        listener: CommandProgress,
    ) -> VirtualController:
        fabric = self._scenario.fabric
        return VirtualController(
            fabric,
            believed(self._scenario, self._identities),
            policy,
            sessions(self._target, fabric, testbed.addresses, self._options, testbed.connect),
            self._capabilities,
            acknowledged=testbed.acknowledged,
            on_search=partial(report_search, listener, self._label),
        )

    def _emulator(
        self,
        testbed: VirtualSwitches,
        controller: VirtualController,
        on_iteration: Callable[[str, int, int], None],
    ) -> TrainingEmulator:
        scenario = self._scenario
        plan = controller.plan

        def ranking_at_host(flow: FlowKey) -> Ranking | None:
            # Of the plan at that time: it changes during the run.
            return controller.plan.ranking_at_host(flow)

        iterations: int | None = scenario.iterations
        if self._end_s is not None:
            iterations = None
        ranking = None
        if plan.hosts_rank:
            ranking = ranking_at_host
        rules = None
        if not self._capabilities.ranks:
            rules = controller.at_hosts

        emulator = TrainingEmulator(
            testbed.clock,
            testbed.nics,
            scenario.fabric,
            plan.delayed(scenario.jobs),
            self._identities,
            transport=scenario.transport,
            iterations=iterations,
            until=scenario.until,
            delays=scenario.delays,
            background=scenario.background,
            traffic=scenario.traffic,
            seed=scenario.seed,
            on_iteration=on_iteration,
            paced=plan.reactive,
            paths=plan.paths,
            trees=controller.trees,
            native=testbed.native,
            ranked_at_hosts=rules,
            ranking=ranking,
        )
        if plan.reactive:
            testbed.decide_with(lambda: emulator.pace(controller.plan.rates_Bps))
        for name, host in emulator.hosts.items():
            testbed.receive_with(name, host.deliver)
        return emulator

    def _execute(
        self,
        testbed: VirtualSwitches,
        controller: VirtualController,
        emulator: TrainingEmulator,
    ) -> None:
        """Run until the jobs are done, the time is over, or the controller has failed."""
        clock = testbed.clock
        end_ns = None
        if self._end_s is not None:
            end_ns = clock.now_ns + round(self._end_s * NS_PER_S)
            clock.call_at(end_ns, clock.stop)
        last = self._scenario.stop_controller_after_iteration

        def is_over() -> bool:
            # Between events, because closing the sessions needs the switches to answer.
            if last is not None and emulator.completion.common_iterations >= last:
                controller.stop()
                emulator.release()  # as host agents do that have lost their scheduler
            if emulator.done or controller.failed:
                return True
            return end_ns is not None and clock.now_ns >= end_ns

        testbed.run(is_over)
        controller.raise_failure()


def _outcome(
    testbed: VirtualSwitches,
    controller: VirtualController,
    emulator: TrainingEmulator,
) -> PolicyRun:
    switches = {}
    for name, switch in testbed.switches.items():
        switches[name] = SwitchStats(
            switch.packets_in,
            switch.packets_out,
            switch.packets_dropped,
            entries=controller.entries[name],
            digests=testbed.digests[name],
        )
    return PolicyRun(
        emulator.records,
        switches,
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
    by_job: dict[str, dict[str, Identity]] = {}
    for (name, flow), identity in identities.items():
        by_job.setdefault(name, {})[flow] = identity
    jobs = []
    for job in scenario.believed_jobs:
        jobs.append((scenario.specs[job.name], BuiltJob(job, by_job.get(job.name, {}))))
    return jobs


def options_for(target: Target[Any], jobs: Sequence[Job]) -> Any:
    """Return the options of the switches that these jobs need.

    These are the default ones, or those of the program that adds up what flows bring. Raise
    `RunError` if the target has none.
    """
    aggregated = []
    for job in jobs:
        if any(flow.among for flow in job.flows):
            aggregated.append(job.name)
    if not aggregated:
        return target.options()
    options = target.aggregating()
    if options is None:
        raise RunError(
            f"target {target.name} has no program that adds up what flows bring, as job"
            f" {aggregated[0]} needs (use --target {DEFAULT_TARGET}, or another collective such as"
            " 'ring')"
        )
    return options


def sessions(
    target: Target[Any],
    fabric: Fabric,
    addresses: Mapping[str, str],
    options: Any = None,
    connect: Connect | None = None,
) -> dict[str, IntentSession]:
    """Return a session, to be opened, with each switch of the fabric.

    All are of one target with the same options, by default its default ones. `connect` opens their
    connections, by default over sockets.

    Raise `RunError` if the P4 program was not compiled for the target.
    """
    options = options or target.options()
    make = target.session_factory(options)
    try:
        program = target.program(options)
    except FileNotFoundError as error:
        raise RunError(f"target {target.name}: {error}") from None
    by_switch = {}
    for name, switch in fabric.switches.items():
        rates_bps = {}
        for port, neighbour in fabric.ports[name].items():
            rates_bps[port] = fabric.rate_bps[name, neighbour]
        queues = target.queue_driver(options, Site(name, rates_bps))
        by_switch[name] = make(
            name,
            addresses[name],
            switch.device_id,
            program,
            queues=queues,
            connect=connect,
        )
    return by_switch


def _as_set(capabilities: Capabilities, scenario: Scenario) -> Capabilities:
    """Return the capabilities with the ECN threshold and the depth of queues of the scenario."""
    ecn = capabilities.ecn
    outer = capabilities.outer_queues
    if scenario.ecn_threshold_packets is not None and isinstance(ecn, QueueDepthMarks):
        ecn = replace(ecn, packets=scenario.ecn_threshold_packets)
    if scenario.queue_bytes is not None and outer is not None:
        outer = replace(outer, depth_packets=-(-scenario.queue_bytes // outer.frame_bytes))
    return replace(
        capabilities,
        ecn=ecn,
        outer_queues=outer,
    )
