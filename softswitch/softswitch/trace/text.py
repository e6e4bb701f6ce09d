"""Events as text: one line each, indented below the table or state that they belong to, in spans
that can be coloured."""

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
        return [
            (Span("  " * depth), *spans) if spans else () for depth, spans in self._lines(event)
        ]

    @singledispatchmethod
    def _lines(self, event: Event) -> list[tuple[int, Line]]:
        raise AssertionError(event)

    def _head(self, *spans: Span) -> list[tuple[int, Line]]:
        self._depth = 1
        return [(0, spans)]

    def _step(self, *spans: Span, inner: int = 1) -> list[tuple[int, Line]]:
        """Return the line of a step under which the following steps are indented."""
        self._depth = 1 + inner
        return [(1, spans)]

    def _detail(self, *spans: Span) -> list[tuple[int, Line]]:
        return [(self._depth, spans)]

    # -- halves ------------------------------------------------------------------------------------

    @_lines.register
    def _received(self, event: events.Received) -> list[tuple[int, Line]]:
        how = f" {event.again}" if event.again else ""
        if self._depth and not event.again:
            between: list[tuple[int, Line]] = [(0, ())]
        else:
            between = []
        return between + self._head(
            Span(f"ingress{how}", "head"),
            Span(f" port {event.port}, {len(event.data)} bytes at {event.now_ns / 1000:g} us: "),
            Span(_octets(event.data), "value"),
        )

    @_lines.register
    def _departing(self, event: events.Departing) -> list[tuple[int, Line]]:
        if event.waited_ns:
            waited = f", waited {event.waited_ns / 1000:g} us"
        else:
            waited = ""
        if event.enqueued_depth:
            depth = f", depth {event.enqueued_depth} then {event.leaving_depth}"
        else:
            depth = ""
        return self._head(
            Span("egress", "head"), Span(f" port {event.port}, queue {event.queue}{waited}{depth}")
        )

    # -- parsing -----------------------------------------------------------------------------------

    @_lines.register
    def _state(self, event: events.State) -> list[tuple[int, Line]]:
        return self._step(Span("state "), Span(event.name, "name"))

    @_lines.register
    def _extracted(self, event: events.Extracted) -> list[tuple[int, Line]]:
        fields = ", ".join(f"{name} {shown(value)}" for name, value, _ in event.fields)
        return self._detail(
            Span("extract "), Span(event.header, "name"), Span(": "), Span(fields or "-", "value")
        )

    @_lines.register
    def _parser_error(self, event: events.ParserError) -> list[tuple[int, Line]]:
        return self._detail(Span(f"parser error {event.name}", "bad"))

    @_lines.register
    def _parsed(self, event: events.Parsed) -> list[tuple[int, Line]]:
        return self._step(
            Span(f"parsed {event.parsed_bytes} bytes, {event.left_bytes} left"), inner=0
        )

    @_lines.register
    def _checksum(self, event: events.Checksum) -> list[tuple[int, Line]]:
        head = (Span("checksum "), Span(event.field, "name"))
        if event.wanted is None:
            return self._step(*head, Span(": not looked at", "faint"))
        if event.wanted == event.found:
            return self._step(*head, Span(f": {event.found:#x} is right", "good"))
        return self._step(*head, Span(f": {event.found:#x} should be {event.wanted:#x}", "bad"))

    # -- match and action --------------------------------------------------------------------------

    @_lines.register
    def _condition(self, event: events.Condition) -> list[tuple[int, Line]]:
        if event.value:
            answer = Span("true", "good")
        else:
            answer = Span("false", "bad")
        return self._step(Span(f"if {event.text}: "), answer, *_at(event.position), inner=0)

    @_lines.register
    def _applied(self, event: events.Applied) -> list[tuple[int, Line]]:
        lines = self._step(Span("table "), Span(event.table, "name"), *_at(event.position))
        for key in event.keys:
            asked = ""
            if event.hit:
                if key.kind != "exact":
                    asked = f" matches {wanted(key)}"
                else:
                    asked = ""
            found = Span(shown(key.value), "value")
            lines.append((2, (Span(f"{key.name} {key.kind} = "), found, Span(asked))))
        if not event.hit:
            lines.append((2, (Span("miss", "bad"),)))
        else:
            if event.priority is None:
                rank = ""
            else:
                rank = f", priority {event.priority}"
            if event.handle is None:
                which = ""
            else:
                which = f", entry {event.handle}"
            lines.append((2, (Span("hit", "good"), Span(which + rank))))
        return lines

    @_lines.register
    def _chosen(self, event: events.Chosen) -> list[tuple[int, Line]]:
        if event.group is None:
            group = ""
        else:
            group = f"group {event.group}, "
        if event.member is None:
            member = "no member"
        else:
            member = f"member {event.member}"
        return self._detail(Span(group + member))

    @_lines.register
    def _ran(self, event: events.Ran) -> list[tuple[int, Line]]:
        arguments = ", ".join(f"{name} {shown(value)}" for name, value, _ in event.arguments)
        lines = self._detail(
            Span("action "), Span(event.action, "name"), Span(f"({arguments})", "value")
        )
        self._depth = 3
        return lines

    @_lines.register
    def _block(self, event: events.Block) -> list[tuple[int, Line]]:
        self._depth = 1
        return []

    @_lines.register
    def _statement(self, event: events.Statement) -> list[tuple[int, Line]]:
        return self._detail(Span(event.text), *_at(event.position))

    def _effect(self, *spans: Span) -> list[tuple[int, Line]]:
        return [(self._depth + 1, spans)]

    @_lines.register
    def _wrote(self, event: events.Wrote) -> list[tuple[int, Line]]:
        old = shown(event.old)
        new = shown(event.new)
        if event.old != event.new:
            change = Span(f"{old} -> {new}", "value")
        else:
            change = Span(f"{new} as before", "faint")
        return self._effect(Span(event.field, "name"), Span(": "), change)

    @_lines.register
    def _validity(self, event: events.Validity) -> list[tuple[int, Line]]:
        return self._effect(
            Span(event.header, "name"),
            Span(" is now valid" if event.valid else " is no longer valid"),
        )

    @_lines.register
    def _copied(self, event: events.Copied) -> list[tuple[int, Line]]:
        state = "" if event.valid else ", which is not valid"
        return self._effect(Span(event.target, "name"), Span(f" is now as {event.source}{state}"))

    @_lines.register
    def _marked(self, event: events.Marked) -> list[tuple[int, Line]]:
        return self._effect(Span("to be dropped", "bad"))

    @_lines.register
    def _counted(self, event: events.Counted) -> list[tuple[int, Line]]:
        return self._effect(Span(f"counter {event.counter}[{event.index}]"))

    @_lines.register
    def _register_read(self, event: events.RegisterRead) -> list[tuple[int, Line]]:
        return self._effect(
            Span(f"register {event.register}[{event.index}] is "), Span(shown(event.value), "value")
        )

    @_lines.register
    def _register_written(self, event: events.RegisterWritten) -> list[tuple[int, Line]]:
        change = Span(f"{shown(event.old)} -> {shown(event.new)}", "value")
        return self._effect(Span(f"register {event.register}[{event.index}]: "), change)

    @_lines.register
    def _overrun(self, event: events.Overrun) -> list[tuple[int, Line]]:
        return self._effect(Span(f"{event.what}: index out of range, nothing done", "bad"))

    @_lines.register
    def _logged(self, event: events.Logged) -> list[tuple[int, Line]]:
        return self._effect(Span(f"log: {event.text}"))

    # -- leaving -----------------------------------------------------------------------------------

    @_lines.register
    def _digested(self, event: events.Digested) -> list[tuple[int, Line]]:
        return self._step(
            Span("digest "),
            Span(event.name, "name"),
            Span(": "),
            Span(", ".join(map(shown, event.values)), "value"),
        )

    @_lines.register
    def _cloned(self, event: events.Cloned) -> list[tuple[int, Line]]:
        ports = ", ".join(f"port {port} queue {queue}" for port, queue in event.copies)
        return self._step(Span(f"clone, session {event.session}: {ports or 'no copies'}"))

    @_lines.register
    def _replicated(self, event: events.Replicated) -> list[tuple[int, Line]]:
        ports = ", ".join(f"port {port} (rid {rid})" for port, rid in event.copies)
        return self._step(
            Span(f"multicast group {event.group}, queue {event.queue}: {ports}", "good")
        )

    @_lines.register
    def _queued(self, event: events.Enqueued) -> list[tuple[int, Line]]:
        return self._step(
            Span(f"to port {event.port}, queue {event.queue}, {event.length_bytes} bytes", "good")
        )

    @_lines.register
    def _dropped(self, event: events.Dropped) -> list[tuple[int, Line]]:
        return self._step(Span(f"dropped: {event.reason}", "bad"))

    @_lines.register
    def _recirculated(self, event: events.Recirculated) -> list[tuple[int, Line]]:
        return self._step(Span(f"recirculated, {len(event.data)} bytes"))

    @_lines.register
    def _sent(self, event: events.Sent) -> list[tuple[int, Line]]:
        lines = self._step(Span("deparsed "), Span(", ".join(event.headers) or "no header", "name"))
        out = (
            Span(f"sent on port {event.port}, {len(event.data)} bytes: ", "good"),
            Span(event.data.hex(), "value"),
        )
        return [*lines, (1, out)]


def shown(value: Value) -> str:
    """Return a value as a reader of P4 expects it: small ones in decimal, large ones, which are
    often addresses, in hex."""
    if isinstance(value, bytes):
        return _octets(value)
    return str(value) if abs(value) < 1 << 16 else f"{value:#x}"


def wanted(key: events.Match) -> str:
    """Return the text of an entry's element."""
    if key.wanted is None:
        return "anything"
    if isinstance(key.wanted, int):
        return shown(key.wanted)
    first, second = key.wanted
    low = shown(first)
    match key.kind:
        case "lpm":
            return f"{low}/{second}"
        case "range":
            return f"{low}..{shown(second)}"
    return f"{first:#x} &&& {second:#x}" if second else "anything"


def _octets(data: bytes) -> str:
    if len(data) <= _SHOWN_BYTES:
        return data.hex()
    return f"{data[:_SHOWN_BYTES].hex()}..."


def _at(position: str | None) -> Line:
    return (Span(f"  {position}", "faint"),) if position else ()
