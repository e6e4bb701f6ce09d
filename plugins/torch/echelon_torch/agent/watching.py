"""The agent's loop: it sees connections, has them reported, and measures what they carry."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from echelon_torch.agent import capabilities, cgroups, processes
from echelon_torch.agent.cgroups import JobGroup
from echelon_torch.agent.connection import AgentError
from echelon_torch.agent.connections import JobConnections, Owner
from echelon_torch.agent.interfaces import Interfaces
from echelon_torch.agent.iterations import IterationMeter, MeasuredIteration
from echelon_torch.agent.marking import Marker, SocketOptions
from echelon_torch.agent.program import KernelProgram
from echelon_torch.agent.reporting import Reporter
from echelon_torch.agent.shares import Shares
from echelon_torch.agent.sockets import SocketList, TcpSocket
from echelon_torch.agent.stores import store_ports

READ_S = 1.0
"""Time between readings of the list of sockets, where the kernel tells of connections."""
POLL_S = 0.05
"""The same without such a program."""
READINGS_PER_GAP = 4
LARGEST_SHARE = 0.05
"""The most of a processor that readings may take: more connections are read less often."""
LAST_REPORT_S = 3.0


@dataclass(frozen=True, slots=True)
class Watched:
    """The job that the agent watches, and how it does."""

    job: str
    options: SocketOptions = field(default_factory=SocketOptions)
    """The options that are set on the job's sockets."""
    idle_gap_s: float | None = None
    """Silence that ends an iteration; None: iterations are not told apart."""
    with_program: bool = True
    """Whether to use a program in the kernel where that is allowed."""


@dataclass
class Agent:
    """The agent and its state, which `echelon_torch.agent.metrics` shows.

    `say` takes a line for the operator.
    """

    watched: Watched
    reporter: Reporter | Interfaces
    say: Callable[[str], None]
    connections: JobConnections | None = None
    """None: it does not watch yet."""
    meter: IterationMeter | None = None
    last_iteration: MeasuredIteration | None = None
    read_s: float = 0.0
    """Processor time of the last reading of the list of sockets."""
    problem: str | None = None
    """The reason why the list could not be read the last time."""
    refused: str | None = None
    """The last message of the kernel when it did not set an option of a socket."""
    networks: set[int] = field(default_factory=set)
    """Other network namespaces in which processes of the job have been found."""

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
        """Run a command, watch its connections until it ends, and return its exit status.

        It has the agent's environment unless another is given. Raise `AgentError`.
        """
        if shutil.which(command[0]) is None:
            raise AgentError(f"{command[0]}: there is no such command (check its name and PATH)")
        capabilities.keep_only(*_NEEDED)
        with ExitStack() as stack:
            signals = stack.enter_context(_signals())
            group, program = self._prepare(stack)
            if group is None:
                child = _start(command, None, environment)
                job = _Job.of_process(child.pid)
            else:
                child = _start(command, group.path, environment)
                job = _Job.of_group(group.path)
            self._watch(stack, signals, job, program, child, group)
            return child.wait()

    def watch(self, cgroup: Path) -> None:
        """Watch the connections of a control group until a signal ends the agent.

        Raise `AgentError`.
        """
        capabilities.keep_only(*_NEEDED)
        with ExitStack() as stack:
            signals = stack.enter_context(_signals())
            job = _Job.of_group(cgroups.checked(cgroup))
            program = self._load(stack, cgroup)
            self._watch(stack, signals, job, program)

    def _prepare(self, stack: ExitStack) -> tuple[JobGroup | None, KernelProgram | None]:
        """Return the group for the job's processes and its program, if there are such."""
        try:
            group = stack.enter_context(JobGroup(self.watched.job))
        except AgentError as error:
            self._do_without(error)
            return None, None
        return group, self._load(stack, group.path)

    def _load(self, stack: ExitStack, cgroup: Path) -> KernelProgram | None:
        try:
            if not self.watched.with_program:
                raise AgentError("--no-ebpf was given")
            program = stack.enter_context(KernelProgram(cgroup, self.watched.options.dscp))
        except AgentError as error:
            self._do_without(error)
            return None
        self.say("the kernel tells of each connection as it opens (eBPF)")
        return program

    def _do_without(self, error: AgentError) -> None:
        if self.watched.options.dscp is not None:
            raise AgentError(f"without eBPF, packets cannot be marked: {error} (leave out --dscp)")
        self.say(
            f"no eBPF here: {error}; the list of connections is read every {POLL_S * 1000:.0f} ms"
            " instead"
        )

    def _watch(
        self,
        stack: ExitStack,
        signals: socket.socket,
        job: _Job,
        program: KernelProgram | None,
        child: subprocess.Popen[bytes] | None = None,
        group: JobGroup | None = None,
    ) -> None:
        listing = stack.enter_context(SocketList())
        selector = stack.enter_context(selectors.DefaultSelector())
        options = self.watched.options
        if options != SocketOptions():
            marker = Marker(job.members, options)
        else:
            marker = None
        shares = Shares(is_late=child is None)

        def stores() -> frozenset[int]:
            # A command inherits the environment of its agent, whose own is readable without a
            # capability.
            return store_ports((os.getpid(), *job.members()))

        is_peer = self.reporter.is_peer
        seen = JobConnections(
            listing,
            job.owner,
            program,
            is_peer,
            marker,
            shares=shares,
            stores=stores,
        )
        self.connections = seen
        period_s = POLL_S if program is None else READ_S
        if self.watched.idle_gap_s is not None:
            self.meter = IterationMeter(self.watched.idle_gap_s)
            period_s = min(period_s, self.watched.idle_gap_s / READINGS_PER_GAP)
        # What the agent needed its capabilities for is done, but for looking into processes.
        if program is None or marker is not None:
            capabilities.keep_only(capabilities.CAP_SYS_PTRACE)
        else:
            capabilities.keep_only()
        self.reporter.start()
        selector.register(signals, selectors.EVENT_READ)
        if program is not None:
            selector.register(program, selectors.EVENT_READ)
        if child is not None:
            ended = os.pidfd_open(child.pid)
            stack.callback(os.close, ended)
            selector.register(ended, selectors.EVENT_READ, child)
        if group is not None:
            selector.register(group, selectors.EVENT_READ)
        read_at_s = least_read_s = looked_s = 0.0
        is_over = False
        try:
            while not is_over:
                now_s = time.monotonic()
                if now_s >= read_at_s:
                    self._read(seen)
                    if now_s >= looked_s + READ_S:
                        looked_s = now_s
                        self._look_elsewhere(job.members())
                    pause_s = self.read_s / LARGEST_SHARE
                    least_read_s = now_s + max(POLL_S, pause_s)
                    read_at_s = now_s + max(period_s, pause_s)
                else:
                    seen.hear()
                    if seen.is_marking_due:
                        read_at_s = min(read_at_s, least_read_s)
                self.reporter.update(seen.data)
                timeout_s = max(0.0, read_at_s - time.monotonic())
                for key, _ in selector.select(timeout_s):
                    is_over |= key.data is not None
                    if group is not None and key.fileobj is group:
                        selector.unregister(group)
                        if self._guard(group):
                            selector.register(group, selectors.EVENT_READ)
                    if key.fileobj is signals:
                        _pass_on(signals, child)
                        is_over |= child is None
            if child is not None:
                self.reporter.update(frozenset())
        finally:
            self.reporter.stop(LAST_REPORT_S)

    def _guard(self, group: JobGroup) -> bool:
        """Start the shell anew that removes the job's group. Return whether this worked."""
        try:
            group.guard()
        except AgentError as error:
            self.say(str(error))
            return False
        return True

    def _look_elsewhere(self, members: Iterable[int]) -> None:
        """Tell once of each network namespace of the job whose sockets the agent does not see."""
        for process, network in processes.elsewhere(members):
            if network not in self.networks:
                self.networks.add(network)
                self.say(
                    f"process {process} of the job has a network namespace of its own, whose"
                    " connections are not reported (start an agent there: nsenter"
                    f" --net=/proc/{process}/ns/net echelon agent ...)"
                )

    def _read(self, seen: JobConnections) -> None:
        began_s = time.thread_time()
        try:
            seen.read()
        except AgentError as error:
            # The command must not lose its agent, which sees connections open by its program.
            if str(error) != self.problem:
                self.say(str(error))
            self.problem = str(error)
            return
        self.problem = None
        self._tell_refusal(seen)
        self.read_s = time.thread_time() - began_s
        if self.meter is not None:
            ended = self.meter.observe(time.monotonic(), seen.totals, seen.since_sent_s)
            if ended is not None:
                self.last_iteration = ended
                self.reporter.measured(ended)

    def _tell_refusal(self, seen: JobConnections) -> None:
        if not isinstance(seen.marker, Marker):
            return
        if seen.marker.refused in (None, self.refused):
            return
        self.refused = seen.marker.refused
        self.say(
            f"the kernel does not set what was asked for on a socket of the job: {self.refused}"
        )


_NEEDED = (
    capabilities.CAP_BPF,
    capabilities.CAP_NET_ADMIN,
    # The directory of the topmost group is writable for nobody.
    capabilities.CAP_DAC_OVERRIDE,
    # For /proc, where there are no groups.
    capabilities.CAP_SYS_PTRACE,
)


@dataclass(frozen=True, slots=True)
class _Job:
    """The job as the kernel knows it."""

    owner: Owner
    members: Callable[[], Iterable[int]]
    """Returns its processes."""

    @classmethod
    def of_group(cls, cgroup: Path) -> _Job:
        def owner() -> Callable[[TcpSocket], bool]:
            # Groups below it may come and go.
            numbers = cgroups.numbers(cgroup)
            return lambda tcp: tcp.cgroup in numbers

        return cls(owner, partial(cgroups.members, cgroup))

    @classmethod
    def of_process(cls, process: int) -> _Job:
        def owner() -> Callable[[TcpSocket], bool]:
            inodes = processes.socket_inodes(process)
            return lambda tcp: tcp.inode in inodes

        return cls(owner, partial(processes.descendants, process))


def _start(
    command: Sequence[str],
    cgroup: Path | None,
    environment: Mapping[str, str] | None,
) -> subprocess.Popen[bytes]:
    def enter() -> None:
        if cgroup is not None:
            # 0 stands for the process that writes.
            with (cgroup / "cgroup.procs").open("w") as stream:
                stream.write("0")

    try:
        return subprocess.Popen(command, preexec_fn=enter, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise AgentError(
            f"{command[0]}: {getattr(error, 'strerror', None) or error} (check the command)"
        ) from None


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that has one byte for each signal that asks the agent to end."""
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.setblocking(False)
        handlers = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            handlers[number] = signal.signal(number, lambda *_: None)
        former = signal.set_wakeup_fd(writing.fileno())
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(former)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _pass_on(signals: socket.socket, child: subprocess.Popen[bytes] | None) -> None:
    """Pass a request to end on to the child.

    An interrupt comes from the terminal, which sends it to the child, too.
    """
    for number in signals.recv(16):
        if child is not None and number == signal.SIGTERM:
            with suppress(ProcessLookupError):
                child.terminate()
