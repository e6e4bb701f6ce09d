"""The switch as the interpreter sees it for traced packets: it turns every reported step into an event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from softswitch import ir
from softswitch.lookup import Entry, KeyElement, MatchField, match_fields
from softswitch.tables import Table

from . import events
from .events import Tracer, Value

_AGAIN = {4: "recirculated", 6: "resubmitted"}


class Traced(Protocol):
    """The part of a switch that the recorder itself uses."""

    @property
    def tables(self) -> Mapping[str, Table]: ...

    def discard(self, reason: str) -> None: ...

    def overrun(self, what: str) -> None: ...

    def parser_error(self, code: int) -> None: ...

    def learn(self, now_ns: int, name: str, number: int, values: tuple[int, ...]) -> None: ...

    def filled(self, text: str, values: Sequence[int]) -> str: ...

    def log(self, text: str, *values: int) -> None: ...


class Copy(Protocol):
    """A packet that ingress made by cloning."""

    port: int
    queue: int


class Recorder:
    """An intermediary between the interpreter and its switch.

    Every attribute that is not a step comes from the switch. To explain a look-up it searches all entries of a table,
    because tracing is for looking at packets, not for speed.
    """

    def __init__(self, switch: Traced, program: ir.ProgramIR, tracer: Tracer) -> None:
        self._switch = switch
        self._tell = tracer
        self._headers = program.headers
        self._error_names = {code: name for name, code in program.errors.items()}
        self._tables = {table.name: table for table in ir.tables(program)}
        self._fields = {name: match_fields(table) for name, table in self._tables.items()}
        self._params = {action.name: action.params for action in program.actions.values()}
        self._entry: Entry | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._switch, name)

    # ------------------------------------------------------------------------------- services of the switch, reported

    def discard(self, reason: str) -> None:
        self._tell(events.Dropped(reason))
        self._switch.discard(reason)

    def overrun(self, what: str) -> None:
        self._tell(events.Overrun(what))
        self._switch.overrun(what)

    def parser_error(self, code: int) -> None:
        self._tell(events.ParserError(self._error_names.get(code, str(code))))
        self._switch.parser_error(code)

    def learn(self, now_ns: int, name: str, number: int, values: tuple[int, ...]) -> None:
        self._tell(events.Digested(name, values))
        self._switch.learn(now_ns, name, number, values)

    def log(self, text: str, *values: int) -> None:
        self._tell(events.Logged(self._switch.filled(text, values)))
        self._switch.log(text, *values)

    # ------------------------------------------------------------------------------------------------------- parsing

    def received(self, port: int, data: bytes, now_ns: int, kind: int) -> None:
        self._tell(events.Received(now_ns, port, data, _AGAIN.get(kind)))

    def state(self, name: str) -> None:
        self._tell(events.State(name))

    def extracted(self, header: str, *values: Value) -> None:
        fields = self._headers[header].type.fields
        listed = tuple((f.name, value, _width(f, value)) for f, value in zip(fields, values, strict=True))
        self._tell(events.Extracted(header, listed))

    def parsed(self, offset: int, size: int) -> None:
        self._tell(events.Parsed(offset, size - offset))

    def checksum(self, header: str, field: str, wanted: int | None, found: int) -> None:
        self._tell(events.Checksum(f"{header}.{field}", wanted, found))

    # ----------------------------------------------------------------------------------------------- match and action

    def condition(self, text: str, position: str | None, value: object) -> None:
        self._tell(events.Condition(text, position, bool(value)))

    def applied(self, name: str, key: tuple[int, ...], result: Sequence[Any] | None) -> None:
        """Report a look-up; ``result`` is what it found, None for a miss."""
        spec = self._tables[name]
        table = self._switch.tables[name]
        self._entry = None if result is None else _found(table, self._fields[name], key, result)
        wanted: Sequence[KeyElement] = [None] * len(key) if self._entry is None else self._entry.key
        matches = tuple(
            events.Match(k.name, k.match, value, k.width, element)
            for k, value, element in zip(spec.keys, key, wanted, strict=True)
        )
        entry = self._entry
        priority = entry.priority if entry is not None and table.by_priority else None
        position = str(spec.origin) if spec.origin else None
        handle = None if entry is None else entry.handle
        self._tell(events.Applied(name, matches, result is not None, handle, priority, position))

    def chosen(self, name: str, call: Sequence[Any] | None) -> None:
        profile = self._switch.tables[name].profile
        entry = self._entry
        if profile is None or entry is None:
            return
        candidates: Iterable[int] = profile.members
        if entry.group is not None and entry.group in profile.groups:
            candidates = profile.groups[entry.group].members
        member = next((m for m in candidates if profile.members[m].cell[0] is call), None)
        self._tell(events.Chosen(name, entry.group, member if entry.member is None else entry.member))

    def ran(self, action: str, call: Sequence[int]) -> None:
        params = self._params[action]
        listed = tuple((p.name, value, p.width) for p, value in zip(params, call[1:], strict=False))
        self._tell(events.Ran(action, listed))

    def block(self) -> None:
        self._tell(events.Block())

    def statement(self, primitive: str, text: str | None, position: str | None) -> None:
        self._tell(events.Statement(text or primitive, position))

    def wrote(self, header: str, field: str, old: Value, new: Value) -> None:
        found = self._headers[header].type.field(field)
        assert found is not None
        self._tell(events.Wrote(f"{header}.{field}", old, new, _width(found, new)))

    def valid(self, header: str) -> None:
        self._tell(events.Validity(header, True))

    def invalid(self, header: str, was_valid: int) -> None:
        if was_valid:
            self._tell(events.Validity(header, False))

    def copied(self, target: str, source: str, valid: int) -> None:
        self._tell(events.Copied(target, source, bool(valid)))

    def marked(self) -> None:
        self._tell(events.Marked())

    def counted(self, counter: str, index: int) -> None:
        self._tell(events.Counted(counter, index))

    def register_read(self, register: str, index: int, value: int) -> None:
        self._tell(events.RegisterRead(register, index, value))

    def register_written(self, register: str, index: int, old: int, new: int) -> None:
        self._tell(events.RegisterWritten(register, index, old, new))

    # ------------------------------------------------------------------------------------------------------ leaving

    def cloned(self, session: int, copies: Sequence[Copy]) -> None:
        self._tell(events.Cloned(session, tuple((copy.port, copy.queue) for copy in copies)))

    def replicated(self, group: int, replicas: Sequence[tuple[int, int]], queue: int) -> None:
        self._tell(events.Replicated(group, tuple(replicas), queue))

    def queued(self, port: int, queue: int, length_bytes: int) -> None:
        self._tell(events.Enqueued(port, queue, length_bytes))

    def departing(
        self, port: int, queue: int, enqueued_ns: int, now_ns: int, enqueued_depth: int, leaving_depth: int
    ) -> None:
        self._tell(events.Departing(port, queue, now_ns - enqueued_ns, enqueued_depth, leaving_depth))

    def recirculated(self, data: bytes) -> None:
        self._tell(events.Recirculated(data))

    def sent(self, port: int, data: bytes, headers: Sequence[tuple[str, int]]) -> None:
        self._tell(events.Sent(port, data, tuple(name for name, valid in headers if valid)))


def _width(field: ir.Field, value: Value) -> int:
    return len(value) * 8 if isinstance(value, bytes) else field.width


def _found(table: Table, fields: Sequence[MatchField], key: tuple[int, ...], result: Sequence[Any]) -> Entry | None:
    """Return the entry that a look-up of ``key`` yielded: the best matching one among those with this very result."""
    found = [
        entry
        for entry in table.entries()
        if entry.result is result and all(_matches(f, e, v) for f, e, v in zip(fields, entry.key, key, strict=True))
    ]
    return max(found, key=lambda entry: (entry.priority, -entry.handle), default=None)


def _matches(field: MatchField, element: KeyElement, value: int) -> bool:
    if element is None:
        return True
    if isinstance(element, int):
        return value == element
    first, second = element
    if field.kind == "range":
        return first <= value <= second
    mask = field.full ^ (field.full >> second) if field.kind == "lpm" else second
    return value & mask == first & mask
