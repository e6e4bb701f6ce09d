"""Every program between the queues of the switch in real time does what it does with one packet
after another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from ctoolchain import compilers
from softswitch import CloneSession, KeyElement, Program, Switch, TableError, load_program
from softswitch.native import NativeProgram
from softswitch.native.choice import Choice
from softswitch.native.programs import PythonProgram
from tests.softswitch.realtime.native import CoreInC, SchedulerOfWires

HERE = Path(__file__).parent
FOUND = sorted(
    [
        *HERE.parent.rglob("*.json"),
        *(HERE.parents[2] / "p4src" / "build" / "v1model").glob("*.json"),
    ]
)
PORTS = 16
CPU_PORT = 510


@cache
def loaded(path: Path) -> Program:
    return load_program(path.read_bytes(), path.name)


def programs() -> list[Path]:
    return [path for path in FOUND if b'"pipelines"' in path.read_bytes()]


def fill(switch: Switch, seed: int) -> None:
    """Fill the switch with random entries and default actions, such that many packets match."""
    rng = random.Random(seed)

    def number(width: int) -> int:
        pool = (
            0,
            1,
            2,
            3,
            0x800,
            0x11,
            0x0A000001,
            0x0A000002,
            0x020000000001,
            rng.getrandbits(width or 1),
        )
        return rng.choice(pool) & ((1 << width) - 1)

    def element(match: str, width: int) -> KeyElement:
        value = number(width)
        if match == "exact":
            return value
        if match == "lpm":
            length = rng.choice((0, width // 2, width))
            return value >> (width - length) << (width - length), length
        if match == "range":
            return min(value, number(width)), max(value, (1 << width) // 2)
        mask = rng.choice((0, number(width), (1 << width) - 1))
        return value & mask, mask

    for table in switch.tables.values():
        if table.profile is not None:
            continue
        for priority in range(1, 9):
            action = rng.choice(table.actions)
            arguments = [number(parameter.width) for parameter in table.action_params[action]]
            key = [
                element(*field) for field in zip(table.match_types, table.key_widths, strict=True)
            ]
            with suppress(TableError):
                table.set_default(action, arguments)
            with suppress(TableError):
                table.insert(key, priority, action, arguments)


def new_switch(program: Program, native: NativeProgram | None = None) -> Switch:
    switch = Switch(program, cpu_port=CPU_PORT, seed=1, native=native)
    fill(switch, 3)
    # Copies have ports of their own: `process` lets none of them wait for another.
    switch.multicast_groups[1] = [(301, 1), (302, 2), (303, 3)]
    switch.clone_sessions[1] = CloneSession([(304, 0), (305, 0)], truncate_bytes=40)
    return switch


def frames(seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield random packets, most of them Ethernet and IPv4 as far as they go, many alike in all but
    a byte.
    """
    rng = random.Random(seed)
    base = bytes.fromhex(
        "0200000000010200000000020800 4500002e000000004011 66bd 0a000001 0a000002 0bb80bb9001a0000"
    )
    for _ in range(count):
        data = bytearray(base + rng.randbytes(rng.randrange(60)))
        for _ in range(rng.choice((0, 1, 1, 2, 40))):
            data[rng.randrange(len(data))] = rng.choice(
                (0, 1, 2, 3, 0x11, 0x45, rng.randrange(256))
            )
        yield (
            rng.randrange(PORTS),
            bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))]),
        )


def by_processing(switch: Switch, port: int, data: bytes, now_ns: int) -> list[tuple[int, bytes]]:
    return sorted(switch.process(port, data, now_ns))


def by_core(core: CoreInC, port: int, data: bytes, now_ns: int) -> list[tuple[int, bytes]]:
    core.receive(port, [data], now_ns)
    for _ in range(64):  # as often as `process` lets a packet go round
        if not any(outlet.due_ns is not None for outlet in core.outlets.values()):
            break
        core.serve_due(now_ns)
    sending = core.sending()
    gone = sorted((outlet.port, packet) for outlet in sending for packet in outlet.sending)
    for outlet in sending:
        core.sent(outlet, len(outlet.sending), 0)
    return gone


@pytest.mark.parametrize("path", programs(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_packets_fare_in_the_queues_as_without_them(path: Path) -> None:
    program = loaded(path)
    queued, at_once = (
        new_switch(program),
        new_switch(program, Choice("auto", compilers()[-1:])(program)),
    )
    core = CoreInC(PythonProgram(queued))
    for port in range(512):
        core.add(port, SchedulerOfWires(None))
    for number, (port, data) in enumerate(frames(7, 200)):
        now_ns = number * 10**6
        assert by_core(core, port, data, now_ns) == by_processing(at_once, port, data, now_ns), (
            data.hex()
        )
    assert core.account.missing == 0
    assert queued.stats == at_once.stats
    for name, register in queued.registers.items():
        assert register.cells == list(at_once.registers[name].cells)
