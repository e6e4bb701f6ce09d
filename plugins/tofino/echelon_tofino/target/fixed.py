"""Tables that every Tofino has, by names: the traffic manager's.

Ids come from the switch itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt

_LENGTHS = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}


@dataclass(frozen=True, slots=True)
class FixedTable:
    """A fixed table: its id, and id and type of each field by name."""

    id: int
    name: str
    key: Mapping[str, tuple[int, str]]
    data: Mapping[str, tuple[int, str]]

    def query(self, key: Mapping[str, int]) -> bfrt.Entity:
        """Return the query that reads an entry."""
        entity = bfrt.Entity()
        self._write_key(key, entity.table_entry)
        return entity

    def update(
        self,
        key: Mapping[str, int],
        values: Mapping[str, Any],
        kind: bfrt.Update.Type = bfrt.Update.MODIFY,
    ) -> bfrt.Update:
        """Return the update that changes fields of an entry, or inserts or deletes one.

        A list is a repeated field.
        """
        update = bfrt.Update(type=kind)
        entry = update.entity.table_entry
        self._write_key(key, entry)
        for name, value in values.items():
            number, form = self.data[name]
            part = entry.data.fields.add(field_id=number)
            if isinstance(value, list):
                array = part.bool_arr_val if form == "bool" else part.int_arr_val
                array.val.extend(value)
            elif form == "bool":
                part.bool_val = value
            elif form == "string":
                part.str_val = value
            else:
                part.stream = value.to_bytes(_LENGTHS[form], "big")
        return update

    def key_of(self, entry: bfrt.TableEntry) -> dict[str, int]:
        """Return the key of an entry by name."""
        names = {number: name for name, (number, _) in self.key.items()}
        key = {}
        for part in entry.key.fields:
            name = names[part.field_id]
            key[name] = int.from_bytes(part.exact.value, "big")
        return key

    def values(self, entry: bfrt.TableEntry) -> dict[str, Any]:
        """Return the fields of an entry by name."""
        names = {number: name for name, (number, _) in self.data.items()}
        values: dict[str, Any] = {}
        for part in entry.data.fields:
            if part.field_id not in names:
                continue
            kind = part.WhichOneof("value")
            value = None if kind is None else getattr(part, kind)
            if kind == "stream":
                value = int.from_bytes(part.stream, "big")
            elif kind is not None and kind.endswith("_arr_val"):
                value = list(value.val)  # type: ignore[union-attr]
            values[names[part.field_id]] = value
        return values

    def _write_key(self, key: Mapping[str, int], entry: bfrt.TableEntry) -> None:
        entry.table_id = self.id
        for name, value in key.items():
            number, kind = self.key[name]
            part = entry.key.fields.add(field_id=number)
            part.exact.value = value.to_bytes(_LENGTHS[kind], "big")


def fixed_tables(description: bytes, names: Sequence[str]) -> dict[str, FixedTable]:
    """Return the tables of these names in a switch's description of its fixed tables.

    Raise ValueError for a switch that does not have them.
    """
    tables = {}
    try:
        for raw in json.loads(description)["tables"]:
            name = raw["name"]
            if name in names:
                key = _fields(raw["key"])
                data = _fields(outer["singleton"] for outer in raw["data"])
                tables[name] = FixedTable(raw["id"], name, key, data)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its description of fixed tables cannot be read: {error!r}") from None
    for name in names:
        if name not in tables:
            raise ValueError(
                f"it has no table {name}: it is not a Tofino 1; set `target` in its entry"
            )
    return tables


def _fields(described: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, str]]:
    """Return the identifier and the type of each field, by its name."""
    fields = {}
    for field in described:
        kind = field["type"]["type"]
        fields[field["name"]] = (field["id"], kind)
    return fields
