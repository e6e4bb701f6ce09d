"""Aggregation: sums, results, packets that were sent again, memory that trees share, and packets
that are refused.

The cases are those of `docs/aggregation-protocol.md`. They need the program of this plug-in, which
`--program` of `ptf/run.py` gives, and `--suite plugins/aggregation/ptf`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aggregation_blocks import (
    AGAIN,
    ANSWER,
    DEADLINE,
    DOWN_FLOW,
    FIRST,
    MARKED,
    NUMBERS,
    OVERFLOW,
    PORT,
    REQUEST,
    RESULT,
    UP_FLOW,
    VALUES,
    WORKER_PORT,
    Block,
    Tree,
    addressed_to,
    block_of,
    from_above,
    packet,
)
from echelon_ptf import frames
from echelon_ptf.base import EchelonTest, architecture, skipped_on
from echelon_ptf.entries import Deadline, entry
from ptf.testutils import test_param_get  # type: ignore[import-untyped]
from scapy.layers.inet import UDP
from scapy.packet import Packet, Raw

from echelon_aggregation.program import BUILDS

_trees = itertools.count(1)
_places = itertools.count(0, 8)
"""Places that no test of this run had before."""
_REASONS = [name.removeprefix("AGGREGATED_") for name in NUMBERS if name.startswith("AGGREGATED_")][
    :-1
]
_COUNTER = "EchelonIngress.aggregation.aggregated"
ABOVE = 4
ONES, TENS, HUNDREDS = ((unit,) * VALUES for unit in (1, 10, 100))


class AggregationTest(EchelonTest):
    """A test of the program that is built with aggregation."""

    def setUp(self) -> None:
        super().setUp()
        directory = test_param_get("program")
        build = BUILDS / architecture()
        if directory is None or not build.samefile(directory):
            self.skipTest(f"they need the program of the plug-in (--program {build})")

    def tree(self, workers: Sequence[int] = (0, 1, 2), **fields: Any) -> Tree:
        """Install a new tree."""
        fields.setdefault("first", next(_places))
        tree = Tree(next(_trees), workers, **fields)
        self.switch.insert_multicast(tree.group, tree.copies)
        self.addCleanup(self.switch.delete_multicast, tree.group)
        self.install(*tree.entries())
        return tree

    def expect_counted(self, reason: str, *sent: tuple[Packet, int]) -> None:
        """Send packets, each at its port, which all must be counted for this reason alone."""
        self.settle()
        before = self.counted()
        for frame, port in sent:
            self.send(frame, port)
        expected = {name: count + len(sent) * (name == reason) for name, count in before.items()}
        self.await_equal(expected, self.counted)

    def counted(self) -> dict[str, int]:
        return {
            name: self.switch.counter(_COUNTER, number).packets
            for number, name in enumerate(_REASONS)
        }

    def contribute(self, block: Block, worker: int, **fields: Any) -> None:
        self.send(packet(block, worker, **fields), worker + 1)

    def block_at(self, port: int) -> Block:
        return block_of(self.receive(port))


class RootSendsTheSumToAll(AggregationTest):
    """The third of three contributions makes the result, and each worker gets it at its own
    address.
    """

    def runTest(self) -> None:
        tree = self.tree()
        first = Block(tree.number, 5, 1, ONES, next_exponent=3)
        self.expect_counted(
            "KEPT", (packet(first, 0), 1), (packet(replace(first, workers=2, values=TENS), 1), 2)
        )
        self.expect_silence()
        self.contribute(Block(tree.number, 5, 4, HUNDREDS, next_exponent=2), 2)
        expected = Block(tree.number, 5, 7, (111,) * VALUES, kind=RESULT, next_exponent=3)
        for worker in tree.workers:
            frame = self.receive(worker + 1)
            self.assertEqual(block_of(frame), expected)
            self.assertEqual(int.from_bytes(frame[46:48], "big"), DOWN_FLOW)
            self.assertEqual(
                addressed_to(frame),
                (frames.mac(worker + 1), frames.address(worker + 1), WORKER_PORT + worker),
            )
            self.assertEqual(int.from_bytes(frame[34:36], "big"), PORT)
        self.expect_silence()


class SentAgain(AggregationTest):
    """A packet that was sent again is not added again, and brings the result once it is there."""

    def runTest(self) -> None:
        tree = self.tree((0, 1))
        mine = Block(tree.number, 3, 1, ONES)
        self.contribute(mine, 0)
        self.expect_counted("DUPLICATE", (packet(mine, 0), 1))
        other = packet(Block(tree.number, 3, 2, TENS), 1)
        self.send(other, 2)
        expected = Block(tree.number, 3, 3, (11,) * VALUES, kind=RESULT)
        self.assertEqual((self.block_at(1), self.block_at(2)), (expected, expected))
        self.send(other, 2)
        frame = self.receive(2)
        self.assertEqual(block_of(frame), expected)
        self.assertEqual(addressed_to(frame)[1:], (frames.address(2), WORKER_PORT + 1))
        self.expect_silence()


class LeafSendsTheSumUp(AggregationTest):
    """A switch below the root sends its sum to its parent, again if asked again, and results to all
    children.
    """

    def runTest(self) -> None:
        tree = self.tree((0, 1), is_root=False)
        self.contribute(Block(tree.number, 0, 1, ONES), 0)
        self.contribute(Block(tree.number, 0, 2, TENS), 1)
        expected = Block(tree.number, 0, 3, (11,) * VALUES)
        frame = self.receive(ABOVE)
        self.assertEqual(block_of(frame), expected)
        self.assertEqual(int.from_bytes(frame[46:48], "big"), UP_FLOW)
        self.contribute(Block(tree.number, 0, 1, ONES), 0)
        self.assertEqual(self.block_at(ABOVE), expected)
        alone = Block(tree.number, 0, 1, ONES, flags=AGAIN)
        self.contribute(alone, 0)
        self.assertEqual(self.block_at(ABOVE), replace(expected, flags=AGAIN))
        self.contribute(alone, 0)
        self.assertEqual(
            self.block_at(1), alone, "the place was freed, so that the next one gets through alone"
        )
        result = Block(tree.number, 0, 15, (1111,) * VALUES, kind=RESULT)
        self.send(from_above(result), ABOVE)
        self.assertEqual((self.block_at(1), self.block_at(2)), (result, result))
        # One that the fallback made goes up first.
        self.send(packet(result, 0), 1)
        self.assertEqual(self.block_at(ABOVE), result)
        self.expect_silence()


class AgainKeepsNothing(AggregationTest):
    """A packet with AGAIN goes on to the fallback: alone, or with the sum so far, whose place is
    free then.
    """

    def runTest(self) -> None:
        tree = self.tree()
        alone = Block(tree.number, 1, 2, TENS, flags=AGAIN)
        self.contribute(alone, 1)
        self.assertEqual(self.block_at(1), alone)
        self.contribute(Block(tree.number, 1, 1, ONES), 0)
        self.contribute(alone, 1)
        self.assertEqual(self.block_at(1), Block(tree.number, 1, 3, (11,) * VALUES, flags=AGAIN))
        self.contribute(alone, 1)
        self.assertEqual(self.block_at(1), alone)
        self.contribute(Block(tree.number, 1, 1, ONES), 0)
        self.contribute(Block(tree.number, 1, 1, ONES, flags=AGAIN), 0)
        self.assertEqual(self.block_at(1), Block(tree.number, 1, 1, ONES, flags=AGAIN))
        self.expect_silence()


@skipped_on(tna="the program knows a worker by its child; those of two children must differ")
class WhoOverlapsGoesOn(AggregationTest):
    """A sum that shares a worker with the place's is not added."""

    def runTest(self) -> None:
        tree = self.tree((0, 1, 2))
        self.install(
            entry(
                "aggregation_member",
                {"tree": tree.number, "port": ABOVE},
                "from_child",
                workers_behind=6,
            )
        )
        self.contribute(Block(tree.number, 0, 2, TENS), 1)
        both = Block(tree.number, 0, 6, HUNDREDS)
        self.send(packet(both, 3), ABOVE)
        self.assertEqual(self.block_at(1), both)
        self.expect_silence()


class OlderBlocksAreStale(AggregationTest):
    """A newer block takes the place from an older one of its tree, and an older one ends."""

    def runTest(self) -> None:
        tree = self.tree((0, 1), size=4)
        self.contribute(Block(tree.number, 2, 1, ONES), 0)
        self.contribute(Block(tree.number, 6, 1, TENS), 0)
        self.expect_counted("STALE", (packet(Block(tree.number, 2, 2, ONES), 1), 2))
        self.contribute(Block(tree.number, 6, 2, HUNDREDS), 1)
        self.assertEqual(self.block_at(1), Block(tree.number, 6, 3, (110,) * VALUES, kind=RESULT))
        self.receive(2)
        self.expect_silence()


class SessionsBeginAnew(AggregationTest):
    """A sum that an ended run left in a place is not added to the next run's."""

    def runTest(self) -> None:
        tree = self.tree((0, 1), take=FIRST)
        self.contribute(Block(tree.number, 0, 1, ONES), 0)
        again = replace(tree, session=2)
        own = [
            found
            for found in again.entries()
            if found.table in ("aggregation_tree", "aggregation_holder")
        ]
        self.install(*own)
        self.contribute(Block(tree.number, 0, 1, TENS, session=2), 0)
        self.contribute(Block(tree.number, 0, 2, HUNDREDS, session=2), 1)
        self.assertEqual(
            self.block_at(2), Block(tree.number, 0, 3, (110,) * VALUES, kind=RESULT, session=2)
        )
        self.receive(1)


class FirstComeFirstServed(AggregationTest):
    """A packet that finds another tree's incomplete sum goes on to the fallback.

    This holds where trees share memory.
    """

    def runTest(self) -> None:
        first = next(_places)
        one, other = (self.tree((0, 1), first=first, take=FIRST) for _ in range(2))
        self.contribute(Block(one.number, 0, 2, ONES), 1)
        mine = Block(other.number, 0, 2, TENS)
        self.contribute(mine, 1)
        self.assertEqual(self.block_at(1), mine)
        self.contribute(Block(one.number, 0, 1, ONES), 0)
        self.assertEqual(self.block_at(2), Block(one.number, 0, 3, (2,) * VALUES, kind=RESULT))
        self.receive(1)
        # A complete sum gives way.
        self.expect_counted("KEPT", (packet(mine, 1), 2))
        self.expect_silence()


@skipped_on(tna="the program does not rank packets, so that no flow is due earlier")
class WhoIsDueEarlierTakesThePlace(AggregationTest):
    """A packet whose flow is due earlier takes the place; the owner's sum goes on to the owner's
    fallback.
    """

    def runTest(self) -> None:
        first = next(_places)
        late, early = (self.tree((0, 1), first=first, take=DEADLINE) for _ in range(2))
        profile = self.profile(0, {})
        flows = {
            tree.number: self.shim_flow(
                Deadline(self.new_echelonflow(), profile, 0, due_us), port=1
            )
            for tree, due_us in ((late, 2_000_000_000), (early, 1_000_000_000))
        }

        def send(tree: Tree, worker: int, values: Sequence[int]) -> None:
            flow = flows[tree.number]
            block = Block(tree.number, 0, 1 << worker, values)
            self.contribute(block, worker, job=flow.job, flow=flow.number)

        send(late, 1, ONES)
        send(early, 1, TENS)
        frame = self.receive(1)
        self.assertEqual(block_of(frame), Block(late.number, 0, 2, ONES))
        self.assertEqual(
            (int.from_bytes(frame[44:46], "big"), int.from_bytes(frame[46:48], "big")), (7, UP_FLOW)
        )
        # The other way round, the packet that is due later goes on.
        send(late, 1, ONES)
        self.assertEqual(self.block_at(1), Block(late.number, 0, 2, ONES))
        send(early, 0, HUNDREDS)
        self.assertEqual(self.block_at(2), Block(early.number, 0, 3, (110,) * VALUES, kind=RESULT))
        self.receive(1)
        self.expect_silence()


class SumsWrapAndSaySo(AggregationTest):
    """An addition that leaves the range of 32 bits wraps and sets OVERFLOW, up and down; others do
    not. On a Tofino, it wraps alone."""

    def runTest(self) -> None:
        told = 0 if architecture() == "tna" else OVERFLOW
        tree = self.tree((0, 1))
        largest, smallest = 2**31 - 1, -(2**31)
        for block, (one, other, overflow) in enumerate(
            [
                (largest, 1, told),
                (smallest, -1, told),
                (largest, smallest, 0),
                (largest, 0, 0),
                (-1, -1, 0),
                (smallest, 0, 0),
            ]
        ):
            for last in (0, VALUES - 1):
                number = 2 * block + bool(last)
                values = [0] * VALUES
                values[last] = one
                self.contribute(Block(tree.number, number, 1, values), 0)
                sums = [0] * VALUES
                values[last], sums[last] = other, (one + other + 2**31) % 2**32 - 2**31
                self.contribute(Block(tree.number, number, 2, values), 1)
                expected = Block(tree.number, number, 3, tuple(sums), kind=RESULT, flags=overflow)
                self.assertEqual((self.block_at(1), self.block_at(2)), (expected, expected))


class CongestionIsTold(AggregationTest):
    """A contribution that met congestion marks the result, whoever comes last."""

    def runTest(self) -> None:
        tree = self.tree((0, 1))
        self.contribute(Block(tree.number, 0, 1, ONES), 0, ecn=frames.CE)
        self.contribute(Block(tree.number, 0, 2, ONES), 1)
        self.assertEqual(
            self.block_at(1), Block(tree.number, 0, 3, (2,) * VALUES, kind=RESULT, flags=MARKED)
        )


class EmptyContributions(AggregationTest):
    """A sum of EMPTY contributions is EMPTY; with others they add nothing, whichever comes last."""

    def runTest(self) -> None:
        tree = self.tree((0, 1))
        for number, (one, other) in enumerate([(None, None), (None, TENS), (TENS, None)]):
            self.contribute(Block(tree.number, number, 1, one, next_exponent=4), 0)
            self.contribute(Block(tree.number, number, 2, other, next_exponent=6), 1)
            values = None if one is other else TENS
            expected = Block(tree.number, number, 3, values, kind=RESULT, next_exponent=6)
            self.assertEqual((self.block_at(1), self.block_at(2)), (expected, expected))


class RequestsAndAnswersGoOn(AggregationTest):
    """A request from the fallback reaches a worker, an answer the fallback."""

    def runTest(self) -> None:
        tree = self.tree((0, 1))
        request = Block(tree.number, 0, 2, None, kind=REQUEST)
        head = frames.ipv4(1, 2) / UDP(sport=PORT, dport=WORKER_PORT + 1, chksum=0)
        self.send(head / frames.Shim(epoch=1) / Raw(bytes(request)), 1)
        self.assertEqual(self.block_at(2), request)
        answer = Block(tree.number, 0, 2, ONES, kind=ANSWER)
        self.contribute(answer, 1)
        self.assertEqual(self.block_at(1), answer)


class PassedOn(AggregationTest):
    """A switch without memory for a tree forwards its packets."""

    def runTest(self) -> None:
        number = next(_trees)
        self.install(
            entry("aggregation_tree", {"tree": number, "session": 1}, "pass_on"),
            entry(
                "aggregation_member", {"tree": number, "port": 2}, "from_child", workers_behind=2
            ),
        )
        block = Block(number, 0, 2, ONES)
        self.contribute(block, 1)
        self.assertEqual(self.block_at(1), block)
        self.expect_counted(
            "FORGED",
            (packet(block, 1), 3),
            (packet(replace(block, workers=1), 1), 2),
            (packet(replace(block, kind=RESULT), 1), 2),
        )
        self.expect_silence()


class StrangersAreRefused(AggregationTest):
    """Packets of other trees, other workers, at other ports, results of workers, and other forms
    are dropped and counted."""

    def runTest(self) -> None:
        tree = self.tree((0, 1), is_root=False)
        good = Block(tree.number, 0, 2, ONES)
        self.expect_counted(
            "UNKNOWN",
            (packet(replace(good, tree=60000), 1), 2),
            (packet(replace(good, session=9), 1), 2),
        )
        self.expect_counted(
            "FORGED",
            (packet(good, 1), 3),
            (packet(replace(good, workers=1), 1), 2),
            (packet(replace(good, workers=3), 1), 2),
            (packet(replace(good, workers=0), 1), 2),
            (packet(replace(good, kind=RESULT), 1), 2),
            (packet(replace(good, kind=RESULT), 1), 3),
            (packet(replace(good, kind=REQUEST, values=None), 1), 2),
            (packet(replace(good, kind=ANSWER, workers=1), 1), 2),
        )
        self.expect_counted(
            "MALFORMED",
            (packet(replace(good, values=ONES[:-1]), 1), 2),
            (packet(replace(good, values=(*ONES, 1)), 1), 2),
            (packet(replace(good, values=()), 1), 2),
            (packet(replace(good, version=2), 1), 2),
            (packet(replace(good, kind=0), 1), 2),
            (packet(replace(good, kind=5), 1), 2),
            (packet(replace(good, flags=8), 1), 2),
        )
        self.expect_silence()


class StrangersChangeNoSum(AggregationTest):
    """A sum is that of its job's workers, whatever another job's worker and a worker that lies send
    for its block.
    """

    def runTest(self) -> None:
        first = next(_places)
        tree, other = self.tree((0, 1), first=first), self.tree((1, 2), first=first + 8)
        next(_places)
        self.contribute(Block(tree.number, 0, 1, ONES), 0)
        theirs = Block(tree.number, 0, 2, HUNDREDS)
        self.expect_counted(
            "FORGED",
            *((packet(replace(theirs, workers=workers), 2), 3) for workers in (1, 2, 3, 4)),
            (packet(replace(theirs, workers=1, flags=AGAIN), 1), 2),
            (packet(replace(theirs, workers=3, kind=RESULT), 1), 2),
            (packet(replace(theirs, tree=other.number, workers=1), 0), 1),
        )
        self.expect_silence()
        self.contribute(Block(tree.number, 0, 2, TENS), 1)
        expected = Block(tree.number, 0, 3, (11,) * VALUES, kind=RESULT)
        self.assertEqual((self.block_at(1), self.block_at(2)), (expected, expected))
        self.expect_silence()
