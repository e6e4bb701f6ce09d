"""The schema of the documents, and how documents of earlier schemas become documents of this one.

A migration is a function over all documents. The store that runs it (as leader) writes its result in one commit. To
change what documents mean, append a function to `MIGRATIONS`; never change or remove one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echelon.control.records import COLLECTIONS, Snapshot
from echelon.service.store.base import StoreError

Documents = dict[str, dict[str, dict[str, Any]]]
"""Collection to key to document; the migration may change it in place."""

Migration = Callable[[Documents], Documents]
"""A function from the documents of one schema version to those of the next."""


def _jobs_have_owners(documents: Documents) -> Documents:
    """Migrate 1 to 2: a job names the token that registered it. Of earlier jobs nobody knows."""
    return {**documents, "jobs": {name: {**job, "owner": None} for name, job in documents["jobs"].items()}}


MIGRATIONS: tuple[Migration, ...] = (_jobs_have_owners,)
"""The first one leads from version 1 to version 2."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema that this version of the program reads and writes."""

    migrations: Sequence[Migration] = MIGRATIONS

    @property
    def version(self) -> int:
        return 1 + len(self.migrations)

    def check(self, version: int, store: str) -> None:
        """Raise `StoreError` for documents of a `version` that this program cannot read, in `store`."""
        if version > self.version:
            raise StoreError(
                f"{store}: was written by a later version of echelon (schema {version}; this one knows up to"
                f" {self.version}): start that version, or restore the copy made before it was first started"
            )
        if version < 1:
            raise StoreError(f"{store}: has schema {version}, which never existed: this is not a store of Echelon")

    def upgrade(self, documents: Mapping[str, Mapping[str, dict[str, Any]]], version: int) -> Snapshot:
        """Return documents of the earlier `version` in this version's schema."""
        current: Documents = {name: dict(collection) for name, collection in documents.items()}
        for migration in self.migrations[version - 1 :]:
            current = migration(current)
        return Snapshot({name: current.get(name, {}) for name in COLLECTIONS})
