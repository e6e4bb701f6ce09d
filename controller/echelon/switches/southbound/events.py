"""The events of a connection with a switch, as the controller's machine takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from echelon.switches.southbound.lifecycle import State
from echelon.switches.southbound.outcomes import Refused


@dataclass(frozen=True, slots=True)
class SwitchConnected:
    """The event of a new session with a switch, which may have restarted since the last one."""

    switch: str


@dataclass(frozen=True, slots=True)
class SwitchChanged:
    """The event of another state or problem of the connection with a switch."""

    switch: str
    state: State
    problem: str | None = None
    holds: int | None = None
    """The version of the last intent that the switch acknowledged, in any session."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The event that a switch holds the intent of that version, and nothing else of ours."""

    switch: str
    version: int
    encoding_s: float = 0.0
    rpc_s: float = 0.0
    """The times for encoding and for writing."""
    inserts: int = 0
    modifies: int = 0
    deletes: int = 0
    """The numbers of entries that were written."""


@dataclass(frozen=True, slots=True)
class IntentRefused:
    """The event that a switch does not hold the whole intent of that version.

    It is told once for each version and problem, and in each session if the rest is there. The
    intent is tried again, and `Acknowledged` follows if that helps.
    """

    switch: str
    problem: str
    version: int = 0
    parts: tuple[Refused, ...] = ()
    """Everything that the switch does not hold as the intent wants it.

    Empty: what it holds is not known, as the whole attempt failed.
    """
    is_clear: bool = False
    """Whether the switch holds nothing of ours that the intent lacks."""


@dataclass(frozen=True, slots=True)
class DriftRepaired:
    """The event of an audit that found and repaired what somebody else had changed."""

    switch: str
    differences: Mapping[str, int]
    """The numbers of entries and settings by kind: `missing in flow`, `queues`."""
    writer: str | None = None
    """The other client that wrote to the switch last, where the switch tells."""


@dataclass(frozen=True, slots=True)
class HigherPrimary:
    """The event of a switch that obeys an election id that is not below our term; once an id."""

    switch: str
    election_id: int
    is_ours: bool = False
    """Whether that is an earlier session of ours, whose end the switch has not noticed yet."""


@dataclass(frozen=True, slots=True)
class PortsChanged:
    """The event of other ports of a switch that are down than before."""

    switch: str
    down: frozenset[int]


@dataclass(frozen=True, slots=True)
class PortsUnwatched:
    """The event that a switch does not tell which of its ports are down; once until it does."""

    switch: str
    problem: str


SwitchEvent: TypeAlias = (
    SwitchConnected
    | SwitchChanged
    | Acknowledged
    | IntentRefused
    | DriftRepaired
    | HigherPrimary
    | PortsChanged
    | PortsUnwatched
)
