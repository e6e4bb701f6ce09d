"""Reads that are long: what goes on between their slices, what they see, and what they may ask."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.p4runtime import past as past_module
from softswitch.p4runtime import pipeline as pipeline_module
from softswitch.p4runtime import reading as reading_module
from softswitch.p4runtime.reading import Reading
from softswitch.p4runtime.turns import Turns
from softswitch.rpc.status import BatchFailedError, Code, RefusedError
from tests.faults import mentions
from tests.p4runtime_fuzz import Messages
from tests.reference.table_updates import updates
from tests.softswitch.p4runtime.conftest import EVERYTHING

TIMEOUT_S = 60


def read_request(program: Any, *texts: str) -> p4r.ReadRequest:
    return p4r.ReadRequest(device_id=1, entities=[program.entity(text) for text in texts])


def read(controller: Any, request: p4r.ReadRequest) -> list[str]:
    """Return what a Read returns, whether or not some of its queries are refused."""
    entities: list[str] = []
    with suppress(BatchFailedError):
        for response in controller.device.read(request):
            entities += map(str, response.entities)
    return sorted(entities)


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a Read return one entity a response, so that a test can do something between two."""
    monkeypatch.setattr(reading_module, "_STEPS_AT_ONCE", 1)
    monkeypatch.setattr(reading_module, "_STEPS_PER_PART", 1)
    monkeypatch.setattr(reading_module, "_RESPONSE_BYTES", 1)


# -- the order of calls ----------------------------------------------------------------------------


def test_writes_go_before_the_slices_of_reads_and_roles_take_turns() -> None:
    turns = Turns()
    order: list[str] = []
    threads: list[threading.Thread] = []

    def wait_for(turn: Any, name: str) -> None:
        def run() -> None:
            with turn:
                order.append(name)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        threads.append(thread)
        while turns.waiting < len(threads):
            time.sleep(0)

    with turns.slice:
        wait_for(turns.slice, "read")
        wait_for(turns.change("a"), "a1")
        wait_for(turns.change("a"), "a2")
        wait_for(turns.change(), "b1")
        wait_for(turns.slice, "read")
        wait_for(turns.change(), "b2")
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert order == ["a1", "b1", "a2", "b2", "read", "read"]


def test_a_read_gets_a_slice_beside_writes_without_end() -> None:
    turns = Turns()
    done = threading.Event()
    writes = 0

    def one_slice() -> None:
        with turns.slice:
            done.set()

    def write() -> None:
        nonlocal writes
        while not done.is_set():
            with turns.change():
                # The next one waits before this one has ended.
                while turns.waiting < 1:
                    time.sleep(0)
                writes += 1

    with turns.change():
        reader = threading.Thread(target=one_slice, daemon=True)
        reader.start()
        while turns.waiting < 1:
            time.sleep(0)
        writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
        for writer in writers:
            writer.start()
        while turns.waiting < 3:
            time.sleep(0)
    assert done.wait(TIMEOUT_S)
    assert writes <= 10, "eight changes go before a slice that waits"
    with turns.slice:
        pass


def test_a_read_of_many_queries_and_writes_meanwhile(
    controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Read is still under way when the last Write of many has been answered: in every slice
    another Write asks, and it is answered before the next slice.
    """
    program = controller.program
    assert not any(s.code for s in controller.write(*updates(program.p4info, "exact_table", 300)))
    request = read_request(program, *["table_entry { }"] * 110)
    monkeypatch.setattr(reading_module, "_STEPS_PER_READ", 30_000)
    events: list[str] = []
    threads: list[threading.Thread] = []
    work = Reading.work

    def write(number: int) -> None:
        statuses = controller.write(program.exact(70_000 + number))
        events.append("write" if statuses[0].code == Code.OK else statuses[0].message)

    def work_and_write(reading: Reading) -> None:
        work(reading)
        events.append("slice")
        if len(threads) < 100:
            turns = controller.device._turns  # noqa: SLF001
            thread = threading.Thread(target=write, args=(len(threads),), daemon=True)
            threads.append(thread)
            thread.start()
            while turns.waiting < 1:
                time.sleep(0)

    monkeypatch.setattr(Reading, "work", work_and_write)
    responses: list[p4r.ReadResponse] = []
    with pytest.raises(BatchFailedError) as caught:
        responses.extend(controller.device.read(request))
    for thread in threads:
        thread.join(TIMEOUT_S)
    # An event is noted after its turn, so two next to each other may be noted the other way round.
    last = max(index for index, event in enumerate(events) if event == "write")
    assert events.count("write") == 100
    assert last < 210 < len(events), "no Write waits for more than the slice under way"
    # The first queries get all entries that there were when the Read began, the last ones nothing.
    assert len(responses[0].entities) > 302
    assert sum(len(response.entities) for response in responses) <= 30_000 + 2 * 402
    codes = [status.code for status in caught.value.statuses]
    assert (codes[0], codes[-1]) == (Code.OK, Code.RESOURCE_EXHAUSTED)
    assert mentions(caught.value.statuses[-1].message, "30000", "entries of all tables")
    assert {status.code for status in caught.value.statuses} == {Code.OK, Code.RESOURCE_EXHAUSTED}


def test_a_read_does_not_wait_for_its_client_with_the_turn(
    controller: Any, step_by_step: None
) -> None:
    controller.write(*(controller.program.exact(number) for number in range(10)))
    responses = controller.device.read(read_request(controller.program, "table_entry { }"))
    next(responses)
    assert controller.write(controller.program.exact(20))[0].code == Code.OK
    responses.close()
    pipeline = controller.device._committed  # noqa: SLF001
    assert pipeline._pasts == []  # noqa: SLF001
    assert all(view.pasts == [] for view in pipeline.tables.views())


# -- what a Read sees ------------------------------------------------------------------------------

DEFAULTS = [
    f"table_entry {{ table_id: ${name} is_default_action: true }}"
    for name in ("exact_table", "lpm_table", "ternary_table", "meter_table")
]
FILTERS = [
    "table_entry { table_id: $ternary_table priority: 5 }",
    "direct_counter_entry { }",
    "direct_meter_entry { }",
    "counter_entry { index { index: 3 } }",
    "action_profile_member { action_profile_id: $members }",
    "action_profile_group { action_profile_id: $chooser }",
]


@pytest.mark.parametrize("seed", range(12))
def test_a_read_sees_no_write_that_began_after_it(
    controller: Any, seed: int, step_by_step: None
) -> None:
    random_ = random.Random(seed)
    messages = Messages(controller.program, random_)
    program = controller.program

    def change(count: int) -> None:
        entities = [*random_.choices(messages.seeds, k=count), messages.mutated_entity()]
        batch = [p4r.Update(type=random_.choice([1, 2, 3]), entity=each) for each in entities]
        controller.write(*batch, atomicity=random_.choice([0, 0, 1, 2]))

    for _ in range(20):
        change(3)
    keys = [p4r.Entity.FromString(each.SerializeToString()) for each in messages.seeds]
    request = read_request(program, *random_.sample([*EVERYTHING, *DEFAULTS, *FILTERS], 20))
    request.entities.extend(keys)
    before = read(controller, request)

    entities: list[str] = []
    responses = controller.device.read(request)
    with suppress(BatchFailedError):
        for response in responses:
            entities += map(str, response.entities)
            if random_.random() < 0.5:
                change(random_.randrange(4))
    assert sorted(entities) == before
    assert controller.device._committed._pasts == []  # noqa: SLF001


def test_a_read_ends_when_all_cells_are_set_or_the_pipeline_is_replaced(
    controller: Any, step_by_step: None
) -> None:
    program = controller.program
    for text, change in [
        (
            "counter_entry { counter_id: $port_counter }",
            lambda: controller.do(
                "MODIFY", "counter_entry { counter_id: $port_counter data { packet_count: 3 } }"
            ),
        ),
        (
            "table_entry { }",
            lambda: controller.set_pipeline("VERIFY_AND_COMMIT", program.config()),
        ),
    ]:
        controller.write(*(program.exact(number) for number in range(3)))
        responses = controller.device.read(read_request(program, text))
        next(responses)
        change()
        with pytest.raises(RefusedError) as caught:
            list(responses)
        assert caught.value.status.code == Code.ABORTED
        assert mentions(caught.value.status.message, "read again")


# -- bounds ----------------------------------------------------------------------------------------


def test_too_many_queries_are_refused_as_a_whole(controller: Any) -> None:
    request = p4r.ReadRequest(device_id=1)
    request.entities.extend([controller.program.entity("table_entry { }")] * 4097)
    with pytest.raises(RefusedError) as caught:
        list(controller.device.read(request))
    assert caught.value.status.code == Code.RESOURCE_EXHAUSTED
    assert mentions(caught.value.status.message, "4097 queries", "4096")


def test_a_search_counts_what_it_looks_at(controller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_STEPS_PER_READ", 100)
    controller.write(*(controller.program.exact(number) for number in range(50)))
    nothing = 'table_entry { table_id: $exact_table metadata: "absent" }'
    assert controller.read(*[nothing] * 3) == []
    with pytest.raises(BatchFailedError) as caught:
        controller.read(*[nothing] * 40)
    codes = [status.code for status in caught.value.statuses]
    assert codes[0] == Code.OK
    assert codes[10:] == [Code.RESOURCE_EXHAUSTED] * 30


def test_what_is_kept_for_a_slow_reader_is_bounded(
    controller: Any, step_by_step: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_module, "_MOST_KEPT", 8)
    program = controller.program
    controller.write(*(program.exact(number) for number in range(20)))
    responses = controller.device.read(read_request(program, "table_entry { }"))
    next(responses)
    for number in range(20):
        controller.write(program.exact(number, kind="DELETE"))
    (past,) = controller.device._committed._pasts  # noqa: SLF001
    assert all(not table.entries for table in past._tables.values())  # noqa: SLF001
    with pytest.raises(RefusedError) as caught:
        list(responses)
    assert caught.value.status.code == Code.RESOURCE_EXHAUSTED
    assert mentions(caught.value.status.message, "8 entities", "read again")


def test_a_response_waits_for_its_client_before_more_is_read(
    controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "_RESPONSE_BYTES", 2000)
    controller.write(*updates(controller.program.p4info, "exact_table", 2000))
    slices = 0
    work = Reading.work

    def counted(reading: Reading) -> None:
        nonlocal slices
        slices += 1
        work(reading)

    monkeypatch.setattr(Reading, "work", counted)
    responses = controller.device.read(read_request(controller.program, "table_entry { }"))
    first = next(responses)
    assert slices == 1, "no more is read than what is sent"
    assert 2000 <= first.ByteSize() < 4000
    assert sum(1 for _ in responses) > 20


@pytest.mark.parametrize(
    ("count", "atomicity", "limit"),
    [(4097, 1, "4096"), (4097, 2, "4096"), (65_537, 0, "65536")],
)
def test_too_many_updates_are_refused_as_a_whole(
    controller: Any, count: int, atomicity: int, limit: str
) -> None:
    update = controller.program.exact(1)
    with pytest.raises(RefusedError) as caught:
        controller.write(*[update] * count, atomicity=atomicity)
    assert caught.value.status.code == Code.RESOURCE_EXHAUSTED
    assert mentions(caught.value.status.message, f"{count} updates", limit)
    assert controller.read("table_entry { table_id: $exact_table }") == []


def test_what_is_undone_as_a_whole_is_bounded(
    controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "_MOST_UNDONE", 12)
    text = "counter_entry { counter_id: $port_counter data { packet_count: 3 } }"
    all_cells = controller.program.update("MODIFY", text)
    entry = controller.program.exact(1)
    statuses = controller.write(entry, all_cells, atomicity=1)
    assert [status.code for status in statuses] == [Code.ABORTED, Code.RESOURCE_EXHAUSTED]
    assert controller.read("table_entry { table_id: $exact_table }") == []
