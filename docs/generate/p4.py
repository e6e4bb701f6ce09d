"""The page of the P4 tables, from the P4Info that p4c wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from finsy import pbutil
from finsy.proto import p4i

from docs.generate.text import code, table

INTRODUCTION = """# P4 tables

The tables, actions and digests of the P4 programs, from the committed P4Info. [The data plane](data-plane.md#tables)
says what each is for.
"""
PROGRAMS = {
    "v1model": "softswitch and BMv2",
    "tna": "Tofino 1",
    "t2na": "Tofino 2",
    "dscp": "softswitch, as the target dscp",
}
"""The architecture of each program, and where it runs."""


def page(build: Path) -> str:
    """Return the page; `build` is the directory `p4src/build`."""
    parts = [INTRODUCTION]
    for architecture, where in PROGRAMS.items():
        info = p4info(build / architecture / "echelon.p4info.txtpb")
        actions = {action.preamble.id: action for action in info.actions}
        parts += [f"## {architecture}\n", f"Runs on {where}.\n"]
        for one in sorted(info.tables, key=lambda one: one.preamble.alias):
            parts += [f"### {architecture}: {one.preamble.alias}\n", *_table(one, actions)]
        parts += [f"### {architecture}: digests\n", *_digests(info)]
    return "\n".join(parts)


def p4info(path: Path) -> p4i.P4Info:
    """Return the P4Info in a file without externs, since Tofino's are known to vendor tools."""
    known = re.sub(
        r"^externs \{$.*?^\}$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return pbutil.from_text(known, p4i.P4Info)


def _table(one: p4i.Table, actions: dict[int, p4i.Action]) -> Iterator[str]:
    yield f"`{one.preamble.name}`, identifier `{one.preamble.id:#010x}`, {one.size:,} entries.\n"
    yield table(
        ("key", "bits", "match"),
        [
            (
                code(field.name),
                str(field.bitwidth),
                p4i.MatchField.MatchType.Name(field.match_type).lower(),
            )
            for field in one.match_fields
        ],
    )
    yield table(
        ("action", "identifier", "parameters (bits)"),
        [
            (
                code(action.preamble.alias),
                code(f"{action.preamble.id:#010x}"),
                ", ".join(
                    f"`{parameter.name}` ({parameter.bitwidth})" for parameter in action.params
                ),
            )
            for action in (actions[reference.id] for reference in one.action_refs)
        ],
    )


def _digests(info: p4i.P4Info) -> Iterator[str]:
    yield table(
        ("digest", "identifier", "fields (bits)"),
        [
            (
                code(one.preamble.alias),
                code(f"{one.preamble.id:#010x}"),
                ", ".join(
                    f"`{member.name}` ({member.type_spec.bitstring.bit.bitwidth})"
                    for member in info.type_info.structs[one.type_spec.struct.name].members
                ),
            )
            for one in info.digests
        ],
    )
