"""Calls to a cluster of etcd: one attempt each, at one of its members, with a deadline.

A member that fails or does not answer in time is left for the next one. The messages are those of
aetcd, the channels are ours: aetcd's own client knows one member and no TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from aetcd import rpc as messages  # type: ignore[import-untyped]

from echelon.controller.service.store.base import StoreError, StoreUnavailableError
from echelon_etcd.address import Address
from echelon_etcd.transaction import Delete, Equal, Operation, Outcome, Put

Result = TypeVar("Result")

ATTEMPT_S = 2.0
"""Timeout of one answer of one member."""
PAUSES_S = (0.05, 0.1, 0.2, 0.5)
"""Delays between attempts; the last one repeats."""

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A channel that replaces a silent one must not get its connection.
    ("grpc.use_local_subchannel_pool", 1),
)

_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}
"""Errors that another member, or the same one later, may not return."""


class CompactedError(StoreError):
    """The requested revision is gone."""


class LeaseGoneError(StoreError):
    """The lease has expired, or was revoked."""


@dataclass(frozen=True, slots=True)
class Page:
    entries: Sequence[tuple[bytes, bytes]]
    """Keys and values, in order of keys."""
    revision: int
    more: bool


@dataclass(slots=True)
class _Member:
    """A channel to one member.

    Closing it would cancel the tasks that wait for an answer on it, so the last one closes it.
    """

    channel: grpc.aio.Channel
    auth: Any
    kv: Any
    lease: Any
    watch: Any
    waiting: int = 0
    left: bool = False

    @classmethod
    def on(cls, channel: grpc.aio.Channel) -> _Member:
        return cls(
            channel,
            messages.AuthStub(channel),
            messages.KVStub(channel),
            messages.LeaseStub(channel),
            messages.WatchStub(channel),
        )


class Etcd:
    """The calls to etcd.

    Every call raises `StoreUnavailableError` if another attempt may succeed, else `StoreError`.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._next = 0
        self._member: _Member | None = None
        self._token: str | None = None

    async def transact(
        self,
        compared: Sequence[Equal],
        operations: Sequence[Operation],
        timeout_s: float = ATTEMPT_S,
    ) -> Outcome:
        """Do all `operations` if all of `compared` holds.

        `StoreUnavailableError`: it may be done, now or later.
        """
        request = messages.TxnRequest(
            compare=[_comparison(equal) for equal in compared],
            success=[_operation(operation) for operation in operations],
            failure=[
                messages.RequestOp(request_range=messages.RangeRequest(key=equal.key))
                for equal in compared
            ],
        )
        answer = await self._unary(lambda member: member.kv.Txn, request, timeout_s)
        if answer.succeeded:
            return Outcome(True, {})
        return Outcome(
            False,
            {each.key: each.value for part in answer.responses for each in part.response_range.kvs},
        )

    async def page(
        self,
        start: bytes,
        end: bytes,
        limit: int,
        revision: int = 0,
        timeout_s: float = ATTEMPT_S,
    ) -> Page:
        """Return up to `limit` keys from `start` to before `end`, as they were at `revision` (0:
        now). Raise `CompactedError`."""
        request = messages.RangeRequest(
            key=start,
            range_end=end,
            limit=limit,
            revision=revision,
        )
        answer = await self._unary(lambda member: member.kv.Range, request, timeout_s)
        entries = [(each.key, each.value) for each in answer.kvs]
        return Page(entries, revision or answer.header.revision, answer.more)

    async def get(self, key: bytes, timeout_s: float = ATTEMPT_S) -> tuple[bytes | None, int]:
        """Return the key's value, and the revision of the answer."""
        page = await self.page(key, b"", 1, timeout_s=timeout_s)
        return (page.entries[0][1] if page.entries else None), page.revision

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        """Grant a new lease.

        Return its id and its time to live in seconds, which etcd may have raised.
        """
        request = messages.LeaseGrantRequest(TTL=ttl_s)
        answer = await self._unary(lambda member: member.lease.LeaseGrant, request, ATTEMPT_S)
        return answer.ID, answer.TTL

    async def keep_alive(self, lease: int, timeout_s: float) -> int:
        """Renew the lease and return its time to live in seconds. Raise `LeaseGoneError`."""
        request = messages.LeaseKeepAliveRequest(ID=lease)
        async with self._attempt() as (member, metadata):
            ttl_s = 0
            async for answer in member.lease.LeaseKeepAlive(
                iter([request]),
                timeout=timeout_s,
                metadata=metadata,
            ):
                ttl_s = answer.TTL
        if ttl_s <= 0:
            raise LeaseGoneError(f"{self._address}: the lease has expired")
        return ttl_s

    async def revoke(self, lease: int, timeout_s: float = ATTEMPT_S) -> None:
        request = messages.LeaseRevokeRequest(ID=lease)
        with contextlib.suppress(LeaseGoneError):
            await self._unary(lambda member: member.lease.LeaseRevoke, request, timeout_s)

    async def wait_deleted(
        self,
        key: bytes,
        after: int,
        timeout_s: float,
    ) -> None:
        """Return once `key` is deleted after the revision `after`, or `timeout_s` is over."""
        request = messages.WatchRequest(
            create_request=messages.WatchCreateRequest(
                key=key,
                start_revision=after + 1,
                filters=[messages.WatchCreateRequest.NOPUT],
            )
        )
        async with self._attempt() as (member, metadata):
            call = member.watch.Watch(
                timeout=timeout_s,
                metadata=metadata,
            )
            try:
                await call.write(request)
                while True:
                    answer = await call.read()
                    if answer is grpc.aio.EOF or answer.canceled:
                        raise StoreUnavailableError(
                            f"{self._address}: refuses to let {key.decode()} be watched"
                        )
                    if answer.events:
                        return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
            except asyncio.InvalidStateError:
                raise StoreUnavailableError(
                    f"{self._address}: ended a watch before it began"
                ) from None
            finally:
                call.cancel()

    async def close(self) -> None:
        """Close the channels. No call may be under way."""
        await self._leave(self._member)

    async def _unary(
        self,
        method: Callable[[_Member], Any],
        request: Any,
        timeout_s: float,
    ) -> Any:
        async with self._attempt() as (member, metadata):
            return await method(member)(
                request,
                timeout=timeout_s,
                metadata=metadata,
            )

    @contextlib.asynccontextmanager
    async def _attempt(self) -> AsyncIterator[tuple[_Member, Sequence[tuple[str, str]]]]:
        """Make one call at the current member."""
        if self._member is None:
            self._member = _Member.on(self._connect())
        member = self._member
        member.waiting += 1
        failed = False
        try:
            yield member, await self._login(member)
        except grpc.aio.AioRpcError as error:
            failed = error.code() in _PASSING
            if error.code() is grpc.StatusCode.UNAUTHENTICATED or "revision in header is old" in (
                error.details() or ""
            ):
                self._token = None
            raise self._error(error) from error
        except asyncio.CancelledError:
            # A server's status CANCELLED comes out of gRPC as if this task had been cancelled.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            failed = True
            raise StoreUnavailableError(
                f"{self._address}: cancelled a call (check whether it is stopping)"
            ) from None
        finally:
            member.waiting -= 1
            if failed and member is self._member:
                self._next += 1
                await self._leave(member)
            elif member.left and not member.waiting:
                await member.channel.close()

    async def _login(self, member: _Member) -> Sequence[tuple[str, str]]:
        if self._address.user is None or self._address.password is None:
            return ()
        if self._token is None:
            request = messages.AuthenticateRequest(
                name=self._address.user,
                password=self._address.password.get_secret_value(),
            )
            answer = await member.auth.Authenticate(request, timeout=ATTEMPT_S)
            self._token = answer.token
        return (("token", self._token),)

    def _connect(self) -> grpc.aio.Channel:
        endpoint = self._address.endpoints[self._next % len(self._address.endpoints)]
        tls = self._address.tls
        if tls is None:
            return grpc.aio.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
        return grpc.aio.secure_channel(endpoint, credentials, options=_CHANNEL_OPTIONS)

    async def _leave(self, member: _Member | None) -> None:
        if member is None:
            return
        member.left = True
        if member is self._member:
            self._member = None
        if not member.waiting:
            await member.channel.close()

    def _error(self, error: grpc.aio.AioRpcError) -> StoreError:
        code = error.code()
        details = " ".join((error.details() or "").split())
        where = str(self._address)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return StoreUnavailableError(f"{where}: does not answer")
        if code is grpc.StatusCode.UNAVAILABLE:
            if self._address.tls is None:
                check = "whether it wants TLS"
            else:
                check = "ca, certificate and key"
            return StoreUnavailableError(
                f"{where}: cannot be reached: {details} (check its address, and {check})"
            )
        if code is grpc.StatusCode.UNAUTHENTICATED or "revision in header is old" in details:
            return StoreUnavailableError(f"{where}: the login has expired: {details}")
        if code in _PASSING:
            return StoreUnavailableError(f"{where}: fails: {details}")
        if code is grpc.StatusCode.OUT_OF_RANGE:
            return CompactedError(f"{where}: {details}")
        if code is grpc.StatusCode.NOT_FOUND:
            return LeaseGoneError(f"{where}: {details}")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "space" in details:
            return StoreError(
                f"{where}: is full: {details} (compact and defragment it, then: etcdctl alarm"
                " disarm; run it with --auto-compaction-retention)"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return StoreUnavailableError(f"{where}: is overloaded: {details}")
        if (
            code is grpc.StatusCode.PERMISSION_DENIED
            or "authentication" in details
            or "user name" in details
        ):
            return StoreError(
                f"{where}: refuses the login: {details} (user and password in the URL;"
                f" the user needs read and write on /{self._address.prefix}/)"
            )
        return StoreError(f"{where}: refuses: {code.name}: {details}")


async def until_answered(call: Callable[[], Awaitable[Result]], deadline_s: float) -> Result:
    """Return the result of `call`, repeated within `deadline_s`; else raise its last error."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    for pause_s in pauses():
        try:
            return await call()
        except StoreUnavailableError:
            if loop.time() + pause_s >= deadline:
                raise
        await asyncio.sleep(pause_s)
    raise AssertionError("pauses never end")


def pauses() -> Iterator[float]:
    yield from PAUSES_S
    while True:
        yield PAUSES_S[-1]


def _comparison(equal: Equal) -> Any:
    if equal.value is None:
        return messages.Compare(
            result=messages.Compare.EQUAL,
            target=messages.Compare.CREATE,
            key=equal.key,
            create_revision=0,
        )
    return messages.Compare(
        result=messages.Compare.EQUAL,
        target=messages.Compare.VALUE,
        key=equal.key,
        value=equal.value,
    )


def _operation(operation: Operation) -> Any:
    match operation:
        case Put(key, value, lease):
            return messages.RequestOp(
                request_put=messages.PutRequest(
                    key=key,
                    value=value,
                    lease=lease,
                )
            )
        case Delete(start, end):
            return messages.RequestOp(
                request_delete_range=messages.DeleteRangeRequest(
                    key=start,
                    range_end=end,
                )
            )
