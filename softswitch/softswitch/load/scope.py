"""Names and expressions of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from softswitch import ir
from softswitch.hashes import ALGORITHMS
from softswitch.ir import header_alternatives
from softswitch.numerals import brief

from .reader import Reader

_T = TypeVar("_T")

_UNARY = frozenset(
    {"not", "~", "valid", "valid_union", "d2b", "b2d", "last_stack_index", "size_stack"}
)
_ARITHMETIC = ("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^")
_COMPARING = ("==", "!=", "<", "<=", ">", ">=", "==h", "!=h", "==u", "!=u", "==b", "!=b")
_CASTS = ("two_comp_mod", "sat_cast", "usat_cast")
_SELECTING = ("dereference_header_stack", "dereference_stack", "dereference_union_stack")
_BINARY = frozenset((*_ARITHMETIC, *_COMPARING, *_CASTS, *_SELECTING, "and", "or"))
_OF_MEMBERS = ("access_field", "access_union_header")
"""Operators whose right operand is the index of a member."""


class Scope:
    """The objects that a program's names stand for, as far as it has been read.

    It also reads expressions.
    """

    def __init__(self, root: Reader) -> None:
        self.root = root
        self.headers: dict[str, ir.Header] = {}
        self.stacks: dict[str, ir.Stack] = {}
        self.unions: dict[str, ir.Union] = {}
        self.union_stacks: dict[str, ir.UnionStack] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.value_sets: dict[str, ir.ValueSetSpec] = {}
        self.actions: dict[int, ir.Action] = {}
        self.union_members: dict[str, tuple[str, ...]] = {}

    def named(
        self,
        key: str,
        kind: str,
        read: Callable[[str, Reader], _T],
    ) -> dict[str, _T]:
        """Read the objects of the list ``key``, each with a name of its own.

        Messages call them ``kind``.
        """
        read_items: dict[str, _T] = {}
        for item in self.root.members(key):
            name, reader = item.named(kind)
            if name in read_items:
                raise reader.fail("is defined twice")
            read_items[name] = read(name, reader)
        return read_items

    def only(
        self,
        key: str,
        kind: str,
        read: Callable[[str, Reader], _T],
    ) -> _T:
        """Read the objects as :meth:`named` does, where there must be exactly one."""
        items = self.named(key, kind, read)
        if len(items) != 1:
            raise self.root.fail(f"must have one {kind}, has {len(items)}")
        return next(iter(items.values()))

    def field(self, reader: Reader) -> ir.FieldRef:
        """Read a [header, field] pair."""
        ref = self.field_or_valid(reader)
        if isinstance(ref, ir.ValidRef):
            raise reader.fail("a validity bit cannot be used here")
        return ref

    def field_or_valid(self, reader: Reader) -> ir.FieldRef | ir.ValidRef:
        """Read a field as :meth:`field` does, or the validity of the header."""
        first, second = reader.pair()
        header = first.text()
        field = second.text()
        if header not in self.headers:
            raise reader.fail(f"there is no header '{header}'")
        if field == "$valid$":
            return ir.ValidRef(header)
        if self.headers[header].type.field(field) is None:
            raise reader.fail(f"header '{header}' has no field '{field}'")
        return ir.FieldRef(header, field)

    def width(self, ref: ir.Expr, reader: Reader) -> int:
        """Return the width of a field-like expression."""
        if isinstance(ref, ir.ValidRef):
            return 1
        if isinstance(ref, ir.Lookahead):
            return ref.width
        if isinstance(ref, ir.Op) and ref.op == "valid":
            return 1
        member: ir.Field | None = None
        if isinstance(ref, ir.Op) and ref.op == "access_field":
            member = self._accessed_field(ref)
        elif isinstance(ref, ir.FieldRef):
            member = self.headers[ref.header].type.field(ref.field)
        if member is None or member.varbit:
            raise reader.fail("must be a field of fixed width")
        return member.width

    def _accessed_field(self, access: ir.Op) -> ir.Field | None:
        """Return the field of a header that the packet selects."""
        if access.left is None:
            return None
        headers = header_alternatives(self, access.left)
        if not headers:
            return None
        fields = self.headers[headers[0]].type.fields
        assert isinstance(access.right, ir.Const)
        number = access.right.value
        return fields[number] if number < len(fields) else None

    def _field_names(self, header: str) -> list[str]:
        return [field.name for field in self.headers[header].type.fields]

    def existing(
        self,
        reader: Reader,
        names: Mapping[str, object],
        kind: str,
    ) -> str:
        """Read a name that must be one of ``names``."""
        name = reader.text()
        if name not in names:
            raise reader.fail(f"there is no {kind} '{name}'")
        return name

    def expr(self, reader: Reader, params: int | None = None) -> ir.Expr:
        """Read a type-value object.

        ``params`` is the number of parameters of the enclosing action, None outside one.
        """
        kind = reader.text_of("type")
        value = reader.get("value").with_place(reader.place)
        match kind:
            case "field":
                if isinstance(value.pair()[0].value, dict):
                    return self._field_of_element(value, params)
                return self.field_or_valid(value)
            case "hexstr":
                return ir.Const(value.hexadecimal())
            case "bool":
                return ir.BoolConst(value.truth())
            case "runtime_data" | "local":
                if params is None:
                    raise reader.fail("action data outside an action")
                index = value.integer()
                if index >= params:
                    raise reader.fail(
                        f"action has {params} parameters, index {brief(index)} is out of range"
                    )
                return ir.ParamRef(index)
            case "header":
                return ir.HeaderRef(self.existing(value, self.headers, "header"))
            case "header_stack":
                return ir.StackRef(self.existing(value, self.stacks, "header stack"))
            case "header_union":
                return ir.UnionRef(self.existing(value, self.unions, "header union"))
            case "header_union_stack":
                stack = self.existing(value, self.union_stacks, "header union stack")
                return ir.UnionStackRef(stack)
            case "stack_field":
                first, second = value.pair()
                stack = self.existing(first, self.stacks, "header stack")
                field = second.text()
                last = _last(ir.StackRef(stack))
                names = self._field_names(self.stacks[stack].headers[0])
                if field not in names and field == "last":
                    return last
                if field not in names:
                    raise value.fail(f"header stack '{stack}' has no field '{field}'")
                return ir.Op("access_field", last, ir.Const(names.index(field)))
            case "union_stack_field":
                return self.union_last_field(value)
            case "lookahead":
                raise reader.fail(
                    "bits ahead of the parser are not part of an expression; set a field to them"
                )
            case "register":
                register, index_expr = value.pair()
                name = self.existing(register, self.objects["register_array"], "register array")
                return ir.RegisterRef(name, self.expr(index_expr, params))
            case "calculation" | "counter_array" | "meter_array" | "register_array":
                spoken = kind.replace("_", " ")
                return ir.ObjectRef(kind, self.existing(value, self.objects[kind], spoken))
            case "string":
                return ir.Text(value.text())
            case "parameters_vector":
                # p4c writes an empty object if there are no values.
                if value.value == {}:
                    return ir.Vector(())
                items: list[ir.Expr] = []
                for item in value.elements():
                    items.append(self.expr(item.with_place(reader.place), params))
                return ir.Vector(tuple(items))
            case "expression":
                return self.operation(value, params)
            case _:
                raise reader.fail(f"operand of type '{kind}' is not supported")

    def _field_of_element(self, reader: Reader, params: int | None) -> ir.Expr:
        """Read a field, or the validity, of a stack element that the packet selects."""
        first, second = reader.pair()
        header = self.operation(first.with_place(reader.place), params)
        if second.text() == "$valid$":
            return ir.Op("valid", None, header)
        if not isinstance(header, ir.Op) or not isinstance(header.left, ir.StackRef):
            raise reader.fail("an element of a header stack is expected")
        stack = header.left.name
        names = self._field_names(self.stacks[stack].headers[0])
        field = second.text()
        if field not in names:
            raise reader.fail(f"header stack '{stack}' has no field '{field}'")
        return ir.Op("access_field", header, ir.Const(names.index(field)))

    def union_last_field(self, reader: Reader) -> ir.Op:
        parts = reader.elements()
        if len(parts) != 3:
            raise reader.fail("must be [union stack, member, field]")
        stack = self.existing(parts[0], self.union_stacks, "header union stack")
        member = self.member(stack, parts[1])
        union = self.unions[self.union_stacks[stack].unions[0]]
        header = union.headers[member]
        names = self._field_names(header)
        field = parts[2].text()
        if field not in names:
            raise reader.fail(f"header '{header}' has no field '{field}'")
        element = _last(ir.UnionStackRef(stack))
        last = ir.Op("access_union_header", element, ir.Const(member))
        return ir.Op("access_field", last, ir.Const(names.index(field)))

    def member(self, stack: str, reader: Reader) -> int:
        name = reader.text()
        members = self.union_members[stack]
        if name not in members:
            raise reader.fail(f"header union stack '{stack}' has no member '{name}'")
        return members.index(name)

    def operation(self, reader: Reader, params: int | None) -> ir.Expr:
        if reader.find("type") is not None:
            return self.expr(reader, params)
        op = reader.text_of("op")

        def operand(key: str) -> ir.Expr:
            return self.expr(reader.get(key).with_place(reader.place), params)

        if op in _UNARY:
            return ir.Op(op, None, operand("right"))
        if op in _OF_MEMBERS:
            member = reader.integer_of("right")
            return ir.Op(op, operand("left"), ir.Const(member))
        if op == "?":
            return ir.Op(op, operand("left"), operand("right"), operand("cond"))
        if op in _BINARY:
            if op in ("+", "-") and reader.find("left") is None:
                return ir.Op(op, ir.Const(0), operand("right"))
            left = operand("left")
            right = operand("right")
            if op[:2] in ("==", "!="):
                self._check_alike((left, right), reader)
            return ir.Op(op, left, right)
        raise reader.fail(f"operator '{op}' is not supported")

    def optional_expr(self, reader: Reader, key: str) -> ir.Expr | None:
        member = reader.find(key)
        return None if member is None else self.expr(member)

    def primitive(self, reader: Reader, params: int | None) -> ir.Primitive:
        op = reader.text_of("op")
        place = f"{reader.place} '{op}'"
        placed = reader.with_place(place)
        arguments = placed.numbered(reader.members("parameters"), "argument")
        args = tuple(self.expr(argument, params) for argument in arguments)
        if op.startswith("assign_") or op == "copy_header":
            self._check_alike(args, placed)
        return ir.Primitive(op, args, place, reader.origin())

    def _check_alike(self, exprs: tuple[ir.Expr, ...], reader: Reader) -> None:
        """Refuse headers, unions or stacks that are paired but have different fields.

        A pair is assigned or compared to each other.
        """
        shapes = set()
        for expr in exprs:
            for group in self._groups(expr):
                headers = [self.headers[name] for name in group]
                if any(header.metadata for header in headers):
                    return  # metadata is copied field by field
                shapes.add(tuple(header.type.fields for header in headers))
        if len(shapes) > 1:
            raise reader.fail(
                "headers are assigned or compared to each other but have different fields"
            )

    def _groups(self, expr: ir.Expr) -> list[tuple[str, ...]]:
        """Return all headers of each header, union or stack that an expression may denote."""
        if isinstance(expr, ir.StackRef):
            return [self.stacks[expr.name].headers]
        if isinstance(expr, ir.UnionStackRef):
            headers: list[str] = []
            for union in self.union_stacks[expr.name].unions:
                headers += self.unions[union].headers
            return [tuple(headers)]
        unions = ir.union_alternatives(self, expr)
        if unions:
            return [self.unions[union].headers for union in unions]
        return [(header,) for header in header_alternatives(self, expr)]

    def action_id(self, reader: Reader) -> ir.Action:
        number = reader.integer()
        if number not in self.actions:
            raise reader.fail(f"there is no action with id {brief(number)}")
        return self.actions[number]


def algorithm(reader: Reader) -> str:
    """Read the name of a calculation."""
    name = reader.text_of("algo")
    if name not in ALGORITHMS:
        supported = ", ".join(sorted(ALGORITHMS))
        raise reader.fail(f"algorithm '{name}' is not supported; supported are {supported}")
    return name


def _last(stack: ir.StackRef | ir.UnionStackRef) -> ir.Op:
    """Return the element of a stack that was extracted last."""
    index = ir.Op("last_stack_index", None, stack)
    return ir.Op("dereference_stack", stack, index)
