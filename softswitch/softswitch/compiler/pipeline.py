"""Ingress and egress control: tables and conditions as nested ifs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from softswitch import ir
from softswitch.ir import successors

from .actions import ActionWriter
from .apply import Follow, TableWriter
from .stage import STRUCTURE_LIMIT, Stage
from .values import Bool, const

GROWTH_LIMIT = 4
"""The factor by which the code may grow when a part of the graph is entered from several places."""


class _TooLargeError(Exception):
    """An exception raised if the nested form repeats too much or is too deep."""


class PipelineWriter:
    """A writer of the tables and conditions of one pipeline in the order of the control flow.

    A structured graph becomes nested ifs, joined at immediate post-dominators. A graph that cannot be nested without
    much repetition is written as a sequence of guarded steps in topological order instead.
    """

    def __init__(self, stage: Stage, pipeline: ir.PipelineSpec) -> None:
        self.stage = stage
        self.pipeline = pipeline
        self.nodes = pipeline.nodes
        self.actions = ActionWriter(stage)
        self.order = topological(pipeline)
        self._joins = _joins(self.order, self.nodes)
        self._budget = 0

    def write(self) -> None:
        stage = self.stage
        out = stage.out
        if any(p.op == "exit" for node in self.order for a in _actions(self.nodes[node]) for p in self._body(a)):
            with out.block("while 1"):
                self._pipeline()
                out("break")
        else:
            self._pipeline()

    def _body(self, action: int) -> tuple[ir.Primitive, ...]:
        return self.stage.program.actions[action].body

    def _pipeline(self) -> None:
        out = self.stage.out
        start = len(out.lines)
        depth = out.depth
        self._budget = GROWTH_LIMIT * len(self.order) + 16
        try:
            self._flow(self.pipeline.initial, None)
        except _TooLargeError:
            del out.lines[start:]
            out.depth = depth
            self._guarded()

    def _guarded(self) -> None:
        numbers = {name: i for i, name in enumerate(self.order)}
        out = self.stage.out
        out("_node = 0")
        for name in self.order:
            with out.block(f"if _node == {numbers[name]}"):
                self._node(
                    name, lambda target: out(f"_node = {numbers[target] if target is not None else len(numbers)}")
                )

    def _flow(self, name: str | None, stop: str | None) -> None:
        while name is not None and name != stop:
            self._budget -= 1
            if self._budget < 0 or self.stage.out.depth > STRUCTURE_LIMIT:
                raise _TooLargeError
            join = self._joins[name]
            self._node(name, lambda target, join=join: self._flow(target, join))  # type: ignore[misc]
            name = join

    # -------------------------------------------------------------------------------------------------------- nodes

    def _node(self, name: str, follow: Follow) -> None:
        """Write one node; ``follow`` writes what comes after it, for each of its successors."""
        node = self.nodes[name]
        if isinstance(node, ir.Conditional):
            condition = self.stage.expressions(node.place).truth(node.condition)
            if self.stage.traced:
                text, position = (node.origin.text, str(node.origin)) if node.origin else (node.name, None)
                self.stage.out(f"_c = {condition.code}")
                self.stage.trace("condition", repr(text), repr(position), "_c")
                condition = Bool("_c", True, condition.value)
            if condition.value is not None:
                follow(node.true_next if condition.value else node.false_next)
                return
            with self.stage.out.explained(node.origin.text if node.origin else "", str(node.origin or "")):
                self._branch(condition.code, condition.wrapped, node.true_next, node.false_next, follow)
        elif isinstance(node, ir.DirectCall):
            self.stage.trace("block")
            self.actions.write(self._body(node.action), ())
            follow(node.next)
        elif not node.keys and node.default is not None and node.default_const and not node.entries:
            # p4c makes these tables of plain statements.
            action = self.stage.program.actions[node.default.action]
            self.stage.trace("block")
            self.actions.write(action.body, tuple(const(value) for value in node.default.args))
            follow(node.next_on_miss if node.by_hit else node.next_by_action.get(action.id, node.next_base))
        else:
            TableWriter(self.stage, node, partial(self._branch, "_hit", "_hit")).write(follow)

    def _branch(self, code: str, wrapped: str, yes: str | None, no: str | None, follow: Follow) -> None:
        out = self.stage.out
        if yes == no:
            follow(yes)
            return
        start = len(out.lines)
        with out.block(f"if {code}"):
            follow(yes)
        taken_is_empty = out.lines[start + 1 :] == ["    " * (out.depth + 1) + "pass"]
        before = len(out.lines)
        with out.block("else"):
            follow(no)
        if out.lines[before + 1 :] == ["    " * (out.depth + 1) + "pass"]:
            del out.lines[before:]
            if taken_is_empty:
                del out.lines[start:]
        elif taken_is_empty:
            rest = out.lines[before + 1 :]
            del out.lines[start:]
            out(f"if not {wrapped}:")
            out.extend(rest)
        else:
            out.flatten(before)


def _actions(node: ir.Node) -> tuple[int, ...]:
    if isinstance(node, ir.TableSpec):
        return node.actions
    return (node.action,) if isinstance(node, ir.DirectCall) else ()


def topological(pipeline: ir.PipelineSpec) -> list[str]:
    """Return the reachable nodes, each before its successors."""
    order: list[str] = []
    done: set[str] = set()
    todo: list[tuple[str, bool]] = [] if pipeline.initial is None else [(pipeline.initial, False)]
    while todo:
        name, leaving = todo.pop()
        if leaving:
            order.append(name)
            continue
        if name in done:
            continue
        done.add(name)
        todo.append((name, True))
        todo += [(target, False) for target in successors(pipeline.nodes[name]) if target is not None]
    return order[::-1]


def _joins(order: list[str], nodes: Mapping[str, ir.Node]) -> dict[str, str | None]:
    """Return the immediate post-dominator of each node (None: the end), by the algorithm of Cooper, Harvey and Kennedy.

    One pass suffices because the graph has no cycles and successors come first.
    """
    rank = {name: len(order) - i for i, name in enumerate(order)}
    joins: dict[str, str | None] = {}

    def meet(a: str | None, b: str | None) -> str | None:
        while a != b:
            if a is None or b is None:
                return None
            if rank[a] > rank[b]:
                a = joins[a]
            else:
                b = joins[b]
        return a

    for name in reversed(order):
        following = successors(nodes[name])
        join = following[0]
        for target in following[1:]:
            join = meet(join, target)
        joins[name] = join
    return joins
