"""The native engine against the Python engine: the same entries, packets and times, and all that
can be seen compared.

python -m tests.softswitch.native.twins --packets 1000000
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ctoolchain import Compiler
from softswitch import Queued, Switch
from softswitch.native import NativeError, NativeProgram, compile_native
from tests.differential.walk import packets as walk
from tests.needs import path_of
from tests.soak.aiming import Aim
from tests.soak.configuration import Configuration
from tests.soak.mutation import Corpus, with_ipv4_checksum
from tests.soak.specimens import Specimen, specimens

SANITIZED = Compiler(
    "sanitized",
    (
        *(path_of("gcc") or "gcc", "-O1", "-g", "-w"),
        *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        # Each packet has memory of its own and of its own size.
        *("-DPACKET_ROOM=0", "-DNO_POOL"),
    ),
)
"""The compiler whose libraries end the process when they leave their memory, or do what C leaves
undefined.
"""
_BATCH = 50
_PASSES = 8


class TwinError(AssertionError):
    """The engines differ; the message says where, and how to make the difference again."""


@dataclass(slots=True)
class Side:
    """One engine: its switch, the changes that are made to it, and the digests that it sent."""

    switch: Switch
    changes: Configuration
    digests: list[Any] = field(default_factory=list)

    def pass_through(
        self, port: int, data: bytes, now_ns: int, waits: list[tuple[int, int, int]]
    ) -> list[Any]:
        """Return what a packet leads to: what is queued and what leaves, in order."""
        seen: list[Any] = []
        waiting = list(self.switch.ingress(port, data, now_ns))
        for wait_ns, enq_depth, deq_depth in waits:
            following: list[Queued] = []
            for queued in waiting:
                seen.append((queued.port, queued.queue, queued.length_bytes))
                begun_ns, now_ns = now_ns, now_ns + wait_ns
                for departure in self.switch.egress(queued, begun_ns, now_ns, enq_depth, deq_depth):
                    seen.append((departure.port, departure.packet, len(departure.requeue)))
                    following += departure.requeue
            waiting = following
        return seen

    def state(self) -> dict[str, Any]:
        """Return all that packets have changed."""
        switch = self.switch
        found: dict[str, Any] = {"stats": switch.stats, "digests": self.digests}
        for name, counter in switch.counters.items():
            found[f"counter {name}"] = list(counter.packet_counts), list(counter.byte_counts)
        for name, register in switch.registers.items():
            found[f"register {name}"] = list(register.cells)
        for name, table in switch.tables.items():
            if table.stateful:
                entries = (*table.entries(), table.default_entry)
                found[f"table {name}"] = [
                    (e.handle, e.packets, e.bytes, e.hit_ns, e.meter.config) for e in entries
                ]
        return found


def _side(switch: Switch, vocabulary_seed: str) -> Side:
    rng = random.Random(vocabulary_seed)
    side = Side(switch, Configuration(switch, Aim(switch.program.ir, rng), rng))
    switch.on_digest = lambda *what: side.digests.append(what)
    side.changes.write()
    return side


def compare(
    specimen: Specimen,
    count: int,
    seed: int,
    native: NativeProgram,
    advance: Callable[[int], None] = lambda _: None,
) -> int:
    """Put `count` packets through both engines; return how many led to something.

    Raises TwinError.
    """
    program = specimen.load()
    rng = random.Random(f"{seed} {specimen.name}")
    one = _side(Switch(program, seed=seed), f"{seed} entries")
    other = _side(Switch(program, seed=seed, native=native), f"{seed} entries")
    aim = Aim(program.ir, rng)
    fresh, corpus = walk(program.ir, aim, rng), Corpus(rng)
    thought_of = specimen.packets()
    now_ns = effects = 0
    for number in range(count):
        if number % _BATCH == _BATCH - 1:
            one.changes.change()
            other.changes.change()
            advance(_BATCH)
        if number < len(thought_of):
            data = thought_of[number]
        elif len(corpus) and rng.random() < 0.3:
            data = corpus.mutated()
        else:
            if rng.random() < 0.6:
                aim.at_any_entry(one.switch)
            else:
                aim.at_nothing()
            data = next(fresh)
        if rng.random() < 0.8:
            data = with_ipv4_checksum(data)
        if rng.random() < 0.05:
            corpus.add(data)
        now_ns += rng.choice((0, 1, 999, 1000, 10**6, 10**9, 1 << 40))
        highest = one.switch.max_port
        port = (
            rng.choice((0, 1, 2, 3, highest))
            if rng.random() < 0.99
            else rng.choice((-1, highest + 1, 1 << 20))
        )
        waits = [
            (rng.choice((0, 1000, 10**7)), rng.randrange(70), rng.choice((0, 3, 1 << 20)))
            for _ in range(_PASSES)
        ]
        if rng.random() < 0.2:
            found, wanted = (
                other.switch.process(port, data, now_ns),
                one.switch.process(port, data, now_ns),
            )
        else:
            wanted = one.pass_through(port, data, now_ns, waits)
            found = other.pass_through(port, data, now_ns, waits)
        effects += bool(wanted)
        place = (
            f"{specimen.name}: packet {number} of seed {seed}, to port {port}:"
            f" {data.hex() or 'no bytes'}"
        )
        if found != wanted:
            raise TwinError(f"{place}\nPython: {wanted}\nnative: {found}")
        if number % _BATCH == _BATCH - 2 or number == count - 1:
            _same(one.state(), other.state(), place)
    return effects


def _same(one: dict[str, Any], other: dict[str, Any], place: str) -> None:
    for name, wanted in one.items():
        if other[name] != wanted:
            raise TwinError(
                f"{place}\n{name} differs afterwards\nPython: {wanted}\nnative: {other[name]}"
            )


def sanitizers() -> dict[str, str]:
    """Return the environment in which sanitized libraries can be loaded."""
    libraries = [
        subprocess.run(
            [SANITIZED.command[0], f"-print-file-name={name}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    # Python itself leaves memory behind.
    return {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--packets", type=int, default=100_000, metavar="N", help="in all (default %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of packets and entries (default %(default)s)"
    )
    parser.add_argument(
        "--program", action="append", metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="with AddressSanitizer and UndefinedBehaviorSanitizer",
    )
    options = parser.parse_args()
    if options.sanitize and "LD_PRELOAD" not in os.environ:
        os.execve(
            sys.executable,
            [sys.executable, "-m", __spec__.name, *sys.argv[1:]],
            os.environ | sanitizers(),
        )
    chosen = [s for s in specimens() if not options.program or s.name in options.program]
    failed = 0
    for specimen in chosen:
        try:
            native = compile_native(specimen.load().ir, [SANITIZED] if options.sanitize else None)
        except NativeError as error:
            print(f"{specimen.name}: the native engine does not run it: {error}")
            failed = 1
            continue
        try:
            count = options.packets // len(chosen)
            effects = compare(specimen, count, options.seed, native)
            print(
                f"{specimen.name}: {count:,} packets, {effects:,} with an effect: no difference",
                flush=True,
            )
        except TwinError as error:
            print(error, flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
