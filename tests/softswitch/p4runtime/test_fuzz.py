"""Mutated messages: whatever is sent, it gets a status, and the device goes on working."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from finsy.proto import gnmi, p4r

from softswitch.gnmi.qos import QosTree
from softswitch.rpc.status import BatchFailedError, Code, RefusedError
from tests.p4runtime_fuzz import Messages, mutated
from tests.softswitch.tm.native import SchedulerInC

ROUNDS = 2000


def outcome(call: Callable[..., object], *args: object) -> list[Code]:
    """Return the codes that a call ends with. Any other exception is a failure of the test."""
    try:
        found = call(*args)
        found = tuple(found) if isinstance(found, Iterator) else found
    except RefusedError as error:
        return [error.status.code]
    except BatchFailedError as error:
        return [status.code for status in error.statuses]
    return [status.code for status in found] if isinstance(found, list) else [Code.OK]


def test_mutated_writes_and_reads(controller: Any) -> None:
    random_ = random.Random(1)
    messages = Messages(controller.program, random_)
    seeds = messages.seeds
    seen: set[Code] = set()
    for number in range(ROUNDS):
        entities = [messages.mutated_entity() for _ in range(random_.randint(1, 3))]
        updates = [
            p4r.Update(type=random_.choice([1, 1, 2, 3]), entity=entity) for entity in entities
        ]
        if random_.random() < 0.3:
            updates.append(p4r.Update(type=random_.choice([1, 3]), entity=random_.choice(seeds)))
        statuses = outcome(
            controller.device.write,
            controller.request(*updates, atomicity=random_.choice([0, 0, 1])),
        )
        assert len(statuses) == len(updates)
        seen.update(statuses)
        request = p4r.ReadRequest(device_id=1, entities=entities)
        seen.update(outcome(controller.device.read, request))
        if number % 100 == 0:
            controller.device.tick(number)
    assert seen >= {
        Code.OK,
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,
        Code.PERMISSION_DENIED,
        Code.ABORTED,
    }
    controller.set_pipeline("VERIFY_AND_COMMIT", controller.program.config())
    for seed in seeds[:3]:
        assert controller.write(p4r.Update(type=p4r.Update.INSERT, entity=seed))[0].code == Code.OK


def test_a_rolled_back_batch_leaves_no_trace(controller: Any) -> None:
    random_ = random.Random(2)
    messages = Messages(controller.program, random_)
    rolled_back = 0
    for _ in range(300):
        updates = [
            p4r.Update(type=random_.choice([1, 2, 3]), entity=messages.mutated_entity())
            for _ in range(6)
        ]
        updates += [
            p4r.Update(type=random_.choice([1, 1, 2, 3]), entity=random_.choice(messages.seeds))
            for _ in range(4)
        ]
        random_.shuffle(updates)
        before = sorted(str(entity) for entity in controller.everything())
        statuses = controller.write(*updates, atomicity=random_.choice([0, 1, 2, 2]))
        if Code.ABORTED in [status.code for status in statuses]:
            rolled_back += 1
            assert sorted(str(entity) for entity in controller.everything()) == before
    assert rolled_back > 50


def test_mutated_stream_messages(controller: Any, connect: Callable[..., Any]) -> None:
    random_ = random.Random(3)
    controller.device.on_packet_out = lambda data: None
    claim = p4r.MasterArbitrationUpdate(
        device_id=1, election_id=p4r.Uint128(low=3), role=p4r.Role(name="r")
    )
    seeds = Messages(controller.program, random_).on_stream(claim)
    for _ in range(ROUNDS):
        seed = random_.choice(seeds[:3] if random_.random() < 0.9 else seeds)
        if controller.ended:
            controller = connect(2)
        controller.inbox.clear()
        message = mutated(seed, random_)
        controller.stream.receive(message)
        answered = [response.WhichOneof("update") for response in controller.inbox]
        if message.WhichOneof("update") == "arbitration":
            assert controller.ended or "arbitration" in answered
        else:
            assert set(answered) <= {"error"}
    controller.stream.close()


@pytest.mark.parametrize("part", ["p4info", "program"])
def test_mutated_pipelines(controller: Any, part: str) -> None:
    random_ = random.Random(4)
    messages = Messages(controller.program, random_)
    refused = 0
    for _ in range(60 if part == "p4info" else 25):
        config = messages.mutated_p4info() if part == "p4info" else messages.mutated_program()
        refused += outcome(controller.set_pipeline, "VERIFY", config) == [Code.INVALID_ARGUMENT]
    assert refused > 0
    assert controller.write(controller.program.exact(1))[0].code == Code.OK


def test_mutated_gnmi_sets(program: Any) -> None:
    random_ = random.Random(5)
    messages = Messages(program, random_)
    tree = QosTree({1: SchedulerInC(10**9), 2: SchedulerInC(None)})
    seen: set[Code] = set()
    for _ in range(ROUNDS):
        path = messages.gnmi_path()
        update = gnmi.Update(path=path, val=messages.gnmi_value())
        operation = random_.choice(["update", "replace", "delete"])
        request = gnmi.SetRequest(**{operation: [path if operation == "delete" else update]})  # type: ignore[arg-type]
        seen.update(outcome(tree.set, request, 0))
        seen.update(outcome(tree.get, path, None, 0, random_.choice([0, 1, 2, 3, 4])))
    assert seen == {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.UNIMPLEMENTED}
