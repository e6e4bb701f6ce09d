"""The accounts of a fabric, which show that no packet appears or vanishes without being counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class ConservationError(AssertionError):
    """The accounts do not add up: packets were lost or made without being counted.

    The fault is the simulator's.
    """


@dataclass(frozen=True, slots=True)
class SwitchAccount:
    """The packets of one switch.

    Those that came or were made must equal those that left, ended or wait.
    """

    name: str
    packets_in: int
    replicated: int
    packets_out: int
    dropped: Mapping[str, int]
    """Dropped packets by reason."""
    queued: int

    @property
    def packets_dropped(self) -> int:
        """Return the number of dropped packets."""
        return sum(self.dropped.values())

    @property
    def missing(self) -> int:
        """Return the number of packets that vanished; a negative number appeared.

        A correct run has 0.
        """
        return (
            self.packets_in
            + self.replicated
            - self.packets_out
            - self.packets_dropped
            - self.queued
        )


@dataclass(frozen=True, slots=True)
class WireAccount:
    """The packets of one direction of a link."""

    name: str
    sent: int
    delivered: int

    @property
    def in_flight(self) -> int:
        """Return the number of packets being sent or under way."""
        return self.sent - self.delivered


@dataclass(frozen=True, slots=True)
class Conservation:
    """Every account of a fabric at one instant."""

    now_ns: int
    switches: tuple[SwitchAccount, ...]
    wires: tuple[WireAccount, ...]
    host_sent: int
    """Packets that left hosts."""
    host_received: int
    injected: int
    """Packets passed to switches other than by a wire."""
    events_pending: int

    @property
    def in_flight(self) -> int:
        """Return the number of packets on all wires."""
        return sum(wire.in_flight for wire in self.wires)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return a description of every fault in the accounts; empty in a correct run."""
        faults = [
            f"switch {account.name}: {account.missing} packets missing ({account.packets_in} in,"
            f" {account.replicated} replicated, {account.packets_out} out,"
            f" {account.packets_dropped} dropped, {account.queued} queued)"
            for account in self.switches
            if account.missing
        ]
        faults += [
            f"wire {wire.name}: {wire.sent} sent, {wire.delivered} delivered"
            for wire in self.wires
            if wire.in_flight < 0 or (wire.in_flight and not self.events_pending)
        ]
        came = self.host_sent + self.injected + sum(account.replicated for account in self.switches)
        went = self.host_received + sum(
            account.packets_dropped + account.queued for account in self.switches
        )
        if came != went + self.in_flight:
            faults.append(
                f"fabric: {came} packets came or were made, {went} ended or wait,"
                f" {self.in_flight} in flight"
            )
        return tuple(faults)
