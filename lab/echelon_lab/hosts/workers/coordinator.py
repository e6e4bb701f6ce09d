"""The coordinator of workers.

It tells each host its part, starts the workers in the network namespaces of their hosts, brings
them up together, keeps the barrier, and notices lost workers.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import FlowKey, Job
from echelon.model.jobs.spec import JobSpec, RecognitionSpec
from echelon.planning.paths import Paths
from echelon.planning.plan import Plan
from echelon.planning.rankings.base import Ranking
from echelon.planning.windows import FlowWindows, Windows, shares_window
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.processes import DIES_WITH_CALLER, NICENESS, last_words, preferred, start
from echelon_lab.hosts.backends.base import HostFabric
from echelon_lab.hosts.loop import RealTimeLoop, watch_end
from echelon_lab.hosts.workers import messages
from echelon_lab.hosts.workers.coordination import Coordination
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.traffic.schedule import DEFAULT_PORT

LEAST_LEAD_S = 0.05
"""Minimum time from the order to begin to time 0, so that all workers have the order by then."""


class _Connection:
    """A connection to one worker."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.lines = messages.Lines()
        self.host: str | None = None

    def send(self, order: messages.Order) -> None:
        with suppress(ConnectionError):  # the reading side notices that it is gone
            self.socket.sendall(messages.encode(order))


class Coordinator:
    """The coordinator of the workers of `hosts`, for which it listens at `path`.

    It runs in `loop`, which raises `RunError`. `on_connected` is called when all workers are ready
    to begin, `on_start(origin_ns)` when time 0 of the run has been set, which is `lead_s` later (or
    a little more). `on_stopped` is called when all jobs are done and all workers have sent their
    last message.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        path: Path,
        hosts: Collection[str],
        coordination: Coordination,
        *,
        lead_s: float,
        on_connected: Callable[[], None],
        on_start: Callable[[int], None],
        on_stopped: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._coordination = coordination
        self._lead_ns = round(max(lead_s, LEAST_LEAD_S) * 1_000_000_000)
        self._on_connected = on_connected
        self._on_start = on_start
        self._on_stopped = on_stopped
        self._not_ready = set(hosts)
        self._unconnected = set(hosts)
        self._unstopped = set(hosts)
        self._present: dict[str, _Connection] = {}
        self._stopping = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(len(hosts))
        loop.on_readable(self._socket.fileno(), self._on_connection)

    @property
    def missing(self) -> Sequence[str]:
        """Hosts that are not ready, or not connected to each other, yet."""
        return sorted(self._not_ready or self._unconnected)

    def close(self) -> None:
        for connection in self._present.values():
            connection.socket.close()
        self._socket.close()

    def _on_connection(self) -> None:
        accepted, _ = self._socket.accept()
        connection = _Connection(accepted)
        self._loop.on_readable(accepted.fileno(), lambda: self._on_readable(connection))

    def _on_readable(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except ConnectionError:
            data = b""
        for message in connection.lines.feed(data):
            self._on_message(connection, message)
        if not data:
            self._end(connection)

    def _on_message(self, connection: _Connection, message: messages.Message) -> None:
        match message:
            case messages.StepStarted() | messages.StepFinished():
                if not self._stopping:
                    self._coordination.note(message)
            case messages.IterationDone():
                if not self._stopping:
                    self._begin(self._coordination.worker_done(message, self._loop.now_ns))
                    if self._coordination.done:
                        self.stop()
            case messages.WorkerReady(host):
                connection.host = host
                self._present[host] = connection
                self._not_ready.discard(host)
                if not self._not_ready:
                    self._tell_all(messages.Connect())
            case messages.Connected(host):
                self._unconnected.discard(host)
                if not self._unconnected:
                    self._on_connected()
            case messages.Stopped(host):
                self._unstopped.discard(host)
                if not self._unstopped:
                    self._on_stopped()
            case messages.Failed(host, problem):
                raise RunError(f"host {host}: {problem}")

    def start(self) -> None:
        """Set time 0 of the run, and tell all workers to begin."""
        origin_ns = self._loop.now_ns + self._lead_ns
        self._on_start(origin_ns)
        self._tell_all(messages.StartBackground(origin_ns))
        self._begin(self._coordination.start(origin_ns))

    def _begin(self, orders: Sequence[messages.Begin]) -> None:
        for order in orders:
            for host in sorted(self._coordination.busy_workers(order.job)):
                self._present[host].send(order)

    def _tell_all(self, order: messages.Order) -> None:
        for connection in self._present.values():
            connection.send(order)

    def stop(self) -> None:
        """Tell all workers that the run is over. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        self._tell_all(messages.StopWorkers())
        if not self._unstopped:
            self._on_stopped()

    def _end(self, connection: _Connection) -> None:
        self._loop.on_readable(connection.socket.fileno(), None)
        connection.socket.close()
        raise RunError(
            f"host {connection.host or '(unknown)'}: its worker has ended before the run did"
        )


_WORKER = (sys.executable, "-Pm", "echelon_lab.hosts.workers")
_LAST_WORDS_NS = 100_000_000
"""Longest wait for the message of a worker that has ended."""
_END_S = 5.0


class WorkerProcesses:
    """The worker processes of `hosts`, which wait for their assignments.

    A context manager: they do not outlive it.
    """

    def __init__(
        self,
        fabric: HostFabric,
        hosts: Iterable[str],
        directory: Path,
    ) -> None:
        self._fabric = fabric
        self._hosts = list(hosts)
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for host in self._hosts:
            command = [
                *self._fabric.in_host(host),
                *DIES_WITH_CALLER,
                *preferred(NICENESS),
                *_WORKER,
            ]
            self._processes[host] = start(command, self._log(host), stdin=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by host."""
        return {host: process.pid for host, process in self._processes.items()}

    def assign(self, assignments: Mapping[str, messages.Assignment]) -> None:
        """Hand out the assignments. Raises `RunError` if a worker has ended already."""
        for host, process in self._processes.items():
            assert process.stdin is not None
            try:
                with process.stdin:
                    messages.write_assignment(assignments[host], process.stdin)
            except BrokenPipeError:
                process.wait()
                raise self._ended(host) from None

    @contextmanager
    def watched(self, loop: RealTimeLoop) -> Iterator[None]:
        """Watch the workers: a `RunError` comes out of the loop if one ends as it should not."""

        def ended(host: str) -> None:
            # The worker's own message comes first.
            loop.call_at(loop.now_ns + _LAST_WORDS_NS, self._check, host)

        with ExitStack() as stack:
            for host, process in self._processes.items():
                stack.callback(watch_end(loop, process.pid, partial(ended, host)))
            yield

    def wait(self) -> None:
        """Wait until all workers have ended, as they were told to. Raises `RunError`."""
        for host, process in self._processes.items():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                raise RunError(
                    f"host {host}: its worker does not exit: {last_words(self._log(host))}"
                ) from None

    def _check(self, host: str) -> None:
        if self._processes[host].poll():
            raise self._ended(host)

    def _ended(self, host: str) -> RunError:
        status = self._processes[host].returncode
        return RunError(
            f"host {host}: its worker ended with status {status}: {last_words(self._log(host))}"
        )

    def _log(self, host: str) -> Path:
        return self._directory / f"worker-{host}.log"


_BACKGROUND_PORTS = 0x8000
_ETHERNET_BYTES = 14
_MTU_BYTES = 1500

Numbers = Mapping[str, tuple[int, Mapping[str, int]]]
"""The number of each job in the shim header, and the numbers of its flows."""


def mtu_bytes(scenario: Scenario) -> int:
    """Return the MTU of the links that the scenario needs."""
    frames = [
        scenario.transport.packet_bytes,
        *(traffic.packet_bytes for traffic in scenario.background),
    ]
    return max(_MTU_BYTES, *(frame - _ETHERNET_BYTES for frame in frames))


def emulated(scenario: Scenario) -> Sequence[Job]:
    """Return the jobs whose workers are not programs."""
    return [job for job in scenario.jobs if job.name not in scenario.commands]


def participants(scenario: Scenario) -> list[str]:
    """Return the hosts with a job or background traffic, in the order of the fabric."""
    busy = {worker for job in emulated(scenario) for worker in job.workers}
    busy |= {end for traffic in scenario.background for end in (traffic.src, traffic.dst)}
    return [name for name in scenario.fabric.hosts if name in busy]


def check_senders(scenario: Scenario) -> None:
    """Raise `RunError` for a job whose flows no sender here can send."""
    for job in emulated(scenario):
        if over := next((flow.name for flow in job.flows if flow.among), None):
            raise RunError(
                f"job {job.name}: flow '{over}' goes over a tree of switches that add up or copy"
                " what it brings, which emulated workers on real hosts cannot send (use --target"
                " softswitch or fluid, or programs with PyTorch's backend: docs/aggregation.md)"
            )
        carriage = _carriage(scenario.specs[job.name], 0, {})
        if (
            scenario.traffic
            and isinstance(carriage, messages.TcpCarriage)
            and carriage.destination_port == DEFAULT_PORT
        ):
            # Both would listen, and the kernel would spread connections over the two.
            raise RunError(
                f"job {job.name}: port {DEFAULT_PORT} is for cross traffic"
                " (give the job another port)",
                code="duplicate",
            )


def assign(
    scenario: Scenario,
    numbers: Numbers,
    paths: Mapping[str, Paths],
    control: Path,
    rules: Sequence[HostRule] | None = None,
    plan: Plan | None = None,
) -> dict[str, messages.Assignment]:
    """Return the assignments by host.

    `paths` are those of the plan, `control` is the coordinator's socket. Where hosts rank, they do
    so by `rules`. The flows that share a window by `plan` are sent in its order.

    Raises `RunError` for a job whose flows no sender here can send.
    """
    jobs = emulated(scenario)
    carriages = {}
    for job in jobs:
        carriages[job.name] = _carriage(scenario.specs[job.name], *numbers[job.name])
    addresses = {name: host.ipv4 for name, host in scenario.fabric.hosts.items()}
    transport = scenario.transport
    all_paths = chain.from_iterable(of_job.values() for of_job in paths.values())
    windows = transport.windows.over(set(all_paths), scenario.fabric)
    assignments = {}
    for host in participants(scenario):
        host_jobs = []
        for job in jobs:
            if host in job.workers:
                delays = _delays(scenario, job.name, host)
                host_jobs.append(messages.WorkerJob(job, delays, carriages[job.name]))
        host_rules = None
        if rules is not None:
            host_rules = tuple(rule for rule in rules if rule.src == host)
        flow_windows = _flow_windows(windows, scenario.fabric, jobs, host, paths)
        retransmit_after_s = transport.retransmit_after_s
        assignments[host] = messages.Assignment(
            host=host,
            control=str(control),
            addresses=addresses,
            jobs=tuple(host_jobs),
            rate_bps=_rate_bps(scenario.fabric, host, transport.host_rate_bps),
            packet_bytes=transport.packet_bytes,
            windows=windows,
            flow_windows=flow_windows,
            stream_rankings=_stream_rankings(plan, jobs, host),
            retransmit_after_ns=max(1, round(retransmit_after_s * 1_000_000_000)),
            tcp_window_bytes=transport.receive_window_bytes,
            ecn=transport.ecn,
            computing=scenario.compute,
            sends=_sends(scenario, host),
            discards=any(traffic.dst == host for traffic in scenario.background),
            rules=host_rules,
        )
    return assignments


def _delays(
    scenario: Scenario,
    job: str,
    host: str,
) -> dict[int, Fraction]:
    delays_s = {}
    for delay in scenario.delays:
        if (delay.job, delay.worker) == (job, host):
            delays_s[delay.iteration] = delay.delay_s
    return delays_s


def _flow_windows(
    windows: Windows,
    fabric: Fabric,
    jobs: Sequence[Job],
    host: str,
    paths: Mapping[str, Paths],
) -> dict[FlowKey, FlowWindows]:
    """Return the windows of each flow from a host or to it, by job and flow."""
    by_flow = {}
    for job in jobs:
        job_paths = paths.get(job.name, {})
        for flow in job.flows:
            if host in (flow.src, flow.dst):
                path = job_paths.get(flow.name)
                by_flow[job.name, flow.name] = windows.on_path(path, fabric)
    return by_flow


def _stream_rankings(
    plan: Plan | None,
    jobs: Sequence[Job],
    host: str,
) -> dict[FlowKey, Ranking]:
    """Return the rankings of flows from a host or to it that share the window of a stream."""
    rankings: dict[FlowKey, Ranking] = {}
    if plan is None:
        return rankings
    for job in jobs:
        for flow in job.flows:
            key = job.name, flow.name
            ranking = plan.ranking.get(key)
            if ranking is None or not shares_window(ranking):
                continue
            if host in (flow.src, flow.dst) and plan.ranks_at(flow.src):
                rankings[key] = ranking
    return rankings


def _sends(scenario: Scenario, host: str) -> tuple[messages.ConstantRate, ...]:
    """Return the background traffic from a host, each with a port of its own."""
    sends = []
    for index, traffic in enumerate(scenario.background):
        if traffic.src == host:
            port = _BACKGROUND_PORTS + index
            rate = messages.ConstantRate(traffic.dst, traffic.rate_bps, traffic.packet_bytes, port)
            sends.append(rate)
    return tuple(sends)


def _rate_bps(
    fabric: Fabric,
    host: str,
    host_rate_bps: int | None,
) -> int:
    (switch,) = fabric.ports[host].values()
    link_bps = fabric.rate_bps[host, switch]
    if host_rate_bps is None:
        return link_bps
    return min(link_bps, host_rate_bps)


def _carriage(
    spec: JobSpec,
    number: int,
    flows: Mapping[str, int],
) -> messages.Carriage:
    recognition = spec.recognition
    make_carriage = _CARRIAGES[recognition.by, recognition.protocol or "tcp"]
    return make_carriage(spec.job, recognition, number, flows)


def _shim(
    _job: str,
    _recognition: RecognitionSpec,
    number: int,
    flows: Mapping[str, int],
) -> messages.Carriage:
    return messages.ShimCarriage(number, flows)


def _tcp(
    job: str,
    recognition: RecognitionSpec,
    _number: int,
    _flows: Mapping[str, int],
) -> messages.Carriage:
    source = recognition.source_port
    destination = recognition.destination_port
    assert source is not None  # checked where the file was read
    assert destination is not None
    if source == destination:
        raise RunError(
            f"job {job}: source and destination port are both {source}: workers that send to each"
            " other would have one connection for both (give them different ports)",
            code="duplicate",
        )
    return messages.TcpCarriage(source, destination)


def _plain_udp(
    job: str,
    _recognition: RecognitionSpec,
    _number: int,
    _flows: Mapping[str, int],
) -> messages.Carriage:
    raise RunError(
        f"job {job}: workers cannot send plain UDP"
        " (recognise the job by shim, or by bytes over tcp)",
        code="not-allowed",
    )


def _roce(
    job: str,
    _recognition: RecognitionSpec,
    _number: int,
    _flows: Mapping[str, int],
) -> messages.Carriage:
    raise RunError(
        f"job {job}: workers on real hosts have no queue pairs (use a target in virtual time, or"
        " recognise the job by shim, or by bytes over tcp)"
    )


_CARRIAGES = {
    ("shim", "tcp"): _shim,
    ("bytes", "tcp"): _tcp,
    ("bytes", "udp"): _plain_udp,
    ("bytes", "roce"): _roce,
}
"""Makers of carriages by `by` and `protocol` of the job's recognition."""
