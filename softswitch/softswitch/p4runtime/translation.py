"""Values of types that controllers see in another form (`@p4runtime_translation`).

P4Runtime 1.5, "Translation of user-defined types": a type may have another width for the controller
(`sdn_bitwidth`), or be a string (`sdn_string`). The P4Info then lacks the width that the program
has, so that is taken from the program. Numbers stand for themselves, and one that does not fit the
program's width is refused; strings have the numbers of :class:`~.names.Names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from finsy.proto import p4i, p4r

from softswitch import ir
from softswitch.p4runtime.names import Names
from softswitch.p4runtime.p4info import P4InfoError

__all__ = ["Translation"]

_Message = TypeVar("_Message", p4r.Entity, p4r.PacketIn, p4r.PacketOut)
_Widths = Mapping[str, int]
"""The widths of fields in bits, by name."""


class Translation:
    """The translated values of one pipeline, in both directions.

    Args:
        p4info: the controller's.
        program: the program that it describes.
    """

    def __init__(self, p4info: p4i.P4Info, program: ir.ProgramIR) -> None:
        self.p4info = p4info
        """The P4Info with the widths of the program."""
        self._types = p4info.type_info.new_types
        self._names: dict[str, Names] = {}
        self._matches: dict[tuple[int, int], Names] = {}
        self._params: dict[tuple[int, int], Names] = {}
        self._metadata: dict[str, dict[int, Names]] = {}
        if any(map(self._is_translated, self._types)):
            self.p4info = p4i.P4Info()
            self.p4info.CopyFrom(p4info)
            tables = [(table.preamble, table.match_fields) for table in self.p4info.tables]
            self._matches = self._member_names(tables, _key_widths(program))
            actions = [(action.preamble, action.params) for action in self.p4info.actions]
            self._params = self._member_names(actions, _param_widths(program))
            self._read_headers(program)

    @property
    def has_strings(self) -> bool:
        """Return whether messages have to be changed."""
        return bool(self._names)

    def inward(self, message: _Message) -> _Message:
        """Return a controller's message with numbers for strings. Raises RefusedError."""
        return self._changed(message, Names.number)

    def outward(self, message: _Message) -> _Message:
        """Return a message for a controller, with strings for numbers."""
        return self._changed(message, Names.text)

    # -- what the P4Info and the program say -------------------------------------------------------

    def _is_translated(self, type_name: str) -> bool:
        if type_name not in self._types:
            return False
        return bool(self._types[type_name].HasField("translated_type"))

    def _member_names(
        self,
        owners: Iterable[tuple[p4i.Preamble, Iterable[Any]]],
        widths: Mapping[str, _Widths],
    ) -> dict[tuple[int, int], Names]:
        """Return the names of the values of tables' keys or actions' parameters, by both ids."""
        by_ids: dict[tuple[int, int], Names] = {}
        for preamble, members in owners:
            places = self._places(members, widths.get(preamble.name, {}))
            for member, names in places.items():
                by_ids[preamble.id, member] = names
        return by_ids

    def _read_headers(self, program: ir.ProgramIR) -> None:
        for header in self.p4info.controller_packet_metadata:
            widths = _header_widths(program, header)
            self._metadata[header.preamble.name] = self._places(header.metadata, widths)

    def _places(self, fields: Iterable[Any], widths: _Widths) -> dict[int, Names]:
        """Return the names of the values of those fields that are strings, by the field's id."""
        places: dict[int, Names] = {}
        for described in fields:
            names = self._value_names(described, widths)
            if names is not None:
                places[described.id] = names
        return places

    def _value_names(self, described: Any, widths: _Widths) -> Names | None:
        """Give a field the program's width; return the names of its values if they are strings."""
        type_name = described.type_name.name
        if not self._is_translated(type_name):
            return None
        width = widths.get(described.name)
        if width is None:
            raise P4InfoError(
                f"{described.name} is of the translated type {type_name}, and the program has no"
                " such field that says how wide it is"
            )
        described.bitwidth = width
        new_type = self._types[type_name]
        translated = new_type.translated_type
        form = translated.WhichOneof("sdn_type")
        if form != "sdn_string":
            return None
        names = self._names.get(type_name)
        if names is None:
            names = Names(type_name, width, new_type.annotations)
            self._names[type_name] = names
        return names

    # -- messages ----------------------------------------------------------------------------------

    def _changed(
        self,
        message: _Message,
        change: Callable[[Names, bytes], bytes],
    ) -> _Message:
        if not self._names:
            return message
        copy = type(message)()
        copy.CopyFrom(message)
        for holder, names in self._values(copy):
            holder.value = change(names, holder.value)
        return copy

    def _values(self, message: Any) -> Iterator[tuple[Any, Names]]:
        """Yield what holds a translated value, and the names of its type."""
        if isinstance(message, p4r.PacketIn):
            yield from self._packet_values(message, "packet_in")
            return
        if isinstance(message, p4r.PacketOut):
            yield from self._packet_values(message, "packet_out")
            return
        kind = message.WhichOneof("entity")
        match kind:
            case "table_entry":
                yield from self._entry_values(message.table_entry)
            case "direct_counter_entry":
                yield from self._entry_values(message.direct_counter_entry.table_entry)
            case "direct_meter_entry":
                yield from self._entry_values(message.direct_meter_entry.table_entry)
            case "action_profile_member":
                yield from self._arguments(message.action_profile_member.action)

    def _packet_values(self, packet: Any, header: str) -> Iterator[tuple[Any, Names]]:
        places = self._metadata.get(header, {})
        for part in packet.metadata:
            names = places.get(part.metadata_id)
            if names is not None:
                yield part, names

    def _entry_values(self, entry: p4r.TableEntry) -> Iterator[tuple[Any, Names]]:
        table = entry.table_id
        for match in entry.match:
            field = (table, match.field_id)
            names = self._matches.get(field)
            kind = match.WhichOneof("field_match_type")
            # A string has no prefix, mask or order: other kinds are refused as they are.
            if names is not None and kind in ("exact", "optional"):
                yield getattr(match, kind), names
        action = entry.action
        yield from self._arguments(action.action)
        for part in action.action_profile_action_set.action_profile_actions:
            yield from self._arguments(part.action)

    def _arguments(self, action: p4r.Action) -> Iterator[tuple[Any, Names]]:
        number = action.action_id
        for param in action.params:
            names = self._params.get((number, param.param_id))
            if names is not None:
                yield param, names


def _key_widths(program: ir.ProgramIR) -> dict[str, _Widths]:
    """Return the widths of each table's keys, by the table's name."""
    widths: dict[str, _Widths] = {}
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, ir.TableSpec):
                widths[node.name] = _by_name(node.keys)
    return widths


def _param_widths(program: ir.ProgramIR) -> dict[str, _Widths]:
    """Return the widths of each action's parameters, by the action's name."""
    return {action.name: _by_name(action.params) for action in program.actions.values()}


def _header_widths(program: ir.ProgramIR, described: Any) -> _Widths:
    """Return the widths of the fields of a controller's header.

    The P4Info does not say which header of the program it is: the one that has just these fields.
    """
    wanted = [part.name for part in described.metadata]
    for header in program.headers.values():
        widths = _by_name(header.type.fields)
        if list(widths) == wanted:
            return widths
    return {}


def _by_name(fields: Iterable[ir.Key | ir.Param | ir.Field]) -> _Widths:
    return {field.name: field.width for field in fields}
