"""Actions, stateful arrays, calculations, checksums and lists of fields."""

from __future__ import annotations

from softswitch import ir

from .reader import Reader
from .scope import Scope, algorithm


def read_action(scope: Scope, item: Reader) -> ir.Action:
    name, reader = item.named("action")
    params = tuple(
        ir.Param(param.get("name").text(), param.get("bitwidth").integer(1, ir.MAX_WIDTH))
        for param in reader.get("runtime_data").elements()
    )
    body = tuple(
        scope.primitive(p.at(f"{reader.place} primitive {i}"), len(params))
        for i, p in enumerate(reader.get("primitives").elements())
    )
    return ir.Action(name, reader.get("id").integer(), params, body)


def read_value_set(name: str, reader: Reader) -> ir.ValueSetSpec:
    return ir.ValueSetSpec(name, reader.get("compressed_bitwidth").integer(1, ir.MAX_WIDTH))


def read_counter(name: str, reader: Reader) -> ir.CounterArray:
    if reader.flag("is_direct"):
        return ir.CounterArray(name, 0, reader.get("binding").text())
    return ir.CounterArray(name, reader.get("size").integer(1, ir.MAX_CELLS), None)


def read_register(name: str, reader: Reader) -> ir.RegisterArray:
    return ir.RegisterArray(
        name,
        reader.get("size").integer(1, ir.MAX_CELLS),
        reader.get("bitwidth").integer(1, ir.MAX_WIDTH),
    )


def read_meter(scope: Scope, name: str, reader: Reader) -> ir.MeterArray:
    unit = reader.get("type").text()
    if unit not in ("bytes", "packets"):
        raise reader.fail(f"a meter counts bytes or packets, not '{unit}'")
    rates = reader.get("rate_count").integer()
    if rates != 2:
        raise reader.fail(f"only two-rate meters are supported, this one has {rates}")
    if reader.flag("is_direct"):
        target = reader.find("result_target")
        return ir.MeterArray(
            name,
            0,
            unit,
            reader.get("binding").text(),
            None if target is None else scope.field(target),
        )
    return ir.MeterArray(name, reader.get("size").integer(1, ir.MAX_CELLS), unit, None, None)


def read_calculation(scope: Scope, name: str, reader: Reader) -> ir.Calculation:
    inputs: list[ir.CalculationInput] = []
    for i, raw in enumerate(reader.get("input").elements()):
        item = raw.at(f"{reader.place} input {i}")
        kind = item.get("type").text()
        if kind == "payload":
            inputs.append(ir.CalculationInput("payload", None, 0))
            continue
        value = scope.expr(item)
        if isinstance(value, ir.Const):
            width = item.get("bitwidth").integer(1, ir.MAX_WIDTH)
            inputs.append(
                ir.CalculationInput("const", ir.Const(value.value & ((1 << width) - 1)), width)
            )
        elif isinstance(value, ir.HeaderRef):
            width = scope.headers[value.name].type.width
            inputs.append(ir.CalculationInput("header", value, width))
        elif isinstance(value, ir.FieldRef):
            field = scope.headers[value.header].type.field(value.field)
            assert field is not None
            inputs.append(ir.CalculationInput("field", value, field.width))
        else:
            raise item.fail(f"input of type '{kind}' is not supported")
    return ir.Calculation(name, algorithm(reader), tuple(inputs), reader.place)


def read_checksum(scope: Scope, item: Reader) -> ir.ChecksumSpec:
    name, reader = item.named("checksum")
    kind = reader.get("type").text()
    if kind != "generic":
        raise reader.fail(f"checksum of type '{kind}' is not supported")
    calculation = scope.known(
        reader.get("calculation"), scope.objects["calculation"], "calculation"
    )
    return ir.ChecksumSpec(
        name,
        scope.field(reader.get("target")),
        calculation,
        reader.flag("verify", True),
        reader.flag("update", True),
        scope.optional_expr(reader, "if_cond"),
        reader.place,
        reader.origin(),
    )


def read_field_lists(scope: Scope, key: str, kind: str) -> dict[int, ir.FieldList]:
    lists: dict[int, ir.FieldList] = {}
    for item in scope.root.members(key):
        name, reader = item.named(kind)
        items = tuple(
            scope.expr(element.at(f"{reader.place} element {i}"))
            for i, element in enumerate(reader.get("elements").elements())
        )
        number = reader.get("id").integer()
        if number in lists:
            raise reader.fail(f"id {number} is used twice")
        lists[number] = ir.FieldList(number, name, items)
    return lists
