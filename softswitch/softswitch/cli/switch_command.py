"""Run a switch on network interfaces, with P4Runtime and gNMI.

It takes the options of simple_switch_grpc and a few more.

Tools: softswitch certificates, softswitch compile, softswitch stf, softswitch tofino, softswitch
trace (see softswitch TOOL -h).
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

from softswitch.cli.engine_option import add_engine
from softswitch.cli.memory_option import add_memory
from softswitch.cli.options import Interface, SwitchOptions
from softswitch.cli.services import services
from softswitch.cli.tls_options import add_allowed, add_server, chosen

_LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "off")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "softswitch [options] [PROGRAM.json] [-- target options]"
    parser.add_argument(
        "program",
        nargs="?",
        type=Path,
        metavar="PROGRAM.json",
        help="the JSON that p4c-bm2-ss wrote",
    )
    add = parser.add_argument
    add(
        "-v",
        "--version",
        action="version",
        version=_version(),
    )
    add(
        "-i",
        "--interface",
        action="append",
        type=interface,
        default=[],
        metavar="PORT@IFACE",
        dest="interfaces",
        help=(
            "attach a network interface as port PORT, or unix:PATH,"
            " a datagram socket whose peer is PATH.peer"
        ),
    )
    add(
        "--no-p4",
        action="store_true",
        help="start without a program; a controller sends one",
    )
    add(
        "--device-id",
        type=_number(0, (1 << 64) - 1),
        default=1,
        help="device id in P4Runtime and gNMI (default 1)",
    )
    add(
        "--pcap",
        metavar="DIR",
        type=Path,
        help="write IFACE_in.pcap and IFACE_out.pcap (--pcap=DIR; default .)",
    )
    add(
        "--log-console",
        action="store_true",
        help="log to stdout",
    )
    add(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="log to a file",
    )
    add(
        "-L",
        "--log-level",
        choices=_LOG_LEVELS,
        default="trace",
        help="default trace",
    )
    add(
        "--log-flush",
        action="store_true",
        help="flush the log file after each message",
    )
    add(
        "--dump-packet-data",
        type=_number(0, 1 << 16),
        default=0,
        metavar="N",
        help="log the first N bytes of each packet, at level info",
    )

    target = parser.add_argument_group(
        "target options", "these options may stand before or after --"
    )
    add = target.add_argument
    add(
        "--grpc-server-addr",
        default="0.0.0.0:9559",
        metavar="ADDR",
        help="address of P4Runtime and gNMI (default 0.0.0.0:9559)",
    )
    add(
        "--cpu-port",
        type=_number(1, 511),
        metavar="PORT",
        help="port of packet-in and packet-out (default none)",
    )
    add(
        "--drop-port",
        type=_number(0, 511),
        default=511,
        metavar="PORT",
        help="port number that means drop (default 511)",
    )
    add(
        "--priority-queues",
        type=_number(1, 8),
        default=1,
        metavar="N",
        help="number of queues that a program may use (default 1)",
    )
    add_server(target)

    more = parser.add_argument_group("options that simple_switch_grpc does not have")
    add = more.add_argument
    add(
        "--p4info",
        type=Path,
        metavar="FILE",
        help="P4Info of PROGRAM.json; controllers then find the pipeline installed",
    )
    add(
        "--port-rate",
        action="append",
        type=port_rate,
        default=[],
        metavar="[PORT=]RATE",
        dest="port_rates",
        help="line rate of a port, or of all ports: 10Mbit, 2=1Gbit (default: infinitely fast)",
    )
    for service in services():
        service.add_arguments(more)
    add(
        "--queue-depth",
        type=_number(1, 1 << 40),
        metavar="BYTES",
        help="depth of each queue (default 1 MiB)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        help="seed of the program's random numbers (default 0)",
    )
    add_engine(more)
    add_memory(more)
    add(
        "--role",
        action="append",
        default=[],
        metavar="NAME",
        dest="roles",
        help=(
            "a P4Runtime role that may write beside the default role's primary, and set the"
            " pipeline if its config has can_push_pipeline; '*' for every role (default: others"
            " only read)"
        ),
    )
    add_allowed(more)

    without = parser.add_argument_group(
        "accepted without effect, for launch scripts written for simple_switch_grpc"
    )
    for name in (
        "--thrift-port",
        "--notifications-addr",
        "--max-port-count",
        "--log-file-max-size",
    ):
        without.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--log-file-max-files", "--max-mc-groups", "--max-l1-entries", "--max-l2-entries"):
        without.add_argument(name, help=argparse.SUPPRESS)
    without.add_argument(
        "--disable-swap",
        action="store_const",
        const="",
        help=argparse.SUPPRESS,
    )
    for name in (
        "--nanolog",
        "--debugger-addr",
        "--packet-in",
        "--restore-state",
        "--dp-grpc-server-addr",
    ):
        without.add_argument(
            name,
            action=_Refused,
            help=argparse.SUPPRESS,
        )
    without.add_argument(
        "--use-files",
        action=_Refused,
        help=argparse.SUPPRESS,
    )
    without.add_argument(
        "--debugger",
        action=_Refused,
        nargs=0,
        help=argparse.SUPPRESS,
    )


def run(options: argparse.Namespace) -> int:
    """Run the switch until SIGINT or SIGTERM."""
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # gRPC raises an exception for everything that it logs
    from softswitch.cli.running import run_switch

    return run_switch(checked(options))


class _Refused(argparse.Action):
    """An option of simple_switch_grpc that asks for a feature that this switch does not have."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: object,
        _values: object,
        option: str | None = None,
    ) -> None:
        parser.error(f"{option}: {_REFUSALS.get(option or '', 'there is no such server here')}")


_REFUSALS = {
    "--use-files": "packets come from interfaces only; use softswitch stf for packets from files",
    "--packet-in": "packets come from interfaces only; unix:PATH needs no network interface",
    "--dp-grpc-server-addr": (
        "packets come from interfaces only; unix:PATH needs no network interface"
    ),
    "--restore-state": "state is not kept between runs; let a controller write it again",
    "--nanolog": "nanomsg is not supported; use --log-console or --log-file",
}

_IGNORED = {
    "thrift_port": (
        "there is no Thrift server; write tables through P4Runtime and queues through gNMI"
    ),
    "notifications_addr": "nanomsg is not supported; notifications travel on P4Runtime's stream",
    "max_port_count": "any number of ports can be attached",
    "log_file_max_size": "the log file is not rotated",
    "log_file_max_files": "the log file is not rotated",
    "max_mc_groups": "there is no such limit",
    "max_l1_entries": "there is no such limit",
    "max_l2_entries": "there is no such limit",
    "disable_swap": "pipelines can always be replaced",
}


def checked(options: argparse.Namespace) -> SwitchOptions:
    """Return the options as a whole. Raise ValueError for options that contradict each other."""
    if options.program is None and not options.no_p4:
        raise ValueError(
            "softswitch: give PROGRAM.json, or --no-p4 to wait for a controller's program"
        )
    if options.log_console and options.log_file is not None:
        raise ValueError(
            "softswitch: --log-console and --log-file exclude each other; give one of them"
        )
    notes = []
    program = options.program
    if options.no_p4 and program is not None:
        notes.append(f"{program} is ignored because --no-p4 is given")
        program = None
    if options.p4info is not None and program is None:
        raise ValueError("softswitch: --p4info needs PROGRAM.json")
    notes += [
        f"{_option(name)} is ignored: {why}"
        for name, why in _IGNORED.items()
        if getattr(options, name) is not None
    ]
    numbers = [interface.port for interface in options.interfaces]
    _check_ports(options, numbers)
    if not ADDRESS.fullmatch(options.grpc_server_addr):
        raise ValueError(
            f"softswitch: --grpc-server-addr {options.grpc_server_addr}: not HOST:PORT or unix:PATH"
        )
    asked = tuple(service for service in services() if service.is_asked(options))
    return SwitchOptions(
        program=program,
        p4info=options.p4info,
        interfaces=tuple(options.interfaces),
        device_id=options.device_id,
        address=options.grpc_server_addr,
        tls=chosen(options, notes),
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        queues=options.priority_queues,
        queue_depth_bytes=options.queue_depth,
        rates_bps=_rates(options, numbers),
        asked=asked,
        parsed=options,
        seed=options.seed,
        engine=options.engine,
        memory_bytes=options.memory,
        roles=tuple(options.roles),
        pcap=options.pcap,
        log_console=options.log_console,
        log_file=options.log_file,
        log_level=options.log_level,
        log_flush=options.log_flush,
        dump_bytes=options.dump_packet_data,
        notes=tuple(notes),
    )


def _check_ports(options: argparse.Namespace, numbers: Sequence[int]) -> None:
    """Refuse ports that are named twice, or that an interface and the switch itself would have."""
    names = [interface.name for interface in options.interfaces]
    for kind, values in (("port", numbers), ("interface", names)):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise ValueError(f"softswitch: -i: {kind} {min(twice)} is given twice")
    if options.cpu_port in numbers:
        raise ValueError(
            f"softswitch: --cpu-port {options.cpu_port}: an interface already has that port number;"
            " choose another"
        )
    if options.drop_port in (*numbers, options.cpu_port):
        raise ValueError(
            f"softswitch: port {options.drop_port} means drop;"
            " choose another drop port by --drop-port"
        )


def _rates(options: argparse.Namespace, numbers: Sequence[int]) -> dict[int, int | None]:
    """Return the rates in bits per second, by port. A later option overrides an earlier one."""
    rates_bps: dict[int, int | None] = {}
    for port, rate_bps in options.port_rates:
        if port is not None and port not in numbers:
            raise ValueError(
                f"softswitch: --port-rate {port}=...: no interface has that port number"
            )
        ports = numbers if port is None else [port]
        rates_bps.update(dict.fromkeys(ports, rate_bps))
    return rates_bps


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def interface(text: str) -> Interface:
    """Return a port and its interface. Raise argparse.ArgumentTypeError."""
    port, separator, name = text.partition("@")
    if not separator or not name or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT@IFACE, such as 0@veth0")
    if name in ("unix:", "unix"):
        raise argparse.ArgumentTypeError(f"{text!r}: unix: needs a path, as in 0@unix:/tmp/port0")
    if int(port) > _LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r}: port {port} is above {_LARGEST_PORT}")
    return Interface(int(port), name)


_LARGEST_PORT = 511
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
ADDRESS = re.compile(r"unix:.+|.*:\d{1,5}")
_RATE = re.compile(r"(?:(\d+)=)?(\d+(?:\.\d+)?)([kmg]?)(?:bit|bit/s|bps)?", re.IGNORECASE)


def port_rate(text: str) -> tuple[int | None, int]:
    """Return a port, or None for all ports, and its rate in bits per second.

    Raise argparse.ArgumentTypeError.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not [PORT=]RATE, such as 10Mbit or 2=1Gbit")
    port, number, unit = match.groups()
    rate_bps = round(float(number) * _UNITS[unit.lower()])
    if rate_bps < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a rate must be at least 1 bit/s")
    return None if port is None else int(port), rate_bps


def _number(low: int, high: int):  # type: ignore[no-untyped-def]
    def number(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return number


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"softswitch {version('echelon-p4')}"
    except PackageNotFoundError:
        return "softswitch, not installed"
