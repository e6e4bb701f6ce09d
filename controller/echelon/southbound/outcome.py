"""The outcomes of bringing a switch to its intent, and of comparing them."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.lowering.intent import DigestSetting, QueueSetting
from echelon.southbound.errors import SouthboundError
from echelon.southbound.texts import EntryText


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that a switch does not accept, or does not give up."""

    switch: str
    table: str
    match: str
    reason: str
    code: str
    """gRPC's name of the status."""

    def __str__(self) -> str:
        return f"switch {self.switch}: table {self.table}, {self.match}: {self.reason} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Applied:
    """The entries that were written. It is true if there were any; its length is their number."""

    inserts: int
    modifies: int
    deletes: int
    """The numbers of entries that were carried out."""
    refused: tuple[RefusedEntry, ...]
    """Everything that is not on the switch as the intent wants it, from this change or an earlier one."""
    foreign: int
    """Number of others' entries on the switch when it was last read."""
    queues: int
    digests: int
    """Number of settings written."""
    encoding_s: float
    """Time for encoding entries and comparing them. Part of it may have passed while the switch was at work."""
    read_s: float
    rpc_s: float
    """Time until the last update was acknowledged."""

    def __len__(self) -> int:
        return self.inserts + self.modifies + self.deletes

    def __bool__(self) -> bool:
        return bool(len(self) or self.queues or self.digests)

    def require(self) -> None:
        """Raise `SouthboundError` if anything was refused."""
        if self.refused:
            more = f" (and {len(self.refused) - 1} more)" if len(self.refused) > 1 else ""
            raise SouthboundError(f"{self.refused[0]}{more}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference between a switch and its intent. It is true if they differ; its length counts the entries."""

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
    """Settings that are not in force, as they should be."""

    def __len__(self) -> int:
        return len(self.inserts) + len(self.modifies) + len(self.deletes) + len(self.blocked)

    def __bool__(self) -> bool:
        return bool(len(self) or self.queues or self.digests)
