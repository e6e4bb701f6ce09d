"""The generated functions as a whole: what happens before, between and behind the program's own parts.

The order of the steps at the end of ingress and of egress is simple_switch's: clone, digest, resubmit, multicast, drop,
unicast; clone, drop, deparse, recirculate, send.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from softswitch import ir

from .bounds import infer_bounds
from .deparser import deparse, emitted_length, update_checksums, verify_checksums
from .layout import Layout
from .liveness import live_at_start, prune
from .parser import ParserWriter
from .pipeline import PipelineWriter
from .source import Names, Source
from .stage import Bindings, Stage
from .usage import Usage
from .values import mask

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 1, 2, 4, 5, 6
"""Values of ``instance_type``; 0 is a packet as it came, sent to one port."""

_CONTEXT = "_CONTEXT_"
_REPLICA = "_REPLICA_"
_NEVER_TRUNCATED = 1 << 31
_CONTEXT_EXTRA = ("data", "off", "size", "_truncated")


def compile_program(program: ir.ProgramIR) -> str:
    """Python source that defines ``build(sw)``.

    Raises :class:`~softswitch.errors.ProgramError` for what is not supported.
    """
    return _Module(program).text()


class _Module:
    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.usage = Usage(program)
        self.layout = Layout(program, self.usage, Names())
        infer_bounds(self.layout)
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
        """Every variable of a packet's state with the value it starts with."""
        initial: dict[str, str] = {}
        for held in self.layout.headers.values():
            initial[held.valid] = "0"
            initial[held.offset] = "0"
            initial |= dict(held.values())
        for (header, field), name in self.layout.metadata.items():
            found = self.program.headers[header].type.field(field)
            initial[name] = 'b""' if found is not None and found.varbit else "0"
        initial |= dict.fromkeys(self.layout.next_index.values(), "0")
        return initial

    def _stage(self, kind: str) -> Stage:
        return Stage(kind, self.layout, self.usage, self.bind, 2)

    # -------------------------------------------------------------------------------------------------- the module

    def text(self) -> str:
        egress = self._egress()
        names = _identifiers(egress.lines)
        context = [n for n in (*_CONTEXT_EXTRA, *self.initial) if n in names and self._carried(n)]
        functions: list[tuple[str, list[str]]] = []
        if self.clones_ingress:
            functions.append(("def clone(port, data, now, _session, _clone_list, _kept):", self._clone().lines))
        again = ", kind=0, carry=None" if self.resubmits or self.recirculates else ""
        functions.append((f"def ingress(port, data, now{again}):", self._ingress().lines))
        functions.append(("def egress(q, enqueued, now, enq_depth, deq_depth):", egress.lines))
        # An egress that ignores all of the packet's state still needs its bytes.
        context = self._live_context(functions[-1], context)
        out = Source()
        out(f'"""{_printable(self.program.name)}, compiled by softswitch."""', "")
        with out.block("def build(sw)"):
            out(*_PREAMBLE)
            out(*(f"_zero{size} = bytes({size})" for size in sorted(self.layout.zeros)))
            out(*self.bind.lines)
            for head, lines in functions:
                body = self._filled(lines, context)
                if not head.startswith("def egress"):
                    body = self._initialised(body, context) + body
                else:
                    body = self._egress_head(context) + self._initialised(body, context, set(context)) + body
                out("")
                out.lines.extend(prune("    " + head, body))
            out("", "return ingress, egress")
        return out.text()

    def _carried(self, name: str) -> bool:
        """Whether a variable's value at the end of ingress matters in egress; some are set anew there."""
        return self.intrinsic_of.get(name) not in _SET_FOR_EGRESS

    def _live_context(self, egress: tuple[str, list[str]], names: list[str]) -> list[str]:
        body = self._filled(egress[1], names)
        live = live_at_start("    " + egress[0], body)
        return [name for name in names if name in live]

    def _filled(self, lines: Iterable[str], context: list[str]) -> list[str]:
        filled = []
        for line in lines:
            line = line.replace(_CONTEXT, _tuple(context))
            if _REPLICA in line:
                line = re.sub(rf"{_REPLICA}(\d+)_", lambda m: _tuple(self._cloned(int(m[1]), context)), line)
            filled.append(line)
        return filled

    def _egress_head(self, context: list[str]) -> list[str]:
        if not context:
            return []
        return [f"        {', '.join(context)}{',' if len(context) == 1 else ''} = q.context"]

    def _initialised(self, body: list[str], context: list[str], given: set[str] | None = None) -> list[str]:
        """Statements that give variables their initial values; those without an effect are removed later."""
        given = given or set()
        names = _identifiers(body) | set(context)
        by_value: dict[str, list[str]] = {}
        for name, value in self.initial.items():
            if name in names and name not in given:
                by_value.setdefault(value, []).append(name)
        return [f"        {' = '.join([*variables, value])}" for value, variables in by_value.items()]

    # ------------------------------------------------------------------------------------------------------ ingress

    def _set(self, stage: Stage, intrinsic: str, code: str, *, masked: bool = True) -> None:
        """Give a field the switch provides its value, if the program reads it."""
        variable = stage.intrinsic(intrinsic)
        if variable is not None:
            full = (1 << stage.intrinsic_width(intrinsic)) - 1
            stage.out(f"{variable} = {code} & {full:#x}" if masked else f"{variable} = {code}")

    def _ingress(self) -> Source:
        stage = self._stage("ingress")
        out = stage.out
        out("size = len(data)")
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
        if self.truncates:
            out(f"_truncated = {_NEVER_TRUNCATED}")
        ParserWriter(stage).write()
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
        """The variables of a list of preserved fields."""
        found = []
        for item in self.program.field_lists[number].items:
            if isinstance(item, ir.FieldRef):
                name = self.layout.variable(item.header, item.field)
                if name is not None and self.program.headers[item.header].metadata:
                    found.append(name)
        return found

    def _restore(self, stage: Stage, number: str, values: str) -> None:
        """Give preserved fields their values back."""
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
            with out.block("if _clone"):
                out("_session = _sessions.get(_clone & 0x7fff)")
                with out.block("if _session is None"):
                    out("_discard('clone session not configured')")
                with out.block("else"):
                    self._preserve(stage, "_clone_list", "_kept")
                    out("_out = clone(port, data, now, _session, _clone_list, _kept)")
        for digest in self.program.digests.values():
            self._digest(stage, digest)
        returned = "_out + " if many else ""
        if self.resubmits:
            with out.block("if _again"):
                self._preserve(stage, "_again", "_kept")
                out(f"return {returned}_resubmit(ingress, port, data, now, (_again, _kept))")
        length = emitted_length(stage).code
        if self.truncates:
            length = f"min({length}, _truncated)"
        queue = self._queue(stage)
        group = stage.intrinsic("mcast_grp")
        if group is not None and self._mentions(out.lines, group):
            with out.block(f"if {group}"):
                out(f"_replicas = _groups.get({group})")
                with out.block("if not _replicas"):
                    out(f"return {returned}_discard('multicast group without ports')")
                self._set(stage, "instance_type", str(REPLICATED), masked=False)
                out(f"_length = {length}")
                if not many:
                    out("_out = []")
                with out.block(f"for _p, {stage.intrinsic('egress_rid') or '_'} in _replicas"):
                    out(f"_out.append(_Queued(_p, {queue}, _length, {_CONTEXT}))")
                out("return _out")
        spec = stage.intrinsic("egress_spec")
        with out.block(f"if {spec} == _drop_port"):
            out(f"return {returned}_discard('ingress')")
        self._set(stage, "instance_type", "0", masked=False)
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
        with stage.out.block(f"if _digest == {digest.id}"):
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
    def _mentions(lines: list[str], name: str) -> bool:
        return name in _identifiers(lines)

    # ------------------------------------------------------------------------------------------------------- clones

    def _clone(self) -> Source:
        """The copy made at the end of ingress: the packet as received, parsed anew; metadata zero but for preserved."""
        stage = self._stage("clone")
        out = stage.out
        out("size = len(data)")
        self._set(stage, "ingress_port", "port", masked=False)
        out(f"_truncated = {_NEVER_TRUNCATED}")
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
        """The context of a copy made at the end of egress."""
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
        self._set(stage, "egress_port", "q.port", masked=False)
        self._set(stage, "egress_global_timestamp", "now // 1000")
        self._set(stage, "packet_length", "q.length_bytes", masked=False)
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
            # Another value than the one that drops, as simple_switch has it, cut to the field's width.
            value = f"_drop_port + 1 & {(1 << stage.intrinsic_width('egress_spec')) - 1:#x}"
            out.lines.insert(head, f"        {spec} = {value}")
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
        if self.truncates:
            out(f"_packet = {packet}")
            with out.block("if len(_packet) > _truncated"):
                out("_packet = _packet[:_truncated]")
            packet = "_packet"
        if self.recirculates:
            if packet != "_packet":
                out(f"_packet = {packet}")
                packet = "_packet"
            with out.block("if _again"):
                self._preserve(stage, "_again", "_kept")
                out("_again_queue = [*_again_queue, *ingress(0, _packet, now, 4, (_again, _kept))]")
                out("return [_Departure(q.port, None, _again_queue)]")
        requeue = "_again_queue" if self.clones_egress or self.recirculates else "()"
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


def _printable(name: str) -> str:
    return re.sub(r"[^\w .+-]", "_", name)
