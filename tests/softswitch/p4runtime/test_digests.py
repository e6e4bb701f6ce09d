"""Digest lists: the pure state machine against the specification's pseudo-code, and the flow
through a device.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.p4runtime.digests import DigestConfig, DigestLists
from softswitch.rpc.status import Code
from tests.drawing import examples

LEARN_ALL = (
    "table_entry { table_id: $ternary_table priority: 1 action { action { action_id: $learn } } }"
)


def frame(src: int) -> bytes:
    return bytes(6) + src.to_bytes(6, "big") + b"\x08\x00" + bytes(46)


def enable(controller: Any, size: int, timeout_ns: int, ack_ns: int, kind: str = "INSERT") -> None:
    text = f"max_list_size: {size} max_timeout_ns: {timeout_ns} ack_timeout_ns: {ack_ns}"
    controller.do(kind, f"digest_entry {{ digest_id: $station_t config {{ {text} }} }}")


@pytest.fixture
def learner(controller: Any) -> Any:
    """Return a primary of a device that learns from every packet."""
    controller.do("INSERT", LEARN_ALL)
    controller.inbox.clear()
    return controller


def receive(controller: Any, now_ns: int, *sources: int, port: int = 3) -> None:
    with controller.device.lock:
        for src in sources:
            controller.device.switch.process(port, frame(src), now_ns)


def lists(controller: Any) -> list[tuple[int, list[int]]]:
    """Return (timestamp, learnt addresses) of each list received so far."""
    return [
        (
            message.digest.timestamp,
            [
                int.from_bytes(data.struct.members[0].bitstring, "big")
                for data in message.digest.data
            ],
        )
        for message in controller.inbox
        if message.HasField("digest")
    ]


def acknowledge(controller: Any, position: int = -1) -> None:
    digest = [message.digest for message in controller.inbox if message.HasField("digest")][
        position
    ]
    ack = p4r.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id)
    controller.stream.receive(p4r.StreamMessageRequest(digest_ack=ack))


# -- through a device ------------------------------------------------------------------------------


def test_nothing_is_sent_unless_enabled(learner: Any) -> None:
    receive(learner, 10, 1)
    enable(learner, 1, 0, 0)
    receive(learner, 11, 2)
    learner.do("DELETE", "digest_entry { digest_id: $station_t }")
    receive(learner, 12, 3)
    assert lists(learner) == [(11, [2])]


def test_data_has_the_shape_of_the_p4info(learner: Any) -> None:
    enable(learner, 1, 0, 0)
    receive(learner, 77, 0x0000AABBCCDD, port=300)
    (message,) = learner.inbox
    assert message.digest.digest_id == learner.program.ids["station_t"]
    assert message.digest.timestamp == 77
    (data,) = message.digest.data
    assert [member.WhichOneof("data") for member in data.struct.members] == [
        "bitstring",
        "bitstring",
        "bool",
    ]
    assert data.struct.members[0].bitstring == b"\xaa\xbb\xcc\xdd"
    assert data.struct.members[1].bitstring == b"\x01\x2c"
    assert data.struct.members[2].bool is False


def test_lists_are_cut_by_size_and_by_time(learner: Any) -> None:
    enable(learner, 3, 100, 0)
    receive(learner, 10, 1, 2, 2, 1)
    assert lists(learner) == []
    assert learner.device.next_tick_ns() == 110
    receive(learner, 20, 3, 4)
    assert lists(learner) == [(20, [1, 2, 3])]
    learner.device.tick(119)
    assert len(lists(learner)) == 1
    learner.device.tick(120)
    assert lists(learner)[1:] == [(120, [4])]
    assert learner.device.next_tick_ns() is None


def test_without_ack_timeout_nothing_is_remembered(learner: Any) -> None:
    enable(learner, 1, 0, 0)
    receive(learner, 1, 5, 5, 5)
    assert lists(learner) == [(1, [5])] * 3
    assert learner.device.wait_acknowledged(0)


def test_unacknowledged_messages_are_not_repeated(learner: Any) -> None:
    enable(learner, 1, 0, 50)
    receive(learner, 1, 5, 5, 6)
    assert lists(learner) == [(1, [5]), (1, [6])]
    acknowledge(learner, 0)
    receive(learner, 2, 5, 6)
    assert lists(learner)[2:] == [(2, [5])]
    learner.device.tick(51)
    receive(learner, 51, 5, 6)
    assert lists(learner)[3:] == [(51, [6])], (
        "6 was sent at 1 and has expired, 5 was sent at 2 and has not"
    )


def test_list_ids_differ_even_across_pipelines(learner: Any) -> None:
    enable(learner, 1, 0, 50)
    receive(learner, 1, 5)
    learner.set_pipeline("VERIFY_AND_COMMIT", learner.program.config())
    learner.do("INSERT", LEARN_ALL)
    enable(learner, 1, 0, 50)
    receive(learner, 2, 6)
    assert not learner.device.wait_acknowledged(0)
    acknowledge(learner, 0)
    assert not learner.device.wait_acknowledged(0), (
        "an acknowledgement of the old pipeline's list is no other's"
    )
    acknowledge(learner, 1)
    assert learner.device.wait_acknowledged(0)


def test_smaller_list_size_cuts_what_has_gathered(learner: Any) -> None:
    enable(learner, 10, 1000, 0)
    receive(learner, 1, 1, 2, 3)
    enable(learner, 2, 1000, 0, "MODIFY")
    receive(learner, 2, 4)
    assert lists(learner) == [(2, [1, 2, 3, 4])]


def test_backups_get_none_and_may_not_acknowledge(
    learner: Any, connect: Callable[..., Any]
) -> None:
    backup = connect(None)
    enable(learner, 1, 0, 50)
    receive(learner, 1, 5)
    assert lists(backup) == []
    ack = p4r.DigestListAck(digest_id=learner.program.ids["station_t"], list_id=1)
    backup.stream.receive(p4r.StreamMessageRequest(digest_ack=ack))
    error = backup.inbox[-1].error
    assert error.canonical_code == Code.PERMISSION_DENIED
    assert error.digest_list_ack.digest_list_ack == ack
    assert not learner.device.wait_acknowledged(0)


def test_acknowledging_an_unknown_digest(learner: Any) -> None:
    learner.stream.receive(
        p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=9, list_id=1))
    )
    assert learner.inbox[-1].error.canonical_code == Code.INVALID_ARGUMENT


def test_without_a_primary_messages_are_lost(learner: Any, connect: Callable[..., Any]) -> None:
    enable(learner, 1, 0, 50)
    learner.stream.close()
    receive(learner, 1, 5)
    successor = connect(9)
    receive(learner, 2, 5)
    assert lists(successor) == [(2, [5])]


@pytest.mark.parametrize("how", ["closes", "is replaced", "steps down", "pipeline"])
def test_waiting_ends_when_the_receiver_is_gone(
    learner: Any, connect: Callable[..., Any], how: str
) -> None:
    enable(learner, 1, 0, 10**9)
    receive(learner, 1, 5)
    assert not learner.device.wait_acknowledged(0)
    if how == "closes":
        learner.stream.close()
    elif how == "is replaced":
        connect(9)
    elif how == "steps down":
        learner.election_id = None
        learner.arbitrate()
    else:
        learner.set_pipeline("VERIFY_AND_COMMIT", learner.program.config())
    assert learner.device.wait_acknowledged(0)


def test_every_primary_must_acknowledge(learner: Any, connect: Callable[..., Any]) -> None:
    other = connect(1, "other")
    enable(learner, 1, 0, 50)
    receive(learner, 1, 5)
    assert lists(other) == lists(learner) == [(1, [5])]
    acknowledge(learner)
    assert not learner.device.wait_acknowledged(0)
    acknowledge(other)
    assert learner.device.wait_acknowledged(0)


def test_a_controller_acts_at_a_virtual_instant(learner: Any) -> None:
    """The data plane's thread holds the lock, waits, and finds the controller's write done when it
    goes on.
    """
    enable(learner, 1, 0, 10**9)
    arrived = threading.Event()
    send = learner.stream.send
    learner.stream.send = lambda message: (send(message), arrived.set())

    def react() -> None:
        assert arrived.wait(10)
        learner.write(learner.program.exact(5))
        acknowledge(learner)

    thread = threading.Thread(target=react)
    thread.start()
    with learner.device.lock:
        receive(learner, 1, 5)
        assert len(learner.device.switch.tables["IngressImpl.exact_table"]) == 0
        assert learner.device.wait_acknowledged(10)
        assert len(learner.device.switch.tables["IngressImpl.exact_table"]) == 1
    thread.join()


def test_waiting_gives_up(learner: Any) -> None:
    enable(learner, 1, 0, 10**9)
    receive(learner, 1, 5)
    assert learner.device.wait_acknowledged(0.01) is False


# -- the state machine against the specification's pseudo-code -------------------------------------


class PseudoCode:
    """A transcription of section "DigestEntry", for one digest and one controller."""

    def __init__(self, config: DigestConfig) -> None:
        self.config = config
        self.buffer: list[tuple[int, ...]] = []
        self.first_ns = 0
        self.cache: dict[int, tuple[int, list[tuple[int, ...]]]] = {}
        self.sent: list[list[tuple[int, ...]]] = []

    def send_buffer(self, now_ns: int) -> None:
        self.sent.append(self.buffer)
        if self.config.ack_timeout_ns:
            self.cache[len(self.sent)] = (now_ns, self.buffer)
        self.buffer = []

    def digest(self, message: tuple[int, ...], now_ns: int) -> None:
        if message in self.buffer or any(
            message in messages for _, messages in self.cache.values()
        ):
            return
        if not self.buffer:
            self.first_ns = now_ns
        self.buffer.append(message)
        full = self.config.max_list_size and len(self.buffer) >= self.config.max_list_size
        if full or self.config.max_timeout_ns == 0:
            self.send_buffer(now_ns)

    def loop(self, now_ns: int) -> None:
        for list_id, (sent_ns, _) in list(self.cache.items()):
            if now_ns - sent_ns >= self.config.ack_timeout_ns:
                del self.cache[list_id]
        if self.buffer and now_ns - self.first_ns >= self.config.max_timeout_ns:
            self.send_buffer(now_ns)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.builds(DigestConfig, st.integers(0, 12), st.integers(0, 4), st.integers(0, 15)),
    st.lists(
        st.one_of(
            st.tuples(st.just("learn"), st.integers(0, 5)),
            st.tuples(st.just("pass"), st.integers(1, 8)),
            st.tuples(st.just("ack"), st.integers(1, 12)),
        ),
        max_size=60,
    ),
)
def test_agrees_with_the_pseudo_code(config: DigestConfig, events: list[tuple[str, int]]) -> None:
    digests = DigestLists(itertools.count(1))
    digests.configure(1, config)
    model = PseudoCode(config)
    sent: list[list[tuple[int, ...]]] = []
    now_ns = 0
    for what, number in events:
        if what == "learn":
            model.digest((number,), now_ns)
            batch = digests.learn(1, (number,), now_ns, ["controller"])
            sent += [] if batch is None else [list(batch.messages)]
        elif what == "pass":
            now_ns += number
            model.loop(now_ns)
            sent += [
                list(batch.messages)
                for batch in digests.tick(now_ns, lambda _digest_id: ["controller"])
            ]
            due = digests.next_tick_ns()
            assert due is None or due > now_ns
        else:
            model.cache.pop(number, None)
            digests.acknowledge(1, number, "controller")
        assert sent == model.sent
        assert digests.waiting == bool(model.cache)
