"""Tables, conditions, action profiles: the control flow of ingress and egress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.numerals import brief

from .earlier import profile_name, profiles_in_tables, table_actions
from .reader import Reader
from .scope import Scope, algorithm

_MATCH_TYPES = ("exact", "lpm", "ternary", "range")
"""The match types of tables, from the most special to the most general."""
_DEFAULT_SIZE = 1024
"""The entries of a table whose size p4c has not written."""


class PipelineReader:
    """A reader of the pipelines of a program whose actions and arrays are known."""

    def __init__(
        self,
        scope: Scope,
        counters: Mapping[str, ir.CounterArray],
        meters: Mapping[str, ir.MeterArray],
    ) -> None:
        self.scope = scope
        self.profiles: dict[str, ir.ActionProfileSpec] = {}
        self._counters = _by_table(counters.values())
        self._meters = _by_table(meters.values())

    def pipelines(self) -> dict[str, ir.PipelineSpec]:
        """Return ``ingress`` and ``egress``. The action profiles are found on the way."""
        root = self.scope.root
        for item in root.members("pipelines"):
            for reader in item.members("action_profiles"):
                name, placed = reader.named("action profile")
                self._add_profile(name, placed, placed.integer_of("max_size"))
            for name, placed, size in profiles_in_tables(item):
                self._add_profile(name, placed, size)
        pipelines = self.scope.named("pipelines", "pipeline", self._pipeline)
        for needed in ("ingress", "egress"):
            if needed not in pipelines:
                raise root.fail(f"has no pipeline '{needed}'")
        tables: list[str] = []
        for pipeline in pipelines.values():
            nodes = pipeline.nodes.values()
            tables += [node.name for node in nodes if isinstance(node, ir.TableSpec)]
        if len(set(tables)) != len(tables):
            raise root.fail("two pipelines have a table of the same name")
        names = frozenset(tables)
        _check_bindings("counter array", self._counters, names)
        _check_bindings("meter array", self._meters, names)
        return pipelines

    def _pipeline(self, name: str, reader: Reader) -> ir.PipelineSpec:
        nodes: dict[str, ir.Node] = {}
        for node in self._nodes(reader):
            if node.name in nodes:
                raise ProgramError(node.place, "is defined twice")
            nodes[node.name] = node
        initial = reader.optional_text("init_table")
        for place, target in _edges(nodes):
            if target is not None and target not in nodes:
                raise ProgramError(place, f"there is no table or condition '{target}'")
        if initial is not None and initial not in nodes:
            raise reader.fail(f"there is no table or condition '{initial}'")
        _refuse_cycles(name, nodes, initial)
        return ir.PipelineSpec(name, initial, nodes)

    def _nodes(self, reader: Reader) -> Iterator[ir.Node]:
        for item in reader.members("tables"):
            yield self._table(item)
        for item in reader.members("conditionals"):
            name, node = item.named("condition")
            expression = node.get("expression").with_place(node.place)
            condition = self.scope.expr(expression)
            if_true = node.optional_text("true_next")
            if_false = node.optional_text("false_next")
            yield ir.Conditional(name, condition, if_true, if_false, node.place, node.origin())
        for item in reader.members("action_calls"):
            name, node = item.named("action call")
            action = self.scope.action_id(node.get("action_id"))
            if action.params:
                raise node.fail(f"action '{action.name}' has parameters")
            following = node.optional_text("next_node")
            yield ir.DirectCall(name, action.id, following, node.place, node.origin())

    def _call(self, reader: Reader, allowed: tuple[int, ...]) -> ir.ActionCall:
        action = self.scope.action_id(reader.get("action_id"))
        if action.id not in allowed:
            raise reader.fail(f"action '{action.name}' is not one of the table's")
        args = tuple(item.hexadecimal() for item in reader.members("action_data"))
        if len(args) != len(action.params):
            raise reader.fail(
                f"action '{action.name}' takes {len(action.params)} arguments, has {len(args)}"
            )
        values = []
        for argument, param in zip(args, action.params, strict=True):
            values.append(argument & ((1 << param.width) - 1))
        return ir.ActionCall(action.id, tuple(values))

    def _table(self, item: Reader) -> ir.TableSpec:
        name, reader = item.named("table")
        match = reader.text_of("match_type")
        if match not in _MATCH_TYPES:
            raise reader.fail(f"match type '{match}' is not supported")
        fields = reader.numbered(reader.elements_of("key"), "key")
        keys = tuple(map(self._key, fields))
        _check_match(reader, match, keys)
        actions = table_actions(self.scope, reader)
        names: dict[str, int] = {}
        for action in actions:
            names[self.scope.actions[action].name] = action
        if len(names) != len(set(actions)):
            raise reader.fail("two of its actions have the same name")
        profile = self._profile_of_table(reader)
        default = None
        is_const = has_const_action = False
        default_entry = reader.find("default_entry")
        if default_entry is not None:
            default = self._call(default_entry, actions)
            is_const = default_entry.flag("action_entry_const")
            has_const_action = default_entry.flag("action_const")
        entries = None
        if reader.find("entries") is not None:
            entries = self._entries(reader, keys, actions, match)
        max_size = _DEFAULT_SIZE
        size = reader.find("max_size")
        if size is not None:
            max_size = size.integer()
        by_hit, hit, miss, by_action = self._next_tables(reader, names)
        return ir.TableSpec(
            name=name,
            id=reader.integer_of("id"),
            match=match,
            keys=keys,
            actions=actions,
            profile=profile,
            max_size=max_size,
            counters=self._counters.get(name),
            meter=self._meters.get(name),
            timeout=reader.flag("support_timeout"),
            default=default,
            default_const=is_const,
            default_action_const=has_const_action,
            entries=entries,
            by_hit=by_hit,
            next_on_hit=hit,
            next_on_miss=miss,
            next_by_action=by_action,
            next_base=reader.optional_text("base_default_next"),
            place=reader.place,
            origin=reader.origin(),
        )

    def _profile_of_table(self, reader: Reader) -> str | None:
        kind = reader.text_of("type")
        if kind not in ("simple", "indirect", "indirect_ws"):
            raise reader.fail(f"implementation '{kind}' is not supported")
        if kind == "simple":
            return None
        profile = self.scope.existing(profile_name(reader), self.profiles, "action profile")
        has_selector = self.profiles[profile].selector is not None
        if has_selector == (kind == "indirect"):
            raise reader.fail(f"type '{kind}' does not fit action profile '{profile}'")
        return profile

    def _next_tables(
        self, reader: Reader, names: Mapping[str, int]
    ) -> tuple[bool, str | None, str | None, dict[int, str | None]]:
        successors = reader.get("next_tables")
        if not isinstance(successors.value, dict):
            raise successors.fail("must be an object")
        by_hit = "__HIT__" in successors.value or "__MISS__" in successors.value
        base = reader.optional_text("base_default_next")
        hit = miss = base
        if "__HIT__" in successors.value:
            hit = successors.optional_text("__HIT__")
        if "__MISS__" in successors.value:
            miss = successors.optional_text("__MISS__")
        by_action: dict[int, str | None] = {}
        for action in successors.value:
            if action in ("__HIT__", "__MISS__"):
                continue
            if action not in names:
                raise successors.fail(f"action '{action}' is not one of the table's")
            by_action[names[action]] = successors.optional_text(action)
        return by_hit, hit, miss, by_action

    def _key(self, reader: Reader) -> ir.Key:
        match = reader.text_of("match_type")
        target = reader.get("target").with_place(reader.place)
        value: ir.Expr
        if match == "valid":
            value = ir.ValidRef(self.scope.existing(target, self.scope.headers, "header"))
            match = "exact"
        elif match in (*_MATCH_TYPES, "optional"):
            # A field of a stack element that the packet selects is an expression.
            if isinstance(target.value, dict):
                value = self.scope.operation(target, None)
            else:
                value = self.scope.field_or_valid(target)
            if match == "optional":
                match = "ternary"
        else:
            raise reader.fail(f"match type '{match}' is not supported")
        width = self.scope.width(value, reader)
        mask = None
        mask_reader = reader.find("mask")
        if mask_reader is not None:
            mask = mask_reader.hexadecimal() & ((1 << width) - 1)
        name = reader.optional_text("name") or _spoken(value)
        return ir.Key(name, match, value, width, mask)

    def _entries(
        self,
        table: Reader,
        keys: tuple[ir.Key, ...],
        actions: tuple[int, ...],
        match: str,
    ) -> tuple[ir.ConstEntry, ...]:
        read: list[tuple[tuple[int | tuple[int, int], ...], int, ir.ActionCall]] = []
        for i, reader in enumerate(table.numbered(table.elements_of("entries"), "entry")):
            parts = reader.elements_of("match_key")
            if len(parts) != len(keys):
                raise reader.fail(f"must have {len(keys)} key elements, has {len(parts)}")
            elements = tuple(map(_key_element, reader.numbered(parts, "key"), keys))
            rank = i
            priority = reader.find("priority")
            if priority is not None and match not in ("exact", "lpm"):
                rank = priority.integer()
            call = self._call(reader.get("action_entry"), actions)
            read.append((elements, rank, call))
        # In BMv2 the lowest priority number wins, in P4Runtime the highest.
        worst = max((rank for _, rank, _ in read), default=0)
        entries: list[ir.ConstEntry] = []
        for elements, rank, call in read:
            entries.append(ir.ConstEntry(elements, worst - rank + 1, call))
        return tuple(entries)

    def _add_profile(
        self,
        name: str,
        reader: Reader,
        size: int,
    ) -> None:
        if name in self.profiles:
            raise reader.fail("is defined twice")
        selection = reader.find("selector")
        selector = None
        if selection is not None:
            inputs: list[tuple[ir.FieldRef, int]] = []
            for part in selection.elements_of("input"):
                value = self.scope.expr(part)
                if not isinstance(value, ir.FieldRef):
                    raise part.fail("a selector hashes fields")
                inputs.append((value, self.scope.width(value, part)))
            hashed_by = algorithm(selection.with_place(reader.place))
            selector = ir.Selector(hashed_by, tuple(inputs))
        self.profiles[name] = ir.ActionProfileSpec(name, size, selector, reader.place)


def _by_table(
    arrays: Iterable[ir.CounterArray] | Iterable[ir.MeterArray],
) -> dict[str, str]:
    """Return the names of the arrays that belong to tables, by table."""
    return {array.table: array.name for array in arrays if array.table is not None}


def _check_bindings(
    kind: str,
    arrays: Mapping[str, str],
    tables: frozenset[str],
) -> None:
    for table, array in arrays.items():
        if table not in tables:
            raise ProgramError(f"{kind} '{array}': 'binding'", f"there is no table '{table}'")


def _spoken(key: ir.Expr) -> str:
    """Return a name for a match field that has none."""
    match key:
        case ir.FieldRef(header, field):
            return f"{header}.{field}"
        case ir.ValidRef(header):
            return f"{header}.$valid$"
    return "key"


def _key_element(reader: Reader, key: ir.Key) -> int | tuple[int, int]:
    kind = reader.text_of("match_type")
    if kind == "valid":
        return int(reader.get("key").truth())
    if kind != key.match:
        raise reader.fail(f"match type is '{kind}', the table's is '{key.match}'")
    full = (1 << key.width) - 1
    if kind == "range":
        low = reader.hexadecimal_of("start") & full
        high = reader.hexadecimal_of("end") & full
        if low > high:
            raise reader.fail(f"range {brief(low)}..{brief(high)} is empty")
        return low, high
    value = reader.hexadecimal_of("key") & full
    if kind == "exact":
        return value
    if kind == "lpm":
        length = reader.integer_of("prefix_length", 0, key.width)
        return value & (full ^ (full >> length)), length
    mask = reader.hexadecimal_of("mask") & full
    return value & mask, mask


def _check_match(
    reader: Reader,
    match: str,
    keys: tuple[ir.Key, ...],
) -> None:
    kinds = [key.match for key in keys]
    if kinds.count("lpm") > 1:
        raise reader.fail("a table can have only one lpm field")
    # A table's match type is the most general one of its keys.
    allowed = _MATCH_TYPES[: _MATCH_TYPES.index(match) + 1]
    refused = sorted(set(kinds).difference(allowed))
    if refused:
        raise reader.fail(f"a table of match type '{match}' cannot have the key kinds {refused}")


def _edges(nodes: Mapping[str, ir.Node]) -> Iterator[tuple[str, str | None]]:
    for node in nodes.values():
        for target in ir.successors(node):
            yield node.place, target


def _refuse_cycles(
    pipeline: str,
    nodes: Mapping[str, ir.Node],
    initial: str | None,
) -> None:
    done: set[str] = set()
    path: set[str] = set()
    stack: list[tuple[str, bool]] = []
    if initial is not None:
        stack.append((initial, False))
    while stack:
        name, leaving = stack.pop()
        if leaving:
            path.discard(name)
            done.add(name)
            continue
        if name in done:
            continue
        path.add(name)
        stack.append((name, True))
        for target in ir.successors(nodes[name]):
            if target in path:
                raise ProgramError(
                    f"pipeline '{pipeline}'", f"the control flow returns to '{target}'"
                )
            if target is not None:
                stack.append((target, False))
