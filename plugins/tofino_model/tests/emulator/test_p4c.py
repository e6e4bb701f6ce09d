"""p4c's own STF tests for v1model, compiled for Tofino by p4c and executed here, with the packets
that p4c expects.

The environment variable ECHELON_P4C_TOFINO names the compiler (`p4c-barefoot`) and
ECHELON_P4C_TESTDATA the folder `testdata/p4_16_samples` of the same p4c. Nothing of either is a
part of this project.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from echelon_tofino_model.emulator import load_assembly
from echelon_tofino_model.emulator.stf import run
from softswitch.stf import parse
from tests.needs import needs

COMPILER, FOLDER = (
    os.environ.get("ECHELON_P4C_TOFINO", ""),
    os.environ.get("ECHELON_P4C_TESTDATA", ""),
)

pytestmark = [pytest.mark.long, needs("p4c for Tofino")]

_AS_COMPILED = """
    arith arith-inline array-copy bvec-hdr constant-in-calculation default-action-arg default_action enum
    gauntlet_enum_assign issue1814-1 issue2153 issue3488-1 key match-on-exprs saturated table-entries-exact
    table-entries-exact-ternary table-entries-optional table-entries-range table-entries-ser-enum
    table-entries-ternary ternary2
"""
"""The tests that pass with the compiler's output as it is."""

_WITH_PORT_0 = """
    gauntlet_complex_initialization gauntlet_copy_out gauntlet_exit_after_valid gauntlet_exit_combination_1
    gauntlet_exit_combination_10 gauntlet_exit_combination_11 gauntlet_exit_combination_13
    gauntlet_exit_combination_14 gauntlet_exit_combination_15 gauntlet_exit_combination_16
    gauntlet_exit_combination_17 gauntlet_exit_combination_18 gauntlet_exit_combination_2
    gauntlet_exit_combination_20 gauntlet_exit_combination_21 gauntlet_exit_combination_3
    gauntlet_exit_combination_4 gauntlet_exit_combination_5 gauntlet_exit_combination_6
    gauntlet_exit_combination_7 gauntlet_exit_combination_8 gauntlet_exit_combination_9
    gauntlet_function_if_hdr_return gauntlet_function_return_cast gauntlet_hdr_assign_1
    gauntlet_hdr_function_cast gauntlet_hdr_in_value gauntlet_hdr_init gauntlet_hdr_int_initializer
    gauntlet_index_2 gauntlet_index_5 gauntlet_index_6 gauntlet_indirect_hdr_assign_1
    gauntlet_indirect_hdr_assign_2 gauntlet_int_casting gauntlet_int_slice gauntlet_invalid_hdr_assign
    gauntlet_invalid_hdr_short_circuit gauntlet_list_as_in_argument gauntlet_mux_eval gauntlet_mux_validity
    gauntlet_nested_ifs_in_function gauntlet_nested_slice gauntlet_nested_switch gauntlet_return_truncate
    gauntlet_set_invalid gauntlet_set_valid_in_function gauntlet_side_effect_order_1
    gauntlet_side_effect_order_2 gauntlet_side_effect_order_3 gauntlet_switch_exclusivity
    gauntlet_switch_shadowing gauntlet_uninitialized_bool_struct gauntlet_variable_shadowing
    gauntlet_various_ops issue1000 issue2147 issue2170 issue2176 issue2221 issue2225 issue2287 issue2343
    issue2375-1 issue2375 issue2383 issue2392 issue2614 issue447 issue635 issue655 opassign1
    subparser-with-header-stack
"""
"""The tests whose programs never choose a port: v1model sends such packets to port 0, Tofino drops
them.
"""


@pytest.mark.parametrize("name", _AS_COMPILED.split())
def test_as_compiled(name: str, tmp_path: Path) -> None:
    check(name, compiled(name, tmp_path))


@pytest.mark.parametrize("name", _WITH_PORT_0.split())
def test_with_port_0(name: str, tmp_path: Path) -> None:
    check(name, with_port_0(compiled(name, tmp_path)))


def compiled(name: str, folder: Path) -> str:
    """Return the assembly that the compiler makes of a test's program."""
    source = Path(FOLDER) / f"{name}-bmv2.p4"
    include = Path(FOLDER).parents[1] / "p4include"
    options = [
        "--target",
        "tofino",
        "--arch",
        "v1model",
        "--std",
        "p4-16",
        "-I",
        str(include),
        "-o",
        str(folder),
    ]
    subprocess.run([COMPILER, *options, str(source)], check=True, capture_output=True, timeout=300)
    return (folder / "pipe" / f"{name}-bmv2.bfa").read_text()


def check(name: str, assembly: str) -> None:
    commands = parse((Path(FOLDER) / f"{name}-bmv2.stf").read_text(), f"{name}.stf")
    result = run(load_assembly(assembly, f"{name}.bfa"), commands, f"{name}.stf")
    assert not result.failures
    assert result.expectations


def with_port_0(assembly: str) -> str:
    """Return an assembly whose ingress parser sets the unicast port to 0.

    The port's container is the program's, or a free one if the program has none.
    """
    head, mark, rest = assembly.partition("deparser ingress:\n")
    ingress, egress, others = rest.partition("parser egress:\n")
    found = re.search(r"^  egress_unicast_port: (H\d+)\(", ingress, re.MULTILINE)
    if found is None:
        used = {int(number) for number in re.findall(r"\bH(\d+)\b", assembly)}
        container = f"H{next(number for number in range(16) if number not in used)}"
        ingress = f"  egress_unicast_port: {container}(0..8)\n{ingress}"
    else:
        container = found[1]
    if "  init_zero: [ " in head:
        head = head.replace("  init_zero: [ ", f"  init_zero: [ {container}, ", 1)
    else:
        head = head.replace(
            "parser ingress:\n", f"parser ingress:\n  init_zero: [ {container} ]\n", 1
        )
    return head + mark + ingress + egress + others
