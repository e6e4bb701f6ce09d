"""Native tables while they grow, shrink and change, against Python's."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ctoolchain import compilers
from softswitch import KeyElement, Switch, load_program
from softswitch.native import compile_native
from tests.needs import needs

PROGRAM = Path(__file__).parents[1] / "programs" / "matching.json"
Draw = Callable[[random.Random], tuple[KeyElement, ...]]


def _prefix(rng: random.Random) -> tuple[KeyElement, ...]:
    length = rng.choice((8, 12, 12, 16, 16, 32))
    return ((rng.getrandbits(length) << (32 - length), length),)


def _masked(rng: random.Random) -> tuple[KeyElement, ...]:
    mask = rng.choice((0xFFF, 0xFFF000, 0xF0F0F, 0xFFFFFFFF))
    return ((rng.getrandbits(32) & mask, mask), rng.randrange(2))


# number of the table in a query, name, keys
TABLES: list[tuple[int, str, Draw]] = [
    (1, "I.exact_two", lambda rng: (rng.randrange(3000), rng.randrange(2))),
    (2, "I.prefix", _prefix),
    (4, "I.masked", _masked),
]


@needs("a C compiler")
@pytest.mark.parametrize(("number", "name", "draw"), TABLES, ids=[name for _, name, _ in TABLES])
def test_thousands_of_entries_come_and_go(number: int, name: str, draw: Draw) -> None:
    rng = random.Random(name)
    program = load_program(PROGRAM.read_bytes())
    python = Switch(program)
    native = Switch(program, native=compile_native(program.ir, compilers()[-1:]))
    tables = [switch.tables[name] for switch in (python, native)]
    for table in tables:
        table.max_size = 1 << 20
    handles: list[int] = []
    sizes = set()
    for step in range(12_000):
        growing = step % 6000 < 4000
        if handles and rng.random() < (0.1 if growing else 0.7):
            at = rng.randrange(len(handles))
            handles[at], handles[-1] = handles[-1], handles[at]
            gone = handles.pop()
            for table in tables:
                table.delete(gone)
        elif handles and rng.random() < 0.1:
            answer, changed = rng.randrange(1 << 16), rng.choice(handles)
            for table in tables:
                table.modify(changed, "I.answer", (answer, 2))
        else:
            key, priority = draw(rng), rng.randrange(4) if name == "I.masked" else 0
            if tables[0].find(key, priority) is None:
                made = {table.insert(key, priority, "I.answer", (step, 2)) for table in tables}
                handles += made
                assert len(made) == 1
        sizes.add(len(handles))
        wanted = (
            tables[0].entry(rng.choice(handles)).key
            if handles and rng.random() < 0.7
            else draw(rng)
        )
        first, second = ((e[0] if isinstance(e, tuple) else e or 0) for e in (*wanted, 0)[:2])
        x = first ^ (rng.getrandbits(32) & rng.getrandbits(32) if rng.random() < 0.2 else 0)
        y, z = (second, 0) if name == "I.exact_two" else (0, second)
        data = bytes([number]) + x.to_bytes(4, "big") + y.to_bytes(2, "big") + bytes([z, 0, 0])
        assert native.process(0, data, 0) == python.process(0, data, 0)
    assert max(sizes) > 2000
