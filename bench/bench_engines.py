"""softswitch's two engines, C and the interpreter in Python: packets through `process` per second
of one core, and how long C takes to be there.

Times are processor time, of compilers too, so that other work on the machine falsifies less, but
for a push, which is timed by the clock as well."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r
from google.protobuf import text_format
from reference.frames import ipv4, shim

from ctoolchain import Compiler, CSource, Loaded, compilers, load
from echelon.model.p4program import program
from softswitch import Switch, load_program
from softswitch.native import NativeProgram
from softswitch.native.choice import Choice
from softswitch.native.kept import load_kept
from softswitch.p4runtime.device import Device

sys.path.insert(0, str(Path(__file__).parent))
from bench_pipeline import configure

PACKETS = 20_000
ROUNDS = 7
PUSHES = 5
SIZES = (64, 1400)
HOPS = 16
HEADERS = 14 + 20


def _routed(switch: Switch) -> None:
    """Fill the bench's router: routes of three lengths and a default, 16 next hops at one port."""
    source_macs = switch.tables["RouterEgress.source_mac"]
    next_hops = switch.tables["RouterIngress.next_hop"]
    routes = switch.tables["RouterIngress.ipv4_lpm"]
    source_macs.insert((1,), 0, "RouterEgress.set_source", [0x020000000100])
    for hop in range(HOPS):
        mac = 0x020000000200 + hop
        next_hops.insert((hop,), 0, "RouterIngress.send", [1, mac])
    prefixes = []
    for network in range(64):
        first = 10 << 24 | network << 16
        prefixes += [(first, 16), (first | 256, 24), (first | 513, 32)]
    prefixes.append((0, 0))
    for number, prefix in enumerate(prefixes):
        routes.insert((prefix,), 0, "RouterIngress.set_next_hop", [number % HOPS])


def _router_frames(size: int) -> list[bytes]:
    rest = bytes(size - HEADERS)
    frames = []
    for number in range(256):
        destination = 10 << 24 | number % 64 << 16 | number % 4 << 8 | 1
        frames.append(ipv4(0x0A000001, destination, 17, rest))
    return frames


def job_frames(size: int) -> list[bytes]:
    shim_bytes = len(shim(1, 1, 1, 1))
    rest = bytes(max(0, size - HEADERS - shim_bytes))
    frames = []
    for number in range(256):
        job = number % 8 + 1
        flow = number // 8 % 8
        segment = shim(job, flow, 0, 10**6 - number, payload=rest)
        frames.append(ipv4(0x0A000001, 0x0A000002, 17, segment, tos=2))
    return frames


Workload = tuple[str, bytes, Callable[[Switch], None], Callable[[int], list[bytes]]]
"""A program's name and source, and functions that write its entries and make frames of a size."""


def _workloads() -> Iterator[Workload]:
    router = Path(__file__).parent / "programs" / "router.json"
    yield "router", router.read_bytes(), _routed, _router_frames
    yield "our program", program().binary.read_bytes(), configure, job_frames


def _used_s() -> float:
    """Return the processor time that this process and its children have used."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def _ns(switch: Switch, frames: list[bytes]) -> float:
    """Return the nanoseconds for a packet, in the fastest of some rounds."""
    process = switch.process
    repetitions = PACKETS // len(frames)
    times_s = []
    for _ in range(ROUNDS):
        begin = _used_s()
        for number in range(repetitions):
            for frame in frames:
                process(1, frame, number * 1_000_000)
        round_s = _used_s() - begin
        times_s.append(round_s / (repetitions * len(frames)))
    return min(times_s) * 1e9


DRIVER = """
typedef unsigned long long word;
typedef word (*process)(void *, unsigned, const unsigned char *, unsigned, word, const unsigned char **);
void repeat(process run, void *s, const unsigned char *data, unsigned length, word count)
{
    const unsigned char *out;
    for (word i = 0; i < count; i++)
        run(s, 1, data, length, i * 1000000, &out);
}
"""


def inside_ns(
    switch: Switch,
    frames: list[bytes],
    driver: Loaded,
) -> float:
    """Return the nanoseconds for a packet without Python: C calls C."""
    native: Any = switch.native
    memory = native.memory
    # The driver is another library with types of its own, so that only addresses pass.
    process = memory.ffi.addressof(memory.library, "ss_process")
    process_address = int(memory.ffi.cast("uintptr_t", process))
    switch_address = int(memory.ffi.cast("uintptr_t", memory.switch))
    run = driver.ffi.cast("void *", process_address)
    handle = driver.ffi.cast("void *", switch_address)
    times_s = []
    for frame in frames[:4] * 2:
        begin = _used_s()
        driver.library.repeat(run, handle, frame, len(frame), PACKETS)
        times_s.append((_used_s() - begin) / PACKETS)
    return min(times_s) * 1e9


def bench() -> list[tuple[str, float, str]]:
    rows = list(_pushed())
    driver = load(
        CSource("repeat", DRIVER),
        "void repeat(void *, void *, const uint8_t *, uint32_t, uint64_t);",
    )
    for name, source, fill, frames_of in _workloads():
        loaded = load_program(source, name)
        native = {}
        for compiler in compilers():
            native[compiler.name], cold_s, warm_s = _started(source, compiler)
            rows += [
                (
                    f"{name}: JSON to the first packet, {compiler.name}",
                    cold_s * 1e3,
                    "ms of processor",
                ),
                (f"{name}: the same with the cache", warm_s * 1e3, "ms of processor"),
            ]
        for size in SIZES:
            frames = frames_of(size)
            python = Switch(loaded)
            fill(python)
            assert python.process(1, frames[0], 0)
            of_python = _ns(python, frames)
            rows.append((f"{name}, {size} bytes: Python", 1e9 / of_python, "packets/s"))
            for compiler_name, compiled in native.items():
                switch = Switch(loaded, native=compiled)
                fill(switch)
                frame = frames[1]
                assert switch.process(1, frame, 0) == python.process(1, frame, 0)
                native_ns = _ns(switch, frames)
                inside_c_ns = inside_ns(switch, frames, driver)
                label = f"{name}, {size} bytes: C ({compiler_name})"
                rows += [
                    (label, 1e9 / native_ns, "packets/s"),
                    (f"{label} / Python", of_python / native_ns, "times the speed"),
                    (f"{label} without the call from Python", inside_c_ns, "ns a packet"),
                    (f"{label}, share of Python", 1 - inside_c_ns / native_ns, "of the time"),
                ]
    return rows


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Let compiled programs be kept in a new folder meanwhile."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def _started(source: bytes, compiler: Compiler) -> tuple[NativeProgram, float, float]:
    """Return a program's C, and the time until a switch takes packets, without and with a cache."""
    seconds = []
    with _empty_cache():
        for _ in range(2):
            load_kept.cache_clear()
            choice = Choice("native", [compiler])
            begin = _used_s()
            loaded = choice.load(source, f"{compiler.name}.json")
            native = choice(loaded)
            Switch(loaded, native=native).process(0, bytes(64), 0)
            seconds.append(_used_s() - begin)
    assert native is not None
    return native, seconds[0], seconds[1]


def _pushed() -> Iterator[tuple[str, float, str]]:
    """Yield how long a controller's push of our program takes until a packet has passed, with all
    compilers there.
    """
    compiled = program()
    p4info = text_format.Parse(compiled.p4info.read_text(), p4i.P4Info())
    claim = p4r.MasterArbitrationUpdate(
        device_id=1,
        election_id=p4r.Uint128(low=1),
    )
    become_primary = p4r.StreamMessageRequest(arbitration=claim)
    times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for turn in range(PUSHES):
        # Another program each time, as this process remembers what it has loaded.
        source = compiled.binary.read_bytes() + b" " * turn
        push = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=p4r.Uint128(low=1),
            action="VERIFY_AND_COMMIT",
            config=p4r.ForwardingPipelineConfig(
                p4info=p4info,
                p4_device_config=source,
            ),
        )
        with _empty_cache():
            for cache in ("no cache", "the cache"):
                load_kept.cache_clear()
                choice = Choice("native")
                device = Device(engines=choice)
                stream = device.open_stream(lambda _: None, lambda _: None)
                stream.receive(become_primary)
                begin = time.perf_counter()
                used = _used_s()
                device.set_pipeline(push)
                assert device.switch is not None
                device.switch.process(0, bytes(64), 0)
                first_packet = (time.perf_counter() - begin, _used_s() - used)
                times[cache].append(first_packet)
                native = choice(device.switch.program)
                assert native is not None
                native.wait()
                optimised = (time.perf_counter() - begin, _used_s() - used)
                times[f"{cache}, and the best compiler is done"].append(optimised)
    for name, measured in times.items():
        clock_s, processor_s = zip(*measured, strict=True)
        for kind, values in (("of the clock", clock_s), ("of processor", processor_s)):
            median_ms = statistics.median(values) * 1e3
            yield f"our program, push to the first packet, {name}", median_ms, f"ms {kind}"
