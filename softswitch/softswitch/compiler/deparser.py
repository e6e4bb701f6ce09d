"""Checksums, and the deparser, which turns header variables back into bytes."""

from __future__ import annotations

from contextlib import ExitStack

from softswitch import ir

from .actions import ActionWriter
from .calculations import calculate
from .layout import HeaderVars, Held, pack_arguments, struct_format
from .stage import Stage
from .values import Bool, Int, mask


def verify_checksums(stage: Stage) -> None:
    """Set ``checksum_error`` if a checksum is wrong. Do nothing if the program never reads that field."""
    variable = stage.intrinsic("checksum_error")
    if variable is None:
        return
    for checksum in stage.program.checksums:
        if not checksum.verify:
            continue
        calculation = stage.program.calculations[checksum.calculation]
        header = checksum.target.header
        condition, known = _condition(stage, checksum)
        guards = [] if condition is None or condition.value is True else [condition.wrapped]
        if not stage.program.headers[header].metadata and header not in known:
            guards.insert(0, stage.layout.headers[header].valid)
            known |= {header}
        field = stage.program.headers[header].type.field(checksum.target.field)
        assert field is not None
        actual = mask(stage.expressions(checksum.place).number(checksum.target), (1 << field.width) - 1)
        # The condition is evaluated before the calculation, which may rely on the headers that it tests.
        wanted = calculate(stage, calculation, known)
        stage.trace("checksum", repr(header), repr(checksum.target.field), *_compared(guards, wanted, actual))
        with (
            stage.out.explained(f"verify {header}.{checksum.target.field}", str(checksum.origin or "")),
            stage.out.block(f"if {' and '.join([*guards, f'{wanted.wrapped} != {actual.wrapped}'])}"),
        ):
            stage.out(f"{variable} = 1")


def _compared(guards: list[str], wanted: Int, actual: Int) -> tuple[str, str]:
    """Return the Python of the expected checksum, None where it does not apply, and of the actual one."""
    return (f"({wanted.code}) if {' and '.join(guards)} else None" if guards else wanted.code), actual.code


def update_checksums(stage: Stage) -> None:
    for checksum in stage.program.checksums:
        if not checksum.update:
            continue
        calculation = stage.program.calculations[checksum.calculation]
        condition, known = _condition(stage, checksum)
        target = checksum.target
        with ExitStack() as context:
            context.enter_context(
                stage.out.explained(f"update {target.header}.{target.field}", str(checksum.origin or ""))
            )
            if condition is not None and condition.value is not True:
                context.enter_context(stage.out.block(f"if {condition.code}"))
            stage.assign(target.header, target.field, calculate(stage, calculation, known), checksum.place)


def _condition(stage: Stage, checksum: ir.ChecksumSpec) -> tuple[Bool | None, frozenset[str]]:
    """Return the condition and the headers that are valid where it holds."""
    if checksum.condition is None:
        return None, frozenset()
    condition = stage.expressions(checksum.place).truth(checksum.condition)
    return condition, frozenset(implied(checksum.condition))


def implied(condition: ir.Expr) -> set[str]:
    """Return the headers that are valid wherever the condition holds."""
    if isinstance(condition, ir.ValidRef):
        return {condition.header}
    if isinstance(condition, ir.Op):
        if condition.op == "and" and condition.left is not None:
            return implied(condition.left) | implied(condition.right)
        if condition.op in ("d2b", "b2d"):
            return implied(condition.right)
        if condition.op == "valid" and isinstance(condition.right, ir.HeaderRef):
            return {condition.right.name}
        if condition.op == "==" and condition.right == ir.Const(1) and condition.left is not None:
            return implied(condition.left)
    return set()


def emitted_length(stage: Stage) -> Int:
    """Return the length in bytes that the packet would have if it were deparsed now."""
    if not stage.usage.structural:
        return Int("size", 0, None, True)
    terms = ["size - off"]
    for name in stage.program.deparser.order:
        held = stage.layout.headers.get(name)
        if held is not None:
            length = str(held.size) if held.varbit is None else f"{held.size} + len({held.varbit})"
            terms.append(f"({length} if {held.valid} else 0)")
    return Int(" + ".join(terms), 0, None)


def deparse(stage: Stage) -> str:
    """Write the deparser's statements and return the expression for the packet's bytes."""
    actions = ActionWriter(stage)
    actions.write(stage.program.deparser.body, ())
    emitted = [stage.layout.headers[name] for name in stage.program.deparser.order if name in stage.layout.headers]
    emitted = [held for held in emitted if held.size or held.varbit is not None]
    pieces = []
    at = 0
    while at < len(emitted):
        pair = emitted[at : at + 2]
        apart = [f'({_serialised(stage, held)} if {held.valid} else b"")' for held in pair]
        if len(pair) == 2 and all(_lasting(stage, held) for held in pair):
            both = f"{pair[0].valid} and {pair[1].valid}"
            pieces.append(f"({_packed_together(stage, *pair)} if {both} else {' + '.join(apart)})")
            at += 2
        else:
            pieces.append(apart[0])
            at += 1
    return " + ".join([*pieces, "data[off:]"])


def _lasting(stage: Stage, held: HeaderVars) -> bool:
    """Return whether a header is packed from its variables and likely to be present, unlike most elements of a stack
    or union."""
    name = held.header.name
    alone = name not in stage.union_of and all(name not in stack.headers for stack in stage.program.stacks.values())
    return held.dirty and held.varbit is None and alone


def _packed_together(stage: Stage, first: HeaderVars, second: HeaderVars) -> str:
    """Pack two consecutive headers of fixed length by one call."""
    runs, names = first.runs + second.runs, first.names + second.names
    subject = f"{first.header.name}_{second.header.name}"
    pack = stage.bind("pack", subject, f"_Struct({struct_format(runs)!r}).pack")
    return f"{pack}({', '.join(pack_arguments(runs, names))})"


def _serialised(stage: Stage, held: HeaderVars) -> str:
    if not held.dirty:
        return f"data[{held.offset}:{held.offset} + {held.size}]"
    if held.varbit is None:
        return _packed(stage, held, 0, len(held.runs))
    at = next(i for i, run in enumerate(held.runs) if run.held is Held.VARBIT)
    parts = [_packed(stage, held, 0, at), held.varbit, _packed(stage, held, at + 1, len(held.runs))]
    return " + ".join(part for part in parts if part)


def _packed(stage: Stage, held: HeaderVars, first: int, last: int) -> str:
    runs, names = held.runs[first:last], held.names[first:last]
    if not runs:
        return ""
    if len(runs) == 1 and runs[0].held in (Held.RAW, Held.BYTES):
        return names[0][0]
    pack = stage.bind("pack", held.header.name, f"_Struct({struct_format(runs)!r}).pack")
    return f"{pack}({', '.join(pack_arguments(runs, names))})"
