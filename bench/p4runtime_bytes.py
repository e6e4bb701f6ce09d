"""Measure the gain of hand-made bytes over plain protobuf, in P4Runtime server and controller.

    python -m bench.p4runtime_bytes [--seconds 1] [--rounds 5]

Three tables come out of one run. All requests pass through a real gRPC server in a process of its
own. Rates are entries per second of processor time, so that other work on the machine does not
decide. The best round of each counts.

* Writes by a client that serializes its requests beforehand: the server with
  `softswitch.p4runtime.wire` and `softswitch.p4runtime.bulk` beside the same server with plain
  protobuf. The entries named `echelon` are those of a leaf switch, as the controller writes them.
* Single steps of the controller: `echelon.switches.southbound.encoding` beside plain protobuf.
* The controller's whole way from an intent to the last acknowledgement, with plain protobuf on
  either side or on both.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar
from unittest import mock

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "controller")]

from finsy import P4Schema  # noqa: E402
from finsy.proto import p4i, p4r  # noqa: E402
from google.protobuf import text_format  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from bench.p4runtime_load import Load  # noqa: E402
from bench.southbound import clients  # noqa: E402
from bench.southbound.workload import leaf  # noqa: E402
from echelon.model.p4program import program  # noqa: E402
from echelon.switches.lowering.intent import Interval, Match, Prefix, TableEntry  # noqa: E402
from echelon.switches.southbound.codec import OWNER, Codec, codec_of  # noqa: E402
from echelon.switches.southbound.encoding import (  # noqa: E402
    EncodedEntry,
    UpdateKind,
    write_header,
    write_request,
)
from softswitch.p4runtime.device import Device  # noqa: E402
from softswitch.p4runtime.server import Server  # noqa: E402
from softswitch.p4runtime.wire import WireRequest  # noqa: E402
from tests.reference.table_updates import load_p4info, updates  # noqa: E402

T = TypeVar("T")

_TABLES = Path(__file__).with_name("programs") / "tables"
_BATCHES = (1, 100, 1000)
_MOST_ENTRIES = 40_000
_LEAF_ENTRIES = 20_000
_START_S = 20.0


# -- the server ------------------------------------------------------------------------------------


def _plain_request(data: bytes) -> WireRequest:
    request = p4r.WriteRequest.FromString(data)
    return WireRequest(request, request.updates)


def _serve(plain: bool, pipe: Connection) -> None:
    if plain:
        WireRequest.parse = staticmethod(_plain_request)  # type: ignore[method-assign]
    with Server(Device()) as server:
        pipe.send(server.address)
        while pipe.recv():
            pipe.send(time.process_time())


@dataclass(frozen=True)
class _Switch:
    """A switch in a process of its own."""

    address: str
    _pipe: Connection

    def processor_s(self) -> float:
        """Return the seconds of processor time that it has used."""
        self._pipe.send(True)
        used: float = self._pipe.recv()
        return used


@contextmanager
def _server(plain: bool) -> Iterator[_Switch]:
    """Start a switch without ports, and stop it at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve,
        args=(plain, theirs),
    )
    process.start()
    try:
        if not ours.poll(_START_S):
            raise RuntimeError(f"the switch did not start within {_START_S:g} s")
        yield _Switch(ours.recv(), ours)
    finally:
        ours.send(False)
        process.join()


class _Case:
    """Updates of one kind, and the pipeline that takes them."""

    def __init__(
        self,
        name: str,
        p4info: p4i.P4Info,
        binary: bytes,
        changes: list[p4r.Update],
    ) -> None:
        self.name = name
        self.p4info = p4info
        self.binary = binary
        self.changes = changes

    def rate(
        self,
        switch: _Switch,
        batch: int,
        seconds: float,
        election_id: int,
    ) -> float:
        """Return the updates per second of its processor time that `switch` inserts into empty
        tables.
        """
        changes = self.changes
        if batch == 1:
            # Long enough at any rate that single updates reach.
            changes = changes[: int(3000 * seconds)]
        with Load(switch.address, self.p4info, election_id=election_id) as load:
            load.push(self.binary)
            before = switch.processor_s()
            load.write(changes, batch=batch)
            return len(changes) / (switch.processor_s() - before)


def _cases() -> list[_Case]:
    p4info = load_p4info(_TABLES.with_suffix(".p4info.txtpb"))
    binary = _TABLES.with_suffix(".json").read_bytes()
    cases = []
    for table in ("exact", "lpm", "ternary", "one_shot"):
        names = [described.preamble.name for described in p4info.tables]
        name = next(name for name in names if name.endswith(table))
        changes = list(updates(p4info, name, _MOST_ENTRIES))
        cases.append(_Case(table, p4info, binary, changes))
    marked = []
    for change in cases[0].changes:
        copy = p4r.Update()
        copy.CopyFrom(change)
        copy.entity.table_entry.metadata = OWNER
        marked.append(copy)
    cases.append(_Case("exact, metadata", p4info, binary, marked))
    echelon_binary = program().binary.read_bytes()
    cases.append(_Case("echelon", _echelon_p4info(), echelon_binary, _echelon_updates()))
    return cases


def _echelon_p4info() -> p4i.P4Info:
    return text_format.Parse(program().p4info.read_text(), p4i.P4Info())


def _echelon_updates() -> list[p4r.Update]:
    codec = codec_of(P4Schema(program().p4info))
    stages: dict[int, list[bytes]] = {}
    for entry in leaf(_LEAF_ENTRIES).entries:
        encoded = codec.encode(entry)
        stages.setdefault(encoded.stage, []).append(encoded.wire)
    return [
        p4r.Update(
            type=p4r.Update.INSERT,
            entity=p4r.Entity(table_entry=p4r.TableEntry.FromString(wire)),
        )
        for stage in sorted(stages)
        for wire in stages[stage]
    ]


def _writes(
    console: Console,
    seconds: float,
    rounds: int,
) -> None:
    table = Table("entries", "updates a request", "plain protobuf", "bytes", "ratio")
    with ExitStack() as stack:
        switches = [stack.enter_context(_server(plain)) for plain in (True, False)]
        election_id = 0
        for case in _cases():
            for batch in _BATCHES:
                rates: list[list[float]] = [[], []]
                for _ in range(rounds):
                    for switch, rates_of_switch in zip(switches, rates, strict=True):
                        election_id += 1
                        rates_of_switch.append(case.rate(switch, batch, seconds, election_id))
                plain, with_bytes = map(max, rates)
                table.add_row(
                    case.name,
                    f"{batch}",
                    f"{plain:,.0f}",
                    f"{with_bytes:,.0f}",
                    f"{with_bytes / plain:.2f}",
                )
    console.print(table)


# -- the controller --------------------------------------------------------------------------------


class _PlainCodec:
    """Entries to protobuf messages field by field, with ids looked up beforehand."""

    def __init__(self, schema: P4Schema) -> None:
        stages = codec_of(schema).stages
        self._tables = {
            table.alias: (
                table.id,
                stages[table.alias],
                {
                    field.alias: (field.id, field.bitwidth, field.match_type.name)
                    for field in table.match_fields
                },
                table.action_profile is not None,
            )
            for table in schema.tables
        }
        self._actions = {}
        for action in schema.actions:
            params = {param.name: param.id for param in action.params}
            self._actions[action.alias] = (action.id, params)

    def encode(self, entry: TableEntry) -> EncodedEntry:
        table_id, stage, fields, one_shot = self._tables[entry.table]
        message = p4r.TableEntry(
            table_id=table_id,
            priority=entry.priority,
        )
        for name, value in entry.match:
            _plain_match(message, *fields[name], value)
        key = message.SerializeToString()
        if one_shot:
            chosen = message.action.action_profile_action_set.action_profile_actions
            for call in entry.actions:
                member = chosen.add(weight=1)
                self._call(member.action, call.name, call.arguments)
        else:
            call = entry.actions[0]
            self._call(message.action.action, call.name, call.arguments)
        value_bytes = message.action.SerializeToString()
        message.metadata = OWNER
        return EncodedEntry(key, value_bytes, message.SerializeToString(), stage)

    def _call(
        self,
        message: p4r.Action,
        name: str,
        arguments: Iterable[tuple[str, int]],
    ) -> None:
        message.action_id, params = self._actions[name]
        for param, value in arguments:
            message.params.add(
                param_id=params[param],
                value=_number(value),
            )


def _plain_match(
    message: p4r.TableEntry,
    field_id: int,
    bits: int,
    kind: str,
    value: Match,
) -> None:
    if kind == "EXACT":
        assert isinstance(value, int)
        message.match.add(field_id=field_id).exact.value = _number(value)
    elif kind == "LPM":
        prefix = value if isinstance(value, Prefix) else Prefix(value, bits)  # type: ignore[arg-type]
        if prefix.length:
            lpm = message.match.add(field_id=field_id).lpm
            lpm.value = _number(prefix.value)
            lpm.prefix_len = prefix.length
    elif kind == "RANGE":
        interval = value if isinstance(value, Interval) else Interval(value, value)  # type: ignore[arg-type]
        if interval.low or interval.high != (1 << bits) - 1:
            between = message.match.add(field_id=field_id).range
            between.low = _number(interval.low)
            between.high = _number(interval.high)
    else:
        raise ValueError(f"no entry of the workload matches by {kind}")


def _number(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def _plain_write_request(
    header: bytes,
    kind: UpdateKind,
    entries: Iterable[bytes],
) -> bytes:
    request = p4r.WriteRequest.FromString(header)
    for entry in entries:
        update = request.updates.add(type=int(kind))  # type: ignore[arg-type]
        update.entity.table_entry.MergeFromString(entry)
    return request.SerializeToString()


def _per_second(
    work: Callable[[], object],
    count: int,
    seconds: float,
) -> float:
    """Return the items per second of `work`, which does `count` of them; the best of as many as
    `seconds` allow.
    """
    best = 0.0
    end = time.perf_counter() + seconds
    while True:
        start = time.process_time()
        work()
        best = max(best, count / (time.process_time() - start))
        if time.perf_counter() > end:
            return best


def _steps(console: Console, seconds: float) -> None:
    schema = P4Schema(program().p4info)
    entries = list(leaf(_LEAF_ENTRIES).entries)
    codec = Codec(schema)
    plain = _PlainCodec(schema)
    wires = []
    for entry in entries:
        encoded = codec.encode(entry)
        wires.append(encoded.wire)
        if plain.encode(entry).key != encoded.key:
            raise RuntimeError("the plain encoding differs")
    header = write_header(1, 1)
    parts = [wires[start : start + 1000] for start in range(0, len(wires), 1000)]
    steps: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        (
            "encode entries never seen",
            lambda: _each(_PlainCodec(schema).encode, entries),
            lambda: _each(Codec(schema).encode, entries),
        ),
        (
            "encode entries again",
            lambda: _each(plain.encode, entries),
            lambda: _each(codec.encode, entries),
        ),
        (
            "join 1000 entries to a WriteRequest",
            lambda: [_plain_write_request(header, UpdateKind.INSERT, part) for part in parts],
            lambda: [write_request(header, UpdateKind.INSERT, part) for part in parts],
        ),
    ]
    table = Table(
        "step of the controller", "plain protobuf, entries/s", "bytes, entries/s", "ratio"
    )
    for name, by_messages, by_bytes in steps:
        slow = _per_second(by_messages, len(entries), seconds)
        fast = _per_second(by_bytes, len(entries), seconds)
        table.add_row(name, f"{slow:,.0f}", f"{fast:,.0f}", f"{fast / slow:.2f}")
    console.print(table)


def _each(function: Callable[[T], object], items: Sequence[T]) -> None:
    for _ in map(function, islice(items, None)):
        pass


def _end_to_end(console: Console, rounds: int) -> None:
    intents = [leaf(_LEAF_ENTRIES)]
    used: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    runner = asyncio.Runner()
    with ExitStack() as stack:
        switches = {}
        for name, plain in (("bytes", False), ("plain protobuf", True)):
            switches[name] = stack.enter_context(_server(plain))
        for _ in range(rounds):
            for where, switch in switches.items():
                for controller in ("bytes", "plain entries", "plain requests", "plain protobuf"):
                    runner.run(clients.clear([switch.address]))
                    controller_s = time.process_time()
                    switch_s = switch.processor_s()
                    with _plain(controller):
                        runner.run(clients.by_session([switch.address], intents))
                    controller_s = time.process_time() - controller_s
                    switch_s = switch.processor_s() - switch_s
                    used[controller, where].append((controller_s, switch_s))
    table = Table(
        "controller",
        "switch",
        "controller, s",
        "switch, s",
        "entries/s of both",
        "bytes on both sides",
    )
    best = {key: min(runs_s, key=sum) for key, runs_s in used.items()}
    fastest = sum(best["bytes", "bytes"])
    for (controller, where), (controller_s, switch_s) in best.items():
        total = controller_s + switch_s
        rate = f"{_LEAF_ENTRIES / total:,.0f}"
        table.add_row(
            controller,
            where,
            f"{controller_s:.3f}",
            f"{switch_s:.3f}",
            rate,
            f"{total / fastest:.2f} times",
        )
    console.print(table)


@contextmanager
def _plain(kind: str) -> Iterator[None]:
    """Let sessions encode by plain protobuf."""
    with ExitStack() as stack:
        if kind in ("plain entries", "plain protobuf"):
            plain = _PlainCodec(P4Schema(program().p4info))

            def encode(_: Codec, entry: TableEntry) -> EncodedEntry:
                return plain.encode(entry)

            stack.enter_context(mock.patch.object(Codec, "encode", encode))
        if kind in ("plain requests", "plain protobuf"):
            stack.enter_context(
                mock.patch(
                    "echelon.switches.southbound.session.write_request", _plain_write_request
                )
            )
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print three tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="for each measurement that is repeated",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="of each; the best is printed",
    )
    options = parser.parse_args(arguments)
    console = Console(width=max(110, Console().width))
    _steps(console, options.seconds)
    _end_to_end(console, options.rounds)
    _writes(console, options.seconds, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
