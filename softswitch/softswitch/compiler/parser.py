"""The parser: states as nested code, with offsets known at compile time where possible."""

from __future__ import annotations

from collections.abc import Mapping

from softswitch import ir
from softswitch.errors import ProgramError

from .actions import ActionWriter
from .layout import HeaderVars, Held, struct_format, unpack_lines
from .stage import STRUCTURE_LIMIT, Stage
from .values import Int, comparison, const, mask, unsigned

STATE_LIMIT = 1 << 12
"""The number of visits of states by transitions back after which parsing ends with ParserTimeout."""

ERRORS = {
    "PacketTooShort": 1,
    "NoMatch": 2,
    "StackOutOfBounds": 3,
    "HeaderTooShort": 4,
    "ParserTimeout": 5,
    "ParserInvalidArgument": 6,
}


class _Position:
    """The parser's offset in bytes: ``base`` (the variable ``off``, or nothing) plus ``known``."""

    __slots__ = ("known", "variable")

    def __init__(self, variable: bool, known: int) -> None:
        self.variable = variable
        self.known = known

    def at(self, more: int = 0) -> str:
        total = self.known + more
        if not self.variable:
            return str(total)
        return f"off + {total}" if total else "off"

    def copy(self) -> _Position:
        return _Position(self.variable, self.known)


class ParserWriter:
    """A writer of the parser as a loop, which is left when parsing ends; ``off`` is then where the payload starts."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.program = stage.program
        self.actions = ActionWriter(stage, in_parser=True)
        self.labels: dict[str, int] = {}
        self._pending: list[str] = []
        self._cyclic = is_cyclic(self.program.parser)

    def write(self) -> None:
        out, parser = self.stage.out, self.program.parser
        if parser.initial is None:
            out("off = 0")
            return
        counts = entries(parser)
        shared = [name for name, count in counts.items() if count > 1]
        self.labels = {name: i + 1 for i, name in enumerate(shared)}
        if not self._has_labels_or_depth(parser.initial):
            with out.block("while 1"):
                self._state(parser.initial, _Position(False, 0))
            return
        out("off = 0", f"_state = {self._label(parser.initial)}")
        if self._cyclic:
            out("_visits = 0")
        with out.block("while 1"):
            if self._cyclic:
                out("_visits += 1")
                with out.block(f"if _visits > {STATE_LIMIT}"):
                    self._error("ParserTimeout", _Position(True, 0))
            written: set[str] = set()
            while self._pending:
                name = self._pending.pop(0)
                if name in written:
                    continue
                with out.block(f"{'elif' if written else 'if'} _state == {self.labels[name]}"):
                    self._state(name, _Position(True, 0))
                written.add(name)

    def _has_labels_or_depth(self, initial: str) -> bool:
        """Return whether some state is entered from two places, or the states nest too deeply to be written in each
        other."""
        if self.labels:
            return True
        depth: dict[str, int] = {initial: 0}
        todo = [initial]
        while todo:
            name = todo.pop()
            for transition in self.program.parser.states[name].transitions:
                if transition.next_state is not None:
                    depth[transition.next_state] = depth[name] + 1
                    todo.append(transition.next_state)
        return max(depth.values()) > STRUCTURE_LIMIT

    def _label(self, name: str) -> int:
        self.labels.setdefault(name, len(self.labels) + 1)
        self._pending.append(name)
        return self.labels[name]

    # ------------------------------------------------------------------------------------------------------- states

    def _state(self, name: str, position: _Position) -> None:
        state = self.program.parser.states[name]
        self.stage.trace("state", repr(name))
        extracted = [_target(op) for op in state.ops if isinstance(op, ir.Extract)]
        with self.stage.out.explained(f"state {name}" + (f": extract {', '.join(extracted)}" if extracted else "")):
            for op in state.ops:
                if self._op(op, position):
                    return
            self._transitions(state, position)

    def _goto(self, target: str | None, position: _Position) -> None:
        out = self.stage.out
        if target is None:
            self._set_offset(position)
            out("break")
        elif target in self.labels or out.depth > STRUCTURE_LIMIT:
            self._set_offset(position)
            out(f"_state = {self._label(target)}", "continue")
        else:
            self._state(target, position)

    def _set_offset(self, position: _Position) -> None:
        if not position.variable:
            self.stage.out(f"off = {position.known}")
        elif position.known:
            self.stage.out(f"off += {position.known}")

    def _transitions(self, state: ir.ParserState, position: _Position) -> None:
        out = self.stage.out
        keys: list[str] = []
        if any(t.matches for t in state.transitions):
            expressions = self.stage.expressions(state.place, lookahead=lambda look: self._look(look, position))
            for part in state.key:
                value = mask(expressions.number(part.value), (1 << part.width) - 1)
                name = value.code
                if not name.isidentifier():
                    name = self.stage.temporary()
                    out(f"{name} = {value.code}")
                keys.append(name)
        first = True
        for transition in state.transitions:
            condition = self._condition(state, transition, keys)
            if condition is None:
                if first:
                    self._goto(transition.next_state, position.copy())
                else:
                    with out.block("else"):
                        self._goto(transition.next_state, position.copy())
                return
            with out.block(f"{'if' if first else 'elif'} {condition}"):
                self._goto(transition.next_state, position.copy())
            first = False
        # Parsing ends if no transition matches.
        self._goto(None, position)

    def _condition(self, state: ir.ParserState, transition: ir.Transition, keys: list[str]) -> str | None:
        """Return the condition of the transition, None if it is always taken."""
        full = [(1 << part.width) - 1 for part in state.key]
        if transition.value_set is not None:
            values = self.stage.bind("set", transition.value_set, f"sw.value_sets[{transition.value_set!r}]")
            masks = [m for _, m in transition.matches]
            if masks == full:
                return f"({', '.join(keys)},) in {values}"
            return f"{values}.masked(({', '.join(keys)},), ({', '.join(map(hex, masks))},))"
        if not transition.matches:
            return None
        tests = []
        for (value, bits), key, whole in zip(transition.matches, keys, full, strict=True):
            if bits & whole == whole:
                tests.append(comparison("==", unsigned(key, whole.bit_length()), const(value)).code)
            elif bits:
                tests.append(f"({key} & {bits:#x}) == {value:#x}")
        return " and ".join(tests) or None

    # --------------------------------------------------------------------------------------------------- operations

    def _op(self, op: ir.ParserOp, position: _Position) -> bool:
        """Write one operation, and return True if nothing can follow it."""
        stage = self.stage
        if isinstance(op, ir.Extract):
            self._extract(op, position)
        elif isinstance(op, ir.Assign):
            expressions = stage.expressions(op.place, lookahead=lambda look: self._look(look, position))
            stage.assign(op.target.header, op.target.field, expressions.number(op.value), op.place)
        elif isinstance(op, ir.Verify):
            expressions = stage.expressions(op.place)
            condition = expressions.truth(op.condition)
            error = expressions.number(op.error)
            if condition.value is False:
                self._error_code(error.code, position)
                return True
            if condition.value is None:
                with stage.out.block(f"if not {condition.wrapped}"):
                    self._error_code(error.code, position.copy())
        elif isinstance(op, ir.Advance):
            self._advance(op, position)
        else:
            self.actions.primitive(op, ())
        return False

    def _look(self, look: ir.Lookahead, position: _Position) -> Int:
        first, last = look.offset // 8, (look.offset + look.width + 7) // 8
        self._need(position, last)
        if last - first == 1:
            code = f"data[{position.at(first)}]"
        else:
            code = f'int.from_bytes(data[{position.at(first)}:{position.at(last)}], "big")'
        value = Int(code, 0, (1 << (8 * (last - first))) - 1, True)
        spare = last * 8 - look.offset - look.width
        if spare:
            value = Int(f"{value.code} >> {spare}", 0, (value.high or 0) >> spare)
        return mask(value, (1 << look.width) - 1)

    def _need(self, position: _Position, size: int) -> None:
        if size:
            with self.stage.out.block(f"if size < {position.at(size)}"):
                self._error("PacketTooShort", position.copy())

    def _error(self, name: str, position: _Position) -> None:
        self._error_code(str(self.program.errors.get(name, ERRORS[name])), position)

    def _error_code(self, code: str, position: _Position) -> None:
        self._set_offset(position)
        variable = self.stage.intrinsic("parser_error")
        if self.stage.kind == "ingress":
            self.stage.out(f"_parser_error({code})")
            if variable is not None:
                self.stage.out(f"{variable} = {code}")
        self.stage.out("break")

    def _advance(self, op: ir.Advance, position: _Position) -> None:
        out = self.stage.out
        expressions = self.stage.expressions(op.place, lookahead=lambda look: self._look(look, position))
        bits = expressions.number(op.bits)
        if bits.value is not None:
            if bits.value < 0 or bits.value % 8:
                raise ProgramError(op.place, f"advance by {bits.value} bits: must be a whole number of bytes")
            self._need(position, bits.value // 8)
            position.known += bits.value // 8
            return
        name = self.stage.temporary()
        out(f"{name} = {bits.code}")
        with out.block(f"if {name} & 7"):
            self._error("ParserInvalidArgument", position.copy())
        self._make_variable(position)
        with out.block(f"if size < off + ({name} >> 3)"):
            self._error("PacketTooShort", position.copy())
        out(f"off += {name} >> 3")

    def _make_variable(self, position: _Position) -> None:
        self._set_offset(position)
        position.variable = True
        position.known = 0

    def _extract(self, op: ir.Extract, position: _Position) -> None:
        out, layout = self.stage.out, self.stage.layout
        if isinstance(op.target, ir.HeaderRef):
            self._extract_header(op, op.target.name, position)
            return
        if isinstance(op.target, ir.StackRef):
            headers = self.program.stacks[op.target.name].headers
        else:
            unions = self.program.union_stacks[op.target.name].unions
            headers = tuple(self.program.unions[u].headers[op.member] for u in unions)
        index = layout.next_index[op.target.name]
        with out.block(f"if {index} >= {len(headers)}"):
            self._error("StackOutOfBounds", position.copy())
        after = position
        for i, header in enumerate(headers):
            with out.block(f"{'elif' if i else 'if'} {index} == {i}"):
                after = position.copy()
                self._extract_header(op, header, after)
        position.variable, position.known = after.variable, after.known
        out(f"{index} += 1")

    def _extract_header(self, op: ir.Extract, header: str, position: _Position) -> None:
        stage, out = self.stage, self.stage.out
        held = stage.layout.headers[header]
        if held.varbit is None:
            self._need(position, held.size)
            self._unpack(held, 0, len(held.runs), position.at())
            if not held.dirty:
                out(f"{held.offset} = {position.at()}")
            position.known += held.size
        else:
            self._extract_variable(op, held, position)
        out(f"{held.valid} = 1")
        stage.trace("extracted", repr(header), *held.variables())
        stage.validated(header)

    def _extract_variable(self, op: ir.Extract, held: HeaderVars, position: _Position) -> None:
        stage, out = self.stage, self.stage.out
        at = next(i for i, run in enumerate(held.runs) if run.held is Held.VARBIT)
        before = sum(run.size for run in held.runs[:at])
        length = stage.expressions(op.place).number(op.length) if op.length is not None else unsigned("0", 1)
        name = stage.temporary()
        out(f"{name} = {length.code}")
        with out.block(f"if {name} & 7 or {name} < 0"):
            self._error("ParserInvalidArgument", position.copy())
        out(f"{name} >>= 3")
        self._make_variable(position)
        with out.block(f"if size < off + {held.size} + {name}"):
            self._error("PacketTooShort", position.copy())
        if held.header.type.max_length_bytes is not None:
            with out.block(f"if {held.size} + {name} > {held.header.type.max_length_bytes}"):
                self._error("HeaderTooShort", position.copy())
        self._unpack(held, 0, at, "off")
        out(f"off += {before}", f"{held.names[at][0]} = data[off : off + {name}]", f"off += {name}")
        self._unpack(held, at + 1, len(held.runs), "off")
        if held.size > before:
            out(f"off += {held.size - before}")

    def _unpack(self, held: HeaderVars, first: int, last: int, offset: str) -> None:
        runs, names = held.runs[first:last], held.names[first:last]
        if any(run.held is not Held.NOT for run in runs):
            unpack = self.stage.bind("unpack", held.header.name, f"_Struct({struct_format(runs)!r}).unpack_from")
            self.stage.out(*unpack_lines(held, runs, names, f"{unpack}(data, {offset})"))


def _target(op: ir.Extract) -> str:
    """Return the target of an extraction in P4's notation."""
    return op.target.name if isinstance(op.target, ir.HeaderRef) else f"{op.target.name}.next"


def entries(parser: ir.Parser) -> Mapping[str, int]:
    """Return the number of transitions that lead to each reachable state; the start counts as one."""
    assert parser.initial is not None
    counts = {parser.initial: 1}
    seen: set[str] = set()
    todo = [parser.initial]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for transition in parser.states[name].transitions:
            if transition.next_state is not None:
                counts[transition.next_state] = counts.get(transition.next_state, 0) + 1
                todo.append(transition.next_state)
    return counts


def is_cyclic(parser: ir.Parser) -> bool:
    """Return whether some state can be reached from itself, by removing states without successors until none is
    left."""
    left = {
        name: {t.next_state for t in state.transitions if t.next_state is not None}
        for name, state in parser.states.items()
    }
    while True:
        done = {name for name, following in left.items() if not following & left.keys()}
        if not done:
            return bool(left)
        for name in done:
            del left[name]
