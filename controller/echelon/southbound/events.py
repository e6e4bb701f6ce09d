"""The events of a connection with a switch, as the controller's machine takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from echelon.southbound.lifecycle import State


@dataclass(frozen=True, slots=True)
class SwitchConnected:
    """There is a new session with a switch, which may have been restarted since the one before."""

    switch: str


@dataclass(frozen=True, slots=True)
class SwitchChanged:
    """The connection with a switch came into another state, or has another problem."""

    switch: str
    state: State
    problem: str | None = None
    holds: int | None = None
    """The last intents that the switch acknowledged, in this session or an earlier one."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A switch holds the intent of that version, and nothing else of ours."""

    switch: str
    version: int
    encoding_s: float = 0.0
    rpc_s: float = 0.0
    inserts: int = 0
    modifies: int = 0
    deletes: int = 0
    """The numbers of entries that were written."""


@dataclass(frozen=True, slots=True)
class IntentRefused:
    """A switch does not hold the whole intent of that version. It is tried again; `Acknowledged` follows if that helps.

    Told once for each version and problem.
    """

    switch: str
    problem: str
    version: int = 0
    entries: int = 0
    """Number of entries that it does not take; 0: not known, because the whole attempt failed."""


@dataclass(frozen=True, slots=True)
class DriftRepaired:
    """An audit found a switch different from what had been written to it, and repaired that."""

    switch: str
    count: int
    """Number of entries, queue settings and digest settings."""


@dataclass(frozen=True, slots=True)
class HigherPrimary:
    """A switch obeys a controller whose election id is not below our term. Told once for each such id."""

    switch: str
    election_id: int


SwitchEvent: TypeAlias = SwitchConnected | SwitchChanged | Acknowledged | IntentRefused | DriftRepaired | HigherPrimary
