"""Arbitration with a given election id, in place of finsy's, which outbids whoever is there.

If the id is in use, finsy takes the next lower one, and the primary's own id where no primary is connected. That is
right for a lone controller and wrong for one of several whose ids say who leads: a deposed leader would take over as
soon as its successor loses a connection.
"""

from __future__ import annotations

from finsy import GRPCStatusCode, Switch
from finsy.p4arbitrator import Arbitrator
from finsy.p4client import P4RpcStatus
from finsy.proto import U128, p4r


class FixedArbitrator(Arbitrator):
    """An arbitrator that bids one election id, once for each stream, and stays a backup where another id is higher."""

    async def handshake(self, switch: Switch, *, conflict: bool = False) -> None:
        """Bid for the role of primary. Raise `finsy.P4ClientError`, also where another stream has the same id."""
        await self._send(switch)
        assert switch._p4client is not None  # noqa: SLF001
        while True:
            # `_receive` is not used: it takes an id that is in use for an invitation to bid another one.
            response = await switch._p4client.receive()  # noqa: SLF001
            if response.WhichOneof("update") == "arbitration":
                break
        self._take(response.arbitration)

    async def update(self, switch: Switch, msg: p4r.MasterArbitrationUpdate) -> None:
        was_primary = self.is_primary
        self._take(msg)
        if was_primary and not self.is_primary:
            switch._become_backup()  # type: ignore[no-untyped-call]  # noqa: SLF001
        elif self.is_primary and not was_primary:
            switch._become_primary()  # type: ignore[no-untyped-call]  # noqa: SLF001

    def _take(self, message: p4r.MasterArbitrationUpdate) -> None:
        self.primary_id = U128.decode(message.election_id)
        # BMv2 answers OK to a backup whose primary has gone: it is still a backup, under its own id.
        self.is_primary = (
            P4RpcStatus.from_status(message.status).code == GRPCStatusCode.OK and self.primary_id == self.election_id
        )
