"""Keys and data of entries to and from BF Runtime's messages, by the fields of their table.

Numbers travel as big-endian bytes of their field's length. A key field that a message leaves out
matches what the open SDE takes: 0 where it is exact, and everything otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino_model.bfruntime.device import Data, Key, Lpm, Optional, Range, Ternary
from echelon_tofino_model.bfruntime.schema import BfrtField, BfrtTable, Digest
from softswitch.rpc.status import Code, RefusedError

__all__ = ["data_of", "digest_data", "key_of", "read_data", "write_data", "write_key"]


def _refused(place: str, why: str) -> RefusedError:
    return RefusedError(Code.INVALID_ARGUMENT, f"{place}: {why}")


# -- keys ------------------------------------------------------------------------------------------


def key_of(table: BfrtTable, message: bfrt.TableKey) -> Key:
    """Return the key in `message`. Raise RefusedError (INVALID_ARGUMENT) that names the field."""
    matches: dict[int, Any] = {}
    for part in message.fields:
        field = table.key_by_id.get(part.field_id)
        if field is None:
            raise _refused(table.name, f"no key field has id {part.field_id}")
        if part.field_id in matches:
            raise _refused(table.name, f"key field {field.name} is given twice")
        matches[part.field_id] = _match(table, field, part)
    for field in table.key:
        if field.mandatory and field.id not in matches:
            raise _refused(table.name, f"key field {field.name} is missing")
        if field.id not in matches:
            matches[field.id] = _anything(field)
    return tuple(matches[field.id] for field in table.key)


def _match(
    table: BfrtTable,
    field: BfrtField,
    part: bfrt.KeyField,
) -> Any:
    place = f"{table.name}: key field {field.name}"
    kind = part.WhichOneof("match_type")
    if kind != field.match_type.lower():
        raise _refused(place, f"is {field.match_type}; a match of type {kind or 'none'} is given")
    match kind:
        case "exact" if field.type == "string":
            return _text(place, field, part.exact.value)
        case "exact":
            return _number(place, field, part.exact.value)
        case "ternary":
            mask = _number(place, field, part.ternary.mask)
            return Ternary(_number(place, field, part.ternary.value) & mask, mask)
        case "lpm":
            length = part.lpm.prefix_len
            if not 0 <= length <= field.bits:
                raise _refused(place, f"prefix length {length} is not in 0..{field.bits}")
            value = _number(place, field, part.lpm.value)
            return Lpm(value >> field.bits - length << field.bits - length, length)
        case "range":
            low = _number(place, field, part.range.low)
            high = _number(place, field, part.range.high)
            if low > high:
                raise _refused(place, f"the range {low} to {high} is empty")
            return Range(low, high)
        case _:
            value = _number(place, field, part.optional.value)
            if part.optional.is_valid:
                return Optional(value, True)
            return Optional(0, False)


def _anything(field: BfrtField) -> Any:
    match field.match_type:
        case "Ternary":
            return Ternary(0, 0)
        case "LPM":
            return Lpm(0, 0)
        case "Range":
            return Range(0, (1 << field.bits) - 1)
        case "Optional":
            return Optional(0, False)
        case _:
            return "" if field.type == "string" else 0


def write_key(
    table: BfrtTable,
    key: Key,
    message: bfrt.TableKey,
) -> None:
    """Write a key to `message`."""
    for field, value in zip(table.key, key, strict=True):
        part = message.fields.add(field_id=field.id)
        length = field.length_bytes
        match value:
            case Ternary():
                part.ternary.value = _bytes(value.value, length)
                part.ternary.mask = _bytes(value.mask, length)
            case Lpm():
                part.lpm.value = _bytes(value.value, length)
                part.lpm.prefix_len = value.length
            case Range():
                part.range.low = _bytes(value.low, length)
                part.range.high = _bytes(value.high, length)
            case Optional():
                part.optional.value = _bytes(value.value, length)
                part.optional.is_valid = value.is_valid
            case str():
                part.exact.value = value.encode()
            case _:
                part.exact.value = _bytes(value, length)


# -- data ------------------------------------------------------------------------------------------


def data_of(
    table: BfrtTable,
    message: bfrt.TableData,
    *,
    complete: bool,
) -> Data:
    """Return the data in `message`.

    `complete` asks for an action where the table has any, and its mandatory fields.

    Raise RefusedError (INVALID_ARGUMENT) that names the field.
    """
    action = None
    if message.action_id:
        action = table.action_by_id.get(message.action_id)
        if action is None:
            raise _refused(table.name, f"no action has id {message.action_id}")
    elif complete and table.actions:
        raise _refused(table.name, f"name an action: {', '.join(table.action_by_name)}")
    name = None if action is None else action.name
    fields = {field.id: field for field in table.fields(name)}
    values: dict[str, Any] = {}
    for part in message.fields:
        field = fields.get(part.field_id)
        if field is None:
            where = table.name if action is None else f"{table.name}: action {name}"
            raise _refused(where, f"no data field has id {part.field_id}")
        values[field.name] = _value(f"{table.name}: {field.name}", field, part)
    for field in () if action is None else action.fields:
        if complete and field.mandatory and field.name not in values:
            raise _refused(f"{table.name}: action {name}", f"{field.name} is missing")
    return Data(name, values)


def _value(
    place: str,
    field: BfrtField,
    part: bfrt.DataField,
) -> Any:
    kind = part.WhichOneof("value")
    expected = _kind(field)
    if kind != expected:
        raise _refused(
            place,
            f"is {'a list of ' if field.repeated else ''}{field.type}; {kind or 'nothing'} is"
            " given",
        )
    match kind:
        case "stream":
            return _number(place, field, part.stream)
        case "int_arr_val" | "bool_arr_val" | "str_arr_val":
            values = tuple(getattr(part, kind).val)
            for value in values:
                _check(place, field, value)
            return values
        case _:
            value = getattr(part, expected)
            _check(place, field, value)
            return value


def _check(
    place: str,
    field: BfrtField,
    value: object,
) -> None:
    if field.choices and value not in field.choices:
        raise _refused(place, f"{value!r} is not one of {', '.join(field.choices)}")
    if isinstance(value, int) and field.is_number and value >> field.bits:
        raise _refused(place, f"{value} does not fit {field.bits} bits")


def _kind(field: BfrtField) -> str:
    if field.repeated:
        return {"bool": "bool_arr_val", "string": "str_arr_val"}.get(field.type, "int_arr_val")
    return {"bool": "bool_val", "string": "str_val", "float": "float_val"}.get(field.type, "stream")


def read_data(table: BfrtTable, message: bfrt.TableData) -> tuple[str | None, Collection[int]]:
    """Return the action and the field ids that a read asks for; None and nothing mean all.

    Raise RefusedError (INVALID_ARGUMENT) for an action that the table does not have."""
    action = None
    if message.action_id:
        action = table.action_by_id.get(message.action_id)
        if action is None:
            raise _refused(table.name, f"no action has id {message.action_id}")
    wanted = {field.field_id for field in message.fields}
    return None if action is None else action.name, wanted


def write_data(
    table: BfrtTable,
    data: Data,
    wanted: Collection[int],
    message: bfrt.TableData,
) -> None:
    """Write an entry's data to `message`: all fields, or those whose ids are `wanted`."""
    if data.action is not None:
        message.action_id = table.action_by_name[data.action].id
    _write_fields(table.fields(data.action), data.fields, wanted, message)


def digest_data(
    digest: Digest,
    values: Mapping[str, int],
    message: bfrt.TableData,
) -> None:
    """Write one message of a digest to `message`."""
    _write_fields(digest.fields, values, (), message)


def _write_fields(
    fields: Iterable[BfrtField],
    values: Mapping[str, Any],
    wanted: Collection[int],
    message: bfrt.TableData,
) -> None:
    for field in fields:
        if field.name not in values or (wanted and field.id not in wanted):
            continue
        value = values[field.name]
        part = message.fields.add(field_id=field.id)
        kind = _kind(field)
        if field.repeated:
            array = getattr(part, kind)
            # An empty list is a value, too.
            array.SetInParent()
            array.val.extend(value)
        elif kind == "stream":
            part.stream = _bytes(value, field.length_bytes)
        else:
            setattr(part, kind, value)


# -- values ----------------------------------------------------------------------------------------


def _number(
    place: str,
    field: BfrtField,
    raw: bytes,
) -> int:
    value = int.from_bytes(raw, "big")
    if value >> field.bits:
        raise _refused(place, f"{value} does not fit {field.bits} bits")
    return value


def _text(
    place: str,
    field: BfrtField,
    raw: bytes,
) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _refused(place, "is not UTF-8") from None
    _check(place, field, text)
    return text


def _bytes(value: int, length: int) -> bytes:
    return (value & (1 << 8 * length) - 1).to_bytes(length, "big")
