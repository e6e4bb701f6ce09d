"""What must be written so that a switch holds what it should: a pure difference of two sets of entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from finsy.proto import p4r

from echelon.southbound.codec import EntryKey, entry_value

BATCH = 1000
"""Updates of one Write: measured, half of the achievable rate needs 100, all of it 1000."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Entries to insert, modify and delete, each in the order in which they may be written."""

    inserts: tuple[p4r.TableEntry, ...]
    modifies: tuple[p4r.TableEntry, ...]
    deletes: tuple[p4r.TableEntry, ...]

    def __bool__(self) -> bool:
        return bool(self.inserts or self.modifies or self.deletes)

    def __len__(self) -> int:
        return len(self.inserts) + len(self.modifies) + len(self.deletes)

    def batches(self) -> Iterator[list[p4r.Update]]:
        """Lists of at most `BATCH` updates. What packets look up last is inserted first and deleted last, and no two
        updates of one key are in one batch, since P4Runtime leaves their order open."""
        for kind, entries in (
            (p4r.Update.INSERT, self.inserts),
            (p4r.Update.MODIFY, self.modifies),
            (p4r.Update.DELETE, self.deletes),
        ):
            for start in range(0, len(entries), BATCH):
                yield [
                    p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry))
                    for entry in entries[start : start + BATCH]
                ]


def difference(held: Mapping[EntryKey, p4r.TableEntry], wanted: Mapping[EntryKey, p4r.TableEntry]) -> Difference:
    """From what the switch holds to what it should hold, both in an order in which they could be written: what packets
    look up last comes first. Linear in the number of entries."""
    inserts = [entry for key, entry in wanted.items() if key not in held]
    modifies = [entry for key, entry in wanted.items() if key in held and entry_value(held[key]) != entry_value(entry)]
    deletes = [entry for key, entry in held.items() if key not in wanted]
    return Difference(tuple(inserts), tuple(modifies), tuple(reversed(deletes)))
