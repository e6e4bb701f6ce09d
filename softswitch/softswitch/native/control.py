"""Ingress and egress control in C.

Each action is a function, each table and condition a label.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.tables import has_state

from .expressions import CExpressions
from .keys import KeyLayout, key_layout
from .statements import Statements, Unit
from .text import CNames, CText, array, words


def parameter_words(action: ir.Action) -> int:
    return sum(words(p.width) for p in action.params)


class ControlWriter:
    """A writer of one pipeline's functions."""

    def __init__(
        self,
        unit: Unit,
        out: CText,
        kind: str,
    ) -> None:
        self.unit = unit
        self.program = unit.program
        self.layout = unit.layout
        self.out = out
        self.kind = kind
        if kind == "ingress":
            self.pipeline = self.program.ingress
        else:
            self.pipeline = self.program.egress
        self.numbers = {table.name: i for i, table in enumerate(ir.tables(self.program))}
        self._names = unit.layout.names
        self._functions: dict[int, tuple[str, bool]] = {}
        """The function of each action, and whether it may end the pipeline."""
        labels = CNames()
        self.order = ir.topological(self.pipeline)
        self._labels = {name: labels.new("node", name) for name in self.order}

    def write(self) -> None:
        out = self.out
        for name in self.order:
            for action in _actions(self.pipeline.nodes[name]):
                if action not in self._functions:
                    self._action(self.program.actions[action])
        with out.block(f"static int {self.kind}_control(ss_switch *s, packet *p, uint64_t now_ns)"):
            out("context *c = &p->c;")
            if self.pipeline.initial is not None and self.pipeline.initial != self.order[0]:
                out(self._goto(self.pipeline.initial))
            for i, name in enumerate(self.order):
                self._after = self.order[i + 1] if i + 1 < len(self.order) else None
                out("", f"{self._labels[name]}:;")
                with out.block(""):
                    self._node(self.pipeline.nodes[name])
            out("return GOES_ON;")

    def _goto(self, target: str | None) -> str:
        if target is None:
            return "return GOES_ON;"
        return f"goto {self._labels[target]};"

    def _follow(self, target: str | None) -> None:
        """Write the way to a node, unless it comes next."""
        if target is None or target != self._after:
            self.out(self._goto(target))

    # -- actions -----------------------------------------------------------------------------------

    def _action(self, action: ir.Action) -> None:
        name = self._names.new(f"{self.kind}_action", action.name)
        body = CText(1)
        Statements(self.unit, body, self.kind, "return EXITED;", "return DROPPED;").body(
            action.body, action.params
        )
        self._functions[action.id] = name, any("return " in line for line in body.lines)
        head = f"static int {name}(ss_switch *s, packet *p, const uint64_t *arg, uint64_t now_ns)"
        with self.out.block(head):
            self.out("context *c = &p->c;")
            self.out.include(body)
            self.out("return GOES_ON;")
        self.out("")

    def _call(self, action: int, arguments: str) -> None:
        """Call an action. What ends the pipeline is not the packet's end."""
        name, may_end = self._functions[action]
        call = f"{name}(s, p, {arguments}, now_ns)"
        if not self.program.actions[action].body:
            return
        if may_end:
            held = self.out.temporary()
            self.out(
                f"int {held} = {call};",
                f"if ({held}) return {held} == DROPPED ? DROPPED : GOES_ON;",
            )
        else:
            self.out(f"{call};")

    # -- nodes -------------------------------------------------------------------------------------

    def _node(self, node: ir.Node) -> None:
        out = self.out
        if isinstance(node, ir.Conditional):
            condition = CExpressions(self.layout, out, node.place).truth(node.condition)
            out(f"if ({condition}) {self._goto(node.true_next)}")
            self._follow(node.false_next)
        elif isinstance(node, ir.DirectCall):
            self._call(node.action, "0")
            self._follow(node.next)
        elif node.default is None or not node.default_const or node.keys or node.entries:
            self._table(node)
        else:
            # p4c makes these tables of plain statements.
            action = self.program.actions[node.default.action]
            size = parameter_words(action)
            if size:
                out(f"static const uint64_t fixed[] = {_arguments(action, node.default.args)};")
            self._call(action.id, "fixed" if size else "0")
            if node.by_hit:
                self._follow(node.next_on_miss)
            else:
                self._follow(node.next_by_action.get(action.id, node.next_base))

    def _table(self, table: ir.TableSpec) -> None:
        out = self.out
        keys = key_layout(table)
        number = self.numbers[table.name]
        out(f"table *t = &s->tables[{number}];", "entry *e = 0;")
        if table.keys:
            self._lookup(table, keys)
        if table.by_hit:
            out("const int hit = e != 0;")
        with out.block("if (e)"):
            if has_state(table):
                self._entry_state(table, fallback=False)
        if table.profile is None:
            with out.block("else"):
                out("e = t->fallback;")
                is_counted = table.counters is not None or table.meter is not None
                if is_counted and table.default is not None:
                    self._entry_state(table, fallback=True)
            out(f"const uint64_t *arg = e ? e->word + {keys.size + 2 * len(keys.ranges)} : 0;")
        else:
            self._through_profile(table, keys)
        self._dispatch(table)

    def _lookup(self, table: ir.TableSpec, keys: KeyLayout) -> None:
        out = self.out
        size = keys.size
        values = []
        for i, key in enumerate(table.keys):
            expressions = CExpressions(self.layout, out, f"{table.place} key {i}")
            expr = key.value
            if key.mask is not None:
                expr = ir.Op("&", expr, ir.Const(key.mask))
            code = expressions.cut(expr, key.width)
            values.append((code, self._known_zero(key.value)))
        out(f"uint64_t key[{max(size, 1)}] = {{0}};")
        for (code, valid), key, place in zip(values, table.keys, keys.places, strict=True):
            if place is None:
                continue
            word, shift = place
            before = f"if ({valid}) " if valid else ""
            if key.width > 64:
                out(f"{before}memcpy(key + {word}, {code}, {8 * words(key.width)});")
            else:
                out(f"{before}key[{word}] |= {code}{f' << {shift}' if shift else ''};")
        if keys.kind == "best":
            ranges = []
            for i in keys.ranges:
                code, valid = values[i]
                ranges.append(f"({valid} ? {code} : 0)" if valid else code)
            out(f"const uint64_t value[] = {{{', '.join(ranges) or '0'}}};")
            out(f"e = find_best(t, key, {size}, value, {len(ranges)}, s->seed);")
        else:
            out(f"e = find_{keys.kind}(t, key, {size}, s->seed);")

    def _known_zero(self, value: ir.Expr) -> str | None:
        """Return the condition on which a key is not zero for an invalid header.

        None means that it is zero anyway.
        """
        if not isinstance(value, ir.FieldRef) or self.program.headers[value.header].metadata:
            return None
        if (value.header, value.field) not in self.unit.usage.written:
            return None
        return f"{self.layout.headers[value.header].code}.valid"

    def _entry_state(self, table: ir.TableSpec, *, fallback: bool) -> None:
        out = self.out
        if table.counters is not None:
            out("e->state->packets++;", "e->state->bytes += c->size;")
        if table.timeout and not fallback:
            out("e->state->hit_ns = now_ns;")
        if table.meter is None:
            return
        meter = self.program.meters[table.meter]
        if meter.target is None:
            raise ProgramError(table.place, f"direct meter '{table.meter}' has no result field")
        amount = "c->size" if meter.unit == "bytes" else "1"
        statements = Statements(self.unit, out, self.kind, "", "")
        # A miss leaves the result as it was unless the default entry's meter is configured.
        with out.block("if (e->state->meter.mode)" if fallback else ""):
            colour = out.temporary()
            out(f"const uint64_t {colour} = meter_colour(&e->state->meter, {amount}, now_ns);")
            statements.assign_word(meter.target.header, meter.target.field, colour)

    def _through_profile(self, table: ir.TableSpec, keys: KeyLayout) -> None:
        out = self.out
        assert table.profile is not None
        spec = self.program.profiles[table.profile]
        number = list(self.program.profiles).index(table.profile)
        with out.block("if (e)"):
            out(f"profile *o = &s->profiles[{number}];")
            out(
                f"const choice *g = o->choice[e->word[{keys.size + 2 * len(keys.ranges)}]];",
                "uint64_t at = 0;",
            )
            if spec.selector is not None:
                with out.block("if (g->count > 1)"):
                    code = self.unit.calculations.selected(
                        table.profile, spec.selector, spec.place, out
                    )
                    out(f"at = {code} % g->count;")
            out("e = g->count ? o->call[g->call[at]] : 0;")
        out("const uint64_t *arg = e ? e->word : 0;")

    def _dispatch(self, table: ir.TableSpec) -> None:
        out = self.out
        with out.block("if (e) switch (e->action)"):
            for number, action in self._choices(table):
                out(f"case {number}:")
                out.depth += 1
                with out.block(""):
                    self._call(action.id, "arg")
                    if not table.by_hit:
                        out(self._goto(table.next_by_action.get(action.id, table.next_base)))
                if table.by_hit:
                    out("break;")
                out.depth -= 1
        if table.by_hit:
            out(f"if (hit) {self._goto(table.next_on_hit)}")
            self._follow(table.next_on_miss)
        else:
            self._follow(table.next_base)

    def _choices(self, table: ir.TableSpec) -> list[tuple[int, ir.Action]]:
        if table.profile is None:
            return [(i, self.program.actions[a]) for i, a in enumerate(table.actions)]
        actions: dict[str, ir.Action] = {}
        for number in table.actions:
            action = self.program.actions[number]
            actions[action.name] = action
        callees = enumerate(ir.profile_actions(self.program, table.profile))
        return [(i, actions[name]) for i, name in callees if name in actions]


def _actions(node: ir.Node) -> tuple[int, ...]:
    if isinstance(node, ir.TableSpec):
        return node.actions
    if isinstance(node, ir.DirectCall):
        return (node.action,)
    return ()


def _arguments(action: ir.Action, args: Sequence[int]) -> str:
    number = shift = 0
    for param, value in zip(action.params, args, strict=True):
        number |= value << shift
        shift += 64 * words(param.width)
    return array(number, shift // 64)
