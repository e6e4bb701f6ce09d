"""Ingress and egress control: a function for each table and condition, which returns the one that
comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softswitch import ir
from softswitch.lookup import key_order
from softswitch.tables import has_state
from softswitch.trace import events, lookups

from .calculations import selected
from .packet import Done, Get, PacketState, Slots, Unfit, placed
from .statements import PipelineLeft, PlainStatements

PlainNode = Callable[[PacketState], Any]
"""A table, a condition or a call of an action: a function that returns the next node, None at the
end.
"""

Runs = Mapping[int, tuple[ir.Action, Done, "PlainNode | None"]]
"""The action, its function and the next node of each action, by its position in a table's calls."""


class PlainControl:
    """The tables, conditions and actions of one pipeline."""

    def __init__(self, slots: Slots, pipeline: ir.PipelineSpec) -> None:
        self.slots = slots
        self.program = slots.program
        self._statements = PlainStatements(slots, pipeline.name)
        self._actions: dict[int, Done] = {}
        self._nodes: dict[str | None, PlainNode | None] = {None: None}
        for name in reversed(ir.topological(pipeline)):
            node = pipeline.nodes[name]
            with placed(node.place):
                self._nodes[name] = self._node(node)
        self._initial = self._nodes[pipeline.initial]

    def run(self, p: PacketState) -> None:
        """Run the pipeline for a packet."""
        node = self._initial
        try:
            while node is not None:
                node = node(p)
        except PipelineLeft:
            pass

    def _node(self, node: ir.Node) -> PlainNode:
        if isinstance(node, ir.Conditional):
            return self._condition(node)
        if isinstance(node, ir.DirectCall):
            return self._call(node.action, (), self._nodes[node.next])
        if not node.keys and node.default is not None and node.default_const and not node.entries:
            # p4c makes these tables of plain statements.
            action = node.default.action
            if node.by_hit:
                following = node.next_on_miss
            else:
                following = node.next_by_action.get(action, node.next_base)
            return self._call(action, node.default.args, self._nodes[following])
        return self._table(node)

    def _condition(self, node: ir.Conditional) -> PlainNode:
        condition = self._statements.value(node.condition)
        yes = self._nodes[node.true_next]
        no = self._nodes[node.false_next]
        if node.origin:
            text = node.origin.text
            position = str(node.origin)
        else:
            text = node.name
            position = None

        def branch(p: PacketState) -> PlainNode | None:
            holds = condition(p)
            if p.tell is not None:
                p.tell(events.Condition(text, position, bool(holds)))
            return yes if holds else no

        return branch

    def _action(self, number: int) -> Done:
        if number not in self._actions:
            self._actions[number] = self._statements.body(self.program.actions[number].body)
        return self._actions[number]

    def _call(self, action: int, args: Sequence[int], following: PlainNode | None) -> PlainNode:
        done = self._action(action)
        call = (0, *args)

        def run(p: PacketState) -> PlainNode | None:
            if p.tell is not None:
                p.tell(events.Block())
            p.args = call
            done(p)
            return following

        return run

    # -- tables ------------------------------------------------------------------------------------

    def _table(self, spec: ir.TableSpec) -> PlainNode:
        keys = [self._key(key) for key in spec.keys]
        search = _search(spec)
        runs = self._runs(spec)
        name = spec.name
        state = has_state(spec)
        count = self._counting(spec)
        if spec.profile is None:
            choose = None
        else:
            choose = self._choosing(spec.profile)
        counts_default = spec.default is not None and (
            spec.counters is not None or spec.meter is not None
        )
        hit, miss, base = (
            self._nodes[node] for node in (spec.next_on_hit, spec.next_on_miss, spec.next_base)
        )

        def apply(p: PacketState) -> PlainNode | None:
            table = p.switch.tables[name]
            key = [get(p) for get in keys]
            call = found = search(table, key) if keys else None
            if p.tell is not None:
                p.tell(lookups.applied(spec, table, key, found))
            if choose is not None:
                if found is not None:
                    if state:
                        count(p, found[1], True)
                    call = choose(p, found[0])
                    if p.tell is not None:
                        p.tell(lookups.chosen(spec, table, key, found, call))
            elif found is None:
                call = table.default_cell[0]
                if counts_default and call is not None:
                    count(p, call[-1], False)
            elif state:
                count(p, found[-1], True)
            following = base
            if call is not None and call[0] in runs:
                action, done, following = runs[call[0]]
                if p.tell is not None:
                    arguments = zip(action.params, call[1:], strict=False)
                    p.tell(
                        events.Ran(
                            action.name, tuple((x.name, value, x.width) for x, value in arguments)
                        )
                    )
                p.args = call
                done(p)
            if spec.by_hit:
                return miss if found is None else hit
            return following

        return apply

    def _key(self, key: ir.Key) -> Get:
        """Return the function for a field of a key, which is zero if its header is not valid."""
        value = self._statements.value(key.value)
        mask = (1 << key.width) - 1 if key.mask is None else key.mask
        if not isinstance(key.value, ir.FieldRef):
            return lambda p: value(p) & mask
        valid = self.slots.headers[key.value.header].start
        return lambda p: value(p) & mask if p.values[valid] else 0

    def _runs(self, spec: ir.TableSpec) -> Runs:
        actions = [self.program.actions[number] for number in spec.actions]
        names = [action.name for action in actions]
        if spec.profile is None:
            known = names
        else:
            known = list(ir.profile_actions(self.program, spec.profile))
        nexts = [
            self._nodes[spec.next_by_action.get(action.id, spec.next_base)] for action in actions
        ]
        calls = zip(actions, nexts, strict=True)
        return {
            known.index(action.name): (action, self._action(action.id), following)
            for action, following in calls
        }

    def _counting(self, spec: ir.TableSpec) -> Callable[[PacketState, Any, bool], None]:
        """Return the function that changes an entry's own state. A meter of the default entry runs
        only if a controller has configured it, because a miss on simple_switch leaves the result
        field unchanged."""
        if spec.meter is None:
            meter = None
        else:
            meter = self.program.meters[spec.meter]
        if meter is not None and meter.target is None:
            raise Unfit(f"direct meter '{spec.meter}' has no result field")
        if meter is None or meter.target is None:
            put = None
        else:
            put = self._statements.target(meter.target)
        by_bytes = meter is not None and meter.unit == "bytes"

        def count(p: PacketState, entry: Any, hit: bool) -> None:
            if spec.counters is not None:
                entry.packets += 1
                entry.bytes += len(p.data)
            if spec.timeout and hit:
                entry.hit_ns = p.now_ns
            if put is not None and (hit or entry.meter.config is not None):
                put(p, entry.meter.execute(len(p.data) if by_bytes else 1, p.now_ns))

        return count

    def _choosing(self, profile: str) -> Callable[[PacketState, Any], Any]:
        """Return the function that chooses one of the calls of an action profile; None from an
        empty group.
        """
        selector = self.program.profiles[profile].selector
        if selector is None:
            select = None
        else:
            select = selected(self.slots, profile, selector)

        def choose(p: PacketState, cells: Any) -> Any:
            if select is not None and len(cells) > 1:
                at = select(p) % len(cells)
            else:
                at = 0
            return cells[at][0] if cells else None

        return choose


def _search(spec: ir.TableSpec) -> Callable[[Any, list[int]], Any]:
    """Return the function that looks a key up, as the table's kind of index takes it."""
    if spec.match not in ("ternary", "range") and all(key.match == "exact" for key in spec.keys):
        if len(spec.keys) == 1:
            return lambda table, key: table.index.results.get(key[0])
        return lambda table, key: table.index.results.get(tuple(key))
    order = [(i, spec.keys[i].width) for i in key_order(spec)]
    ranges = [i for i, key in enumerate(spec.keys) if key.match == "range"]

    def search(table: Any, key: list[int]) -> Any:
        packed = 0
        for i, width in order:
            packed = packed << width | key[i]
        return table.index.lookup(packed, *(key[i] for i in ranges))

    return search
