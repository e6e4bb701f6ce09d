"""softswitch's two engines, C and the interpreter in Python: packets through `process` per second of one core, and how
long C takes to be there.

All times are processor time, of compilers too, so that other work on the machine falsifies less."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reference.frames import ipv4, shim

from ctoolchain import Compiler, CSource, Loaded, compilers, load
from echelon.p4program import program
from softswitch import Switch, load_program
from softswitch.native import NativeProgram
from softswitch.native.choice import Choice
from softswitch.native.kept import load_kept

sys.path.insert(0, str(Path(__file__).parent))
from bench_pipeline import configure

PACKETS = 20_000
ROUNDS = 7
SIZES = (64, 1400)
HOPS = 16
HEADERS = 14 + 20


def _routed(switch: Switch) -> None:
    """Fill the bench's router: routes of three lengths and a default, 16 next hops behind one port."""
    tables = switch.tables
    tables["RouterEgress.source_mac"].insert((1,), 0, "RouterEgress.set_source", [0x020000000100])
    for hop in range(HOPS):
        tables["RouterIngress.next_hop"].insert((hop,), 0, "RouterIngress.send", [1, 0x020000000200 + hop])
    routes = [
        (10 << 24 | i << 16 | rest, length) for i in range(64) for rest, length in ((0, 16), (256, 24), (513, 32))
    ]
    for number, route in enumerate([*routes, (0, 0)]):
        tables["RouterIngress.ipv4_lpm"].insert((route,), 0, "RouterIngress.set_next_hop", [number % HOPS])


def _router_frames(size: int) -> list[bytes]:
    rest = bytes(size - HEADERS)
    return [ipv4(0x0A000001, 10 << 24 | i % 64 << 16 | i % 4 << 8 | 1, 17, rest) for i in range(256)]


def _job_frames(size: int) -> list[bytes]:
    rest = bytes(max(0, size - HEADERS - len(shim(1, 1, 1, 1))))
    shims = (shim(i % 8 + 1, i // 8 % 8, 0, 10**6 - i, payload=rest) for i in range(256))
    return [ipv4(0x0A000001, 0x0A000002, 17, each, tos=2) for each in shims]


def _workloads() -> Iterator[tuple[str, bytes, Callable[[Switch], None], Callable[[int], list[bytes]]]]:
    router = Path(__file__).parent / "programs" / "router.json"
    yield "router", router.read_bytes(), _routed, _router_frames
    yield "our program", program().binary.read_bytes(), configure, _job_frames


def _used_s() -> float:
    """Return the processor time that this process and its children have used."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def _ns(switch: Switch, frames: list[bytes]) -> float:
    """Return the nanoseconds for a packet, in the fastest of some rounds."""
    process, found = switch.process, []
    for _ in range(ROUNDS):
        begin = _used_s()
        for number in range(PACKETS // len(frames)):
            for frame in frames:
                process(1, frame, number * 1_000_000)
        found.append((_used_s() - begin) / (PACKETS // len(frames) * len(frames)))
    return min(found) * 1e9


_DRIVER = """
typedef unsigned long long word;
typedef word (*process)(void *, unsigned, const unsigned char *, unsigned, word, const unsigned char **);
void repeat(process run, void *s, const unsigned char *data, unsigned length, word count)
{
    const unsigned char *out;
    for (word i = 0; i < count; i++)
        run(s, 1, data, length, i * 1000000, &out);
}
"""


def _inside_ns(switch: Switch, frames: list[bytes], driver: Loaded) -> float:
    """Return the nanoseconds for a packet without Python: C calls C."""
    native: Any = switch.native
    memory = native.memory
    run = driver.ffi.cast(
        "void *", int(memory.ffi.cast("uintptr_t", memory.ffi.addressof(memory.library, "ss_process")))
    )
    handle = driver.ffi.cast("void *", int(memory.ffi.cast("uintptr_t", memory.switch)))
    found = []
    for frame in frames[:4] * 2:
        begin = _used_s()
        driver.library.repeat(run, handle, frame, len(frame), PACKETS)
        found.append((_used_s() - begin) / PACKETS)
    return min(found) * 1e9


def bench() -> list[tuple[str, float, str]]:
    rows: list[tuple[str, float, str]] = []
    driver = load(CSource("repeat", _DRIVER), "void repeat(void *, void *, const uint8_t *, uint32_t, uint64_t);")
    assert driver is not None
    for name, source, fill, frames_of in _workloads():
        loaded, native = load_program(source, name), {}
        for compiler in compilers():
            native[compiler.name], cold_s, warm_s = _started(source, compiler)
            rows += [
                (f"{name}: JSON to the first packet, {compiler.name}", cold_s * 1e3, "ms of processor"),
                (f"{name}: the same with the cache", warm_s * 1e3, "ms of processor"),
            ]
        for size in SIZES:
            frames = frames_of(size)
            python = Switch(loaded)
            fill(python)
            assert python.process(1, frames[0], 0)
            of_python = _ns(python, frames)
            rows.append((f"{name}, {size} bytes: Python", 1e9 / of_python, "packets/s"))
            for compiler_name, made in native.items():
                switch = Switch(loaded, native=made)
                fill(switch)
                assert switch.process(1, frames[1], 0) == python.process(1, frames[1], 0)
                whole, inside = _ns(switch, frames), _inside_ns(switch, frames, driver)
                of = f"{name}, {size} bytes: C ({compiler_name})"
                rows += [
                    (of, 1e9 / whole, "packets/s"),
                    (f"{of} / Python", of_python / whole, "times the speed"),
                    (f"{of} without the call from Python", inside, "ns a packet"),
                    (f"{of}, share of Python", 1 - inside / whole, "of the time"),
                ]
    return rows


def _started(source: bytes, compiler: Compiler) -> tuple[NativeProgram, float, float]:
    """Return a program's C, and the seconds until a switch takes packets, without and with a cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            for _ in range(2):
                load_kept.cache_clear()
                choice = Choice("native", [compiler])
                begin = _used_s()
                loaded = choice.load(source, f"{compiler.name}.json")
                native = choice(loaded)
                Switch(loaded, native=native).process(0, bytes(64), 0)
                seconds.append(_used_s() - begin)
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before
    assert native is not None
    return native, seconds[0], seconds[1]
