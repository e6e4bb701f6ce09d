"""The layout of documents as keys of etcd, and of changes as transactions.

Below ``/PREFIX/``::

    leader                     who leads, bound to a lease: {"id", "url", "term", "lease"}
    term                       the highest term yet
    schema                     version of the documents
    commit                     names the last transaction of the leader
    doc/COLLECTION/KEY/PART    a document: JSON, cut into parts of `PART_BYTES`; KEY is percent-encoded
    pending                    {"id", "chunks", "schema"}: a change that is committed and has yet to reach doc/
    chunk/ID/NUMBER            the text of that change, in parts

A change that fits one transaction of etcd is one. Any other is written as chunks first; the
transaction that puts ``pending`` commits it; then it is carried out piece by piece, and ``pending``
is deleted with the last piece. A reader in between sees the change as done; the next leader
finishes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, unquote

from echelon.controller.machine.records import Key
from echelon.controller.service.store.base import EncodedChanges, StoreError
from echelon_etcd.transaction import MAX_BYTES, MAX_OPERATIONS, Delete, Operation, Put

PART_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Pending:
    """A committed change that may not have been carried out yet."""

    id: str
    chunks: int
    schema: int
    """Schema of the documents after the change."""

    def encoded(self) -> bytes:
        return json.dumps({"id": self.id, "chunks": self.chunks, "schema": self.schema}).encode()


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything below the prefix, at one revision."""

    leader: bytes | None = None
    term: int = 0
    schema: int | None = None
    """The documents, with the pending change applied; None: nobody ever led."""
    commit: bytes | None = None
    documents: Mapping[Key, bytes] = field(default_factory=dict)
    """The schema, with the pending change applied."""
    parts: Mapping[Key, int] = field(default_factory=dict)
    """Number of parts of each document as it lies under doc/."""
    pending: EncodedChanges | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    prefix: str

    @property
    def start(self) -> bytes:
        return f"/{self.prefix}/".encode()

    @property
    def end(self) -> bytes:
        return _after(self.start)

    @property
    def leader(self) -> bytes:
        return self.start + b"leader"

    @property
    def term(self) -> bytes:
        return self.start + b"term"

    @property
    def schema(self) -> bytes:
        return self.start + b"schema"

    @property
    def commit(self) -> bytes:
        return self.start + b"commit"

    @property
    def pending(self) -> bytes:
        return self.start + b"pending"

    @property
    def chunks(self) -> bytes:
        return self.start + b"chunk/"

    def document(self, key: Key) -> bytes:
        """Return the common beginning of the keys of a document's parts."""
        collection, name = key
        return self.start + f"doc/{collection}/{quote(name, safe='')}/".encode()

    def operations(self, changes: EncodedChanges, parts: Mapping[Key, int]) -> list[Operation]:
        """Return the operations of a change. `parts`: of the documents as they are now."""
        operations: list[Operation] = []
        for key in changes.deletes:
            start = self.document(key)
            operations.append(Delete(start, _after(start)))
        for key, body in changes.puts.items():
            start = self.document(key)
            pieces = _pieces(body)
            operations += (
                Put(start + _number(number), piece) for number, piece in enumerate(pieces)
            )
            if parts.get(key, 0) > len(pieces):
                operations.append(Delete(start + _number(len(pieces)), _after(start)))
        return operations

    @staticmethod
    def count(body: bytes) -> int:
        """Count the parts of a document."""
        return max(1, -(-len(body) // PART_BYTES))

    def chunked(
        self,
        changes: EncodedChanges,
        id_: str,
        schema: int,
    ) -> tuple[list[Operation], Pending]:
        """Return the chunks, and what commits them."""
        pieces = _pieces(_text(changes))
        start = self.chunks + f"{id_}/".encode()
        return [
            Put(start + _number(number), piece) for number, piece in enumerate(pieces)
        ], Pending(id_, len(pieces), schema)

    def done(self, schema: int) -> list[Operation]:
        """Return the operations that end a pending change."""
        return [
            Put(self.schema, str(schema).encode()),
            Delete(self.pending, self.pending + b"\0"),
            Delete(self.chunks, _after(self.chunks)),
        ]

    def read(self, entries: Iterable[tuple[bytes, bytes]]) -> Contents:
        """Read `entries`: all of the prefix, in order of keys.

        Raise `StoreError` for what no store can have written.
        """
        single: dict[bytes, bytes] = {}
        chunks: dict[bytes, list[bytes]] = {}
        parts: dict[Key, list[bytes]] = {}
        for key, value in entries:
            match key.removeprefix(self.start).split(b"/"):
                case [_]:
                    single[key] = value
                case [b"doc", collection, name, _]:
                    parts.setdefault(
                        cast("Key", (collection.decode(), unquote(name.decode()))), []
                    ).append(value)
                case [b"chunk", id_, _]:
                    chunks.setdefault(id_, []).append(value)
        try:
            documents = {key: b"".join(pieces) for key, pieces in parts.items()}
            if self.schema in single:
                schema = int(single[self.schema])
            else:
                schema = None
            changes = None
            if self.pending in single:
                pending = Pending(**json.loads(single[self.pending]))
                changes = _changes(b"".join(chunks[pending.id.encode()][: pending.chunks]))
                schema = pending.schema
                for deleted in changes.deletes:
                    documents.pop(deleted, None)
                documents |= changes.puts
            return Contents(
                leader=single.get(self.leader),
                term=int(single.get(self.term, 0)),
                schema=schema,
                commit=single.get(self.commit),
                documents=documents,
                parts={key: len(pieces) for key, pieces in parts.items()},
                pending=changes,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"keys below {self.start.decode()} in etcd are not those of a store: {error!r}"
            ) from error


def fits(operations: Sequence[Operation]) -> bool:
    """Return whether the operations fit in one transaction."""
    return (
        len(operations) <= MAX_OPERATIONS
        and sum(each.size_bytes for each in operations) <= MAX_BYTES
    )


def transactions(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield transactions, each as large as one transaction may be."""
    batch: list[Operation] = []
    size_bytes = 0
    for operation in operations:
        if batch and (
            len(batch) == MAX_OPERATIONS or size_bytes + operation.size_bytes > MAX_BYTES
        ):
            yield batch
            batch = []
            size_bytes = 0
        batch.append(operation)
        size_bytes += operation.size_bytes
    if batch:
        yield batch


def _text(changes: EncodedChanges) -> bytes:
    """Return a line of JSON that describes what follows, then the documents end to end."""
    index = {
        "puts": [
            (collection, name, len(body)) for (collection, name), body in changes.puts.items()
        ],
        "deletes": sorted(changes.deletes),
    }
    return b"\n".join((json.dumps(index).encode(), b"".join(changes.puts.values())))


def _changes(text: bytes) -> EncodedChanges:
    line, _, bodies = text.partition(b"\n")
    index: dict[str, Any] = json.loads(line)
    puts: dict[Key, bytes] = {}
    start = 0
    for collection, name, length in index["puts"]:
        puts[collection, name] = bodies[start : start + length]
        start += length
    if start != len(bodies):
        raise ValueError("a pending change is incomplete")
    return EncodedChanges(puts, {(collection, name) for collection, name in index["deletes"]})


def _pieces(body: bytes) -> list[bytes]:
    return [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)] or [b""]


def _number(number: int) -> bytes:
    return b"%06x" % number


def _after(prefix: bytes) -> bytes:
    """Return the first key that does not begin with `prefix`, which ends with a slash."""
    return prefix[:-1] + b"0"
