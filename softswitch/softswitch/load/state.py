"""Actions, stateful arrays, calculations, checksums and lists of fields."""

from __future__ import annotations

from softswitch import ir

from .earlier import ipv4_calculation
from .reader import Reader
from .scope import Scope, algorithm


def read_action(scope: Scope, item: Reader) -> ir.Action:
    name, reader = item.named("action")
    number = reader.integer_of("id")
    params = tuple(map(_param, reader.elements_of("runtime_data")))
    primitives = reader.numbered(reader.elements_of("primitives"), "primitive")
    body = tuple(scope.primitive(primitive, len(params)) for primitive in primitives)
    return ir.Action(name, number, params, body)


def _param(reader: Reader) -> ir.Param:
    name = reader.text_of("name")
    return ir.Param(name, _width(reader, "bitwidth"))


def _width(reader: Reader, key: str) -> int:
    return reader.integer_of(key, 1, ir.MAX_WIDTH)


def _cells(reader: Reader) -> int:
    return reader.integer_of("size", 1, ir.MAX_CELLS)


def read_value_set(name: str, reader: Reader) -> ir.ValueSetSpec:
    return ir.ValueSetSpec(name, _width(reader, "compressed_bitwidth"))


def read_counter(name: str, reader: Reader) -> ir.CounterArray:
    if reader.flag("is_direct"):
        table = reader.text_of("binding")
        return ir.CounterArray(name, 0, table)
    return ir.CounterArray(name, _cells(reader), None)


def read_register(name: str, reader: Reader) -> ir.RegisterArray:
    size = _cells(reader)
    return ir.RegisterArray(name, size, _width(reader, "bitwidth"))


def read_meter(
    scope: Scope,
    name: str,
    reader: Reader,
) -> ir.MeterArray:
    unit = reader.text_of("type")
    if unit not in ("bytes", "packets"):
        raise reader.fail(f"a meter counts bytes or packets, not '{unit}'")
    rates = reader.integer_of("rate_count")
    if rates != 2:
        raise reader.fail(f"only two-rate meters are supported, this one has {rates}")
    if not reader.flag("is_direct"):
        return ir.MeterArray(name, _cells(reader), unit, None, None)
    table = reader.text_of("binding")
    target = None
    result = reader.find("result_target")
    if result is not None:
        target = scope.field(result)
    return ir.MeterArray(name, 0, unit, table, target)


def read_calculation(
    scope: Scope,
    name: str,
    reader: Reader,
) -> ir.Calculation:
    items = reader.numbered(reader.elements_of("input"), "input")
    inputs = tuple(_calculation_input(scope, item) for item in items)
    return ir.Calculation(name, algorithm(reader), inputs, reader.place)


def _calculation_input(scope: Scope, item: Reader) -> ir.CalculationInput:
    kind = item.text_of("type")
    if kind == "payload":
        return ir.CalculationInput("payload", None, 0)
    value = scope.expr(item)
    if isinstance(value, ir.Const):
        width = _width(item, "bitwidth")
        mask = (1 << width) - 1
        return ir.CalculationInput("const", ir.Const(value.value & mask), width)
    if isinstance(value, ir.HeaderRef):
        width = scope.headers[value.name].type.width
        return ir.CalculationInput("header", value, width)
    if isinstance(value, ir.FieldRef):
        field = scope.headers[value.header].type.field(value.field)
        assert field is not None
        return ir.CalculationInput("field", value, field.width)
    raise item.fail(f"input of type '{kind}' is not supported")


def read_checksum(scope: Scope, item: Reader) -> ir.ChecksumSpec:
    name, reader = item.named("checksum")
    kind = reader.text_of("type")
    target = scope.field(reader.get("target"))
    calculations = scope.objects["calculation"]
    if kind == "ipv4":
        computed = ipv4_calculation(scope, name, target, reader.place)
        calculation = computed.name
        calculations[calculation] = computed
    elif kind == "generic":
        calculation = scope.existing(reader.get("calculation"), calculations, "calculation")
    else:
        raise reader.fail(f"checksum of type '{kind}' is not supported; give generic or ipv4")
    return ir.ChecksumSpec(
        name=name,
        target=target,
        calculation=calculation,
        verify=reader.flag("verify", True),
        update=reader.flag("update", True),
        condition=scope.optional_expr(reader, "if_cond"),
        place=reader.place,
        origin=reader.origin(),
    )


def read_field_lists(
    scope: Scope,
    key: str,
    kind: str,
) -> dict[int, ir.FieldList]:
    lists: dict[int, ir.FieldList] = {}
    for item in scope.root.members(key):
        name, reader = item.named(kind)
        elements = reader.numbered(reader.elements_of("elements"), "element")
        items = tuple(map(scope.expr, elements))
        number = reader.integer_of("id")
        if number in lists:
            raise reader.fail(f"id {number} is used twice")
        lists[number] = ir.FieldList(number, name, items)
    return lists
