"""Ingress and egress control.

Each table and each condition is a function that returns the one that comes next.
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
"""A table, a condition or a call of an action.

It is a function that returns the next node, None at the end.
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
        call = node.default
        if call is None or not node.default_const or node.keys or node.entries:
            return self._table(node)
        # p4c makes these tables of plain statements.
        if node.by_hit:
            following = node.next_on_miss
        else:
            following = node.next_by_action.get(call.action, node.next_base)
        return self._call(call.action, call.args, self._nodes[following])

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
            action = self.program.actions[number]
            self._actions[number] = self._statements.body(action.body)
        return self._actions[number]

    def _call(
        self,
        action: int,
        args: Sequence[int],
        following: PlainNode | None,
    ) -> PlainNode:
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
        is_counted = spec.counters is not None or spec.meter is not None
        counts_default = is_counted and spec.default is not None
        hit = self._nodes[spec.next_on_hit]
        miss = self._nodes[spec.next_on_miss]
        base = self._nodes[spec.next_base]

        def apply(p: PacketState) -> PlainNode | None:
            table = p.switch.tables[name]
            key = [get(p) for get in keys]
            call = result = search(table, key) if keys else None
            if p.tell is not None:
                p.tell(lookups.applied(spec, table, key, result))
            if choose is not None:
                if result is not None:
                    if state:
                        count(p, result[1], True)
                    call = choose(p, result[0])
                    if p.tell is not None:
                        p.tell(lookups.chosen(spec, table, key, result, call))
            elif result is None:
                call = table.default_cell[0]
                if counts_default and call is not None:
                    count(p, call[-1], False)
            elif state:
                count(p, result[-1], True)
            following = base
            if call is not None and call[0] in runs:
                action, done, following = runs[call[0]]
                if p.tell is not None:
                    p.tell(_ran(action, call))
                p.args = call
                done(p)
            if spec.by_hit:
                return miss if result is None else hit
            return following

        return apply

    def _key(self, key: ir.Key) -> Get:
        """Return the function for a field of a key, which is zero if its header is not valid."""
        value = self._statements.value(key.value)
        mask = (1 << key.width) - 1
        if key.mask is not None:
            mask = key.mask
        if not isinstance(key.value, ir.FieldRef):
            return lambda p: value(p) & mask
        valid = self.slots.headers[key.value.header].start
        return lambda p: value(p) & mask if p.values[valid] else 0

    def _runs(self, spec: ir.TableSpec) -> Runs:
        actions = [self.program.actions[number] for number in spec.actions]
        if spec.profile is None:
            callees = [action.name for action in actions]
        else:
            callees = list(ir.profile_actions(self.program, spec.profile))
        runs: dict[int, tuple[ir.Action, Done, PlainNode | None]] = {}
        for action in actions:
            following = spec.next_by_action.get(action.id, spec.next_base)
            position = callees.index(action.name)
            runs[position] = (action, self._action(action.id), self._nodes[following])
        return runs

    def _counting(self, spec: ir.TableSpec) -> Callable[[PacketState, Any, bool], None]:
        """Return the function that changes an entry's own state.

        A meter of the default entry runs only if a controller has configured it, because a miss on
        simple_switch leaves the result field unchanged.
        """
        put = None
        by_bytes = False
        if spec.meter is not None:
            meter = self.program.meters[spec.meter]
            if meter.target is None:
                raise Unfit(f"direct meter '{spec.meter}' has no result field")
            put = self._statements.target(meter.target)
            by_bytes = meter.unit == "bytes"

        def count(
            p: PacketState,
            entry: Any,
            hit: bool,
        ) -> None:
            if spec.counters is not None:
                entry.packets += 1
                entry.bytes += len(p.data)
            if spec.timeout and hit:
                entry.hit_ns = p.now_ns
            if put is not None and (hit or entry.meter.config is not None):
                amount = len(p.data) if by_bytes else 1
                put(p, entry.meter.execute(amount, p.now_ns))

        return count

    def _choosing(self, profile: str) -> Callable[[PacketState, Any], Any]:
        """Return the function that chooses a call of an action profile.

        It returns None for an empty group.
        """
        selector = self.program.profiles[profile].selector
        select = None
        if selector is not None:
            select = selected(self.slots, profile, selector)

        def choose(p: PacketState, cells: Any) -> Any:
            if not cells:
                return None
            position = 0
            if select is not None and len(cells) > 1:
                position = select(p) % len(cells)
            return cells[position][0]

        return choose


def _ran(action: ir.Action, call: Any) -> events.Ran:
    arguments: list[tuple[str, int, int]] = []
    for param, value in zip(action.params, call[1:], strict=False):
        arguments.append((param.name, value, param.width))
    return events.Ran(action.name, tuple(arguments))


def _search(spec: ir.TableSpec) -> Callable[[Any, list[int]], Any]:
    """Return the function that looks a key up, as the table's kind of index takes it."""
    is_exact = all(key.match == "exact" for key in spec.keys)
    if is_exact and spec.match not in ("ternary", "range"):
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
