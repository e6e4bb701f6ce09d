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
        try:
            decoded = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise ProgramError(name, f"is not JSON: {error}") from None
    else:
        decoded = source
    try:
        return _program(Reader(decoded, name))
    except RecursionError:
        raise ProgramError(name, "an expression or object is nested too deeply") from None


def _program(root: Reader) -> ir.ProgramIR:
    version = root.get("__meta__").get("version")
    numbers = version.elements()
    if not numbers or numbers[0].integer() != FORMAT_MAJOR:
        raise version.fail(f"must be {FORMAT_MAJOR}.x")
    for item in root.members("extern_instances"):
        _, instance = item.named("extern instance")
        kind = instance.optional_text("type") or "?"
        raise instance.fail(
            f"externs of type '{kind}' are not part of v1model;"
            " simple_switch needs an extra module for them"
        )
    scope = Scope(root)
    read_headers(scope)
    errors: dict[str, int] = {}
    for item in root.members("errors"):
        error, code = item.pair()
        errors[error.text()] = code.integer()
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
        errors=errors,
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
