"""DigestEntry messages, and digests of the data plane as P4Data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator

from finsy.proto import p4r

from softswitch.p4runtime.digests import DigestBatch, DigestConfig, DigestLists
from softswitch.p4runtime.p4data import DataType, UnsupportedTypeError, compile_type
from softswitch.p4runtime.p4info import DigestInfo, P4InfoError, P4InfoIndex
from softswitch.p4runtime.past import selected
from softswitch.rpc.status import Code, RefusedError

__all__ = ["DigestStore"]


class DigestStore:
    """The digests of a program: their configuration, and the shape of their messages."""

    def __init__(self, info: P4InfoIndex, lists: DigestLists) -> None:
        self._infos = info.digests
        self._lists = lists
        self._ids: dict[str, int] = {}
        self._types: dict[int, DataType] = {}
        for digest in info.digests.values():
            self._ids[digest.name] = digest.id
            self._types[digest.id] = _message_type(digest, info)

    def write(self, kind: int, entity: p4r.DigestEntry) -> None:
        """Enable a digest (INSERT), change it (MODIFY) or disable it (DELETE)."""
        digest_id = entity.digest_id
        self.check(digest_id)
        name = f"digest {self._infos[digest_id].name}"
        enabled = digest_id in self._lists.configs
        if kind == p4r.Update.INSERT and enabled:
            raise RefusedError(Code.ALREADY_EXISTS, f"{name} is already enabled")
        if kind != p4r.Update.INSERT and not enabled:
            raise RefusedError(Code.NOT_FOUND, f"{name} is not enabled")
        if kind == p4r.Update.DELETE:
            self._lists.disable(digest_id)
            return
        message = entity.config
        limits = (message.max_timeout_ns, message.max_list_size, message.ack_timeout_ns)
        if min(limits) < 0:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{name}: a timeout or size is negative")
        self._lists.configure(digest_id, DigestConfig(*limits))

    def read(self, query: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        """Yield the configuration of an enabled digest, or of all of them if the id is 0."""
        if query.digest_id:
            self.check(query.digest_id)
        for digest_id, config in selected(self._lists.configs, query.digest_id):
            message = p4r.DigestEntry.Config(
                max_timeout_ns=config.max_timeout_ns,
                max_list_size=config.max_list_size,
                ack_timeout_ns=config.ack_timeout_ns,
            )
            entry = p4r.DigestEntry(
                digest_id=digest_id,
                config=message,
            )
            yield p4r.Entity(digest_entry=entry)

    def current(self, entity: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        """Yield the configuration that an update of `entity` would change."""
        self.check(entity.digest_id)
        return self.read(entity)

    def check(self, digest_id: int) -> None:
        """Raise RefusedError (INVALID_ARGUMENT) unless the program has a digest of that id."""
        if digest_id not in self._infos:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"the program has no digest with id {digest_id}"
            )

    def learn(
        self,
        name: str,
        values: tuple[int, ...],
        now_ns: int,
        streams: Callable[[int], Collection[Hashable]],
    ) -> DigestBatch | None:
        """Add a message that the data plane made for digest `name`.

        Return the list that it completes, to be sent to `streams(digest_id)`.
        """
        digest_id = self._ids.get(name)
        if digest_id is None:
            return None
        return self._lists.learn(digest_id, values, now_ns, streams(digest_id))

    def message(self, batch: DigestBatch) -> p4r.DigestList:
        """Return `batch` as a message."""
        encode = self._types[batch.digest_id].encode
        return p4r.DigestList(
            digest_id=batch.digest_id,
            list_id=batch.list_id,
            data=[encode(values) for values in batch.messages],
            timestamp=batch.timestamp_ns,
        )


def _message_type(digest: DigestInfo, info: P4InfoIndex) -> DataType:
    try:
        return compile_type(digest.type_spec, info.type_info)
    except UnsupportedTypeError as error:
        raise P4InfoError(f"digest {digest.name}: {error}") from None
