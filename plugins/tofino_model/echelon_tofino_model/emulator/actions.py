"""Actions: what each does to the PHV and to attached memories, and which table comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Name,
    Number,
    Term,
    items,
    mapping,
    number,
    refusal,
    text,
)
from echelon_tofino_model.emulator.assembly import Mapping as Pairs
from echelon_tofino_model.emulator.attached import Attached, AttachedRegister, Index, Use
from echelon_tofino_model.emulator.data import ActionData, Pack, name_of
from echelon_tofino_model.emulator.gateways import target
from echelon_tofino_model.emulator.hashing import HashUnit
from echelon_tofino_model.emulator.instructions import MNEMONICS, Compiler, Do
from echelon_tofino_model.emulator.phv import FieldNames
from echelon_tofino_model.emulator.run import PacketRun
from echelon_tofino_model.emulator.tables import ActionSpec, TableEntry

_NOTES = {
    "p4_param_order",
    "hit_allowed",
    "default_action",
    "default_only_action",
    "handle",
    "next_table",
    "next_table_miss",
    "mod_cond_value",
    "context_json",
    "user_annotations",
}
"""The statements of an action besides its aliases and instructions."""

Following = int | tuple[str | None] | None
"""The next table: its place in a list, its name (None at the pipeline's end), or nothing."""


@dataclass(slots=True)
class StageAction:
    """An action of a table in one stage."""

    name: str
    params: Mapping[str, int]
    handle: int
    flags: set[str]
    """``no_hit`` if entries may not use it, ``no_default`` if it cannot be the default action."""
    next_hit: Following
    next_miss: Following
    uses: tuple[Use, ...]
    instructions: tuple[Do, ...]
    packs: tuple[Pack, ...]
    named_next: tuple[str | None, ...] = field(default=())

    def run(
        self,
        run: PacketRun,
        entry: TableEntry | None,
        label: str,
    ) -> None:
        """Run the action with an entry's data; None stands for arguments that are all zero."""
        if entry is None:
            run.data = self.pack_args({})
        else:
            run.data = entry.data[label]
        for use in self.uses:
            use(run, entry)
        for instruction in self.instructions:
            instruction(run)

    def pack(self, entry: TableEntry) -> tuple[int, ...]:
        """Return the values of the action's operands for an entry."""
        return self.pack_args(entry.args)

    def pack_args(self, args: dict[str, int]) -> tuple[int, ...]:
        """Return the values of the action's operands for arguments by name."""
        return tuple([pack(args) for pack in self.packs])

    def following(self, hits: tuple[str | None, ...]) -> str | None:
        """Return the next table after a hit."""
        return _resolved(self.next_hit, hits)

    def following_miss(self, hits: tuple[str | None, ...], miss: str | None) -> str | None:
        """Return the next table after the action ran as the default.

        The driver sets a table's next table after a miss by its default action: ``next_table_miss``
        if the compiler wrote one, else ``next_table``. ``miss`` is for actions that have neither.
        """
        if self.next_miss is not None:
            return _resolved(self.next_miss, hits)
        if self.next_hit is None:
            return miss
        return _resolved(self.next_hit, hits)

    def spec(self, flags: set[str], default: str | None) -> ActionSpec:
        """Return the action as the control plane sees it."""
        return ActionSpec(
            name=self.name,
            handle=self.handle,
            params=self.params,
            allowed_in_entries="no_hit" not in flags,
            allowed_as_default="no_default" not in flags or self.name == default,
        )


def load_actions(
    body: Pairs,
    names: FieldNames,
    stage: int,
    units: Mapping[int, HashUnit],
    memories: Mapping[str, Attached],
    references: Mapping[str, Invocation] | None = None,
) -> list[StageAction]:
    """Return the actions of a table.

    ``memories`` are the stage's counters, meters and registers by label; ``references`` say how the
    table addresses them.
    """
    actions = []
    for key, value in body.pairs:
        source = _read_source(value)
        compiler = Compiler(names, stage, source.data, units, frozenset(memories))
        addresses = _Addresses(compiler, source.data, units, references or {})
        actions.append(_action(name_of(key), source, compiler, addresses, memories))
    return actions


@dataclass(slots=True)
class _Source:
    """An action as the file has it."""

    data: ActionData
    notes: dict[str, Term]
    instructions: list[Invocation]


def _read_source(value: Term) -> _Source:
    source = _Source(ActionData(), {}, [])
    for item in items(value):
        if isinstance(item, Pairs):
            note = item.pairs[0] if item.pairs else None
            if note is not None and isinstance(note[0], Name) and note[0].text in _NOTES:
                source.notes[note[0].text] = note[1]
            else:
                source.data.alias(item)
        elif isinstance(item, Invocation):
            source.instructions.append(item)
        elif not _is_noop(item):
            raise refusal(item.line, "this is not an instruction")
    if "p4_param_order" in source.notes:
        source.data.declare(mapping(source.notes["p4_param_order"]))
    else:
        source.data.infer_params()
    return source


def _is_noop(item: Term) -> bool:
    if isinstance(item, Number):
        return item.value == 0
    return isinstance(item, Name) and item.text == "noop"


def _action(
    name: str,
    source: _Source,
    compiler: Compiler,
    addresses: _Addresses,
    memories: Mapping[str, Attached],
) -> StageAction:
    uses = []
    steps = []
    for instruction in source.instructions:
        mnemonic = instruction.name
        if mnemonic in memories:
            uses.append(addresses.use(instruction, memories[mnemonic]))
        elif mnemonic in MNEMONICS:
            steps.append(compiler.compile(instruction))
        else:
            raise refusal(instruction.line, f"the instruction '{mnemonic}' is not supported")
    notes = source.notes
    flags = set()
    if "default_only_action" in notes or _is_false(notes.get("hit_allowed")):
        flags.add("no_hit")
    if _is_false(notes.get("default_action")):
        flags.add("no_default")
    hit = _following(notes.get("next_table"))
    miss = _following(notes.get("next_table_miss"))
    named = [following[0] for following in (hit, miss) if isinstance(following, tuple)]
    return StageAction(
        name=name,
        params=source.data.params,
        handle=number(notes.get("handle"), 0),
        flags=flags,
        next_hit=hit,
        next_miss=miss,
        uses=tuple(uses),
        instructions=tuple(steps),
        packs=tuple(compiler.packs),
        named_next=tuple(named),
    )


def _following(note: Term | None) -> Following:
    """Return what a ``next_table`` or ``next_table_miss`` says."""
    if note is None:
        return None
    if isinstance(note, Number):
        return note.value
    return (target(note),)


def _resolved(following: Following, hits: tuple[str | None, ...]) -> str | None:
    """Return the next table, given those that the match table lists."""
    if isinstance(following, tuple):
        return following[0]
    place = 0 if following is None else following
    return hits[place] if place < len(hits) else None


def _is_false(note: Term | None) -> bool:
    if not isinstance(note, Pairs):
        return False
    allowed = note.get("allowed")
    return allowed is not None and text(allowed) == "false"


class _Addresses:
    """The ways in which one action's instructions address memories.

    ``references`` say how the table addresses each memory, by the memory's name.
    """

    def __init__(
        self,
        compiler: Compiler,
        data: ActionData,
        units: Mapping[int, HashUnit],
        references: Mapping[str, Invocation],
    ) -> None:
        self._compiler = compiler
        self._data = data
        self._units = units
        self._references = references

    def use(self, call: Invocation, memory: Attached) -> Use:
        """Return a function for an instruction such as ``reg(action, $hash_dist)``."""
        args = list(call.args)
        if isinstance(memory, AttachedRegister):
            action = text(args.pop(0))
            return memory.use(action, self._index(args[0], call), call.line)
        if len(args) == 2:
            args.pop(0)  # a meter's type
        return memory.use(self._index(args[0], call))

    def _index(self, node: Term, call: Invocation) -> Index:
        if isinstance(node, Number):
            constant = node.value
            return lambda _run, _entry: constant
        name = name_of(node)
        if name == "$DIRECT":
            return _direct_index
        if name == "$hash_dist":
            read = self._unit(call).index
            return lambda run, _entry: read(run.before)
        if self._data.knows(name):
            value = self._compiler.entry_index(name, call.line)
            return lambda run, _entry: value(run)
        raise refusal(call.line, f"the index '{name}' of '{call.name}' is not supported")

    def _unit(self, call: Invocation) -> HashUnit:
        """Return the hash distribution unit that addresses the memory of ``call``."""
        reference = self._references.get(call.name)
        hashed = reference.args[0] if reference is not None and reference.args else None
        if not isinstance(hashed, Invocation) or hashed.name != "hash_dist":
            raise refusal(call.line, f"the table does not say which hash addresses '{call.name}'")
        unit = number(hashed.args[0])
        if unit not in self._units:
            raise refusal(call.line, f"there is no hash distribution unit {unit}")
        return self._units[unit]


def _direct_index(_run: PacketRun, entry: TableEntry | None) -> int | None:
    """Return an entry's own index; None for a default entry, which is in no memory."""
    if entry is None or entry.row.handle < 0:
        return None
    return entry.index
