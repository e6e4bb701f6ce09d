"""The match-action stages: tables that match, run actions and name the next table, until none is
left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from echelon_tofino_model.emulator.hashing import HashGroups, load_units
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
"""The members of an action profile whose actions have no data, for which the assembly gives no
size.
"""

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
"""What may stand in a match table. Anything else is refused."""


@dataclass(slots=True)
class StageTable:
    """A table of one stage at run time."""

    label: str
    stage: int
    number: int
    line: int
    gateway: Gateway | None
    table: MatchTable | None
    search: Callable[[Vector], TableEntry | None] | None
    actions: Mapping[str, StageAction]
    always_inhibited: bool
    """Whether the action runs when the gateway inhibits the table, not when it lets it run
    (`hash_action`).
    """
    hits: tuple[str | None, ...]
    miss: str | None
    profile: Profile | None = None
    select: Read | None = None
    """The hash that chooses a member of a group."""
    is_last_part: bool = True
    """Whether no later stage continues this table. Only the last part runs the default action."""

    def run(self, run: PacketRun) -> str | None:
        """Run the table on a packet and return the next table."""
        if self.gateway is None:
            verdict = None
        else:
            verdict = self.gateway.decide(run.before)
        if verdict is not None and not verdict.runs_table:
            if self.always_inhibited or verdict.action is not None:
                self._inhibited(run, verdict.action)
            return verdict.following
        if self.always_inhibited:
            if self.gateway is None:
                self._inhibited(run, None)
            return self.miss
        if self.search is None:
            entry = None
        else:
            entry = self.search(run.before)
        if entry is not None:
            entry.hit_ns = run.now_ns
            if self.profile is not None:
                member = self.profile.chosen(entry, self.select, run.before)
                if member is None:
                    return self.hits[0] if self.hits else None
                entry = member
            action = self.actions[entry.action]
            action.run(run, entry, self.label)
            return action.following(self.hits)
        if self.table is None or not self.is_last_part:
            default = None
        else:
            default = self.table.default
        if default is None:
            return self.miss
        action = self.actions[default.action]
        action.run(run, default, self.label)
        return action.following_miss(self.hits, self.miss)

    def _inhibited(self, run: PacketRun, name: str | None) -> None:
        """Run the action of an inhibited table: the entry that its key selects, or its only or
        default action.
        """
        assert self.table is not None
        if self.search is None or name is not None:
            entry = None
        else:
            entry = self.search(run.before)
        entry = entry or self.table.default
        if name is not None and (entry is None or entry.action != name):
            action = self.actions.get(name) or next(
                a for a in self.actions.values() if a.name.endswith(f".{name}")
            )
            action.run(run, None, self.label)
        elif entry is not None:
            self.actions[entry.action].run(run, entry, self.label)
        elif len(self.actions) == 1:
            next(iter(self.actions.values())).run(run, None, self.label)


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
        entry = next((e for e in self.table.entries() if e.key == (port,)), self.table.default)
        value = self.constant
        for name, (low, width) in self.places.items():
            value |= (0 if entry is None else entry.args.get(name, 0) & (1 << width) - 1) << low
        return value.to_bytes(8, "big")


@dataclass(slots=True)
class Loaded:
    """The contents of the stages of a program, by the names of the P4 program."""

    tables: dict[str, MatchTable] = field(default_factory=dict)
    memories: dict[str, Attached] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    port_metadata: PortMetadata | None = None


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
        blocks: dict[str, tuple[str, Pairs]] = {}
        numbers: dict[str, int] = {}
        for key, value in body.pairs:
            if isinstance(key, Name) and key.text in ("dependency", "error_mode"):
                continue
            if not isinstance(key, Invocation) or not key.args:
                raise refusal(
                    key.line,
                    f"'{text(key) if isinstance(key, Name) else 'this'}' is not supported in a"
                    " stage",
                )
            label = text(key.args[0])
            content = mapping(value)
            if content.get("selection_table") is not None:
                continue  # only the driver uses it, to change a selector's groups
            blocks[label] = key.name, content
            if len(key.args) > 1:
                numbers[label] = number(key.args[1])
        sizes = {
            label: number(mapping(content.get("p4")).get("size"), 1)
            for label, (kind, content) in blocks.items()
            if kind in _MATCH_KINDS
        }
        memories: dict[str, Attached] = {}
        for label, (kind, content) in blocks.items():
            if kind in _MEMORIES:
                memories[label] = load_attached(kind, label, content, self._names, stage, sizes)
                self._loaded.memories[memories[label].name] = memories[label]
        for label, (kind, content) in blocks.items():
            if kind == "phase0_match":
                self._phase0(label, content)
            elif kind == "gateway":
                gateway = load_gateway(content, self._names, stage)
                self._add(
                    StageTable(
                        label,
                        stage,
                        numbers.get(label, 0),
                        content.line,
                        gateway,
                        None,
                        None,
                        {},
                        False,
                        (),
                        None,
                    )
                )
            elif kind in _MATCH_KINDS:
                self._match(label, kind, stage, numbers.get(label, 0), content, blocks, memories)
            elif kind not in _MEMORIES and kind not in _PARTS:
                raise refusal(content.line - 1, f"a table of kind '{kind}' is not supported")

    def finish(self) -> Mau:
        """Return the stages, after checking that every next table exists."""
        for table in self._tables.values():
            follows = [*table.hits, table.miss]
            if table.gateway is not None:
                follows += [row.verdict.following for row in table.gateway.rows] + [
                    table.gateway.miss.following
                ]
            follows += [name for action in table.actions.values() for name in action.named_next]
            for name in follows:
                if name is not None and name not in self._tables:
                    raise refusal(
                        table.line,
                        f"the table '{table.label}' goes on to '{name}', which does not exist",
                    )
                if name is not None and (self._tables[name].stage, self._tables[name].number) <= (
                    table.stage,
                    table.number,
                ):
                    raise refusal(table.line, f"the table '{table.label}' goes back to '{name}'")
        parts: dict[int, list[StageTable]] = {}
        for table in self._tables.values():
            if table.table is not None:
                parts.setdefault(id(table.table), []).append(table)
        for group in parts.values():
            for table in group[:-1]:
                table.is_last_part = False
        first = min(
            self._tables.values(), key=lambda table: (table.stage, table.number), default=None
        )
        return Mau(None if first is None else first.label, self._tables)

    def _add(self, table: StageTable) -> None:
        self._tables[table.label] = table

    # -- one table ---------------------------------------------------------------------------------

    def _phase0(self, label: str, body: Pairs) -> None:
        p4 = mapping(body.get("p4"))
        name = p4.get("name")
        keys = [
            self._key(key, mapping(settings))
            for key, settings in mapping(body.get("p4_param_order")).pairs
        ]
        places = {}
        for field_name, span in mapping(body.get("format")).pairs:
            low, high = bounds(span)
            places[text(field_name)] = (low, high - low + 1)
        specs = []
        for key, value in mapping(body.get("actions")).pairs:
            action = load_actions(Pairs(key.line, ((key, value),)), self._names, 0, {}, {})[0]
            specs.append(action.spec(set(), None))
        table = MatchTable(
            label if name is None else text(name), keys, specs, number(body.get("size"), 288)
        )
        if not table.keys:
            return
        self._loaded.tables[table.name] = table
        self._loaded.port_metadata = PortMetadata(
            table, places, number(body.get("constant_value"), 0)
        )

    def _key(self, key: Term, settings: Pairs) -> KeyField:
        name = settings.get("key_name") or settings.get("name") or key
        kind = settings.get("type")
        mask = settings.get("mask")
        return KeyField(
            key.name if name is key and isinstance(key, Invocation) else text(name),
            "exact" if kind is None else text(kind),
            number(settings.get("size")),
            None if mask is None else number(mask),
        )

    def _match(
        self,
        label: str,
        kind: str,
        stage: int,
        place: int,
        body: Pairs,
        blocks: Mapping[str, tuple[str, Pairs]],
        memories: Mapping[str, Attached],
    ) -> None:
        indirect = body.get("indirect")
        inner = body
        if isinstance(indirect, Name):
            if indirect.text not in blocks:
                raise refusal(indirect.line, f"there is no '{indirect.text}' in this stage")
            inner = blocks[indirect.text][1]
        elif isinstance(indirect, Pairs):
            inner = indirect
        for key, _ in body.pairs:
            if not isinstance(key, Name) or key.text not in _KNOWN:
                if isinstance(key, Invocation):
                    what = key.name
                elif isinstance(key, Name):
                    what = key.text
                else:
                    what = "this"
                raise refusal(key.line, f"'{what}' is not supported in a match table")
        if kind == "atcam_match":
            _check_partitions(body)
        groups = HashGroups(self._names, stage)
        units = {}
        for source in {id(body): body, id(inner): inner}.values():
            groups.load(source.get("input_xbar"))
        for source in {id(body): body, id(inner): inner}.values():
            units.update(load_units(source, groups))
        if not items(inner.get("actions")) and not mapping(inner.get("actions")).pairs:
            raise refusal(
                body.line - 1,
                f"the table '{label}' has no actions: the compiler may have ended early",
            )
        references = _references(inner)
        actions = load_actions(
            mapping(inner.get("actions")), self._names, stage, units, memories, references
        )
        table, reads = self._control(label, kind, stage, body, inner, actions)
        profile = self._profile(label, body, inner, blocks, actions)
        table.is_indirect = profile is not None
        gateway = body.get("gateway")
        if gateway is None:
            decides = None
        else:
            decides = load_gateway(mapping(gateway), self._names, stage)
        for row in () if decides is None else decides.rows:
            chosen = row.verdict.action
            if chosen is not None and any(
                action.packs for action in actions if action.name.endswith(chosen)
            ):
                raise refusal(
                    mapping(gateway).line, "entries with data in a gateway are not supported"
                )
        hits = tuple(target(item) for item in items(body.get("hit")))
        only = body.get("next")
        miss = target(body.get("miss") if only is None else only)
        if only is not None and not hits:
            hits = (target(only),)
        self._add(
            StageTable(
                label,
                stage,
                place,
                body.line - 1,
                decides,
                table,
                table.searcher(reads) if reads else None,
                {action.name: action for action in actions},
                kind == "hash_action",
                hits,
                miss,
                profile,
                None if profile is None else self._selector(stage, inner, blocks, profile),
            )
        )

    def _profile(
        self,
        label: str,
        body: Pairs,
        inner: Pairs,
        blocks: Mapping[str, tuple[str, Pairs]],
        actions: list[StageAction],
    ) -> Profile | None:
        """Return the action profile of a table, made for the first table that uses it; None if it
        has none.
        """
        given = mapping(body.get("p4")).get("action_profile")
        if given is None:
            return None
        name = text(given)
        data = inner.get("action")
        size = None
        if isinstance(data, Invocation) and data.name in blocks:
            size = mapping(blocks[data.name][1].get("p4")).get("size")
        profile = self._loaded.profiles.get(name)
        if profile is None:
            specs = [action.spec(action.flags, None) for action in actions]
            profile = self._loaded.profiles[name] = Profile(
                name, specs, number(size, _PROFILE_SIZE)
            )
        profile.packers[label] = {action.name: action.pack for action in actions}
        profile.repack()
        return profile

    def _selector(
        self, stage: int, inner: Pairs, blocks: Mapping[str, tuple[str, Pairs]], profile: Profile
    ) -> Read | None:
        """Return the hash of a table's selector; None if it has none."""
        used = inner.get("selector")
        if not isinstance(used, Invocation) or used.name not in blocks:
            return None
        body = blocks[used.name][1]
        given = mapping(body.get("p4")).get("name")
        profile.selector = used.name if given is None else text(given)
        groups = HashGroups(self._names, stage)
        groups.load(body.get("input_xbar"))
        mode = body.get("mode")
        if isinstance(mode, Invocation) and mode.name == "fair":
            part = number(mode.args[0])
        else:
            part = None
        if part is None:
            low = 0
            high = _RESILIENT_BITS - 1
        else:
            low = part * _FAIR_BITS
            high = (part + 1) * _FAIR_BITS - 1
        return groups.only(low, high, body.line)

    def _control(
        self,
        label: str,
        kind: str,
        stage: int,
        body: Pairs,
        inner: Pairs,
        actions: list[StageAction],
    ) -> tuple[MatchTable, list[Read]]:
        """Return the control plane's table, made for the first of its parts, and how to read its
        key here.
        """
        p4 = mapping(body.get("p4"))
        given = p4.get("name")
        if given is None or _is_preclassifier(kind, p4):
            name = label
        else:
            name = text(given)
        keys = []
        reads = []
        for key, settings in mapping(body.get("p4_param_order")).pairs:
            details = mapping(settings)
            field_ = self._key(key, details)
            if isinstance(key, Invocation):
                phv_name = key.name
            else:
                phv_name = text(key)
            start = number(details.get("start_bit"), 0)
            reads.append(
                self._names.field_reader(
                    phv_name, start, field_.width, stage, key.line, field_.mask
                )
            )
            keys.append(field_)
        table = self._loaded.tables.get(name)
        static = items(mapping(body.get("context_json")).get("static_entries"))
        default = inner.get("default_action") or inner.get("default_only_action")
        if table is None:
            const_default = None if default is None else text(default)
            specs = [action.spec(action.flags, const_default) for action in actions]
            table = MatchTable(name, keys, specs, number(p4.get("size"), max(len(static), 1)))
            self._loaded.tables[name] = table
        table.packers[label] = {action.name: action.pack for action in actions}
        if default is not None and table.default is None:
            given_args = mapping(inner.get("default_action_parameters"))
            args = {text(key): number(value) for key, value in given_args.pairs}
            spec = table.actions.get(text(default))
            if spec is None:
                raise refusal(default.line, f"the default action '{text(default)}' does not exist")
            table.set_default(text(default), {param: args.get(param, 0) for param in spec.params})
        else:
            table.repack()
        for entry in static:
            try:
                _insert_static(table, mapping(entry))
            except (TableError, ValueError) as error:
                raise refusal(entry.line, str(error)) from None
        return table, reads


def _is_preclassifier(kind: str, p4: Pairs) -> bool:
    """Return whether a table finds the partition of an algorithmic LPM table, which has the same
    name in ``p4``.

    Entries belong to the table that it precedes. They are matched by value there, whatever the
    partition.
    """
    how = p4.get("match_type")
    return kind == "ternary_match" and how is not None and text(how) == "alpm"


def _check_partitions(body: Pairs) -> None:
    """Refuse an algorithmic LPM table that matches only a part of its key, because its partition
    stands for the rest.

    Its entries cannot be matched by value.
    """
    left_out = mapping(body.get("context_json")).get("excluded_field_msb_bits")
    subset = [
        key
        for key, _ in mapping(body.get("p4_param_order")).pairs
        if name_of(key).endswith("_partition_key")
    ]
    if items(left_out) or subset:
        raise refusal(
            body.line - 1,
            "an LPM table whose partitions hold only a part of the key is not supported",
        )


def _insert_static(table: MatchTable, entry: Pairs) -> None:
    """Add an entry that the P4 program itself has."""
    key: list[KeyElement] = []
    for match, node in zip(table.keys, items(entry.get("match_key_fields_values")), strict=True):
        values = mapping(node)
        if match.match == "range":
            single = values.get("value")  # a range of one number is written as that number
            if single is None:
                ends = (values.get("range_start"), values.get("range_end"))
            else:
                ends = (single, single)
            key.append((number(ends[0]), number(ends[1])))
        elif match.match == "ternary":
            # p4c gives some keys that are slices a mask as wide as the whole field.
            full = (1 << match.width) - 1
            mask = number(values.get("mask"), full) & full
            key.append((number(values.get("value")) & mask, mask))
        else:
            key.append(number(values.get("value")))
    handle = number(entry.get("action_handle"))
    action = next((spec for spec in table.actions.values() if spec.handle == handle), None)
    if action is None:
        raise refusal(entry.line, f"the entry's action {handle:#x} does not exist")
    args = {}
    for param in items(entry.get("action_parameters_values")):
        name = mapping(param).get("parameter_name")
        if name is not None:
            args[text(name)] = number(mapping(param).get("value"))
    table.insert(key, action.name, args, number(entry.get("priority"), 0))


def _references(body: Pairs) -> dict[str, Invocation]:
    """Return how a table addresses each of its memories, as ``stats: name(hash_dist 0,
    counter_pfe)``, by the name.
    """
    found = {}
    for key, value in body.pairs:
        if isinstance(key, Name) and key.text in ("stats", "meter", "stateful", "action"):
            for item in items(value):
                if isinstance(item, Invocation):
                    found[item.name] = item
    return found
