"""One process that runs hostile programs in Python and in C, and says a line about each.

``python -m tests.soak.hostile.trial COMPILER FIRST COUNT PACKETS``: COMPILER is tcc, cc or
sanitized. A process that a program ends has said its seed before.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import ctoolchain
from ctoolchain import Compiler
from softswitch import ProgramError, Switch
from softswitch.native import NativeError, compile_native
from softswitch.switch import load_program
from tests.soak.hostile.grammar import Grammar

FINE = ("ran", "refused", "refused by both", "unfit")
"""The kinds without a fault. What is unfit runs in Python only, in C it has no form."""

BUDGET_BYTES = 64 << 20
LIMIT_S = 20
"""The processor time that ends the process: no program may keep its packets so long."""


def compiler_named(name: str) -> Compiler:
    if name == "sanitized":
        from tests.softswitch.native.twins import SANITIZED

        quick = ("-O0" if part == "-O1" else part for part in SANITIZED.command if part != "-g")
        return Compiler("sanitized", tuple(quick))
    compilers = {compiler.name: compiler for compiler in ctoolchain.compilers()}
    if name not in compilers:
        names = ", ".join((*compilers, "sanitized"))
        raise SystemExit(f"this machine has no compiler {name} (it has {names})")
    return compilers[name]


def attempt(seed: int, compiler: Compiler, packets: int) -> str:
    """Return what became of the program of a seed: a kind of `FINE`, or how engines differ."""
    grammar = Grammar(seed)
    source = json.dumps(grammar.make()).encode()
    refusal = None
    try:
        program = load_program(source, str(seed))
        python = Switch(program, memory_bytes=BUDGET_BYTES)
    except ProgramError as error:
        refusal = str(error)
    try:
        plain = load_program(source, str(seed), resolved=False)
        native = compile_native(plain.ir, [compiler])
        switch = Switch(plain, native=native, memory_bytes=BUDGET_BYTES)
    except ProgramError as error:
        if refusal is None:
            return f"differs: C alone refuses {error}"
        return "refused" if str(error) == refusal else "refused by both"
    except NativeError as error:
        if "ended with status" in str(error):
            return f"differs: {error}"
        return "unfit" if refusal is None else "refused by both"
    if refusal is not None:
        return f"differs: Python alone refuses {refusal}"
    for number, data in enumerate(grammar.packets(packets)):
        now_ns = 1000 * number
        wanted = python.process(number % 4, data, now_ns)
        seen = switch.process(number % 4, data, now_ns)
        if wanted != seen:
            return f"differs: packet {number}"
    if python.stats != switch.stats:
        return f"differs: {python.stats} {switch.stats}"
    return "ran"


def main() -> int:
    name, first, count, packets = sys.argv[1:]
    os.environ.pop("LD_PRELOAD", None)
    compiler = compiler_named(name)
    for seed in range(int(first), int(first) + int(count)):
        print(seed, end=" ", flush=True)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        print(attempt(seed, compiler, int(packets)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
