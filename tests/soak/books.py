"""The counts of a fabric's programs, and the check that they agree with each other and with the
switch's counts.
"""

from __future__ import annotations

from softswitch import Switch


class Books:
    """The counts of the programs, in packets."""

    def __init__(self) -> None:
        self.packets_in = self.packets_out = self.dropped_early = self.dropped_late = 0
        self.arrived = self.seen = self.looked_up = self.routed = self.no_route = self.ended = 0
        self.departed = self.ended_late = 0

    @classmethod
    def of(cls, switch: Switch) -> Books:
        books, stats = cls(), switch.stats
        books.packets_in, books.packets_out = stats.packets_in, stats.packets_out
        books.dropped_early = stats.dropped.get("ingress", 0)
        books.dropped_late = stats.dropped.get("egress", 0)
        books.arrived = sum(switch.counters["I.arrived"].packet_counts)
        books.seen = sum(switch.registers["I.seen"].cells)
        books.looked_up = switch.counters["I.looked_up"].packet_counts[0]
        table = switch.tables["I.routes"]
        books.routed = sum(table.read_counter(entry.handle)[0] for entry in table.entries())
        books.no_route = switch.counters["I.ended"].packet_counts[0]
        books.ended = sum(switch.counters["I.ended"].packet_counts)
        books.departed = sum(switch.counters["E.departed"].packet_counts)
        books.ended_late = switch.counters["E.ended_late"].packet_counts[0]
        return books

    def add(self, other: Books) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def faults(self, name: str) -> list[str]:
        """Return the disagreements between the program's counters and the switch's, in words."""
        pairs = (
            ("packets in", self.packets_in, "arrived", self.arrived),
            ("arrived", self.arrived, "sum of the register", self.seen),
            ("looked up", self.looked_up, "routed or without route", self.routed + self.no_route),
            ("dropped in ingress", self.dropped_early, "ended", self.ended),
            ("dropped in egress", self.dropped_late, "ended late", self.ended_late),
            ("packets out", self.packets_out, "departed", self.departed),
        )
        return [
            f"switch {name}: {have} {what}, {want} {against}"
            for what, have, against, want in pairs
            if have != want
        ]
