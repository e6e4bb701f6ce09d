"""Show how packets pass through a program, and what leaves.

It shows states, tables, actions, and what they change.

Entries come from --entries. The file is an STF test (.stf), whose commands before the first packet
are carried out, or a P4Runtime WriteRequest in protobuf text format, which needs --p4info. Without
packets on the command line, the packets of the STF test are traced.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from softswitch import Program, Switch
from softswitch.trace import Event, TraceText, plain

_STYLES = {
    "head": "bold",
    "name": "cyan",
    "value": "yellow",
    "good": "green",
    "bad": "red",
    "faint": "dim",
}
_DEFAULT_TIME_US = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "program",
        type=Path,
        help="the JSON that p4c-bm2-ss wrote for v1model",
    )
    parser.add_argument(
        "packet",
        nargs="*",
        type=_octets,
        metavar="HEXPACKET",
        help="a packet, in hexadecimal",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="ingress port of the packets (default 0)",
    )
    parser.add_argument(
        "--time",
        type=int,
        default=_DEFAULT_TIME_US,
        metavar="US",
        help=(
            "the switch's clock in microseconds at the first packet;"
            f" one more for each packet ({_DEFAULT_TIME_US})"
        ),
    )
    parser.add_argument(
        "--entries",
        type=Path,
        metavar="FILE",
        help="table entries: .stf, or a WriteRequest as text",
    )
    parser.add_argument(
        "--p4info",
        type=Path,
        metavar="FILE",
        help="P4Info (text) of the names and ids in --entries",
    )


def run(options: argparse.Namespace) -> int:
    """Trace the packets."""
    from softswitch import load_program

    show = printer()
    if options.time < 0:
        raise ValueError(f"--time: {options.time} is before the switch's clock starts")
    program = load_program(options.program.read_bytes(), str(options.program))
    if options.entries is None:
        if not options.packet:
            raise ValueError(
                "there is nothing to trace: give a packet,"
                " or --entries with an STF test that has packets"
            )
        switch = Switch(program, tracer=show)
    elif options.entries.suffix == ".stf":
        switch = _after_stf(program, options, show)
    else:
        if not options.packet:
            raise ValueError("there is nothing to trace: give a packet")
        switch = _after_write(program, options, show)
    if options.port not in range(switch.max_port + 1):
        raise ValueError(f"--port: {options.port} is not in 0..{switch.max_port}")
    for number, data in enumerate(options.packet):
        switch.process(options.port, data, (options.time + number) * 1_000)
    return 0


def _octets(text: str) -> bytes:
    """Return the bytes of a packet in hexadecimal, with or without 0x, colons, dots and blanks."""
    digits = re.sub(r"[\s:.]", "", text).lower().removeprefix("0x")
    if not digits or len(digits) % 2 or not re.fullmatch("[0-9a-f]+", digits):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of bytes in hexadecimal")
    return bytes.fromhex(digits)


def _after_stf(
    program: Program,
    options: argparse.Namespace,
    show: Callable[[Event], None],
) -> Switch:
    """Return a switch after the commands of an STF test.

    They end before the test's first packet, or are all of them if no packet is given.
    """
    from softswitch.stf import Run, StfError, parse, read_aliases
    from softswitch.stf.commands import Packet

    path = options.entries
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from None
    aliases: Mapping[str, str] = {}
    if options.p4info is not None:
        aliases = read_aliases(options.p4info)
    switch = Switch(program, tracer=show)
    test = Run(switch, str(path), aliases)
    packets = 0
    try:
        for command in parse(text, str(path)):
            if isinstance(command, Packet):
                if options.packet:
                    break
                packets += 1
            test.execute(command)
    except StfError as error:
        raise ValueError(str(error)) from None
    if not packets and not options.packet:
        raise ValueError(f"{path}: the test has no packet; give one to trace")
    return switch


def _after_write(
    program: Program,
    options: argparse.Namespace,
    show: Callable[[Event], None],
) -> Switch:
    """Return a switch after the updates of a P4Runtime WriteRequest."""
    import itertools

    from finsy.proto import p4i, p4r

    from softswitch.p4runtime.pipeline import Pipeline
    from softswitch.rpc.status import RefusedError

    path = options.entries
    if options.p4info is None:
        raise ValueError(
            f"{path}: a WriteRequest needs --p4info; name the file *.stf if it is an STF test"
        )
    info = p4i.P4Info()
    request = p4r.WriteRequest()
    _parse_text(options.p4info, info, "P4Info")
    _parse_text(path, request, "WriteRequest")
    config = p4r.ForwardingPipelineConfig(
        p4info=info,
        p4_device_config=options.program.read_bytes(),
    )
    try:
        pipeline = Pipeline(
            config,
            lambda _: Switch(program, tracer=show),
            itertools.count(1),
            now_ns=lambda: 0,
            has_port=lambda _: True,
        )
    except RefusedError as error:
        raise ValueError(f"{options.p4info}: {error}") from None
    for number, status in enumerate(pipeline.write(request.updates)):
        if status.code:
            raise ValueError(f"{path}: update {number}: {status.message}")
    return pipeline.switch


def _parse_text(
    path: Path,
    message: object,
    kind: str,
) -> None:
    from google.protobuf import text_format  # type: ignore[import-untyped]

    try:
        text_format.Parse(path.read_text("utf-8"), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a {kind} in protobuf text format: {reason}") from None


def printer() -> Callable[[Event], None]:
    """Return a function that prints events, in colours where standard output is a terminal."""
    text = TraceText()
    if not sys.stdout.isatty():

        def printed(event: Event) -> None:
            for line in text.lines(event):
                print(plain(line))

        return printed

    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)

    def coloured(event: Event) -> None:
        for line in text.lines(event):
            spans = [(span.text, _STYLES.get(span.style, "")) for span in line]
            console.print(Text.assemble(*spans))

    return coloured
