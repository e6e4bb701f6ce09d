"""A differential case: what is written to a switch and sent through it, and what came of it.

The file form (`dump`, `parse`) is JSON: each step is `{"write": [p4.v1.Update as text, ...]}` or
`{"packets": [[port, hexadecimal bytes], ...]}`; a counterexample also has the `outcome` that BMv2
had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finsy.proto import p4r
from google.protobuf import text_format  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Write:
    """One Write with CONTINUE_ON_ERROR."""

    updates: tuple[p4r.Update, ...]


@dataclass(frozen=True)
class Packets:
    """Packets received one after another: (port, bytes) each."""

    packets: tuple[tuple[int, bytes], ...]


Step = Write | Packets


@dataclass(frozen=True)
class Case:
    """Steps for a switch that has just been given the program `program`, a name of `catalogue`."""

    program: str
    steps: tuple[Step, ...]

    @property
    def packet_count(self) -> int:
        return sum(len(step.packets) for step in self.steps if isinstance(step, Packets))

    @property
    def update_count(self) -> int:
        return sum(len(step.updates) for step in self.steps if isinstance(step, Write))


@dataclass(frozen=True, slots=True)
class Output:
    """A packet that left.

    `cause` is the number, in its step, of the packet that it left in consequence of; `queue` is the
    queue of the port that it passed, None where the switch does not tell.
    """

    cause: int
    port: int
    data: bytes
    queue: int | None = None


@dataclass(frozen=True)
class Written:
    """The status codes (google.rpc.Code), one per update."""

    codes: tuple[int, ...]


@dataclass(frozen=True)
class Sent:
    """The packets that left, in the order in which they were seen.

    `burst` is the most copies that one packet had in any one queue.
    """

    outputs: tuple[Output, ...]
    burst: int = 1


@dataclass(frozen=True)
class Outcome:
    """The result of each step, and the forwarding state read back at the end as sorted p4.v1.Entity
    texts.
    """

    results: tuple[Written | Sent, ...]
    state: tuple[str, ...]


def text(message: Any) -> str:
    """Return a protobuf message on one line."""
    return str(text_format.MessageToString(message, as_one_line=True))


def dump(case: Case, outcome: Outcome, note: str) -> str:
    """Return a counterexample as the text of a file; `note` says what it showed."""
    steps: list[dict[str, Any]] = []
    for step in case.steps:
        if isinstance(step, Write):
            steps.append({"write": [text(update) for update in step.updates]})
        else:
            steps.append({"packets": [[port, data.hex()] for port, data in step.packets]})
    results: list[Any] = [
        list(result.codes)
        if isinstance(result, Written)
        else [[o.cause, o.port, o.data.hex()] for o in result.outputs]
        for result in outcome.results
    ]
    body = {
        "note": note,
        "program": case.program,
        "steps": steps,
        "outcome": {"results": results, "state": outcome.state},
    }
    return json.dumps(body, indent=1) + "\n"


def parse(source: str) -> tuple[Case, Outcome]:
    """Return the case and outcome of a text that `dump` made."""
    body = json.loads(source)
    steps = tuple(map(_step, body["steps"]))
    results = tuple(map(_result, steps, body["outcome"]["results"]))
    return Case(body["program"], steps), Outcome(results, tuple(body["outcome"]["state"]))


def _step(body: Mapping[str, Any]) -> Step:
    if "write" in body:
        return Write(tuple(text_format.Parse(update, p4r.Update()) for update in body["write"]))
    return Packets(tuple((port, bytes.fromhex(data)) for port, data in body["packets"]))


def _result(step: Step, body: Sequence[Any]) -> Written | Sent:
    if isinstance(step, Write):
        return Written(tuple(body))
    return Sent(tuple(Output(cause, port, bytes.fromhex(data)) for cause, port, data in body))
