"""Run a Tofino program (.bfa) on network interfaces, or say what it holds.

A test in STF fills tables, multicast groups and mirror sessions before the first packet.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from softswitch.cli.switch_command import interface, port_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echelon_tofino_model.bfruntime.server import BfRuntimeServer
    from echelon_tofino_model.emulator import TofinoProgram, TofinoSwitch
    from echelon_tofino_model.emulator.device import TofinoDevice
    from softswitch.native.core import Core
    from softswitch.native.scheduler import PortScheduler
    from softswitch.realtime import HandoverLock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "program",
        type=Path,
        metavar="PROGRAM.bfa",
        help="the assembly that p4c wrote for Tofino",
    )
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        type=interface,
        default=[],
        metavar="PORT@IFACE",
        dest="interfaces",
        help=(
            "attach a network interface as device port PORT, or unix:PATH; without any, only"
            " describe the program"
        ),
    )
    parser.add_argument(
        "--setup",
        type=Path,
        metavar="FILE.stf",
        help="the entries to begin with",
    )
    parser.add_argument(
        "--port-rate",
        action="append",
        type=port_rate,
        default=[],
        metavar="[PORT=]RATE",
        dest="port_rates",
        help="line rate of a port, or of all ports: 10Mbit, 2=1Gbit (default: infinitely fast)",
    )
    add = parser.add_argument
    add(
        "--bf-runtime",
        metavar="ADDR",
        help="serve BF Runtime, such as 127.0.0.1:50052 (default: not served)",
    )
    add(
        "--bf-rt-info",
        type=Path,
        metavar="FILE",
        help="the bf-rt.json of PROGRAM.bfa; needs --bf-runtime",
    )


def run(options: argparse.Namespace) -> int:
    """Describe the program, or run it until SIGINT or SIGTERM."""
    from echelon_tofino_model.emulator import TofinoSwitch, load_assembly

    if options.bf_rt_info is not None and options.bf_runtime is None:
        raise ValueError("softswitch tofino: --bf-rt-info needs --bf-runtime ADDR")
    program = load_assembly(options.program.read_bytes(), str(options.program))
    switch = TofinoSwitch(program)
    if options.interfaces or options.bf_runtime is not None:
        return _serve(switch, options)
    if options.setup is not None:
        _set_up(switch, options.setup)
    print(_described(program))
    return 0


def _set_up(switch: TofinoSwitch, path: Path) -> None:
    from echelon_tofino_model.emulator.stf import TofinoTest
    from softswitch.stf import StfError, parse

    test = TofinoTest(switch, str(path))
    try:
        for command in parse(path.read_text("utf-8"), str(path)):
            test.execute(command)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from None
    except StfError as error:
        raise ValueError(str(error)) from None


def _described(program: TofinoProgram) -> str:
    """Return what the program holds, a line for each object."""
    lines = [
        (
            f"{program.name}: {len(program.ingress.mau.tables)} ingress and"
            f" {len(program.egress.mau.tables)} egress tables"
        )
    ]
    for table in program.tables.values():
        keys = ", ".join(f"{key.name}: {key.match} {key.width}" for key in table.keys)
        if keys:
            lines.append(f"table {table.name} ({keys}), {table.size} entries")
    for name, memory in program.registers.items():
        register = memory.register
        halves = "2 x " if register.is_dual else ""
        lines.append(f"register {name}: {register.size} cells of {halves}{register.width} bits")
    lines += [f"counter {name}" for name in program.counters]
    lines += [f"meter {name}" for name in program.meters]
    lines += [f"digest {name}" for name in program.digests]
    return "\n".join(lines)


class _NoControllers:
    """A stand-in for the control plane, where the data plane has none."""

    def tick(self, now_ns: int) -> None:
        """Do nothing."""

    def next_tick_ns(self) -> int | None:
        return None

    def packet_in(self, data: bytes) -> None:
        """Do nothing: no port leads to a controller."""


def _bf_runtime(
    options: argparse.Namespace,
    core: Core,
    schedulers: Mapping[int, PortScheduler],
    clock: Callable[[], int],
    lock: HandoverLock,
) -> tuple[TofinoDevice, BfRuntimeServer]:
    """Return the device and the server of BF Runtime.

    The device has the program if its description is given.
    """
    from echelon_tofino_model.bfruntime.device import BfrtProgram
    from echelon_tofino_model.bfruntime.schema import parse
    from echelon_tofino_model.bfruntime.server import BfRuntimeServer
    from echelon_tofino_model.bfruntime.service import BfRuntime
    from echelon_tofino_model.bfruntime.traffic import TrafficManager
    from echelon_tofino_model.emulator.device import TofinoDevice

    program = None
    if options.bf_rt_info is not None:
        schema = parse(options.bf_rt_info.read_bytes(), str(options.bf_rt_info))
        program = BfrtProgram(options.program.stem, schema, binary=options.program.read_bytes())

    def use(switch: TofinoSwitch) -> None:
        core.run(switch)

    device = TofinoDevice(TrafficManager(schedulers, clock), use, program)
    return device, BfRuntimeServer(BfRuntime(device, lock), options.bf_runtime)


def _serve(switch: TofinoSwitch, options: argparse.Namespace) -> int:
    from softswitch.cli.running import new_core, open_port, until_ended
    from softswitch.native.polling import DataPlane
    from softswitch.realtime import HandoverLock
    from softswitch.tm import MAX_QUEUES

    numbers = [attached.port for attached in options.interfaces]
    rates: dict[int, int | None] = {}
    for port, rate_bps in options.port_rates:
        if port is not None and port not in numbers:
            raise ValueError(
                f"softswitch tofino: --port-rate {port}=...: no interface has that port number"
            )
        rates |= dict.fromkeys(numbers if port is None else [port], rate_bps)
    start_ns = time.monotonic_ns()

    def clock() -> int:
        return time.monotonic_ns() - start_ns

    lock = HandoverLock()
    # A port may have all queues of its port group.
    core = new_core(MAX_QUEUES)
    core.run(switch)
    schedulers: dict[int, PortScheduler] = {}
    with until_ended() as ending, ExitStack() as closing:
        data_plane = DataPlane(core, clock, lock, _NoControllers())
        closing.callback(data_plane.stop)
        for attached in options.interfaces:
            schedulers[attached.port] = scheduler = core.scheduler(rates.get(attached.port))
            data_plane.add(attached.port, open_port(attached, None), scheduler)
        server = None
        if options.bf_runtime is not None:
            device, server = _bf_runtime(options, core, schedulers, clock, lock)
            switch = device.switch or switch
        if options.setup is not None:
            _set_up(switch, options.setup)
        data_plane.start(on_failure=ending.ask)
        listed = ", ".join(f"{attached.port} {attached.name}" for attached in options.interfaces)
        served = ""
        if server is not None:
            closing.enter_context(server)
            served = f", BF Runtime at {server.address}"
        print(f"softswitch tofino: {options.program}, ports {listed or 'none'}{served}", flush=True)
        ending.wait()
        if server is not None:
            server.stop()
        data_plane.stop()
        account = data_plane.account
        dropped = dict(account.dropped) | switch.stats.dropped
        reasons = "".join(f", {reason} {count}" for reason, count in dropped.items())
        print(
            f"packets: in {account.packets_in}, out {account.packets_out}{reasons}", file=sys.stderr
        )
    return 0
