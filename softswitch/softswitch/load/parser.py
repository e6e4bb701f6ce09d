"""The parser and the deparser."""

from __future__ import annotations

from softswitch import ir
from softswitch.errors import ProgramError

from .reader import Reader
from .scope import Scope


class ParserReader:
    """A reader of the parser and the deparser of a program whose headers and value sets are
    known.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def parser(self, name: str, reader: Reader) -> ir.Parser:
        initial = reader.optional_text("init_state")
        states: dict[str, ir.ParserState] = {}
        for item in reader.get("parse_states").elements():
            state_name = item.get("name").text()
            if state_name in states:
                raise item.fail(f"state '{state_name}' is defined twice")
            states[state_name] = self._state(
                state_name, item.at(f"parser '{name}' state '{state_name}'")
            )
        for state in states.values():
            for transition in state.transitions:
                if transition.next_state is not None and transition.next_state not in states:
                    raise ProgramError(state.place, f"there is no state '{transition.next_state}'")
        if initial is not None and initial not in states:
            raise reader.fail(f"there is no state '{initial}'")
        return ir.Parser(name, initial, states)

    def _state(self, name: str, reader: Reader) -> ir.ParserState:
        ops = tuple(
            self._parser_op(item.at(f"{reader.place} op {i}"))
            for i, item in enumerate(reader.members("parser_ops"))
        )
        key: list[ir.KeyPart] = []
        for item in reader.members("transition_key"):
            value = self.scope.expr(item)
            key.append(ir.KeyPart(value, self.scope.width(value, item)))
        transitions = tuple(self._transition(item, key) for item in reader.members("transitions"))
        return ir.ParserState(name, ops, tuple(key), transitions, reader.place)

    def _parser_op(self, reader: Reader) -> ir.ParserOp:
        op = reader.get("op").text()
        params = reader.get("parameters").elements()

        def expect(count: int) -> None:
            if len(params) != count:
                raise reader.fail(f"'{op}' takes {count} parameters, has {len(params)}")

        place = reader.place
        match op:
            case "extract":
                expect(1)
                return self._extract(params[0].at(place), None)
            case "extract_VL":
                expect(2)
                return self._extract(params[0].at(place), self.scope.expr(params[1].at(place)))
            case "set":
                expect(2)
                target = self.scope.expr(params[0].at(place))
                if not isinstance(target, ir.FieldRef):
                    raise reader.fail("'set' must assign to a field")
                return ir.Assign(target, self.scope.expr(params[1].at(place)), place)
            case "verify":
                expect(2)
                return ir.Verify(
                    self.scope.expr(params[0].at(place)),
                    self.scope.expr(params[1].at(place)),
                    place,
                )
            case "advance":
                expect(1)
                return ir.Advance(self.scope.expr(params[0].at(place)), place)
            case "shift":
                expect(1)
                return ir.Advance(ir.Const(8 * params[0].integer()), place)
            case "primitive":
                expect(1)
                return self.scope.primitive(params[0].at(place), None)
            case _:
                raise reader.fail(f"parser operation '{op}' is not supported")

    def _extract(self, reader: Reader, length: ir.Expr | None) -> ir.Extract:
        kind = reader.get("type").text()
        value = reader.get("value").at(reader.place)
        member = 0
        target: ir.HeaderRef | ir.StackRef | ir.UnionStackRef
        match kind:
            case "regular":
                target = ir.HeaderRef(self.scope.known(value, self.scope.headers, "header"))
                sample = target.name
            case "stack":
                target = ir.StackRef(self.scope.known(value, self.scope.stacks, "header stack"))
                sample = self.scope.stacks[target.name].headers[0]
            case "union_stack":
                first, second = value.pair()
                target = ir.UnionStackRef(
                    self.scope.known(first, self.scope.union_stacks, "header union stack")
                )
                member = self.scope.member(target.name, second)
                sample = self.scope.unions[self.scope.union_stacks[target.name].unions[0]].headers[
                    member
                ]
            case _:
                raise reader.fail(f"cannot extract to '{kind}'")
        header = self.scope.headers[sample]
        if header.metadata:
            raise reader.fail(f"cannot extract to metadata '{sample}'")
        if length is not None and not any(f.varbit for f in header.type.fields):
            raise reader.fail(f"header '{sample}' has no variable-length field")
        return ir.Extract(target, member, length, reader.place)

    def _transition(self, reader: Reader, key: list[ir.KeyPart]) -> ir.Transition:
        kind = reader.optional_text("type") or "hexstr"
        next_state = reader.optional_text("next_state")
        # Old programs have no type, and name the default by its value, as BMv2 still allows.
        if kind == "default" or (kind == "hexstr" and reader.get("value").value == "default"):
            return ir.Transition((), None, next_state)
        full = [(1 << part.width) - 1 for part in key]
        found = reader.find("mask")
        if found is None:
            masks = full
        else:
            masks = _unpadded(found.hexadecimal(), key, found)
        if kind == "parse_vset":
            name = self.scope.known(reader.get("value"), self.scope.value_sets, "value set")
            if self.scope.value_sets[name].width != sum(part.width for part in key):
                raise reader.fail(f"value set '{name}' does not have the width of the select's key")
            return ir.Transition(tuple((0, mask) for mask in masks), name, next_state)
        if kind != "hexstr":
            raise reader.fail(f"transition of type '{kind}' is not supported")
        if not key:
            raise reader.fail("a value is compared but the state has no key")
        values = _unpadded(reader.get("value").hexadecimal(), key, reader)
        return ir.Transition(
            tuple((v & m, m) for v, m in zip(values, masks, strict=True)), None, next_state
        )

    def deparser(self, name: str, reader: Reader) -> ir.Deparser:
        order = tuple(
            self.scope.known(item, self.scope.headers, "header")
            for item in reader.get("order").elements()
        )
        for header in order:
            if self.scope.headers[header].metadata:
                raise reader.fail(f"'{header}' is metadata, a header is expected")
        body = tuple(
            self.scope.primitive(p.at(f"deparser '{name}' primitive {i}"), None)
            for i, p in enumerate(reader.members("primitives"))
        )
        return ir.Deparser(order, body)


def _unpadded(value: int, key: list[ir.KeyPart], reader: Reader) -> list[int]:
    """Split a concatenation of byte-padded components."""
    parts: list[int] = []
    for part in reversed(key):
        size = (part.width + 7) // 8 * 8
        parts.append(value & ((1 << size) - 1))
        value >>= size
    if value:
        raise reader.fail("value is wider than the select's key")
    return parts[::-1]
