"""`EtcdStore`: leadership, and commits that only a leader can make."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from echelon.controller.machine.records import Changes, Key, Snapshot
from echelon.controller.service.store.base import (
    Candidate,
    EncodedChanges,
    GroupCommit,
    GroupLimits,
    Leadership,
    NotLeaderError,
    Schema,
    StoreError,
    StoreUnavailableError,
    decode_all,
    encode,
    encode_document,
    next_term,
)
from echelon_etcd.address import Address
from echelon_etcd.layout import Contents, Layout, fits, transactions
from echelon_etcd.lease import Lease
from echelon_etcd.rpc import ATTEMPT_S, CompactedError, Etcd, LeaseGoneError, pauses, until_answered
from echelon_etcd.transaction import Equal, Operation, Put

ANSWER_S = 5.0
"""The time in which a call of a controller that does not lead tries to reach etcd."""
LIMITS = GroupLimits(count=50, size_bytes=512 << 10)
"""Bytes within one transaction of etcd, with room for keys and parts."""
PAGE = 128
"""Number of keys in the first answer of a load; `PAGE_BYTES` limits the later ones."""
PAGE_BYTES = 1 << 20


async def open_etcd(
    address: Address,
    *,
    lease_s: float,
    schema: Schema | None = None,
) -> EtcdStore:
    """Open the store at that address, which has to answer. Raise `StoreError`."""
    store = EtcdStore(address, lease_s, schema or Schema())
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return store


@dataclass(slots=True)
class _Held:
    """A leader's knowledge of its own keys."""

    leadership: Leadership
    lease: Lease
    leader: bytes
    """Value of the leader's key."""
    commit: bytes | None
    """Value of the key that names the last transaction."""
    transactions: int = 0
    parts: dict[Key, int] = field(default_factory=dict)
    """Number of parts of every document."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a transaction: one at a time."""


class EtcdStore:
    """A `Store`; see `open_etcd`."""

    def __init__(
        self,
        address: Address,
        lease_s: float,
        schema: Schema,
    ) -> None:
        self._address = address
        self._layout = Layout(address.prefix)
        self._schema = schema
        self._ttl_s = max(1, math.ceil(lease_s))
        self._etcd = Etcd(address)
        self._group = GroupCommit(self._write, LIMITS)
        self._held: _Held | None = None
        self._let_go: list[Lease] = []
        self._problem: str | None = None
        self._closed = False

    @property
    def url(self) -> str:
        return str(self._address)

    @property
    def problem(self) -> str | None:
        return self._problem

    def __repr__(self) -> str:
        return f"EtcdStore({self.url!r})"

    async def open(self) -> None:
        # Find faults in the stored documents now.
        await self.load()

    async def load(self) -> Snapshot:
        return self._snapshot(await self._contents())

    async def commit(self, changes: Changes) -> None:
        encoded = encode(changes)
        if self._held is None:
            raise await self._not_leader()
        await self._group.commit(self._held.leadership, encoded)

    async def campaign(self, candidate: Candidate) -> Leadership:
        self._check_open()
        if self._held is not None:
            raise StoreError(f"{self.url}: this controller leads already")
        await self._stopped()
        failed = pauses()
        while True:
            try:
                held = await self._try(candidate)
            except (StoreUnavailableError, NotLeaderError, LeaseGoneError) as error:
                self._problem = error.reason
                await asyncio.sleep(next(failed))
            else:
                failed = pauses()
                self._problem = None
                if held is not None:
                    return held.leadership

    async def leader(self) -> Candidate | None:
        self._check_open()
        value, _ = await until_answered(lambda: self._etcd.get(self._layout.leader), ANSWER_S)
        return _candidate(value)

    async def close(self) -> None:
        if self._held is not None:
            await self._resign(self._held.leadership)
        self._closed = True
        await self._stopped()
        await self._etcd.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Leading

    async def _try(self, candidate: Candidate) -> _Held | None:
        """Wait for a while if someone leads, then try to lead. None: no attempt was made."""
        layout = self._layout
        value, revision = await self._etcd.get(layout.leader)
        if value is not None:
            # If the watch does not tell (a connection that died silently), the next look does.
            await self._etcd.wait_deleted(layout.leader, revision, self._ttl_s)
            return None
        lease = await Lease.grant(self._etcd, self._ttl_s)
        try:
            held = await self._take(candidate, lease)
        except BaseException:
            with contextlib.suppress(StoreError):
                await lease.revoke()
            raise
        if held is None:
            await lease.revoke()
            return None
        return await self._begin(held)

    async def _take(self, candidate: Candidate, lease: Lease) -> _Held | None:
        """Take the leader's key for a new term; None: another controller was first."""
        layout = self._layout
        stored_term, _ = await self._etcd.get(layout.term)
        term = next_term(
            self._layout.read([(layout.term, stored_term)] if stored_term else []).term
        )
        leader = _leader_value(candidate, term, lease)
        compared = [Equal(layout.leader, None), Equal(layout.term, stored_term)]
        operations = [Put(layout.leader, leader, lease.id), Put(layout.term, str(term).encode())]
        outcome = await until_answered(
            lambda: self._etcd.transact(compared, operations), self._ttl_s
        )
        # An earlier attempt can have succeeded without an answer.
        if not outcome.succeeded and outcome.stored.get(layout.leader) != leader:
            return None
        leadership = Leadership(
            candidate,
            term,
            raise_term=self._raise_term,
            resign=self._resign,
        )
        return _Held(leadership, lease, leader, commit=None)

    async def _begin(self, held: _Held) -> _Held:
        """Finish what the last leader had begun, and migrate."""
        held.lease.keep(lambda reason: self._lose(held, reason), self._note)
        self._held = held
        try:
            async with held.lock:
                contents = await self._contents()
                held.commit = contents.commit
                held.parts = dict(contents.parts)
                if contents.schema is None:
                    schema = self._schema.version
                else:
                    schema = contents.schema
                self._schema.check(schema, self.url)
                if contents.pending is not None:
                    await self._carry_out(held, contents.pending)
                await self._transact(held, self._layout.done(schema))
                if schema != self._schema.version:
                    await self._commit_chunked(held, self._migration(contents))
        except BaseException:
            await self._resign(held.leadership)
            raise
        if held.leadership.lost.is_set():
            raise StoreUnavailableError(f"{self.url}: {held.leadership.reason}")
        return held

    def _migration(self, contents: Contents) -> EncodedChanges:
        after = {
            (name, key): encode_document((name, key), document)
            for name, documents in self._snapshot(contents).documents.items()
            for key, document in documents.items()
        }
        return EncodedChanges(
            {key: body for key, body in after.items() if contents.documents.get(key) != body},
            {key for key in contents.documents if key not in after},
        )

    async def _raise_term(self, leadership: Leadership, at_least: int) -> int:
        held = self._held
        if held is None or held.leadership is not leadership:
            raise await self._not_leader()
        async with held.lock:
            leader = _leader_value(leadership.candidate, at_least, held.lease)
            operations = [
                Put(self._layout.leader, leader, held.lease.id),
                Put(self._layout.term, str(at_least).encode()),
            ]
            await self._transact(held, operations)
            held.leader = leader
        return at_least

    async def _resign(self, leadership: Leadership) -> None:
        await self._group.idle()
        held = self._held
        if held is None or held.leadership is not leadership:
            return
        self._lose(held, "resigned")
        await self._stopped()

    def _lose(self, held: _Held, reason: str) -> None:
        if held is self._held:
            self._held = None
            held.lease.let_go()
            self._let_go.append(held.lease)
            held.leadership.lose(reason)

    async def _stopped(self) -> None:
        """Wait until nothing of former leaderships runs any more or keeps others waiting."""
        while self._let_go:
            lease = self._let_go[-1]
            await lease.stopped()
            # The lease would end by itself, only later.
            with contextlib.suppress(StoreError):
                await lease.revoke()
            if lease in self._let_go:
                self._let_go.remove(lease)

    def _note(self, problem: str | None) -> None:
        self._problem = problem

    # Committing

    async def _write(self, leadership: Leadership, changes: EncodedChanges) -> None:
        held = self._held
        if held is None or held.leadership is not leadership:
            raise await self._not_leader()
        async with held.lock:
            operations = self._layout.operations(changes, held.parts)
            if fits(operations):
                await self._transact(held, operations)
                self._remember(held, changes)
            else:
                await self._commit_chunked(held, changes)

    async def _commit_chunked(self, held: _Held, changes: EncodedChanges) -> None:
        id_ = f"{held.lease.id:x}-{held.transactions}"
        chunks, pending = self._layout.chunked(changes, id_, self._schema.version)
        for batch in transactions(chunks):
            await self._transact(held, batch)
        await self._transact(held, [Put(self._layout.pending, pending.encoded())])
        # The change is committed, and nothing else can be until it has been carried out.
        try:
            await self._carry_out(held, changes)
            await self._transact(held, self._layout.done(self._schema.version))
        except StoreError as error:
            self._lose(held, error.reason)
            raise StoreUnavailableError(f"{error.reason} (the change is kept)") from error
        except BaseException:
            self._lose(held, "a change was interrupted")
            raise

    async def _carry_out(self, held: _Held, changes: EncodedChanges) -> None:
        for batch in transactions(self._layout.operations(changes, held.parts)):
            await self._transact(held, batch)
        self._remember(held, changes)

    def _remember(self, held: _Held, changes: EncodedChanges) -> None:
        for key in changes.deletes:
            held.parts.pop(key, None)
        for key, body in changes.puts.items():
            held.parts[key] = self._layout.count(body)

    async def _transact(self, held: _Held, operations: Sequence[Operation]) -> None:
        """Carry out a transaction under `held.lock`, until etcd answers or leadership is lost.

        An attempt without an answer can still take effect, even after the next one: so each
        transaction names itself in the key `commit` and compares it with the one before. It takes
        effect once, and never after a later one.
        """
        layout = self._layout
        name = f"{held.lease.id:x}-{held.transactions}".encode()
        compared = [Equal(layout.leader, held.leader), Equal(layout.commit, held.commit)]
        everything = [*operations, Put(layout.commit, name)]
        unanswered: StoreUnavailableError | None = None
        for pause_s in pauses():
            if held is not self._held or held.lease.left_s <= 0:
                self._lose(held, "etcd did not answer within the lease")
                raise self._outcome(held, unanswered)
            try:
                outcome = await self._etcd.transact(
                    compared, everything, min(ATTEMPT_S, held.lease.left_s)
                )
            except StoreUnavailableError as error:
                unanswered = error
                self._problem = error.reason
                await asyncio.sleep(min(pause_s, max(held.lease.left_s, 0)))
                continue
            except StoreError as error:
                self._problem = error.reason
                # etcd answers the transaction that fills it with an error, and carries it out.
                if await self._is_last(held, name):
                    self._done(held, name)
                    return
                if unanswered is None:
                    raise
                self._lose(held, error.reason)
                raise self._outcome(held, unanswered) from error
            self._problem = None
            if outcome.succeeded or outcome.stored.get(layout.commit) == name:
                self._done(held, name)
                return
            leader = _candidate(outcome.stored.get(layout.leader))
            self._lose(held, f"{leader.id} leads" if leader else "the lease has expired")
            raise NotLeaderError(
                f"{self.url}: this controller no longer leads: {held.leadership.reason}",
                leader.url if leader else None,
            )

    def _done(self, held: _Held, name: bytes) -> None:
        held.commit = name
        held.transactions += 1

    async def _is_last(self, held: _Held, name: bytes) -> bool:
        """Return whether that was the last transaction that took effect."""
        try:
            last_commit, _ = await until_answered(
                lambda: self._etcd.get(self._layout.commit), held.lease.left_s
            )
        except StoreUnavailableError as error:
            self._lose(held, error.reason)
            raise self._outcome(held, error) from error
        return last_commit == name

    def _outcome(self, held: _Held, unanswered: StoreUnavailableError | None) -> StoreError:
        if unanswered is None:
            return NotLeaderError(
                f"{self.url}: this controller no longer leads: {held.leadership.reason}"
            )
        return StoreUnavailableError(f"{unanswered.reason} (the change may be kept or not)")

    async def _not_leader(self) -> NotLeaderError:
        leader = None
        if not self._closed:
            with contextlib.suppress(StoreError):
                leader = _candidate((await self._etcd.get(self._layout.leader))[0])
        return NotLeaderError(
            f"{self.url}: this controller does not lead", leader.url if leader else None
        )

    # Reading

    async def _contents(self) -> Contents:
        self._check_open()

        async def load() -> Contents:
            while True:
                try:
                    return self._layout.read(await self._entries())
                except CompactedError:
                    # The revision was compacted while it was being read; what has been read is
                    # useless.
                    continue

        return await until_answered(load, ANSWER_S)

    async def _entries(self) -> list[tuple[bytes, bytes]]:
        entries: list[tuple[bytes, bytes]] = []
        start = self._layout.start
        limit = PAGE
        revision = 0
        while True:
            page = await self._etcd.page(start, self._layout.end, limit, revision)
            entries += page.entries
            if not page.more:
                return entries
            revision = page.revision
            start = page.entries[-1][0] + b"\0"
            if sum(len(value) for _, value in page.entries) < PAGE_BYTES:
                limit *= 2

    def _snapshot(self, contents: Contents) -> Snapshot:
        if contents.schema is None:
            version = self._schema.version
        else:
            version = contents.schema
        self._schema.check(version, self.url)
        bodies = ((*key, body) for key, body in contents.documents.items())
        documents = decode_all(self.url, bodies, "restore etcd")
        return self._schema.upgrade(documents, version)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url}: is closed")


def _leader_value(
    candidate: Candidate,
    term: int,
    lease: Lease,
) -> bytes:
    """Return a value that no two leaderships share."""
    return json.dumps(
        {"id": candidate.id, "url": candidate.url, "term": term, "lease": f"{lease.id:x}"}
    ).encode()


def _candidate(leader: bytes | None) -> Candidate | None:
    if leader is None:
        return None
    try:
        value = json.loads(leader)
        return Candidate(str(value["id"]), str(value["url"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"the leader's key in etcd was not written by a store: {leader[:80]!r}"
        ) from error
