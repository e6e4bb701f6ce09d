"""Checksums that are verified and later updated over the same fields.

The fields that the program never writes add the same to both, so their sum is kept from verification to update.
"""

from __future__ import annotations

from collections.abc import Iterator

from softswitch import ir

from .deparser import implied
from .layout import Layout

_CLONES = frozenset({"clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"})


def share_sums(layout: Layout) -> None:
    """Fill ``layout.sums``.

    A sum is shared only if the update happens exactly when the verification did. Both must depend on the same condition
    on fields that are never written. The program must neither add, remove or copy headers nor clone, because a clone is
    parsed but not verified.
    """
    program, usage = layout.program, layout.usage
    error = program.intrinsics.get("checksum_error")
    if error is None or (error.header, error.field) not in layout.metadata:
        return
    if usage.structural or usage.primitives & _CLONES:
        return
    for verified in program.checksums:
        for updated in program.checksums:
            if verified.verify and updated.update and _alike(program, verified, updated) and _steady(layout, verified):
                name = layout.sums.get(verified.calculation) or f"_sum{len(layout.sums) + 1}"
                layout.sums[verified.calculation] = layout.sums[updated.calculation] = name


def _alike(program: ir.ProgramIR, verified: ir.ChecksumSpec, updated: ir.ChecksumSpec) -> bool:
    of, to = program.calculations[verified.calculation], program.calculations[updated.calculation]
    if of.algorithm != to.algorithm or of.inputs != to.inputs or verified.condition != updated.condition:
        return False
    return verified.target == updated.target


def _steady(layout: Layout, checksum: ir.ChecksumSpec) -> bool:
    """Return whether the condition cannot change and, where it holds, every input is a field of a valid header."""
    program = layout.program
    if checksum.condition is None:
        return False
    for read in _leaves(checksum.condition):
        if read is None or program.headers[read.header].metadata:
            return False
        if (read.header, read.field) in layout.usage.written:
            return False
    valid = implied(checksum.condition)
    inputs = [x.value for x in program.calculations[checksum.calculation].inputs]
    return checksum.target.header in valid and all(isinstance(x, ir.FieldRef) and x.header in valid for x in inputs)


def _leaves(expr: ir.Expr) -> Iterator[ir.FieldRef | None]:
    """Return the header fields that an expression reads, None if it contains anything but those, constants and
    validity."""
    match expr:
        case ir.FieldRef():
            yield expr
        case ir.Op(_, left, right, cond):
            for part in (left, right, cond):
                if part is not None:
                    yield from _leaves(part)
        case ir.Const() | ir.ValidRef() | ir.HeaderRef() | ir.BoolConst():
            return
        case _:
            yield None
