"""Datagrams of programs of one's own, read by the reader of emulated hosts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_lab.endhosts.shim import HEADER_BYTES, SHIM_AT, DataSegment, flow_key, read_payload
from echelon_torch.agent.datagrams import datagrams, payload, udp_socket
from tests.drawing import examples
from tests.faults import naming


@given(
    st.integers(1, 0xFFFF),
    st.integers(0, 0xFFFF),
    st.integers(0, 10**6),
    st.binary(min_size=1, max_size=5000),
    st.integers(1, 2000),
)
@settings(max_examples=examples(200), deadline=None)
def test_they_carry_the_data_and_say_how_much_is_left(
    job: int, flow: int, iteration: int, data: bytes, payload_bytes: int
) -> None:
    made = list(datagrams(job, flow, iteration, data, payload_bytes))
    assert b"".join(map(payload, made)) == data
    wire_bytes = [len(one) + SHIM_AT for one in made]
    for index, one in enumerate(made):
        key, segment, stamp = read_payload(one) or pytest.fail("no shim")
        assert key == flow_key(iteration % 256, job, flow)
        assert segment == DataSegment(
            sum(wire_bytes[index:]), wire_bytes[index], last=index == len(made) - 1
        )
        assert not any(stamp)
    assert sum(wire_bytes) == len(data) + len(made) * HEADER_BYTES


@pytest.mark.parametrize(
    ("job", "flow", "iteration", "data", "payload_bytes", "facts"),
    [
        (0, 0, 0, b"x", 1, "job 0, flow 0, iteration 0"),
        (0x10000, 0, 0, b"x", 1, "job 65536, flow 0, iteration 0"),
        (1, -1, 0, b"x", 1, "job 1, flow -1, iteration 0"),
        (1, 0x10000, 0, b"x", 1, "job 1, flow 65536, iteration 0"),
        (1, 0, -1, b"x", 1, "job 1, flow 0, iteration -1"),
        (1, 0, 0, b"", 1, "payload_bytes"),
        (1, 0, 0, b"x", 0, "payload_bytes"),
        (1, 0, 0, bytes(70_000_000), 1, "70000000 bytes"),
    ],
)
def test_what_the_shim_cannot_carry_is_refused(
    job: int, flow: int, iteration: int, data: bytes, payload_bytes: int, facts: str
) -> None:
    with pytest.raises(ValueError, check=naming(facts)):
        next(datagrams(job, flow, iteration, data, payload_bytes))


@pytest.mark.parametrize("datagram", [b"", bytes(19), bytes(20), b"\xff" * 40])
def test_what_has_no_shim_is_refused(datagram: bytes) -> None:
    with pytest.raises(ValueError, check=naming("version 2")):
        payload(datagram)


def test_they_pass_a_real_socket() -> None:
    with udp_socket() as sender, udp_socket() as receiver:
        receiver.bind(("127.0.0.1", 0))
        for datagram in datagrams(7, 3, 300, b"gradients", 4):
            sender.sendto(datagram, receiver.getsockname())
        assert b"".join(payload(receiver.recv(2048)) for _ in range(3)) == b"gradients"
