"""The instructions of an action (VLIW).

Each computes one container of the next stage from those of this stage.

The names and operands are those of `instruction.cpp` in `bf-asm`. A container's bits that an
instruction does not name keep their value. Arithmetic is modulo the container's width, or saturates
where the name says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from echelon_tofino_model.emulator.alu import OPERATIONS, UNARY, Operation, signed
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


def _set_zeros(
    _a: int,
    _b: int,
    _width: int,
) -> int:
    return 0


def _set_ones(
    _a: int,
    _b: int,
    _width: int,
) -> int:
    return -1


def _shift_left(
    value: int,
    count: int,
    _width: int,
) -> int:
    return value << count


def _shift_right(
    value: int,
    count: int,
    _width: int,
) -> int:
    return value >> count


def _shift_right_signed(
    value: int,
    count: int,
    width: int,
) -> int:
    return signed(value, width) >> count


_ALU: Mapping[str, Operation] = {**OPERATIONS, "setz": _set_zeros, "sethi": _set_ones}
_SHIFTS: Mapping[str, Operation] = {
    "shl": _shift_left,
    "shru": _shift_right,
    "shrs": _shift_right_signed,
}
_MOVES = (
    "set",
    "load-const",
    "deposit-field",
    "deposit_field",
    "bitmasked-set",
    "byte-rotate-merge",
    "byte_rotate_merge",
    "funnel-shift",
    "invalidate",
    "noop",
)
MNEMONICS = frozenset((*_ALU, *UNARY, *_SHIFTS, *_MOVES))


@dataclass(frozen=True, slots=True)
class Operand:
    """A source: what its container or slot holds.

    Its bits ``low`` to ``high`` are named.

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
                return self._funnel_shift(target, args)
        if name in _SHIFTS:
            return self._shift(_SHIFTS[name], target, args)
        if name in UNARY:
            return self._change(UNARY[name], target, args[-1])
        if name in _ALU:
            return self._alu(_ALU[name], target, args)
        raise refusal(line, f"the instruction '{name}' is not supported")

    def _funnel_shift(self, target: Slice, args: tuple[Term, ...]) -> Do:
        """Return an instruction that shifts two sources to the right, as one of twice the width."""
        size = target.size
        high = self._operand(args[1], size).named()
        low = self._operand(args[2], size).named()
        count = number(args[3])

        def funnel(run: PacketRun) -> int:
            double = high(run) << size | low(run)
            return double >> count

        return _write_container(target, funnel)

    def _shift(
        self,
        operation: Operation,
        target: Slice,
        args: tuple[Term, ...],
    ) -> Do:
        size = target.size
        count = number(args[2])
        read = self._operand(args[1], size).named()
        return _write(target, lambda run: operation(read(run), count, size))

    def _change(
        self,
        operation: Callable[[int], int],
        target: Slice,
        source: Term,
    ) -> Do:
        read = self._operand(source, target.size).named()
        return _write(target, lambda run: operation(read(run)))

    def _alu(
        self,
        operation: Operation,
        target: Slice,
        args: tuple[Term, ...],
    ) -> Do:
        if len(args) == 2:
            # The target is the first operand, too.
            first = args[0]
            second = args[1]
        else:
            first = args[1]
            second = args[2]
        left = self._operand(first, target.size).named()
        right = self._operand(second, target.size).named()
        # Only logic reaches a slice, where both operands name the same bits of their containers.
        width = target.width
        mask = target.mask

        def compute(run: PacketRun) -> int:
            return operation(left(run) & mask, right(run) & mask, width)

        return _write(target, compute)

    def _set(
        self,
        target: Slice,
        source: Operand,
        line: int,
    ) -> Do:
        if source.value is not None:
            return _write(target, source.read)
        if target.is_whole and source.is_container and source.low:
            raise refusal(
                line, "a whole container can only be set from the low bits of another one"
            )
        if target.is_whole:
            return _write_container(target, source.named())
        return _deposit(target, source, None)

    def _bitmasked(
        self,
        target: Slice,
        args: tuple[Term, ...],
        line: int,
    ) -> Do:
        mask_slot = self._data.mask_slot(name_of(args[1]), target.size)
        if mask_slot is None:
            raise refusal(line, "the mask of a bitmasked-set is not among the action's data")
        slot, shift = mask_slot
        source = self._operand(args[1], target.size).read
        read_slot = self._entry(slot, line)
        if len(args) > 2:
            ground = self._operand(args[-1], target.size).read
        else:
            ground = self._container(target)

        def merged(run: PacketRun) -> int:
            mask = read_slot(run) >> shift
            return source(run) & mask | ground(run) & ~mask

        return _write_container(target, merged)

    def _merged(self, target: Slice, args: tuple[Term, ...]) -> Do:
        """Return an instruction that takes each byte from one of two rotated sources.

        The sources are rotated to the right first.
        """
        size = target.size
        bits = number(args[5])
        mask = sum(0xFF << 8 * byte for byte in range(size // 8) if bits >> byte & 1)
        full = (1 << size) - 1
        left = self._operand(args[1], size).read
        right = self._operand(args[2], size).read
        left_turn = 8 * number(args[3]) % size
        right_turn = 8 * number(args[4]) % size

        def rotated(value: int, turn: int) -> int:
            if turn:
                value = value >> turn | value << size - turn
            return value & full

        def merge(run: PacketRun) -> int:
            masked = rotated(left(run), left_turn) & mask
            rest = rotated(right(run), right_turn) & ~mask
            return masked | rest

        return _write_container(target, merge)

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
        if isinstance(node, Invocation):
            if name == "hash_dist":
                return self._hashed(node)
            if name == "rng":
                return Operand(_random_word, *bounds(node.args[-1]))
        low, high = _span(node)
        if self._data.knows(name):
            return self._entry_operand(name, node.line, low, high, size)
        if name in self._outputs:
            return Operand(lambda run: run.outputs.get(name, 0), low, high)
        place = self._names.find(node, self._stage)
        if place is None:
            raise refusal(node.line, f"the operand '{name}' is not known in stage {self._stage}")
        return Operand(self._container(place), place.low, place.high, is_container=True)

    def _entry_operand(
        self,
        name: str,
        line: int,
        low: int,
        high: int | None,
        size: int,
    ) -> Operand:
        """Return the source for a value of the entry, whose bits are where its slot has them."""
        read = self._entry(name, line)
        slot = self._data.slot(name)
        shift = 0 if slot is None else slot[1] % size
        if shift == 0:
            return Operand(read, low, high)
        if high is not None:
            high += shift
        return Operand(lambda run: read(run) << shift, low + shift, high)

    def _hashed(self, node: Invocation) -> Operand:
        """Return the operand of ``hash_dist(1, 0..15)``.

        With two units it is ``hash_dist(0, 1, 0..31)``.
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


def _random_word(run: PacketRun) -> int:
    return run.random.getrandbits(32)


def _span(node: Term) -> tuple[int, int | None]:
    """Return the bits (lowest, highest) that an operand names; (0, None) if it names none."""
    if isinstance(node, Invocation):
        for arg in node.args:
            if not isinstance(arg, Name | Invocation):
                return bounds(arg)
        for arg in node.args:
            if isinstance(arg, Invocation) and arg.args:
                return bounds(arg.args[0])
    return 0, None


def _write_container(target: Slice, read: Read) -> Do:
    container = target.container
    full = (1 << target.size) - 1
    bit = 1 << container

    def run_container(run: PacketRun) -> None:
        run.after[container] = read(run) & full
        run.valid |= bit

    return run_container


def _write(target: Slice, read: Read) -> Do:
    """Return an instruction that writes a slice and leaves the rest of the container as it is."""
    if target.is_whole:
        return _write_container(target, read)
    container = target.container
    low = target.low
    part = target.mask
    mask = part << low
    bit = 1 << container

    def run_slice(run: PacketRun) -> None:
        run.after[container] = run.after[container] & ~mask | (read(run) & part) << low
        run.valid |= bit

    return run_slice


def _deposit(
    target: Slice,
    source: Operand,
    ground: Operand | None,
) -> Do:
    """Return an instruction that rotates the source until its lowest named bit meets the target's.

    The bits beside the target come from ``ground``, or stay.
    """
    container = target.container
    size = target.size
    mask = target.mask << target.low
    full = (1 << size) - 1
    bit = 1 << container
    turn = (target.low - source.low) % size
    read = source.read
    base = None if ground is None else ground.read

    def run_deposit(run: PacketRun) -> None:
        value = read(run) & full
        value = (value << turn | value >> size - turn) & mask
        before = run.after[container] if base is None else base(run)
        run.after[container] = before & full & ~mask | value
        run.valid |= bit

    return run_deposit


def _invalidate(target: Slice) -> Do:
    container = target.container
    bit = ~(1 << container)

    def run_invalidate(run: PacketRun) -> None:
        run.after[container] = 0
        run.valid &= bit

    return run_invalidate
