"""Tables, conditions, action profiles: the control flow of ingress and egress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from softswitch import ir
from softswitch.errors import ProgramError

from .reader import Reader
from .scope import Scope, algorithm


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
        self._counters = {
            array.table: array.name for array in counters.values() if array.table is not None
        }
        self._meters = {
            array.table: array.name for array in meters.values() if array.table is not None
        }

    def pipelines(self) -> dict[str, ir.PipelineSpec]:
        """Return ``ingress`` and ``egress``. The action profiles are found on the way."""
        root = self.scope.root
        for item in root.members("pipelines"):
            for reader in item.members("action_profiles"):
                profile = self._profile(reader)
                self.profiles[profile.name] = profile
        found = self.scope.named("pipelines", "pipeline", self._pipeline)
        for needed in ("ingress", "egress"):
            if needed not in found:
                raise root.fail(f"has no pipeline '{needed}'")
        tables = [
            n.name for p in found.values() for n in p.nodes.values() if isinstance(n, ir.TableSpec)
        ]
        if len(set(tables)) != len(tables):
            raise root.fail("two pipelines have a table of the same name")
        for kind, bound in (("counter array", self._counters), ("meter array", self._meters)):
            for table, array in bound.items():
                if table not in tables:
                    raise ProgramError(
                        f"{kind} '{array}': 'binding'", f"there is no table '{table}'"
                    )
        return found

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
            yield ir.Conditional(
                name,
                self.scope.expr(node.get("expression").at(node.place)),
                node.optional_text("true_next"),
                node.optional_text("false_next"),
                node.place,
                node.origin(),
            )
        for item in reader.members("action_calls"):
            name, node = item.named("action call")
            action = self.scope.action_id(node.get("action_id"))
            if action.params:
                raise node.fail(f"action '{action.name}' has parameters")
            yield ir.DirectCall(
                name, action.id, node.optional_text("next_node"), node.place, node.origin()
            )

    def _call(self, reader: Reader, allowed: tuple[int, ...]) -> ir.ActionCall:
        action = self.scope.action_id(reader.get("action_id"))
        if action.id not in allowed:
            raise reader.fail(f"action '{action.name}' is not one of the table's")
        args = tuple(item.hexadecimal() for item in reader.members("action_data"))
        if len(args) != len(action.params):
            raise reader.fail(
                f"action '{action.name}' takes {len(action.params)} arguments, has {len(args)}"
            )
        return ir.ActionCall(
            action.id,
            tuple(a & ((1 << p.width) - 1) for a, p in zip(args, action.params, strict=True)),
        )

    def _table(self, item: Reader) -> ir.TableSpec:
        name, reader = item.named("table")
        match = reader.get("match_type").text()
        if match not in ("exact", "lpm", "ternary", "range"):
            raise reader.fail(f"match type '{match}' is not supported")
        keys = tuple(
            self._key(k.at(f"{reader.place} key {i}"))
            for i, k in enumerate(reader.get("key").elements())
        )
        _check_match(reader, match, keys)
        actions = tuple(self.scope.action_id(a).id for a in reader.get("action_ids").elements())
        names = {self.scope.actions[a].name: a for a in actions}
        if len(names) != len(set(actions)):
            raise reader.fail("two of its actions have the same name")
        kind = reader.get("type").text()
        if kind not in ("simple", "indirect", "indirect_ws"):
            raise reader.fail(f"implementation '{kind}' is not supported")
        profile = None
        if kind != "simple":
            profile = self.scope.known(
                reader.get("action_profile"), self.profiles, "action profile"
            )
            if (self.profiles[profile].selector is None) != (kind == "indirect"):
                raise reader.fail(f"type '{kind}' does not fit action profile '{profile}'")
        default = reader.find("default_entry")
        entries = None
        if reader.find("entries") is not None:
            entries = self._entries(reader, keys, actions, match)
        size = reader.find("max_size")
        by_hit, hit, miss, by_action = self._next_tables(reader, names)
        return ir.TableSpec(
            name=name,
            id=reader.get("id").integer(),
            match=match,
            keys=keys,
            actions=actions,
            profile=profile,
            max_size=1024 if size is None else size.integer(),
            counters=self._counters.get(name),
            meter=self._meters.get(name),
            timeout=reader.flag("support_timeout"),
            default=None if default is None else self._call(default, actions),
            default_const=default is not None and default.flag("action_entry_const"),
            default_action_const=default is not None and default.flag("action_const"),
            entries=entries,
            by_hit=by_hit,
            next_on_hit=hit,
            next_on_miss=miss,
            next_by_action=by_action,
            next_base=reader.optional_text("base_default_next"),
            place=reader.place,
            origin=reader.origin(),
        )

    def _next_tables(
        self, reader: Reader, names: Mapping[str, int]
    ) -> tuple[bool, str | None, str | None, dict[int, str | None]]:
        found = reader.get("next_tables")
        if not isinstance(found.value, dict):
            raise found.fail("must be an object")
        by_hit = "__HIT__" in found.value or "__MISS__" in found.value
        base = reader.optional_text("base_default_next")
        if "__HIT__" in found.value:
            hit = found.optional_text("__HIT__")
        else:
            hit = base
        if "__MISS__" in found.value:
            miss = found.optional_text("__MISS__")
        else:
            miss = base
        by_action: dict[int, str | None] = {}
        for action in found.value:
            if action in ("__HIT__", "__MISS__"):
                continue
            if action not in names:
                raise found.fail(f"action '{action}' is not one of the table's")
            by_action[names[action]] = found.optional_text(action)
        return by_hit, hit, miss, by_action

    def _key(self, reader: Reader) -> ir.Key:
        match = reader.get("match_type").text()
        target = reader.get("target").at(reader.place)
        value: ir.Expr
        if match == "valid":
            value = ir.ValidRef(self.scope.known(target, self.scope.headers, "header"))
            match = "exact"
        elif match in ("exact", "lpm", "ternary", "range", "optional"):
            # A field of a stack element that the packet selects is an expression.
            selected = isinstance(target.value, dict)
            if selected:
                value = self.scope.operation(target, None)
            else:
                value = self.scope.field_or_valid(target)
            match = "ternary" if match == "optional" else match
        else:
            raise reader.fail(f"match type '{match}' is not supported")
        width = self.scope.width(value, reader)
        found = reader.find("mask")
        if found is None:
            mask = None
        else:
            mask = found.hexadecimal() & ((1 << width) - 1)
        return ir.Key(reader.optional_text("name") or _spoken(value), match, value, width, mask)

    def _entries(
        self, table: Reader, keys: tuple[ir.Key, ...], actions: tuple[int, ...], match: str
    ) -> tuple[ir.ConstEntry, ...]:
        read: list[tuple[tuple[int | tuple[int, int], ...], int, ir.ActionCall]] = []
        for i, item in enumerate(table.get("entries").elements()):
            reader = item.at(f"{table.place} entry {i}")
            parts = reader.get("match_key").elements()
            if len(parts) != len(keys):
                raise reader.fail(f"must have {len(keys)} key elements, has {len(parts)}")
            elements = tuple(
                _key_element(p.at(f"{reader.place} key {j}"), k)
                for j, (p, k) in enumerate(zip(parts, keys, strict=True))
            )
            priority = reader.find("priority")
            if priority is None or match in ("exact", "lpm"):
                rank = i
            else:
                rank = priority.integer()
            read.append((elements, rank, self._call(reader.get("action_entry"), actions)))
        worst = max((rank for _, rank, _ in read), default=0)
        # In BMv2 the lowest priority number wins, in P4Runtime the highest.
        return tuple(
            ir.ConstEntry(elements, worst - rank + 1, call) for elements, rank, call in read
        )

    def _profile(self, item: Reader) -> ir.ActionProfileSpec:
        name, reader = item.named("action profile")
        found = reader.find("selector")
        selector = None
        if found is not None:
            inputs: list[tuple[ir.FieldRef, int]] = []
            for part in found.get("input").elements():
                value = self.scope.expr(part)
                if not isinstance(value, ir.FieldRef):
                    raise part.fail("a selector hashes fields")
                inputs.append((value, self.scope.width(value, part)))
            selector = ir.Selector(algorithm(found.at(reader.place)), tuple(inputs))
        return ir.ActionProfileSpec(name, reader.get("max_size").integer(), selector, reader.place)


def _spoken(key: ir.Expr) -> str:
    """Return a name for a match field that has none."""
    match key:
        case ir.FieldRef(header, field):
            return f"{header}.{field}"
        case ir.ValidRef(header):
            return f"{header}.$valid$"
    return "key"


def _key_element(reader: Reader, key: ir.Key) -> int | tuple[int, int]:
    kind = reader.get("match_type").text()
    if kind == "valid":
        return int(reader.get("key").truth())
    if kind != key.match:
        raise reader.fail(f"match type is '{kind}', the table's is '{key.match}'")
    full = (1 << key.width) - 1
    if kind == "range":
        low = reader.get("start").hexadecimal() & full
        high = reader.get("end").hexadecimal() & full
        if low > high:
            raise reader.fail(f"range {low}..{high} is empty")
        return low, high
    value = reader.get("key").hexadecimal() & full
    if kind == "exact":
        return value
    if kind == "lpm":
        length = reader.get("prefix_length").integer(0, key.width)
        return value & (full ^ (full >> length)), length
    mask = reader.get("mask").hexadecimal() & full
    return value & mask, mask


def _check_match(reader: Reader, match: str, keys: tuple[ir.Key, ...]) -> None:
    kinds = [key.match for key in keys]
    if kinds.count("lpm") > 1:
        raise reader.fail("a table can have only one lpm field")
    allowed = {
        "exact": {"exact"},
        "lpm": {"exact", "lpm"},
        "ternary": {"exact", "lpm", "ternary"},
        "range": {"exact", "lpm", "ternary", "range"},
    }[match]
    if not set(kinds) <= allowed:
        raise reader.fail(
            f"a table of match type '{match}' cannot have the key kinds"
            f" {sorted(set(kinds) - allowed)}"
        )


def _edges(nodes: Mapping[str, ir.Node]) -> Iterator[tuple[str, str | None]]:
    for node in nodes.values():
        for target in ir.successors(node):
            yield node.place, target


def _refuse_cycles(pipeline: str, nodes: Mapping[str, ir.Node], initial: str | None) -> None:
    done: set[str] = set()
    path: set[str] = set()
    if initial is None:
        stack: list[tuple[str, bool]] = []
    else:
        stack = [(initial, False)]
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
