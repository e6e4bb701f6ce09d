"""The parser and the deparser."""

from __future__ import annotations

from softswitch import ir
from softswitch.errors import ProgramError

from .earlier import variable_length
from .reader import Reader
from .scope import Scope


class ParserReader:
    """A reader of a parser and a deparser, for a scope that has headers and value sets."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def parser(self, name: str, reader: Reader) -> ir.Parser:
        initial = reader.optional_text("init_state")
        states: dict[str, ir.ParserState] = {}
        for item in reader.elements_of("parse_states"):
            state_name = item.text_of("name")
            if state_name in states:
                raise item.fail(f"state '{state_name}' is defined twice")
            placed = item.with_place(f"parser '{name}' state '{state_name}'")
            states[state_name] = self._state(state_name, placed)
        # A state may lead to one that is read later.
        for state in states.values():
            for transition in state.transitions:
                following = transition.next_state
                if following is not None and following not in states:
                    raise ProgramError(state.place, f"there is no state '{following}'")
        if initial is not None and initial not in states:
            raise reader.fail(f"there is no state '{initial}'")
        return ir.Parser(name, initial, states)

    def _state(self, name: str, reader: Reader) -> ir.ParserState:
        items = reader.numbered(reader.members("parser_ops"), "op")
        ops = tuple(map(self._parser_op, items))
        key: list[ir.KeyPart] = []
        for item in reader.members("transition_key"):
            value = self._value(item)
            key.append(ir.KeyPart(value, self.scope.width(value, item)))
        transitions = [self._transition(item, key) for item in reader.members("transitions")]
        return ir.ParserState(name, ops, tuple(key), tuple(transitions), reader.place)

    def _parser_op(self, reader: Reader) -> ir.ParserOp:
        op = reader.text_of("op")
        params = reader.elements_of("parameters")

        def expect(count: int) -> None:
            if len(params) != count:
                raise reader.fail(f"'{op}' takes {count} parameters, has {len(params)}")

        place = reader.place

        def operand(number: int) -> ir.Expr:
            return self.scope.expr(params[number].with_place(place))

        match op:
            case "extract":
                expect(1)
                return self._extract(params[0].with_place(place), None)
            case "extract_VL":
                expect(2)
                return self._extract(params[0].with_place(place), operand(1))
            case "set":
                expect(2)
                target = operand(0)
                if not isinstance(target, ir.FieldRef):
                    raise reader.fail("'set' must assign to a field")
                return ir.Assign(target, self._value(params[1].with_place(place)), place)
            case "verify":
                expect(2)
                # Earlier programs give the code itself.
                if isinstance(params[1].value, int):
                    return ir.Verify(operand(0), ir.Const(params[1].integer()), place)
                return ir.Verify(operand(0), operand(1), place)
            case "advance":
                expect(1)
                return ir.Advance(operand(0), place)
            case "shift":
                expect(1)
                return ir.Advance(ir.Const(8 * params[0].integer()), place)
            case "primitive":
                expect(1)
                return self.scope.primitive(params[0].with_place(place), None)
            case _:
                raise reader.fail(f"parser operation '{op}' is not supported")

    def _value(self, reader: Reader) -> ir.Expr:
        """Read a value that may be bits ahead of the parser; BMv2 has none inside an expression."""
        if reader.text_of("type") != "lookahead":
            return self.scope.expr(reader)
        offset, width = reader.get("value").with_place(reader.place).pair()
        return ir.Lookahead(offset.integer(), width.integer(1, 1 << 20))

    def _extract(self, reader: Reader, length: ir.Expr | None) -> ir.Extract:
        scope = self.scope
        kind = reader.text_of("type")
        value = reader.get("value").with_place(reader.place)
        member = 0
        target: ir.HeaderRef | ir.StackRef | ir.UnionStackRef
        match kind:
            case "regular":
                target = ir.HeaderRef(scope.existing(value, scope.headers, "header"))
                sample = target.name
            case "stack":
                target = ir.StackRef(scope.existing(value, scope.stacks, "header stack"))
                sample = scope.stacks[target.name].headers[0]
            case "union_stack":
                first, second = value.pair()
                stack = scope.existing(first, scope.union_stacks, "header union stack")
                target = ir.UnionStackRef(stack)
                member = scope.member(stack, second)
                union = scope.unions[scope.union_stacks[stack].unions[0]]
                sample = union.headers[member]
            case _:
                raise reader.fail(f"cannot extract to '{kind}'")
        header = scope.headers[sample]
        if header.metadata:
            raise reader.fail(f"cannot extract to metadata '{sample}'")
        is_variable = any(field.varbit for field in header.type.fields)
        if length is not None and not is_variable:
            raise reader.fail(f"header '{sample}' has no variable-length field")
        needs_fixed = length is None and is_variable
        if needs_fixed:
            length = variable_length(scope, header.type, reader)
        return ir.Extract(target, member, length, reader.place, needs_fixed)

    def _transition(self, reader: Reader, key: list[ir.KeyPart]) -> ir.Transition:
        kind = reader.optional_text("type") or "hexstr"
        next_state = reader.optional_text("next_state")
        # Old programs have no type, and name the default by its value, as BMv2 still allows.
        is_default = kind == "default"
        if kind == "hexstr" and reader.get("value").value == "default":
            is_default = True
        if is_default:
            return ir.Transition((), None, next_state)
        full = [(1 << part.width) - 1 for part in key]
        mask_reader = reader.find("mask")
        if mask_reader is None:
            masks = full
        else:
            masks = _unpadded(mask_reader.hexadecimal(), key, mask_reader)
        if kind == "parse_vset":
            name = self.scope.existing(reader.get("value"), self.scope.value_sets, "value set")
            width = sum(part.width for part in key)
            if self.scope.value_sets[name].width != width:
                raise reader.fail(f"value set '{name}' does not have the width of the select's key")
            members = tuple((0, mask) for mask in masks)
            return ir.Transition(members, name, next_state)
        if kind != "hexstr":
            raise reader.fail(f"transition of type '{kind}' is not supported")
        if not key:
            raise reader.fail("a value is compared but the state has no key")
        values = _unpadded(reader.hexadecimal_of("value"), key, reader)
        matches = [(value & mask, mask) for value, mask in zip(values, masks, strict=True)]
        return ir.Transition(tuple(matches), None, next_state)

    def deparser(self, name: str, reader: Reader) -> ir.Deparser:
        headers = self.scope.headers
        items = reader.elements_of("order")
        order = [self.scope.existing(item, headers, "header") for item in items]
        for header in order:
            if headers[header].metadata:
                raise reader.fail(f"'{header}' is metadata, a header is expected")
        primitives = reader.numbered(reader.members("primitives"), "primitive")
        body = tuple(self.scope.primitive(primitive, None) for primitive in primitives)
        return ir.Deparser(tuple(order), body)


def _unpadded(
    value: int,
    key: list[ir.KeyPart],
    reader: Reader,
) -> list[int]:
    """Split a concatenation of byte-padded components."""
    parts: list[int] = []
    for part in reversed(key):
        size = (part.width + 7) // 8 * 8
        mask = (1 << size) - 1
        parts.append(value & mask)
        value >>= size
    if value:
        raise reader.fail("value is wider than the select's key")
    return parts[::-1]
