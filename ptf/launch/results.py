"""The results of tests, as the tests report them and as people read them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_WORDS = {"ok": "ok", "fail": "FAILED", "error": "ERROR", "skip": "skipped"}
_NAME_COLUMNS = 48


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test."""

    test: str
    """module.Class"""
    outcome: str
    """ok, fail, error or skip"""
    seconds: float
    why: str = ""
    """The reason of a test that was skipped; the traceback of one that did not pass."""

    @property
    def bad(self) -> bool:
        return self.outcome in ("fail", "error")


def parse(lines: Iterable[str]) -> Iterator[Result]:
    """Yield results in the order in which tests end."""
    for line in lines:
        record = json.loads(line)
        yield Result(record["test"], record["result"], record["seconds"], record.get("why", ""))


def heading() -> str:
    return f"{'test':{_NAME_COLUMNS}} {'result':8} {'seconds':>7}"


def row(result: Result) -> str:
    line = f"{result.test:{_NAME_COLUMNS}} {_WORDS[result.outcome]:8} {result.seconds:7.2f}"
    return f"{line}  {result.why}" if result.outcome == "skip" else line


def summary(results: Iterable[Result], where: str, seconds: float) -> str:
    counts = Counter(result.outcome for result in results)
    parts = [f"{counts[outcome]} {word}" for outcome, word in _WORDS.items() if counts[outcome]]
    return f"{where}: {', '.join(parts) or 'no test ran'}, in {seconds:.1f} s"
