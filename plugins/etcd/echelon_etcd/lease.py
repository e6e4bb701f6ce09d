"""A lease of etcd, and the leader's own idea of its minimum remaining time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from echelon.controller.service.store.base import StoreError, StoreUnavailableError
from echelon_etcd.rpc import Etcd, LeaseGoneError, pauses

RENEWALS = 3
"""Renewals within the time to live."""
SAFE = 0.9
"""Part of the time to live on which the holder relies, since clocks differ in speed."""


def now_s() -> float:
    """Return the time of a clock that, unlike the event loop's, advances while a machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A lease that counts from before its request, so that it ends here before it does in etcd."""

    def __init__(
        self,
        etcd: Etcd,
        id_: int,
        ttl_s: int,
        asked_s: float,
    ) -> None:
        self.id = id_
        self.ttl_s = ttl_s
        self._etcd = etcd
        self._end_s = asked_s + SAFE * ttl_s
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    async def grant(cls, etcd: Etcd, ttl_s: int) -> Lease:
        asked_s = now_s()
        return cls(etcd, *await etcd.grant(ttl_s), asked_s)

    @property
    def left_s(self) -> float:
        """Return how long the lease certainly lasts; zero or less: perhaps no longer."""
        return self._end_s - now_s()

    def keep(self, ended: Callable[[str], None], problem: Callable[[str | None], None]) -> None:
        """Renew the lease until `let_go`, or until it has ended.

        `ended` is then called with the reason. `problem` is called after every attempt.
        """
        self._keeping = asyncio.create_task(self._keep(ended, problem), name="store: lease")

    def let_go(self) -> None:
        """Stop renewing; `stopped` waits for the renewal under way."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def stopped(self) -> None:
        if self._keeping is not None:
            await asyncio.wait([self._keeping])

    async def revoke(self) -> None:
        """End the lease, and delete the keys bound to it."""
        await self._etcd.revoke(self.id)

    async def _keep(
        self, ended: Callable[[str], None], problem: Callable[[str | None], None]
    ) -> None:
        reason = "etcd did not answer within the lease"
        try:
            while True:
                async with asyncio.timeout(self.left_s):
                    await asyncio.sleep(self.ttl_s / RENEWALS)
                    await self._renew(problem)
        except TimeoutError:
            pass
        except StoreError as error:
            reason = error.reason
        finally:
            # Whatever ended this, nothing renews the lease any more.
            ended(reason)

    async def _renew(self, problem: Callable[[str | None], None]) -> None:
        for pause_s in pauses():
            asked_s = now_s()
            try:
                ttl_s = await self._etcd.keep_alive(self.id, self.ttl_s / RENEWALS)
            except LeaseGoneError:
                raise
            except StoreUnavailableError as error:
                problem(error.reason)
                await asyncio.sleep(pause_s)
            else:
                self._end_s = asked_s + SAFE * ttl_s
                problem(None)
                return
