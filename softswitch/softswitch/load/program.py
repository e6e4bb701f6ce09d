"""The translation of BMv2 JSON to :mod:`softswitch.ir`.

The format is 2.x, as p4c's ``bmv2`` back end emits it.

behavioral-model's ``docs/JSON_format.md`` documents the format. The loader raises
:class:`~softswitch.errors.ProgramError`, which names the place, for a reference to something that
does not exist, a value of the wrong type or out of range, or a construct outside v1model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.v1model import CORE_ERRORS

from . import limits
from .bounds import check_bounds
from .headers import read_headers, read_intrinsics
from .parser import ParserReader
from .pipeline import PipelineReader
from .reader import Reader
from .scope import Scope
from .state import (
    read_action,
    read_calculation,
    read_checksum,
    read_counter,
    read_field_lists,
    read_meter,
    read_register,
    read_value_set,
)

FORMAT_MAJOR = 2


def load_ir(source: Mapping[str, Any] | bytes | str, name: str) -> ir.ProgramIR:
    """Parse and check a program.

    ``source`` is BMv2 JSON as text or already decoded; messages use ``name``.

    Raises :class:`ProgramError`.
    """
    if isinstance(source, (bytes, str)):
        limits.SOURCE.check(name, len(source))
        try:
            decoded = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise ProgramError(name, f"is not JSON: {error}") from None
    else:
        decoded = source
    try:
        program = _program(Reader(decoded, name))
        check_bounds(program)
    except RecursionError:
        raise ProgramError(name, "an expression or object is nested too deeply") from None
    return program


def _program(root: Reader) -> ir.ProgramIR:
    _check_version(root)
    for item in root.members("extern_instances"):
        _, instance = item.named("extern instance")
        kind = instance.optional_text("type") or "?"
        raise instance.fail(
            f"externs of type '{kind}' are not part of v1model;"
            " simple_switch needs an extra module for them"
        )
    scope = Scope(root)
    read_headers(scope)
    counters = scope.named("counter_arrays", "counter array", read_counter)
    registers = scope.named("register_arrays", "register array", read_register)
    meters = scope.named(
        "meter_arrays", "meter array", lambda name, reader: read_meter(scope, name, reader)
    )
    scope.objects = {"counter_array": counters, "register_array": registers, "meter_array": meters}
    calculations = scope.named(
        "calculations", "calculation", lambda name, r: read_calculation(scope, name, r)
    )
    scope.objects["calculation"] = calculations
    scope.value_sets = scope.named("parse_vsets", "value set", read_value_set)
    for item in root.members("actions"):
        action = read_action(scope, item)
        if action.id in scope.actions:
            raise item.fail(f"action id {action.id} is used twice")
        scope.actions[action.id] = action
    parsers = ParserReader(scope)
    parser = scope.only("parsers", "parser", parsers.parser)
    flow = PipelineReader(scope, counters, meters)
    pipelines = flow.pipelines()
    return ir.ProgramIR(
        name=root.place,
        headers=scope.headers,
        stacks=scope.stacks,
        unions=scope.unions,
        union_stacks=scope.union_stacks,
        errors=_error_codes(root),
        parser=parser,
        value_sets=scope.value_sets,
        actions=scope.actions,
        profiles=flow.profiles,
        ingress=pipelines["ingress"],
        egress=pipelines["egress"],
        deparser=scope.only("deparsers", "deparser", parsers.deparser),
        calculations=calculations,
        checksums=tuple(read_checksum(scope, item) for item in root.members("checksums")),
        counters=counters,
        registers=registers,
        meters=meters,
        digests=read_field_lists(scope, "learn_lists", "learn list"),
        field_lists=read_field_lists(scope, "field_lists", "field list"),
        intrinsics=read_intrinsics(scope),
    )


def _check_version(root: Reader) -> None:
    """Refuse another major version. Programs of before 2.5 have none, and BMv2 takes them, too."""
    meta = root.find("__meta__")
    version = None if meta is None else meta.find("version")
    if version is None:
        return
    numbers = version.elements()
    if not numbers or numbers[0].integer() != FORMAT_MAJOR:
        raise version.fail(f"must be {FORMAT_MAJOR}.x")


def _error_codes(root: Reader) -> dict[str, int]:
    """Return the code of each parser error.

    Those of P4's core library that the program does not number come after its own, as in BMv2.
    """
    codes: dict[str, int] = {}
    for item in root.members("errors"):
        name, code = item.pair()
        codes[name.text()] = code.integer()
    following = max(codes.values(), default=-1) + 1
    for error in CORE_ERRORS:
        if error not in codes:
            codes[error] = following
            following += 1
    return codes
