"""The instructions of an action (VLIW): each computes one container of the next stage from those of
this stage.

The names and operands are those of `instruction.cpp` in `bf-asm`. A container's bits that an
instruction does not name keep their value. Arithmetic is modulo the container's width, or saturates
where the name says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Name,
    Number,
    Term,
    bounds,
    number,
    refusal,
)
from echelon_tofino_model.emulator.data import ActionData, Pack, name_of
from echelon_tofino_model.emulator.hashing import HashUnit
from echelon_tofino_model.emulator.phv import FieldNames, Slice
from echelon_tofino_model.emulator.run import PacketRun

Read = Callable[[PacketRun], int]
Do = Callable[[PacketRun], None]
Compute = Callable[[int, int, int], int]
"""A function of two operands and the container's width in bits."""


def _signed(value: int, size: int) -> int:
    return value - (1 << size) if value >> size - 1 & 1 else value


def _clamped(value: int, size: int) -> int:
    top = (1 << size - 1) - 1
    return max(-top - 1, min(top, value))


_ALU: Mapping[str, Compute] = {
    "add": lambda a, b, _size: a + b,
    "sub": lambda a, b, _size: a - b,
    "saddu": lambda a, b, size: min(a + b, (1 << size) - 1),
    "sadds": lambda a, b, size: _clamped(_signed(a, size) + _signed(b, size), size),
    "ssubu": lambda a, b, _size: max(a - b, 0),
    "ssubs": lambda a, b, size: _clamped(_signed(a, size) - _signed(b, size), size),
    "minu": lambda a, b, _size: min(a, b),
    "mins": lambda a, b, size: min(_signed(a, size), _signed(b, size)),
    "maxu": lambda a, b, _size: max(a, b),
    "maxs": lambda a, b, size: max(_signed(a, size), _signed(b, size)),
    "setz": lambda _a, _b, _size: 0,
    "sethi": lambda _a, _b, _size: -1,
    "nor": lambda a, b, _size: ~(a | b),
    "andca": lambda a, b, _size: ~a & b,
    "andcb": lambda a, b, _size: a & ~b,
    "xor": lambda a, b, _size: a ^ b,
    "nand": lambda a, b, _size: ~(a & b),
    "and": lambda a, b, _size: a & b,
    "xnor": lambda a, b, _size: ~(a ^ b),
    "orca": lambda a, b, _size: ~a | b,
    "orcb": lambda a, b, _size: a | ~b,
    "or": lambda a, b, _size: a | b,
}
_UNARY: Mapping[str, Callable[[int], int]] = {
    "not": lambda a: ~a,
    "nota": lambda a: ~a,
    "notb": lambda a: ~a,
    "alu_a": lambda a: a,
    "alu_b": lambda a: a,
}
_SHIFTS: Mapping[str, Compute] = {
    "shl": lambda a, count, _size: a << count,
    "shru": lambda a, count, _size: a >> count,
    "shrs": lambda a, count, size: _signed(a, size) >> count,
}
MNEMONICS = frozenset(
    {
        *_ALU,
        *_UNARY,
        *_SHIFTS,
        "set",
        "load-const",
        "deposit-field",
        "deposit_field",
        "bitmasked-set",
        "noop",
    }
    | {"funnel-shift", "invalidate", "byte-rotate-merge", "byte_rotate_merge"}
)


@dataclass(frozen=True, slots=True)
class Operand:
    """A source: what its container or slot holds, and the bits ``low`` to ``high`` of it that are
    named.

    ``high`` is None where the whole is meant. ``value`` is the number of a constant.
    """

    read: Read
    low: int
    high: int | None
    is_container: bool = False
    value: int | None = None

    def named(self) -> Read:
        """Return a function for the named bits at bit 0."""
        read = self.read
        low = self.low
        if self.high is None:
            return (lambda run: read(run) >> low) if low else read
        mask = (1 << self.high - low + 1) - 1
        return lambda run: read(run) >> low & mask


class Compiler:
    """The compiler of one action's instructions.

    Operands of the entry are gathered in ``packs``.
    """

    def __init__(
        self,
        names: FieldNames,
        stage: int,
        data: ActionData,
        units: Mapping[int, HashUnit],
        outputs: frozenset[str],
    ) -> None:
        self._names = names
        self._stage = stage
        self._data = data
        self._units = units
        self._outputs = outputs
        self.packs: list[Pack] = []
        self._packed: dict[str, int] = {}

    def compile(self, instruction: Invocation) -> Do:
        """Return a function that executes an instruction.

        Raises :class:`ProgramError` if it is not supported.
        """
        try:
            return self._compiled(instruction)
        except IndexError:
            raise refusal(instruction.line, f"'{instruction.name}' has too few operands") from None

    def _compiled(self, instruction: Invocation) -> Do:
        name = instruction.name
        args = instruction.args
        line = instruction.line
        target = self._names.slice(args[0], self._stage + 1)
        match name:
            case "set" | "load-const":
                return self._set(target, self._operand(args[1], target.size), line)
            case "deposit-field" | "deposit_field":
                if len(args) == 3:
                    ground = self._operand(args[2], target.size)
                else:
                    ground = None
                return _deposit(target, self._operand(args[1], target.size), ground)
            case "bitmasked-set":
                return self._bitmasked(target, args, line)
            case "byte-rotate-merge" | "byte_rotate_merge":
                return self._merged(target, args)
            case "noop":
                return lambda _run: None
            case "invalidate":
                return _invalidate(target)
            case "funnel-shift":
                high, low = (self._operand(node, target.size).named() for node in args[1:3])
                count = number(args[3])
                size = target.size
                return _whole(target, lambda run: (high(run) << size | low(run)) >> count)
        if name in _SHIFTS:
            compute = _SHIFTS[name]
            size = target.size
            count = number(args[2])
            read = self._operand(args[1], target.size).named()
            return _write(target, lambda run: compute(read(run), count, size))
        if name in _UNARY:
            change = _UNARY[name]
            only = self._operand(args[-1], target.size).named()
            return _write(target, lambda run: change(only(run)))
        if name in _ALU:
            return self._alu(_ALU[name], target, args)
        raise refusal(line, f"the instruction '{name}' is not supported")

    def _alu(self, compute: Compute, target: Slice, args: tuple[Term, ...]) -> Do:
        size = target.size
        mask = (1 << size) - 1
        if len(args) == 2:
            first = args[0]
            second = args[1]
        else:
            first = args[1]
            second = args[2]
        one = self._operand(first, size)
        two = self._operand(second, size)
        if target.is_whole:
            a = self._aligned(one, mask)
            b = self._aligned(two, mask)
            return _whole(target, lambda run: compute(a(run), b(run), size))
        # Only logic reaches a slice, where both operands name the same bits of their containers.
        c = one.named()
        d = two.named()
        width = target.width
        part = target.mask
        return _write(target, lambda run: compute(c(run) & part, d(run) & part, width))

    @staticmethod
    def _aligned(operand: Operand, mask: int) -> Read:
        read = operand.named()
        return lambda run: read(run) & mask

    def _set(self, target: Slice, source: Operand, line: int) -> Do:
        if source.value is not None:
            value = source.value
            return _write(target, lambda _run: value)
        if target.is_whole and source.is_container and source.low:
            raise refusal(
                line, "a whole container can only be set from the low bits of another one"
            )
        if target.is_whole:
            return _whole(target, source.named())
        return _deposit(target, source, None)

    def _bitmasked(self, target: Slice, args: tuple[Term, ...], line: int) -> Do:
        mask_slot = self._data.mask_slot(name_of(args[1]), target.size)
        if mask_slot is None:
            raise refusal(line, "the mask of a bitmasked-set is not among the action's data")
        ones = self._operand(args[1], target.size).read
        beside = self._entry(mask_slot[0], line)
        shift = mask_slot[1]
        if len(args) > 2:
            ground = self._operand(args[-1], target.size).read
        else:
            ground = self._container(target)

        def merged(run: PacketRun) -> int:
            mask = beside(run) >> shift
            return ones(run) & mask | ground(run) & ~mask

        return _whole(target, merged)

    def _merged(self, target: Slice, args: tuple[Term, ...]) -> Do:
        """Return an instruction that takes each byte from one of two sources, which are rotated to
        the right before.
        """
        size = target.size
        bits = number(args[5])
        mask = sum(0xFF << 8 * byte for byte in range(size // 8) if bits >> byte & 1)
        full = (1 << size) - 1
        one, two = (self._operand(node, size).read for node in args[1:3])
        turn_one, turn_two = (8 * number(node) % size for node in args[3:5])

        def turned(value: int, turn: int) -> int:
            if turn:
                return (value >> turn | value << size - turn) & full
            return value & full

        return _whole(
            target,
            lambda run: turned(one(run), turn_one) & mask | turned(two(run), turn_two) & ~mask,
        )

    def _container(self, place: Slice) -> Read:
        index = place.container
        return lambda run: run.before[index]

    def _entry(self, name: str, line: int) -> Read:
        """Return a function for a value that comes with the table entry."""
        if name not in self._packed:
            self._packed[name] = len(self.packs)
            self.packs.append(self._data.pack(name, line))
        index = self._packed[name]
        return lambda run: run.data[index]

    def entry_index(self, name: str, line: int) -> Read:
        """Return a function for a parameter that addresses a counter, meter or register."""
        return self._entry(name, line)

    def _operand(self, node: Term, size: int) -> Operand:
        """Return a source for a container of ``size`` bits."""
        if isinstance(node, Number):
            value = node.value
            return Operand(lambda _run: value, 0, None, value=value)
        name = name_of(node)
        if name == "hash_dist" and isinstance(node, Invocation):
            return self._hashed(node)
        if name == "rng" and isinstance(node, Invocation):
            return Operand(lambda run: run.random.getrandbits(32), *bounds(node.args[-1]))
        low = 0
        high = None
        if isinstance(node, Invocation):
            spans = [arg for arg in node.args if not isinstance(arg, Name | Invocation)]
            spans += [span for arg in node.args if isinstance(arg, Invocation) for span in arg.args]
            if spans:
                low, high = bounds(spans[0])
        if self._data.knows(name):
            whole = self._entry(name, node.line)
            slot = self._data.slot(name)
            at = 0 if slot is None else slot[1] % size
            if at == 0:
                return Operand(whole, low, high)
            return Operand(
                lambda run: whole(run) << at, low + at, None if high is None else high + at
            )
        if name in self._outputs:
            return Operand(lambda run: run.outputs.get(name, 0), low, high)
        place = self._names.find(node, self._stage)
        if place is None:
            raise refusal(node.line, f"the operand '{name}' is not known in stage {self._stage}")
        return Operand(self._container(place), place.low, place.high, is_container=True)

    def _hashed(self, node: Invocation) -> Operand:
        """Return the operand of ``hash_dist(1, 0..15)`` or, with two units, ``hash_dist(0, 1,
        0..31)``.
        """
        units = [arg.value for arg in node.args[:-1] if isinstance(arg, Number)]
        for unit in units:
            if unit not in self._units:
                raise refusal(node.line, f"there is no hash distribution unit {unit}")
        reads = [self._units[unit].value for unit in units]
        low, high = bounds(node.args[-1])
        if len(reads) == 1:
            only = reads[0]
            return Operand(lambda run: only(run.before), low, high)
        first, second = reads
        return Operand(lambda run: first(run.before) | second(run.before) << 16, low, high)


def _whole(target: Slice, read: Read) -> Do:
    container = target.container
    full = (1 << target.size) - 1
    bit = 1 << container

    def run_whole(run: PacketRun) -> None:
        run.after[container] = read(run) & full
        run.valid |= bit

    return run_whole


def _write(target: Slice, read: Read) -> Do:
    """Return an instruction that writes a slice and leaves the rest of the container as it is."""
    if target.is_whole:
        return _whole(target, read)
    container = target.container
    low = target.low
    part = target.mask
    mask = part << low
    bit = 1 << container

    def run_slice(run: PacketRun) -> None:
        run.after[container] = run.after[container] & ~mask | (read(run) & part) << low
        run.valid |= bit

    return run_slice


def _deposit(target: Slice, source: Operand, ground: Operand | None) -> Do:
    """Return an instruction that rotates the source until its lowest named bit meets the target's.

    The bits beside the target come from ``ground``, or stay.
    """
    container = target.container
    size = target.size
    mask = target.mask << target.low
    full = (1 << target.size) - 1
    bit = 1 << target.container
    turn = (target.low - source.low) % size
    read = source.read
    base = None if ground is None else ground.read

    def run_deposit(run: PacketRun) -> None:
        value = read(run) & full
        value = (value << turn | value >> size - turn) & mask
        beside = run.after[container] if base is None else base(run)
        run.after[container] = beside & full & ~mask | value
        run.valid |= bit

    return run_deposit


def _invalidate(target: Slice) -> Do:
    container = target.container
    bit = ~(1 << target.container)

    def run_invalidate(run: PacketRun) -> None:
        run.after[container] = 0
        run.valid &= bit

    return run_invalidate
