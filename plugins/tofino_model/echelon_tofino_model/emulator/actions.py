"""Actions: what each does to the PHV and to attached memories, and which table comes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

_NOTES = frozenset(
    {
        "p4_param_order",
        "hit_allowed",
        "default_action",
        "default_only_action",
        "handle",
        "next_table",
    }
)
_MORE_NOTES = frozenset({"next_table_miss", "mod_cond_value", "context_json", "user_annotations"})

Following = int | tuple[str | None] | None
"""The next table: its place in the match table's list, its name (None at the pipeline's end), or
nothing said.
"""


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

    def run(self, run: PacketRun, entry: TableEntry | None, label: str) -> None:
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
            self.name,
            self.handle,
            self.params,
            "no_hit" not in flags,
            "no_default" not in flags or self.name == default,
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
    return [
        _action(key, value, names, stage, units, memories, references or {})
        for key, value in body.pairs
    ]


def _action(
    key: Term,
    value: Term,
    names: FieldNames,
    stage: int,
    units: Mapping[int, HashUnit],
    memories: Mapping[str, Attached],
    references: Mapping[str, Invocation],
) -> StageAction:
    data = ActionData()
    notes: dict[str, Term] = {}
    instructions: list[Invocation] = []
    for item in items(value):
        if isinstance(item, Pairs):
            first = item.pairs[0][0] if item.pairs else None
            if isinstance(first, Name) and first.text in _NOTES | _MORE_NOTES:
                notes[first.text] = item.pairs[0][1]
            else:
                data.alias(item)
        elif isinstance(item, Invocation):
            instructions.append(item)
        elif not (isinstance(item, Number) and item.value == 0) and not (
            isinstance(item, Name) and item.text == "noop"
        ):
            raise refusal(item.line, "this is not an instruction")
    if "p4_param_order" in notes:
        data.declare(mapping(notes["p4_param_order"]))
    else:
        data.infer_params()
    compiler = Compiler(names, stage, data, units, frozenset(memories))
    uses = []
    steps = []
    for instruction in instructions:
        if instruction.name in memories:
            uses.append(
                _use(instruction, memories[instruction.name], compiler, data, units, references)
            )
        elif instruction.name in MNEMONICS:
            steps.append(compiler.compile(instruction))
        else:
            raise refusal(
                instruction.line, f"the instruction '{instruction.name}' is not supported"
            )
    return _finished(name_of(key), data, notes, uses, steps, compiler)


def _finished(
    name: str,
    data: ActionData,
    notes: Mapping[str, Term],
    uses: list[Use],
    steps: list[Do],
    compiler: Compiler,
) -> StageAction:
    flags = set()
    if "default_only_action" in notes or _is_false(notes.get("hit_allowed")):
        flags.add("no_hit")
    if _is_false(notes.get("default_action")):
        flags.add("no_default")
    hit, miss = (_following(notes.get(note)) for note in ("next_table", "next_table_miss"))
    handle = number(notes.get("handle"), 0)
    named = tuple([place[0] for place in (hit, miss) if isinstance(place, tuple)])
    return StageAction(
        name,
        data.params,
        handle,
        flags,
        hit,
        miss,
        tuple(uses),
        tuple(steps),
        tuple(compiler.packs),
        named,
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
    if isinstance(note, Pairs):
        allowed = mapping(note).get("allowed")
    else:
        allowed = None
    return allowed is not None and text(allowed) == "false"


def _use(
    call: Invocation,
    memory: Attached,
    compiler: Compiler,
    data: ActionData,
    units: Mapping[int, HashUnit],
    references: Mapping[str, Invocation],
) -> Use:
    """Return a function for an instruction that uses a memory, such as ``reg(action,
    $hash_dist)``.
    """
    args = list(call.args)
    action = None
    if isinstance(memory, AttachedRegister):
        action = text(args.pop(0))
    elif len(args) == 2:
        args.pop(0)  # a meter's type
    index = _index(args[0], call, compiler, data, units, references)
    if isinstance(memory, AttachedRegister):
        assert action is not None
        return memory.use(action, index, call.line)
    return memory.use(index)


def _index(
    node: Term,
    call: Invocation,
    compiler: Compiler,
    data: ActionData,
    units: Mapping[int, HashUnit],
    references: Mapping[str, Invocation],
) -> Index:
    if isinstance(node, Number):
        constant = node.value
        return lambda _run, _entry: constant
    name = name_of(node)
    if name == "$DIRECT":
        return lambda _run, entry: None if entry is None or entry.found.handle < 0 else entry.index
    if name == "$hash_dist":
        reference = references.get(call.name)
        if reference is None or not reference.args:
            hashed = None
        else:
            hashed = reference.args[0]
        if not isinstance(hashed, Invocation) or hashed.name != "hash_dist":
            raise refusal(call.line, f"the table does not say which hash addresses '{call.name}'")
        unit = number(hashed.args[0])
        if unit not in units:
            raise refusal(call.line, f"there is no hash distribution unit {unit}")
        read: Callable[[list[int]], int] = units[unit].index
        return lambda run, _entry: read(run.before)
    if data.knows(name):
        value = compiler.entry_index(name, call.line)
        return lambda run, _entry: value(run)
    raise refusal(call.line, f"the index '{name}' of '{call.name}' is not supported")
