"""The compiler from a program (:class:`~softswitch.ir.ProgramIR`) to one C translation unit.

The unit includes no system headers. It consists of abi.h, of the code that all programs share
(runtime.c, switch.c), and of the program's own parser, actions, pipelines and deparser. It takes
only names from the program's text, reduced to letters, digits and underscores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.v1model import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    MAX_PACKET_BYTES,
    NEVER_TRUNCATED,
    RECIRCULATED,
    REPLICATED,
    RESUBMIT_LIMIT,
    RESUBMITTED,
    TOO_LONG,
)

from .calculations import Calculations
from .control import ControlWriter, parameter_words
from .expressions import CExpressions, cut_word
from .keys import key_layout
from .layout import CLayout
from .limits import check_text
from .parser import CParserWriter
from .statements import Statements, Unit, write_event
from .text import CText, words
from .usage import Usage

_TYPES = """\
typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
typedef __SIZE_TYPE__ size_t;

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *memory, size_t size);
void free(void *memory);
void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
int pthread_mutex_lock(void *mutex);
int pthread_mutex_unlock(void *mutex);
"""

_TOO_OFTEN = "recirculated too often"
_NO_ROOM = "no memory for it"


@dataclass(frozen=True, slots=True)
class CUnit:
    """A program's C code, and the names of the things that it numbers."""

    text: str
    reasons: tuple[str, ...]
    overruns: tuple[str, ...]
    errors: tuple[int, ...]
    messages: tuple[tuple[str, tuple[tuple[int, bool], ...]], ...]
    digests: dict[int, tuple[tuple[int, bool], ...]]


@cache
def part(name: str) -> str:
    """Return a C file of this package."""
    return (files(__package__) / name).read_text("utf-8")


def generate(program: ir.ProgramIR) -> CUnit:
    """Return the unit.

    Raises :class:`~softswitch.errors.ProgramError` for what the native engine does not have.
    """
    try:
        return _Generator(program).unit()
    except RecursionError:
        raise ProgramError(program.name, "an expression is nested too deeply") from None


class _Generator:
    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.usage = Usage(program)
        self.layout = CLayout(program, self.usage)
        self.shared = Unit(program, self.usage, self.layout, Calculations(self.layout))
        self.shared.reasons += (_TOO_OFTEN, _NO_ROOM, TOO_LONG)
        self.digests: dict[int, tuple[tuple[int, bool], ...]] = {}
        self.emitted = [name for name in program.deparser.order if name in self.layout.headers]

    def unit(self) -> CUnit:
        out = CText()
        CParserWriter(self.shared, out).write()
        out("")
        self._emitted_length(out)
        self._keep(out)
        for kind in ("ingress", "egress"):
            ControlWriter(self.shared, out, kind).write()
            out("")
        if "clone_ingress_pkt_to_egress" in self.usage.primitives:
            self._clone(out)
        self._verify(out)
        self._enter(out)
        self._deparse(out)
        self._egress(out)
        check_text(self.program.name, out.lines)
        shared = self.shared
        text = "\n".join(
            [
                (
                    "/* A P4 program, compiled by softswitch. h_HEADER holds a header as it is"
                    " sent, m_FIELD is metadata,"
                ),
                "   and c->off is where the payload begins. */",
                "",
                _TYPES,
                part("abi.h"),
                *self._defined(),
                part("runtime.c"),
                *self.layout.type_lines,
                *self._context(),
                *self._shapes(),
                *shared.calculations.tables.values(),
                "",
                part("switch.c"),
                *out.lines,
                "",
            ]
        )
        return CUnit(
            text=text,
            reasons=tuple(shared.reasons),
            overruns=tuple(shared.overruns),
            errors=tuple(shared.errors),
            messages=tuple((message, tuple(shapes)) for message, shapes in shared.messages),
            digests=self.digests,
        )

    # -- what is declared --------------------------------------------------------------------------

    def _defined(self) -> list[str]:
        program = self.program
        shared = self.shared
        tables = ir.tables(program)
        key_words = [key_layout(table).size for table in tables]
        emitted_bytes = sum(self.layout.headers[name].size for name in self.emitted)
        numbers = {
            "KEY_WORDS": max(key_words, default=1) or 1,
            "HEADROOM": emitted_bytes // 8 * 8 + 8,
            "REASONS": len(shared.reasons),
            "OVERRUNS": len(shared.overruns),
            "ERRORS": len(shared.errors),
            "TURNS": len(shared.calculations.counters),
            "TABLES": len(tables),
            "PROFILES": len(program.profiles),
            "VALUE_SETS": len(program.value_sets),
            "COUNTERS": len(program.counters),
            "REGISTERS": len(program.registers),
            "METERS": len(program.meters),
            "RESUBMIT_LIMIT": RESUBMIT_LIMIT,
            "TOO_OFTEN": shared.reasons.index(_TOO_OFTEN),
            "NO_ROOM": shared.reasons.index(_NO_ROOM),
            "TOO_LONG": shared.reasons.index(TOO_LONG),
            "MAX_PACKET_BYTES": MAX_PACKET_BYTES,
        }
        return [f"#define {name} {value}" for name, value in numbers.items()]

    def _context(self) -> list[str]:
        return [
            "",
            "typedef struct {",
            *(self.layout.metadata_lines or ["    uint8_t none;"]),
            "} metadata;",
            "",
            "typedef struct {",
            "    metadata meta;",
            "    uint32_t truncated, digest, clone, clone_list, again;",
            "    uint64_t size, off;",
            "    int64_t grown;",
            *self.layout.header_lines,
            "} context;",
            "",
        ]

    def _shapes(self) -> list[str]:
        """Return the code of the shapes of tables and profiles, by which commands are checked."""
        program = self.program
        lines = [
            (
                "/* arguments has the words of each action's arguments; profile is a number, from 1"
                " on, or 0. */"
            ),
            (
                "typedef struct { uint32_t words, ranges, longest, actions, profile; const uint32_t"
                " *arguments; } shape;"
            ),
        ]
        rows = []
        for i, table in enumerate(ir.tables(program)):
            keys = key_layout(table)
            if table.profile:
                sizes = [1]
            else:
                sizes = [parameter_words(program.actions[a]) for a in table.actions]
            lines.append(_constants("uint32_t", f"table_arguments_{i}", sizes))
            profile = 0
            if table.profile:
                profile = list(program.profiles).index(table.profile) + 1
            longest = int(keys.kind == "longest")
            numbers = f"{keys.size}, {len(keys.ranges)}, {longest}, {len(sizes)}, {profile}"
            rows.append(f"    {{{numbers}, table_arguments_{i}}},")
        lines += ["static const shape table_shapes[TABLES + 1] = {", *rows, "    {0}", "};"]
        rows = []
        for i, name in enumerate(program.profiles):
            actions = ir.profile_actions(program, name).values()
            sizes = []
            for params in actions:
                sizes.append(sum(words(param.width) for param in params))
            lines.append(_constants("uint32_t", f"profile_arguments_{i}", sizes))
            rows.append(f"    {{0, 0, 0, {len(sizes)}, 0, profile_arguments_{i}}},")
        lines += ["static const shape profile_shapes[PROFILES + 1] = {", *rows, "    {0}", "};"]
        # Arrays of tables have no cells of their own (size 0), but C has no empty arrays.
        counters = [max(1, counter.size) for counter in program.counters.values()]
        registers: list[int] = []
        for register in program.registers.values():
            registers.append(register.size * words(register.width))
        meters = [max(1, meter.size) for meter in program.meters.values()]
        lines += [
            _constants("uint64_t", "counter_sizes", counters),
            _constants("uint64_t", "register_words", registers),
            _constants("uint64_t", "meter_sizes", meters),
        ]
        return [*lines, ""]

    # -- helpers -----------------------------------------------------------------------------------

    def _set(
        self,
        out: CText,
        intrinsic: str,
        code: str,
    ) -> None:
        """Set a field that the switch provides, if the program reads it."""
        place = self.shared.intrinsic(intrinsic)
        if place is not None:
            width = min(64, self.shared.intrinsic_width(intrinsic))
            value = cut_word(f"({code})", width)
            out(f"{place} = {value};")

    def _emitted_length(self, out: CText) -> None:
        out("/* The length in bytes that the packet would have if it were deparsed now. */")
        with out.block("static uint64_t whole_length(const context *c)"):
            out("uint64_t length = c->size - c->off;")
            for name in self.emitted:
                held = self.layout.headers[name]
                out(f"length += {held.code}.valid ? {held.length} : 0;")
            out("return length;")
        out("")

    def _keep(self, out: CText) -> None:
        """Write the function that restores the preserved fields of a list."""
        head = "static void restore(context *c, uint32_t list, const metadata *kept)"
        with out.block(head), out.block("switch (list)"):
            for number, fields in self.program.field_lists.items():
                out(f"case {number}:")
                for item in fields.items:
                    code = self._kept_place(item)
                    if code is not None:
                        kept = code.replace("c->meta.", "kept->")
                        out(f"    memcpy(&{code}, &{kept}, sizeof {code});")
                out("    break;")
        out("")

    def _kept_place(self, item: ir.Expr) -> str | None:
        """Return where an item of a list is, None if it is not metadata that the program uses."""
        if not isinstance(item, ir.FieldRef) or not self.program.headers[item.header].metadata:
            return None
        key = item.header, item.field
        varbit = self.layout.varbits.get(key)
        if varbit is None:
            place = self.layout.fields.get(key)
            return None if place is None else place.code
        if "recirculate" in self.usage.primitives:
            fault = (
                "varies in length and is kept in recirculation, which the native engine does not"
                " have"
            )
            raise ProgramError(f"'{item.header}.{item.field}'", fault)
        return varbit

    # -- ingress -----------------------------------------------------------------------------------

    def _verify(self, out: CText) -> None:
        """Write the function that sets ``checksum_error`` if a checksum is wrong."""
        variable = self.shared.intrinsic("checksum_error")
        with out.block("static int verify_checksums(ss_switch *s, packet *p)"):
            out("context *c = &p->c;")
            for checksum in self.program.checksums:
                if not checksum.verify or variable is None:
                    continue
                header = checksum.target.header
                with out.block(""):
                    guards, valid = self._guards(checksum, out)
                    if not self.program.headers[header].metadata and header not in valid:
                        guards.insert(0, f"{self.layout.headers[header].code}.valid")
                        valid |= {header}
                    with out.block(f"if ({' && '.join(guards) or '1'})"):
                        expressions = CExpressions(self.layout, out, checksum.place)
                        target = self.layout.spec(header, checksum.target.field)
                        if target.width > 64:
                            fault = "a checksum of over 64 bits, which the native engine lacks"
                            raise ProgramError(checksum.place, fault)
                        calculation = self.program.calculations[checksum.calculation]
                        wanted = self.shared.calculations.value(calculation, out, valid)
                        actual = expressions.cut(checksum.target, target.width)
                        out(f"if ({wanted} != {actual}) {variable} = 1;")
            out("return GOES_ON;")
        out("")

    def _guards(self, checksum: ir.ChecksumSpec, out: CText) -> tuple[list[str], frozenset[str]]:
        """Return the condition and the headers that are valid where it holds."""
        if checksum.condition is None:
            return [], frozenset()
        condition = CExpressions(self.layout, out, checksum.place).truth(checksum.condition)
        return [condition], frozenset(_implied(checksum.condition))

    def _enter(self, out: CText) -> None:
        shared = self.shared
        kinds = f"kind {RESUBMITTED}: received before; {RECIRCULATED}: recirculated"
        out(f"/* Run ingress for a packet ({kinds}, both with what a list of fields kept). */")
        out(
            "static ss_packet *enter(ss_switch *s, packet *p, uint32_t port, uint64_t now_ns,"
            " uint32_t kind,"
        )
        with out.block("                        uint32_t list, const metadata *kept)"):
            # Without memory for it, or with too many bytes, the packet is counted already.
            out("if (!p) return 0;")
            out("ss_packet *first = 0, **last = &first;", "context *c = &p->c;")
            resubmits = "resubmit" in self.usage.primitives
            if resubmits:
                out("uint32_t resubmissions = 0;", "metadata before;", "again:")
            with out.block(f"if (port > {(1 << shared.intrinsic_width('ingress_port')) - 1}u)"):
                out(shared.drop("ingress port out of range"), "goto end;")
            out(
                "memset(c, 0, sizeof *c);",
                "c->size = p->size;",
                f"c->truncated = {NEVER_TRUNCATED}u;",
            )
            with out.block("if (kind)"):
                self._set(out, "instance_type", "kind")
                out("restore(c, list, kept);")
            with out.block("else"):
                out("s->packets_in++;")
                self._set(out, "ingress_port", "port")
                self._set(out, "ingress_global_timestamp", "now_ns / 1000")
            self._set(out, "packet_length", "c->size")
            out("if (parse(s, p, 1, now_ns) == DROPPED) goto end;")
            out("if (verify_checksums(s, p) == DROPPED) goto end;")
            out("if (ingress_control(s, p, now_ns) == DROPPED) goto end;")
            if "clone_ingress_pkt_to_egress" in self.usage.primitives:
                with out.block("if (c->clone)"):
                    out("const entry *session = list_of(s, SESSIONS, c->clone & 0x7fff);")
                    out("if (session) last = clone(s, p, port, now_ns, session, last);")
                    out(f"else {shared.drop('clone session not configured')}")
            for digest in self.program.digests.values():
                with out.block(f"if (c->digest == {digest.id})"):
                    self._digest(digest, out)
            if resubmits:
                with out.block("if (c->again)"):
                    with out.block("if (++resubmissions > RESUBMIT_LIMIT)"):
                        out(shared.drop("resubmitted too often"), "goto end;")
                    out(
                        "before = c->meta;",
                        "kept = &before;",
                        "list = c->again;",
                        f"kind = {RESUBMITTED};",
                    )
                    out("goto again;")
            self._distribute(out)
            out("return first;")
            out("", "end:", "give(s, p);", "return first;")
        out("")

    def _distribute(self, out: CText) -> None:
        """Write the code that drops, queues or copies a packet at the end of ingress."""
        shared = self.shared
        queue = shared.intrinsic("priority")
        if queue is not None and shared.intrinsic_width("priority") > 3:
            with out.block(f"if ({queue} > 7)"):
                out(shared.drop("priority out of range"), "goto end;")
        out("uint64_t length = whole_length(c);", f"p->head.queue = {queue or 0};")
        group = shared.intrinsic("mcast_grp")
        ref = self.program.intrinsics.get("mcast_grp")
        # Marking a packet to be dropped clears the group, so that alone makes no program multicast.
        if group is not None and ref is not None and (ref.header, ref.field) in self.usage.written:
            with out.block(f"if ({group})"):
                out(f"const entry *group = list_of(s, GROUPS, {group});")
                with out.block("if (!group || !group->word[1])"):
                    out(shared.drop("multicast group without ports"), "goto end;")
                self._set(out, "instance_type", str(REPLICATED))
                # Truncation belongs to the packet, not to its replicas.
                out(f"c->truncated = {NEVER_TRUNCATED}u;", "p->head.length_bytes = length;")
                with out.block("for (uint64_t i = 0; i < group->word[1]; i++)"):
                    self._replica(out, "group->word + 2", "i + 1 == group->word[1]")
                out("return first;")
        spec = shared.intrinsic("egress_spec")
        with out.block(f"if ({spec} == s->drop_port)"):
            out(shared.drop("ingress"), "goto end;")
        self._set(out, "instance_type", "0")
        out(
            f"p->head.port = {spec};",
            "p->head.length_bytes = length < c->truncated ? length : c->truncated;",
        )
        out("p->head.next = 0;", "*last = &p->head;")

    def _replica(
        self,
        out: CText,
        pairs: str,
        is_last: str,
    ) -> None:
        """Write the copy for one (port, replication id); the last one is the packet itself."""
        out(f"packet *q = {is_last} ? p : copied(s, p);", "if (!q) continue;")
        out("q->head.queue = p->head.queue;", "q->head.length_bytes = p->head.length_bytes;")
        out(f"q->head.port = ({pairs})[2 * i];")
        rid = self.shared.intrinsic("egress_rid")
        if rid is not None:
            code = cut_word(f"({pairs})[2 * i + 1]", self.shared.intrinsic_width("egress_rid"))
            out(f"{rid.replace('c->', 'q->c.')} = {code};")
        out("q->head.next = 0;", "*last = &q->head;", "last = &q->head.next;")

    def _digest(self, digest: ir.FieldList, out: CText) -> None:
        items: list[ir.Expr] = []
        for item in digest.items:
            if isinstance(item, ir.FieldRef):
                spec = self.layout.spec(item.header, item.field)
                if spec.signed:
                    item = ir.Op("&", item, ir.Const((1 << spec.width) - 1))
            items.append(item)
        expressions = CExpressions(self.layout, out, f"learn list '{digest.name}'")
        self.digests[digest.id] = tuple(write_event(out, "LEARNT", digest.id, items, expressions))

    def _clone(self, out: CText) -> None:
        out(
            "/* Make copies at the end of ingress: the received packet, parsed anew; only listed"
            " metadata is kept. */"
        )
        out(
            "static ss_packet **clone(ss_switch *s, packet *of, uint32_t port, uint64_t now_ns,"
            " const entry *session,"
        )
        with out.block("                         ss_packet **last)"):
            out("packet *p = take(s, of->data, of->size);")
            out("if (!p) return last;", "context *c = &p->c;")
            out(
                "memset(c, 0, sizeof *c);",
                "c->size = p->size;",
                f"c->truncated = {NEVER_TRUNCATED}u;",
            )
            self._set(out, "ingress_port", "port")
            with out.block("if (parse(s, p, 0, now_ns) == DROPPED || !session->word[3])"):
                out("give(s, p);", "return last;")
            out(
                "memset(&c->meta, 0, sizeof c->meta);", "restore(c, of->c.clone_list, &of->c.meta);"
            )
            self._set(out, "instance_type", str(INGRESS_CLONE))
            out("if (session->word[1]) c->truncated = session->word[1];")
            out("uint64_t length = whole_length(c);")
            out("p->head.length_bytes = length < c->truncated ? length : c->truncated;")
            out("p->head.queue = session->word[2];")
            with out.block("for (uint64_t i = 0; i < session->word[3]; i++)"):
                self._replica(out, "session->word + 4", "i + 1 == session->word[3]")
            out("return last;")
        out("")

    # -- egress ------------------------------------------------------------------------------------

    def _egress(self, out: CText) -> None:
        shared = self.shared
        used = self.usage.primitives
        out(
            "uint32_t ss_egress(ss_switch *s, ss_packet *head, uint64_t enqueued_ns, uint64_t"
            " now_ns,"
        )
        with out.block(
            "                   uint32_t enq_qdepth, uint32_t deq_qdepth, ss_departure *out,"
            " uint32_t room)"
        ):
            out("packet *p = (packet *)head;", "context *c = &p->c;", "ss_packet *requeue = 0;")
            out("if (s->leaving) give(s, s->leaving);", "s->leaving = p;", "if (!room) return 0;")
            self._set(out, "egress_port", "head->port")
            self._set(out, "egress_global_timestamp", "now_ns / 1000")
            self._set(out, "packet_length", "c->size + (uint64_t)c->grown")
            self._set(out, "enq_timestamp", "enqueued_ns / 1000")
            self._set(out, "enq_qdepth", "enq_qdepth")
            self._set(out, "deq_timedelta", "now_ns / 1000 - enqueued_ns / 1000")
            self._set(out, "deq_qdepth", "deq_qdepth")
            self._set(out, "qid", "head->queue")
            # simple_switch sets a value other than the one that drops, cut to the field's width.
            self._set(out, "egress_spec", "s->drop_port + 1")
            out("c->clone = c->clone_list = c->again = 0;")
            out(
                "out->port = head->port;", "out->data = 0;", "out->length = 0;", "out->requeue = 0;"
            )
            out("if (egress_control(s, p, now_ns) == DROPPED) return 0;")
            if "clone_egress_pkt_to_egress" in used:
                self._egress_clone(out)
            spec = shared.intrinsic("egress_spec")
            if spec is not None:
                with out.block(f"if ({spec} == s->drop_port)"):
                    out(shared.drop("egress"), "out->requeue = requeue;", "return requeue != 0;")
            with out.block("if (deparse(s, p, out) == DROPPED)"):
                out("give_all(s, requeue);", "return 0;")
            if "recirculate" in used:
                with out.block("if (c->again)"):
                    out("metadata kept = c->meta;", "ss_packet **end = &requeue;")
                    out("while (*end) end = &(*end)->next;")
                    out(
                        "*end = enter(s, take(s, out->data, out->length), 0, now_ns,"
                        f" {RECIRCULATED}, c->again, &kept);"
                    )
                    out(
                        "out->data = 0;", "out->length = 0;", "out->requeue = requeue;", "return 1;"
                    )
            out("if (out->length > c->truncated) out->length = c->truncated;")
            out("out->requeue = requeue;", "s->packets_out++;", "return 1;")

    def _egress_clone(self, out: CText) -> None:
        shared = self.shared
        with out.block("if (c->clone)"):
            out(
                "const entry *session = list_of(s, SESSIONS, c->clone & 0x7fff);",
                "ss_packet **last = &requeue;",
            )
            with out.block("if (!session)"):
                out(shared.drop("clone session not configured"))
            with out.block("else for (uint64_t i = 0; i < session->word[3]; i++)"):
                out(
                    "packet *q = copied(s, p);",
                    "if (!q) continue;",
                    "context *d = &q->c;",
                    "uint64_t length = whole_length(c);",
                )
                out("memset(&d->meta, 0, sizeof d->meta);", "restore(d, c->clone_list, &c->meta);")
                out(f"d->truncated = session->word[1] ? session->word[1] : {NEVER_TRUNCATED}u;")
                for intrinsic, code in (
                    ("egress_rid", "session->word[5 + 2 * i]"),
                    ("instance_type", str(EGRESS_CLONE)),
                ):
                    place = shared.intrinsic(intrinsic)
                    if place is not None:
                        out(
                            f"{place.replace('c->', 'd->')} ="
                            f" {cut_word(code, shared.intrinsic_width(intrinsic))};"
                        )
                out("q->head.port = session->word[4 + 2 * i];", "q->head.queue = session->word[2];")
                out("q->head.length_bytes = length < d->truncated ? length : d->truncated;")
                out("q->head.next = 0;", "*last = &q->head;", "last = &q->head.next;")

    def _deparse(self, out: CText) -> None:
        with out.block("static int deparse(ss_switch *s, packet *p, ss_departure *out)"):
            out("context *c = &p->c;", "uint64_t now_ns = 0;")
            statements = Statements(self.shared, out, "deparser", "", "return DROPPED;")
            for checksum in self.program.checksums:
                if not checksum.update:
                    continue
                with out.block(""):
                    guards, valid = self._guards(checksum, out)
                    with out.block(f"if ({' && '.join(guards) or '1'})"):
                        value = self.shared.calculations.value(
                            self.program.calculations[checksum.calculation], out, valid
                        )
                        result = out.temporary()
                        out(f"const uint64_t {result} = {value};")
                        statements.assign_word(
                            checksum.target.header, checksum.target.field, result
                        )
            statements.body(self.program.deparser.body, ())
            moved = any(self.layout.headers[name].split is not None for name in self.emitted)
            out("uint64_t length = 0, payload = c->size - c->off;")
            for name in self.emitted:
                held = self.layout.headers[name]
                out(f"length += {held.code}.valid ? {held.length} : 0;")
            with out.block("if (length + payload > MAX_PACKET_BYTES)"):
                out("s->dropped[TOO_LONG]++;", "return DROPPED;")
            if moved:
                # A packet of no bytes leaves, too: its place is not NULL.
                out("uint8_t *to = room_for(s, &s->sent, &s->sent_room, length + payload + 1);")
                out("if (!to) return DROPPED;")
                out("memcpy(to + length, p->data + c->off, payload);")
            else:
                out("uint8_t *to = p->data + c->off - length;")
            out("out->data = to;", "out->length = length + payload;")
            for name in self.emitted:
                held = self.layout.headers[name]
                with out.block(f"if ({held.code}.valid)"):
                    if held.split is None:
                        out(f"memcpy(to, {held.code}.bytes, {held.size});", f"to += {held.size};")
                        continue
                    rest = held.size - held.split
                    out(f"memcpy(to, {held.code}.bytes, {held.split});", f"to += {held.split};")
                    out(
                        f"memcpy(to, p->data + {held.code}.from, {held.code}.length);",
                        f"to += {held.code}.length;",
                    )
                    out(f"memcpy(to, {held.code}.bytes + {held.split}, {rest});", f"to += {rest};")
            out("return GOES_ON;")
        out("")


def _constants(
    kind: str,
    name: str,
    numbers: Iterable[int],
) -> str:
    """Return the C code of an array; an empty one gets a zero, as C needs an element."""
    listed = ", ".join(map(str, numbers)) or "0"
    return f"static const {kind} {name}[] = {{{listed}}};"


def _implied(condition: ir.Expr) -> set[str]:
    """Return the headers that are valid wherever a condition holds."""
    match condition:
        case ir.ValidRef(name) | ir.Op("valid", None, ir.HeaderRef(name)):
            return {name}
        case ir.Op("and", left, right) if left is not None:
            return _implied(left) | _implied(right)
        case ir.Op("d2b" | "b2d", None, operand):
            return _implied(operand)
        case ir.Op("==", operand, ir.Const(1)) if operand is not None:
            return _implied(operand)
    return set()
