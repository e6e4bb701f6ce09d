"""A fabric under constant change, for some virtual minutes; ``python -m tests.soak day`` is the
long form.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from softswitch.virtual import VirtualDrop
from tests.soak.carriers import (
    CLONE_EARLY,
    CLONE_LATE,
    DROP_EARLY,
    DROP_LATE,
    MULTICAST,
    RECIRCULATE,
    RESUBMIT,
    SECOND_NS,
    Carriers,
)
from tests.soak.day import HOUR_NS, Report, SoakError, soak
from tests.soak.memory import FLAT

PACKETS = 20_000


# One fabric runs for all of them.
pytestmark = [pytest.mark.wide, pytest.mark.xdist_group("day")]


@pytest.fixture(scope="module")
def report() -> Report:
    return soak(PACKETS, HOUR_NS // 2, seed=3)


def test_every_packet_is_accounted_for(report: Report) -> None:
    end = report.end
    assert report.handed_in == end.host_sent == PACKETS
    made = sum(switch.replicated for switch in end.switches)
    dropped = sum(switch.packets_dropped for switch in end.switches)
    assert PACKETS + made == end.host_received + dropped
    assert report.checks >= 5


def test_all_that_can_happen_happened(report: Report) -> None:
    reasons = {
        reason
        for switch in report.end.switches
        for reason, count in switch.dropped.items()
        if count
    }
    assert reasons == {drop.value for drop in VirtualDrop} - {"no_queue"}
    assert all(switch.replicated for switch in report.end.switches)
    assert report.swaps > 0
    assert report.changes > 5
    assert report.most_queued > 0


def test_memory_stays_flat(report: Report) -> None:
    assert report.grown <= FLAT


@pytest.fixture
def running() -> Carriers:
    """Return a fabric in the midst of it."""
    carriers = Carriers(3000, 60 * SECOND_NS, seed=5)
    while not (carriers.packets_queued and all(node.books().departed for node in carriers.nodes)):
        assert carriers.loop.run(max_events=100)
    return carriers


def _lose_a_packet(carriers: Carriers) -> None:
    carriers.nodes[0].switch.node.packets_in -= 1


def _lose_from_a_queue(carriers: Carriers) -> None:
    scheduler = next(
        s for node in carriers.nodes for s in node.switch.ports.values() if s.queued_packets
    )
    scheduler.port.packets -= 1


def _miscount(name: str, counter: str) -> Callable[[Carriers], None]:
    def change(carriers: Carriers) -> None:
        carriers.nodes[0].running.counters[counter].packet_counts[0] += 1

    change.__name__ = name
    return change


def _miss_an_entry(carriers: Carriers) -> None:
    table = carriers.nodes[0].running.tables["I.routes"]
    next(entry for entry in table.entries() if entry.packets).packets -= 1


def _overwrite_a_cell(carriers: Carriers) -> None:
    carriers.nodes[0].running.registers["I.seen"].cells[0] += 1


def _damage(carriers: Carriers) -> None:
    carriers.hosts[0].on_packet(0, bytes(20))


@pytest.mark.parametrize(
    ("sabotage", "told"),
    [
        (_lose_a_packet, "leaf0: -1 packets missing"),
        (_lose_from_a_queue, "packets missing"),
        (_miscount("arrived", "I.arrived"), "packets in"),
        (_miscount("looked up", "I.looked_up"), "looked up"),
        (_miscount("ended", "I.ended"), "ended"),
        (_miscount("ended late", "E.ended_late"), "ended late"),
        (_miscount("departed", "E.departed"), "departed"),
        (_miss_an_entry, "routed or without route"),
        (_overwrite_a_cell, "sum of the register"),
        (_damage, "1 packets came with another length"),
    ],
)
def test_what_does_not_add_up_is_found(
    running: Carriers, sabotage: Callable[[Carriers], None], told: str
) -> None:
    assert running.faults() == []
    sabotage(running)
    assert any(told in fault for fault in running.faults()), running.faults()


def test_a_fault_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Carriers, "faults", lambda self: ["something"] if self.loop.now_ns > 400 * SECOND_NS else []
    )
    with pytest.raises(SoakError, match=r"\d+(\.\d+)? s: something$"):
        soak(2000, HOUR_NS, seed=1)


def test_traffic_asks_for_everything() -> None:
    carriers = Carriers(2000, 60 * SECOND_NS, seed=1)
    carriers.loop.run()
    assert carriers.handed_in == 2000
    asks = (MULTICAST, CLONE_EARLY, CLONE_LATE, RECIRCULATE, RESUBMIT, DROP_EARLY, DROP_LATE)
    assert all(carriers.by_ask[ask] for ask in asks)
    assert carriers.faults() == []
