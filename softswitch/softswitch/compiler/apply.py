"""The application of one table: its key, the lookup, the entry's state and the chosen action."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.lookup import key_order
from softswitch.tables import has_state

from .actions import ActionWriter
from .calculations import select
from .stage import Stage
from .values import Int, mask, unsigned

Follow = Callable[[str | None], None]
"""A function that writes the code after a node, given the node's successor."""

Branch = Callable[[str | None, str | None, Follow], None]
"""A function that writes two successors, chosen by whether the table was hit."""


class TableWriter:
    """A writer of the application of one table: key, lookup, direct state and the chosen action."""

    def __init__(self, stage: Stage, table: ir.TableSpec, branch: Branch) -> None:
        self.table = table
        self.with_hit = table.by_hit and table.next_on_hit != table.next_on_miss
        self.stage = stage
        self.actions = ActionWriter(stage)
        self.branch = branch
        self.program = self.stage.program
        self.out = self.stage.out
        self.place = f"sw.tables[{table.name!r}]"
        self.state = has_state(table)

    def bind(self, role: str, suffix: str) -> str:
        return self.stage.bind(role, self.table.name, f"{self.place}.{suffix}")

    def write(self, follow: Follow) -> None:
        keys = ", ".join(f"{key.name} {key.match}" for key in self.table.keys)
        with self.out.explained(f"table {self.table.name}: {keys or 'no key'}", str(self.table.origin or "")):
            self._lookup()
        if self.table.profile is not None:
            self._through_profile()
        else:
            self._direct()
        self._run(follow)

    # ------------------------------------------------------------------------------------------------------- lookup

    def _keys(self) -> list[Int]:
        keys = []
        for i, key in enumerate(self.table.keys):
            expressions = self.stage.expressions(f"{self.table.place} key {i}")
            full = (1 << key.width) - 1
            value = mask(expressions.number(key.value), full if key.mask is None else key.mask)
            keys.append(self._of_valid(key.value, value))
        return keys

    def _of_valid(self, key: ir.Expr, value: Int) -> Int:
        """Return the key with zeros for the fields of invalid headers, even if something was written to them."""
        if not isinstance(key, ir.FieldRef) or self.program.headers[key.header].metadata:
            return value
        if (key.header, key.field) not in self.stage.usage.written:
            return value
        code = f"({value.code} if {self.stage.layout.headers[key.header].valid} else 0)"
        return Int(code, 0, value.high, True)

    def _packed(self, keys: Sequence[Int]) -> str:
        parts: list[str] = []
        shift = 0
        for i in reversed(key_order(self.table)):
            parts.append(f"{keys[i].wrapped} << {shift}" if shift else keys[i].wrapped)
            shift += self.table.keys[i].width
        return " | ".join(reversed(parts)) or "0"

    def _lookup(self) -> None:
        """Assign ``_e``: the result of the lookup, None for a miss."""
        table, out = self.table, self.out
        keys = self._keys()
        ranges = [key.code for key, spec in zip(keys, table.keys, strict=True) if spec.match == "range"]
        if not keys:
            out("_e = None")
        elif ranges:
            lookup = self.bind("lookup", "index.lookup")
            out(f"_e = {lookup}({', '.join([self._packed(keys), *ranges])})")
        elif table.match in ("ternary", "range") or any(key.match == "lpm" for key in table.keys):
            out(f"_e = {self.bind('lookup', 'index.lookup')}({self._packed(keys)})")
        else:
            get = self.bind("lookup", "index.results.get")
            key = keys[0].code if len(keys) == 1 else f"({', '.join(k.code for k in keys)})"
            out(f"_e = {get}({key})")
        self.stage.trace("applied", repr(table.name), _tuple([key.code for key in keys]), "_e")

    def _direct(self) -> None:
        out = self.out
        default = f"{self.bind('default', 'default_cell')}[0]"
        if not self.table.keys:
            out(f"_e = {default}")
            if self.with_hit:
                out("_hit = False")
            self._default_state()
            return
        if self.with_hit:
            out("_hit = _e is not None")
        with out.block("if _e is None"):
            out(f"_e = {default}")
            self._default_state()
        if self.state:
            with out.block("else"):
                self._entry_state("_e[-1]")

    def _through_profile(self) -> None:
        table, out = self.table, self.out
        if self.with_hit:
            out("_hit = _e is not None")
        with out.block("if _e is not None"):
            if self.state:
                self._entry_state("_e[1]")
            out("_e = _e[0]")
            assert table.profile is not None
            selector = self.program.profiles[table.profile].selector
            if selector is None:
                out("_e = _e[0][0]")
                self.stage.trace("chosen", repr(table.name), "_e")
                return
            with out.block("if len(_e) > 1"):
                value = select(self.stage, table.profile, selector, self.program.profiles[table.profile].place)
                out(f"_e = _e[{value.wrapped} % len(_e)][0]")
            with out.block("else"):
                # A group may be empty.
                out("_e = _e[0][0] if _e else None")
            self.stage.trace("chosen", repr(table.name), "_e")

    def _entry_state(self, entry: str) -> None:
        table, out = self.table, self.out
        out(f"_s = {entry}")
        if table.counters is not None:
            out("_s.packets += 1", "_s.bytes += size")
        if table.timeout:
            out("_s.hit_ns = now")
        if table.meter is not None:
            self._meter(table.meter)

    def _default_state(self) -> None:
        """Write the state of the default entry, which counts as other entries do. Its meter runs only if a controller
        has configured it, because a miss on simple_switch leaves the result field unchanged."""
        table, out = self.table, self.out
        if table.default is None or (table.counters is None and table.meter is None):
            return
        out("_s = _e[-1]")
        if table.counters is not None:
            out("_s.packets += 1", "_s.bytes += size")
        if table.meter is not None:
            with out.block("if _s.meter.config is not None"):
                self._meter(table.meter)

    def _meter(self, name: str) -> None:
        table = self.table
        meter = self.program.meters[name]
        amount = "size" if meter.unit == "bytes" else "1"
        if meter.target is None:
            raise ProgramError(table.place, f"direct meter '{name}' has no result field")
        colour = Int(f"_s.meter.execute({amount}, now)", 0, 2, True)
        self.stage.assign(meter.target.header, meter.target.field, colour, table.place)

    # ------------------------------------------------------------------------------------------------------ actions

    def _run(self, follow: Follow) -> None:
        table, out = self.table, self.out
        choices = self._choices()
        targets = {self._next(action) for _, action in choices}
        if table.default is None:
            targets.add(table.next_base)
        inside = not table.by_hit and len(targets) > 1
        optional = table.profile is not None or table.default is None
        if optional:
            with out.block("if _e is not None"):
                self._dispatch(choices, follow if inside else None)
            if inside:
                with out.block("else"):
                    follow(table.next_base)
        else:
            self._dispatch(choices, follow if inside else None)
        if table.by_hit:
            if self.with_hit:
                self.branch(table.next_on_hit, table.next_on_miss, follow)
            else:
                follow(table.next_on_hit)
        elif not inside:
            follow(next(iter(targets)) if targets else table.next_base)

    def _choices(self) -> list[tuple[int, ir.Action]]:
        """Return pairs of (position in the call's first element, action)."""
        if self.table.profile is None:
            return [(i, self.program.actions[a]) for i, a in enumerate(self.table.actions)]
        own = {self.program.actions[a].name: self.program.actions[a] for a in self.table.actions}
        names = profile_actions(self.program, self.table.profile)
        return [(i, own[name]) for i, name in enumerate(names) if name in own]

    def _next(self, action: ir.Action) -> str | None:
        return self.table.next_by_action.get(action.id, self.table.next_base)

    def _dispatch(self, choices: list[tuple[int, ir.Action]], follow: Follow | None) -> None:
        """Run the action of call ``_e``, followed by what ``follow`` writes if it is given."""
        out = self.out
        busy = [(i, a) for i, a in choices if a.body or follow is not None or self.stage.traced]
        if not busy:
            return
        if len(busy) == 1 and len(choices) == 1:
            self._action(busy[0][1], follow)
            return
        # Actions with a body come first, so that the common do-nothing action costs one comparison each.
        out("_a = _e[0]")
        for n, (i, action) in enumerate(busy):
            last = n == len(busy) - 1 and len(busy) == len(choices)
            head = "else" if last else f"{'elif' if n else 'if'} _a == {i}"
            with out.block(head):
                self._action(action, follow)

    def _action(self, action: ir.Action, follow: Follow | None) -> None:
        with self.out.explained(f"action {action.name}"):
            self.stage.trace("ran", repr(action.name), "_e")
            params = self._arguments(action)
            self.actions.write(action.body, params)
        if follow is not None:
            follow(self._next(action))

    def _arguments(self, action: ir.Action) -> tuple[Int, ...]:
        """Take the arguments that the action uses from call ``_e``."""
        used = _parameters_used(action)
        params = tuple(unsigned(self.stage.temporary(), p.width) for p in action.params)
        if len(used) > 1:
            state = ["_"] if self.state and self.table.profile is None else []
            names = ["_", *(p.code if i in used else "_" for i, p in enumerate(params)), *state]
            self.out(f"{', '.join(names)} = _e")
        else:
            for i in used:
                self.out(f"{params[i].code} = _e[{i + 1}]")
        return params


def _tuple(values: Sequence[str]) -> str:
    return f"({', '.join(values)}{',' if len(values) == 1 else ''})"


def profile_actions(program: ir.ProgramIR, profile: str) -> dict[str, tuple[ir.Param, ...]]:
    """Return the actions, by name, of the tables that use an action profile, with their parameters."""
    found: dict[str, tuple[ir.Param, ...]] = {}
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, ir.TableSpec) and node.profile == profile:
                for action in node.actions:
                    found.setdefault(program.actions[action].name, program.actions[action].params)
    return found


def _parameters_used(action: ir.Action) -> set[int]:
    found: set[int] = set()

    def walk(expr: ir.Expr | None) -> None:
        if isinstance(expr, ir.ParamRef):
            found.add(expr.index)
        elif isinstance(expr, ir.Op):
            for part in (expr.left, expr.right, expr.cond):
                walk(part)
        elif isinstance(expr, ir.Vector):
            for item in expr.items:
                walk(item)
        elif isinstance(expr, ir.RegisterRef):
            walk(expr.index)

    for primitive in action.body:
        for arg in primitive.args:
            walk(arg)
    return found
