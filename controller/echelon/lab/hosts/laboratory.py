"""A laboratory: the switches of a fabric and a service for them, for as long as a shell or a command runs.

Nothing here needs root: links between switches are Unix datagram sockets. In the laboratory's directory, the port of
switch `a` towards `b` takes the frames that are sent to the socket `a-b`, and sends its own to `a-b.peer`. So a program
that binds `leaf1-h1.peer` and sends to `leaf1-h1` is the host h1.

All processes end with the laboratory, whatever ends it: the kernel kills them when it is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from echelon.errors import RunError
from echelon.fabric.model import Fabric
from echelon.lab.hosts.serving import Controller, ServiceProcess
from echelon.lab.scenarios.scenario import PolicyChoice
from echelon.processes import dies_with_this
from echelon.progress import CommandProgress, counted
from echelon.targets.launching import Place, SwitchLauncher, SwitchProcess

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 2.0
"""How long a shell or command may take to end after SIGHUP."""
_BY_SIGNAL = 128


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Switches that hold the plan of a service that leads."""

    directory: Path
    service: ServiceProcess
    switches: Mapping[str, SwitchProcess]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of programs in the laboratory: `echelon` is found there, and finds the service."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        return {**os.environ, "PATH": path, "ECHELON_URL": self.service.url, "ECHELON_LAB": str(self.directory)}

    def run(self, command: Sequence[str]) -> int:
        """Run a shell or a command, and return its exit status, 128 + N where signal N ended it.

        On a terminal, Ctrl-C is for the command, which gets it, too.
        """
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        before = signal.getsignal(signal.SIGINT)
        if on_terminal:
            signal.signal(signal.SIGINT, lambda _number, _frame: None)
        # A shell needs the terminal's foreground; anything else gets a group, so that all of it can be ended.
        group = None if on_terminal else 0
        process = subprocess.Popen([*dies_with_this("HUP"), *command], env=self.environment, process_group=group)
        try:
            status = process.wait()
        finally:
            _hang_up(process, whole_group=not on_terminal)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, before)
        return status if status >= 0 else _BY_SIGNAL - status


@contextmanager
def laboratory(
    fabric: Fabric, policy: PolicyChoice, launcher: SwitchLauncher, progress: CommandProgress
) -> Iterator[Laboratory]:
    """Yield a laboratory when all its switches are ready.

    Raises `RunError`. SIGTERM, SIGHUP and SIGINT end it, and then this process, with status 128 + N. Call it in the
    main thread.
    """
    if not launcher.unix_ports:
        raise RunError("this target's ports need network interfaces (take softswitch, or echelon run --on namespaces)")
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="echelon-lab-")))
        progress.stage(f"starting {counted(len(fabric.switches), 'switch', 'switches')}")
        dies = dies_with_this()
        switches: dict[str, SwitchProcess] = {}
        for name, switch in fabric.switches.items():
            ports = {port: directory / f"{name}-{other}" for port, other in fabric.ports[name].items()}
            for other in fabric.ports[name].values():
                if other in fabric.switches:
                    (directory / f"{name}-{other}.peer").symlink_to(f"{other}-{name}")
            rates = {port: fabric.rate_bps[name, other] for port, other in fabric.ports[name].items()}
            interfaces = {port: f"unix:{path}" for port, path in ports.items()}
            switches[name] = launcher.launch(Place(name, switch.device_id, interfaces, rates), directory, before=dies)
            stack.callback(switches[name].kill)
        entries = {name: switch.entry for name, switch in switches.items()}
        service = ServiceProcess(Controller(directory, fabric, policy, entries, before=dies, service="lab"))
        stack.enter_context(service)
        for running in switches.values():
            running.wait_ready()
        progress.stage("starting the service")
        service.wait_settled()
        yield Laboratory(directory, service, switches)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    # Who starts it under nohup wants it to survive its terminal.
    before = {number: signal.getsignal(number) for number in _ENDING}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        for number in handled:
            signal.signal(number, _end)
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    # Another signal must not interrupt the end.
    for one in _ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(_BY_SIGNAL + number)


def _hang_up(process: subprocess.Popen[bytes], whole_group: bool) -> None:
    """End what is left of a command: as a terminal that is closed does, and what stays nevertheless, by SIGKILL."""
    send = os.killpg if whole_group else os.kill
    if process.poll() is None or whole_group:
        with suppress(ProcessLookupError):
            send(process.pid, signal.SIGHUP)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        send(process.pid, signal.SIGKILL)
        process.wait()
