"""A laboratory: the switches of a fabric and a service for them.

It lasts as long as a shell or a command runs.

Without hosts, it needs no root: links between switches are Unix datagram sockets. In the
laboratory's directory, the port of switch `a` towards `b` takes the frames that are sent to the
socket `a-b`, and sends its own to `a-b.peer`. So a program that binds `leaf1-h1.peer` and sends to
`leaf1-h1` is the host h1.

With hosts, all of it is in a sandbox (`sandbox.py`), and hosts have the kernel's sockets. Browsers
outside reach the page through a port of this machine (`outside`).

All processes end with the laboratory, whatever ends it: the kernel kills them when it is killed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import ClassVar, NoReturn

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.progress import CommandProgress, counted
from echelon.switches.processes import NICENESS, dies_with_this, preferred
from echelon.switches.targets.launching import SwitchLauncher, SwitchProcess
from echelon_lab.hosts.backends.interfaces import HostFabric
from echelon_lab.hosts.exposure import LOOPBACK, expose
from echelon_lab.hosts.serving import Controller, ServiceProcess, start_switches
from echelon_lab.scenarios.scenario import PolicyChoice

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PREFIX = "echelon-lab-"
_API = "api"
_PAGE = "ECHELON_LAB_PAGE"
_ANYWHERE = ("127.0.0.1", 0)
_PIECE = 1 << 16
_GRACE_S = 2.0
"""The time that a shell or command has to end after SIGHUP."""
_BY_SIGNAL = 128


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Switches that hold the plan of a service that leads."""

    directory: Path
    service: ServiceProcess
    switches: Mapping[str, SwitchProcess]
    certificates: Path | None = None
    """The folder of certificates, where others than this machine reach the switches."""

    @property
    def page(self) -> str:
        """The URL of the page."""
        return os.environ.get(_PAGE, self.service.url)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of programs in the laboratory.

        They find `echelon`, which finds the service, and `host` if there are hosts.
        """
        commands = (
            str(self.directory),
            str(Path(sys.executable).parent),
            os.environ.get("PATH", os.defpath),
        )
        path = os.pathsep.join(commands)
        return {
            **os.environ,
            "PATH": path,
            "ECHELON_URL": self.service.url,
            "ECHELON_LAB": str(self.directory),
        }

    def run(self, command: Sequence[str]) -> int:
        """Run a shell or a command, and return its exit status, 128 + N where signal N ended it.

        On a terminal, Ctrl-C is for the command, which gets it, too.
        """
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        before = signal.getsignal(signal.SIGINT)
        if on_terminal:
            signal.signal(signal.SIGINT, lambda _number, _frame: None)
        # A shell needs the terminal's foreground; anything else gets a group, so that all of it can
        # be ended.
        if on_terminal:
            group = None
        else:
            group = 0
        process = subprocess.Popen(
            [*dies_with_this("HUP"), *command],
            env=self.environment,
            process_group=group,
        )
        try:
            status = process.wait()
        finally:
            _hang_up(process, whole_group=not on_terminal)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, before)
        if status >= 0:
            return status
        return _BY_SIGNAL - status


@contextmanager
def laboratory(
    fabric: Fabric,
    policy: PolicyChoice,
    launcher: SwitchLauncher,
    progress: CommandProgress,
    hosts: HostFabric | None = None,
    host: str = LOOPBACK,
    queue_bytes: int | None = None,
) -> Iterator[Laboratory]:
    """Yield a laboratory when all its switches are ready.

    With `hosts`, call it in a sandbox, inside of `outside`. Switches listen at `host`; where that
    is not loopback, they and the service show certificates. Each of their queues holds
    `queue_bytes`, or the target's number.

    Raises `RunError`. SIGTERM, SIGHUP and SIGINT end it, and then this process, with status 128 +
    N. Call it in the main thread.
    """
    if hosts is None and not launcher.unix_ports:
        raise RunError(
            "this target's ports need network interfaces (take softswitch,"
            " or give --hosts, as root)"
        )
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        if hosts is None:
            directory, api = Path(stack.enter_context(TemporaryDirectory(prefix=_PREFIX))), None
        else:
            directory = Path(os.environ["ECHELON_LAB"])
            api = directory / _API
        progress.stage(f"starting {counted(len(fabric.switches), 'switch', 'switches')}")
        dies = dies_with_this()
        interfaces: Callable[[str], Mapping[int, str]] = partial(_sockets, fabric, directory)
        if hosts is not None:
            stack.enter_context(hosts)
            _write_command(directory / "host", fabric, hosts)
            interfaces = hosts.interfaces
        exposure = expose(host, launcher, fabric.switches, directory)
        switches = start_switches(
            stack,
            fabric,
            launcher,
            interfaces,
            directory,
            (*dies, *preference()),
            queue_bytes,
            exposure,
        )
        keys = exposure.keys()
        entries = {name: {**switch.entry, **keys} for name, switch in switches.items()}
        service = ServiceProcess(
            Controller(
                directory,
                fabric,
                policy,
                entries,
                api,
                before=dies,
                service="lab",
            )
        )
        stack.enter_context(service)
        for name, running in switches.items():
            (directory / f"{name}.pid").write_text(f"{running.pid}\n")
            running.wait_ready()
        progress.stage("starting the service")
        service.wait_settled()
        yield Laboratory(directory, service, switches, exposure.certificates)


def preference() -> Sequence[str]:
    """Return the words that let a switch or hosts go before other work, where this user may."""
    if os.geteuid() == 0:
        return preferred(NICENESS)
    return ()


def _sockets(
    fabric: Fabric,
    directory: Path,
    switch: str,
) -> Mapping[int, str]:
    """Return the sockets at the ports of a switch, and join them with those of its neighbours."""
    for other in fabric.ports[switch].values():
        if other in fabric.switches:
            (directory / f"{switch}-{other}.peer").symlink_to(f"{other}-{switch}")
    sockets = {}
    for port, other in fabric.ports[switch].items():
        sockets[port] = f"unix:{directory / f'{switch}-{other}'}"
    return sockets


def _write_command(
    path: Path,
    fabric: Fabric,
    hosts: HostFabric,
) -> None:
    """Write the command `host`."""
    cases = [f'{name}) in="{" ".join(hosts.in_host(name))}" ;;' for name in fabric.hosts]
    unknown = f"there is no host '$1' (there are {', '.join(fabric.hosts)})"
    path.write_text(
        "\n".join(
            (
                "#!/bin/sh",
                "# host NAME [COMMAND...]: run a command in the network of a host, or a shell.",
                'case "$1" in',
                *cases,
                f'*) echo "host: {unknown}" >&2; exit 2 ;;',
                "esac",
                '[ $# -gt 1 ] || set -- "$1" env PS1="$1> " "${SHELL:-sh}"',
                "shift",
                'exec $in "$@"',
                "",
            )
        )
    )
    path.chmod(0o755)


@contextmanager
def outside() -> Iterator[None]:
    """Prepare the environment of a laboratory that runs in a sandbox.

    It has a directory, and a port of this machine at which browsers reach its API, which is a Unix
    socket.
    """
    with (
        TemporaryDirectory(prefix=_PREFIX) as directory,
        socketserver.ThreadingTCPServer(_ANYWHERE, _Relay) as door,
    ):
        door.daemon_threads = True
        _Relay.path = str(Path(directory) / _API)
        os.environ |= {
            "ECHELON_LAB": directory,
            _PAGE: f"http://127.0.0.1:{door.server_address[1]}",
        }
        threading.Thread(
            target=door.serve_forever,
            daemon=True,
        ).start()
        try:
            yield
        finally:
            door.shutdown()


class _Relay(socketserver.BaseRequestHandler):
    """A relay between a TCP connection and the Unix socket at `path`, until either side ends."""

    path: ClassVar[str]

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as service:
            try:
                service.connect(self.path)
                other = {service: self.request, self.request: service}
                while True:
                    for source in select.select(other, [], [])[0]:
                        if not (data := source.recv(_PIECE)):
                            return
                        other[source].sendall(data)
            except OSError:
                return


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    # Who starts it under nohup wants it to survive its terminal.
    before = {number: signal.getsignal(number) for number in _ENDING}
    handled = []
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            handled.append(number)
    try:
        for number in handled:
            signal.signal(number, _end)
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    # Another signal must not interrupt the end.
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise SystemExit(_BY_SIGNAL + number)


def _hang_up(process: subprocess.Popen[bytes], whole_group: bool) -> None:
    """End what is left of a command as a terminal that is closed does.

    What stays nevertheless is killed.
    """
    send = os.kill
    if whole_group:
        send = os.killpg
    if process.poll() is None or whole_group:
        with suppress(ProcessLookupError):
            send(process.pid, signal.SIGHUP)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        send(process.pid, signal.SIGKILL)
        process.wait()
