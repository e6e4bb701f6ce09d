"""Random and mutated packets through every program, in short; ``python -m tests.soak packets`` is
the long form.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from softswitch import Switch
from tests.faults import naming
from tests.soak.coverage import Reach
from tests.soak.memory import FLAT, LEAK
from tests.soak.mutation import KEPT, Corpus, with_ipv4_checksum
from tests.soak.packets import Driver, FuzzError, fuzz
from tests.soak.specimens import Specimen, specimens

pytestmark = pytest.mark.wide

PACKETS = 500
SEED = 11
SHORT = {"echelon", "stateful", "parsing", "replication"}
"""The programs of the default suite: our own and three that reach most of the switch.

`make test-long` has all.
"""


@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(
            specimen, id=specimen.name, marks=() if specimen.name in SHORT else pytest.mark.long
        )
        for specimen in specimens()
    ],
)
def test_no_packet_stops_the_switch(specimen: Specimen) -> None:
    outcome = fuzz(specimen, PACKETS, SEED)
    assert outcome.packets == PACKETS
    assert outcome.reached > 0.4
    assert outcome.corpus
    assert outcome.grown <= FLAT
    assert outcome.kept < 2 * LEAK  # of 300 packets: some entries more, or less, weigh


def test_there_are_enough_programs() -> None:
    assert len(specimens()) >= 10
    assert len({specimen.name for specimen in specimens()}) == len(specimens())


def named(name: str) -> Specimen:
    (found,) = (specimen for specimen in specimens() if specimen.name == name)
    return found


def test_a_seed_gives_the_same_run() -> None:
    one, same, other = (fuzz(named("replicate"), 40, seed) for seed in (1, 1, 2))
    assert (one.copies, one.sent, one.dropped, one.reached) == (
        same.copies,
        same.sent,
        same.dropped,
        same.reached,
    )
    assert (one.copies, one.sent) != (other.copies, other.sent)


# -- faults that must be found ---------------------------------------------------------------------


class Broken:
    """A wrapper of one function of a switch."""

    def __init__(self, switch: Switch, name: str, change: Callable[..., Any]) -> None:
        genuine = getattr(switch, name)
        setattr(switch, name, lambda *args: change(genuine, *args))


@pytest.mark.parametrize("half", ["ingress", "egress"])
def test_a_packet_that_vanishes_is_found(half: str) -> None:
    switch = Switch(named("randoms").load())
    Broken(switch, half, lambda genuine, *args: genuine(*args) and [])
    with pytest.raises(FuzzError, check=naming(half)):
        Driver(switch, random.Random(1)).pass_through(0, bytes(20))


def test_a_packet_that_is_not_counted_is_found() -> None:
    switch = Switch(named("randoms").load())
    driver = Driver(switch, random.Random(1))
    driver.pass_through(0, bytes(20))
    driver.check()
    switch.packet_counts[1] += 1
    with pytest.raises(FuzzError, check=naming("1 packets", "2 out", "1 and 1")):
        driver.check()


def test_a_packet_through_no_port_is_found() -> None:
    switch = Switch(named("randoms").load())

    def misdirected(genuine: Callable[..., Any], *args: object) -> Any:
        (departure,) = genuine(*args)
        departure.port = 512
        return [departure]

    Broken(switch, "egress", misdirected)
    with pytest.raises(FuzzError, check=naming("port=512")):
        Driver(switch, random.Random(1)).pass_through(0, bytes(20))


def test_an_exception_names_program_seed_and_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Driver, port: int, data: bytes) -> None:
        if self.packets == 3:
            raise IndexError("out of range")
        self.packets += 1

    monkeypatch.setattr(Driver, "pass_through", fails)
    facts = ("randoms", "IndexError: out of range", "packet 3", "seed 4")
    with pytest.raises(FuzzError, match=r"port \d+: [0-9a-f]+", check=naming(*facts)):
        fuzz(named("randoms"), 100, 4)


# -- parts -----------------------------------------------------------------------------------------


def test_reach_tells_new_parts() -> None:
    program = named("counters").load()
    reach = Reach(program.ir)
    switch = Switch(program, tracer=reach)
    one, other = bytes.fromhex("0101") + bytes(12), bytes.fromhex("0201") + bytes(12)
    assert reach.is_new(lambda: switch.process(0, one, 0))
    assert not reach.is_new(lambda: switch.process(0, one, 0))
    before = reach.share
    assert reach.is_new(lambda: switch.process(0, other, 0))
    assert 0 < before < reach.share < 1


def test_corpus_is_bounded_and_mutates() -> None:
    corpus = Corpus(random.Random(3))
    for number in range(2 * KEPT):
        corpus.add(number.to_bytes(20, "big"))
    assert len(corpus) == KEPT
    mutated = [corpus.mutated() for _ in range(300)]
    lengths = {len(data) for data in mutated}
    assert 20 in lengths
    assert min(lengths) < 20 < max(lengths) <= 4096
    assert len(set(mutated)) > 250


def test_checksum_is_right_where_there_is_one() -> None:
    # The example of RFC 1071's Wikipedia article: checksum 0xb861.
    header = bytes.fromhex("450000730000400040110000c0a80001c0a800c7")
    frame = bytes(12) + b"\x08\x00" + header + b"payload"
    assert with_ipv4_checksum(frame)[24:26] == b"\xb8\x61"
    assert with_ipv4_checksum(with_ipv4_checksum(frame)) == with_ipv4_checksum(frame)
    for other in (b"", bytes(40), frame[:33], frame[:14] + b"\x4f" + frame[15:]):
        assert with_ipv4_checksum(other) == other
