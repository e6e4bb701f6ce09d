"""What programs of before version 2.5 of the JSON leave out or say in another way.

BMv2 still loads them, and its defaults are taken here: p4c-bm, the compiler of P4_14, wrote no
version, a table's actions by name, and an action profile as a part of its table
(behavioral-model, src/bm_sim/P4Objects.cpp: check_json_version, init_pipelines, init_checksums).
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch import ir

from .reader import Reader
from .scope import Scope

_MOST_MEMBERS = 1 << 16
"""The members of a profile without a size. BMv2 has no limit, and P4Runtime needs one."""


def table_actions(scope: Scope, table: Reader) -> tuple[int, ...]:
    """Return the ids of a table's actions, which earlier programs name in `actions`."""
    numbers: list[int] = []
    if table.find("action_ids") is not None:
        for item in table.elements_of("action_ids"):
            numbers.append(scope.action_id(item).id)
        return tuple(numbers)
    if table.find("actions") is None:
        raise table.fail("has no 'action_ids', nor the 'actions' of earlier programs")
    for item in table.elements_of("actions"):
        numbers.append(_action_named(scope, item))
    return tuple(numbers)


def _action_named(scope: Scope, item: Reader) -> int:
    name = item.text()
    matching: list[int] = []
    for action in scope.actions.values():
        if action.name == name:
            matching.append(action.id)
    if not matching:
        raise item.fail(f"there is no action '{name}'")
    if len(matching) > 1:
        # BMv2 takes the one that its hash map yields first.
        raise item.fail(f"{len(matching)} actions are named '{name}'; give 'action_ids'")
    return matching[0]


def profiles_in_tables(pipeline: Reader) -> list[tuple[str, Reader, int]]:
    """Return the name, the place and the size of each profile that a table of its own defines."""
    profiles: list[tuple[str, Reader, int]] = []
    for item in pipeline.members("tables"):
        name = item.optional_text("act_prof_name")
        if name is None or item.find("action_profile") is not None:
            continue
        placed = item.with_place(f"action profile '{name}'")
        profile = (name, placed, _MOST_MEMBERS)
        profiles.append(profile)
    return profiles


def profile_name(table: Reader) -> Reader:
    """Return the name of the profile that a table uses."""
    key = "action_profile"
    has_older = table.find("act_prof_name") is not None
    if has_older and table.find(key) is None:
        key = "act_prof_name"
    return table.get(key)


def ipv4_calculation(
    scope: Scope,
    checksum: str,
    target: ir.FieldRef,
    place: str,
) -> ir.Calculation:
    """Return the calculation of a checksum of type `ipv4`.

    It is the Internet checksum of the whole header, with zero in place of the checksum.
    """
    inputs: list[ir.CalculationInput] = []
    header = scope.headers[target.header]
    for field in header.type.fields:
        kind = "field"
        value: ir.Expr = ir.FieldRef(target.header, field.name)
        if field.name == target.field:
            kind = "const"
            value = ir.Const(0)
        inputs.append(ir.CalculationInput(kind, value, field.width))
    name = f"{checksum} (ipv4)"
    return ir.Calculation(name, "csum16", tuple(inputs), place)


def variable_length(scope: Scope, header: ir.HeaderType, extract: Reader) -> ir.Expr:
    """Return the bits of a header's variable field, from the header type's `length_exp`.

    The expression is over fields of the same header (`local`), which are not extracted yet: it
    looks ahead at them.
    """
    expression = None
    for item in scope.root.members("header_types"):
        if item.text_of("name") == header.name:
            expression = item.find("length_exp")
    if expression is None:
        raise extract.fail(
            f"header type '{header.name}' has a variable field but no 'length_exp'; extract it"
            " with 'extract_VL'"
        )
    ahead: list[ir.Expr] = []
    offset = 0
    for field in header.fields:
        if field.varbit:
            break
        ahead.append(ir.Lookahead(offset, field.width))
        offset += field.width
    length = scope.operation(expression, len(ahead))
    return _with_arguments(length, ahead)


def _with_arguments(expr: ir.Expr, arguments: Sequence[ir.Expr]) -> ir.Expr:
    """Return an expression with an argument in place of each parameter."""
    if isinstance(expr, ir.ParamRef):
        return arguments[expr.index]
    if not isinstance(expr, ir.Op):
        return expr
    left = None
    if expr.left is not None:
        left = _with_arguments(expr.left, arguments)
    right = _with_arguments(expr.right, arguments)
    cond = None
    if expr.cond is not None:
        cond = _with_arguments(expr.cond, arguments)
    return ir.Op(expr.op, left, right, cond)
