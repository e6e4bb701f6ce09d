"""Cases from a seed."""

from __future__ import annotations

import random
from itertools import islice

from tests.differential.case import Case, Packets, Step, Write
from tests.differential.catalogue import Subject
from tests.differential.entries import Controller
from tests.differential.vocabulary import PORTS, Vocabulary
from tests.differential.walk import packets

ENTRIES_PER_TABLE = 12


def make(subject: Subject, rng: random.Random, packet_count: int) -> Case:
    """Return a case of entries, packets, broken updates, changes of the entries, packets: half of
    `packet_count` each time.
    """
    program = subject.program
    vocabulary = Vocabulary(program, rng)
    controller = Controller(subject, vocabulary, rng)
    source = packets(program, vocabulary, rng)

    def traffic(count: int) -> Packets:
        """Return packets, most of which come in at the same port as the one before."""
        made: list[tuple[int, bytes]] = []
        port = rng.choice(PORTS)
        for data in islice(source, count):
            made.append((port, subject.steer(data)))
            port = port if rng.random() < 0.7 else rng.choice(PORTS)
        return Packets(tuple(made))

    steps: list[Step] = [
        Write(tuple(controller.populate(ENTRIES_PER_TABLE))),
        traffic(packet_count // 2),
        Write(tuple(controller.broken(8) + controller.churn(12))),
        traffic(packet_count - packet_count // 2),
    ]
    return Case(
        subject.name, tuple(step for step in steps if not isinstance(step, Write) or step.updates)
    )
