"""Python's tables as the controller's side of native ones.

Every change of an entry becomes a command.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from softswitch import ir
from softswitch.lookup import Call, Entry
from softswitch.profiles import ActionProfile, Group
from softswitch.stateful import MeterCell, MeterConfig
from softswitch.tables import Table

from .keys import key_code, key_layout, split
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
        self._memory.send(METER, *self._place, *_meter_words(config))


def _meter_words(config: MeterConfig | None) -> Sequence[int]:
    """Return the kind of a meter (0: none), its committed and its other rate and burst."""
    if config is None:
        return (0, 0, 0, 0, 0)
    rate = config.committed_rate
    burst = config.committed_burst
    if config.excess_burst is None:
        return (1, rate, burst, config.peak_rate, config.peak_burst)
    return (2, rate, burst, 0, config.excess_burst)


def _state_member(name: str) -> Any:
    """Return a property for a value in native memory; it is 0 while the entry is not there."""

    def read(entry: NativeEntry) -> int:
        return 0 if entry.state is None else int(getattr(entry.state, name))

    def write(entry: NativeEntry, value: int) -> None:
        if entry.state is not None:
            setattr(entry.state, name, value)

    return property(read, write)


class NativeEntry(Entry):
    """An entry whose counters and meter are in native memory once packets can find it."""

    __slots__ = ("number", "state")

    def __init__(self, *args: Any) -> None:
        self.state: Any = None
        self.number = 0
        super().__init__(*args)

    packets = _state_member("packets")
    bytes = _state_member("bytes")
    hit_ns = _state_member("hit_ns")


class _Numbers:
    """Numbers for things in native memory, as small as possible."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self.free:
            return self.free.pop()
        self._next += 1
        return self._next - 1

    def take_all(self, count: int) -> Iterable[int]:
        """Return `count` free numbers."""
        if self.free:
            return [self.take() for _ in range(count)]
        self._next += count
        return range(self._next - count, self._next)


class Choices:
    """The native side of an action profile.

    It keeps the calls that entries choose from as long as an entry refers to them. Python's tables
    and profiles share lists that describe them: a member's cell holds a call, and an entry refers
    to a list of cells.
    """

    def __init__(
        self,
        memory: Memory,
        number: int,
        spec: ir.ProgramIR,
        profile: ActionProfile,
    ) -> None:
        self._memory = memory
        self._number = number
        actions = ir.profile_actions(spec, profile.name).values()
        self._widths = [[words(param.width) for param in params] for params in actions]
        self._calls: dict[int, list[Any]] = {}
        """[cell, number, uses], by the identity of the cell."""
        self._plain = [all(count == 1 for count in counts) for counts in self._widths]
        self._lists: dict[int, list[Any]] = {}
        """[cells, number, uses, the cells as they were], by the identity of the list."""
        self._call_numbers = _Numbers()
        self._list_numbers = _Numbers()
        profile.on_change = self.changed

    def use(self, cells: list[Any]) -> int:
        """Count one more entry that refers to a list of cells, and return the list's number."""
        choice = self._lists.get(id(cells))
        if choice is None:
            choice = self._lists[id(cells)] = [cells, self._list_numbers.take(), 0, []]
            self._choose(choice)
        choice[2] += 1
        return int(choice[1])

    def use_set(self, group: Group, commands: list[int]) -> tuple[int, ...]:
        """Append the commands for a set that only one entry uses.

        Returns the numbers of the set and of its calls.
        """
        profile = self._number
        plain = self._plain
        calls = group.calls
        chosen: list[int] = []
        number = self._list_numbers.take()
        numbers = self._call_numbers.take_all(len(calls))
        for call, place, weight in zip(calls, numbers, group.weights, strict=True):
            if plain[call[0]]:
                commands += (CALL, 2 + len(call), profile, place, *call)
            else:
                commands += self._command(([call], place))
            chosen += (place,) * weight
        commands += (CHOOSE, 2 + len(chosen), profile, number, *chosen)
        return (number, *numbers)

    def leave(self, cells: list[Any] | tuple[int, ...]) -> None:
        """Count one entry less that refers to a list, or free the set that only it used."""
        if isinstance(cells, tuple):
            number, *calls = cells
            self._memory.send(UNCHOOSE, self._number, number)
            self._list_numbers.free.append(number)
            for call in calls:
                self._memory.send(UNCALL, self._number, call)
            self._call_numbers.free += calls
            return
        choice = self._lists[id(cells)]
        choice[2] -= 1
        if not choice[2]:
            self._memory.send(UNCHOOSE, self._number, choice[1])
            del self._lists[id(cells)]
            self._list_numbers.free.append(choice[1])
            self._leave_calls(choice[3])

    def changed(self, cells: list[Any]) -> None:
        """Take note of a new call in a cell, or of new cells in a list."""
        if id(cells) in self._calls:
            command = self._command(self._calls[id(cells)])
            self._memory.send_packed(array("Q", command).tobytes())
        elif id(cells) in self._lists:
            choice = self._lists[id(cells)]
            old = choice[3]
            self._choose(choice)
            self._leave_calls(old)

    def _choose(self, choice: list[Any]) -> None:
        choice[3] = list(choice[0])
        numbers: list[int] = []
        commands: list[int] = []
        for cell in choice[3]:
            call = self._calls.get(id(cell))
            if call is None:
                call = self._calls[id(cell)] = [cell, self._call_numbers.take(), 0]
                commands += self._command(call)
            call[2] += 1
            numbers.append(call[1])
        commands += (CHOOSE, 2 + len(numbers), self._number, choice[1], *numbers)
        self._memory.send_packed(array("Q", commands).tobytes())

    def _leave_calls(self, cells: list[Any]) -> None:
        for cell in cells:
            call = self._calls[id(cell)]
            call[2] -= 1
            if not call[2]:
                self._memory.send(UNCALL, self._number, call[1])
                del self._calls[id(cell)]
                self._call_numbers.free.append(call[1])

    def _command(self, call: Sequence[Any]) -> Sequence[int]:
        action, *args = call[0][0]
        if self._plain[action]:
            arguments = args
        else:
            arguments = in_words(self._widths[action], args)
        return (CALL, 3 + len(arguments), self._number, call[1], action, *arguments)


_WRITERS = """
def key(key):
    {key} = key
    return ({mask}), ({value}), ({ranges})

def put(handle, priority, action, state, key, args):
    {key} = key
    return ({put},)

def put_rows(rows, handle, commands):
    state = 0
    for {key}, priority, name, args in rows:
        action = numbers[name]
        if not plain[action]:
            args = in_words(widths[action], args)
        commands += ({put},)
        handle += 1

def put_sets(rows, handle, commands, use, chosen):
    action = state = 0
    for {key}, priority, group in rows:
        chosen[handle] = used = use(group, commands)
        args = used[:1]
        commands += ({put},)
        handle += 1
"""
"""The source of one table's functions: `key` splits a key into words, the others add entries."""


class _Writers(NamedTuple):
    key: Callable[[Sequence[Any]], tuple[Sequence[int], Sequence[int], Sequence[int]]]
    """Returns the words of a key's mask, of its value, and the ends of its ranges."""
    put: Callable[..., tuple[int, ...]]
    put_rows: Callable[..., None]
    put_sets: Callable[..., None]


class NativeIndex:
    """The entries of a table in native memory.

    The functions that write them there are generated for each table (`_WRITERS`).
    """

    def __init__(
        self,
        memory: Memory,
        number: int,
        spec: ir.TableSpec,
        program: ir.ProgramIR,
        table: Table,
    ) -> None:
        self._memory = memory
        self._number = number
        self._table = table
        self._layout = key_layout(spec)
        actions = [program.actions[action] for action in spec.actions]
        self._widths = [[words(param.width) for param in action.params] for action in actions]
        self._plain = [all(count == 1 for count in counts) for counts in self._widths]
        arguments = max(map(sum, self._widths), default=0)
        key_words = 2 * self._layout.size + 2 * len(self._layout.ranges)
        self._most_words = 2 + 5 + key_words + max(1, arguments)
        """The longest command that puts an entry, and its state."""
        if table.stateful:
            self._most_words += memory.ffi.sizeof("ss_state") // 8
        self._spec = spec
        self._chosen: dict[int, Any] = {}
        """The list or the own set that each entry refers to, by handle."""
        self._free: list[int] = []
        self._states = 1
        self.choices: Choices | None = None

    @cached_property
    def _write(self) -> _Writers:
        """Return the functions of this table, made at first use: most tables never need them."""
        code = key_code(self._spec)
        table = self._table
        scope: dict[str, Any] = {
            "numbers": {action: number for number, action in enumerate(table.actions)},
            "plain": self._plain,
            "widths": self._widths,
            "in_words": in_words,
        }
        key_words = (*code.mask, *code.value, *code.ranges)
        length = f"{5 + len(key_words)} + len(args)"
        priority = "priority" if table.by_priority else "0"
        head = (str(PUT), length, str(self._number), "handle", priority, "action", "state")
        writers = _WRITERS.format(
            key=code.target,
            mask=_listed(code.mask),
            value=_listed(code.value),
            ranges=_listed(code.ranges),
            put=", ".join((*head, *key_words, "*args")),
        )
        exec(writers, scope)
        return _Writers(scope["key"], scope["put"], scope["put_rows"], scope["put_sets"])

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
        entry.state = self._memory.state(self._number, number)
        ffi = self._memory.ffi
        size = ffi.sizeof("ss_state")
        ffi.memmove(entry.state, bytes(size), size)
        entry.number = number
        if self._table.meter_unit is not None:
            entry.meter = NativeMeterCell(self._memory, self._number + 1, 0, number)

    def _command(self, entry: Entry) -> Sequence[int]:
        action = 0
        arguments: Sequence[int]
        if self.choices is not None:
            arguments = (self._refer(entry, entry.result[0]),)
        else:
            action, *arguments = entry.result
            if self._table.stateful:
                del arguments[-1]
            if not self._plain[action]:
                arguments = in_words(self._widths[action], arguments)
        state = _state_number(entry)
        return self._write.put(entry.handle, entry.priority, action, state, entry.key, arguments)

    def _refer(self, entry: Entry, cells: list[Any]) -> int:
        assert self.choices is not None
        number = self.choices.use(cells)
        old = self._chosen.get(entry.handle)
        self._chosen[entry.handle] = cells
        if old is not None:
            # The entry refers to its old list until its own command is applied.
            self._left.append(old)
        return number

    _left: list[Any]

    def add(self, entry: Entry) -> None:
        self.add_all((entry,))

    def add_all(self, entries: Iterable[Entry]) -> None:
        self._left = []
        commands: list[int] = []
        for entry in entries:
            self.prepare(entry)
            commands += self._command(entry)
        self._send(commands)
        for chosen in self._left:
            assert self.choices is not None
            self.choices.leave(chosen)

    def add_rows(self, handle: int, rows: Sequence[Any]) -> None:
        """Add entries without counters or meters, in the form of `Table.put_all` or `put_sets`.

        `handle` is that of the first one.
        """
        commands: list[int] = []
        if self.choices is None:
            self._write.put_rows(rows, handle, commands)
        else:
            self._write.put_sets(rows, handle, commands, self.choices.use_set, self._chosen)
        self._send(commands)

    def reserve(self, count: int) -> None:
        """Set memory aside for so many entries. Raises :class:`TableFull`."""
        self._memory.reserve(count * self._most_words)

    def _send(self, commands: list[int]) -> None:
        if commands:
            self._memory.send_packed(array("Q", commands).tobytes())

    def remove(self, entry: Entry) -> None:
        mask, value, _ = self._write.key(entry.key)
        self._memory.send(REMOVE, self._number, entry.handle, *value, *mask)
        if isinstance(entry, NativeEntry):
            # What is read of the entry from now on does not change any more.
            entry.state = None
            self._memory.afterwards(partial(self._free.append, entry.number))
        if self.choices is not None:
            self.choices.leave(self._chosen.pop(entry.handle))

    def send_default(self, call: Call | None, entry: Entry) -> None:
        """Set the default entry in native memory."""
        if call is None:
            self._memory.send(DEFAULT, self._number, NONE, 0)
            return
        action, *args = call
        if self._table.stateful:
            del args[-1]
        arguments = in_words(self._widths[action], args)
        # In the places of the words of a key and of the ends of its ranges.
        padding = [0] * (self._layout.size + 2 * len(self._layout.ranges))
        state = _state_number(entry)
        self._memory.send(DEFAULT, self._number, action, state, *padding, *arguments)


def _state_number(entry: Entry) -> int:
    """Return the number of an entry's counters and meter, from 1 on; 0: it has none."""
    if isinstance(entry, NativeEntry):
        return entry.number + 1
    return 0


def _listed(codes: Iterable[str]) -> str:
    """Return codes as the elements of a tuple."""
    return "".join(f"{code}, " for code in codes)


class NativeDefault(list[Any]):
    """The cell of a table's default entry."""

    def __init__(self, index: NativeIndex, table: Table) -> None:
        super().__init__([None])
        self._index = index
        self._table = table

    def __setitem__(self, index: Any, call: Any) -> None:
        super().__setitem__(index, call)
        self._index.send_default(call, self._table.default_entry)


def in_words(widths: Sequence[int], values: Sequence[int]) -> list[int]:
    """Return the words of all values; ``widths`` is the number of words of each."""
    numbers: list[int] = []
    for count, value in zip(widths, values, strict=True):
        if count == 1:
            numbers.append(value)
        else:
            numbers += split(value, count)
    return numbers


def attach(
    memory: Memory,
    number: int,
    spec: ir.TableSpec,
    program: ir.ProgramIR,
    table: Table,
) -> NativeIndex:
    """Move a table into native memory while it has only the program's own entries."""
    index = NativeIndex(memory, number, spec, program, table)
    table.reserve = index.reserve
    if table.stateful:
        old = table.default_entry
        table.entry_type = NativeEntry
        table.default_entry = NativeEntry(old.handle, old.key, 0, old.meter)
        index.prepare(table.default_entry, 0)
    else:
        table.take_rows = index.add_rows
    return index
