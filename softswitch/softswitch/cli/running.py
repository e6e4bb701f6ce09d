"""A switch built from its options, which runs until a signal ends it."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ctoolchain import Loaded, ToolchainError
from softswitch import Program, Switch
from softswitch.cli.options import Interface, SwitchOptions
from softswitch.cli.report import ready_line, summary
from softswitch.cli.services import Parts, Served
from softswitch.cli.tls_options import exposures
from softswitch.gnmi.qos import PortCounters
from softswitch.native.choice import IN_PYTHON, Choice
from softswitch.native.core import Core
from softswitch.native.dataplane import NativeDataPlane
from softswitch.native.engine import Engine
from softswitch.native.polling import DataPlane
from softswitch.native.programs import PythonProgram
from softswitch.native.wires import Wires, has_barriers, load_core
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.realtime import HandoverLock, PacketSocketPort, Port, PortError, UnixPort
from softswitch.realtime.logged import LoggedPipelines, log_step, log_to
from softswitch.realtime.tapped import TappedPort
from softswitch.rpc.admission import AllowedClients
from softswitch.rpc.status import RefusedError
from softswitch.rpc.tls import TlsSource
from softswitch.tm import MAX_QUEUES, STRICT_QUEUES, PortQueues, QueueConfig
from softswitch.virtual.switch import Pipelines

if TYPE_CHECKING:
    from softswitch.trace import Tracer

__all__ = ["Ending", "new_core", "open_port", "run_switch", "until_ended"]

_SWITCH_INTERVAL_S = 0.0005
"""How long a gRPC thread may keep the interpreter when the data plane wants it too."""

_YOUNG_OBJECTS = 100_000
"""The surplus of new objects over freed ones at which Python looks for cyclic garbage. A packet
leaves no garbage behind, so only growing queues and controllers trigger a collection. A collection
never looks at objects that existed when the switch started."""

_DESCRIPTORS = 1 << 16
"""The descriptors of the process, of which each connection takes one.

The usual 1,024 are soon taken; a machine has 65,536 ports to call from.
"""


def run_switch(options: SwitchOptions) -> int:
    """Run a switch until SIGINT or SIGTERM, and return the exit status.

    Raises:
        ValueError, OSError: the options name something that cannot be used. Nothing runs then.
    """
    if sys.platform != "linux":
        raise ValueError(
            "softswitch: a switch in real time needs Linux (its packet sockets, and eventfd)"
        )
    for note in options.notes:
        print(f"softswitch: {note}", file=sys.stderr)
    _allow_connections()
    with until_ended() as ending, ExitStack() as closing:
        choice = Choice(options.engine)
        data_plane, device, served = _build(options, closing, choice)
        data_plane.start(on_failure=ending.ask)
        servers = [service.server for service in served]
        for server in servers:
            closing.enter_context(server)
        addresses = {service.name: service.server.address for service in served}
        for warning in exposures(addresses, options.tls):
            print(f"softswitch: {warning}", file=sys.stderr)
        print(ready_line(options, addresses, data_plane.up), flush=True)
        choice.on_line = lambda line: print(f"softswitch: {line}", file=sys.stderr)
        choice.tell()
        ending.wait()
        for server in servers:
            server.stop()
        data_plane.stop()
        print(summary(options, data_plane, device.switch), file=sys.stderr)
    return 0


def _allow_connections() -> None:
    """Take all descriptors that the system grants, up to `_DESCRIPTORS`.

    Where none is left, no connection is accepted: neither a stranger's nor the controller's.
    """
    granted, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if granted != resource.RLIM_INFINITY and granted < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _build(
    options: SwitchOptions,
    closing: ExitStack,
    choice: Choice,
) -> tuple[DataPlane | NativeDataPlane, Device, list[Served]]:
    log_to(options.log_console, options.log_file, options.log_level, options.log_flush)
    start_ns = time.monotonic_ns()

    def clock() -> int:
        return time.monotonic_ns() - start_ns

    lock = HandoverLock()
    program = None
    if options.program is not None:
        program = choice.load(options.program.read_bytes(), str(options.program))
    logs = options.log_console or options.log_file is not None
    tracer = None
    if logs and options.log_level == "trace":
        tracer = log_step()
    core: Core | Wires
    if _needs_python(options, choice, tracer):
        core = new_core(MAX_QUEUES if options.asked else options.queues)
    else:
        core = threaded_core(options.queues, len(options.interfaces), start_ns)

    def counters(port: int) -> PortCounters | None:
        outlet = core.outlets.get(port)
        if outlet is None:
            return None
        return PortCounters(
            outlet.packets_in, outlet.bytes_in, outlet.packets_out, outlet.bytes_out
        )

    schedulers: dict[int, PortQueues] = {}
    device = Device(
        None if program is None else _switch(program, options, tracer, choice),
        options.device_id,
        lock,
        ports=schedulers,
        now_ns=clock,
        epoch_ns=time.time_ns() - clock(),
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        seed=options.seed,
        tracer=tracer,
        memory_bytes=options.memory_bytes,
        roles=options.roles,
        engines=choice if tracer is None else None,
        port_counters=counters,
    )
    served: list[Served] = []

    def set_port_up(port: int, up: bool) -> None:
        device.set_port_up(port, up)
        with lock:
            for service in served:
                service.port_changed(port, up)

    data_plane: DataPlane | NativeDataPlane
    if isinstance(core, Core):
        data_plane = DataPlane(core, clock, lock, device, set_port_up)
    else:
        data_plane = NativeDataPlane(core, clock, lock, device, set_port_up)
    closing.callback(data_plane.stop)
    is_logged = logs and (options.dump_bytes or options.log_level in ("trace", "debug"))

    def run(switch: Switch) -> None:
        if switch.traced:
            choice.line = f"{IN_PYTHON}, because their steps are traced"
        choice.tell()
        pipelines = cast("Pipelines", switch)
        if is_logged:
            pipelines = LoggedPipelines(pipelines, options.dump_bytes)
        if isinstance(switch.native, Engine) and not is_logged:
            core.switch = switch.native
        elif isinstance(core, Core):
            core.run(pipelines)
        else:
            core.switch = PythonProgram(pipelines, lock)

    device.on_pipeline = run
    for interface in options.interfaces:
        port = open_port(interface, options.pcap)
        rate_bps = options.rates_bps.get(interface.port)
        scheduler = core.scheduler(rate_bps, _queues(options))
        schedulers[interface.port] = scheduler
        if isinstance(data_plane, NativeDataPlane):
            assert isinstance(port, PacketSocketPort)
            data_plane.add(interface.port, port, scheduler)
        else:
            data_plane.add(interface.port, port, scheduler)
        if not port.up:
            device.set_port_up(interface.port, False)
    if options.cpu_port is not None:
        data_plane.add_cpu_port(options.cpu_port)
        device.on_packet_out = data_plane.inject
    if device.switch is not None:
        run(device.switch)
    if options.p4info is not None:
        _install(device, options)
    server = _server(device, options)
    served.append(Served("P4Runtime and gNMI", server, lambda _port, _up: None))
    if isinstance(core, Core):
        parts = Parts(core, schedulers, clock, device.is_port_up, lock, program is not None)
        served += [service.serve(options.parsed, parts) for service in options.asked]
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 100)
    return data_plane, device, served


def _switch(
    program: Program,
    options: SwitchOptions,
    tracer: Tracer | None,
    choice: Choice,
) -> Switch:
    return Switch(
        program,
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        seed=options.seed,
        tracer=tracer,
        memory_bytes=options.memory_bytes,
        native=None if tracer is not None else choice(program),
    )


def open_port(interface: Interface, pcap: Path | None) -> Port:
    """Attach an interface. Raise ValueError if it cannot be used."""
    port: Port
    try:
        if interface.name.startswith("unix:"):
            port = UnixPort(interface.name.removeprefix("unix:"))
        else:
            port = PacketSocketPort(interface.name)
    except PortError as error:
        raise ValueError(f"softswitch: -i {interface.port}@{error}") from None
    if pcap is None:
        return port
    try:
        return TappedPort(port, pcap)
    except OSError:
        port.close()
        raise


def new_core(queues: int) -> Core:
    """Return a switch whose ports a thread of Python serves.

    Raise ValueError without a compiler.
    """
    return Core(_load_core(), queues)


def _load_core() -> Loaded:
    try:
        return load_core()
    except ToolchainError as error:
        raise ValueError(f"softswitch: {error}") from None


def _needs_python(
    options: SwitchOptions,
    choice: Choice,
    tracer: Tracer | None,
) -> bool:
    """Return whether a thread of Python has to serve the ports, for what threads in C cannot do."""
    has_socket = any(interface.name.startswith("unix:") for interface in options.interfaces)
    # Traces, pcap files and other servers need a place in Python that sees every packet.
    is_watched = tracer is not None or options.pcap is not None
    return choice.wanted == "python" or has_socket or is_watched or bool(options.asked)


def threaded_core(queues: int, interfaces: int, start_ns: int) -> Core | Wires:
    """Return a switch whose packets threads in C move.

    Where the only compiler cannot make such threads, a thread of Python moves them, and a line on
    standard error says so.
    """
    native = _load_core()
    if has_barriers(native.compiler):
        threads = max(1, min(interfaces, os.cpu_count() or 1))
        return Wires(native, queues, threads, start_ns)
    print(
        f"softswitch: one thread of Python serves all interfaces, because {native.compiler.name}"
        " makes no memory barriers for this processor (Debian: apt-get install gcc)",
        file=sys.stderr,
    )
    return Core(native, queues)


def _queues(options: SwitchOptions) -> tuple[QueueConfig, ...]:
    depth = options.queue_depth_bytes
    if depth is None:
        return STRICT_QUEUES
    return tuple(QueueConfig(level=queue.level, depth_bytes=depth) for queue in STRICT_QUEUES)


def _install(device: Device, options: SwitchOptions) -> None:
    """Commit the program with its P4Info, so that controllers find it installed."""
    from finsy.proto import p4r
    from google.protobuf import text_format  # type: ignore[import-untyped]

    assert options.program is not None
    assert options.p4info is not None
    config = p4r.ForwardingPipelineConfig(p4_device_config=options.program.read_bytes())
    try:
        text_format.Parse(options.p4info.read_text("utf-8"), config.p4info)
        device.install(config)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{options.p4info}: not a P4Info in protobuf text format: {error}"
        ) from None
    except RefusedError as error:
        raise ValueError(f"{options.p4info}: {error.status.message}") from None


def _server(device: Device, options: SwitchOptions) -> Server:
    """Return the server of P4Runtime and gNMI. Raise ValueError for TLS that cannot be used."""
    tls = options.tls
    if tls is None:
        return Server(device, options.address)
    try:
        source = TlsSource(tls)
        remarks = source.remarks()
        allowed = AllowedClients(tls.allowed) if tls.allowed else None
    except OSError as error:
        reason = f"{error.strerror}; check the path and its permissions"
        raise ValueError(f"softswitch: TLS file {error.filename}: {reason}") from None
    except ValueError as error:
        raise ValueError(f"softswitch: {error}") from None
    for remark in remarks:
        print(f"softswitch: {remark}", file=sys.stderr)
    return Server(
        device,
        options.address,
        credentials=source.credentials(),
        allowed=allowed,
    )


class Ending:
    """The end of a command, which signals and threads ask for, and the main thread waits for."""

    def __init__(self, reading: socket.socket, writing: socket.socket) -> None:
        self._reading = reading
        self._writing = writing

    def ask(self) -> None:
        """Ask the command to end, from any thread."""
        self._writing.send(b"\0")

    def wait(self) -> None:
        """Wait until the command is asked to end."""
        self._reading.recv(1)


@contextmanager
def until_ended() -> Iterator[Ending]:
    """Yield an end that SIGINT and SIGTERM ask for.

    A handler written in Python runs only when the main thread executes Python. A signal that
    arrives just before the main thread waits for a lock would never be handled. The interpreter
    writes to its wake-up file at once, whatever the main thread does.
    """
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.setblocking(False)
        ending = Ending(reading, writing)
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        former = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield ending
        finally:
            signal.set_wakeup_fd(former)
            for number, handler in before.items():
                signal.signal(number, handler)
