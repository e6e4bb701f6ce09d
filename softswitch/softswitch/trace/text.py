"""Events as text: one line each, in spans that can be coloured.

Lines are indented below the table or state that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Literal

from . import events
from .events import Event, Value

Style = Literal["plain", "head", "name", "value", "good", "bad", "faint"]

_SHOWN_BYTES = 24
"""The number of bytes of a packet or of a variable field that a line shows."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line, with its style."""

    text: str
    style: Style = "plain"


Line = tuple[Span, ...]
Lines = list[tuple[int, Line]]
"""Lines with the depth of each, which is its indentation."""


def plain(line: Iterable[Span]) -> str:
    """Return a line without colours."""
    return "".join(span.text for span in line)


class TraceText:
    """A translator of events into lines.

    It keeps the present table or state, for the indentation.
    """

    def __init__(self) -> None:
        self._depth = 0

    def lines(self, event: Event) -> list[Line]:
        """Return the lines for the next event: mostly one, sometimes none."""
        lines: list[Line] = []
        for depth, spans in self._lines(event):
            indentation = Span("  " * depth)
            lines.append((indentation, *spans) if spans else ())
        return lines

    @singledispatchmethod
    def _lines(self, event: Event) -> Lines:
        raise AssertionError(event)

    def _head(self, *spans: Span) -> Lines:
        self._depth = 1
        return [(0, spans)]

    def _step(self, *spans: Span, inner: int = 1) -> Lines:
        """Return the line of a step under which the following steps are indented."""
        self._depth = 1 + inner
        return [(1, spans)]

    def _detail(self, *spans: Span) -> Lines:
        return [(self._depth, spans)]

    # -- halves ------------------------------------------------------------------------------------

    @_lines.register
    def _received(self, event: events.Received) -> Lines:
        lines: Lines = []
        if event.repetition is None:
            half = "ingress"
            if self._depth:
                # An empty line between packets.
                lines.append((0, ()))
        else:
            half = f"ingress {event.repetition}"
        arrival = f" port {event.port}, {len(event.data)} bytes at {event.now_ns / 1000:g} us: "
        octets = Span(_octets(event.data), "value")
        return lines + self._head(Span(half, "head"), Span(arrival), octets)

    @_lines.register
    def _departing(self, event: events.Departing) -> Lines:
        text = f" port {event.port}, queue {event.queue}"
        if event.waited_ns:
            text += f", waited {event.waited_ns / 1000:g} us"
        if event.enqueued_depth:
            text += f", depth {event.enqueued_depth} then {event.leaving_depth}"
        return self._head(Span("egress", "head"), Span(text))

    # -- parsing -----------------------------------------------------------------------------------

    @_lines.register
    def _state(self, event: events.State) -> Lines:
        return self._step(Span("state "), Span(event.name, "name"))

    @_lines.register
    def _extracted(self, event: events.Extracted) -> Lines:
        fields = Span(_values(event.fields) or "-", "value")
        return self._detail(Span("extract "), Span(event.header, "name"), Span(": "), fields)

    @_lines.register
    def _parser_error(self, event: events.ParserError) -> Lines:
        return self._detail(Span(f"parser error {event.name}", "bad"))

    @_lines.register
    def _parsed(self, event: events.Parsed) -> Lines:
        text = f"parsed {event.parsed_bytes} bytes, {event.left_bytes} left"
        return self._step(Span(text), inner=0)

    @_lines.register
    def _checksum(self, event: events.Checksum) -> Lines:
        if event.wanted is None:
            verdict = Span(": not looked at", "faint")
        elif event.wanted == event.actual:
            verdict = Span(f": {event.actual:#x} is right", "good")
        else:
            verdict = Span(f": {event.actual:#x} should be {event.wanted:#x}", "bad")
        return self._step(Span("checksum "), Span(event.field, "name"), verdict)

    # -- match and action --------------------------------------------------------------------------

    @_lines.register
    def _condition(self, event: events.Condition) -> Lines:
        if event.value:
            answer = Span("true", "good")
        else:
            answer = Span("false", "bad")
        return self._step(Span(f"if {event.text}: "), answer, *_at(event.position), inner=0)

    @_lines.register
    def _applied(self, event: events.Applied) -> Lines:
        lines = self._step(Span("table "), Span(event.table, "name"), *_at(event.position))
        for key in event.keys:
            asked = ""
            if event.hit and key.kind != "exact":
                asked = f" matches {wanted(key)}"
            head = Span(f"{key.name} {key.kind} = ")
            actual = Span(value_text(key.value), "value")
            lines.append((2, (head, actual, Span(asked))))
        if not event.hit:
            lines.append((2, (Span("miss", "bad"),)))
            return lines

        entry = ""
        if event.handle is not None:
            entry += f", entry {event.handle}"
        if event.priority is not None:
            entry += f", priority {event.priority}"
        lines.append((2, (Span("hit", "good"), Span(entry))))
        return lines

    @_lines.register
    def _chosen(self, event: events.Chosen) -> Lines:
        text = "no member" if event.member is None else f"member {event.member}"
        if event.group is not None:
            text = f"group {event.group}, {text}"
        return self._detail(Span(text))

    @_lines.register
    def _ran(self, event: events.Ran) -> Lines:
        arguments = Span(f"({_values(event.arguments)})", "value")
        lines = self._detail(Span("action "), Span(event.action, "name"), arguments)
        self._depth = 3
        return lines

    @_lines.register
    def _block(self, event: events.Block) -> Lines:
        self._depth = 1
        return []

    @_lines.register
    def _statement(self, event: events.Statement) -> Lines:
        return self._detail(Span(event.text), *_at(event.position))

    def _effect(self, *spans: Span) -> Lines:
        return [(self._depth + 1, spans)]

    @_lines.register
    def _wrote(self, event: events.Wrote) -> Lines:
        old = value_text(event.old)
        new = value_text(event.new)
        if event.old != event.new:
            change = Span(f"{old} -> {new}", "value")
        else:
            change = Span(f"{new} as before", "faint")
        return self._effect(Span(event.field, "name"), Span(": "), change)

    @_lines.register
    def _validity(self, event: events.Validity) -> Lines:
        state = " is now valid" if event.valid else " is no longer valid"
        return self._effect(Span(event.header, "name"), Span(state))

    @_lines.register
    def _copied(self, event: events.Copied) -> Lines:
        state = "" if event.valid else ", which is not valid"
        return self._effect(Span(event.target, "name"), Span(f" is now as {event.source}{state}"))

    @_lines.register
    def _marked(self, event: events.Marked) -> Lines:
        return self._effect(Span("to be dropped", "bad"))

    @_lines.register
    def _counted(self, event: events.Counted) -> Lines:
        return self._effect(Span(f"counter {event.counter}[{event.index}]"))

    @_lines.register
    def _register_read(self, event: events.RegisterRead) -> Lines:
        cell = Span(f"register {event.register}[{event.index}] is ")
        return self._effect(cell, Span(value_text(event.value), "value"))

    @_lines.register
    def _register_written(self, event: events.RegisterWritten) -> Lines:
        cell = Span(f"register {event.register}[{event.index}]: ")
        old = value_text(event.old)
        new = value_text(event.new)
        return self._effect(cell, Span(f"{old} -> {new}", "value"))

    @_lines.register
    def _overrun(self, event: events.Overrun) -> Lines:
        return self._effect(Span(f"{event.array}: index out of range, nothing done", "bad"))

    @_lines.register
    def _logged(self, event: events.Logged) -> Lines:
        return self._effect(Span(f"log: {event.text}"))

    # -- leaving -----------------------------------------------------------------------------------

    @_lines.register
    def _digested(self, event: events.Digested) -> Lines:
        values = Span(", ".join(map(value_text, event.values)), "value")
        return self._step(Span("digest "), Span(event.name, "name"), Span(": "), values)

    @_lines.register
    def _cloned(self, event: events.Cloned) -> Lines:
        ports = ", ".join(f"port {port} queue {queue}" for port, queue in event.copies)
        return self._step(Span(f"clone, session {event.session}: {ports or 'no copies'}"))

    @_lines.register
    def _replicated(self, event: events.Replicated) -> Lines:
        ports = ", ".join(f"port {port} (rid {rid})" for port, rid in event.copies)
        text = f"multicast group {event.group}, queue {event.queue}: {ports}"
        return self._step(Span(text, "good"))

    @_lines.register
    def _queued(self, event: events.Enqueued) -> Lines:
        text = f"to port {event.port}, queue {event.queue}, {event.length_bytes} bytes"
        return self._step(Span(text, "good"))

    @_lines.register
    def _dropped(self, event: events.Dropped) -> Lines:
        return self._step(Span(f"dropped: {event.reason}", "bad"))

    @_lines.register
    def _recirculated(self, event: events.Recirculated) -> Lines:
        return self._step(Span(f"recirculated, {len(event.data)} bytes"))

    @_lines.register
    def _sent(self, event: events.Sent) -> Lines:
        headers = ", ".join(event.headers) or "no header"
        lines = self._step(Span("deparsed "), Span(headers, "name"))
        departure = Span(f"sent on port {event.port}, {len(event.data)} bytes: ", "good")
        lines.append((1, (departure, Span(event.data.hex(), "value"))))
        return lines


def _values(fields: Iterable[tuple[str, Value, int]]) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value, _ in fields)


def value_text(value: Value) -> str:
    """Return a value as a reader of P4 expects it.

    Small ones are decimal. Large ones, which are often addresses, are in hex.
    """
    if isinstance(value, bytes):
        return _octets(value)
    return str(value) if abs(value) < 1 << 16 else f"{value:#x}"


def wanted(key: events.Match) -> str:
    """Return the text of an entry's element."""
    if key.wanted is None:
        return "anything"
    if isinstance(key.wanted, int):
        return value_text(key.wanted)
    first, second = key.wanted
    low = value_text(first)
    match key.kind:
        case "lpm":
            return f"{low}/{second}"
        case "range":
            return f"{low}..{value_text(second)}"
    return f"{first:#x} &&& {second:#x}" if second else "anything"


def _octets(data: bytes) -> str:
    if len(data) <= _SHOWN_BYTES:
        return data.hex()
    return f"{data[:_SHOWN_BYTES].hex()}..."


def _at(position: str | None) -> Line:
    return (Span(f"  {position}", "faint"),) if position else ()
