"""A scenario on real hosts: sockets and switches in network namespaces, and the daemon.

The daemon is started as operators start it. It all runs inside `echelon_lab.hosts.sandbox`, which
makes sure that nothing outlives the run, whatever ends it. The steps:

- interfaces (backends), switch processes, `echelon serve`
- jobs registered and installed
- workers and programs in their hosts' namespaces, a common time 0
- iterations, records, counters
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory

from echelon.model.errors import RunError
from echelon.model.extras import plug_in
from echelon.model.fabric.model import Fabric
from echelon.model.progress import UNSEEN, CommandProgress, counted
from echelon.planning.execution import Completion
from echelon.planning.paths import Paths
from echelon.planning.plan import Plan
from echelon.planning.policies.base import Policy
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.processes import DIES_WITH_CALLER, NICENESS, preferred
from echelon.switches.targets import TARGETS
from echelon.switches.targets.launching import SwitchLauncher, SwitchProcess
from echelon_lab.endhosts import ranks as marking
from echelon_lab.hosts import sandbox
from echelon_lab.hosts.backends.base import BACKENDS, HostFabric
from echelon_lab.hosts.loop import RealTimeLoop, watch_end
from echelon_lab.hosts.serving import FABRIC_FILE, Controller, ServiceProcess, start_switches
from echelon_lab.hosts.traffic import HostTraffic
from echelon_lab.hosts.workers.coordination import Coordination
from echelon_lab.hosts.workers.coordinator import (
    Coordinator,
    Numbers,
    WorkerProcesses,
    assign,
    check_senders,
    emulated,
    mtu_bytes,
    participants,
)
from echelon_lab.hosts.workers.plug_in import MakeWorkers, OtherWorkers, Surroundings, maker_of
from echelon_lab.scenarios.results import PolicyRun, SwitchStats
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario

OPENING_S = 30.0
"""Longest wait until all workers are connected."""
PROGRAMS_S = 300.0
"""Longest wait until all programs have done their first iterations."""
_QUIET_S = 0.01
_BEFORE = (*DIES_WITH_CALLER, *preferred(NICENESS))
_QUIET_ATTEMPTS = 20

Watch = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Standing:
    """The resources that stand when the workers are about to start."""

    directory: Path
    """Logs and files of the run."""
    service: ServiceProcess
    """The service. It may be killed and started again: the switches keep forwarding."""
    switches: Mapping[str, SwitchProcess]
    workers: Mapping[str, int]
    """Process ids by host."""


def run(
    scenario: Scenario,
    label: str,
    make: Callable[[], Policy],
    progress: Callable[[str, int], None],
    *,
    backend: str,
    target: str,
    watch: Watch | None = None,
    observe: Callable[[Standing], None] | None = None,
    listener: CommandProgress = UNSEEN,
) -> PolicyRun:
    """Run `scenario` under the policy of that label, on real hosts.

    They are those of `backend`, with switches of `target`. `watch(url)`, of the service's API, is
    entered when the jobs are installed and left when they are done. `observe` is called once before
    it. `progress(job, iteration)` is called for each finished iteration; `listener` is told what is
    being done.

    Raises `PlanError` for what the policy cannot plan, `RunError` for a run that is impossible or
    that broke.
    """
    check(scenario)
    launcher = _launcher(target)
    programs = maker_of(scenario)
    policy = _choice(scenario, label)
    # The service plans for itself. This plan says only by how much the jobs' own steps wait, and in
    # which order a host sends what a job has for another.
    plan = make().plan(scenario.believed_jobs, scenario.fabric)
    scenario = replace(scenario, jobs=plan.delayed(scenario.jobs))
    with ExitStack() as stack:
        count = counted(len(scenario.fabric.switches), "switch", "switches")
        listener.doing(f"{label}: starting {count}")
        temporary = TemporaryDirectory(
            prefix="run-",
            dir=sandbox.scratch(),
        )
        directory = Path(stack.enter_context(temporary))
        hosts = stack.enter_context(BACKENDS[backend](scenario.fabric, mtu_bytes(scenario)))
        switches = _launch(stack, scenario, launcher, hosts, directory)
        entries = {name: switch.entry for name, switch in switches.items()}
        controller = Controller(directory, scenario.fabric, policy, entries, directory / "api")
        service = stack.enter_context(ServiceProcess(controller))
        workers = stack.enter_context(WorkerProcesses(hosts, participants(scenario), directory))
        traffic = HostTraffic(scenario, hosts, directory / FABRIC_FILE, directory)
        stack.enter_context(traffic)
        for switch in switches.values():
            switch.wait_ready()
        listener.doing(f"{label}: starting the controller")
        service.wait_settled()
        traffic.wait_ready()
        listener.doing(f"{label}: installing {counted(len(scenario.jobs), 'job')}")
        numbers = _register(service, scenario)
        paths = service.paths()
        plans = service.plans()
        rules = None
        if not TARGETS[target].ranks:
            ranked = service.ranked_at_hosts(job.name for job in emulated(scenario))
            rules = marking.emulated(ranked)
        if observe is not None:
            observe(Standing(directory, service, switches, workers.pids))
        running = _Run(
            scenario, progress, hosts, switches, service, workers, traffic, listener, label
        )
        with nullcontext() if watch is None else watch(service.url):
            measured = running.run(directory, numbers, paths, programs, plan, rules)
        return replace(
            measured,
            paths=_with_observed(paths, measured),
            plans=plans,
        )


def check(scenario: Scenario) -> None:
    """Raise `RunError` for what real hosts cannot do."""
    _check_settings(scenario)
    check_links(scenario.fabric)
    for job in scenario.jobs:
        _check_job(scenario, job.name)
    if scenario.traffic and not entry_points(
        group="echelon.commands",
        name="traffic.send",
    ):
        raise RunError(
            f"traffic {scenario.traffic[0].name}: {plug_in('echelon.commands', 'traffic.send')}"
        )
    check_senders(scenario)


def check_links(fabric: Fabric) -> None:
    """Raise `RunError` for a host with several links."""
    for host in fabric.hosts:
        links = len(fabric.ports[host])
        if links > 1:
            raise RunError(
                f"fabric {fabric.name}: host {host} has {links} links, but real hosts have"
                " one interface here (run it in virtual time, or make each of its NICs a host, as"
                " echelon fabric rail-optimised does)"
            )


def _check_settings(scenario: Scenario) -> None:
    if scenario.control_latency_s:
        raise RunError(
            "control_latency: cannot be set on real hosts, where the controller has its own latency"
            " (remove the key)",
            code="conflicting-key",
        )
    if scenario.transport.congestion != "newreno":
        raise RunError(
            "congestion: cannot be set on real hosts, where TCP is the kernel's (remove the key)",
            code="conflicting-key",
        )
    if scenario.ecn_threshold_packets is not None:
        raise RunError(
            "ecn_threshold: cannot be set on real switches,"
            " which have their target's own (remove the key)",
            code="conflicting-key",
        )


def _check_job(scenario: Scenario, name: str) -> None:
    if name not in scenario.specs:
        raise RunError(
            f"job {name} has no job file to register with the controller (give its specification)",
            code="missing-key",
        )
    is_program = scenario.specs[name].recognition.by == "agent"
    if is_program and name not in scenario.commands:
        raise RunError(
            f"job {name} is a program ('recognition: {{by: agent}}'), and nothing says"
            " which (give its command in 'commands' of the scenario, or run it on fluid or in"
            " virtual time)",
            code="missing-key",
        )


def _choice(scenario: Scenario, label: str) -> PolicyChoice:
    for choice in scenario.policies:
        if choice.label == label:
            return choice
    raise RunError(
        f"policy {label} is not one of the scenario's: the controller needs its name and"
        " parameters",
        code="unknown-policy",
    )


def _launcher(target: str) -> SwitchLauncher:
    """Return the launcher of a target that is installed. Raise `RunError`."""
    launcher = TARGETS[target].launcher()
    if launcher is None:
        raise RunError(f"target {target} does not run as a process (choose another one)")
    # Each switch would say the same, but only when hosts and links are set up.
    launcher.find()
    return launcher


def _launch(
    stack: ExitStack,
    scenario: Scenario,
    launcher: SwitchLauncher,
    hosts: HostFabric,
    directory: Path,
) -> Mapping[str, SwitchProcess]:
    return start_switches(
        stack,
        scenario.fabric,
        launcher,
        hosts.interfaces,
        directory,
        _BEFORE,
        scenario.queue_bytes,
    )


def _register(service: ServiceProcess, scenario: Scenario) -> Numbers:
    specs = []
    for job in scenario.jobs:
        spec = scenario.specs[job.name]
        specs.append(spec.with_profile_error(scenario.profile_error))
    numbers = {}
    for registered in service.register(specs):
        flows = {flow.name: flow.number for flow in registered.flows}
        numbers[registered.name] = (registered.number, flows)
    return numbers


def _with_observed(
    paths: Mapping[str, Mapping[str, tuple[str, ...]]], run: PolicyRun
) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the paths of the plan's flows, and of the operations that ranks have told.

    These take the paths of the flows between their hosts.
    """
    all_paths = dict(paths)
    for job, observed in run.observed.items():
        between = {}
        for path in paths.get(job, {}).values():
            between[path[0], path[-1]] = path
        job_paths = {}
        for operation in observed.operations:
            ends = operation.src, operation.dst
            if ends in between:
                job_paths[operation.name] = between[ends]
        all_paths[job] = job_paths
    return all_paths


class _Run:
    """A run from the moment when its workers wait for their assignments."""

    def __init__(
        self,
        scenario: Scenario,
        progress: Callable[[str, int], None],
        hosts: HostFabric,
        switches: Mapping[str, SwitchProcess],
        service: ServiceProcess,
        workers: WorkerProcesses,
        traffic: HostTraffic,
        listener: CommandProgress,
        label: str,
    ) -> None:
        self._scenario = scenario
        self._progress = progress
        self._hosts = hosts
        self._switches = switches
        self._service = service
        self._workers = workers
        self._traffic = traffic
        self._shown = listener
        self._label = label
        self._loop = RealTimeLoop()
        self._completion = Completion(
            (job.name for job in scenario.jobs), scenario.iterations, scenario.until
        )
        self._coordination = Coordination(emulated(scenario), self._completion, self._on_iteration)
        self._awaited = {"workers"}
        """The parts that are not ready to begin yet."""
        if scenario.commands:
            self._awaited.add("programs")
        self._holdings: Mapping[str, tuple[int, int]] | None = None

    def run(
        self,
        directory: Path,
        numbers: Numbers,
        paths: Mapping[str, Paths],
        make_others: MakeWorkers,
        plan: Plan,
        rules: Sequence[HostRule] | None = None,
    ) -> PolicyRun:
        """Run to the end.

        The workers' coordinator listens in `directory`; by `rules`, hosts rank, and they send the
        flows of a stream in the order of `plan`.
        """
        control = directory / "workers"
        # Packets of the preparations are not the run's.
        before = self._packets()
        hosts = participants(self._scenario)
        coordinator = Coordinator(
            self._loop,
            control,
            hosts,
            self._coordination,
            lead_s=self._traffic.lead_s,
            on_connected=lambda: self._ready("workers", coordinator, programs),
            on_start=lambda origin_ns: self._started(origin_ns, programs),
            on_stopped=self._loop.stop,
        )
        programs = make_others(
            Surroundings(
                self._scenario,
                self._hosts,
                self._service.url,
                directory,
                self._loop,
                self._completion,
                self._on_iteration,
                on_ready=lambda: self._ready("programs", coordinator, programs),
                on_step=lambda: self._stop_if_done(coordinator, programs),
            )
        )
        with ExitStack() as stack:
            stack.callback(coordinator.close)
            stack.enter_context(programs)
            stack.enter_context(programs.watched())
            for switch in self._switches.values():
                stack.callback(watch_end(self._loop, switch.pid, switch.check))
            if self._service.pid is not None:
                stack.callback(watch_end(self._loop, self._service.pid, self._service.check))
            self._workers.assign(assign(self._scenario, numbers, paths, control, rules, plan))
            stack.enter_context(self._workers.watched(self._loop))
            self._loop.call_at(
                self._loop.now_ns + round(OPENING_S * 1e9), _check_opened, coordinator
            )
            self._loop.call_at(
                self._loop.now_ns + round(PROGRAMS_S * 1e9), self._check_programs, programs
            )
            # Of programs alone, no worker will report that it is connected.
            if not hosts:
                self._ready("workers", coordinator, programs)
            self._loop.run()
        self._workers.wait()
        flows = self._traffic.stop(max(self._coordination.end_s, programs.end_s))
        return PolicyRun(
            {**self._coordination.records, **programs.records},
            self._switch_stats(before),
            self._coordination.reordered,
            self._coordination.retransmitted,
            traffic_flows=flows,
            observed=programs.observed,
        )

    def _switch_stats(self, before: Mapping[str, tuple[int, int]]) -> dict[str, SwitchStats]:
        """Return what switches did since these counts of packets."""
        # Where the controller was stopped on purpose, they were read just before.
        holdings = self._holdings
        if holdings is None:
            holdings = self._service.holdings()
        after = self._quiet_packets()
        stats = {}
        for name in self._switches:
            packets_in = after[name][0] - before[name][0]
            packets_out = after[name][1] - before[name][1]
            entries, digests = holdings[name]
            stats[name] = SwitchStats(
                packets_in,
                packets_out,
                packets_dropped=max(0, packets_in - packets_out),
                entries=entries,
                digests=digests,
            )
        return stats

    def _ready(
        self,
        part: str,
        coordinator: Coordinator,
        programs: OtherWorkers,
    ) -> None:
        self._awaited.discard(part)
        if self._awaited:
            self._shown.doing(f"{self._label}: waiting for {', '.join(programs.missing)} to train")
        else:
            self._shown.doing(f"{self._label}: running {counted(len(self._scenario.jobs), 'job')}")
            coordinator.start()

    def _started(self, origin_ns: int, programs: OtherWorkers) -> None:
        programs.begin(origin_ns)
        self._traffic.start(origin_ns)

    def _stop_if_done(self, coordinator: Coordinator, programs: OtherWorkers) -> None:
        if self._completion.reached:
            programs.stop()
            coordinator.stop()

    def _check_programs(self, programs: OtherWorkers) -> None:
        missing = programs.missing
        if missing:
            words = "; ".join(f"{job}: {programs.last_words(job)}" for job in missing)
            raise RunError(
                f"jobs {', '.join(missing)}: not all ranks train after {PROGRAMS_S:g} s: {words}"
            )

    def _on_iteration(self, job: str, iteration: int) -> None:
        self._progress(job, iteration)
        last = self._scenario.stop_controller_after_iteration
        reached = self._completion.common_iterations
        if last is not None and self._holdings is None and reached >= last:
            # Only after the workers have been told to go on.
            self._loop.call_at(self._loop.now_ns, self._stop_controller)

    def _stop_controller(self) -> None:
        if self._holdings is None:
            self._holdings = self._service.holdings()
            self._service.kill()

    def _packets(self) -> Mapping[str, tuple[int, int]]:
        """Return the packets in and out, by switch, as its interfaces have counted them."""
        counts = _interface_packets()
        packets = {}
        for name in self._switches:
            received = 0
            sent = 0
            for interface in self._hosts.interfaces(name).values():
                interface_received, interface_sent = counts[interface]
                received += interface_received
                sent += interface_sent
            packets[name] = received, sent
        return packets

    def _quiet_packets(self) -> Mapping[str, tuple[int, int]]:
        """Return the counts once nothing moves any more, or after a short time.

        Queued packets are not drops.
        """
        packets = self._packets()
        for _ in range(_QUIET_ATTEMPTS):
            time.sleep(_QUIET_S)
            before = packets
            packets = self._packets()
            if before == packets:
                break
        return packets


def _check_opened(coordinator: Coordinator) -> None:
    if coordinator.missing:
        raise RunError(
            f"hosts {', '.join(coordinator.missing)}: their workers are not connected after"
            f" {OPENING_S:g} s (check that packets pass between them in both directions)"
        )


def _interface_packets() -> Mapping[str, tuple[int, int]]:
    """Return the packets received and sent, by interface of this network namespace."""
    packets = {}
    text = Path("/proc/net/dev").read_text(encoding="ascii")
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        fields = numbers.split()
        packets[name.strip()] = int(fields[1]), int(fields[9])
    return packets
