"""The harness itself, without BMv2: that cases are what they should be, and that no difference
escapes it.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from finsy.proto import p4r

from softswitch import Switch, load_program
from softswitch.rpc.status import Code
from tests.differential.campaign import campaign, judge
from tests.differential.case import (
    Case,
    Outcome,
    Output,
    Packets,
    Sent,
    Write,
    Written,
    dump,
    parse,
)
from tests.differential.catalogue import HERE, names, subject
from tests.differential.compare import differences
from tests.differential.generator import make
from tests.differential.shrink import shrink
from tests.differential.soft import DeviceTarget, FabricTarget
from tests.differential.target import run
from tests.differential.vocabulary import Vocabulary
from tests.differential.walk import packets
from tests.needs import needs

PROGRAMS = HERE / "programs"


@cache
def case_of(name: str, seed: int = 7, count: int = 60) -> Case:
    return make(subject(name), random.Random(seed), count)


@cache
def outcome_of(name: str) -> Outcome:
    return run(DeviceTarget(), subject(name), case_of(name))


@pytest.mark.parametrize("name", names())
def test_pipelines_and_fabric_agree(name: str) -> None:
    found = [
        line
        for verdict in campaign(subject(name), 1, 40, DeviceTarget(), FabricTarget())
        for line in verdict.differences
    ]
    assert found == []


@pytest.mark.parametrize("name", names())
def test_the_same_seed_gives_the_same_case(name: str) -> None:
    assert make(subject(name), random.Random(7), 60) == case_of(name)


@pytest.mark.parametrize("name", names())
def test_cases_reach_something(name: str) -> None:
    """Packets come out, entries are taken and refused."""
    outcome = outcome_of(name)
    assert any(isinstance(result, Sent) and result.outputs for result in outcome.results)
    if subject(name).p4info.tables:
        codes = Counter(
            code
            for result in outcome.results
            if isinstance(result, Written)
            for code in result.codes
        )
        assert codes[Code.OK] >= 5
        assert codes.total() > codes[Code.OK]


def test_packets_reach_every_arm_of_the_parser() -> None:
    program = subject("stacks").program
    switch = Switch(load_program(subject("stacks").json))
    rng = random.Random(1)
    made = list(islice(packets(program, Vocabulary(program, rng), rng), 400))
    assert {data[0] & 15 for data in made} >= {1, 2, 3, 4, 8}
    for data in made:
        switch.ingress(0, data, 0)
    assert set(switch.stats.parser_errors) >= {"PacketTooShort", "StackOutOfBounds", "BadVersion"}


def test_a_counterexample_survives_its_file() -> None:
    case, outcome = case_of("everything"), outcome_of("everything")
    again, theirs = parse(dump(case, outcome, "note"))
    assert again == case
    assert differences(subject("everything"), case, outcome, theirs) == []


# -- what a faulty switch does must show -----------------------------------------------------------


def _change_outputs(
    change: Callable[[list[Output]], Sequence[Output]],
) -> Callable[[Outcome], Outcome]:
    def changed(outcome: Outcome) -> Outcome:
        results = list(outcome.results)
        for number, result in enumerate(results):
            if isinstance(result, Sent) and len(result.outputs) > 3:
                # As from BMv2, which does not tell the queue.
                anonymous = [replace(output, queue=None) for output in result.outputs]
                results[number] = Sent(tuple(change(anonymous)))
                return replace(outcome, results=tuple(results))
        raise AssertionError("no step has enough packets")

    return changed


def _lose(outputs: list[Output]) -> Sequence[Output]:
    return outputs[1:]


def _double(outputs: list[Output]) -> Sequence[Output]:
    return [outputs[0], *outputs]


def _flip(outputs: list[Output]) -> Sequence[Output]:
    first = outputs[0]
    return [replace(first, data=bytes([first.data[0] ^ 1]) + first.data[1:]), *outputs[1:]]


def _misroute(outputs: list[Output]) -> Sequence[Output]:
    return [replace(outputs[0], port=outputs[0].port ^ 1), *outputs[1:]]


def _overtake(outputs: list[Output]) -> Sequence[Output]:
    """Return the outputs with the first two packets that leave by one port swapped."""
    for later in range(1, len(outputs)):
        for earlier in range(later):
            one, other = outputs[earlier], outputs[later]
            if one.port == other.port and (one.cause, one.data) != (other.cause, other.data):
                outputs[earlier], outputs[later] = other, one
                return outputs
    raise AssertionError("no two packets leave by one port")


@pytest.mark.parametrize("fault", [_lose, _double, _flip, _misroute, _overtake])
@pytest.mark.parametrize("name", ["matching", "stacks", "copies"])
def test_a_fault_in_the_packets_shows(
    name: str, fault: Callable[[list[Output]], Sequence[Output]]
) -> None:
    case, outcome = case_of(name), outcome_of(name)
    assert differences(subject(name), case, outcome, _change_outputs(list)(outcome)) == []
    if not (
        name == "copies" and fault is _overtake
    ):  # there, copies of one packet may come in any order
        assert differences(subject(name), case, outcome, _change_outputs(fault)(outcome))


def test_another_order_of_queues_does_not_count() -> None:
    """Two packets of different queues of a port may leave in either order; those of one queue may
    not.
    """
    one, other = Output(0, 1, b"\x01", 3), Output(1, 1, b"\x02", 5)
    case = Case("matching", (Packets(((0, b"a"), (0, b"b"))),))
    reverse = Outcome((Sent((replace(other, queue=None), replace(one, queue=None))),), ())
    assert differences(subject("matching"), case, Outcome((Sent((one, other)),), ()), reverse) == []
    same_queue = Outcome((Sent((one, replace(other, queue=3))),), ())
    assert len(differences(subject("matching"), case, same_queue, reverse)) == 1


def test_a_fault_in_a_status_shows() -> None:
    update = p4r.Update(
        type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=p4r.TableEntry(table_id=1))
    )
    case = Case("matching", (Write((update,)),))

    def lines(ours: Code, theirs: Code) -> int:
        return len(
            differences(
                subject("matching"),
                case,
                Outcome((Written((ours,)),), ()),
                Outcome((Written((theirs,)),), ()),
            )
        )

    assert lines(Code.OK, Code.OK) == 0
    assert lines(Code.NOT_FOUND, Code.INVALID_ARGUMENT) == 1
    assert lines(Code.OK, Code.UNKNOWN) == 1
    assert lines(Code.UNKNOWN, Code.OK) == 1
    # BMv2's own word for every refusal of its tables.
    assert lines(Code.RESOURCE_EXHAUSTED, Code.UNKNOWN) == 0


def test_a_fault_in_the_state_shows() -> None:
    case, outcome = case_of("memory"), outcome_of("memory")
    assert outcome.state
    less = replace(outcome, state=outcome.state[1:])
    assert len(differences(subject("memory"), case, outcome, less)) == 1
    assert len(differences(subject("memory"), case, less, outcome)) == 1


# -- shrinking -------------------------------------------------------------------------------------


class _Blind(DeviceTarget):
    """A switch that changes packets longer than 40 bytes."""

    def send(self, packets: Sequence[tuple[int, bytes]], hint: Sent | None) -> Sent:
        sent = super().send(packets, hint)
        wrong = tuple(
            replace(output, data=output.data + b"!") if len(output.data) > 40 else output
            for output in sent.outputs
        )
        return replace(sent, outputs=wrong)


def test_shrinking_leaves_one_packet() -> None:
    program = subject("matching")

    def fails(case: Case) -> bool:
        return bool(judge(program, case, DeviceTarget(), _Blind()).differences)

    case = case_of("matching", count=16)
    assert fails(case)
    small = shrink(case, fails)
    assert fails(small)
    assert (small.packet_count, small.update_count) == (1, 0)
    assert not fails(Case(small.program, ()))


# -- artefacts -------------------------------------------------------------------------------------


@pytest.mark.p4c
@needs("p4c")
@pytest.mark.parametrize("source", sorted(PROGRAMS.glob("*.p4")), ids=lambda path: path.stem)
def test_compiled_output_is_of_these_sources(source: Path, tmp_path: Path) -> None:
    json, p4info = tmp_path / "out.json", tmp_path / "out.p4info.txtpb"
    subprocess.run(
        [
            "p4c-bm2-ss",
            "--std",
            "p4-16",
            "--arch",
            "v1model",
            "-o",
            json,
            "--p4runtime-files",
            p4info,
            source.name,
        ],
        cwd=PROGRAMS,
        check=True,
        capture_output=True,
    )
    assert p4info.read_text() == source.with_suffix(".p4info.txtpb").read_text()
    assert json.read_text() == source.with_suffix(".json").read_text()


@pytest.mark.p4c
@needs("p4c")
def test_p4infos_are_of_the_borrowed_programs(tmp_path: Path) -> None:
    borrowed = HERE.parents[1] / "tests" / "softswitch" / "programs"
    for p4info in sorted(PROGRAMS.glob("*.p4info.txtpb")):
        source = borrowed / p4info.name.replace(".p4info.txtpb", ".p4")
        if source.exists():
            made = tmp_path / p4info.name
            command: list[str | Path] = [
                "p4c-bm2-ss",
                "--std",
                "p4-16",
                "--arch",
                "v1model",
                "-o",
                tmp_path / "out.json",
            ]
            subprocess.run(
                [*command, "--p4runtime-files", made, source], check=True, capture_output=True
            )
            assert made.read_text() == p4info.read_text(), (
                f"{source} changed: compile {p4info.name} anew"
            )
