"""Live variables of generated functions: the variables that egress needs, and the assignments that have no effect.

The module runs a backward data-flow analysis on the syntax tree. It understands the small part of Python that the
generator writes: one simple statement per line, ``if``, ``while`` and ``for``. Assignments whose values are never read
are removed from the text.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from .source import Line

_PURE_CALLS = ("len", "int.from_bytes")


def live_at_start(head: str, body: Sequence[str]) -> set[str]:
    """Return the names that the function reads before it assigns them."""
    analysis = _Analysis()
    return analysis.block(_parse(head, body), set())


def prune(head: str, body: Sequence[str]) -> list[Line]:
    """Return the function's lines without assignments that have no effect."""
    analysis = _Analysis(edit=True)
    analysis.block(_parse(head, body), set())
    lines: list[Line] = [Line(head)]
    for number, text in enumerate(body, 2):
        line = text if isinstance(text, Line) else Line(text)
        replacement = analysis.edits.get(number, line)
        if replacement is not None:
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(line if number not in analysis.edits else line.coded(indent + replacement))
    return lines


def _parse(head: str, body: Sequence[str]) -> list[ast.stmt]:
    function = ast.parse(textwrap.dedent("\n".join([head, *body]))).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.body


@dataclass(slots=True)
class _Loop:
    """The live variables at the targets of ``break`` and ``continue``."""

    behind: set[str]
    head: set[str]


@dataclass(slots=True)
class _Analysis:
    """One analysis. ``edits`` maps line numbers to new text, None for a line to be deleted."""

    edit: bool = False
    edits: dict[int, str | None] = field(default_factory=dict)
    loops: list[_Loop] = field(default_factory=list)

    def block(self, statements: list[ast.stmt], after: set[str]) -> set[str]:
        """Return the variables that are live before ``statements`` if ``after`` is live behind them."""
        live = after
        for statement in reversed(statements):
            live = self._statement(statement, live)
        return live

    def _gone(self, statements: list[ast.stmt]) -> bool:
        return all(self.edits.get(s.lineno, "") is None for s in statements)

    def _statement(self, statement: ast.stmt, after: set[str]) -> set[str]:
        match statement:
            case ast.Assign():
                return self._assign(statement, after)
            case ast.If():
                return self._if(statement, after)
            case ast.While() | ast.For():
                return self._loop(statement, after)
            case ast.Return():
                return _names(statement)
            case ast.Break():
                return set(self.loops[-1].behind)
            case ast.Continue():
                return set(self.loops[-1].head)
            case _:
                return after | _names(statement)

    def _assign(self, statement: ast.Assign, after: set[str]) -> set[str]:
        targets = [target for target in statement.targets if not _dead(target, after)]
        if not targets and _pure(statement.value):
            self._replace(statement, None)
            return after
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = [
                (t, v)
                for t, v in zip(targets[0].elts, statement.value.elts, strict=True)
                if not _dead(t, after) or not _pure(v)
            ]
            left, right = (ast.Tuple([x[i] for x in pairs], ast.Load()) for i in (0, 1))
            if len(pairs) < len(targets[0].elts):
                self._replace(statement, f"{_listed(left)} = {_listed(right)}")
            return (after - _bound(left)) | _names(right) | _loaded(left)
        if targets and len(targets) < len(statement.targets):
            text = " = ".join(ast.unparse(target) for target in targets)
            self._replace(statement, f"{text} = {ast.unparse(statement.value)}")
        elif len(targets) == 1 and isinstance(targets[0], ast.Tuple):
            parts = ["_" if _dead(t, after) else ast.unparse(t) for t in targets[0].elts]
            text = ", ".join(parts) + ("," if len(parts) == 1 else "")
            if text != ast.unparse(targets[0]).strip("()"):
                self._replace(statement, f"{text} = {ast.unparse(statement.value)}")
        live = set(after)
        for target in targets:
            live -= _bound(target)
            live |= _loaded(target)
        return live | _names(statement.value)

    def _replace(self, statement: ast.stmt, text: str | None) -> None:
        if self.edit:
            self.edits[statement.lineno] = text

    def _if(self, statement: ast.If, after: set[str]) -> set[str]:
        body = self.block(statement.body, set(after))
        other = self.block(statement.orelse, set(after))
        if self.edit:
            alternative = statement.orelse
            if alternative and self._gone(alternative):
                is_elif = isinstance(alternative[0], ast.If) and alternative[0].col_offset == statement.col_offset
                if not is_elif:
                    self.edits[alternative[0].lineno - 1] = None
                alternative = []
            if self._gone(statement.body) or all(isinstance(s, ast.Pass) for s in statement.body):
                if not alternative and _pure(statement.test):
                    for s in statement.body:
                        self.edits[s.lineno] = None
                    self.edits[statement.lineno] = None
                    return after
                self.edits[statement.body[0].lineno] = "pass"
        return body | other | _names(statement.test)

    def _loop(self, statement: ast.While | ast.For, after: set[str]) -> set[str]:
        endless = isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant)
        uses = _names(statement.test) if isinstance(statement, ast.While) else _names(statement.iter)
        bound = _bound(statement.target) if isinstance(statement, ast.For) else set()
        head = uses | (set() if endless else after)
        edit, self.edit = self.edit, False
        while True:
            self.loops.append(_Loop(after, head))
            grown = head | (self.block(statement.body, set(head)) - bound)
            self.loops.pop()
            if grown == head:
                break
            head = grown
        self.edit = edit
        if edit:
            self.loops.append(_Loop(after, head))
            self.block(statement.body, set(head))
            self.loops.pop()
            if self._gone(statement.body):
                self.edits[statement.body[0].lineno] = "pass"
        return head | uses


def _listed(values: ast.Tuple) -> str:
    return ", ".join(ast.unparse(v) for v in values.elts) + ("," if len(values.elts) == 1 else "")


def _bound(target: ast.expr) -> set[str]:
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Tuple):
        return {t.id for t in target.elts if isinstance(t, ast.Name)}
    return set()


def _loaded(target: ast.expr) -> set[str]:
    """Return the names that an assignment to an element or attribute reads."""
    return set() if isinstance(target, (ast.Name, ast.Tuple)) else _names(target)


def _dead(target: ast.expr, live: set[str]) -> bool:
    if isinstance(target, ast.Tuple):
        return all(_dead(t, live) for t in target.elts)
    return isinstance(target, ast.Name) and target.id not in live


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _pure(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.NamedExpr):
            return False
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if not (function in _PURE_CALLS or function.startswith("_unpack_") or function.endswith(".to_bytes")):
                return False
    return True
