"""Python's tables as the controller's side of native ones: every change of an entry becomes a command."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from softswitch import ir
from softswitch.lookup import Call, Entry
from softswitch.profiles import ActionProfile
from softswitch.stateful import MeterCell, MeterConfig
from softswitch.tables import Table

from .keys import key_layout, split
from .memory import CALL, CHOOSE, DEFAULT, METER, NONE, PUT, REMOVE, UNCALL, UNCHOOSE, Memory
from .text import words


class NativeMeterCell(MeterCell):
    """The meter of an entry or of a cell of an array, which runs in native memory."""

    __slots__ = ("_memory", "_place")

    def __init__(self, memory: Memory, *place: int) -> None:
        super().__init__()
        self._memory = memory
        self._place = place
        """Table + 1 or 0, the number of the array, and the index or the number of the state."""

    def configure(self, config: MeterConfig | None) -> None:
        super().configure(config)
        values = [0] * 5
        if config is not None and config.excess_burst is None:
            values = [1, config.committed_rate, config.committed_burst, config.peak_rate, config.peak_burst]
        elif config is not None:
            values = [2, config.committed_rate, config.committed_burst, 0, config.excess_burst or 0]
        self._memory.send(METER, *self._place, *values)


class NativeEntry(Entry):
    """An entry whose counters and meter are in native memory from the moment that packets can find it."""

    __slots__ = ("number", "state")

    def __init__(self, *args: Any) -> None:
        self.state: Any = None
        self.number = 0
        super().__init__(*args)

    def _get(self, name: str) -> int:
        return 0 if self.state is None else int(getattr(self.state, name))

    def _set(self, name: str, value: int) -> None:
        if self.state is not None:
            setattr(self.state, name, value)

    packets = property(lambda self: self._get("packets"), lambda self, value: self._set("packets", value))
    bytes = property(lambda self: self._get("bytes"), lambda self, value: self._set("bytes", value))
    hit_ns = property(lambda self: self._get("hit_ns"), lambda self, value: self._set("hit_ns", value))


class Choices:
    """The native side of an action profile: the calls that entries choose from, while an entry refers to them.

    The lists that Python's tables and profiles share say which they are: a member's cell holds a call, and an entry
    refers to a list of cells.
    """

    def __init__(self, memory: Memory, number: int, spec: ir.ProgramIR, profile: ActionProfile) -> None:
        self._memory = memory
        self._number = number
        self._widths = [
            [words(param.width) for param in params] for params in ir.profile_actions(spec, profile.name).values()
        ]
        self._calls: dict[int, list[Any]] = {}
        """[cell, number, uses], by the identity of the cell."""
        self._lists: dict[int, list[Any]] = {}
        """[cells, number, uses, the cells as they were], by the identity of the list."""
        self._free_calls: list[int] = []
        self._free_lists: list[int] = []
        profile.on_change = self.changed

    def use(self, cells: list[Any]) -> int:
        """Return the number of a list of cells, which one more entry refers to."""
        known = self._lists.get(id(cells))
        if known is None:
            number = self._free_lists.pop() if self._free_lists else len(self._lists)
            known = self._lists[id(cells)] = [cells, number, 0, []]
            self._choose(known)
        known[2] += 1
        return int(known[1])

    def leave(self, cells: list[Any]) -> None:
        """Note that one entry less refers to a list."""
        known = self._lists[id(cells)]
        known[2] -= 1
        if not known[2]:
            self._memory.send(UNCHOOSE, self._number, known[1])
            del self._lists[id(cells)]
            self._free_lists.append(known[1])
            self._leave_calls(known[3])

    def changed(self, what: list[Any]) -> None:
        """Take note of a new call in a cell, or of new cells in a list."""
        if id(what) in self._calls:
            self._memory.send_packed(array("Q", self._command(self._calls[id(what)])).tobytes())
        elif id(what) in self._lists:
            known = self._lists[id(what)]
            old = known[3]
            self._choose(known)
            self._leave_calls(old)

    def _choose(self, known: list[Any]) -> None:
        known[3] = list(known[0])
        numbers: list[int] = []
        commands: list[int] = []
        for cell in known[3]:
            call = self._calls.get(id(cell))
            if call is None:
                number = self._free_calls.pop() if self._free_calls else len(self._calls)
                call = self._calls[id(cell)] = [cell, number, 0]
                commands += self._command(call)
            call[2] += 1
            numbers.append(call[1])
        commands += (CHOOSE, 2 + len(numbers), self._number, known[1], *numbers)
        self._memory.send_packed(array("Q", commands).tobytes())

    def _leave_calls(self, cells: list[Any]) -> None:
        for cell in cells:
            call = self._calls[id(cell)]
            call[2] -= 1
            if not call[2]:
                self._memory.send(UNCALL, self._number, call[1])
                del self._calls[id(cell)]
                self._free_calls.append(call[1])

    def _command(self, call: list[Any]) -> Sequence[int]:
        action, *args = call[0][0]
        widths = self._widths[action]
        given = args if len(widths) == sum(widths) else in_words(widths, args)
        return (CALL, 3 + len(given), self._number, call[1], action, *given)


class NativeIndex:
    """The entries of a table in native memory."""

    def __init__(self, memory: Memory, number: int, spec: ir.TableSpec, program: ir.ProgramIR, table: Table) -> None:
        self._memory = memory
        self._number = number
        self._table = table
        self._layout = layout = key_layout(spec)
        self._parts = [
            (key.match, (1 << key.width) - 1, 0 if place is None else 64 * place[0] + place[1])
            for key, place in zip(spec.keys, layout.places, strict=True)
        ]
        self._widths = [[words(p.width) for p in program.actions[a].params] for a in spec.actions]
        self._short = layout.size == 1 and not layout.ranges and spec.profile is None
        """Whether mask and value of a key have a word each, and entries their own actions."""
        self._shifts = [shift for _, _, shift in self._parts]
        self._exact_mask = (
            sum(full << shift for _, full, shift in self._parts)
            if all(kind == "exact" for kind, _, _ in self._parts)
            else None
        )
        self._plain = [all(count == 1 for count in counts) for counts in self._widths]
        self._chosen: dict[int, list[Any]] = {}
        """The list that each entry refers to, by handle."""
        self._free: list[int] = []
        self._states = 1
        self.choices: Choices | None = None

    def prepare(self, entry: Entry, number: int | None = None) -> None:
        """Give an entry its place in native memory."""
        if not isinstance(entry, NativeEntry) or entry.state is not None:
            return
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = self._states
                self._states += 1
        entry.state = state = self._memory.state(self._number, number)
        self._memory.ffi.memmove(state, bytes(self._memory.ffi.sizeof("ss_state")), self._memory.ffi.sizeof("ss_state"))
        entry.number = number
        if self._table.meter_unit is not None:
            entry.meter = NativeMeterCell(self._memory, self._number + 1, 0, number)

    def _key(self, key: Sequence[Any]) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Return the words of a key's mask, of its value, and the ends of its ranges."""
        mask = value = 0
        ranges: Sequence[int] = ()
        for (kind, full, shift), element in zip(self._parts, key, strict=True):
            if kind == "exact":
                value |= element << shift
                mask |= full << shift
            elif kind == "range":
                ranges = (*ranges, *element)
            else:
                first, second = element
                value |= first << shift
                mask |= (second if kind == "ternary" else full ^ (full >> second)) << shift
        size = self._layout.size
        if size == 1:
            return (mask,), (value,), ranges
        return split(mask, size), split(value, size), ranges

    def _command(self, entry: Entry) -> Sequence[int]:
        mask, value, ranges = self._key(entry.key)
        result = entry.result
        number = 0
        given: Sequence[int]
        if self.choices is None:
            action = result[0]
            given = result[1:]
            if self._table.stateful:
                number = result[-1].number + 1
                given = given[:-1]
            if not self._plain[action]:
                given = in_words(self._widths[action], given)
        else:
            action, given = 0, (self._refer(entry, result[0]),)
            if isinstance(entry, NativeEntry):
                number = entry.number + 1
        rest = (*mask, *value, *ranges, *given)
        return (PUT, 5 + len(rest), self._number, entry.handle, entry.priority, action, number, *rest)

    def _refer(self, entry: Entry, cells: list[Any]) -> int:
        assert self.choices is not None
        number = self.choices.use(cells)
        old = self._chosen.get(entry.handle)
        self._chosen[entry.handle] = cells
        if old is not None:
            # The entry refers to its old list until its own command is applied.
            self._left.append(old)
        return number

    _left: list[list[Any]]

    def add(self, entry: Entry) -> None:
        self.add_all((entry,))

    def add_all(self, entries: Iterable[Entry]) -> None:
        self._left = []
        commands: list[int] = []
        if self._short:
            self._add_short(entries, commands)
        else:
            for entry in entries:
                self.prepare(entry)
                commands += self._command(entry)
        if commands:
            self._memory.send_packed(array("Q", commands).tobytes())
        for cells in self._left:
            assert self.choices is not None
            self.choices.leave(cells)

    def _add_short(self, entries: Iterable[Entry], commands: list[int]) -> None:
        """Append the commands of entries whose keys are short: filling a large table consists of this."""
        number, parts, plain, widths = self._number, self._parts, self._plain, self._widths
        shifts, exact_mask, stateful = self._shifts, self._exact_mask, self._table.stateful
        for entry in entries:
            key: Any = entry.key
            mask, value, state = exact_mask, 0, 0
            if mask is not None:
                for element, shift in zip(key, shifts, strict=True):
                    value |= element << shift
            else:
                mask = 0
                for (kind, full, shift), element in zip(parts, key, strict=True):
                    if kind == "exact":
                        first, cared = element, full
                    elif kind == "lpm":
                        first, length = element
                        cared = full ^ (full >> length)
                    else:
                        first, cared = element
                    value |= first << shift
                    mask |= cared << shift
            action, *given = entry.result
            if stateful:
                self.prepare(entry)
                state = given.pop().number + 1
            if not plain[action]:
                given = in_words(widths[action], given)
            commands += (PUT, 7 + len(given), number, entry.handle, entry.priority, action, state, mask, value, *given)

    def remove(self, entry: Entry) -> None:
        mask, value, _ = self._key(entry.key)
        self._memory.send(REMOVE, self._number, entry.handle, *value, *mask)
        if isinstance(entry, NativeEntry):
            # What is read of the entry from now on does not change any more.
            entry.state = None
            self._memory.afterwards(partial(self._free.append, entry.number))
        if self.choices is not None:
            self.choices.leave(self._chosen.pop(entry.handle))

    def send_default(self, call: Call | None, entry: Entry) -> None:
        """Tell the default entry."""
        if call is None:
            self._memory.send(DEFAULT, self._number, NONE, 0)
            return
        args = call[1:-1] if self._table.stateful else call[1:]
        number = entry.number + 1 if isinstance(entry, NativeEntry) else 0
        prefix = [0] * (self._layout.size + 2 * len(self._layout.ranges))
        self._memory.send(DEFAULT, self._number, call[0], number, *prefix, *in_words(self._widths[call[0]], args))


class NativeDefault(list[Any]):
    """The cell of a table's default entry."""

    def __init__(self, index: NativeIndex, table: Table) -> None:
        super().__init__([None])
        self._index = index
        self._table = table

    def __setitem__(self, at: Any, call: Any) -> None:
        super().__setitem__(at, call)
        self._index.send_default(call, self._table.default_entry)


def in_words(widths: Sequence[int], values: Sequence[int]) -> list[int]:
    """Return the words of numbers that have as many of them as ``widths`` says."""
    found: list[int] = []
    for count, value in zip(widths, values, strict=True):
        found += [value] if count == 1 else split(value, count)
    return found


def attach(memory: Memory, number: int, spec: ir.TableSpec, program: ir.ProgramIR, table: Table) -> NativeIndex:
    """Let a table that has only the program's own entries live in native memory."""
    index = NativeIndex(memory, number, spec, program, table)
    if table.stateful:
        old = table.default_entry
        table.entry_type = NativeEntry
        table.default_entry = NativeEntry(old.handle, old.key, 0, old.meter)
        index.prepare(table.default_entry, 0)
    return index
