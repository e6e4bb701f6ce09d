"""The state that all parts of the code generator share while a function is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from softswitch import ir
from softswitch.errors import ProgramError

from .expressions import Expressions
from .layout import Held, Layout
from .source import Source
from .usage import Usage
from .values import Int, wrap

STRUCTURE_LIMIT = 60
"""The depth of nested blocks beyond which flat code is written instead. Python allows 100 levels of indentation."""


class Bindings:
    """Objects of the switch and constants that the generated functions use, each bound to a name once.

    A name is ``_ROLE_OBJECT``. No role contains an underscore, so two roles cannot be confused.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._by_value: dict[str, str] = {}
        self._names: set[str] = set()

    def __call__(self, role: str, subject: str, value: str) -> str:
        """Return the name bound to the Python expression ``value``, made of its role and the P4 name of its object."""
        if value not in self._by_value:
            within = subject.partition(".")[2] or subject
            name = base = f"_{role}_{re.sub(r'[^A-Za-z0-9]+', '_', within).strip('_')}"
            number = 1
            while name in self._names:
                number += 1
                name = f"{base}__{number}"
            self._names.add(name)
            self._by_value[value] = name
            self.lines.append(f"{name} = {value}")
        return self._by_value[value]


class Stage:
    """One generated function under construction.

    ``kind`` is ``ingress``, ``egress`` or ``clone`` (the parser alone). In a ``traced`` one, every step also calls a
    method of ``_trace``, a :class:`softswitch.trace.Recorder`.
    """

    def __init__(
        self, kind: str, layout: Layout, usage: Usage, bind: Bindings, depth: int, traced: bool = False
    ) -> None:
        self.kind = kind
        self.traced = traced
        self.program: ir.ProgramIR = layout.program
        self.layout = layout
        self.usage = usage
        self.bind = bind
        self.out = Source(depth)
        self.inlined: dict[tuple[str, str], Int] = {}
        """The fields whose values are in these expressions instead of in their variables."""
        self._temporaries = 0
        self.union_of = {h: u for u in self.program.unions.values() for h in u.headers}

    def temporary(self) -> str:
        self._temporaries += 1
        return f"_t{self._temporaries}"

    def expressions(
        self, place: str, params: tuple[Int, ...] = (), lookahead: Callable[[ir.Lookahead], Int] | None = None
    ) -> Expressions:
        return Expressions(self.layout, place, self.temporary, params, lookahead, self.register, self.inlined)

    def register(self, name: str) -> str:
        return self.bind("register", name, f"sw.registers[{name!r}].cells")

    def intrinsic(self, name: str) -> str | None:
        """Return the variable of a field that the switch knows, None if the program lacks it or never reads it."""
        ref = self.program.intrinsics.get(name)
        return None if ref is None else self.layout.metadata.get((ref.header, ref.field))

    def intrinsic_width(self, name: str) -> int:
        ref = self.program.intrinsics[name]
        field = self.program.headers[ref.header].type.field(ref.field)
        assert field is not None
        return field.width

    def trace(self, step: str, *arguments: str) -> None:
        """Report a step to the tracer, given the Python of its arguments. Write nothing if the stage is not traced."""
        if self.traced:
            self.out(f"_trace.{step}({', '.join(arguments)})")

    def drop(self, reason: str) -> None:
        """End the packet here and count it as dropped."""
        self.out(f"return _discard({reason!r})")

    # --------------------------------------------------------------------------------------------------- assignment

    def assign(self, header: str, field_name: str, value: Int, place: str) -> None:
        """Assign to a field, cut to its width."""
        variable = self.layout.variable(header, field_name)
        if variable is None:
            return
        field = self.program.headers[header].type.field(field_name)
        assert field is not None
        if field.varbit:
            raise ProgramError(place, f"variable-length field '{header}.{field_name}' cannot be assigned a number")
        wrapped = wrap(value, field.width, field.signed)
        code = wrapped.code
        if not self.program.headers[header].metadata:
            run = self.layout.held(header, field_name)
            assert run.held is not Held.SPLIT, f"{header}.{field_name} counts as never written"
            if run.held is Held.BYTES:
                code = _as_bytes(wrapped, run.size)
        if self.traced:
            self.out(f"_old = {variable}")
        if code != variable:
            self.out(f"{variable} = {code}")
        self.trace("wrote", repr(header), repr(field_name), "_old", variable)

    def assign_to(self, target: ir.Expr, value: Int, expressions: Expressions) -> None:
        """Assign to an expression that denotes a field, possibly of a stack element selected at run time."""
        targets, index = expressions.targets(target)
        if index is None:
            self.assign(*targets[0], value, expressions.place)
            return
        name, held = self.temporary(), self.temporary()
        self.out(f"{name} = {index.code}", f"{held} = {value.code}")
        for i, (header, field_name) in enumerate(targets):
            with self.out.block(f"{'elif' if i else 'if'} {name} == {i}"):
                self.assign(header, field_name, Int(held, value.low, value.high, True), expressions.place)

    # ------------------------------------------------------------------------------------------------------ headers

    def zero(self, header: str) -> None:
        """Give every variable of a header's content the value that it has in an invalid header."""
        self._set(self.layout.headers[header].values())

    def _set(self, assignments: Iterable[tuple[str, str]]) -> None:
        by_value: dict[str, list[str]] = {}
        for name, value in assignments:
            by_value.setdefault(value, []).append(name)
        for value, names in by_value.items():
            self.out(" = ".join([*names, value]))

    def invalidate(self, header: str) -> None:
        """Invalidate a header and zero its fields, because a table key reads zeros from an invalid header."""
        self.trace("invalid", repr(header), self.layout.headers[header].valid)
        self.out(f"{self.layout.headers[header].valid} = 0")
        self.zero(header)

    def validated(self, header: str) -> None:
        """Mark the other members of a header's union as invalid once the header has become valid."""
        union = self.union_of.get(header)
        if union is not None:
            for other in union.headers:
                if other != header:
                    self.invalidate(other)

    def copy(self, target: str, source: str) -> None:
        """Make ``target`` equal to ``source``, validity included."""
        if target == source:
            return
        to, of = self.layout.headers[target], self.layout.headers[source]
        pairs = [(to.valid, of.valid), *((x, y) for (x, _), (y, _) in zip(to.values(), of.values(), strict=True))]
        union = self.union_of.get(target)
        if union is not None and source not in union.headers and len(union.headers) > 1:
            with self.out.block(f"if {of.valid}"):
                self.validated(target)
        self.out(f"{', '.join(x for x, _ in pairs)} = {', '.join(y for _, y in pairs)}")
        self.trace("copied", repr(target), repr(source), of.valid)


def _as_bytes(value: Int, size: int) -> str:
    """Return the Python of ``size`` bytes that hold the unsigned ``value``."""
    if value.value is not None:
        return repr(value.value.to_bytes(size, "big"))
    return f'{value.wrapped}.to_bytes({size}, "big")'
