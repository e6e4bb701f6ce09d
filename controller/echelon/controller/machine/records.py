"""The records that the controller keeps in its store.

They are JSON documents, in collections, each under a key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

CollectionName = Literal["jobs", "numbers", "settings", "events"]
COLLECTIONS: tuple[CollectionName, ...] = get_args(CollectionName)

Document = Mapping[str, Any]
"""A JSON object with finite numbers only.

It comes back as JSON reads it: tuples as lists, mapping keys as text.
"""

Key = tuple[CollectionName, str]
"""A document's collection and its key there."""


@dataclass(frozen=True, slots=True)
class Changes:
    """A set of changes that a store applies as a whole or not at all.

    A key is in at most one of the two fields.
    """

    puts: Mapping[Key, Document] = field(default_factory=dict)
    """Documents to write, replacing what is there."""
    deletes: Collection[Key] = ()
    """Documents to remove; an absent one is no error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All documents of a store at one moment."""

    documents: Mapping[CollectionName, Mapping[str, Document]]
    """Every collection has its entry; keys come in no particular order."""

    def __getitem__(self, collection: CollectionName) -> Mapping[str, Document]:
        return self.documents[collection]
