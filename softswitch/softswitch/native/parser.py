"""The parser in C: a label for each state, gotos between them."""

from __future__ import annotations

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.load.bounds import is_cyclic
from softswitch.v1model import MAX_PACKET_BYTES, STATE_LIMIT

from .expressions import CExpressions
from .statements import Statements, Unit
from .text import CNames, CText, array, literal, words

_ALL_BITS = (1 << 64) - 1


class CParserWriter:
    """A writer of the function that parses a packet.

    It leaves the offset of the payload in ``c->off``.
    """

    def __init__(self, unit: Unit, out: CText) -> None:
        self.unit = unit
        self.program = unit.program
        self.layout = unit.layout
        self.out = out
        self.statements = Statements(unit, out, "parser", "goto done;", "return DROPPED;")
        names = CNames()
        self._labels = {name: names.new("state", name) for name in self.program.parser.states}

    def write(self) -> None:
        out = self.out
        parser = self.program.parser
        out(
            "/* Parse a packet; return DROPPED if an assertion fails. Errors of copies are not"
            " counted again. */"
        )
        with out.block("static int parse(ss_switch *s, packet *p, int original, uint64_t now_ns)"):
            out("context *c = &p->c;", "c->off = 0;")
            no_error = self.program.errors["NoError"]
            # Metadata starts as zero, which is the number of NoError in all but old programs.
            if no_error:
                out(f"if (original) {{{self._stored(no_error)} }}")
            if parser.initial is not None:
                counted = is_cyclic(parser)
                if counted:
                    out("uint32_t visits = 0;")
                out(f"goto {self._labels[parser.initial]};")
                for state in parser.states.values():
                    self._state(state, counted)
                out("done:;")
            out("return GOES_ON;")

    def _state(self, state: ir.ParserState, counted: bool) -> None:
        out = self.out
        out("", f"{self._labels[state.name]}:;")
        with out.block(""):
            if counted:
                with out.block(f"if (++visits > {STATE_LIMIT})"):
                    self._error("ParserTimeout")
            for op in state.ops:
                with out.block(""):
                    self._op(op)
            self._transitions(state)

    def _expressions(self, place: str) -> CExpressions:
        return CExpressions(self.layout, self.out, place, (), self._look)

    # -- transitions -------------------------------------------------------------------------------

    def _goto(self, target: str | None) -> str:
        if target is None:
            return "goto done;"
        return f"goto {self._labels[target]};"

    def _transitions(self, state: ir.ParserState) -> None:
        out = self.out
        keys: list[tuple[str, int]] = []
        if any(t.matches for t in state.transitions):
            expressions = self._expressions(state.place)
            for part in state.key:
                code = expressions.cut(part.value, part.width)
                held = out.temporary()
                if words(part.width) == 1:
                    out(f"const uint64_t {held} = {code};")
                else:
                    out(f"const uint64_t *const {held} = {code};")
                keys.append((held, part.width))
        for transition in state.transitions:
            condition = self._condition(state, transition, keys)
            if condition is None:
                out(self._goto(transition.next_state))
                return
            out(f"if ({condition}) {self._goto(transition.next_state)}")
        out(self._goto(None))

    def _condition(
        self,
        state: ir.ParserState,
        transition: ir.Transition,
        keys: list[tuple[str, int]],
    ) -> str | None:
        """Return the condition of the transition, None if it is always taken."""
        if transition.value_set is not None:
            return self._in_set(state, transition, keys)
        if not transition.matches:
            return None
        tests = []
        for (value, bits), (key, width) in zip(transition.matches, keys, strict=True):
            bits &= (1 << width) - 1
            for i in range(words(width)):
                some = bits >> 64 * i & (1 << 64) - 1
                part = key if words(width) == 1 else f"{key}[{i}]"
                if some == (1 << min(64, width - 64 * i)) - 1:
                    tests.append(f"{part} == {literal(value >> 64 * i)}")
                elif some:
                    tests.append(f"({part} & {literal(some)}) == {literal(value >> 64 * i)}")
        return " && ".join(tests) or None

    def _in_set(
        self,
        state: ir.ParserState,
        transition: ir.Transition,
        keys: list[tuple[str, int]],
    ) -> str:
        assert transition.value_set is not None
        number = list(self.program.value_sets).index(transition.value_set)
        if any(width > 64 for _, width in keys):
            raise ProgramError(
                state.place,
                "a value set of more than 64 bits is not one that the native engine has",
            )
        name = self.out.temporary()
        masks = self.out.temporary()
        self.out(f"const uint64_t {name}[] = {{{', '.join(key for key, _ in keys)}}};")
        members = [mask for _, mask in transition.matches]
        # Without masks, all bits of the members count.
        if members == [(1 << width) - 1 for _, width in keys]:
            members = [_ALL_BITS] * len(members)
        packed = sum(mask % (1 << 64) << 64 * i for i, mask in enumerate(members))
        self.out(f"static const uint64_t {masks}[] = {array(packed, len(keys))};")
        return f"in_set(&s->value_sets[{number}], {name}, {masks}, {len(keys)})"

    # -- operations --------------------------------------------------------------------------------

    def _op(self, op: ir.ParserOp) -> None:
        out = self.out
        if isinstance(op, ir.Extract):
            self._extract(op)
        elif isinstance(op, ir.Assign):
            self.statements.assign(
                op.target.header, op.target.field, op.value, self._expressions(op.place)
            )
        elif isinstance(op, ir.Verify):
            expressions = self._expressions(op.place)
            code = expressions.constant(op.error)
            if code is None:
                raise ProgramError(
                    op.place, "an error that is computed is not one that the native engine has"
                )
            with out.block(f"if (!{expressions.truth(op.condition)})"):
                self._error_code(code)
        elif isinstance(op, ir.Advance):
            bits = self._natural(op.bits, op.place)
            with out.block(f"if ({bits} & 7)"):
                self._error("ParserInvalidArgument")
            self._need(f"({bits} >> 3)")
            out(f"c->off += {bits} >> 3;")
        else:
            self.statements.primitive(op)

    def _natural(self, expr: ir.Expr, place: str) -> str:
        """Return the name of a word with a number of bits."""
        expressions = self._expressions(place)
        low, high = expressions.bounds(expr)
        if low < 0 or high >= 1 << 64:
            raise ProgramError(
                place,
                "a length that is not a word without sign is not one that the native engine has",
            )
        held = self.out.temporary()
        self.out(f"const uint64_t {held} = {expressions.word(expr)};")
        return held

    def _look(self, look: ir.Lookahead, count: int) -> str:
        out = self.out
        size = (look.offset + look.width + 7) // 8
        if size > MAX_PACKET_BYTES:
            # No packet is that long, and C has no numbers for an offset of over 64 bits.
            with out.block(""):
                self._error("PacketTooShort")
            return "0" if count == 1 else self._zeros(count)
        self._need(str(size))
        if count == 1:
            width = min(look.width, 64)
            return self.layout.bits("p->data + c->off", look.offset + look.width - width, width)
        held = out.temporary()
        out(f"uint64_t {held}[{count}];")
        out(f"wide_get({held}, {count}, p->data + c->off, {look.offset}, {look.width});")
        return held

    def _zeros(self, count: int) -> str:
        held = self.out.temporary()
        self.out(f"uint64_t {held}[{count}] = {{0}};")
        return held

    def _need(self, size: str) -> None:
        # The payload never begins behind the packet's end, so this difference cannot be negative,
        # while a sum with a length that the packet gives could begin anew at 0.
        with self.out.block(f"if (c->size - c->off < {size})"):
            self._error("PacketTooShort")

    def _error(self, name: str) -> None:
        self._error_code(self.program.errors[name])

    def _error_code(self, code: int) -> None:
        errors = self.unit.errors
        if code not in errors:
            errors.append(code)
        count = f"s->errors[{errors.index(code)}]++;"
        self.out(f"if (original) {{ {count}{self._stored(code)} }}", "goto done;")

    def _stored(self, code: int) -> str:
        """Return the statement that gives the program an error's code, none if it has no field."""
        variable = self.unit.intrinsic("parser_error")
        if variable is None:
            return ""
        mask = (1 << self.unit.intrinsic_width("parser_error")) - 1
        return f" {variable} = {literal(code & mask)};"

    def _extract(self, op: ir.Extract) -> None:
        out = self.out
        layout = self.layout
        if isinstance(op.target, ir.HeaderRef):
            self._extract_header(op, op.target.name)
            return
        if isinstance(op.target, ir.StackRef):
            headers = self.program.stacks[op.target.name].headers
        else:
            unions = self.program.union_stacks[op.target.name].unions
            headers = tuple(self.program.unions[u].headers[op.member] for u in unions)
        index = layout.next_index[op.target.name]
        with out.block(f"if ({index} >= {len(headers)})"):
            self._error("StackOutOfBounds")
        for i, header in enumerate(headers):
            with out.block(f"{'else ' if i else ''}if ({index} == {i})"):
                self._extract_header(op, header)
        out(f"{index}++;")

    def _extract_header(self, op: ir.Extract, header: str) -> None:
        out = self.out
        held = self.layout.headers[header]
        if held.split is None:
            if held.size:
                self._need(str(held.size))
                out(
                    f"memcpy({held.code}.bytes, p->data + c->off, {held.size});",
                    f"c->off += {held.size};",
                )
        else:
            self._extract_variable(op, header)
        out(f"{held.code}.valid = 1;")
        self.statements.validated(header)

    def _extract_variable(self, op: ir.Extract, header: str) -> None:
        out = self.out
        held = self.layout.headers[header]
        assert held.split is not None
        if op.needs_fixed:
            self._need(str(held.size))
        bits = self._natural(op.length if op.length is not None else ir.Const(0), op.place)
        with out.block(f"if ({bits} & 7)"):
            self._error("ParserInvalidArgument")
        self._need(f"{held.size} + ({bits} >> 3)")
        limit = self.program.headers[header].type.max_length_bytes
        # No packet exceeds a larger limit, which may have more digits than C's numbers.
        if limit is not None and limit < MAX_PACKET_BYTES:
            with out.block(f"if ({held.size} + ({bits} >> 3) > {limit})"):
                self._error("HeaderTooShort")
        rest = held.size - held.split
        out(f"memcpy({held.code}.bytes, p->data + c->off, {held.split});")
        out(f"{held.code}.from = c->off + {held.split};", f"{held.code}.length = {bits} >> 3;")
        out(f"c->off += {held.split} + ({bits} >> 3);")
        out(
            f"memcpy({held.code}.bytes + {held.split}, p->data + c->off, {rest});",
            f"c->off += {rest};",
        )
