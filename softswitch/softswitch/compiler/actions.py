"""Actions: sequences of primitives with jumps among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from softswitch import ir
from softswitch.errors import ProgramError

from .primitives import PrimitiveWriter, check_arity
from .stage import STRUCTURE_LIMIT
from .values import Int, wrap

LOOP_LIMIT = 1 << 16
"""The number of jumps that an action may make. A packet that makes more is dropped, so that no program can stop the
switch."""


class ActionWriter(PrimitiveWriter):
    """A writer of action bodies into a stage. ``in_parser`` restricts it to what a parser state may call."""

    def write(self, body: tuple[ir.Primitive, ...], params: tuple[Int, ...]) -> None:
        """Write a whole body; ``params`` are the arguments."""
        jumps = [p for p in body if p.op in ("_jump", "_jump_if_zero")]
        if not jumps:
            self._straight(body, params)
            return
        for primitive in jumps:
            self._target(primitive, len(body))
        if self._structured(body, 0, len(body)) and self.stage.out.depth + len(jumps) < STRUCTURE_LIMIT:
            self._nested(body, 0, len(body), params)
        else:
            self._state_machine(body, params)

    # ----------------------------------------------------------------------------------------------- straight bodies

    def _straight(self, body: tuple[ir.Primitive, ...], params: tuple[Int, ...]) -> None:
        """Write primitives in order. A variable that p4c assigns only to use it at once is replaced by its value."""
        stage = self.stage
        for i, primitive in enumerate(body):
            key = self._temporary(primitive)
            if key is None or stage.traced or not self._used_next(body, i, key):
                self.primitive(primitive, params)
                if key is None:
                    stage.inlined.clear()
                continue
            field = stage.program.headers[key[0]].type.field(key[1])
            assert field is not None
            value = stage.expressions(primitive.place, params).number(primitive.args[1])
            stage.inlined[key] = wrap(value, field.width, field.signed)
        stage.inlined.clear()

    def _temporary(self, primitive: ir.Primitive) -> tuple[str, str] | None:
        """Return the metadata field that a primitive assigns, if the program reads it in one place only."""
        if primitive.op not in ("assign", "modify_field") or len(primitive.args) != 2:
            return None
        target, program = primitive.args[0], self.stage.program
        if not isinstance(target, ir.FieldRef) or not program.headers[target.header].metadata:
            return None
        key = (target.header, target.field)
        if target in program.intrinsics.values() or self.stage.usage.uses[key] != 1:
            return None
        field = program.headers[target.header].type.field(target.field)
        return None if field is None or field.varbit else key

    def _used_next(self, body: tuple[ir.Primitive, ...], at: int, key: tuple[str, str]) -> bool:
        """Return whether the next primitive reads ``key``, apart from others that assign temporaries."""
        sources = set(_read(body[at].args[1:]))
        for primitive in body[at + 1 :]:
            if key in _read(primitive.args):
                return True
            assigned = self._temporary(primitive)
            if assigned is None or assigned in sources or assigned == key:
                return False
        return False

    # ------------------------------------------------------------------------------------------------- control flow

    @staticmethod
    def _target(primitive: ir.Primitive, length: int) -> int:
        check_arity(primitive)
        offset = primitive.args[-1]
        if not isinstance(offset, ir.Const) or not 0 <= offset.value <= length:
            raise ProgramError(primitive.place, f"must jump to one of the {length} primitives of the action")
        return offset.value

    def _structured(self, body: tuple[ir.Primitive, ...], start: int, end: int) -> bool:
        """Return whether the primitives from ``start`` up to ``end`` are nested ifs without jumps out or back."""
        i = start
        while i < end:
            primitive = body[i]
            if primitive.op == "_jump":
                if self._target(primitive, len(body)) != i + 1:
                    return False
            elif primitive.op == "_jump_if_zero":
                branches = self._branches(body, i, end)
                if branches is None:
                    return False
                (first, last), (other, join) = branches
                if not (self._structured(body, first, last) and self._structured(body, other, join)):
                    return False
                i = join
                continue
            i += 1
        return True

    def _branches(
        self, body: tuple[ir.Primitive, ...], i: int, end: int
    ) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Return the two branches of the conditional jump at ``i`` as (first, end) each, if they are nested."""
        other = self._target(body[i], len(body))
        if not i < other <= end:
            return None
        if other - 1 > i and body[other - 1].op == "_jump":
            join = self._target(body[other - 1], len(body))
            if other <= join <= end:
                return (i + 1, other - 1), (other, join)
            return None
        return (i + 1, other), (other, other)

    def _nested(self, body: tuple[ir.Primitive, ...], start: int, end: int, params: tuple[Int, ...]) -> None:
        out = self.stage.out
        i = start
        while i < end:
            primitive = body[i]
            if primitive.op == "_jump":
                i += 1
                continue
            if primitive.op != "_jump_if_zero":
                self.primitive(primitive, params)
                i += 1
                continue
            branches = self._branches(body, i, end)
            assert branches is not None
            (first, last), (other, join) = branches
            condition = self.stage.expressions(primitive.place, params).truth(primitive.args[0])
            if first < last:
                with out.block(f"if {condition.code}"):
                    self._nested(body, first, last, params)
                if other < join:
                    with out.block("else"):
                        self._nested(body, other, join, params)
            elif other < join:
                with out.block(f"if not {condition.wrapped}"):
                    self._nested(body, other, join, params)
            i = join

    def _state_machine(self, body: tuple[ir.Primitive, ...], params: tuple[Int, ...]) -> None:
        """Write a body with arbitrary jumps: a loop over the stretches between them."""
        out = self.stage.out
        leaders = {0}
        for i, primitive in enumerate(body):
            if primitive.op in ("_jump", "_jump_if_zero"):
                leaders |= {i + 1, self._target(primitive, len(body))}
        starts = sorted(x for x in leaders if x < len(body))
        self.in_loop = True
        out("_pc = _jumps = 0")
        has_exit = any(p.op == "exit" for p in body)
        if has_exit:
            out("_exit = 0")
        with out.block(f"while _pc < {len(body)}"):
            out("_jumps += 1")
            with out.block(f"if _jumps > {LOOP_LIMIT}"):
                self.stage.drop("endless loop")
            for position, start in enumerate(starts):
                end = starts[position + 1] if position + 1 < len(starts) else len(body)
                with out.block(f"{'elif' if position else 'if'} _pc == {start}"):
                    self._stretch(body, start, end, params)
        self.in_loop = False
        if has_exit:
            with out.block("if _exit"):
                out("break")

    def _stretch(self, body: tuple[ir.Primitive, ...], start: int, end: int, params: tuple[Int, ...]) -> None:
        out = self.stage.out
        for i in range(start, end):
            primitive = body[i]
            if primitive.op == "_jump":
                out(f"_pc = {self._target(primitive, len(body))}")
                return
            if primitive.op == "_jump_if_zero":
                condition = self.stage.expressions(primitive.place, params).truth(primitive.args[0])
                out(f"_pc = {i + 1} if {condition.code} else {self._target(primitive, len(body))}")
                return
            self.primitive(primitive, params)
        out(f"_pc = {end}")


def _read(args: Iterable[ir.Expr]) -> Iterator[tuple[str, str]]:
    """Return the fields that are mentioned by name."""
    for arg in args:
        match arg:
            case ir.FieldRef(header, field):
                yield header, field
            case ir.Op(_, left, right, cond):
                yield from _read(part for part in (left, right, cond) if part is not None)
            case ir.Vector(items):
                yield from _read(items)
            case ir.RegisterRef(_, index):
                yield from _read((index,))
