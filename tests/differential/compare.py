"""The comparison of two outcomes of a case.

Packets of different queues may leave in any order; packets of one queue may not. BMv2 does not tell
the queue, so its packets are first matched, by cause, port and bytes, with those of softswitch,
which does.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from tests.differential.case import Case, Outcome, Output, Packets, Sent, Write, Written, text
from tests.differential.catalogue import Subject
from tests.differential.deviations import allowed


def differences(subject: Subject, case: Case, ours: Outcome, theirs: Outcome) -> list[str]:
    """Return one line for each difference between softswitch's outcome and another's; empty if
    there is none.

    The copies of one packet in one queue have an order too, unless the program loops or a group has
    a port twice.
    """
    return list(
        _differences(case, ours, theirs, strict=not subject.loops and not _replicates_twice(case))
    )


def _differences(case: Case, ours: Outcome, theirs: Outcome, strict: bool) -> Iterator[str]:
    for number, (step, one, other) in enumerate(
        zip(case.steps, ours.results, theirs.results, strict=True)
    ):
        if isinstance(one, Written) and isinstance(other, Written):
            assert isinstance(step, Write)
            for update, our_code, their_code in zip(
                step.updates, one.codes, other.codes, strict=True
            ):
                if our_code != their_code and not allowed(update, our_code, their_code):
                    yield f"step {number}: status {our_code}, not {their_code}, for {text(update)}"
        elif isinstance(one, Sent) and isinstance(other, Sent):
            assert isinstance(step, Packets)
            for line in _packet_differences(step, one.outputs, other.outputs, strict):
                yield f"step {number}: {line}"
    for entity in sorted((Counter(ours.state) - Counter(theirs.state)).elements()):
        yield f"state: softswitch alone has {entity}"
    for entity in sorted((Counter(theirs.state) - Counter(ours.state)).elements()):
        yield f"state: softswitch lacks {entity}"


def _replicates_twice(case: Case) -> bool:
    """Return whether some group or session sends two copies to one port: which of them goes first
    is not specified.
    """
    for step in case.steps:
        for update in step.updates if isinstance(step, Write) else ():
            entry = update.entity.packet_replication_engine_entry
            for group in (entry.multicast_group_entry, entry.clone_session_entry):
                ports = [replica.egress_port for replica in group.replicas]
                if len(set(ports)) < len(ports):
                    return True
    return False


def _packet_differences(
    step: Packets, ours: Sequence[Output], theirs: Sequence[Output], strict: bool
) -> Iterator[str]:
    ours_by_cause, theirs_by_cause = _by_cause(ours), _by_cause(theirs)
    same = True
    for cause in sorted(ours_by_cause.keys() | theirs_by_cause.keys()):
        one, other = ours_by_cause[cause], theirs_by_cause[cause]
        if one != other:
            same = False
            port, data = step.packets[cause]
            yield (
                f"packet {cause} (port {port}, {data.hex()}): softswitch sends"
                f" {_shown(one - other)}, the other {_shown(other - one)}"
            )
    if same:
        yield from _order_differences(ours, theirs, strict)


def _order_differences(
    ours: Sequence[Output], theirs: Sequence[Output], strict: bool
) -> Iterator[str]:
    """Compare the order in each queue; both have the same packets.

    Copies of one packet have an order if `strict`.
    """
    queues: dict[tuple[int, int, bytes], deque[int | None]] = defaultdict(deque)
    expected: dict[tuple[int, int | None], list[tuple[int, bytes]]] = defaultdict(list)
    for output in ours:
        queues[output.cause, output.port, output.data].append(output.queue)
        expected[output.port, output.queue].append((output.cause, output.data))
    found: dict[tuple[int, int | None], list[tuple[int, bytes]]] = defaultdict(list)
    for output in theirs:
        queue = queues[output.cause, output.port, output.data].popleft()
        found[output.port, queue].append((output.cause, output.data))
    for (port, queue), sequence in expected.items():
        for position, (one, other) in enumerate(zip(sequence, found[port, queue], strict=True)):
            if one != other if strict else one[0] != other[0]:
                yield (
                    f"port {port}, queue {queue}: packet {position} is {one[1].hex()} of packet"
                    f" {one[0]}, the other's {other[1].hex()} of packet {other[0]}"
                )
                break


def _by_cause(outputs: Sequence[Output]) -> dict[int, Counter[tuple[int, bytes]]]:
    found: dict[int, Counter[tuple[int, bytes]]] = defaultdict(Counter)
    for output in outputs:
        found[output.cause][output.port, output.data] += 1
    return found


def _shown(packets: Counter[tuple[int, bytes]]) -> str:
    return (
        ", ".join(f"{data.hex()} to port {port}" for port, data in packets.elements())
        or "nothing more"
    )
