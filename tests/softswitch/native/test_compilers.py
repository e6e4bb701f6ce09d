"""One compiler's library takes the place of another's while a switch runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctoolchain import compilers
from softswitch import Switch, load_program
from softswitch.native import compile_native
from tests.needs import needs

PROGRAMS = Path(__file__).parents[1] / "stf" / "programs"


@needs("two C compilers")
def test_the_better_library_takes_over_what_the_first_one_keeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    best, fastest = compilers()[0], compilers()[-1]
    program = load_program((PROGRAMS / "registers.json").read_bytes())
    native = compile_native(program.ir, at_once=True)
    assert (native.compiler_name, native.later) == (fastest.name, best.name)
    python, switch = Switch(program), Switch(program, native=native)
    packets = [bytes([kind, *range(30)]) for kind in range(8)]
    waiting = [(python.ingress(1, data, 5), switch.ingress(1, data, 5)) for data in packets]
    assert any(queued for queued, _ in waiting)
    native.wait()
    assert (native.compiler_name, native.later) == (best.name, None)
    for wanted, found in waiting:
        for one, other in zip(wanted, found, strict=True):
            [out], [made] = python.egress(one, 5, 9, 0, 0), switch.egress(other, 5, 9, 0, 0)
            assert (out.port, out.packet) == (made.port, made.packet)
    for data in packets:
        assert switch.process(1, data, 10) == python.process(1, data, 10)
    assert {n: list(r.cells) for n, r in switch.registers.items()} == {
        n: r.cells for n, r in python.registers.items()
    }
    assert compile_native(program.ir, at_once=True).compiler_name == best.name
