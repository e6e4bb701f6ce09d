"""The outcomes of a change of a switch: what was written, what differs, and what was refused.

A switch may refuse any part of its intent: the queues of one port, one table's entries, a digest, a
multicast group. It serves the rest, so each refusal says which jobs have to do without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from echelon.switches.lowering.intent import DigestSetting, MulticastGroup, QueueSetting
from echelon.switches.southbound.errors import NotPrimaryError, SouthboundError

if TYPE_CHECKING:
    # The codec imports finsy and gRPC, which the machine, who only names refusals, does without.
    from echelon.switches.southbound.codec import EntryText

NOWHERE: frozenset[int] = frozenset()
"""The ports of what no job needs."""


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that a switch does not accept, or does not give up."""

    switch: str
    table: str
    match: str
    reason: str
    code: str
    """gRPC's name of the status."""
    job: str | None = None
    """The job that it serves; None: others than one job alone."""
    ports: frozenset[int] | None = None
    """The ports that it names, where it serves no single job; None: none, so it serves all jobs."""

    takes_links: ClassVar = False
    settings: ClassVar = 0

    def __str__(self) -> str:
        return (
            f"switch {self.switch}: table {self.table}, {self.match}: {self.reason} [{self.code}]"
        )


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """Settings that a switch does not accept, such as the queues of a port."""

    switch: str
    name: str
    """`queues of port 3`, `digest flow_event_t`, `multicast group 16384`."""
    reason: str
    ports: frozenset[int]
    """The ports that do not serve as the plan expects."""
    takes_links: bool
    """Whether plans should avoid the links of these ports."""
    settings: int
    """The number of settings."""

    job: ClassVar = None

    def __str__(self) -> str:
        return f"switch {self.switch}: {self.name}: {self.reason}"


Refused: TypeAlias = RefusedEntry | RefusedSetting


class RefusedSettings:
    """The settings that a switch refuses, by name, since it was last read."""

    def __init__(self, switch: str, *, raises: bool = False) -> None:
        self._switch = switch
        self._raises = raises
        self._queues: dict[str, Sequence[QueueSetting]] = {}
        self._refused: dict[str, RefusedSetting] = {}

    @property
    def all(self) -> tuple[RefusedSetting, ...]:
        """The refused settings, in the order in which they were refused."""
        return tuple(self._refused.values())

    def __contains__(self, name: str) -> bool:
        return name in self._refused

    def accepts(self, name: str, queues: Sequence[QueueSetting]) -> bool:
        """Return whether queues may be accepted, as they are not those that were refused."""
        return name not in self._refused or self._queues[name] != queues

    @contextmanager
    def noting(
        self,
        name: str,
        ports: frozenset[int] = NOWHERE,
        queues: Sequence[QueueSetting] = (),
    ) -> Iterator[None]:
        """Note a refusal that the block raises, and go on; without one, forget an earlier one.

        `NotPrimaryError` is raised, as it concerns the switch as a whole. With `raises`, so is any
        other error.

        Args:
            name: what the block reads or writes.
            ports: the ports that it concerns, if it is not about `queues`.
            queues: the settings that are not in force if it fails.
        """
        self._refused.pop(name, None)
        try:
            yield
        except NotPrimaryError:
            raise
        except SouthboundError as error:
            if self._raises:
                raise
            where = f"switch {self._switch}"
            reason = str(error).removeprefix(where).removeprefix(": ").removeprefix(", ")
            self._queues[name] = queues
            self._refused[name] = RefusedSetting(
                self._switch,
                name,
                reason,
                ports=ports.union(setting.port for setting in queues),
                takes_links=bool(queues),
                settings=max(1, len(queues)),
            )


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that were written to a switch.

    It is true if anything was; its length counts the entries.
    """

    inserts: int
    modifies: int
    deletes: int
    """The numbers of entries that the switch inserted, modified and deleted."""
    refused: tuple[Refused, ...]
    """Everything that is not on the switch as the intent wants it, since whichever change."""
    is_clear: bool
    """Whether the switch has given up all entries and groups of ours that the intent lacks."""
    foreign: int
    """Number of others' entries on the switch when it was last read."""
    queues: int
    digests: int
    groups: int
    """The numbers of settings that were written."""
    encoding_s: float
    """Time for encoding entries and comparing them.

    Part of it may have passed while the switch was at work.
    """
    read_s: float
    """Time for reading what the switch held."""
    rpc_s: float
    """Time for writing, until the last update was acknowledged."""

    def __len__(self) -> int:
        return self.inserts + self.modifies + self.deletes

    def __bool__(self) -> bool:
        return bool(len(self) or self.queues or self.digests or self.groups)

    @property
    def problem(self) -> str | None:
        """The refusals in one line; None: there are none."""
        if not self.refused:
            return None
        if len(self.refused) == 1:
            return str(self.refused[0])
        return f"{self.refused[0]} (and {len(self.refused) - 1} more)"

    def require(self) -> None:
        """Raise `SouthboundError` if anything was refused."""
        if self.problem is not None:
            raise SouthboundError(self.problem)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between a switch and its intent.

    It is true if anything does; its length counts the entries.
    """

    inserts: tuple[EntryText, ...]
    """Entries that are missing."""
    modifies: tuple[EntryText, ...]
    """Entries that should do something else, as they should be."""
    deletes: tuple[EntryText, ...]
    """Entries of ours that should not be there."""
    blocked: tuple[EntryText, ...]
    """Entries that are missing, with someone else's entry in their place."""
    foreign: int
    """Number of others' entries, which are left alone."""
    queues: tuple[QueueSetting, ...]
    digests: tuple[DigestSetting, ...]
    groups: tuple[MulticastGroup, ...]
    """Settings that are not in force, each as it should be.

    A group that should not be there has no copies.
    """

    def __len__(self) -> int:
        changes = len(self.inserts) + len(self.modifies) + len(self.deletes)
        return changes + len(self.blocked)

    def __bool__(self) -> bool:
        return bool(len(self) or self.queues or self.digests or self.groups)
