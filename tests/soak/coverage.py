"""The lines of a compiled program that packets have reached."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any


class Reach:
    """Lines reached of the functions that were generated together with `ingress`."""

    def __init__(self, ingress: Callable[..., Any], egress: Callable[..., Any]) -> None:
        self._file = ingress.__code__.co_filename
        self._lines: set[int] = set()
        for function in (ingress, egress):
            self._lines.update(_lines(function.__code__))
        for name, cell in zip(ingress.__code__.co_freevars, ingress.__closure__ or (), strict=True):
            code = getattr(cell.cell_contents, "__code__", None)
            if code is not None and code.co_filename == self._file and name not in ("ingress", "egress"):
                self._lines.update(_lines(code))
        self.reached: set[int] = set()

    @property
    def share(self) -> float:
        """The share of the lines that could be reached."""
        return len(self.reached & self._lines) / len(self._lines)

    def is_new(self, call: Callable[[], Any]) -> bool:
        """Make a call, and tell whether it reached a line that none before it did."""
        known = len(self.reached)
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(None)
        return len(self.reached) > known

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self.reached.add(frame.f_lineno)
        return self._line


def _lines(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)
