"""The match-action stages, whose tables run actions and name the table that comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from echelon_tofino_model.emulator.actions import StageAction, load_actions
from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Name,
    Section,
    Term,
    bounds,
    items,
    mapping,
    number,
    refusal,
    text,
)
from echelon_tofino_model.emulator.assembly import Mapping as Pairs
from echelon_tofino_model.emulator.attached import Attached, load_attached
from echelon_tofino_model.emulator.data import name_of
from echelon_tofino_model.emulator.gateways import Gateway, load_gateway, target
from echelon_tofino_model.emulator.hashing import HashGroups, HashUnit, load_units
from echelon_tofino_model.emulator.phv import FieldNames, Read, Vector
from echelon_tofino_model.emulator.profiles import Profile
from echelon_tofino_model.emulator.run import PacketRun
from echelon_tofino_model.emulator.tables import KeyField, MatchTable, TableEntry
from softswitch.errors import TableError
from softswitch.lookup import KeyElement

_MATCH_KINDS = ("exact_match", "ternary_match", "atcam_match", "hash_action", "proxy_hash")
_MEMORIES = ("counter", "meter", "stateful")
_PARTS = ("ternary_indirect", "action", "selection")
_PROFILE_SIZE = 1024
"""The members of an action profile without action data, whose size the assembly lacks."""

_PORTS = 288
"""The ports of a Tofino 1's four pipes, each with its port metadata."""

_FAIR_BITS, _RESILIENT_BITS = 14, 51
"""The bits of the hash that choose a member, by the selector's mode."""

_KNOWN = frozenset(
    {
        "p4",
        "p4_param_order",
        "row",
        "bus",
        "column",
        "stash",
        "ways",
        "input_xbar",
        "format",
        "match",
        "match_group_map",
        "gateway",
        "hit",
        "miss",
        "next",
        "actions",
        "action_bus",
        "action",
        "instruction",
        "default_action",
        "default_only_action",
        "default_action_parameters",
        "indirect",
        "stats",
        "meter",
        "meter_color",
        "stateful",
        "hash_dist",
        "context_json",
        "idletime",
        "search_bus",
        "result_bus",
        "vpns",
        "dynamic_key_masks",
        "size",
        "indirect_bus",
        "unit",
        "proxy_hash_width",
        "proxy_hash_algorithm",
        "logical_bus",
        "selector",
        "selector_length",
        # An algorithmic TCAM, whose partitions only say where the driver keeps an entry:
        "number_partitions",
        "partition_field_name",
        "subtrees_per_partition",
        "bins_per_partition",
        "atcam_subset_width",
        "shift_granularity",
        "proxy_hash_group",
    }
)
"""The keys that a match table may have; any other is refused."""


@dataclass(slots=True)
class StageTable:
    """A table of one stage at run time."""

    label: str
    stage: int
    number: int
    line: int
    gateway: Gateway | None = None
    table: MatchTable | None = None
    search: Callable[[Vector], TableEntry | None] | None = None
    actions: Mapping[str, StageAction] = field(default_factory=dict)
    always_inhibited: bool = False
    """Whether the action runs when the gateway inhibits the table (`hash_action`)."""
    hits: tuple[str | None, ...] = ()
    miss: str | None = None
    profile: Profile | None = None
    select: Read | None = None
    """The hash that chooses a member of a group."""
    is_last_part: bool = True
    """Whether no later stage continues this table. Only the last part runs the default action."""

    def next_tables(self) -> Iterator[str]:
        """Yield the name of each table that may come next."""
        names = [*self.hits, self.miss]
        if self.gateway is not None:
            names += [row.verdict.following for row in self.gateway.rows]
            names.append(self.gateway.miss.following)
        for action in self.actions.values():
            names += action.named_next
        for name in names:
            if name is not None:
                yield name

    def run(self, run: PacketRun) -> str | None:
        """Run the table on a packet and return the next table."""
        verdict = None if self.gateway is None else self.gateway.decide(run.before)
        if verdict is not None and not verdict.runs_table:
            if self.always_inhibited or verdict.action is not None:
                self._inhibited(run, verdict.action)
            return verdict.following
        if self.always_inhibited:
            if self.gateway is None:
                self._inhibited(run, None)
            return self.miss
        entry = None if self.search is None else self.search(run.before)
        if entry is not None:
            return self._hit(run, entry)
        if self.table is None or self.table.default is None or not self.is_last_part:
            return self.miss
        default = self.table.default
        action = self.actions[default.action]
        action.run(run, default, self.label)
        return action.following_miss(self.hits, self.miss)

    def _hit(self, run: PacketRun, entry: TableEntry) -> str | None:
        """Run the action of an entry, or of its member, and return the next table."""
        entry.hit_ns = run.now_ns
        if self.profile is not None:
            member = self.profile.chosen(entry, self.select, run.before)
            if member is None:
                return self.hits[0] if self.hits else None
            entry = member
        action = self.actions[entry.action]
        action.run(run, entry, self.label)
        return action.following(self.hits)

    def _inhibited(self, run: PacketRun, name: str | None) -> None:
        """Run the action of a table that its gateway inhibits.

        It is the one that the gateway names (`name`), else that of the matching entry, else the
        default action, else the only one. A named action has data only if it is the default.
        """
        assert self.table is not None
        entry = None
        if self.search is not None and name is None:
            entry = self.search(run.before)
        entry = entry or self.table.default
        if name is not None and (entry is None or entry.action != name):
            self._action(name).run(run, None, self.label)
        elif entry is not None:
            self.actions[entry.action].run(run, entry, self.label)
        elif len(self.actions) == 1:
            (only,) = self.actions.values()
            only.run(run, None, self.label)

    def _action(self, name: str) -> StageAction:
        """Return the action that a gateway names, with or without its control block."""
        if name in self.actions:
            return self.actions[name]
        suffix = f".{name}"
        actions = self.actions.values()
        return next(action for action in actions if action.name.endswith(suffix))


def _order(table: StageTable) -> tuple[int, int]:
    return table.stage, table.number


@dataclass(slots=True)
class Mau:
    """The stages of one direction."""

    start: str | None
    tables: dict[str, StageTable]

    def process(self, run: PacketRun) -> None:
        """Run a packet through the stages. What it leaves behind is in ``run.after``."""
        name = self.start
        stage = -1
        tables = self.tables
        while name is not None:
            table = tables[name]
            if table.stage != stage:
                if stage >= 0:
                    run.next_stage()
                stage = table.stage
            name = table.run(run)


@dataclass(slots=True)
class PortMetadata:
    """The table that phase 0 of the ingress parser looks up: 64 bits for each ingress port."""

    table: MatchTable
    places: Mapping[str, tuple[int, int]]
    """(lowest bit, width) of each parameter."""
    constant: int

    def data(self, port: int) -> bytes:
        """Return the eight bytes that follow the intrinsic metadata of a packet from ``port``."""
        matching = (entry for entry in self.table.entries() if entry.key == (port,))
        entry = next(matching, self.table.default)
        args = {} if entry is None else entry.args
        value = self.constant
        for name, (low, width) in self.places.items():
            mask = (1 << width) - 1
            value |= (args.get(name, 0) & mask) << low
        return value.to_bytes(8, "big")


@dataclass(slots=True)
class Loaded:
    """The contents of the stages of a program, by the names of the P4 program."""

    tables: dict[str, MatchTable] = field(default_factory=dict)
    memories: dict[str, Attached] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    port_metadata: PortMetadata | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a stage: a table, or a memory or part that tables use."""

    label: str
    kind: str
    stage: int
    number: int
    body: Pairs


_Blocks = Mapping[str, _Block]
"""The blocks of a stage by label."""


class StageLoader:
    """The loader of one direction's stages."""

    def __init__(self, names: FieldNames, loaded: Loaded) -> None:
        self._names = names
        self._loaded = loaded
        self._tables: dict[str, StageTable] = {}

    def load(self, section: Section) -> None:
        """Take one ``stage`` section. Sections come in the order of their stages."""
        stage = number(section.params[0])
        body = mapping(section.value)
        blocks: dict[str, _Block] = {}
        for key, value in body.pairs:
            if isinstance(key, Name) and key.text in ("dependency", "error_mode"):
                continue
            if not isinstance(key, Invocation) or not key.args:
                name = text(key) if isinstance(key, Name) else "this"
                raise refusal(key.line, f"'{name}' is not supported in a stage")
            label = text(key.args[0])
            content = mapping(value)
            if content.get("selection_table") is not None:
                # Only the driver uses it, to change a selector's groups.
                continue
            place = number(key.args[1]) if len(key.args) > 1 else 0
            blocks[label] = _Block(label, key.name, stage, place, content)

        # Actions name memories that may stand behind their tables in the file.
        memories = self._attached(blocks)
        for label, block in blocks.items():
            line = block.body.line
            if block.kind == "phase0_match":
                self._phase0(label, block.body)
            elif block.kind == "gateway":
                gateway = load_gateway(block.body, self._names, stage)
                self._tables[label] = StageTable(label, stage, block.number, line, gateway)
            elif block.kind in _MATCH_KINDS:
                self._match(block, blocks, memories)
            elif block.kind not in _MEMORIES and block.kind not in _PARTS:
                raise refusal(line - 1, f"a table of kind '{block.kind}' is not supported")

    def _attached(self, blocks: _Blocks) -> dict[str, Attached]:
        """Return the counters, meters and registers of a stage by label."""
        sizes: dict[str, int] = {}
        for label, block in blocks.items():
            if block.kind in _MATCH_KINDS:
                p4 = mapping(block.body.get("p4"))
                sizes[label] = number(p4.get("size"), 1)
        memories: dict[str, Attached] = {}
        for label, block in blocks.items():
            if block.kind in _MEMORIES:
                memory = load_attached(
                    block.kind, label, block.body, self._names, block.stage, sizes
                )
                memories[label] = memory
                self._loaded.memories[memory.name] = memory
        return memories

    def finish(self) -> Mau:
        """Return the stages, after checking that every next table exists."""
        last_parts: dict[int, StageTable] = {}
        for table in self._tables.values():
            self._check_order(table)
            if table.table is None:
                continue
            # Tables come in the order of their stages.
            earlier = last_parts.get(id(table.table))
            if earlier is not None:
                earlier.is_last_part = False
            last_parts[id(table.table)] = table
        if not self._tables:
            return Mau(None, {})
        first = min(self._tables.values(), key=_order)
        return Mau(first.label, self._tables)

    def _check_order(self, table: StageTable) -> None:
        """Refuse a table that names a next one which does not exist or came before."""
        for name in table.next_tables():
            following = self._tables.get(name)
            if following is None:
                raise refusal(
                    table.line,
                    f"the table '{table.label}' goes on to '{name}', which does not exist",
                )
            if _order(following) <= _order(table):
                raise refusal(table.line, f"the table '{table.label}' goes back to '{name}'")

    # -- one table ---------------------------------------------------------------------------------

    def _phase0(self, label: str, body: Pairs) -> None:
        p4_name = mapping(body.get("p4")).get("name")
        keys = []
        for key, settings in mapping(body.get("p4_param_order")).pairs:
            keys.append(self._key(key, mapping(settings)))
        places = {}
        for field_name, span in mapping(body.get("format")).pairs:
            low, high = bounds(span)
            places[text(field_name)] = (low, high - low + 1)
        specs = []
        for key, value in mapping(body.get("actions")).pairs:
            listed = Pairs(key.line, ((key, value),))
            (action,) = load_actions(listed, self._names, 0, {}, {})
            specs.append(action.spec(set(), None))
        name = label if p4_name is None else text(p4_name)
        table = MatchTable(name, keys, specs, number(body.get("size"), _PORTS))
        if not table.keys:
            return
        self._loaded.tables[table.name] = table
        constant = number(body.get("constant_value"), 0)
        self._loaded.port_metadata = PortMetadata(table, places, constant)

    def _key(self, key: Term, settings: Pairs) -> KeyField:
        name = settings.get("key_name") or settings.get("name")
        kind = settings.get("type")
        mask = settings.get("mask")
        return KeyField(
            name=name_of(key) if name is None else text(name),
            match="exact" if kind is None else text(kind),
            width=number(settings.get("size")),
            mask=None if mask is None else number(mask),
        )

    def _match(
        self,
        block: _Block,
        blocks: _Blocks,
        memories: Mapping[str, Attached],
    ) -> None:
        label = block.label
        stage = block.stage
        body = block.body
        _check_settings(body)
        if block.kind == "atcam_match":
            _check_partitions(body)
        inner = _indirect(body, blocks)
        sources = (body,) if inner is body else (body, inner)
        units = self._units(sources, stage)
        listed = inner.get("actions")
        if not items(listed) and not mapping(listed).pairs:
            raise refusal(
                body.line - 1,
                f"the table '{label}' has no actions: the compiler may have ended early",
            )
        references = _references(inner)
        actions = load_actions(mapping(listed), self._names, stage, units, memories, references)
        table, reads = self._control(block, inner, actions)
        profile = self._profile(block, inner, blocks, actions)
        table.is_indirect = profile is not None

        hits = tuple(target(item) for item in items(body.get("hit")))
        only = body.get("next")
        miss = target(body.get("miss") if only is None else only)
        if only is not None and not hits:
            hits = (target(only),)

        stage_table = StageTable(label, stage, block.number, body.line - 1)
        stage_table.gateway = self._gateway(body.get("gateway"), stage, actions)
        stage_table.table = table
        if reads:
            stage_table.search = table.searcher(reads)
        stage_table.actions = {action.name: action for action in actions}
        stage_table.always_inhibited = block.kind == "hash_action"
        stage_table.hits = hits
        stage_table.miss = miss
        if profile is not None:
            stage_table.profile = profile
            stage_table.select = self._selector(stage, inner, blocks, profile)
        self._tables[label] = stage_table

    def _units(self, sources: Iterable[Pairs], stage: int) -> dict[int, HashUnit]:
        """Return the hash distribution units of a table, from each part that may list them."""
        groups = HashGroups(self._names, stage)
        for source in sources:
            groups.load(source.get("input_xbar"))
        units: dict[int, HashUnit] = {}
        for source in sources:
            units.update(load_units(source, groups))
        return units

    def _gateway(
        self,
        node: Term | None,
        stage: int,
        actions: Iterable[StageAction],
    ) -> Gateway | None:
        """Return the gateway within a table.

        Its actions run without an entry, so that they must not need the data of one.
        """
        if node is None:
            return None
        gateway = load_gateway(mapping(node), self._names, stage)
        for row in gateway.rows:
            name = row.verdict.action
            if name is None:
                continue
            if any(action.packs for action in actions if action.name.endswith(name)):
                raise refusal(node.line, "entries with data in a gateway are not supported")
        return gateway

    def _profile(
        self,
        block: _Block,
        inner: Pairs,
        blocks: _Blocks,
        actions: list[StageAction],
    ) -> Profile | None:
        """Return the action profile of a table, or None.

        It is made for the first table that uses it.
        """
        profile_name = mapping(block.body.get("p4")).get("action_profile")
        if profile_name is None:
            return None
        name = text(profile_name)
        data = inner.get("action")
        size = None
        if isinstance(data, Invocation) and data.name in blocks:
            size = mapping(blocks[data.name].body.get("p4")).get("size")
        profile = self._loaded.profiles.get(name)
        if profile is None:
            specs = [action.spec(action.flags, None) for action in actions]
            profile = Profile(name, specs, number(size, _PROFILE_SIZE))
            self._loaded.profiles[name] = profile
        profile.packers[block.label] = {action.name: action.pack for action in actions}
        profile.repack()
        return profile

    def _selector(
        self,
        stage: int,
        inner: Pairs,
        blocks: _Blocks,
        profile: Profile,
    ) -> Read | None:
        """Return the hash of a table's selector; None if it has none."""
        used = inner.get("selector")
        if not isinstance(used, Invocation) or used.name not in blocks:
            return None
        body = blocks[used.name].body
        selector_name = mapping(body.get("p4")).get("name")
        profile.selector = used.name if selector_name is None else text(selector_name)
        groups = HashGroups(self._names, stage)
        groups.load(body.get("input_xbar"))
        mode = body.get("mode")
        low = 0
        width = _RESILIENT_BITS
        if isinstance(mode, Invocation) and mode.name == "fair":
            low = number(mode.args[0]) * _FAIR_BITS
            width = _FAIR_BITS
        return groups.only(low, low + width - 1, body.line)

    def _control(
        self,
        block: _Block,
        inner: Pairs,
        actions: list[StageAction],
    ) -> tuple[MatchTable, list[Read]]:
        """Return the control plane's table, and how to read its key here.

        The table is made for the first of its parts.
        """
        body = block.body
        p4 = mapping(body.get("p4"))
        declared = p4.get("name")
        if declared is None or _is_preclassifier(block.kind, p4):
            name = block.label
        else:
            name = text(declared)
        keys = []
        reads = []
        for key, settings in mapping(body.get("p4_param_order")).pairs:
            details = mapping(settings)
            matched = self._key(key, details)
            start = number(details.get("start_bit"), 0)
            read = self._names.field_reader(
                name_of(key),
                start,
                matched.width,
                block.stage,
                key.line,
                matched.mask,
            )
            reads.append(read)
            keys.append(matched)
        table = self._loaded.tables.get(name)

        static = items(mapping(body.get("context_json")).get("static_entries"))
        default = inner.get("default_action") or inner.get("default_only_action")
        if table is None:
            const_default = None if default is None else text(default)
            specs = [action.spec(action.flags, const_default) for action in actions]
            size = number(p4.get("size"), max(len(static), 1))
            table = MatchTable(name, keys, specs, size)
            self._loaded.tables[name] = table
        table.packers[block.label] = {action.name: action.pack for action in actions}
        if default is not None and table.default is None:
            _set_default(table, default, mapping(inner.get("default_action_parameters")))
        else:
            table.repack()
        for entry in static:
            try:
                _insert_static(table, mapping(entry))
            except (TableError, ValueError) as error:
                raise refusal(entry.line, str(error)) from None
        return table, reads


def _indirect(body: Pairs, blocks: _Blocks) -> Pairs:
    """Return the part that has a table's actions: that of its indirection, or the table itself."""
    indirect = body.get("indirect")
    if isinstance(indirect, Pairs):
        return indirect
    if not isinstance(indirect, Name):
        return body
    if indirect.text not in blocks:
        raise refusal(indirect.line, f"there is no '{indirect.text}' in this stage")
    return blocks[indirect.text].body


def _check_settings(body: Pairs) -> None:
    """Refuse a match table with a setting that is not known."""
    for key, _ in body.pairs:
        if not isinstance(key, Name) or key.text not in _KNOWN:
            name = name_of(key) if isinstance(key, Name | Invocation) else "this"
            raise refusal(key.line, f"'{name}' is not supported in a match table")


def _set_default(
    table: MatchTable,
    default: Term,
    params: Pairs,
) -> None:
    """Set the program's default action. Parameters that the file does not give are 0."""
    name = text(default)
    args = {text(key): number(value) for key, value in params.pairs}
    spec = table.actions.get(name)
    if spec is None:
        raise refusal(default.line, f"the default action '{name}' does not exist")
    all_args = {param: args.get(param, 0) for param in spec.params}
    table.set_default(name, all_args)


def _is_preclassifier(kind: str, p4: Pairs) -> bool:
    """Return whether a table finds the partition of an algorithmic LPM table.

    The two have the same name in ``p4``.

    Entries belong to the table that it precedes. They are matched by value there, whatever the
    partition.
    """
    how = p4.get("match_type")
    return kind == "ternary_match" and how is not None and text(how) == "alpm"


def _check_partitions(body: Pairs) -> None:
    """Refuse an algorithmic LPM table that matches only a part of its key.

    Its partition stands for the rest.

    Its entries cannot be matched by value.
    """
    left_out = mapping(body.get("context_json")).get("excluded_field_msb_bits")
    keys = [name_of(key) for key, _ in mapping(body.get("p4_param_order")).pairs]
    has_partition_key = any(name.endswith("_partition_key") for name in keys)
    if items(left_out) or has_partition_key:
        raise refusal(
            body.line - 1,
            "an LPM table whose partitions hold only a part of the key is not supported",
        )


def _insert_static(table: MatchTable, entry: Pairs) -> None:
    """Add an entry that the P4 program itself has."""
    key = []
    nodes = items(entry.get("match_key_fields_values"))
    for matched, node in zip(table.keys, nodes, strict=True):
        key.append(_static_element(matched, mapping(node)))
    handle = number(entry.get("action_handle"))
    specs = table.actions.values()
    action = next((spec for spec in specs if spec.handle == handle), None)
    if action is None:
        raise refusal(entry.line, f"the entry's action {handle:#x} does not exist")
    args = {}
    for node in items(entry.get("action_parameters_values")):
        param = mapping(node)
        name = param.get("parameter_name")
        if name is not None:
            args[text(name)] = number(param.get("value"))
    priority = number(entry.get("priority"), 0)
    table.insert(key, action.name, args, priority)


def _static_element(matched: KeyField, values: Pairs) -> KeyElement:
    """Return the match of one field of an entry that the program has."""
    value = values.get("value")
    if matched.match == "range":
        if value is not None:
            # A range of one number is written as that number.
            return number(value), number(value)
        return number(values.get("range_start")), number(values.get("range_end"))
    if matched.match == "ternary":
        # p4c gives some keys that are slices a mask as wide as the whole field.
        full = (1 << matched.width) - 1
        mask = number(values.get("mask"), full) & full
        return number(value) & mask, mask
    return number(value)


def _references(body: Pairs) -> dict[str, Invocation]:
    """Return how a table addresses each of its memories, by the memory's name.

    An address is written as ``stats: name(hash_dist 0, counter_pfe)``.
    """
    references = {}
    for key, value in body.pairs:
        if isinstance(key, Name) and key.text in ("stats", "meter", "stateful", "action"):
            for item in items(value):
                if isinstance(item, Invocation):
                    references[item.name] = item
    return references
