"""Coflow traces in the format of coflow-benchmark.

One is the public hour of a Facebook cluster, FB2010-1Hr-150-0.txt.

The first line has the number of ports and of coflows. Each further line is a coflow: its name, its
arrival in milliseconds, the number of mappers and the port of each, the number of reducers and
PORT:MEGABYTES of each. A reducer receives the same amount from every mapper. A megabyte has 2^20
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from echelon.model.documents import DocumentError
from echelon.model.foreign import foreign_files_named
from echelon.model.quantities import excerpt

MEGABYTE = 1 << 20
MAX_PORTS = 4096

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class TracedCoflow:
    """One coflow: every mapper sends to every reducer."""

    name: str
    arrival_s: float
    mappers: tuple[int, ...]
    """The ports that send, from 0."""
    reducers: tuple[tuple[int, float], ...]
    """The ports that receive, and the bytes that each receives in all."""


@dataclass(frozen=True, slots=True)
class CoflowTrace:
    """The coflows of a trace in order of arrival, and the ports of the switch that they share."""

    ports: int
    coflows: tuple[TracedCoflow, ...]


def load_trace(path: str | Path) -> CoflowTrace:
    """Read a trace. Raises `DocumentError`, one line that names file and line."""
    file = str(path)
    with foreign_files_named(path):
        return parse_trace(file, _lines(file))


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DocumentError(
            file, "", f"{error.strerror or error} (give a readable file)", code="unreadable-file"
        ) from None
    except UnicodeDecodeError:
        raise DocumentError(
            file, "", "is not text (give a file in the format of coflow-benchmark)"
        ) from None


def parse_trace(file: str, lines: list[str]) -> CoflowTrace:
    """Return the trace that `lines` describe.

    Raises as `load_trace`; `file` is the name in errors.
    """
    head = _Line(file, 1, lines[0] if lines else "")
    ports = head.number("the number of ports", int, 1, MAX_PORTS)
    count = head.number("the number of coflows", int, 0)
    head.end()
    rows = []
    for number, text in enumerate(lines[1:], start=2):
        if text.strip():
            rows.append((number, text))
    if len(rows) != count:
        raise DocumentError(
            file,
            "line 1",
            f"announces {count} coflows, but {len(rows)} follow (correct the number)",
        )
    coflows = []
    for number, text in rows:
        coflows.append(_coflow(_Line(file, number, text), ports))
    return CoflowTrace(ports, tuple(sorted(coflows, key=lambda coflow: coflow.arrival_s)))


def _coflow(line: _Line, ports: int) -> TracedCoflow:
    name = line.word("the coflow's name")
    arrival_ms = line.number("the arrival in milliseconds", float, 0)
    mappers = []
    for _ in range(line.number("the number of mappers", int, 1)):
        mappers.append(line.number("the port of a mapper", int, 0, ports - 1))
    reducers: dict[int, float] = {}
    for _ in range(line.number("the number of reducers", int, 1)):
        port, megabytes = line.pair("PORT:MEGABYTES of a reducer", ports)
        # A line may name a port several times.
        reducers[port] = reducers.get(port, 0.0) + megabytes * MEGABYTE
    line.end()
    return TracedCoflow(name, arrival_ms / 1000, tuple(mappers), tuple(reducers.items()))


class _Line:
    """The words of one line, read one after the other."""

    def __init__(
        self,
        file: str,
        number: int,
        text: str,
    ) -> None:
        self._file = file
        self._path = f"line {number}"
        self._words: Iterator[str] = iter(text.split())

    def word(self, meaning: str) -> str:
        """Return the next word."""
        word = next(self._words, None)
        if word is None:
            raise self._error(f"ends before {meaning} (complete the line)")
        return word

    def number(
        self,
        meaning: str,
        kind: Callable[[str], T],
        least: int,
        most: float = math.inf,
    ) -> T:
        """Return the next word as a number."""
        return self._parsed(self.word(meaning), meaning, kind, least, most)

    def pair(self, meaning: str, ports: int) -> tuple[int, float]:
        """Return the next word as a port and a number of megabytes."""
        word = self.word(meaning)
        port, colon, megabytes = word.partition(":")
        if not colon:
            raise self._error(f"{excerpt(word)} is not {meaning} (write it as 12:3.5)")
        port_number = self._parsed(port, meaning, int, 0, ports - 1)
        return port_number, self._parsed(megabytes, meaning, float, 0, math.inf)

    def end(self) -> None:
        """Check that nothing follows."""
        word = next(self._words, None)
        if word is not None:
            raise self._error(
                f"{excerpt(word)} is too much (remove it,"
                " or correct the numbers of mappers and reducers)"
            )

    def _parsed(
        self,
        text: str,
        meaning: str,
        kind: Callable[[str], T],
        least: int,
        most: float,
    ) -> T:
        try:
            value = kind(text)
        except ValueError:
            raise self._error(
                f"{excerpt(text)} is not a number: {meaning} is expected here"
            ) from None
        # float() also reads 'inf', and 'nan', for which no comparison holds.
        if not least <= value <= most or math.isinf(value):
            if math.isinf(most):
                limits = f"at least {least}"
            else:
                limits = f"{least} to {most}"
            raise self._error(f"{meaning} is {excerpt(text)} (give {limits})")
        return value

    def _error(self, reason: str) -> DocumentError:
        return DocumentError(self._file, self._path, reason)
