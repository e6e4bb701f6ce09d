"""BF Runtime beside P4Runtime, as an option of the command `softswitch`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from softswitch.cli.services import Parts, Served
from softswitch.cli.switch_command import ADDRESS

if TYPE_CHECKING:
    from echelon_tofino_model.emulator import TofinoSwitch
    from softswitch.virtual.switch import Pipelines


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file and the name of what it describes."""

    name: str
    path: Path


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    """Declare the options."""
    parser.add_argument(
        "--bf-runtime",
        metavar="ADDR",
        help=(
            "serve BF Runtime too, with a Tofino's traffic manager, such as 127.0.0.1:50052"
            " (default: not served)"
        ),
    )
    parser.add_argument(
        "--bf-rt-info",
        type=_named_file,
        metavar="[NAME=]FILE",
        help=(
            "the bf-rt.json of the program that BF Runtime serves (default NAME: the folder of a"
            " bf-rt.json)"
        ),
    )


def is_asked(options: argparse.Namespace) -> bool:
    """Return whether the options ask for BF Runtime.

    Raise `ValueError` for options that cannot be used.
    """
    if options.bf_runtime is not None and not ADDRESS.fullmatch(options.bf_runtime):
        raise ValueError(
            f"softswitch: --bf-runtime {options.bf_runtime}: not HOST:PORT or unix:PATH"
        )
    if options.bf_rt_info is not None and options.bf_runtime is None:
        raise ValueError("softswitch: --bf-rt-info needs --bf-runtime ADDR")
    return options.bf_runtime is not None


def serve(options: argparse.Namespace, parts: Parts) -> Served:
    """Return the server.

    It executes programs that clients bring, unless packets go through PROGRAM.json or only the
    description of a program is given.
    """
    from echelon_tofino_model.bfruntime.device import BfrtProgram
    from echelon_tofino_model.bfruntime.schema import parse
    from echelon_tofino_model.bfruntime.server import BfRuntimeServer
    from echelon_tofino_model.bfruntime.service import BfRuntime
    from echelon_tofino_model.bfruntime.store import StoredDevice
    from echelon_tofino_model.bfruntime.traffic import TrafficManager
    from echelon_tofino_model.emulator.device import TofinoDevice

    def use(switch: TofinoSwitch) -> None:
        parts.core.run(cast("Pipelines", switch))

    traffic = TrafficManager(parts.schedulers, parts.clock, parts.is_port_up)
    described: NamedFile | None = options.bf_rt_info
    if described is not None:
        program = BfrtProgram(
            described.name, parse(described.path.read_bytes(), str(described.path))
        )
        service = BfRuntime(StoredDevice(traffic, program), parts.lock)
    elif parts.has_program:
        service = BfRuntime(StoredDevice(traffic), parts.lock)
    else:
        service = BfRuntime(TofinoDevice(traffic, use), parts.lock)
    return Served("BF Runtime", BfRuntimeServer(service, options.bf_runtime), service.port_changed)


def _named_file(text: str) -> NamedFile:
    name, equals, path = text.rpartition("=")
    file = Path(path)
    if equals and not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not [NAME=]FILE, such as echelon=bf-rt.json")
    if not name:
        # p4c writes PROGRAM/bf-rt.json.
        plain = file.name in ("bf-rt.json", "bfrt.json")
        if plain:
            name = file.resolve().parent.name
        else:
            name = file.name.partition(".")[0]
    return NamedFile(name, file)
