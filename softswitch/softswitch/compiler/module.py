"""The generated functions as a whole: the code before, between and behind the program's own parts.

The steps at the end of ingress and of egress have simple_switch's order. Ingress: clone, digest, resubmit, multicast,
drop, unicast. Egress: clone, drop, deparse, recirculate, send.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from softswitch import ir

from . import fused
from .bounds import infer_bounds
from .deparser import deparse, emitted_length, update_checksums, verify_checksums
from .layout import Layout
from .liveness import live_at_start, prune
from .parser import ParserWriter
from .pipeline import PipelineWriter
from .source import Line, Names, Source, printable
from .stage import Bindings, Stage
from .sums import share_sums
from .usage import Usage
from .values import mask

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 1, 2, 4, 5, 6
"""The values of ``instance_type``. 0 is a packet that was received and sent to one port."""

_CONTEXT = "_CONTEXT_"
_REPLICA = "_REPLICA_"
_NEVER_TRUNCATED = 1 << 31
_CONTEXT_EXTRA = ("data", "off", "size", "_truncated", "_grown")


def compile_program(program: ir.ProgramIR, traced: bool = False) -> str:
    """Return the Python source that defines ``build(sw)``. A ``traced`` one reports every step to ``sw.trace``.

    Raises :class:`~softswitch.errors.ProgramError` for what is not supported.
    """
    return _Module(program, traced).text()


class _Module:
    def __init__(self, program: ir.ProgramIR, traced: bool) -> None:
        self.program = program
        self.traced = traced
        self.usage = Usage(program, everything=traced)
        self.layout = Layout(program, self.usage, Names())
        infer_bounds(self.layout)
        if not traced:
            share_sums(self.layout)
        self.bind = Bindings()
        used = self.usage.primitives
        self.clones_ingress = "clone_ingress_pkt_to_egress" in used
        self.clones_egress = "clone_egress_pkt_to_egress" in used
        self.resubmits = "resubmit" in used
        self.recirculates = "recirculate" in used
        self.truncates = "truncate" in used or self.clones_ingress or self.clones_egress
        self.initial = self._initial_values()
        self.intrinsic_of = {
            self.layout.metadata[r.header, r.field]: name
            for name, r in program.intrinsics.items()
            if (r.header, r.field) in self.layout.metadata
        }

    def _initial_values(self) -> dict[str, str]:
        """Return every variable of a packet's state with its initial value."""
        initial: dict[str, str] = {}
        for held in self.layout.headers.values():
            initial[held.valid] = "0"
            initial[held.offset] = "0"
            initial |= dict(held.values())
        for (header, field), name in self.layout.metadata.items():
            found = self.program.headers[header].type.field(field)
            initial[name] = 'b""' if found is not None and found.varbit else "0"
        initial |= dict.fromkeys(self.layout.next_index.values(), "0")
        initial |= dict.fromkeys(self.layout.sums.values(), "0")
        return initial

    def _stage(self, kind: str) -> Stage:
        # A clone is parsed as its original was, so its parsing need not be reported again.
        return Stage(kind, self.layout, self.usage, self.bind, 2, self.traced and kind != "clone")

    # -------------------------------------------------------------------------------------------------- the module

    def text(self) -> str:
        egress = self._egress()
        names = _identifiers(egress.lines)
        context = [n for n in (*_CONTEXT_EXTRA, *self.initial) if n in names and self._carried(n)]
        functions: list[tuple[str, list[Line]]] = []
        if self.clones_ingress:
            functions.append(("def clone(port, data, now, _session, _clone_list, _kept):", self._clone().lines))
        again = ", kind=0, carry=None" if self.resubmits or self.recirculates else ""
        functions.append((f"def ingress(port, data, now{again}):", self._ingress().lines))
        functions.append(("def egress(q, enqueued, now, enq_depth, deq_depth):", egress.lines))
        # An egress that ignores all of the packet's state still needs its bytes.
        context = self._live_context(functions[-1], context)
        forward = None if self.traced else self._forward(functions[-2][1], egress.lines, context)
        if forward is not None:
            functions.append((f"{fused.HEAD}{again}):", forward))
        out = Source()
        out(*_opening(self.program.name).splitlines(), "")
        with out.block("def build(sw)"):
            out(*_PREAMBLE)
            if self.traced:
                out("_trace = sw.trace")
            out(*(f"_zero{size} = bytes({size})" for size in sorted(self.layout.zeros)))
            out(*self.bind.lines)
            for head, lines in functions:
                body = self._filled(lines, context)
                if not head.startswith("def egress"):
                    body = self._initialised(body, context) + body
                else:
                    body = self._egress_head(context) + self._initialised(body, context, set(context)) + body
                pruned = prune("    " + head, body)
                out("")
                out.extend(pruned[:1])
                with out.indented():
                    out(f'"""{_PURPOSES[head[4 : head.index("(")]]}"""')
                out.extend(pruned[1:])
            out("", *(() if forward is None else ("sw.forward = forward",)), "return ingress, egress")
        return out.text()

    def _forward(self, ingress: list[Line], egress: list[Line], context: list[str]) -> list[Line] | None:
        if self.clones_egress or self.recirculates:
            return None
        reset = self._initialised(egress, [], set(context))
        return fused.fuse(ingress, self.unicast, egress, reset)

    def _carried(self, name: str) -> bool:
        """Return whether a variable's value at the end of ingress matters in egress. Some variables are set anew
        there."""
        return self.intrinsic_of.get(name) not in _SET_FOR_EGRESS

    def _live_context(self, egress: tuple[str, list[Line]], names: list[str]) -> list[str]:
        body = self._filled(egress[1], names)
        live = live_at_start("    " + egress[0], body)
        return [name for name in names if name in live]

    def _filled(self, lines: Iterable[Line], context: list[str]) -> list[Line]:
        filled = []
        for line in lines:
            if _CONTEXT in line:
                line = line.coded(line.replace(_CONTEXT, _tuple(context)))
            if _REPLICA in line:
                line = line.coded(
                    re.sub(rf"{_REPLICA}(\d+)_", lambda m: _tuple(self._cloned(int(m[1]), context)), line)
                )
            filled.append(line)
        return filled

    def _egress_head(self, context: list[str]) -> list[Line]:
        if not context:
            return []
        return [Line(f"        {_tuple(context)} = q.context", ("the packet as ingress left it",))]

    def _initialised(self, body: list[Line], context: list[str], given: set[str] | None = None) -> list[Line]:
        """Write statements that give variables their initial values. Those without an effect are removed later."""
        given = given or set()
        names = _identifiers(body) | set(context)
        by_value: dict[str, list[str]] = {}
        for name, value in self.initial.items():
            if name in names and name not in given:
                by_value.setdefault(value, []).append(name)
        return [
            Line(f"        {' = '.join([*some, value])}")
            for value, variables in by_value.items()
            for some in _in_lines(variables)
        ]

    # ------------------------------------------------------------------------------------------------------ ingress

    def _set(self, stage: Stage, intrinsic: str, code: str, *, masked: bool = True) -> None:
        """Set a field that the switch provides, if the program reads it."""
        variable = stage.intrinsic(intrinsic)
        if variable is not None:
            full = (1 << stage.intrinsic_width(intrinsic)) - 1
            stage.out(f"{variable} = {code} & {full:#x}" if masked else f"{variable} = {code}")

    def _ingress(self) -> Source:
        stage = self._stage("ingress")
        out = stage.out
        out("size = len(data)")
        stage.trace("received", "port", "data", "now", "kind" if self.resubmits or self.recirculates else "0")
        with out.block("if not 0 <= port <= _max_port"):
            stage.drop("ingress port out of range")
        if self.resubmits or self.recirculates:
            with out.block("if kind"):
                self._set(stage, "instance_type", "kind")
                self._restore(stage, "carry[0]", "carry[1]")
            with out.block("else"):
                self._new_packet(stage)
        else:
            self._new_packet(stage)
        self._set(stage, "packet_length", "size")
        self._flags(stage, ("_clone", "_clone_list") if self.clones_ingress else ())
        self._flags(stage, ("_again",) if self.resubmits else ())
        self._flags(stage, ("_digest",) if self.program.digests else ())
        self._flags(stage, ("_grown",) if self.usage.measured else ())
        if self.truncates:
            out(f"_truncated = {_NEVER_TRUNCATED}")
        with out.explained("the parser, left by 'break'; off is then where the payload begins"):
            ParserWriter(stage).write()
        stage.trace("parsed", "off", "size")
        verify_checksums(stage)
        PipelineWriter(stage, self.program.ingress).write()
        self._after_ingress(stage)
        return out

    def _new_packet(self, stage: Stage) -> None:
        stage.out("_n[0] += 1")
        self._set(stage, "ingress_port", "port", masked=False)
        self._set(stage, "ingress_global_timestamp", "now // 1000")

    @staticmethod
    def _flags(stage: Stage, names: tuple[str, ...]) -> None:
        if names:
            stage.out(" = ".join([*names, "0"]))

    def _list_variables(self, number: int) -> list[str]:
        """Return the variables of a list of preserved fields."""
        found = []
        for item in self.program.field_lists[number].items:
            if isinstance(item, ir.FieldRef):
                name = self.layout.variable(item.header, item.field)
                if name is not None and self.program.headers[item.header].metadata:
                    found.append(name)
        return found

    def _restore(self, stage: Stage, number: str, values: str) -> None:
        """Restore the values of preserved fields."""
        for key in self.program.field_lists:
            names = self._list_variables(key)
            if names:
                with stage.out.block(f"if {number} == {key}"):
                    stage.out(f"{', '.join(names)}, = {values}")

    def _preserve(self, stage: Stage, number: str, target: str) -> None:
        """Assign the values of the fields preserved by list ``number``."""
        stage.out(f"{target} = ()")
        for key in self.program.field_lists:
            names = self._list_variables(key)
            if names:
                with stage.out.block(f"if {number} == {key}"):
                    stage.out(f"{target} = ({', '.join(names)},)")

    def _after_ingress(self, stage: Stage) -> None:
        out = stage.out
        many = self.clones_ingress
        if many:
            out("_out = []")
            with out.explained("the clone"), out.block("if _clone"):
                out("_session = _sessions.get(_clone & 0x7fff)")
                with out.block("if _session is None"):
                    out("_discard('clone session not configured')")
                with out.block("else"):
                    self._preserve(stage, "_clone_list", "_kept")
                    out("_out = clone(port, data, now, _session, _clone_list, _kept)")
                    stage.trace("cloned", "_clone & 0x7fff", "_out")
        for digest in self.program.digests.values():
            self._digest(stage, digest)
        returned = "_out + " if many else ""
        if self.resubmits:
            with out.block("if _again"):
                self._preserve(stage, "_again", "_kept")
                out(f"return {returned}_resubmit(ingress, port, data, now, (_again, _kept))")
        whole = emitted_length(stage).code
        length = f"min({whole}, _truncated)" if self.truncates else whole
        queue = self._queue(stage)
        group = stage.intrinsic("mcast_grp")
        # Marking a packet to be dropped clears the group, so that alone makes no program multicast.
        if group is not None and self._assigned("mcast_grp"):
            with out.explained("multicast"), out.block(f"if {group}"):
                out(f"_replicas = _groups.get({group})")
                with out.block("if not _replicas"):
                    out(f"return {returned}_discard('multicast group without ports')")
                self._set(stage, "instance_type", str(REPLICATED), masked=False)
                out(f"_length = {whole}")
                if self.truncates:
                    # Truncation belongs to the packet, not to its replicas.
                    out(f"_truncated = {_NEVER_TRUNCATED}")
                if not many:
                    out("_out = []")
                with out.block(f"for _p, {stage.intrinsic('egress_rid') or '_'} in _replicas"):
                    out(f"_out.append(_Queued(_p, {queue}, _length, {_CONTEXT}))")
                stage.trace("replicated", group, "_replicas", queue)
                out("return _out")
        spec = stage.intrinsic("egress_spec")
        with out.explained("one port, or none"), out.block(f"if {spec} == _drop_port"):
            out(f"return {returned}_discard('ingress')")
        self._set(stage, "instance_type", "0", masked=False)
        stage.trace("queued", str(spec), queue, length)
        self.unicast = fused.Unicast(str(spec), str(queue), str(length), "_out" if many else "")
        out(f"return {returned}[_Queued({spec}, {queue}, {length}, {_CONTEXT})]")

    def _queue(self, stage: Stage) -> str:
        queue = stage.intrinsic("priority")
        if queue is None:
            return "0"
        if stage.intrinsic_width("priority") > 3:
            with stage.out.block(f"if {queue} > 7"):
                stage.drop("priority out of range")
        return queue

    def _digest(self, stage: Stage, digest: ir.FieldList) -> None:
        expressions = stage.expressions(f"learn list '{digest.name}'")
        with stage.out.explained("the digest"), stage.out.block(f"if _digest == {digest.id}"):
            values = []
            for item in digest.items:
                value = expressions.number(item)
                if isinstance(item, ir.FieldRef):
                    field = self.program.headers[item.header].type.field(item.field)
                    assert field is not None
                    value = mask(value, (1 << field.width) - 1)
                values.append(value.code)
            stage.out(f"_learn(now, {digest.name!r}, {digest.id}, {_tuple(values)})")

    @staticmethod
    def _mentions(lines: Iterable[str], name: str) -> bool:
        return name in _identifiers(lines)

    def _assigned(self, intrinsic: str) -> bool:
        """Return whether the program itself writes a field that the switch knows."""
        ref = self.program.intrinsics[intrinsic]
        return (ref.header, ref.field) in self.usage.written

    # ------------------------------------------------------------------------------------------------------- clones

    def _clone(self) -> Source:
        """Write the function that makes a clone at the end of ingress. It parses the received packet anew; all metadata
        but the preserved fields is zero."""
        stage = self._stage("clone")
        out = stage.out
        out("size = len(data)")
        self._set(stage, "ingress_port", "port", masked=False)
        out(f"_truncated = {_NEVER_TRUNCATED}")
        self._flags(stage, ("_grown",) if self.usage.measured else ())
        ParserWriter(stage).write()
        for name in self.layout.metadata.values():
            out(f"{name} = {self.initial[name]}")
        self._restore(stage, "_clone_list", "_kept")
        self._set(stage, "instance_type", str(INGRESS_CLONE), masked=False)
        with out.block("if _session.truncate_bytes"):
            out("_truncated = _session.truncate_bytes")
        out(f"_length = min({emitted_length(stage).code}, _truncated)", "_out = []")
        with out.block(f"for _p, {stage.intrinsic('egress_rid') or '_'} in _session.replicas"):
            out(f"_out.append(_Queued(_p, _session.queue, _length, {_CONTEXT}))")
        out("return _out")
        return out

    def _cloned(self, number: int, context: list[str]) -> list[str]:
        """Return the context of a copy made at the end of egress."""
        kept = set(self._list_variables(number)) if number in self.program.field_lists else set()
        metadata = set(self.layout.metadata.values())
        values = []
        for name in context:
            intrinsic = self.intrinsic_of.get(name)
            if name == "_truncated":
                values.append("_limit")
            elif intrinsic == "egress_rid":
                values.append("_rid")
            elif intrinsic == "instance_type":
                values.append(str(EGRESS_CLONE))
            elif name in metadata and name not in kept:
                values.append(self.initial[name])
            else:
                values.append(name)
        return values

    # ------------------------------------------------------------------------------------------------------- egress

    def _egress(self) -> Source:
        stage = self._stage("egress")
        out = stage.out
        stage.trace("departing", "q.port", "q.queue", "enqueued", "now", "enq_depth", "deq_depth")
        self._set(stage, "egress_port", "q.port", masked=False)
        self._set(stage, "egress_global_timestamp", "now // 1000")
        self._set(stage, "packet_length", "(size + _grown)" if self.usage.measured else "size")
        self._set(stage, "enq_timestamp", "enqueued // 1000")
        self._set(stage, "enq_qdepth", "enq_depth")
        self._set(stage, "deq_timedelta", "now // 1000 - enqueued // 1000")
        self._set(stage, "deq_qdepth", "deq_depth")
        self._set(stage, "qid", "q.queue")
        self._flags(stage, ("_clone", "_clone_list") if self.clones_egress else ())
        self._flags(stage, ("_again",) if self.recirculates else ())
        spec = stage.intrinsic("egress_spec")
        head = len(out.lines)
        PipelineWriter(stage, self.program.egress).write()
        can_drop = spec is not None and self._mentions(out.lines[head:], spec)
        if can_drop:
            # simple_switch sets a value other than the one that drops, cut to the field's width.
            value = f"_drop_port + 1 & {(1 << stage.intrinsic_width('egress_spec')) - 1:#x}"
            out.lines.insert(head, Line(f"        {spec} = {value}"))
        if self.clones_egress or self.recirculates:
            out("_again_queue = ()")
        if self.clones_egress:
            self._egress_clone(stage)
        if can_drop:
            with out.block(f"if {spec} == _drop_port"):
                if self.clones_egress:
                    with out.block("if _again_queue"):
                        out("_discard('egress')", "return [_Departure(q.port, None, _again_queue)]")
                stage.drop("egress")
        update_checksums(stage)
        packet = deparse(stage)
        if self.truncates or self.recirculates:
            out(f"_packet = {packet}")
            packet = "_packet"
        if self.recirculates:
            # Truncation takes effect on the wire only.
            with out.block("if _again"):
                self._preserve(stage, "_again", "_kept")
                stage.trace("recirculated", "_packet")
                out("_again_queue = [*_again_queue, *ingress(0, _packet, now, 4, (_again, _kept))]")
                out("return [_Departure(q.port, None, _again_queue)]")
        if self.truncates:
            with out.block("if len(_packet) > _truncated"):
                out("_packet = _packet[:_truncated]")
        requeue = "_again_queue" if self.clones_egress or self.recirculates else "()"
        if stage.traced:
            order = [(name, self.layout.headers[name].valid) for name in self.program.deparser.order]
            out(f"_packet = {packet}")
            stage.trace("sent", "q.port", "_packet", _tuple(f"({name!r}, {valid})" for name, valid in order))
            packet = "_packet"
        out("_n[1] += 1", f"return [_Departure(q.port, {packet}, {requeue})]")
        return out

    def _egress_clone(self, stage: Stage) -> None:
        out = stage.out
        with out.block("if _clone"):
            out("_session = _sessions.get(_clone & 0x7fff)")
            with out.block("if _session is None"):
                out("_discard('clone session not configured')")
            with out.block("else"):
                out(f"_limit = _session.truncate_bytes or {_NEVER_TRUNCATED}")
                out(f"_length = min({emitted_length(stage).code}, _limit)", "_again_queue = []")
                with out.block("for _p, _rid in _session.replicas"):
                    for i, number in enumerate([*self.program.field_lists, 0]):
                        last = number == 0
                        head = ("else" if i else "if 1") if last else f"{'elif' if i else 'if'} _clone_list == {number}"
                        with out.block(head):
                            out(f"_again_queue.append(_Queued(_p, _session.queue, _length, {_REPLICA}{number}_))")
                stage.trace("cloned", "_clone & 0x7fff", "_again_queue")


_SET_FOR_EGRESS = frozenset(
    {
        *("egress_port", "egress_spec", "egress_global_timestamp", "packet_length"),
        *("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid"),
    }
)

_PREAMBLE = (
    "from softswitch.compiler.support import (",
    "    Struct as _Struct, cell as _cell, concatenated as _concatenated, divide as _divide, left as _left,",
    "    modulo as _modulo, payload_sum as _payload_sum, right as _right,",
    ")",
    "_Queued, _Departure = sw.queued_type, sw.departure_type",
    "_n, _drop_port, _max_port = sw.packet_counts, sw.drop_port, sw.max_port",
    "_sessions, _groups = sw.clone_sessions, sw.multicast_groups",
    "_discard, _overrun, _parser_error = sw.discard, sw.overrun, sw.parser_error",
    "_learn, _log, _resubmit = sw.learn, sw.log, sw.resubmit",
)


def _tuple(values: Iterable[str]) -> str:
    listed = list(values)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


_WORD = re.compile(r"[A-Za-z_]\w*")


def _identifiers(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in _WORD.findall(line)}


_LIST_COLUMNS = 100
"""Approximate limit for the length of a line of variables."""


def _in_lines(variables: list[str]) -> Iterator[list[str]]:
    line: list[str] = []
    columns = 0
    for name in variables:
        if line and columns + len(name) > _LIST_COLUMNS:
            yield line
            line, columns = [], 0
        line.append(name)
        columns += len(name) + 3
    if line:
        yield line


def _opening(name: str) -> str:
    title = printable(name).replace("\\", "/").replace('"', "'")
    return f'''"""{title}, compiled by softswitch.

build(sw) binds the tables and arrays of a switch to names and returns its two halves, ingress and egress. A packet's
state is held in local variables: HEADER_valid, HEADER_FIELD and, where a header is sent as it came, HEADER_offset.
HEADER_bytesN holds consecutive fields together. A field that never changes may also have a variable of its own. Names
that begin with an underscore belong to the switch: _e is the entry that a table chose (its action's number, the
arguments, and its own state if it has any), _a the action, _hit whether an entry matched, _sumN the part of a checksum
from fields that never change. Comments quote the P4 source.
"""'''


_PURPOSES: Mapping[str, str] = {
    "clone": "Copies made at the end of ingress: the received packet, parsed again; only listed metadata is kept.",
    "ingress": "Parse a packet and decide; return the list of what is to be queued.",
    "forward": "Ingress and egress in one, for a packet that need not wait between them.",
    "egress": "Return what leaves once a packet's turn has come, and what is to be queued again.",
}
