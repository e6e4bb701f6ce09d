"""The stored form of documents: checked, and as JSON in ASCII."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from echelon.control.records import COLLECTIONS, Changes, Document, Key
from echelon.service.store.base import MAX_KEY_BYTES


@dataclass(frozen=True, slots=True)
class EncodedChanges:
    """Encoded changes. No key is in both."""

    puts: dict[Key, bytes]
    deletes: set[Key]

    @property
    def count(self) -> int:
        return len(self.puts) + len(self.deletes)

    @property
    def size_bytes(self) -> int:
        """Size of the keys and documents in bytes."""
        return sum(len(body) for body in self.puts.values()) + sum(
            len(collection) + len(key.encode()) for keys in (self.puts, self.deletes) for collection, key in keys
        )


def encode(changes: Changes) -> EncodedChanges:
    """Encode changes. Raise `ValueError` for a key or document that no store could keep."""
    deletes = set(changes.deletes)
    for key in (*changes.puts, *deletes):
        _check_key(key)
        if key in changes.puts and key in deletes:
            raise ValueError(f"{_shown(key)}: both written and deleted by one change")
    return EncodedChanges({key: encode_document(key, document) for key, document in changes.puts.items()}, deletes)


def encode_document(key: Key, document: Document) -> bytes:
    try:
        # In ASCII, escapes preserve even what UTF-8 cannot represent (lone surrogates).
        return json.dumps(dict(document), allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{_shown(key)}: cannot be kept as JSON: {error}") from error


def decode_document(body: bytes) -> dict[str, Any]:
    """Decode a document. Raise `ValueError` for what `encode_document` never wrote."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("is not a JSON mapping")
    return document


def in_order(changes: Iterable[EncodedChanges]) -> EncodedChanges:
    """Return one change that has the effect of these, one after the other."""
    puts: dict[Key, bytes] = {}
    deletes: set[Key] = set()
    for each in changes:
        for key in each.deletes:
            puts.pop(key, None)
        deletes |= each.deletes
        deletes.difference_update(each.puts)
        puts |= each.puts
    return EncodedChanges(puts, deletes)


def _check_key(key: Key) -> None:
    collection, name = key
    if collection not in COLLECTIONS:
        raise ValueError(f"there is no collection {collection!r}: there are {', '.join(COLLECTIONS)}")
    # Raises UnicodeEncodeError, a ValueError, for lone surrogates.
    if not 1 <= len(name.encode()) <= MAX_KEY_BYTES:
        raise ValueError(f"{_shown(key)}: a key has 1 to {MAX_KEY_BYTES} bytes of UTF-8")


def _shown(key: Key) -> str:
    collection, name = key
    return f"{collection} {name[:40] + '...' if len(name) > 40 else name!r}"
